"""`gputui why`: a program runs as it would alone, and where the time of its steps goes is said and stored."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
from command_line import LONGEST_S, WORDS, gputui, gputui_here

from gputui.services.traces import in_program

_TRAINS = """
import sys, torch
print("args", *sys.argv[1:])
weight = torch.nn.Parameter(torch.ones(8, 8))
other = torch.optim.SGD([torch.nn.Parameter(torch.ones(1))])
optimizer = torch.optim.AdamW([weight])
for _ in range(int(sys.argv[1])):
    optimizer.zero_grad()
    (weight @ weight).sum().backward()
    optimizer.step()
    other.step()
print("weight", weight.shape[0], file=sys.stderr)
sys.exit(7)
"""


def why(directory: Path, *words: str) -> subprocess.CompletedProcess[str]:
    path = os.pathsep.join((str(directory / "own"), os.environ.get("PYTHONPATH", "")))
    return subprocess.run(
        [*WORDS, "why", *words],
        env={**os.environ, "GPUTUI_DB": str(directory / "a.db"), "PYTHONPATH": path},
        cwd=directory,
        capture_output=True,
        text=True,
        timeout=LONGEST_S,
        check=False,
    )


def test_a_program_that_trains_stays_as_it_is_and_its_steps_are_explained_and_stored(tmp_path: Path) -> None:
    (tmp_path / "train.py").write_text(_TRAINS)
    (tmp_path / "own").mkdir()
    (tmp_path / "own" / "sitecustomize.py").write_text(
        f"import os\nif {in_program.DIRECTORY!r} in os.environ:\n    print('of the user')\n"
    )
    words = ("--after", "3", "--steps", "4", "--", sys.executable, "train.py", "20", "--lr=1")
    done = why(tmp_path, *words)
    assert (done.returncode, done.stdout) == (7, "of the user\nargs 20 --lr=1\n"), done.stderr
    first, _, rest = done.stderr.partition("\n")
    assert first == "weight 8"
    assert re.match(r"A step takes [0-9.]+ [mµ]?s\. ", rest)
    assert re.search(r"CPU, torch \S+; steps 5 to 8 of 20 of train\.py; before, a\s+step took", rest)
    assert "matmul" in rest
    (run,) = re.findall(r"gputui: stored as (\w{8}) in a\.db\n  gputui show \1 a\.db -v\n", rest)
    shown = gputui_here("show", run, tmp_path / "a.db").stdout
    assert shown.startswith(rest.split("\n")[0])


def test_the_line_that_a_step_is_paused_in_is_named_and_stored(tmp_path: Path) -> None:
    (tmp_path / "train.py").write_text(
        "import torch\n"
        "optimizer = torch.optim.SGD([torch.nn.Parameter(torch.ones(8, 8))])\n"
        "def prepare():\n"
        "    return sum(n for n in range(2_000_000))\n"
        "def main():\n"
        "    for _ in range(6):\n"
        "        torch.ones(64, 64) @ torch.ones(64, 64)\n"
        "        prepare()\n"
        "        optimizer.step()\n"
        "main()\n"
    )
    done = why(tmp_path, "--after", "1", "--steps", "3", "--", sys.executable, "train.py")
    assert done.returncode == 0, done.stderr
    assert re.search(r"no operator runs \(train\.py:4, \d+ % of it\)", " ".join(done.stderr.split()))
    for words in (("why", f"{tmp_path / 'a.db'}@latest"), ("show", tmp_path / "a.db", "-v")):
        assert "train.py:4, " in gputui_here(*words).stdout


@pytest.mark.slow
def test_a_program_without_an_optimizer_is_explained_by_a_while_of_its_main_thread(tmp_path: Path) -> None:
    (tmp_path / "infer.py").write_text(
        "import os, torch\nfrom pathlib import Path\n"
        f"while not list(Path(os.environ[{in_program.DIRECTORY!r}]).glob('unmarked-*.json')):\n"
        "    torch.ones(64, 64) @ torch.ones(64, 64)\n"
    )
    done = why(tmp_path, "--", sys.executable, "infer.py")
    assert done.returncode == 0, done.stderr
    assert "infer.py as it is, which makes no steps" in " ".join(done.stderr.split())
    assert "steps are not marked" in done.stderr
    assert "matmul" in done.stderr


@pytest.mark.slow
@pytest.mark.parametrize(
    ("steps", "reason"),
    [
        ("0", "before an optimizer step, and within 5 s of importing torch: let it run longer"),
        ("2", "after 2 optimizer steps, before the window: --after 1 --steps 1 begins earlier"),
    ],
)
def test_a_program_that_ends_too_soon_is_named_with_what_would_help(
    tmp_path: Path, steps: str, reason: str
) -> None:
    (tmp_path / "train.py").write_text(_TRAINS)
    done = why(tmp_path, "--", sys.executable, "train.py", steps)
    assert done.returncode == 7
    assert f"gputui: nothing was profiled: it ended {reason}\n" in done.stderr
    assert not (tmp_path / "a.db").exists()


@pytest.mark.parametrize(
    "words", [(sys.executable, "-c", "print('ran')"), (sys.executable, "-I", "-c", "print('ran')")]
)
def test_a_program_without_torch_is_run_and_says_that_nothing_was_profiled(
    tmp_path: Path, words: tuple[str, ...]
) -> None:
    done = why(tmp_path, "--", *words)
    assert (done.returncode, done.stdout) == (0, "ran\n")
    assert done.stderr == (
        "gputui: nothing was profiled: no Python that imports torch ran,"
        " or one that ignores PYTHONPATH (-E, -I, -S)\n"
    )


@pytest.mark.parametrize(
    ("words", "status", "said"),
    [
        ((), 125, "nothing to explain"),
        (("--", "no-such-program"), 127, "no-such-program: cannot be started: No such file or directory"),
        (("--",), 125, "no command follows --"),
        (("a.json", "b.json"), 125, "a.json and b.json: one trace is explained, or a command after --"),
        (("a.json",), 125, "a.json"),
        (("a.json", "--top", "2"), 125, "a.json"),
        (("--steps", "0", "--", "true"), 125, "--steps"),
    ],
)
def test_what_cannot_be_explained_is_named_and_ends_with_a_status_that_is_no_programs(
    words: tuple[str, ...], status: int, said: str
) -> None:
    done = gputui("why", *words)
    assert done.returncode == status
    assert said in done.stderr


def test_the_variables_of_the_program_are_those_that_its_half_reads() -> None:
    text = (Path(in_program.__file__).parent / "sitecustomize.py").read_text()
    for name in ("DIRECTORY", "STEPS", "AFTER"):
        assert f'{name} = "{getattr(in_program, name)}"' in text
