"""Which Python to measure with, and what it has."""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any  # Any: the JSON of a probe

from gputui.recording.probing import (
    PROBE_TIMEOUT_S,
    ChosenInterpreter,
    chosen_interpreter,
    interpreter_from_plain,
    probe_interpreter,
)
from gputui.services.support.paths import make_directory, probe_cache
from gputui.worker.accelerator import VISIBILITY
from gputui.worker.foreign_json import read_json_file
from gputui.worker.probe import OLDEST_TORCH


def choose_interpreter(
    stated: str | None,
    environ: Mapping[str, str] = os.environ,
    *,
    timeout_s: float = PROBE_TIMEOUT_S,
    on_probe: Callable[[str], None] = lambda path: None,
) -> ChosenInterpreter:
    """The stated interpreter, or the first whose torch can measure; if there is none, the one gputui runs in.

    `on_probe` gets the path before an interpreter is probed, since importing torch can take a minute. Raises
    MachineLacks if the stated one, or its torch, is too old, and GputuiError if it cannot measure, or does
    not answer in `timeout_s` seconds.
    """
    return chosen_interpreter(stated, environ, lambda path: _probe_cached(path, timeout_s, on_probe))


def _probe_cached(path: str, timeout_s: float, on_probe: Callable[[str], None]) -> dict[str, Any]:
    """Probe, or return the cached result if nothing has changed.

    A result is valid for one boot, driver, interpreter file, torch and set of visible devices.
    """
    cached = probe_cache() / f"{hashlib.sha256(os.fsencode(path)).hexdigest()[:16]}.json"
    try:
        known: dict[str, Any] = read_json_file(cached)
        answer: dict[str, Any] = known["answer"]
        if known["state"] == _state(path, answer):
            interpreter_from_plain(answer)
            return answer
    except (OSError, ValueError, KeyError, TypeError):
        pass  # no cache, or written by another version: probe again
    on_probe(path)
    answer = probe_interpreter([path], timeout_s)
    if "torch_file" in answer:
        try:
            make_directory(cached.parent)
            scratch = cached.with_suffix(f".{os.getpid()}")
            scratch.write_text(json.dumps({"state": _state(path, answer), "answer": answer}))
            scratch.replace(cached)
        except OSError:
            pass  # an unwritable cache only costs time
    return answer


def _state(path: str, answer: Mapping[str, Any]) -> list[Any]:
    """Everything a result depends on. Raises OSError or KeyError if a file is gone."""
    boot, driver = Path("/proc/sys/kernel/random/boot_id"), Path("/proc/driver/nvidia/version")
    return [
        *(file.read_text() if file.exists() else "" for file in (boot, driver)),
        Path(path).stat().st_mtime_ns,
        Path(answer["torch_file"]).stat().st_mtime_ns,
        [os.environ.get(name) for name in (*VISIBILITY, "PYTHONPATH")],
        list(OLDEST_TORCH),
    ]
