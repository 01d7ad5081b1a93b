"""The profiled pass on real steps of torch: exact sums, phases, memory that can be counted by hand."""

from __future__ import annotations

import gzip
import json
import subprocess
import sys
import threading
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from command_line import gputui, gputui_here
from torch._subclasses.fake_tensor import FakeTensorMode
from torch._subclasses.functional_tensor import FunctionalTensorMode

from gputui.model.journal import MEMORY_PARTS, MemoryPoint, ProfiledPass
from gputui.recording.worker_process import profiled_pass_of
from gputui.worker.contract import Request, Size, Step, Workload
from gputui.worker.launch import Launch
from gputui.worker.profiling.allocations import points_of_a_step, split_at_points
from gputui.worker.profiling.profiled_pass import LEAST_STEPS, MOST_EVENTS, MOST_STEPS, steps_of_window
from gputui.worker.workloads import workload_named

WIDTH, BATCH = 64, 8


def build(request: Request) -> Step:
    torch.manual_seed(request.seed)
    model = torch.nn.Sequential(torch.nn.Linear(WIDTH, WIDTH, bias=False), torch.nn.ReLU())
    data = torch.randn(BATCH, WIDTH)
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-3, momentum=0.9)

    def run() -> None:
        optimizer.zero_grad(set_to_none=True)
        with request.precision.autocast():
            loss = model(data).square().mean()
        loss.backward()
        optimizer.step()

    return Step(run)


TINY = Workload(
    name="tiny",
    version=1,
    title="tiny",
    question="?",
    workload_class="training",
    unit="step",
    sizes={"mini": Size({}, 1.0, None, None, 2**20)},
    precisions=("fp32", "amp"),
    device_classes=("cpu",),
    needs_torch=True,
    build=build,
)


class Heard:
    """Replaces the channel and keeps what was sent."""

    def __init__(self) -> None:
        self.messages: list[dict[str, Any]] = []

    def send(self, kind: str, **message: Any) -> None:
        self.messages.append({"kind": kind, **message})


def measured(
    *workloads: Workload, precision: str = "fp32", trace: str = "", profiled_s: float = 60
) -> list[dict[str, Any]]:
    """What a launch sends that times these all and then profiles them all, the first with its trace."""
    heard = Heard()
    cases = [
        {
            "case_id": number,
            "workload": one.name,
            "size": "mini",
            "precision": precision,
            "trace": "" if number else trace,
        }
        for number, one in enumerate(workloads)
    ]
    described = {
        "device": "cpu",
        "threads": 1,
        "seed": 1,
        "allowance_s": 0.5 * len(workloads),
        "limit_s": 120,
        "most_blocks": 5,
        "profiled": list(range(len(workloads))),
        "profiled_s": profiled_s,
        "cases": cases,
    }
    named = {one.name: one for one in workloads}
    Launch(described, heard, time.monotonic_ns(), workload_named=named.__getitem__).run()  # type: ignore[arg-type]
    return json.loads(json.dumps(heard.messages))  # type: ignore[no-any-return]


def passes_in(messages: list[dict[str, Any]]) -> list[ProfiledPass]:
    """The profiled passes of a launch."""
    found = [dict(message) for message in messages if message["kind"] == "profiled"]
    return [profiled_pass_of(0, message) for message in found if message.pop("kind")]


def profiled(workload: Workload, precision: str = "fp32", **more: Any) -> ProfiledPass:
    """The only profiled pass of such a launch."""
    (found,) = passes_in(measured(workload, precision=precision, **more))
    return found


def build_and_fail(request: Request) -> Step:
    raise RuntimeError("no such thing")


