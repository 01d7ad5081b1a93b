"""What a worker asks of a device: how it is named, seen and narrowed."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from types import SimpleNamespace

import pytest
import torch

from gputui.worker.accelerator import (
    Unsupported,
    allocator,
    captured,
    first_gpu,
    hidden_by,
    require_named,
    require_ranks,
    uuid_of,
)
from gputui.worker.steps import resolve


class Properties:
    """What torch says of a device, as far as its name is concerned."""

    def __init__(self, name: str, uuid: str) -> None:
        self.name, self.uuid = name, uuid


@pytest.mark.parametrize(
    ("name", "uuid", "is_rocm", "expected"),
    [
        ("NVIDIA H100 80GB HBM3", "5f1c0000-aaaa", False, "GPU-5f1c0000-aaaa"),
        ("NVIDIA A100-SXM4-40GB MIG 1g.5gb", "5f1c0000-aaaa", False, "MIG-5f1c0000-aaaa"),
        ("NVIDIA A100-SXM4-40GB MIG 1g.5gb", "MIG-5f1c0000-aaaa", False, "MIG-5f1c0000-aaaa"),
        ("AMD Instinct MI300X", "35353362-3434-6437-3965-343537663463", True, ""),
        ("NVIDIA T4", "", False, ""),
    ],
)
def test_a_device_has_the_uuid_that_makes_it_visible(
    monkeypatch: pytest.MonkeyPatch, name: str, uuid: str, is_rocm: bool, expected: str
) -> None:
    monkeypatch.setattr(torch.version, "hip", "7.0" if is_rocm else None)
    assert uuid_of("cuda", Properties(name, uuid)) == expected
    assert uuid_of("xpu", Properties(name, uuid)) == ""


@pytest.mark.parametrize(
    ("environ", "expected"),
    [
        ({}, ""),
        ({"CUDA_VISIBLE_DEVICES": ""}, "CUDA_VISIBLE_DEVICES"),
        ({"CUDA_VISIBLE_DEVICES": "-1"}, "CUDA_VISIBLE_DEVICES"),
        ({"CUDA_VISIBLE_DEVICES": " -1,0"}, "CUDA_VISIBLE_DEVICES"),
        ({"CUDA_VISIBLE_DEVICES": "NoDevFiles"}, "CUDA_VISIBLE_DEVICES"),
        ({"HIP_VISIBLE_DEVICES": "-1"}, "HIP_VISIBLE_DEVICES"),
        ({"CUDA_VISIBLE_DEVICES": "0", "ROCR_VISIBLE_DEVICES": ""}, "ROCR_VISIBLE_DEVICES"),
        ({"CUDA_VISIBLE_DEVICES": "0,1"}, ""),
        ({"CUDA_VISIBLE_DEVICES": "GPU-5f1c0000-aaaa"}, ""),
        ({"CUDA_VISIBLE_DEVICES": "7"}, ""),
    ],
)
def test_gpus_are_hidden_by_a_list_that_begins_with_none_and_not_by_a_wrong_number(
    environ: dict[str, str], expected: str
) -> None:
    assert hidden_by(environ) == expected


@pytest.mark.parametrize(
    ("value", "expected"), [("7", 7), (" 1, 0", 1), ("", None), ("-1", None), ("GPU-5f1c", None), ("²", None)]
)
def test_the_first_gpu_is_the_number_that_a_list_begins_with(value: str, expected: int | None) -> None:
    assert first_gpu({"CUDA_VISIBLE_DEVICES": value}) == expected


class FakeKind:
    """A kind of device as a module of torch, whose graphs hold the calls made while they are captured."""

    def __init__(self) -> None:
        self.at = "default"
        self.streams: list[str] = []
        self.capturing: list[Callable[[], None]] | None = None

    def Stream(self) -> SimpleNamespace:
        return SimpleNamespace(name="side", wait_stream=lambda other: None)

    def current_stream(self) -> SimpleNamespace:
        return SimpleNamespace(name=self.at, wait_stream=lambda other: None)

    @contextlib.contextmanager
    def stream(self, chosen: SimpleNamespace) -> Iterator[None]:
        before, self.at = self.at, chosen.name
        yield
        self.at = before

    def CUDAGraph(self) -> SimpleNamespace:
        calls: list[Callable[[], None]] = []
        return SimpleNamespace(calls=calls, replay=lambda: [call() for call in calls])

    @contextlib.contextmanager
    def graph(self, graph: SimpleNamespace, stream: SimpleNamespace) -> Iterator[None]:
        self.capturing = graph.calls
        with self.stream(stream):
            yield
        self.capturing = None

    def launch(self, work: Callable[[], None]) -> None:
        self.streams.append(self.at)
        if self.capturing is None:
            work()
        else:
            self.capturing.append(work)


def test_a_captured_step_is_repeated_without_the_host(monkeypatch: pytest.MonkeyPatch) -> None:
    kind, numbers, calls = FakeKind(), torch.zeros(3), list[int]()
    monkeypatch.setattr(torch, "fake", kind, raising=False)

    def run() -> None:
        calls.append(1)
        kind.launch(lambda: numbers.add_(1))

    replay = captured("fake", run)
    warm = len(calls) - 1
    assert numbers.tolist() == [warm] * 3  # the call that was captured computed nothing
    assert set(kind.streams) == {"side"}
    replay()
    replay()
    assert numbers.tolist() == [warm + 2] * 3
    assert len(calls) == warm + 1


def test_a_cpu_has_no_graphs() -> None:
    with pytest.raises(Unsupported, match="torch captures no graphs on cpu"):
        captured("cpu", lambda: None)


def test_a_process_that_sees_another_device_than_planned_measures_nothing(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    arcs = ["Intel UHD 770", "Intel Arc B580"]
    kind = SimpleNamespace(get_device_properties=lambda index: SimpleNamespace(name=arcs[index]))
    monkeypatch.setattr(torch, "fake", kind, raising=False)
    require_named("fake", "Intel UHD 770")
    require_named("fake", "")
    with pytest.raises(Unsupported, match="another device"):
        require_named("fake", "Intel Arc B580")


@pytest.mark.parametrize(
    ("has_accelerator", "macos", "used"),
    [(True, 15, "amp-bf16"), (True, 13, "fp32"), (False, 15, "fp32")],
)
def test_a_mac_computes_in_bf16_where_torch_and_macos_have_it_and_in_fp32_elsewhere(
    monkeypatch: pytest.MonkeyPatch, has_accelerator: bool, macos: int, used: str
) -> None:
    monkeypatch.setattr(torch.backends.mps, "is_macos_or_newer", lambda major, minor: macos >= major)
    if not has_accelerator:
        monkeypatch.delattr(torch, "accelerator")
    precision = resolve("amp", "mps")
    assert (precision.used, precision.needs_scaler()) == (used, False)


def test_what_counts_its_memory_is_asked_and_a_cpu_does_not(monkeypatch: pytest.MonkeyPatch) -> None:
    assert allocator("cpu") is None
    assert allocator("cuda") is torch.cuda
    assert allocator("mps") is None


def test_ranks_need_a_device_each_and_a_cpu_has_room_for_all(monkeypatch: pytest.MonkeyPatch) -> None:
    require_ranks("cpu", 64)
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 2)
    require_ranks("cuda", 2)
    with pytest.raises(Unsupported, match="4 GPUs are needed on each host, 2 can be seen on one of them"):
        require_ranks("cuda", 4)
    with pytest.raises(Unsupported, match="gloo on CPUs and NCCL"):
        require_ranks("mps", 1)
