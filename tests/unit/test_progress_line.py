"""What is told from a signal handler, which may come in the middle of anything."""

from __future__ import annotations

import io
import signal
import sys

import pytest

from gputui.cli.progress import Progress


class _Interrupted(io.RawIOBase):
    """A terminal during each of whose writes Ctrl-C is pressed."""

    def writable(self) -> bool:
        return True

    def write(self, data: object) -> int:
        signal.raise_signal(signal.SIGUSR1)
        return len(data)  # type: ignore[arg-type]


def test_a_signal_in_the_middle_of_a_line_is_answered_without_touching_that_line(
    monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    progress = Progress([], live=False)
    monkeypatch.setattr(sys, "stderr", io.TextIOWrapper(io.BufferedWriter(_Interrupted())))
    before = signal.signal(signal.SIGUSR1, lambda number, frame: progress.interject("ending the run"))
    try:
        progress.say("launch 2")
    finally:
        signal.signal(signal.SIGUSR1, before)
    assert capfd.readouterr().err == "ending the run\n"
