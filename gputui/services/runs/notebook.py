"""Measuring from Python: `gputui run` as a child process, its progress printed line by line."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import tempfile
from collections import deque
from collections.abc import Sequence
from pathlib import Path
from typing import Any, TypedDict, Unpack  # Any: JSON

from gputui.errors import EXIT_NO_RESULT, GputuiError, NoResult
from gputui.services.results.frames import Frames, load_runs
from gputui.services.runs.options import words_of
from gputui.services.support.paths import default_result_file
from gputui.worker.foreign_json import read_json

_LAST_LINES = 8
"""Enough for an error and its hint, which the command prints at its end."""
_Words = str | Path | Sequence[str | Path]


class StatedOptions(TypedDict, total=False):
    """Options of `gputui run`, by their names there; without those of a terminal."""

    python: _Words
    device: str
    only: _Words
    precision: _Words
    launches: int
    budget: float
    blocks: int
    rendezvous: str
    label: str
    price: float
    instance: str
    machine: str
    seed: int
    trace: bool
    like: str
    yes: bool
    all: bool
    verbose: bool


def run(
    profile: str | Path = "quick", *, db: str | Path | None = None, **options: Unpack[StatedOptions]
) -> Frames:
    """Measure a profile, store the result, and return its frames. As `gputui run`.

    `options` are those of the command: `only="gemm"`, `launches=3`, `python=["/usr/bin/python3"]`,
    `trace=True`. Progress goes to stdout. Ctrl-C, or the notebook's stop button, ends the run and keeps what
    is finished. Raises NoResult if nothing was measured, and GputuiError for what keeps it from measuring.
    """
    target = default_result_file() if db is None else Path(db)
    words = [sys.executable, "-m", "gputui", "run", str(profile), "--db", str(target), "--json"]
    with tempfile.TemporaryFile("w+", encoding="utf-8") as printed:
        status, said = _followed([*words, *words_of(options)], printed.fileno())
        printed.seek(0)
        text = printed.read()
    try:
        found: list[dict[str, Any]] = read_json(text)["runs"]
    except (ValueError, KeyError):
        raise _refused(status, said) from None
    for one in found:
        print(one["headline"])
    if status == EXIT_NO_RESULT:
        named = ", ".join(str(one["run_id"])[-8:] for one in found)
        raise NoResult(f"run {named} measured nothing", f"gputui show {named[-8:]} {target} -v says why")
    return load_runs(target, [one["run_id"] for one in found])


def _refused(status: int, said: Sequence[str]) -> GputuiError:
    """The error with which the command ended, as it printed it: its message, and its hint below."""
    at = max((n for n, line in enumerate(said) if line.startswith("gputui: ")), default=None)
    if at is None or status <= 0:
        return GputuiError(f"gputui run ended with status {status}", "its messages are above")
    hint = " ".join(line.strip() for line in said[at + 1 :])
    return GputuiError(said[at].removeprefix("gputui: ").strip(), hint, status)


def _followed(words: Sequence[str], stdout: int) -> tuple[int, Sequence[str]]:
    """Run a command, print the lines of its stderr as they come; returns its exit status, and the last."""
    here = str(Path(__file__).parents[3])
    paths = os.pathsep.join(filter(None, (here, os.environ.get("PYTHONPATH", ""))))
    with subprocess.Popen(
        words,
        stdin=subprocess.DEVNULL,
        stdout=stdout,
        stderr=subprocess.PIPE,
        text=True,
        env={**os.environ, "PYTHONPATH": paths},
        start_new_session=True,  # else a notebook's stop button interrupts the child as well, before us
    ) as child:
        assert child.stderr is not None
        is_stopped, said = False, deque[str](maxlen=_LAST_LINES)
        while True:
            try:
                for line in child.stderr:
                    print(line, end="", flush=True)
                    said.append(line)
                break
            except KeyboardInterrupt:
                is_stopped = True
                child.send_signal(signal.SIGINT)
    if is_stopped:
        raise KeyboardInterrupt
    return child.returncode, tuple(said)
