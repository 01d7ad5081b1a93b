"""What the checks looked at, in words: the box and its readings."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from gputui.errors import GputuiError
from gputui.metrics import charted, metric_named, number, word
from gputui.model.absent import Missing
from gputui.model.telemetry import HOST, DeviceSample
from gputui.model.units import counted, format_bytes
from gputui.services.doctor.checks import SystemState
from gputui.services.doctor.disturbances import Check
from gputui.store.text import clean_text

_LOAD = ("load_1min", "cpu_busy_pct")


def readings(box: SystemState) -> tuple[Check, ...]:
    """The processor, memory, each GPU, software and disks: what is known of each, judged by no check."""
    found = (*_host(box), *map(_gpu, box.sample.gpus), *_software(box), *_disks(box))
    return tuple(replace(one, found=clean_text(one.found)) for one in found if one.found)


def _host(box: SystemState) -> Iterator[Check]:
    cpu, memory, values = box.machine.cpu, box.machine.memory, box.sample.host.values
    cache = cpu.last_level_cache_bytes
    yield Check(
        "CPU",
        "ok",
        _joined(
            cpu.model,
            f"{counted(cpu.usable_cores, 'core')}, {cpu.usable_threads:g} of {cpu.host_threads} threads",
            "" if isinstance(cache, Missing) else f"{format_bytes(cache)} cache",
        ),
    )
    yield Check("instructions", "ok", ", ".join(cpu.features))
    cpu_now = {**values, "cpu_limit_cores": float(cpu.usable_threads)}
    yield Check("now", "ok", _joined(*(metric_named(key, HOST).in_words(cpu_now) for key in _LOAD)))
    used = number(values, "memory_used_bytes")
    whole = f"{format_bytes(memory.usable_bytes)} of {format_bytes(memory.host_bytes)} usable"
    yield Check("memory", "ok", _joined(whole, "" if used is None else f"{format_bytes(used)} in use"))


def _gpu(gpu: DeviceSample) -> Check:
    lanes = number(gpu.values, "pcie_width")
    return Check(
        f"GPU {gpu.label}",
        "ok",
        _joined(
            word(gpu.values, "name"),
            *(metric.in_words(gpu.values) for metric in charted(gpu.device)),
            "" if lanes is None else f"PCIe x{lanes:.0f}",
        ),
    )


def _software(box: SystemState) -> Iterator[Check]:
    machine = box.machine
    yield Check("system", "ok", _joined(machine.os_name, _named("kernel", machine.kernel), machine.libc))
    if box.interpreter is None or isinstance(box.interpreter, GputuiError):
        return
    runtime = box.interpreter.runtime
    yield Check(
        "torch",
        "ok",
        _joined(
            runtime.torch_version, _named("CUDA", runtime.torch_cuda), _named("cuDNN", runtime.cudnn_version)
        ),
    )
    yield Check("Python", "ok", f"{runtime.python_version}, {box.interpreter.executable}")


def _disks(box: SystemState) -> Iterator[Check]:
    for place, free in box.free_bytes.items():
        if not isinstance(free, Missing):
            yield Check("disk", "ok", f"{format_bytes(free)} free in {place}")


def _named(name: str, value: object) -> str:
    return "" if isinstance(value, Missing) else f"{name} {value}"


def _joined(*parts: object) -> str:
    """What is known of them."""
    return ", ".join(str(part) for part in parts if part and not isinstance(part, Missing))
