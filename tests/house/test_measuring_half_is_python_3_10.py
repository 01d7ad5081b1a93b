"""The half that measures runs in interpreters older than gputui's own."""

from __future__ import annotations

import ast
import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

import gputui
from gputui.errors import EXIT_MACHINE_LACKS
from gputui.recording.probing import _MAIN, _PROBE, MEASURING_HALF, copy_worker, measuring_half

PACKAGE = Path(gputui.__file__).parent


def test_every_file_of_the_measuring_half_is_understood_by_python_3_10() -> None:
    files = [path for room in MEASURING_HALF for path in sorted((PACKAGE / room).rglob("*.py"))]
    assert len(files) > 50
    for path in (PACKAGE / "errors.py", *files):
        ast.parse(path.read_text(encoding="utf-8"), filename=str(path), feature_version=(3, 10))


@pytest.mark.parametrize("code", [(PACKAGE / "worker" / "start.py").read_text(), _MAIN, _PROBE])
def test_what_an_older_python_starts_with_is_understood_by_it(code: str) -> None:
    """Without annotations, f-strings, or anything else that came after Python 2.7."""
    found = list(ast.walk(ast.parse(code, feature_version=(3, 4))))
    newer = (ast.AnnAssign, ast.JoinedStr, ast.NamedExpr, ast.Starred, ast.AsyncFunctionDef, ast.Nonlocal)
    assert not [node for node in found if isinstance(node, newer)]
    assert not [n for n in found if isinstance(n, ast.ImportFrom) and n.module == "__future__"]
    imported = {name.name for node in found if isinstance(node, ast.Import) for name in node.names}
    assert imported <= {"json", "os", "runpy", "sys"}


@pytest.mark.parametrize("version", [(2, 7, 18), (3, 9, 18)])
def test_an_older_python_says_which_it_is_and_measures_nothing(
    tmp_path: Path, version: tuple[int, ...]
) -> None:
    code = (
        f"import runpy, sys; sys.version_info = {(*version, 'final', 0)}; sys.argv = sys.argv[1:];"
        "runpy.run_path(sys.argv[0], run_name='__main__')"
    )

    def reported(path: Path, *words: str) -> subprocess.CompletedProcess[str]:
        command = [sys.executable, "-c", code, str(path), *words]
        return subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)

    archive, start = tmp_path / "measure.zip", copy_worker(tmp_path)
    archive.write_bytes(measuring_half())
    text = ".".join(map(str, version))
    message = f"{sys.executable} is Python {text}; gputui measures with Python 3.10 or newer\n"
    for path, words in ((archive, ["run"]), (start, ["run", "x", "y"]), (start, ["join", "x:1"])):
        done = reported(path, *words)
        assert (done.returncode, done.stdout, done.stderr) == (EXIT_MACHINE_LACKS, "", message)
    reported(start, "probe", str(tmp_path / "answer"))
    assert json.loads((tmp_path / "answer").read_text()) == {"old_python_version": text}


def test_a_launch_in_a_python_whose_torch_is_too_old_ends_before_anything_is_measured(tmp_path: Path) -> None:
    (tmp_path / "torch").mkdir()
    (tmp_path / "torch" / "__init__.py").write_text('__version__ = "2.1.0"\n')
    launch, channel = tmp_path / "launch.json", tmp_path / "channel"
    launch.write_text(json.dumps({"threads": 1, "cases": [{"workload": "gemm"}]}))
    os.mkfifo(channel)
    reader = os.open(channel, os.O_RDWR | os.O_NONBLOCK)
    try:
        done = subprocess.run(
            [sys.executable, str(copy_worker(tmp_path / "worker")), "run", str(launch), str(channel)],
            env={**os.environ, "PYTHONPATH": str(tmp_path)},
            capture_output=True,
            text=True,
            timeout=60,
            check=False,
        )
        with pytest.raises(BlockingIOError):
            os.read(reader, 1)
    finally:
        os.close(reader)
    message = f"{sys.executable} has torch 2.1.0; gputui measures with torch 2.4 or newer\n"
    assert (done.returncode, done.stderr) == (EXIT_MACHINE_LACKS, message)
