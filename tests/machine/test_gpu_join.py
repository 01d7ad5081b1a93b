"""Matching torch's devices to the driver's GPUs."""

from __future__ import annotations

import pytest

from gputui.machine.gpus import GpuAddress, join_gpu, normal_pci_address
from gputui.model.absent import Missing

ADDRESSES = (
    GpuAddress(0, "GPU-aaaa", "0000:1b:00.0", ()),
    GpuAddress(1, "", "0000:3b:00.0", ()),
    GpuAddress(2, "GPU-cccc", "0000:5e:00.0", ("MIG-1111", "MIG-2222")),
)


@pytest.mark.parametrize(
    ("uuid", "pci_address", "index"),
    [
        ("GPU-aaaa", "", 0),
        ("cccc", "", 2),
        ("MIG-2222", "", 2),
        ("", "00000000:3B:00.0", 1),
        ("GPU-unknown", "3b:00", 1),
        ("GPU-aaaa", "0000:3b:00.0", 0),
    ],
)
def test_a_device_is_joined_by_uuid_and_then_by_pci_address(uuid: str, pci_address: str, index: int) -> None:
    assert join_gpu(ADDRESSES, uuid, pci_address) == index


def test_a_device_without_names_is_joined_to_nothing() -> None:
    assert isinstance(join_gpu(ADDRESSES, "", ""), Missing)
    assert isinstance(join_gpu(ADDRESSES, "GPU-zzzz", "0000:ff:00.0"), Missing)


@pytest.mark.parametrize("text", ["", "x", "12", "1:2:3:4", "0000:1b:00.9"])
def test_what_is_no_pci_address_has_no_normal_form(text: str) -> None:
    assert normal_pci_address(text) == ""
