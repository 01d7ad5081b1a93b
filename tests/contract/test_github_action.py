"""The GitHub Action, its scripts run as a runner runs them."""

from __future__ import annotations

import os
import subprocess
import sys
import sysconfig
from pathlib import Path

import pytest
from stored_runs import store

ACTION = Path(__file__).resolve().parents[2] / ".github" / "actions" / "compare"
GPUTUI = Path(sysconfig.get_path("scripts")) / "gputui"


def as_a_runner(script: str, place: Path, **inputs: str) -> subprocess.CompletedProcess[str]:
    given = {"GITHUB_OUTPUT": str(place / "output"), "GITHUB_STEP_SUMMARY": str(place / "summary.md")}
    given |= {"RUNNER_TEMP": str(place), "LIMIT": "10", "UNSURE": "pass"}
    return subprocess.run(
        [ACTION / script], cwd=place, env={**os.environ, **given, **inputs}, capture_output=True, text=True
    )


@pytest.mark.parametrize(
    ("head_ms", "unsure", "conclusion", "status"),
    [
        (100.0, "pass", "success", 0),
        (160.0, "pass", "failure", 1),
        (111.0, "pass", "neutral", 0),
        (111.0, "fail", "neutral", 1),
    ],
)
def test_a_step_ends_as_the_gate_does_and_its_summary_has_the_table(
    tmp_path: Path, head_ms: float, unsure: str, conclusion: str, status: int
) -> None:
    for number in (1, 4):
        store(tmp_path / "base.db", number, launches=5)
    for number in (2, 3):
        store(tmp_path / "head.db", number, launches=5, gpt_ms=head_ms)
    inputs = {"RESULTS": str(tmp_path), "BASE": "a" * 40, "HEAD": "b" * 40, "GPUTUI": str(GPUTUI)}
    ended = as_a_runner("conclude.sh", tmp_path, UNSURE=unsure, **inputs)
    assert ended.returncode == status, ended.stdout + ended.stderr
    assert f"conclusion={conclusion}\n" in (tmp_path / "output").read_text()
    summary = (tmp_path / "summary.md").read_text()
    begins = {"success": "pass", "failure": "fail: ", "neutral": "cannot tell: "}[conclusion]
    assert summary.startswith(f"### Speed of bbbbbbbb beside aaaaaaaa: {begins}")
    assert "| b vs a |" in summary
    assert str(tmp_path) not in summary
    is_annotated = {
        "success": "",
        "failure": "::error::gate: fail",
        "neutral": "::warning::gate: cannot tell",
    }
    assert is_annotated[conclusion] in ended.stdout


def test_results_that_cannot_be_compared_are_an_error_and_no_conclusion(tmp_path: Path) -> None:
    store(tmp_path / "base.db", 1)
    inputs = {"RESULTS": str(tmp_path), "BASE": "a" * 40, "HEAD": "b" * 40, "GPUTUI": str(GPUTUI)}
    ended = as_a_runner("conclude.sh", tmp_path, **inputs)
    assert ended.returncode == 2
    assert "::error::the results could not be compared" in ended.stdout
    assert not (tmp_path / "output").exists()


def repository(place: Path) -> Path:
    """Two commits of a package whose step takes 1 and 6 times as long, with a workload that imports it."""
    repo = place / "repo"
    (repo / "mylib").mkdir(parents=True)
    (repo / "bench.py").write_text(
        "from gputui_worker.contract import Request, Size, Step, Workload\n"
        "def build(request: Request) -> Step:\n"
        "    import hashlib, mylib\n"
        "    return Step(lambda: [hashlib.sha256(bytes(2**20)) for _ in range(mylib.PIECES)])\n"
        "WORKLOAD = Workload(name='ours', version=1, title='ours', question='How fast?',\n"
        "    workload_class='inference', unit='req', sizes={'base': Size({}, 1.0, None, None, 1_000_000)},\n"
        "    precisions=('fp32',), device_classes=('cpu',), needs_torch=False, build=build)\n"
    )
    git = ["git", "-C", str(repo), "-c", "user.name=a", "-c", "user.email=a@example.org"]
    subprocess.run([*git, "init", "--quiet"], check=True)
    for pieces in (2, 12):
        (repo / "mylib" / "__init__.py").write_text(f"PIECES = {pieces}\n")
        subprocess.run([*git, "add", "--all"], check=True)
        subprocess.run([*git, "commit", "--quiet", "-m", f"{pieces} pieces"], check=True)
    return repo


