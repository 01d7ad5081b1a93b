"""The live samples of one machine as it sends them to another: only what changed, and at first everything."""

from __future__ import annotations

import math
from dataclasses import fields
from typing import Any  # Any: JSON

from gputui.model.absent import Missing
from gputui.model.telemetry import DeviceSample, GpuUse, LiveSample, ProcessSample

DIGITS = 3
"""Of a number that has changed; screens show no more. The first one is sent whole."""
OLD_S = 3.0
"""From this age on it is sent how old a reading is."""
MOST_PROCESSES = 500


class Changes:
    """Turns samples into messages. For one thread."""

    def __init__(self) -> None:
        self._devices: dict[str, tuple[dict[str, Any], str | None]] = {}
        """The values of each device as they were sent, and its problem."""
        self._rest: dict[str, Any] = {}

    def since_last(self, sample: LiveSample, case: str = "") -> dict[str, Any]:
        """What has changed since the last call, as JSON; empty if nothing has."""
        devices = {_name(device): device for device in (sample.host, *sample.gpus)}
        changed = {name: change for name, device in devices.items() if (change := self._change(name, device))}
        self._devices = {name: known for name, known in self._devices.items() if name in devices}
        ages_s = {name: (sample.t_ns - device.t_ns) / 1e9 for name, device in devices.items()}
        rest: dict[str, Any] = {
            "order": [_name(gpu) for gpu in sample.gpus],
            "ages": {name: round(age_s) for name, age_s in ages_s.items() if age_s > OLD_S},
            "absent": {name: why.reason for name, why in sample.absent.items()},
            "processes": _plain_processes(sample.processes),
            "case": case,
        }
        found = {key: value for key, value in rest.items() if self._rest.get(key) != value}
        self._rest = rest
        return {"devices": changed, **found} if changed else found

    def _change(self, name: str, device: DeviceSample) -> dict[str, Any]:
        is_new = name not in self._devices
        known, known_problem = self._devices.get(name, ({}, None))
        values = {key: _plain(value) for key, value in device.values.items()}
        if not is_new:
            values = {key: _rounded(value, known.get(key)) for key, value in values.items()}
        problem = None if device.problem is None else device.problem.reason
        self._devices[name] = values, problem
        change: dict[str, Any] = {}
        if is_new:
            change = {"device": device.device, "source": device.source, "parent": device.parent}
        news = {key: value for key, value in values.items() if key not in known or known[key] != value}
        if news or is_new:
            change["values"] = news
        if lost := [key for key in known if key not in values]:
            change["lost"] = lost
        if problem != known_problem:
            change["problem"] = problem
        return change


def _name(device: DeviceSample) -> str:
    return "host" if device.source == "host" else f"{device.source} {device.device}"


def _plain(value: Any) -> Any:
    return {"missing": value.reason} if isinstance(value, Missing) else value


def _rounded(value: Any, known: Any) -> Any:
    """As few digits as are shown; the known number, if the new one is hardly different."""
    if value == known or isinstance(value, bool) or not isinstance(value, int | float) or not value:
        return value
    if not math.isfinite(value):
        return value
    scale = DIGITS - 1 - math.floor(math.log10(abs(value)))
    found = round(value, scale)
    is_close = isinstance(known, int | float) and abs(found - known) < 0.5 * 10.0**-scale
    return known if is_close else found


def _plain_processes(processes: tuple[ProcessSample, ...] | Missing) -> Any:
    if isinstance(processes, Missing):
        return processes.reason
    return [{**_flat(one), "uses": list(map(_flat, one.uses))} for one in processes[:MOST_PROCESSES]]


def _flat(one: ProcessSample | GpuUse) -> dict[str, Any]:
    return {f.name: _plain(getattr(one, f.name)) for f in fields(one)}
