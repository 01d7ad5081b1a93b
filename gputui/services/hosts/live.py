"""Live samples of other machines: one link to each, opened again with growing pauses when it breaks."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace

from gputui.errors import GputuiError, bug_text
from gputui.model.absent import Missing
from gputui.model.devices import HOST
from gputui.model.live import DeviceSample, LiveSample
from gputui.services.hosts.host import Host
from gputui.services.hosts.link import HostFailed, Link, LinkLost
from gputui.services.hosts.replica import Replica
from gputui.store.text import clean_text

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
            number = second + 2**32  # above those of the replica, and rising
            if seen.sample is None:
                why = Missing(clean_text(seen.problem))
                host = DeviceSample(HOST, "host", now_ns, {}, problem=why)
                sample = LiveSample(number, now_ns, host, (), why, {self.host.name: why})
            else:
                silent_s = (now_ns - seen.heard_ns) // 10**9
                why = Missing(f"{self.host.name} has not answered for {silent_s} s: {seen.problem}")
                last = seen.sample
                sample = replace(
                    last,
                    number=number,
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
