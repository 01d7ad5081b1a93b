"""The measuring half as one file, run by a Python with only the standard library, or also torch."""

from __future__ import annotations

import importlib.util
import json
import os
import subprocess
import sys
import venv
import zipfile
from collections.abc import Iterable, Sequence
from pathlib import Path

import pytest
from builders import make_case, make_plan, make_spec

from gputui.model.journal import JOURNAL_NAME, Block, CaseEnd, LaunchEnd, RunEnd, RunStart
from gputui.model.plan import Plan, Variant
from gputui.recording.probing import measuring_half
from gputui.services.profiles.planner import case_of
from gputui.store.journal_reader import read_journal, read_telemetry
from gputui.store.reading import open_result
from gputui.store.writing import store_run
from gputui.worker.workloads import workload_named

OURS = ("gputui", "duckdb", "numpy", "msgspec", "click", "psutil", "pynvml")
TORCH_NEEDS = (
    *("torch", "torchgen", "functorch", "typing_extensions", "sympy", "mpmath", "networkx", "jinja2"),
    *("markupsafe", "filelock", "fsspec", "setuptools", "_distutils_hack", "pkg_resources"),
)
"""torch's dependencies."""


def importable(python: Path, names: Iterable[str]) -> list[str]:
    """Which of these modules a Python can find."""
    code = (
        "import importlib.util, json, sys\n"
        "print(json.dumps([name for name in sys.argv[1:] if importlib.util.find_spec(name)]))"
    )
    done = subprocess.run(
        [str(python), "-I", "-c", code, *names], capture_output=True, check=True, cwd=python.parent
    )
    found: list[str] = json.loads(done.stdout)
    return found


@pytest.fixture
def bare_python(tmp_path: Path) -> Path:
    """A Python with only the standard library."""
    venv.create(tmp_path / "bare", symlinks=True)
    return tmp_path / "bare" / "bin" / "python"


@pytest.fixture
def torch_python(bare_python: Path, tmp_path: Path) -> Path:
    """A Python with torch, its dependencies, and nothing of ours."""
    site = next((tmp_path / "bare").glob("lib/python*/site-packages"))
    for name in TORCH_NEEDS:
        found = importlib.util.find_spec(name)
        if found is not None and found.origin is not None:
            origin = Path(found.origin)
            source = origin.parent if origin.name == "__init__.py" else origin
            (site / source.name).symlink_to(source)
            if name == "torch":
                for libraries in source.parent.glob("nvidia*"):
                    (site / libraries.name).symlink_to(libraries)
    return bare_python


def run_over_there(home: Path, plan: Plan, python: Path) -> tuple[Path, subprocess.CompletedProcess[str]]:
    """Send one file and one run directory, execute, and bring back only the journal."""
    there, here = home / "there", home / "here"
    run_dir = there / "run"
    run_dir.mkdir(parents=True)
    here.mkdir()
    (there / "measure.zip").write_bytes(measuring_half())
    make_spec(plan).write(run_dir)
    done = subprocess.run(
        [str(python), "-I", "measure.zip", str(run_dir)],
        cwd=there,
        env={"PATH": os.environ["PATH"]},
        capture_output=True,
        text=True,
        check=False,
        timeout=300,
    )
    for name in (JOURNAL_NAME, "telemetry.bin"):
        (here / name).write_bytes((run_dir / name).read_bytes())
    return here, done


def assert_measured(home: Path, journal_dir: Path, cases: Sequence[int]) -> None:
    """And what is stored of it here is what was measured."""
    contents = read_journal(journal_dir)
    assert contents.damage == ()
    assert sorted((end.case_id, end.outcome, end.reason) for end in contents.of(CaseEnd)) == [
        (case_id, "ok", "") for case_id in cases
    ]
    assert [end.status for end in contents.of(RunEnd)] == ["finished"]
    assert len(contents.of(Block)) >= 5 * len(cases)
    store_run(home / "results.db", contents, read_telemetry(journal_dir))
    with open_result(home / "results.db") as result:
        run = result.run(contents.start.run_id)
    blocks = [b for case in run.cases for m in case.measurements for b in m.blocks]
    assert sorted(blocks, key=lambda block: block.start_ns) == list(contents.of(Block))


def test_the_archive_holds_the_measuring_half_and_nothing_that_reads(tmp_path: Path) -> None:
    archive_path = tmp_path / "measure.zip"
    archive_path.write_bytes(measuring_half())
    names = zipfile.ZipFile(archive_path).namelist()
    rooms = {name.split("/")[1] for name in names if name.count("/") > 1}
    assert rooms == {"model", "sources", "machine", "worker", "recording"}
    assert {name for name in names if name.count("/") == 0} == {"__main__.py", "pynvml.py"}
    assert len(names) == len(set(names))
    assert measuring_half() == archive_path.read_bytes()
    assert archive_path.stat().st_size < 430_000


def test_a_python_with_nothing_but_itself_measures_and_its_journal_is_stored_here(
    tmp_path: Path, bare_python: Path
) -> None:
    assert importable(bare_python, (*OURS, "torch")) == []
    plan = make_plan([0], interpreter=[str(bare_python), "-I"])
    journal_dir, done = run_over_there(tmp_path, plan, bare_python)
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")
    assert_measured(tmp_path, journal_dir, [0])
    assert len(list(read_telemetry(journal_dir))) >= 1
    assert read_journal(journal_dir).of(RunStart)[0].profile == "test"


def test_a_place_that_lacks_torch_fails_the_case_with_what_is_missing(
    tmp_path: Path, bare_python: Path
) -> None:
    plan = make_plan([0], cases=[make_case("gemm")], interpreter=[str(bare_python), "-I"])
    journal_dir, done = run_over_there(tmp_path, plan, bare_python)
    assert (done.returncode, done.stderr) == (1, "")
    end = read_journal(journal_dir).of(LaunchEnd)[0]
    assert end.outcome == "failed"
    assert "No module named 'torch'" in end.log_tail
    assert str(tmp_path) not in end.log_tail
    command = [str(bare_python), "-I", str(tmp_path / "there" / "measure.zip")]
    without_run = subprocess.run(command, capture_output=True, text=True, check=False)
    assert (without_run.returncode, without_run.stderr) == (2, "usage: RUNDIR...\n")


@pytest.mark.slow  # torch is imported
def test_a_python_with_nothing_but_torch_measures_a_product_and_its_journal_is_stored_here(
    tmp_path: Path, torch_python: Path
) -> None:
    pytest.importorskip("torch")
    assert importable(torch_python, (*OURS, "torch")) == ["torch"]
    workload = workload_named("gemm")
    cases = [case_of(workload, "mini", Variant("cpu", "fp32", "eager", "1"))]
    plan = make_plan([0], cases=cases, interpreter=[str(torch_python), "-I"], needs_torch=True)
    journal_dir, done = run_over_there(tmp_path, plan, torch_python)
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")
    assert_measured(tmp_path, journal_dir, [0])
    assert sys.executable.encode() not in (journal_dir / JOURNAL_NAME).read_bytes()
