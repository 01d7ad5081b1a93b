"""What this box is: processor, memory, GPUs, the layers around it, versions. No network, no root."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from gputui.machine.describing import describe_machine as describe_machine
    from gputui.machine.gpus import GpuAddress as GpuAddress
    from gputui.machine.gpus import join_gpu as join_gpu
    from gputui.machine.gpus import normal_pci_address as normal_pci_address
    from gputui.machine.gpus import nvml_addresses as nvml_addresses
    from gputui.machine.identity import hashed_id as hashed_id
    from gputui.machine.identity import host_id as host_id
    from gputui.machine.storage import storage_warning as storage_warning

_MODULES = {
    "GpuAddress": "gpus",
    "describe_machine": "describing",
    "hashed_id": "identity",
    "host_id": "identity",
    "join_gpu": "gpus",
    "normal_pci_address": "gpus",
    "nvml_addresses": "gpus",
    "storage_warning": "storage",
}
"""Imported on first use: the live view needs only the control groups, and the rest takes 15 ms."""

__all__ = [
    "GpuAddress",
    "describe_machine",
    "hashed_id",
    "host_id",
    "join_gpu",
    "normal_pci_address",
    "nvml_addresses",
    "storage_warning",
]


def __getattr__(name: str) -> Any:  # Any: what a module attribute may be
    """Import one of the names above."""
    if name in _MODULES:
        return getattr(import_module(f"gputui.machine.{_MODULES[name]}"), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
