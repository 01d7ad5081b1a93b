from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from chrome_traces import op, span, write_trace

from gputui.analysis.attribution import ProfiledSide
from gputui.analysis.findings import Finding, StepFacts, findings_of
from gputui.services.traces.imported import TraceRun, read_run
from gputui.services.traces.lines import MARK, MEMBER


def steps(*more: dict[str, Any]) -> list[dict[str, Any]]:
    """Two steps of 10 ms on a CPU: a product of 2 ms, and 8 ms in which no operator runs."""
    found = [
        one
        for k in (0, 1)
        for one in (
            span(f"ProfilerStep#{k}", k * 10_000, (k + 1) * 10_000),
            op("aten::mm", k * 10_000, k * 10_000 + 2000),
        )
    ]
    return [*found, *more]


def found_in(run: TraceRun) -> tuple[Finding, ...]:
    step_ns = run.found.window_ns // run.found.steps
    return findings_of(StepFacts(ProfiledSide(run.found, step_ns, bool(run.device)), "", None, None))


def sampled(path: Path, places: list[list[object]], spans: list[list[int]]) -> tuple[Finding, ...]:
    """What a trace tells to which `why --` added samples; their clock lacks a second to that of the trace."""
    late = [[place, start_ns - 1_000_000_000, end_ns - 1_000_000_000] for place, start_ns, end_ns in spans]
    member = {
        "mark_ns": [99_000_990_000, 99_001_010_000],
        "places": places,
        "spans": [
            [place, start_ns + 100_000_000_000, end_ns + 100_000_000_000] for place, start_ns, end_ns in late
        ],
    }
    events = steps(span(MARK, 1000, 1010))
    return found_in(read_run(write_trace(path, events, deviceProperties=[], **{MEMBER: member})))


def test_without_samples_a_finding_has_no_line(tmp_path: Path) -> None:
    (finding,) = found_in(read_run(write_trace(tmp_path / "a.json", steps(), deviceProperties=[])))
    assert (finding.line, finding.lines) == ("", ())
    assert "no operator runs; without that" in finding.text


def test_samples_on_a_clock_of_their_own_are_placed_by_the_mark(tmp_path: Path) -> None:
    places = [["", "train.py", 63, "main", "log"], ["", "train.py", 64, "main", ""]]
    spans = [[0, 2_000_000, 9_000_000], [1, 9_000_000, 13_000_000], [0, 13_000_000, 20_000_000]]
    (finding,) = sampled(tmp_path / "a.json", places, spans)
    assert [(one.name, one.called, round(one.share, 3)) for one in finding.lines] == [
        ("train.py:63", "log", 0.778),
        ("train.py:64", "", 0.222),
    ]


@pytest.mark.parametrize(
    ("doing", "kind"), [("garbage collection", "collects garbage"), ("another thread", "another thread runs")]
)
def test_what_is_seen_to_hold_up_python_is_a_cause_of_its_own(tmp_path: Path, doing: str, kind: str) -> None:
    places = [["", "train.py", 63, "main", ""], [doing, "train.py", 9, "watch", ""]]
    spans = [[0, 0, 20_000_000], [1, 2_500_000, 9_500_000], [1, 12_500_000, 19_500_000]]
    (finding,) = sampled(tmp_path / "a.json", places, spans)
    assert (finding.kind, finding.line) == (kind, "train.py:9")
    assert finding.at_best_ns == 3_000_000


def test_a_thread_seen_in_less_than_half_of_the_waiting_is_not_blamed(tmp_path: Path) -> None:
    places = [["", "train.py", 63, "main", ""], ["another thread", "train.py", 9, "watch", ""]]
    (finding,) = sampled(tmp_path / "a.json", places, [[0, 0, 20_000_000], [1, 3_000_000, 9_000_000]])
    assert (finding.kind, finding.line) == ("paused in Python", "train.py:63")


def test_samples_that_cannot_be_read_are_left_out_with_a_word(tmp_path: Path) -> None:
    events = steps(span(MARK, 1000, 1010))
    member = {"mark_ns": [1, 2], "places": [], "spans": [[0, 1, 2]]}
    run = read_run(write_trace(tmp_path / "a.json", events, deviceProperties=[], **{MEMBER: member}))
    assert run.found.lines == ()
    assert "lines of the program left out: they cannot be read" in run.notes
