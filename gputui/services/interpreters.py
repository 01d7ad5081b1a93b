"""Which Python to measure with, and what it has."""

from __future__ import annotations

import hashlib
import json
import os
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any  # a probe's JSON

from gputui.errors import GputuiError
from gputui.model.machine import Interpreter
from gputui.recording.probing import PROBE_TIMEOUT_S, interpreter_from_plain, probe_interpreter
from gputui.services.places import probe_cache

_HAS_TORCH = (
    "import importlib.util, sys; "
    "sys.path[:] = [p for p in sys.path if p]; "  # a directory called torch beside the user is none
    "sys.exit(importlib.util.find_spec('torch') is None or sys.version_info < (3, 10))"
)
_USUAL_PLACES = (
    "/venv/main/bin/python",
    "/opt/conda/bin/python",
    "/opt/venv/bin/python",
    "/usr/local/bin/python3",
    "/usr/bin/python3",
)
"""Pythons that cloud images put torch into."""
_VISIBILITY = (
    "CUDA_VISIBLE_DEVICES",
    "HIP_VISIBLE_DEVICES",
    "ROCR_VISIBLE_DEVICES",
    "ZE_AFFINITY_MASK",
    "PYTHONPATH",
)


@dataclass(frozen=True, slots=True)
class Chosen:
    """An interpreter, and where it was found."""

    interpreter: Interpreter
    found_as: str
    """`--python`, `this Python`, `$VIRTUAL_ENV`, ..."""


def choose_interpreter(
    stated: str | None,
    environ: Mapping[str, str] = os.environ,
    *,
    timeout_s: float = PROBE_TIMEOUT_S,
    on_probe: Callable[[str], None] = lambda path: None,
) -> Chosen:
    """The stated interpreter, or the first that has torch; without any, the one gputui runs in.

    `on_probe` is told the path before an interpreter is asked anew, since importing torch can take a minute.
    Raises GputuiError if the stated one cannot measure, or does not answer in `timeout_s` seconds.
    """
    if stated is not None:
        return Chosen(_probe_cached(executable_at(stated), timeout_s, on_probe), "--python")
    for path, found_as in _candidates(environ):
        if _has_torch(path):
            return Chosen(_probe_cached(path, timeout_s, on_probe), found_as)
    return Chosen(_probe_cached(sys.executable, timeout_s, on_probe), "this Python")


def executable_at(stated: str) -> str:
    """The absolute path of the program that `--python` names; it is not executed.

    Raises GputuiError if there is none.
    """
    try:
        expanded = str(Path(stated).expanduser()) if stated.startswith("~") else stated
    except RuntimeError:  # there is no such user
        expanded = stated
    path = shutil.which(expanded)
    if path is None:
        hint = "give the path of a Python, such as ~/envs/torch/bin/python"
        if stated and Path(expanded).is_dir():
            hint = f"give the Python inside it, such as {stated.rstrip('/')}/bin/python"
        raise GputuiError(f"--python {stated}: is not an executable file", hint)
    return str(Path(path).absolute())  # its links not followed: a venv is known by them


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
    try:
        done = subprocess.run([path, "-c", _HAS_TORCH], capture_output=True, timeout=20, check=False)
    except (OSError, subprocess.TimeoutExpired):
        return False
    return done.returncode == 0


def _probe_cached(path: str, timeout_s: float, on_probe: Callable[[str], None]) -> Interpreter:
    """Probe, or take the answer of an earlier probe that nothing has changed since.

    An answer holds for one boot, one interpreter file, one torch and one set of visible devices.
    """
    cached = probe_cache() / f"{hashlib.sha256(os.fsencode(path)).hexdigest()[:16]}.json"
    try:
        known: dict[str, Any] = json.loads(cached.read_text())
        if known["state"] == _state(path, known["answer"]):
            return interpreter_from_plain(known["answer"])
    except (OSError, ValueError, KeyError, TypeError):
        pass  # no cache, or one that another version wrote: ask again
    on_probe(path)
    answer = probe_interpreter([path], timeout_s)
    interpreter = interpreter_from_plain(answer)
    if answer["torch_missing"] == "":
        try:
            cached.parent.mkdir(parents=True, exist_ok=True)
            scratch = cached.with_suffix(f".{os.getpid()}")
            scratch.write_text(json.dumps({"state": _state(path, answer), "answer": answer}))
            scratch.replace(cached)
        except OSError:
            pass  # a cache that cannot be written only costs time
    return interpreter


def _state(path: str, answer: Mapping[str, Any]) -> list[Any]:
    """What an answer depends on. Raises OSError or KeyError if a file is gone."""
    boot = Path("/proc/sys/kernel/random/boot_id")
    return [
        boot.read_text() if boot.exists() else "",
        Path(path).stat().st_mtime_ns,
        Path(answer["torch_file"]).stat().st_mtime_ns,
        [os.environ.get(name) for name in _VISIBILITY],
    ]
