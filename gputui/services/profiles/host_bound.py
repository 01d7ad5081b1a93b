"""Predicts whether the host holds a GPU back, from the data sheet and the operators of a step."""

from __future__ import annotations

from gputui.facts.tables import GpuFacts, find_gpu, peak_bandwidth, peak_for
from gputui.model.absent import Missing
from gputui.model.machine import TorchDevice
from gputui.worker.contract import Size

REACHED = 0.6
"""Of the data sheet's FLOP/s and bandwidth, what a step is taken to reach; few reach more."""
OPERATOR_S = 4.5e-6
"""Host time of an operator: 2.5 µs on one core of an EPYC (`tests/benchmarks/host_bound.py`), and a launch of
4 µs, which is assumed, for every second one."""
GRAPH_S = 30e-6
"""Host time of a replayed graph; assumed."""
LEAST_RATIO = 3.0
"""Of device time to host time; below it the host may hold the GPU back."""


def device_s(size: Size, precision: str, gpu: GpuFacts) -> float | Missing:
    """Seconds of a step on this GPU at REACHED of its data sheet, by FLOPs or bytes, whichever take longer.

    `precision` is the one used, such as `amp-fp16`.
    """
    peak_per_s, bytes_per_s = peak_for(gpu, precision), peak_bandwidth(gpu)
    if isinstance(peak_per_s, Missing):
        return peak_per_s
    if isinstance(bytes_per_s, Missing):
        return bytes_per_s
    is_amp = precision.startswith("amp")
    traffic_bytes = size.amp_traffic_bytes * (1 if is_amp else 2)
    moved_bytes = size.bytes_in("amp" if is_amp else "fp32") or traffic_bytes
    if not size.flops_per_step and not moved_bytes:
        return Missing("neither its FLOPs nor its bytes are known")
    return max((size.flops_per_step or 0) / peak_per_s, moved_bytes / bytes_per_s) / REACHED


def host_s(size: Size, mode: str) -> float | Missing:
    """Seconds that the host takes to enqueue a step."""
    if mode == "graph":
        return GRAPH_S
    if mode != "eager" or size.operators is None:
        return Missing("its operators are not counted")
    return OPERATOR_S * size.operators


def times_s(size: Size, precision: str, mode: str, device: TorchDevice) -> tuple[float, float] | Missing:
    """Seconds of the GPU and of the host in a step; `precision` is the one requested."""
    gpu = find_gpu(device.name, None if device.memory_bytes is None else device.memory_bytes / 2**30)
    if isinstance(gpu, Missing):
        return gpu
    used = precision if precision != "amp" else "amp-bf16" if device.bf16 else "amp-fp16"
    of_device, of_host = device_s(size, used, gpu), host_s(size, mode)
    if isinstance(of_device, Missing):
        return of_device
    return of_host if isinstance(of_host, Missing) else (of_device, of_host)


def is_host_bound(size: Size, precision: str, mode: str, device: TorchDevice) -> bool | Missing:
    """Whether the host needs more than a third of the time that the GPU does."""
    found = times_s(size, precision, mode, device)
    return found if isinstance(found, Missing) else found[0] < LEAST_RATIO * found[1]
