from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from chrome_traces import HOST, call, event, kernel, op, span, write_trace

from gputui.analysis.attribution import ProfiledSide
from gputui.analysis.findings import Finding, StepFacts, findings_of
from gputui.services.traces.imported import TraceRun, read_run
from gputui.services.traces.lines import COLLECTS, MARK, MEMBER, place_of_frame


def frame(name: str, start_us: float, end_us: float, thread: int = HOST) -> dict[str, Any]:
    return event("python_function", name, start_us, end_us, tid=thread)


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


@pytest.mark.parametrize(
    ("name", "place"),
    [
        ("train.py(63): step", ("train.py", 63, "step")),
        ("/home/me/src/data.py(7): <lambda>", ("/home/me/src/data.py", 7, "<lambda>")),
        ("src\\data.py(7): load", ("src/data.py", 7, "load")),
        ("torch/nn/modules/module.py(1778): _call_impl", None),
        ("typing.py(359): inner", None),
        ("logging/__init__.py(2081): getLogger", None),
        ("<frozen importlib._bootstrap>(233): _call_with_frames_removed", None),
        ("/usr/lib/python3/dist-packages/yaml/loader.py(9): load", None),
        ("/x/site-packages/mine/a.py(9): load", None),
        ("/tmp/torchinductor_me/fb/cfbifj.py(565): call", None),
        ("nn.Module: Linear_0", None),
        ("<built-in method append of list object at 0x7f68b5fb9200>", None),
    ],
)
def test_of_a_stack_only_the_code_of_the_user_has_lines(
    name: str, place: tuple[str, int, str] | None
) -> None:
    found = place_of_frame(name)
    assert (found and (found.path, found.line, found.function)) == place


def test_a_trace_with_stacks_names_the_function_with_most_of_a_cause_and_how_much_of_it(
    tmp_path: Path,
) -> None:
    calls = [
        frame("train.py(3): <module>", -500, 21_000),
        *(frame("train.py(12): log", k * 10_000 + 2000, k * 10_000 + 8000) for k in (0, 1)),
        *(frame("json/__init__.py(183): dumps", k * 10_000 + 2100, k * 10_000 + 7900) for k in (0, 1)),
        *(frame("other.py(9): busy", k * 10_000 + 2000, k * 10_000 + 9000, thread=5) for k in (0, 1)),
        frame("train.py(30): short", 8500, 8549),
    ]
    run = read_run(write_trace(tmp_path / "a.json", steps(*calls), deviceProperties=[]))
    (finding,) = found_in(run)
    assert (finding.kind, finding.line) == ("paused in Python", "train.py:12")
    assert [(one.words, round(one.share, 2)) for one in finding.lines] == [
        ("log, train.py:12", 0.75),
        ("train.py", 0.25),
    ]
    assert "no operator runs (log, train.py:12, 75 % of it); without that" in finding.text
    (finding,) = found_in(read_run(write_trace(tmp_path / "b.json", steps(), deviceProperties=[])))
    assert (finding.line, finding.lines) == ("", ())
    assert "no operator runs; without that" in finding.text


@pytest.mark.parametrize("collects", COLLECTS)
def test_a_call_of_the_garbage_collector_in_a_stack_is_a_cause_at_the_line_that_calls_it(
    tmp_path: Path, collects: str
) -> None:
    calls = [
        *(frame("hooks.py(9): tidy", k * 10_000 + 2000, k * 10_000 + 9000) for k in (0, 1)),
        *(frame(collects, k * 10_000 + 2500, k * 10_000 + 9000) for k in (0, 1)),
    ]
    (finding,) = found_in(read_run(write_trace(tmp_path / "a.json", steps(*calls), deviceProperties=[])))
    assert (finding.kind, finding.line, finding.at_best_ns) == ("collects garbage", "hooks.py:9", 3_500_000)


def test_without_marks_the_lines_are_of_the_thread_that_steps_and_not_of_autograds(tmp_path: Path) -> None:
    engine = [
        {**op("autograd::engine::evaluate_function: MmBackward0", 300, 800), "tid": 99},
        *({**op("aten::mm", 310 + 40 * k, 340 + 40 * k), "tid": 99} for k in range(10)),
    ]
    events = [
        op("aten::mm", 10, 30, number=1),
        op("aten::mm", 30, 50),
        call("cudaLaunchKernel", 15, 20, 7, number=1),
        kernel("ampere_sgemm_128x64_tn", 25, 60, correlation=7),
        frame("train.py(3): average", 60, 1000),
        *engine,
    ]
    run = read_run(write_trace(tmp_path / "a.json", events))
    assert {(one.path, one.line) for one in run.found.lines if one.path} == {("train.py", 3)}


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
    places[1][0] = "another thread"
    (finding,) = sampled(tmp_path / "b.json", places, [[0, 0, 20_000_000], [1, 3_000_000, 9_000_000]])
    assert (finding.kind, finding.line) == ("paused in Python", "train.py:63"), (
        "less than half of the waiting"
    )


def test_samples_that_cannot_be_read_are_left_out_with_a_word(tmp_path: Path) -> None:
    events = steps(span(MARK, 1000, 1010))
    member = {"mark_ns": [1, 2], "places": [], "spans": [[0, 1, 2]]}
    run = read_run(write_trace(tmp_path / "a.json", events, deviceProperties=[], **{MEMBER: member}))
    assert run.found.lines == ()
    assert "lines of the program left out: they cannot be read" in run.notes
