"""Which Python of a box measures: the one that was named, or the first whose torch can."""

from __future__ import annotations

import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any  # Any: the JSON of a probe

from gputui.errors import GputuiError, MachineLacks
from gputui.model.machine import Interpreter
from gputui.recording.probing import check_torch, interpreter_from_plain, old_python
from gputui.worker.start import OLDEST_PYTHON

_PROBE = """
import sys
sys.path[:] = [p for p in sys.path if p]
try:
    from importlib.util import find_spec
    has_torch = find_spec("torch") is not None
except ImportError:
    has_torch = False
print("%d.%d.%d %d" % (sys.version_info[:3] + (has_torch,)))
"""
"""Runs in any Python, also 2.7; a directory called torch next to the user does not count."""
_USUAL_PLACES = (
    "/venv/main/bin/python",
    "/opt/conda/bin/python",
    "/opt/venv/bin/python",
    "/usr/local/bin/python3",
    "/usr/bin/python3",
)
"""Pythons in which cloud images install torch."""


@dataclass(frozen=True, slots=True)
class ChosenInterpreter:
    """An interpreter, and where it was found."""

    interpreter: Interpreter
    found_as: str
    """`--python`, `this Python`, `$VIRTUAL_ENV`, ..."""
    passed_over: tuple[str, ...] = ()
    """Earlier candidates with torch, each with what it lacks."""


def chosen_interpreter(
    stated: str | None, environ: Mapping[str, str], probe: Callable[[str], dict[str, Any]]
) -> ChosenInterpreter:
    """The stated interpreter, or the first whose torch can measure; if there is none, this process's own.

    `probe` is `probe_interpreter` of one path, or a cache before it. Raises MachineLacks if the stated one,
    or its torch, is too old, and GputuiError if it cannot measure.
    """
    if stated is not None:
        path = executable_at(stated)
        answer = probe(path)
        check_torch([path], answer)
        return ChosenInterpreter(interpreter_from_plain(answer), "--python")
    passed_over: dict[str, str] = {}
    own_error: GputuiError | None = None
    for path, found_as in _candidates(environ):
        if path in passed_over:
            continue
        try:
            if not _has_torch(path):
                continue
            answer = probe(path)
            check_torch([path], answer)
        except GputuiError as error:
            if path == sys.executable and not isinstance(error, MachineLacks):
                own_error = error
            passed_over[path] = error.message
            continue
        interpreter = interpreter_from_plain(answer)
        if not answer["torch_missing"]:
            return ChosenInterpreter(interpreter, found_as, tuple(passed_over.values()))
        passed_over[path] = f"{path}: torch {answer['torch_missing']}"
    if own_error is not None:
        raise own_error
    ours = interpreter_from_plain(probe(sys.executable))
    passed_over.pop(sys.executable, None)
    return ChosenInterpreter(ours, "this Python", tuple(passed_over.values()))


def executable_at(stated: str) -> str:
    """The absolute path of the program that `--python` names; does not execute it.

    Raises GputuiError if there is none.
    """
    try:
        expanded = str(Path(stated).expanduser()) if stated.startswith("~") else stated
    except RuntimeError:  # unknown user
        expanded = stated
    path = shutil.which(expanded)
    if path is None:
        hint = "give the path of a Python, such as ~/envs/torch/bin/python"
        if stated and Path(expanded).is_dir():
            hint = f"give the Python inside it, such as {stated.rstrip('/')}/bin/python"
        raise GputuiError(f"--python {stated}: is not an executable file", hint)
    return str(Path(path).absolute())  # symlinks are not resolved: they identify a venv


def _candidates(environ: Mapping[str, str]) -> Iterator[tuple[str, str]]:
    yield sys.executable, "this Python"
    for variable in ("VIRTUAL_ENV", "CONDA_PREFIX"):
        if environ.get(variable):
            yield str(Path(environ[variable]) / "bin" / "python"), f"${variable}"
    on_path = shutil.which("python3")
    if on_path:
        yield on_path, "python3 on the path"
    for place in _USUAL_PLACES:
        yield place, place


def _has_torch(path: str) -> bool:
    """Whether it has any torch, without importing it. Raises MachineLacks if only the Python is too old."""
    try:
        done = subprocess.run([path, "-c", _PROBE], capture_output=True, timeout=20, check=False)
        version, has_torch = done.stdout.decode(errors="replace").split()
        is_old = tuple(map(int, version.split("."))) < OLDEST_PYTHON
    except (OSError, ValueError, subprocess.TimeoutExpired):
        return False
    if has_torch == "1" and is_old:
        raise old_python(path, version)
    return has_torch == "1"
