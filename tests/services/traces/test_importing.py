"""A trace becomes a run whose sums are those of its raw intervals."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from chrome_traces import call, event, kernel, op, span, training_step, write_trace, write_training
from sweeps import busy_ns, window_sums

from gputui.errors import GputuiError
from gputui.services.results.headline import run_headline
from gputui.services.results.step_answer import sentence
from gputui.services.traces import window as windows
from gputui.services.traces.chrome_trace import read_trace
from gputui.services.traces.forms import answer_of, category_table
from gputui.services.traces.imported import contents_of, read_run, run_id_of
from gputui.services.traces.window import window_from
from gputui.store.reading import open_result
from gputui.store.writing import store_run


def test_the_steps_are_those_that_the_profiler_marked_and_busy_as_an_independent_sweep_says(
    tmp_path: Path,
) -> None:
    path = write_training(tmp_path / "a.pt.trace.json.gz", steps=5, gemm_us=33.333, wait_us=7.001)
    run, trace = read_run(path), read_trace(path)
    assert (run.name, run.found.steps, run.found.fault()) == ("a", 5, "")
    assert {s.time_ns for s in run.found.slices if s.cause == "data_wait"} == {5 * 7_001}
    busy = sum(s.time_ns for s in run.found.slices if s.time_class != "idle")
    assert busy == busy_ns(trace, run.window.start_ns, run.window.end_ns)
    assert window_sums(run.found) == (run.found.window_ns, busy)


def test_steps_may_be_ranges_of_any_name(tmp_path: Path) -> None:
    steps = [span("execute_model", 0, 100), span("execute_model", 120, 200)]
    path = write_trace(tmp_path / "a.json", [*steps, op("aten::a", 10, 20, 1), kernel("k", 130, 160, 1, 1)])
    run = read_run(path, step_range="execute")
    assert (run.found.steps, run.found.window_ns) == (2, 200_000)
    with pytest.raises(GputuiError, match="no range of that name") as caught:
        read_run(path, step_range="train")
    assert "execute_model" in caught.value.hint


def test_a_window_is_given_in_seconds(tmp_path: Path) -> None:
    path = write_trace(tmp_path / "a.json", [op("aten::a", 0, 2_000_000, 1)])
    run = read_run(path, window_s=window_from("0.5:1.5"))
    assert run.found.window_ns == 1_000_000_000
    for wrong in ("1", "a:b", "-1:2", "1:"):
        with pytest.raises(GputuiError, match="--window"):
            window_from(wrong)
    with pytest.raises(GputuiError, match="holds nothing of this trace"):
        read_run(path, window_s=(5.0, 6.0))


def lagging(steps: int, lag_us: float, *, gemm_us: float = 100, host_us: float = 80) -> list[dict[str, Any]]:
    """Steps of a host that runs ahead of its device, which does 20 us of earlier work first."""
    events = [kernel("earlier", 990, 1000 + lag_us, 999)]
    for k in range(steps):
        begin, work, n = 1000 + k * host_us, 1000 + lag_us + k * gemm_us, k + 1
        events += [
            span(f"ProfilerStep#{n}", begin, begin + host_us),
            op("aten::linear", begin + 10, begin + 30, n),
            call("cudaLaunchKernel", begin + 15, begin + 20, n, n),
            kernel("ampere_sgemm", work + 1, work + gemm_us, n, n),
        ]
    return events


def test_a_step_of_a_device_that_lags_is_the_work_that_it_launched_end_to_end(tmp_path: Path) -> None:
    path = write_trace(tmp_path / "a.json", lagging(5, 70))
    run, trace = read_run(path), read_trace(path)
    assert (run.found.steps, run.found.window_ns) == (4, 400_000)
    assert run.window.steps_ns == tuple((180_000 + k * 100_000, 280_000 + k * 100_000) for k in range(4))
    busy = sum(s.time_ns for s in run.found.slices if s.time_class != "idle")
    assert busy == busy_ns(trace, run.window.start_ns, run.window.end_ns) == 4 * 99_000
    assert window_sums(run.found) == (400_000, busy)
    assert run.found.fault() == ""
    (row,) = run.found.operators
    assert (row.operator, row.calls, row.kernels, row.cpu_ns) == ("aten::linear", 4, 4, 80_000)
    assert (run.found.unmatched_ns, run.found.kernels[0].calls) == (0, 4)
    assert run.notes == (
        (
            "the CPU runs 140 µs ahead of the GPU: a step is counted on the GPU, from the end of earlier work"
            " to the end of what it launched (the CPU does its part in 80.0 µs); the first is left out"
        ),
        "179 µs of device work outside of the counted steps is left out",
    )


@pytest.mark.parametrize(
    "events", [lagging(40, 500), [e for k in range(30) for e in training_step(1000 + 160 * k, k)]]
)
def test_a_long_trace_is_divided_in_parts_with_the_same_result(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, events: list[dict[str, Any]]
) -> None:
    path = write_trace(tmp_path / "a.json", events)
    whole = read_run(path).found
    monkeypatch.setattr(windows, "_EVENTS_AT_A_TIME", 7)
    parts = read_run(path).found
    assert (parts.slices, parts.kernels) == (whole.slices, whole.kernels)
    assert [(o.operator, o.calls, o.time_ns, o.cpu_ns, o.kernels) for o in parts.operators] == [
        (o.operator, o.calls, o.time_ns, o.cpu_ns, o.kernels) for o in whole.operators
    ]


def test_a_step_is_that_of_the_host_where_the_device_keeps_up_or_no_launches_are_recorded(
    tmp_path: Path,
) -> None:
    late = kernel("late", 1470, 1481, 1)
    steps = [e for k in range(3) for e in training_step(1000 + 160 * k, k + 1)]
    last = {**late, "args": {**late["args"], "correlation": 31}}
    run = read_run(write_trace(tmp_path / "a.json", [*steps, last]))
    assert (run.found.steps, run.found.window_ns, run.window.host_steps_ns) == (3, 481_000, ())
    assert run.notes == ("its optimizer is SGD",)
    events = [e for e in lagging(5, 70) if e["cat"] != "cuda_runtime"]
    run = read_run(write_trace(tmp_path / "b.json", events))
    assert (run.found.steps, run.found.window_ns) == (5, 400_000)
    assert any("of device work outside of the counted steps is left out" in note for note in run.notes)
    run = read_run(write_trace(tmp_path / "c.json", lagging(1, 70)))
    assert (run.found.steps, run.found.window_ns, run.found.unmatched_ns) == (1, 100_000, 0)
    assert "from the end of earlier work to the end of what it launched" in run.notes[0]


def test_work_launched_before_the_trace_began_is_counted_apart_and_that_of_other_devices_left_out(
    tmp_path: Path,
) -> None:
    early = kernel("ampere_sgemm", 1070, 1090, 999)
    other = [call("cudaLaunchKernel", 1001, 1002, 77), kernel("k", 1010, 1015, 77, device=1)]
    run = read_run(write_trace(tmp_path / "a.json", [early, *training_step(1000, 1, wait_us=40), *other]))
    assert run.found.unmatched_ns == 10_000, "it shares its 20 us with the product"
    assert any("launched outside of the trace" in note for note in run.notes)
    assert all(k.name != "k" for k in run.found.kernels)
    assert "work of 1 other device in it is left out" in run.notes


def test_a_finding_the_table_and_the_sentence_have_the_same_share(tmp_path: Path) -> None:
    pause = [span("enumerate(DataLoader)#_Iter", 1900, 1910)]
    events = [e for k in range(4) for e in training_step(1000 + 1000 * k, k + 1)]
    events += [{**e, "ts": e["ts"] + 1000 * k} for k in range(4) for e in pause]
    run = read_run(write_trace(tmp_path / "a.json", events))
    table = {str(row[0]): str(row[2]) for row in category_table(run.found).rows}
    share = table["Python between calls"]
    answer = answer_of(run)
    assert f"for {share} of the step the host is in Python" in " ".join(answer.texts)
    assert "the GPU waits for Python" in sentence(answer)


def test_a_trace_without_marks_is_explained_as_a_window(tmp_path: Path) -> None:
    steps = [e for e in training_step(1000, 1, wait_us=100) if not e["name"].startswith("ProfilerStep")]
    answer = answer_of(read_run(write_trace(tmp_path / "a.json", steps)))
    assert sentence(answer).startswith("The window takes ")
    (text,) = (one for one in answer.texts if "loader" in one)
    assert "of the window; without that the window would take at best" in text
    assert "the step" not in text


def test_what_a_program_lacks_is_written_out_where_the_trace_says_that_it_lacks_it(tmp_path: Path) -> None:
    """Of a single step too."""
    codes = {}
    for name in ("_SingleProcess", "_MultiProcessing"):
        loaded = training_step(1000, 1, wait_us=100)
        steps = [{**e, "name": e["name"].replace("#_Iter", f"#{name}DataLoaderIter")} for e in loaded]
        run = read_run(write_trace(tmp_path / f"{name}.json", steps))
        finding = answer_of(run).findings[0]
        assert finding.at_best_ns == run.found.window_ns - 100_000
        codes[name] = finding.code
    assert codes == {
        "_SingleProcess": "DataLoader(..., num_workers=8, pin_memory=True)",
        "_MultiProcessing": "",
    }


def test_events_of_a_kind_that_is_not_known_and_halves_of_events_are_counted_and_named(
    tmp_path: Path,
) -> None:
    odd: list[dict[str, Any]] = [
        event("npu_blob", "x", 1010, 1020),
        event("npu_blob", "y", 1020, 1025.5),
        {"ph": "B", "name": "x", "ts": 1010, "pid": 1, "tid": 1},
        {"ph": "E", "name": "x", "ts": 1020, "pid": 1, "tid": 1},
        {"ph": "X", "name": "y", "ts": 1010, "dur": 7, "pid": 1, "tid": 1},
    ]
    told = [event("python_function", "f", 1000, 1100), event("npu_mark", "z", 1000, 1000)]
    run = read_run(write_trace(tmp_path / "a.json", [*odd, *told, *training_step(1000, 1)]))
    assert sorted(note for note in run.notes if "left out" in note or "python" in note) == [
        "1 event of 'no category', 7.00 µs in all, left out: it is not known what they are",
        "2 events left out: each is only the beginning or the end of a stretch",
        "2 events of 'npu_blob', 15.5 µs in all, left out: it is not known what they are",
    ]


def test_a_device_of_an_unknown_kind_is_refused_by_its_name_and_not_called_a_cpu(tmp_path: Path) -> None:
    work = event("mtia_ccp_events", "run", 1010, 1020, stream=104)
    path = write_trace(
        tmp_path / "a.json",
        [work, op("aten::a", 1000, 1010, 1)],
        deviceProperties=[{"id": 17, "name": "ARTEMIS"}],
    )
    with pytest.raises(GputuiError, match=r"work of ARTEMIS \(mtia_ccp_events\)"):
        read_run(path)


def test_communication_says_what_compute_hides_of_it(tmp_path: Path) -> None:
    transfers = [
        {**kernel("ncclDevKernel_AllReduce", at, at + 50, 70 + k), "tid": 9}
        for k, at in enumerate((1030.0, 1100.0))
    ]
    run = read_run(write_trace(tmp_path / "a.json", [*training_step(1000, 1), *transfers]))
    assert "communication takes 100 µs in all: 90 % of it behind compute, 10.0 µs exposed" in run.notes


def test_a_stored_trace_is_read_back_as_it_was_and_stored_once(tmp_path: Path) -> None:
    run = read_run(write_training(tmp_path / "a.json"), label="before")
    db = tmp_path / "a.db"
    first = store_run(db, contents_of(run), ())
    again = store_run(db, contents_of(read_run(tmp_path / "a.json", label="before")), ())
    assert (first.already_there, again.already_there) == (False, True)
    with open_result(db) as result:
        passes = result.profiled(run_id_of(run))
        stored = result.run(run_id_of(run))
    summary = stored.summary
    assert set(passes[0].slices) == set(run.found.slices)
    assert set(passes[0].operators) == set(run.found.operators)
    assert run_headline(stored) == "An imported trace: where its steps spend their time, without rates."
    assert summary.label == "before"
    assert summary.machine.gpus[0].name == "NVIDIA A100"