@pytest.fixture(scope="module")
def trace(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("traced") / "traces" / "tiny.json.gz"


@pytest.fixture(scope="module")
def launch(trace: Path) -> list[dict[str, Any]]:
    """One launch of two sound cases, one that fails, one that is built only once, one without operators."""
    built: list[str] = []

    def build_once(request: Request) -> Step:
        if built:
            raise RuntimeError("no such thing")
        built.append("once")
        return build(request)

    return measured(
        TINY,
        replace(TINY, name="other"),
        replace(TINY, name="broken", build=build_and_fail),
        replace(TINY, name="once", build=build_once),
        replace(TINY, name="bare", build=lambda request: Step(lambda: sum(range(100)))),
        trace=str(trace),
    )


@pytest.fixture(scope="module")
def tiny(launch: list[dict[str, Any]]) -> ProfiledPass:
    return passes_in(launch)[0]


def by_operator(found: ProfiledPass, phase: str) -> dict[str, int]:
    return {row.operator: row.calls for row in found.operators if row.phase == phase}


def test_a_tiny_training_step_is_divided_exactly_and_by_phase(tiny: ProfiledPass) -> None:
    found = tiny
    assert (found.is_valid, found.reason, found.fault()) == (True, "", "")
    assert {s.phase for s in found.slices} == {"forward", "backward", "optimizer", "between"}
    forward, backward = by_operator(found, "forward"), by_operator(found, "backward")
    assert forward["aten::linear"] == forward["aten::relu"] == found.steps
    assert backward["aten::mm"] == found.steps  # the input needs no gradient, so one product a step
    assert any("aten::" in name for name in by_operator(found, "optimizer"))
    linear = next(row for row in found.operators if row.operator == "aten::linear")
    assert (linear.shapes, linear.dtypes) == (f"{BATCH}x{WIDTH},{WIDTH}x{WIDTH}", "float,float")
    assert not any(row.category == "other" for row in found.operators)


def test_under_amp_the_casts_are_rows_of_their_own() -> None:
    casts = {row.phase for row in profiled(TINY, "amp").operators if row.category == "cast_copy"}
    assert {"forward", "backward"} <= casts


def test_memory_at_each_point_is_what_can_be_counted_by_hand(tiny: ProfiledPass) -> None:
    points = {point.point: point for point in tiny.memory}
    weight_bytes, input_bytes = 4 * WIDTH * WIDTH, 4 * BATCH * WIDTH
    assert list(points) == ["start", "after_forward", "after_backward", "after_optimizer", "peak"]
    assert {p.weights_bytes for p in points.values()} == {weight_bytes}
    assert {p.optimizer_bytes for p in points.values()} == {weight_bytes}  # momentum
    gradients = [points[name].gradients_bytes for name in list(points)[:4]]
    assert gradients == [weight_bytes, 0, weight_bytes, weight_bytes]
    # relu's output is kept for two backward nodes, and so is the single number of its mean
    assert input_bytes <= points["after_forward"].activations_bytes <= 3 * input_bytes
    assert points["after_optimizer"].activations_bytes <= 16
    assert points["peak"].allocated_bytes >= max(p.allocated_bytes for p in points.values())


def test_tensors_that_a_compiler_has_left_behind_hold_no_memory() -> None:
    with FakeTensorMode():
        fake = torch.empty(1000)
    with FunctionalTensorMode():
        functional = torch.empty(1000)
    found = profiled(TINY)
    assert (found.is_valid, found.reason, found.memory_reason) == (True, "", "")
    assert found.memory
    del fake, functional


@pytest.mark.slow
@pytest.mark.parametrize("name", ["lstm_train", "decode"])
def test_our_workloads_are_profiled_and_every_operator_has_a_category(name: str) -> None:
    found = profiled(workload_named(name))
    assert (found.is_valid, found.reason, found.fault()) == (True, "", "")
    other_ns = sum(row.time_ns for row in found.operators if row.category == "other")
    assert other_ns <= 0.05 * found.window_ns
    assert isinstance(found.memory[0], MemoryPoint)
    assert found.events <= 60_000


def test_a_trace_is_kept_for_other_programs(tiny: ProfiledPass, trace: Path) -> None:
    assert tiny.trace_bytes == trace.stat().st_size
    with gzip.open(trace) as file:
        names = {event.get("name") for event in json.load(file)["traceEvents"]}
    assert "aten::linear" in names


def test_passes_follow_the_end_of_all_cases_that_were_measured_and_each_has_its_own_memory(
    launch: list[dict[str, Any]],
) -> None:
    kinds = [message["kind"] for message in launch]
    assert (kinds.count("case_end"), kinds[-5:]) == (5, ["case_end", *["profiled"] * 4])
    assert [message["case_id"] for message in launch[-4:]] == [0, 1, 3, 4], "the third could not be built"
    for message in launch[-4:-2]:
        assert message["is_valid"], message["reason"]
        assert {point["weights_bytes"] for point in message["memory"]} == {4 * WIDTH * WIDTH}


def test_a_step_that_cannot_be_built_again_has_no_operators_or_no_time_says_why(
    launch: list[dict[str, Any]],
) -> None:
    *_, once, bare = passes_in(launch)
    assert once.reason == "RuntimeError; its message is in the worker's log"
    assert (bare.is_valid, bare.reason) == (False, "the trace holds no operator")
    assert "no time was left" in profiled(TINY, profiled_s=0.0).reason


def test_a_pass_with_time_for_one_step_traces_that() -> None:
    def build_slow(request: Request) -> Step:
        step = build(request)

        def run() -> None:
            step.run()
            threading.Event().wait(1.0)

        return Step(run)

    found = profiled(replace(TINY, build=build_slow), profiled_s=2.9)
    assert (found.is_valid, found.steps, found.memory_reason) == (True, 1, "no time was left for it")


@pytest.mark.parametrize(
    ("events", "step_s", "left_s", "steps"),
    [
        (100, 0.1, 60.0, 15),
        (100, 0.01, 60.0, MOST_STEPS),
        (100, 2.0, 60.0, LEAST_STEPS),
        (100, 0.2, 2.0, 4),
        (100, 0.2, 0.9, LEAST_STEPS),
        (100, 0.2, 0.5, 2),
        (100, 2.0, 1.9, 0),
        (100, 2.0, -1.0, 0),
        (MOST_EVENTS // 2, 0.1, 60.0, 2),
        (MOST_EVENTS + 1, 0.1, 60.0, 0),
    ],
)
def test_a_window_holds_as_many_steps_as_time_and_events_allow(
    events: int, step_s: float, left_s: float, steps: int
) -> None:
    assert steps_of_window(events, round(step_s * 1e9), round(left_s * 1e9)) == steps


def test_the_needs_of_a_device_of_another_kind_are_reported() -> None:
    from gputui.worker.profiling.profiled_pass import NoTrace, traced

    with pytest.raises(NoTrace, match="cannot watch what cuda does"):
        traced(lambda: None, 1, "cuda", lambda: None)


def test_points_are_split_by_plain_rules() -> None:
    phases = (("forward", 0, 9), ("backward", 10, 19), ("optimizer", 20, 29))
    held = {1: ("weights", 100), 2: ("gradients", 100), 3: ("inputs", 8)}
    events = [
        (1, 2, -100),  # zero_grad
        (2, 50, 40),
        (12, 2, 100),  # the gradient is allocated again, where the old one was
        (15, 50, -40),
        (21, 60, 7),
        (22, 60, -7),
    ]
    found = split_at_points(events, phases, held)
    assert {point: {p: n for p, n in parts.items() if n} for point, parts in found.items()} == {
        "start": {"weights": 100, "gradients": 100, "inputs": 8},
        "after_forward": {"weights": 100, "activations": 40, "inputs": 8},
        "after_backward": {"weights": 100, "gradients": 100, "inputs": 8},
        "after_optimizer": {"weights": 100, "gradients": 100, "inputs": 8},
        "peak": {"weights": 100, "gradients": 100, "activations": 40, "inputs": 8},
    }


def test_an_address_that_is_given_out_again_ends_what_was_there() -> None:
    found = split_at_points([(5, 3, 16)], (("forward", 0, 9),), {3: ("inputs", 8)})
    assert found["after_forward"]["inputs"] == 0
    assert found["after_forward"]["activations"] == 16


def test_inference_has_no_gradients_and_its_caches_are_inputs() -> None:
    model, cache = torch.nn.Linear(WIDTH, WIDTH), torch.zeros(1000)

    def run() -> None:
        with torch.no_grad():
            cache.add_(model(torch.ones(1, WIDTH)).sum())

    points = points_of_a_step("cpu", run)
    assert set(points) == {"start", "after_forward", "peak"}
    for parts in points.values():
        assert set(parts) == set(MEMORY_PARTS)
        assert parts["gradients"] == parts["optimizer"] == 0
        assert parts["inputs"] >= 4000


@pytest.mark.slow
def test_a_run_with_traces_shows_where_its_steps_go(tmp_path: Path) -> None:
    db = tmp_path / "a.db"
    profile = tmp_path / "lstm.toml"
    profile.write_text(
        'schema = 1\nversion = 1\ntitle = "t"\nquestion = "q"\nbudget_s = 600\nreplicates = 1\nblocks = 5\n'
        '[[case]]\nworkload = "lstm_train"\nsizes = ["mini"]\ndevices = ["cpu"]\n'
        'precisions = ["fp32"]\nthreads = ["1"]\n'
    )
    done = gputui("run", profile, "--db", db, "--trace")
    assert done.returncode == 0, done.stderr
    assert done.stdout.count("perfetto") == 1
    shown = gputui_here("show", "latest", db, "--verbose").stdout
    assert shown.count("a step of LSTM training mini cpu") == 1
    assert "idle: python" in shown
    assert len(list((tmp_path / "a-traces").iterdir())) == 1


def test_the_kept_trace_is_divided_like_the_events_in_the_process(tiny: ProfiledPass, trace: Path) -> None:
    from gputui.services.traces.imported import read_run

    found = tiny
    of_file = read_run(trace).found
    assert of_file.steps == found.steps

    def times(one: ProfiledPass) -> dict[tuple[str, str], int]:
        return {
            (phase, name): sum(o.time_ns for o in one.operators if (o.phase, o.operator) == (phase, name))
            for phase, name in {(o.phase, o.operator) for o in one.operators}
        }

    here, there = times(found), times(of_file)
    assert set(here) == set(there)
    for key, ns in here.items():  # the file has times to the nanosecond, but durations are rounded
        assert abs(there[key] - ns) <= max(2_000, 0.01 * ns)


GROWING = """
import resource, sys
from gputui.worker.profiling.profiled_pass import keep_heap
kept = keep_heap(200_000_000) if sys.argv[1] == "kept" else False
before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
for _ in range(20):
    held = [bytearray(8_000_000) for _ in range(10)]
    del held
print(kept, resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before)
"""


def faults(word: str) -> tuple[str, int]:
    done = subprocess.run([sys.executable, "-c", GROWING, word], capture_output=True, text=True, check=True)
    kept, count = done.stdout.split()
    return kept, int(count)


def test_large_pieces_come_from_memory_that_was_touched_before() -> None:
    kept, few = faults("kept")
    assert kept == "True"
    without, many = faults("not")
    assert without == "False"
    assert few < 1000 < many
