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


def device_s(size: Size, precision_used: str, gpu: GpuFacts) -> float | Missing:
    """Seconds of a step at REACHED of the data sheet, by FLOPs or bytes, whichever take longer."""
    peak_per_s, bytes_per_s = peak_for(gpu, precision_used), peak_bandwidth(gpu)
    if isinstance(peak_per_s, Missing) or isinstance(bytes_per_s, Missing):
        return Missing(f"the data sheet of the {gpu.name} lacks a peak")
    precision = precision_used.partition("-")[0]
    traffic_bytes = size.amp_traffic_bytes * (1 if precision == "amp" else 2)
    needed_s = max(
        (size.flops_per_step or 0) / peak_per_s, (size.bytes_in(precision) or traffic_bytes) / bytes_per_s
    )
    return needed_s / REACHED if needed_s else Missing("neither its FLOPs nor its bytes are known")


def times_s(size: Size, precision: str, mode: str, device: TorchDevice) -> tuple[float, float] | Missing:
    """Seconds of the GPU and of the host in a step; `precision` is the one requested."""
    gpu = find_gpu(device.name, None if device.memory_bytes is None else device.memory_bytes / 2**30)
    if isinstance(gpu, Missing):
        return gpu
    if mode == "compile" or size.operators is None:
        return Missing("its operators are not counted")
    used = precision if precision != "amp" else "amp-bf16" if device.bf16 else "amp-fp16"
    needed_s = device_s(size, used, gpu)
    if isinstance(needed_s, Missing):
        return needed_s
    return needed_s, GRAPH_S if mode == "graph" else OPERATOR_S * size.operators
