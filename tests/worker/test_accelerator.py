"""What a worker asks of a device: how it is named, seen and narrowed."""

from __future__ import annotations

from types import SimpleNamespace

import pytest
import torch

from gputui.worker.accelerator import (
    Unsupported,
    allocator,
    first_gpu,
    hidden_by,
    require_named,
    require_ranks,
    uuid_of,
)
from gputui.worker.contract import Precision, Request
from gputui.worker.steps import adamw, recorded, resolve, sgd


class Properties:
    """What torch says of a device, as far as its name is concerned."""

    def __init__(self, name: str, uuid: str) -> None:
        self.name, self.uuid = name, uuid


@pytest.mark.parametrize(
    ("name", "uuid", "expected"),
    [
        ("NVIDIA H100 80GB HBM3", "5f1c0000-aaaa", "GPU-5f1c0000-aaaa"),
        ("NVIDIA A100-SXM4-40GB MIG 1g.5gb", "5f1c0000-aaaa", "MIG-5f1c0000-aaaa"),
        ("NVIDIA A100-SXM4-40GB MIG 1g.5gb", "MIG-5f1c0000-aaaa", "MIG-5f1c0000-aaaa"),
        ("NVIDIA T4", "", ""),
    ],
)
def test_a_device_has_the_uuid_that_makes_it_visible(name: str, uuid: str, expected: str) -> None:
    assert uuid_of(Properties(name, uuid)) == expected


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


def test_a_cpu_has_no_launches_to_save_and_other_devices_no_graphs() -> None:
    def run() -> None:
        raise AssertionError("not to be called before the first step")

    def asked(device: str) -> Request:
        return Request({}, device, Precision("fp32", "fp32", device), threads=1, seed=3, mode="graph")

    assert recorded(run, asked("cpu")) is run
    for device in ("mps", "xpu"):
        with pytest.raises(Unsupported, match=f"torch captures no graphs on {device}"):
            recorded(run, asked(device))


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


@pytest.mark.parametrize(
    ("device", "adamw_fused", "sgd_fused"), [("cpu", True, None), ("cuda", True, True), ("xpu", None, None)]
)
def test_optimizers_are_fused_where_the_device_can_and_else_torchs_default(
    device: str, adamw_fused: bool | None, sgd_fused: bool | None
) -> None:
    model = torch.nn.Linear(2, 2)
    assert adamw(model, 1e-3, device).defaults["fused"] is adamw_fused
    assert sgd(model, device).defaults["fused"] is sgd_fused