def test_wrong_inputs_are_named_before_anything_is_made(tmp_path: Path) -> None:
    (place := tmp_path / "temp").mkdir()
    repo = repository(tmp_path)
    inputs = {"PROFILE": "bench.py", "INSTALL": "true", "PYTHON": sys.executable, "OPTIONS": ""}
    for wrong, said in (
        ({"BASE": "nowhere"}, "the commit nowhere is not here"),
        ({"ROUNDS": "many"}, "rounds: 'many'"),
        ({"UNSURE": "maybe"}, "unsure: 'maybe'"),
    ):
        given = {**inputs, "BASE": "", "ROUNDS": "1", "RUNNER_TEMP": str(place), **wrong}
        ended = subprocess.run(
            [ACTION / "compare.sh"],
            cwd=repo,
            env={**os.environ, "UNSURE": "pass", "LIMIT": "10", **given},
            capture_output=True,
            text=True,
        )
        assert (ended.returncode, said in ended.stdout) == (2, True), ended.stdout + ended.stderr
    assert not list(place.iterdir())


def python_here(place: Path) -> Path:
    """An interpreter whose environments have the packages of this one at once, and its pip."""
    path = place / "python"
    path.write_text(f"""#!/bin/sh -e
shift 2  # -m venv
{sys.executable} -m venv --without-pip "$@"
echo {sysconfig.get_path("purelib")} > "$(echo "$1"/lib/python*/site-packages)/here.pth"
echo 'exec {sys.executable} -m pip --python "$(dirname "$0")/python" "$@"' > "$1/bin/pip"
chmod +x "$1/bin/pip"
""")
    path.chmod(0o755)
    return path


@pytest.mark.slow
@pytest.mark.alone
def test_two_commits_are_measured_in_turn_and_nothing_of_it_stays_in_the_clone(tmp_path: Path) -> None:
    repo = repository(tmp_path)
    install = 'mkdir build; cp -r mylib "$VIRTUAL_ENV"/lib/python*/site-packages'
    given = {"GITHUB_OUTPUT": str(tmp_path / "output"), "GITHUB_STEP_SUMMARY": str(tmp_path / "summary.md")}
    given |= {"RUNNER_TEMP": str(tmp_path), "LIMIT": "10", "UNSURE": "pass", "ROUNDS": "1", "BASE": ""}
    given |= {"PROFILE": "bench.py", "INSTALL": install, "PYTHON": str(python_here(tmp_path))}
    given |= {
        "PIP_NO_BUILD_ISOLATION": "0",
        "PIP_NO_COMPILE": "1",
    }  # hatchling is here; few modules are imported
    ended = subprocess.run(
        [ACTION / "compare.sh"],
        cwd=repo,
        env={**os.environ, **given, "OPTIONS": "--launches 1 --budget 60 --blocks 5"},
        capture_output=True,
        text=True,
    )
    said = (
        (tmp_path / "output").read_text() if (tmp_path / "output").exists() else ended.stdout + ended.stderr
    )
    summary = (tmp_path / "summary.md").read_text()
    if "that others had" in summary:  # on a crowded box nothing is decided, whatever was measured
        assert (ended.returncode, said.partition("\n")[0]) == (0, "conclusion=neutral"), summary
    else:
        assert (ended.returncode, said.partition("\n")[0]) == (1, "conclusion=failure"), summary
        assert ": fail: " in summary
    results = Path(said.partition("results=")[2].strip())
    for side in ("base", "head"):
        runs = [str(GPUTUI), "db", "runs", str(results / f"{side}.db"), "--json"]
        rows = subprocess.run(runs, capture_output=True, text=True, check=True)
        assert rows.stdout.count(f'"label": "{side}"') == 2
    assert subprocess.run(["git", "worktree", "list"], cwd=repo, capture_output=True).stdout.count(b"\n") == 1
    assert not subprocess.run(["git", "status", "--short"], cwd=repo, capture_output=True).stdout
