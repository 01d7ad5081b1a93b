"""Live samples of other machines: one link to each, opened again with growing pauses when it breaks.

They are read from messages, which are a stranger's.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import Any  # Any: JSON of another machine

from gputui.errors import GputuiError, bug_text, clean_text
from gputui.model.absent import Missing
from gputui.model.telemetry import HOST, DeviceSample, LiveSample, ProcessSample, Value, sane
from gputui.recording.collector import MOST_PROCESSES
from gputui.services.hosts.host import Host, text_from
from gputui.services.hosts.link import HostFailed, Link, LinkLost
from gputui.store.strict import strict
from gputui.worker.foreign_json import number, whole

MOST_DEVICES, MOST_VALUES, LONGEST_COMMAND = 256, 512, 2**14
OLDEST_S = 10**9
_LARGEST_INDEX = 2**31 - 1
_WHO = "the host"
_MEASURED = ("cpu_pct", "memory_bytes", "elapsed_s", "sm_pct")


def sample_from(message: Any, count: int, now_ns: int) -> tuple[LiveSample, str]:
    """A sample, and the case that is measured meanwhile, from the message with this number.

    `now_ns` is the time here, from which ages are counted. A number out of its metric's range becomes a
    Missing. What makes no sense raises ValueError, LookupError, TypeError or AttributeError.
    """
    if not isinstance(message, dict):
        raise ValueError("it is not an object")
    gpus, absent = message["gpus"], message["absent"]
    if len(gpus) > MOST_DEVICES or len(absent) > MOST_DEVICES:
        raise ValueError("too many devices")
    found = tuple(_device(gpu, now_ns) for gpu in gpus)
    if len({(gpu.source, gpu.device) for gpu in found}) < len(found):
        raise ValueError("a device is there twice")
    sample = LiveSample(
        count,
        now_ns,
        _device(message["host"], now_ns),
        found,
        _processes(message["processes"]),
        {text_from(name): Missing(text_from(why)) for name, why in absent.items()},
    )
    return sample, text_from(message["case"])


def _device(plain: dict[str, Any], now_ns: int) -> DeviceSample:
    values, parent, problem = plain["values"], plain["parent"], plain["problem"]
    if len(values) > MOST_VALUES:
        raise ValueError("too many values")
    return DeviceSample(
        whole(plain["device"], -_LARGEST_INDEX, _LARGEST_INDEX),
        text_from(plain["source"]),
        now_ns - round(number(plain["age_s"], 0, OLDEST_S) * 1e9),
        {text_from(key): _value(key, value) for key, value in values.items()},
        None if parent is None else whole(parent, 0, _LARGEST_INDEX),
        None if problem is None else Missing(text_from(problem)),
    )


def _value(key: str, plain: Any) -> Value:
    if isinstance(plain, dict):
        return Missing(text_from(plain["missing"]))
    if isinstance(plain, str):
        return text_from(plain)
    if isinstance(plain, bool) or not isinstance(plain, int | float):
        raise TypeError("not a number")
    return sane(key, plain, _WHO)


def _processes(plain: Any) -> tuple[ProcessSample, ...] | Missing:
    if isinstance(plain, str):
        return Missing(text_from(plain))
    if len(plain) > MOST_PROCESSES:
        raise ValueError("too many processes")
    return tuple(strict(_process(one), ProcessSample) for one in plain)


def _process(plain: dict[str, Any]) -> dict[str, Any]:
    uses = plain["uses"]
    if len(uses) > MOST_DEVICES:
        raise ValueError("too many uses")
    found = {**_measured(plain), "uses": [_measured(use) for use in uses]}
    command = found.get("command")
    if isinstance(command, str):
        found["command"] = command[:LONGEST_COMMAND]
    return found


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
    case: str
    heard_ns: int
    """Monotonic, here; 0 before the first message."""
    problem: str
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
                number=second + 2**32,  # above those of messages, and rising
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
                messages = link.messages(
                    "watch", SILENCE_S, interval_s=self._interval_s, processes=self._wants_processes
                )
                for count, message in enumerate(messages, 1):
                    if self._is_closed.is_set():
                        return
                    now_ns = time.monotonic_ns()
                    try:
                        sample, case = sample_from(message, count, now_ns)
                    except (ValueError, LookupError, TypeError, AttributeError) as error:
                        why = clean_text(f"no {error}" if isinstance(error, LookupError) else str(error))[:80]
                        raise HostFailed(
                            f"what it sends makes no sense ({why})", "is another gputui there?"
                        ) from error
                    self._tell(HostSample(self.host, sample, case, now_ns, "", "", link.received_bytes))
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
