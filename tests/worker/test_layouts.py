"""The layout of images: which one a trial takes, what it leaves behind, and that a CPU tries nothing."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace

import pytest
import torch

from gputui.worker import layouts
from gputui.worker.contract import Parameter, Precision, Request, Step
from gputui.worker.layouts import NCHW, NHWC, SEARCHED, in_a_layout
from gputui.worker.timing import BlockTime
from gputui.worker.workloads import WORKLOADS, workload_named

MS = 1_000_000


class Bench:
    """A GPU on which a step takes so long in each layout, and what was built and run there."""

    def __init__(self, **step_ns: float) -> None:
        self.step_ns = step_ns
        self.built: list[tuple[str, str]] = []
        self.run: list[str] = []
        self.now_ns = 0

    def build(self, request: Request, layout: str) -> Step:
        self.built.append((layout, request.mode))
        taken_ns = self.step_ns[layout]
        if taken_ns == float("inf"):
            raise torch.OutOfMemoryError("CUDA out of memory")

        def step() -> None:
            self.run.append(layout)
            self.now_ns += round(taken_ns)

        return Step(step)

    def stopwatch(self, run: Callable[[], object], steps: int) -> BlockTime:
        begun_ns = self.now_ns
        for _ in range(steps):
            run()
        return BlockTime(begun_ns, self.now_ns - begun_ns, None, 0)


def asked(layout: str, device: str = "cuda", mode: str = "eager", time_s: float = 10.0) -> Request:
    parameters: dict[str, Parameter] = {"layout": layout} if layout else {}
    return Request(parameters, device, Precision("fp32", "fp32", device), 1, 1, time_s, mode)


@pytest.fixture(autouse=True)
def released(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[str]]:
    """What a trial gives back, without a GPU; cuDNN is left as it was."""
    devices: list[str] = []
    monkeypatch.setattr(layouts, "release", devices.append)
    before = torch.backends.cudnn.benchmark
    yield devices
    torch.backends.cudnn.benchmark = before


@pytest.mark.parametrize(
    ("nhwc", "nchw", "expected"),
    [(10, 5, NCHW), (5, 10, NHWC), (10, 9.9, NHWC), (float("inf"), 50, NCHW), (50, float("inf"), NHWC)],
)
def test_the_faster_layout_is_taken_and_one_that_does_not_fit_is_not(
    released: list[str], nhwc: float, nchw: float, expected: str
) -> None:
    bench = Bench(nhwc=nhwc * MS, nchw=nchw * MS)
    step = in_a_layout(asked(SEARCHED), bench.build, stopwatch=bench.stopwatch)
    assert step.layout == expected
    assert [layout for layout, _ in bench.built] == [NHWC, NCHW, expected]
    assert released == ["cuda", "cuda"]
    assert torch.backends.cudnn.benchmark is True


def test_another_error_of_a_trial_passes_through(released: list[str]) -> None:
    def broken(request: Request, layout: str) -> Step:
        raise RuntimeError("no kernel")

    with pytest.raises(RuntimeError, match="no kernel"):
        in_a_layout(asked(SEARCHED), broken, stopwatch=Bench().stopwatch)
    assert released == ["cuda"]


def test_a_compiled_step_is_compiled_once_in_the_layout_that_is_faster_eager() -> None:
    bench = Bench(nhwc=10 * MS, nchw=5 * MS)
    in_a_layout(asked(SEARCHED, mode="compile"), bench.build, stopwatch=bench.stopwatch)
    assert bench.built == [(NHWC, "eager"), (NCHW, "eager"), (NCHW, "compile")]


def test_slow_steps_are_tried_as_often_as_their_case_has_time_for() -> None:
    fast, slow = Bench(nhwc=MS, nchw=MS), Bench(nhwc=900 * MS, nchw=900 * MS)
    for bench in (fast, slow):
        in_a_layout(asked(SEARCHED, time_s=10.0), bench.build, stopwatch=bench.stopwatch)
    assert slow.run == [NHWC] * 3 + [NCHW] * 3
    assert fast.now_ns == pytest.approx(2 * 0.153e9)


@pytest.mark.parametrize(
    ("layout", "device", "on_cpu", "expected"),
    [
        (NHWC, "cpu", NHWC, NHWC),
        (SEARCHED, "cpu", NHWC, NHWC),
        (SEARCHED, "cpu", NCHW, NCHW),
        (SEARCHED, "meta", NHWC, NHWC),
        (NHWC, "cuda", NHWC, NHWC),
        ("", "cuda", NHWC, ""),
    ],
)
def test_nothing_is_tried_on_a_cpu_or_where_a_size_has_its_layout(
    layout: str, device: str, on_cpu: str, expected: str
) -> None:
    bench = Bench(nhwc=MS, nchw=MS, **{"": MS})
    step = in_a_layout(asked(layout, device), bench.build, on_cpu=on_cpu, stopwatch=bench.stopwatch)
    assert (bench.built, step.layout, bench.run) == ([(expected, "eager")], "", [])


@pytest.mark.parametrize("device", ["cpu", "cuda"])
def test_cudnn_tries_its_algorithms_for_images_on_a_gpu_only(device: str) -> None:
    torch.backends.cudnn.benchmark = False
    bench = Bench(nhwc=MS, **{"": MS})
    in_a_layout(asked("", device), bench.build)
    assert torch.backends.cudnn.benchmark is False
    in_a_layout(asked(NHWC, device), bench.build)
    assert torch.backends.cudnn.benchmark is (device == "cuda")


def test_sizes_for_a_gpu_leave_the_layout_open_and_those_for_a_cpu_keep_theirs() -> None:
    found = {
        (workload.name, name): size.parameters["layout"]
        for workload in WORKLOADS
        for name, size in workload.sizes.items()
        if "layout" in size.parameters
    }
    of_cpu = {case: layout for case, layout in found.items() if case[1].startswith("mini")}
    assert set(of_cpu.values()) == {NHWC, NCHW}
    assert {name for (name, _), layout in of_cpu.items() if layout == NCHW} == {"style_fps"}
    assert {layout for case, layout in found.items() if case not in of_cpu} == {SEARCHED}
    assert {name for name, _ in found} == {
        "conv_train", "infer_lat", "infer_rps", "infer_best", "style_fps", "loader",
    }  # fmt: skip


@pytest.mark.parametrize("name", ["conv_train", "infer_rps", "style_fps"])
def test_both_layouts_compute_the_same(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    workload = workload_named(name)
    size = next(s for s in workload.sizes.values() if s.parameters.get("layout") == SEARCHED)
    small: dict[str, Parameter] = {"model": "resnet-basic-1-1-1-1", "image": 32, "classes": 8, "batch": 2}
    small |= {"height": 32, "width": 32} if name == "style_fps" else {}
    request = replace(asked("", "cpu"), parameters={**size.parameters, **small})
    found = []
    for layout in (NHWC, NCHW):
        step = workload.build(replace(request, parameters={**request.parameters, "layout": layout}))
        step.run()
        found.append(step.loss() if step.loss else step.result() if step.result else None)
    assert found[0] == pytest.approx(found[1], rel=1e-4)
    step = workload.build(request)
    step.run()
    usual = found[name == "style_fps"]
    assert (step.loss or step.result)() == usual  # type: ignore[misc]  # one of them is there
