"""The live samples of another machine, rebuilt from its messages, which are a stranger's."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any  # Any: JSON of another machine

from gputui.model.absent import Missing
from gputui.model.live import DeviceSample, LiveSample, ProcessSample, Value
from gputui.recording.live_changes import MOST_PROCESSES
from gputui.store.strict import strict
from gputui.store.text import clean_text

MOST_DEVICES, MOST_VALUES, LONGEST_TEXT = 256, 512, 1000
NOT_READ_YET = Missing("not read yet")


class Replica:
    """Rebuilds samples from messages. What is wrong in them raises ValueError, KeyError or TypeError.

    For one thread.
    """

    def __init__(self) -> None:
        self._devices: dict[str, DeviceSample] = {}
        self._order: list[str] = []
        self._ages: dict[str, float] = {}
        self._absent: dict[str, Missing] = {}
        self._processes: tuple[ProcessSample, ...] | Missing = NOT_READ_YET
        self._number = 0
        self.case = ""
        """What is measured there now; empty if nothing is."""

    def apply(self, message: Mapping[str, Any], now_ns: int) -> LiveSample:
        """The sample after this message; `now_ns` is the time here, from which ages are counted."""
        for name, change in dict(message.get("devices", {})).items():
            self._devices[self._text(name)] = self._changed(self._devices.get(name), change)
        if len(self._devices) > MOST_DEVICES:
            raise ValueError("too many devices")
        if "order" in message:
            self._order = [self._text(name) for name in message["order"]]
            kept = {*self._order, "host"}
            self._devices = {name: device for name, device in self._devices.items() if name in kept}
        if "ages" in message:
            self._ages = {self._text(name): _number(age) for name, age in dict(message["ages"]).items()}
        if "absent" in message:
            self._absent = {
                self._text(name): Missing(self._text(why)) for name, why in dict(message["absent"]).items()
            }
        if "processes" in message:
            self._processes = self._read_processes(message["processes"])
        if "case" in message:
            self.case = self._text(message["case"])
        return self.sample(now_ns)

    def sample(self, now_ns: int) -> LiveSample:
        """The sample as it is, read just now but for what was reported as old."""
        self._number += 1
        seen = {
            name: DeviceSample(
                device.device,
                device.source,
                now_ns - round(self._ages.get(name, 0) * 1e9),
                device.values,
                device.parent,
                device.problem,
            )
            for name, device in self._devices.items()
        }
        gpus = tuple(seen[name] for name in self._order)
        return LiveSample(self._number, now_ns, seen["host"], gpus, self._processes, dict(self._absent))

    def _changed(self, before: DeviceSample | None, change: Mapping[str, Any]) -> DeviceSample:
        values: dict[str, Value] = dict(before.values) if before is not None else {}
        for key in change.get("lost", ()):
            values.pop(key, None)
        values.update(
            {self._text(key): self._value(value) for key, value in change.get("values", {}).items()}
        )
        if len(values) > MOST_VALUES:
            raise ValueError("too many values")
        problem = None if before is None else before.problem
        if "problem" in change:
            problem = None if change["problem"] is None else Missing(self._text(change["problem"]))
        if before is not None:
            return DeviceSample(before.device, before.source, 0, values, before.parent, problem)
        parent = change["parent"]
        return DeviceSample(
            _whole(change["device"]),
            self._text(change["source"]),
            0,
            values,
            None if parent is None else _whole(parent),
            problem,
        )

    def _read_processes(self, plain: Any) -> tuple[ProcessSample, ...] | Missing:
        if isinstance(plain, str):
            return Missing(self._text(plain))
        if len(plain) > MOST_PROCESSES:
            raise ValueError("too many processes")
        return tuple(strict(one, ProcessSample) for one in plain)

    def _value(self, plain: Any) -> Value:
        if isinstance(plain, dict):
            return Missing(self._text(plain["missing"]))
        if isinstance(plain, str):
            return self._text(plain)
        return plain if type(plain) is int and abs(plain) < 2**63 else _number(plain)

    def _text(self, plain: Any) -> str:
        if not isinstance(plain, str):
            raise TypeError("not a text")
        return clean_text(plain[:LONGEST_TEXT])


def _number(plain: Any) -> float:
    if isinstance(plain, bool) or not isinstance(plain, int | float) or not math.isfinite(plain):
        raise TypeError("not a number")
    return float(plain)


def _whole(plain: Any) -> int:
    if type(plain) is not int or not 0 <= abs(plain) < 2**31:
        raise TypeError("not a whole number")
    return plain
