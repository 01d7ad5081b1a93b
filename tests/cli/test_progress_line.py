"""What is told from a signal handler, which may come in the middle of anything."""

from __future__ import annotations

import io
import signal
import sys

import pytest
from builders import make_plan
from hand_made import make_case, make_run, measured
from rich.console import Console

from gputui.cli.progress import Progress
from gputui.cli.results import print_results
from gputui.model.journal import CaseEnd


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


def test_the_line_of_a_case_that_ended_has_the_rate_of_the_table(capfd: pytest.CaptureFixture[str]) -> None:
    case = make_case()
    for steps_s in ((0.1, 0.13, 0.1, 0.2, 0.11, 0.17), (*(0.1,) * 15, *(0.14,) * 10)):
        result = measured(case, steps_s)
        (measurement,) = result.measurements
        progress = Progress([make_plan([0], cases=[case])], live=False)
        for block in measurement.blocks:
            progress.hear(0, block)
        progress.hear(0, CaseEnd(0, 0, "ok", "", len(steps_s), 1))
        told = capfd.readouterr().err
        print_results(Console(width=120), make_run(result))
        rate = told.split("  ")[1]
        assert rate.endswith("/s")
        assert f" {rate} " in capfd.readouterr().out
