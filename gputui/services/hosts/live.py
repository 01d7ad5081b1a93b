"""Live samples of other machines: one link to each, opened again with growing pauses when it breaks.

They are rebuilt from messages, which are a stranger's.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import Any  # Any: JSON of another machine

from gputui.errors import GputuiError, bug_text
from gputui.model.absent import Missing
from gputui.model.telemetry import HOST, DeviceSample, LiveSample, ProcessSample, Value, sane
from gputui.recording.live_changes import MOST_PROCESSES
from gputui.services.hosts.host import Host, text_from
from gputui.services.hosts.link import HostFailed, Link, LinkLost
from gputui.store.strict import strict
from gputui.store.text import clean_text
from gputui.worker.foreign_json import number, whole

MOST_DEVICES, MOST_VALUES, LONGEST_COMMAND = 256, 512, 2**14
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
            self._devices[text_from(name)] = self._changed(self._devices.get(name), change)
        if len(self._devices) > MOST_DEVICES + 1:  # the host is one
            raise ValueError("too many devices")
        if "order" in message:
            order = [text_from(name) for name in message["order"]]
            if len(order) > MOST_DEVICES or len(set(order)) < len(order):
                raise ValueError("too many devices, or one of them twice")
            self._order = order
            kept = {*self._order, "host"}
            self._devices = {name: device for name, device in self._devices.items() if name in kept}
        if "ages" in message:
            ages = {text_from(name): number(age, 0, OLDEST_S) for name, age in dict(message["ages"]).items()}
            self._ages = {name: age_s for name, age_s in ages.items() if name in self._devices}
        if "absent" in message:
            absent = dict(message["absent"])
            if len(absent) > MOST_DEVICES:
                raise ValueError("too many sources")
            self._absent = {text_from(name): Missing(text_from(why)) for name, why in absent.items()}
        if "processes" in message:
            self._processes = self._read_processes(message["processes"])
        if "case" in message:
            self.case = text_from(message["case"])
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
            {text_from(key): self._value(key, value) for key, value in change.get("values", {}).items()}
        )
        if len(values) > MOST_VALUES:
            raise ValueError("too many values")
        problem = None if before is None else before.problem
        if "problem" in change:
            problem = None if change["problem"] is None else Missing(text_from(change["problem"]))
        if before is not None:
            return DeviceSample(before.device, before.source, 0, values, before.parent, problem)
        parent = change["parent"]
        return DeviceSample(
            whole(change["device"], -_LARGEST_INDEX, _LARGEST_INDEX),
            text_from(change["source"]),
            0,
            values,
            None if parent is None else whole(parent, 0, _LARGEST_INDEX),
            problem,
        )

    def _read_processes(self, plain: Any) -> tuple[ProcessSample, ...] | Missing:
        if isinstance(plain, str):
            return Missing(text_from(plain))
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
            return Missing(text_from(plain["missing"]))
        if isinstance(plain, str):
            return text_from(plain)
        if isinstance(plain, bool) or not isinstance(plain, int | float):
            raise TypeError("not a number")
        return sane(key, plain, _WHO)


def _measured(plain: dict[str, Any]) -> dict[str, Any]:
    """The values of a process, or of its use of a GPU, each without a plausible one as JSON has a Missing."""
    found = dict(plain)
    for key in _MEASURED:
        if isinstance(found.get(key), int | float):
            value = sane(key, found[key], _WHO)
            found[key] = {"missing": value.reason} if isinstance(value, Missing) else value
    return found


SILENCE_S = 12.0
"""More than twice the time after which a host without news says that it is alive."""
FIRST_PAUSE_S, LONGEST_PAUSE_S = 1.0, 60.0
LEAST_PAUSE_S = 0.05
"""Between two messages of a host: one that sends without a pause must not take the time of the others."""
CONNECTING = Missing("connecting")


@dataclass(frozen=True, slots=True)
class HostSample:
    """One host as it was heard last."""

    host: Host
    sample: LiveSample | None
    """None until the first message."""
    case: str
    heard_ns: int
    """Monotonic, here; 0 before the first message."""
    problem: str
    """Why nothing comes from it; empty while it is heard."""
    hint: str
    received_bytes: int


class HostFeed:
    """The samples of one host, as the live view takes them from any feed. Thread-safe."""

    def __init__(self, host: Host, interval_s: float) -> None:
        self.host = host
        self._interval_s = interval_s
        self.on_sample: Callable[[], None] = lambda: None
        """Called in the thread of this feed when there is a new sample."""
        self._wants_processes = False
        self._lock = threading.Lock()
        self._seen = HostSample(host, None, "", 0, CONNECTING.reason, "", 0)
        self._shown: tuple[HostSample, int, LiveSample] | None = None
        self._link: Link | None = None
        self._is_closed = threading.Event()

    def start(self) -> None:
        """Connect in a thread; returns at once."""
        threading.Thread(target=self._run, name=f"watch {self.host.name}", daemon=True).start()

    def seen(self) -> HostSample:
        """The host as it was heard last."""
        return self._seen

    def latest(self) -> LiveSample:
        """The current sample; while the host is not heard, the last one with the reason on every device."""
        seen, now_ns = self._seen, time.monotonic_ns()
        if seen.sample is not None and not seen.problem:
            return seen.sample
        second = now_ns // 10**9
        if self._shown is None or self._shown[:2] != (seen, second):
            silent_s = (now_ns - seen.heard_ns) // 10**9
            silent = f"{self.host.name} has not answered for {silent_s} s: " if seen.sample else ""
            why = Missing(clean_text(f"{silent}{seen.problem}"))
            unread = DeviceSample(HOST, "host", now_ns, {})
            last = seen.sample or LiveSample(0, now_ns, unread, (), why, {self.host.name: why})
            sample = replace(
                last,
                number=second + 2**32,  # above those of the replica, and rising
                host=replace(last.host, problem=why),
                gpus=tuple(replace(gpu, problem=why) for gpu in last.gpus),
            )
            self._shown = seen, second, sample
        return self._shown[2]

    def want_processes(self, wanted: bool) -> None:
        self._wants_processes = wanted
        self._send("processes", wanted=wanted)

    def set_interval(self, interval_s: float) -> None:
        self._interval_s = interval_s
        self._send("interval", seconds=interval_s)

    def close(self) -> None:
        """End; returns at once, the link ends soon after."""
        self._is_closed.set()
        with self._lock:
            link = self._link
        if link is not None:
            link.hang_up()

    def _send(self, do: str, **fields: object) -> None:
        with self._lock:
            if self._link is not None:
                with suppress(GputuiError, OSError, ValueError):  # the thread that reads finds out why
                    self._link.send(do, **fields)

    def _run(self) -> None:
        pause_s = FIRST_PAUSE_S
        while not self._is_closed.is_set():
            begun_ns = self._seen.heard_ns
            try:
                self._hear()
            except HostFailed as error:
                self._fail(error.message, error.hint)
            except Exception as error:  # a thread that just ends would leave the host "connecting" for ever
                self._fail(bug_text(error), "")
            if self._seen.heard_ns != begun_ns:
                pause_s = FIRST_PAUSE_S
            self._is_closed.wait(pause_s)
            pause_s = min(2 * pause_s, LONGEST_PAUSE_S)

    def _hear(self) -> None:
        link = Link(self.host)
        with link:
            with self._lock:
                self._link = link
            try:
                replica = Replica()
                for message in link.messages(
                    "watch", SILENCE_S, interval_s=self._interval_s, processes=self._wants_processes
                ):
                    if self._is_closed.is_set():
                        return
                    now_ns = time.monotonic_ns()
                    try:
                        sample = replica.apply(message, now_ns)
                    except (ValueError, LookupError, TypeError, AttributeError) as error:
                        why = clean_text(f"no {error}" if isinstance(error, LookupError) else str(error))[:80]
                        raise HostFailed(
                            f"what it sends makes no sense ({why})", "is another gputui there?"
                        ) from error
                    self._tell(
                        HostSample(self.host, sample, replica.case, now_ns, "", "", link.received_bytes)
                    )
                    self._is_closed.wait(LEAST_PAUSE_S)
            finally:
                with self._lock:
                    self._link = None
        raise LinkLost("the link broke", "")

    def _fail(self, problem: str, hint: str) -> None:
        if not self._is_closed.is_set():
            self._tell(replace(self._seen, problem=problem, hint=hint))

    def _tell(self, seen: HostSample) -> None:
        self._seen = seen
        if not self._is_closed.is_set():
            self.on_sample()


def watch_hosts(hosts: Sequence[Host], interval_s: float) -> tuple[HostFeed, ...]:
    """One feed for each host, started."""
    feeds = tuple(HostFeed(host, interval_s) for host in hosts)
    for feed in feeds:
        feed.start()
    return feeds
