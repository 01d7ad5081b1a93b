"""A live sample of one machine as another gets it, in one compressed stream: what stays takes few bytes."""

from __future__ import annotations

from dataclasses import fields
from typing import Any  # Any: JSON

from gputui.model.absent import Missing
from gputui.model.telemetry import DeviceSample, GpuUse, LiveSample, ProcessSample

OLD_S = 3.0
"""From this age on it is sent how old a reading is."""
MOST_PROCESSES = 500


def plain_sample(sample: LiveSample, case: str) -> dict[str, Any]:
    """A sample as JSON, with the case that is measured meanwhile; empty if none is."""
    return {
        "host": _device(sample.host, sample.t_ns),
        "gpus": [_device(gpu, sample.t_ns) for gpu in sample.gpus],
        "absent": {name: why.reason for name, why in sample.absent.items()},
        "processes": _processes(sample.processes),
        "case": case,
    }


def _device(device: DeviceSample, now_ns: int) -> dict[str, Any]:
    age_s = (now_ns - device.t_ns) / 1e9
    return {
        "device": device.device,
        "source": device.source,
        "parent": device.parent,
        "age_s": round(age_s) if age_s > OLD_S else 0,
        "problem": None if device.problem is None else device.problem.reason,
        "values": {key: _plain(value) for key, value in device.values.items()},
    }


def _processes(processes: tuple[ProcessSample, ...] | Missing) -> Any:
    if isinstance(processes, Missing):
        return processes.reason
    return [{**_flat(one), "uses": list(map(_flat, one.uses))} for one in processes[:MOST_PROCESSES]]


def _flat(one: ProcessSample | GpuUse) -> dict[str, Any]:
    return {field.name: _plain(getattr(one, field.name)) for field in fields(one)}


def _plain(value: Any) -> Any:
    """A share or a rate in as many digits as are shown; counters are whole."""
    if isinstance(value, Missing):
        return {"missing": value.reason}
    return float(f"{value:.3g}") if isinstance(value, float) else value
