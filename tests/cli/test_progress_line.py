"""The lines that a pipe gets of a run in progress, and what a signal handler prints in the middle of one."""

from __future__ import annotations

import io
import re
import signal
import sys
from time import monotonic_ns

import pytest
from builders import make_plan
from hand_made import make_case, make_run, measured
from journals import RUN_ID

from gputui.cli.progress import Progress
from gputui.document.page import console_on
from gputui.model.journal import JOURNAL_SCHEMA, CaseEnd, LaunchEnd, LaunchStart, RunStart
from gputui.services.results.labels import plain_case_name
from gputui.services.run_page import run_page
from gputui.services.runs.device_history import HistoryReader


class _Interrupted(io.RawIOBase):
    """A terminal that gets Ctrl-C during each write."""

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
        output = capfd.readouterr().err
        run_page(console_on(sys.stdout, 120), make_run(result)).show()
        (rate,) = re.findall(r"launch 1 of 1 ok, (\S+ \S+/s)", output)
        assert f" {rate} " in capfd.readouterr().out


def test_of_many_passes_the_first_has_a_line_for_each_case_and_the_others_one_each(
    capfd: pytest.CaptureFixture[str],
) -> None:
    plan = make_plan([0], [0], [0], [0])
    progress = Progress([plan], live=False)
    for launch in plan.launches:
        progress.hear(0, LaunchStart(launch.launch_id, launch.replicate, (0,), 1, 9.0, 0))
        progress.hear(0, CaseEnd(launch.launch_id, 0, "unsupported", "a reason", 0, 1))
    first, ended, *others = capfd.readouterr().err.splitlines()
    assert first.endswith(f"launch 1 of {plain_case_name(plan.cases[0].case)}")
    assert ended.endswith("unsupported: a reason")
    assert [line.split(" ", 1)[1] for line in others] == [f"pass {number} of 4" for number in (2, 3, 4)]


def test_a_log_that_ends_as_one_before_is_printed_once(capfd: pytest.CaptureFixture[str]) -> None:
    plan = make_plan([0], [0], [0])
    progress = Progress([plan], live=False)
    for number, tail in enumerate(("Traceback:\n  in build\nValueError: x",) * 2 + ("another end",)):
        progress.hear(0, LaunchStart(number, number, (0,), 1, 9.0, 0))
        progress.hear(0, LaunchEnd(number, "ok", "", 0, tail, 1))
    lines = [line.partition(" ")[2] for line in capfd.readouterr().err.splitlines()]
    named = [f"launch {number} of {plain_case_name(plan.cases[0].case)}" for number in (1, 2, 3)]
    assert lines.count("   ValueError: x") == 1
    assert f"{named[0]}: a case failed; its log ends:" in lines
    assert f"{named[1]}: a case failed; its log ends as before" in lines
    assert f"{named[2]}: a case failed; its log ends:" in lines


def test_who_attaches_late_reads_of_each_line_when_it_was_written(capfd: pytest.CaptureFixture[str]) -> None:
    plan, began_ns = make_plan([0], [0]), monotonic_ns() - 300 * 10**9
    progress = Progress([plan], live=False, histories=[HistoryReader(list)])
    for line in (
        RunStart(JOURNAL_SCHEMA, RUN_ID, 0, began_ns, 0, "0", "quick", 1, 1, 1, 600.0, "", None),
        LaunchStart(0, 0, (0,), 1, 9.0, began_ns + 10**9),
        CaseEnd(0, 0, "failed", "a reason", 0, began_ns + 62 * 10**9),
        LaunchEnd(0, "ok", "", 0, "the end of a log", began_ns + 63 * 10**9),
    ):
        progress.hear(0, line)
    assert re.findall(r"^\d+:\d\d", capfd.readouterr().err, re.MULTILINE) == ["0:01", "1:02", "1:03"]
