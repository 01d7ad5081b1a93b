"""What a worker asks of a device: how it is named, seen and narrowed."""

from __future__ import annotations

import pytest
import torch

from gputui.worker.accelerator import first_gpu, hidden_by, uuid_of


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
