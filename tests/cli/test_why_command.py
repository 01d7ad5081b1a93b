"""`gputui why`: a program runs as it would alone, and where the time of its steps goes is said and stored."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
from chrome_traces import write_training
from command_line import LONGEST_S, WORDS, gputui_here
from stored_runs import store

from gputui.cli import why as why_command

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


def test_a_program_that_trains_stays_as_it_is_and_its_steps_are_explained_and_stored_with_what_changed(
    tmp_path: Path,
) -> None:
    (tmp_path / "train.py").write_text(_TRAINS)
    (tmp_path / "own").mkdir()
    (tmp_path / "own" / "sitecustomize.py").write_text(
        f"import os\nif {why_command.DIRECTORY!r} in os.environ:\n    print('of the user')\n"
    )
    command = ("--", sys.executable, "train.py", "20", "--lr=1")
    done = why(tmp_path, "--after", "3", "--steps", "4", *command)
    assert (done.returncode, done.stdout) == (7, "of the user\nargs 20 --lr=1\n"), done.stderr
    first, _, rest = done.stderr.partition("\n")
    assert first == "weight 8"
    page = " ".join(rest.split())
    assert re.match(r"A step takes [0-9.]+ [mµ]?s", page)
    assert re.search(r"\. CPU, torch \S+; steps 5 to 8 of 20 of train\.py ", page)
    assert not _tells_a_change(rest)
    (run,) = re.findall(r"stored in a\.db as (\w{8})\n", rest)
    assert f"gputui why a.db@{run} --brief\n" in rest
    of_run = gputui_here("why", f"{tmp_path / 'a.db'}@{run}").stdout
    assert of_run.partition("\n\n")[0] == rest.partition("\n\n")[0]
    assert gputui_here("show", run, tmp_path / "a.db").stdout == of_run
    told = json.loads(gputui_here("why", tmp_path / "a.db", "--json").stdout)
    assert told["ran"] == f"{sys.executable} train.py 20 --lr=1"
    assert (told["steps"], told["own_step_ns"] > 0) == (4, True)
    written = gputui_here("why", tmp_path / "a.db", "-o", tmp_path / "why.json")
    assert (written.returncode, "wrote " in written.stderr) == (0, True)
    assert json.loads((tmp_path / "why.json").read_text())["sentence"] in page
    (recording,) = re.findall(r"gputui: recorded as (\w{8}) in a\.db: .* of CPU", rest)
    found = json.loads(gputui_here("show", run, tmp_path / "a.db", "--json").stdout)
    assert 0 <= found["cases"][0]["profiled"]["waited_share"] < 1
    assert f"recorded in {recording}" in gputui_here("show", run, tmp_path / "a.db", "-v").stdout
    assert f"profiled in {run}" in gputui_here("show", recording, tmp_path / "a.db", "-v").stdout
    # the same command again, changed, in a form for others that cannot be written
    changed = _TRAINS.replace("ones(8, 8)", "ones(16, 16)").replace("    other.step()", "    prepare()")
    (tmp_path / "train.py").write_text(
        f"def prepare():\n    return sum(n for n in range(2_000_000))\n{changed}"
    )
    again = why(tmp_path, "--after", "3", "--steps", "2", "-o", "nowhere/why.md", *command)
    assert (again.returncode, again.stdout) == (done.returncode, done.stdout)
    assert _tells_a_change(again.stderr)
    assert "there is no directory nowhere" in again.stderr
    line = re.compile(r"^Python runs between operators.*\n(?:.+\n)*?  where: train\.py:2, ", re.MULTILINE)
    assert line.search(again.stderr), again.stderr
    (run,) = re.findall(r"stored in a\.db as (\w{8})\n", again.stderr)
    assert line.search(gputui_here("why", f"{tmp_path / 'a.db'}@{run}").stdout)
    assert line.search(gputui_here("show", run, tmp_path / "a.db", "-v").stdout)


def _tells_a_change(said: str) -> bool:
    return " before" in said or "Can't tell what changed" in said  # which a crowded box does not tell


@pytest.fixture
def traces(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    write_training(tmp_path / "a.json", steps=4, gemm_us=100, wait_us=40)
    write_training(tmp_path / "b.json", steps=4, gemm_us=100)


@pytest.mark.usefixtures("traces")
def test_a_trace_is_explained_as_a_page_as_markdown_and_as_json() -> None:
    sentence = "A step takes 200 µs: 50 % is matmul, and for 20 % the GPU waits for data."
    page = gputui_here("why", "a.json").stdout
    assert " ".join(page.split()).startswith(f"{sentence} NVIDIA A100; a: 4 steps, 200 µs each ")
    assert "\nThe GPU waits for data: 40.0 µs, 20 %; at best 200 to 160 µs" in page
    assert "ampere_sgemm" not in page
    assert "ampere_sgemm" in gputui_here("why", "a.json", "--top", "2").stdout
    assert gputui_here("why", "a.json", "--brief").stdout.startswith(f"# {sentence}\n\n- NVIDIA A100; a: 4")
    told = json.loads(gputui_here("why", "a.json", "--json").stdout)
    assert (told["schema"], told["sentence"], told["step_ns"]) == (1, sentence, 200_000)
    assert [(one["kind"], one["at_best_ns"]) for one in told["causes"]] == [
        ("starved by the loader", 160_000),
        ("launch-bound", 160_000),
    ]
    assert gputui_here("why", "a.json", "-o", "why.md").stderr == "wrote why.md\n"
    assert Path("why.md").read_text().startswith(f"# {sentence}")


@pytest.mark.usefixtures("traces")
def test_of_two_traces_or_stored_ones_the_difference_is_explained() -> None:
    said = gputui_here("why", "a.json", "b.json").stdout
    assert said == gputui_here("compare", "a.json", "b.json").stdout
    assert said.startswith("b's steps take 40.0 µs less than a's")
    assert gputui_here("import", "a.json", "b.json", "--db", "t.db").returncode == 0
    stored = json.loads(gputui_here("why", "t.db@a", "t.db@b", "--json").stdout)
    assert (stored["step_a_ns"], stored["step_b_ns"]) == (200_000, 160_000)
    assert "**b's steps take" in gputui_here("why", "a.json", "b.json", "--brief").stdout
    assert "gputui import a.json" in gputui_here("why", "a.json", "t.db@b").stderr
    store(Path("own.db"), 1)
    assert "is not a trace" in gputui_here("why", "own.db", "t.db@b").stderr


@pytest.mark.slow
def test_a_program_without_an_optimizer_is_explained_by_a_while_of_its_main_thread(tmp_path: Path) -> None:
    (tmp_path / "infer.py").write_text(
        "import os, time, torch\nfrom pathlib import Path\n"
        f"while not list(Path(os.environ[{why_command.DIRECTORY!r}]).glob('unmarked-*.json')):\n"
        "    torch.ones(64, 64) @ torch.ones(64, 64)\n"
        "    time.sleep(0.01)\n"
    )
    done = why(tmp_path, "--", sys.executable, "infer.py")
    assert done.returncode == 0, done.stderr
    assert "a while of infer.py as it is" in " ".join(done.stderr.split())
    assert "steps are not marked" in done.stderr
    assert "matmul" in done.stderr


@pytest.mark.slow
def test_calls_of_backward_are_the_steps_of_a_program_whose_optimizer_is_its_own(tmp_path: Path) -> None:
    (tmp_path / "train.py").write_text(
        "import os, time, torch\nfrom pathlib import Path\n"
        "class Twice(torch.autograd.Function):\n"
        "    @staticmethod\n"
        "    def forward(ctx, x):\n"
        "        ctx.save_for_backward(x)\n"
        "        return 2 * x\n"
        "    @staticmethod\n"
        "    def backward(ctx, gradient):\n"
        "        with torch.enable_grad():\n"
        "            inner = ctx.saved_tensors[0].detach().requires_grad_()\n"
        "            (inner * 2).sum().backward()\n"
        "        return 2 * gradient\n"
        "weight = torch.ones(64, 64, requires_grad=True)\n"
        f"directory = Path(os.environ[{why_command.DIRECTORY!r}])\n"
        "calls = 0\n"
        "while not list(directory.glob('trace-*.json')):\n"
        "    Twice.apply(weight @ weight).sum().backward()\n"
        "    calls += 1\n"
        "    time.sleep(0.01)\n"
        "print(calls)\n"
    )
    done = why(tmp_path, "--steps", "4", "--", sys.executable, "train.py")
    assert done.returncode == 0, done.stderr
    page = " ".join(done.stderr.split())
    assert re.search(rf"CPU, torch \S+; steps \d+ to \d+ of {done.stdout.strip()} of train\.py ", page), page
    assert "a step ends with backward(): no optimizer of torch makes any" in page


@pytest.mark.slow
def test_a_program_that_ends_too_soon_is_named_with_what_would_help(tmp_path: Path) -> None:
    (tmp_path / "train.py").write_text(_TRAINS)
    done = why(tmp_path, "--", sys.executable, "train.py", "2")
    assert done.returncode == 7
    reason = "after 2 optimizer steps, before the window: --after 1 --steps 1 begins earlier"
    assert f"gputui: nothing was profiled: it ended {reason}\n" in done.stderr
    assert "recorded as" in done.stderr


def test_a_program_that_made_no_step_of_its_optimizer_is_to_run_longer() -> None:
    before = "it ended before an optimizer step, and within 5 s of importing torch: let it run longer"
    assert why_command._why_not([{"torch": "2.13.0"}]) == before
    by_hand = "it ended after 3 calls of backward() and no optimizer step: let it run longer"
    assert why_command._why_not([{"torch": "2.13.0", "seen": 3, "marks": "backward"}]) == by_hand


def test_a_program_without_torch_is_run_and_says_that_nothing_was_profiled(tmp_path: Path) -> None:
    done = why(tmp_path, "--", sys.executable, "-I", "-c", "print('ran')")
    assert (done.returncode, done.stdout) == (0, "ran\n")
    assert done.stderr.startswith(
        "gputui: nothing was profiled: no Python that imports torch ran,"
        " or one that ignores PYTHONPATH (-E, -I, -S)\ngputui: recorded as"
    )


@pytest.mark.parametrize(
    ("words", "status", "said"),
    [
        ((), 2, "nothing to explain"),
        (("--", "no-such-program"), 127, "no-such-program: cannot be started: No such file or directory"),
        (("--",), 125, "no command follows --"),
        (("a.db", "b.db", "c.db"), 2, "3 traces or runs: one is explained, or how two differ"),
        (("a.json", "--brief", "--json"), 2, "--brief and --json: one of them"),
        (("a.json",), 2, "a.json"),
        (("a.json", "--top", "2"), 2, "a.json"),
        (("--steps", "0", "--", "true"), 125, "--steps"),
        (("--json", "--", "true"), 125, "--json: stdout is the program's own\n  -o why.json"),
    ],
)
def test_what_cannot_be_explained_is_named_and_ends_with_a_status_that_is_no_programs(
    words: tuple[str, ...], status: int, said: str
) -> None:
    done = gputui_here("why", *words)
    assert (done.returncode, done.stdout) == (status, "")
    assert said in done.stderr


def test_the_variables_of_the_program_are_those_that_its_half_reads() -> None:
    text = (why_command.IN_PROGRAM / "sitecustomize.py").read_text()
    for name in ("DIRECTORY", "STEPS", "AFTER"):
        assert f'{name} = "{getattr(why_command, name)}"' in text
