"""The live samples of another machine, rebuilt from its messages, which are a stranger's."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any  # Any: JSON of another machine

from gputui.model.absent import Missing
from gputui.model.live import DeviceSample, LiveSample, ProcessSample, Value
from gputui.model.ranges import sane
from gputui.recording.live_changes import MOST_PROCESSES
from gputui.store.strict import strict
from gputui.store.text import clean_text
from gputui.worker.foreign_json import number, whole

MOST_DEVICES, MOST_VALUES, LONGEST_TEXT, LONGEST_COMMAND = 256, 512, 1000, 2**14
OLDEST_S = 10**9
_LARGEST_INDEX = 2**31 - 1
_WHO = "the host"
_MEASURED = ("cpu_pct", "memory_bytes", "elapsed_s", "sm_pct")
NOT_READ_YET = Missing("not read yet")


class Replica:
    """Rebuilds samples from messages; a number out of its metric's range becomes a Missing. For one thread.

    What makes no sense in a message raises ValueError, LookupError, TypeError or AttributeError.
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
        if not isinstance(message, dict):
            raise ValueError("it is not an object")
        for name, change in dict(message.get("devices", {})).items():
            self._devices[self._text(name)] = self._changed(self._devices.get(name), change)
        if len(self._devices) > MOST_DEVICES + 1:  # the host is one
            raise ValueError("too many devices")
        if "order" in message:
            order = [self._text(name) for name in message["order"]]
            if len(order) > MOST_DEVICES or len(set(order)) < len(order):
                raise ValueError("too many devices, or one of them twice")
            self._order = order
            kept = {*self._order, "host"}
            self._devices = {name: device for name, device in self._devices.items() if name in kept}
        if "ages" in message:
            ages = {self._text(name): number(age, 0, OLDEST_S) for name, age in dict(message["ages"]).items()}
            self._ages = {name: age_s for name, age_s in ages.items() if name in self._devices}
        if "absent" in message:
            absent = dict(message["absent"])
            if len(absent) > MOST_DEVICES:
                raise ValueError("too many sources")
            self._absent = {self._text(name): Missing(self._text(why)) for name, why in absent.items()}
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
            {self._text(key): self._value(key, value) for key, value in change.get("values", {}).items()}
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
            whole(change["device"], -_LARGEST_INDEX, _LARGEST_INDEX),
            self._text(change["source"]),
            0,
            values,
            None if parent is None else whole(parent, 0, _LARGEST_INDEX),
            problem,
        )

    def _read_processes(self, plain: Any) -> tuple[ProcessSample, ...] | Missing:
        if isinstance(plain, str):
            return Missing(self._text(plain))
        if len(plain) > MOST_PROCESSES:
            raise ValueError("too many processes")
        return tuple(strict(self._process(one), ProcessSample) for one in plain)

    def _process(self, plain: dict[str, Any]) -> dict[str, Any]:
        uses = plain["uses"]
        if len(uses) > MOST_DEVICES:
            raise ValueError("too many uses")
        found = {**_measured(plain), "uses": [_measured(use) for use in uses]}
        command = found.get("command")
        if isinstance(command, str):
            found["command"] = command[:LONGEST_COMMAND]
        return found

    def _value(self, key: str, plain: Any) -> Value:
        if isinstance(plain, dict):
            return Missing(self._text(plain["missing"]))
        if isinstance(plain, str):
            return self._text(plain)
        if isinstance(plain, bool) or not isinstance(plain, int | float):
            raise TypeError("not a number")
        return sane(key, plain, _WHO)

    def _text(self, plain: Any) -> str:
        if not isinstance(plain, str):
            raise TypeError("not a text")
        return clean_text(plain[:LONGEST_TEXT])


def _measured(plain: dict[str, Any]) -> dict[str, Any]:
    """The values of a process, or of its use of a GPU, each without a plausible one as JSON has a Missing."""
    found = dict(plain)
    for key in _MEASURED:
        if isinstance(found.get(key), int | float):
            value = sane(key, found[key], _WHO)
            found[key] = {"missing": value.reason} if isinstance(value, Missing) else value
    return found
