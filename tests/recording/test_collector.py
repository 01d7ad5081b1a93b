"""The collector: one reader for all GPUs; when a call hangs, no other GPU waits, and callers never do."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import partial
from typing import ClassVar

import pytest

from gputui.model.absent import Missing
from gputui.model.telemetry import HOST, DeviceSample, GpuUse, LiveSample, ProcessSample
from gputui.recording.collector import NO_GPU, NOT_ASKED, OPENING, Collector

SOON_S = 0.005
LONGEST_S = 300.0


class Clock:
    """A manual clock."""

    def __init__(self) -> None:
        self.now_ns = 1_000_000_000

    def __call__(self) -> int:
        return self.now_ns


@dataclass
class FakeGpus:
    """GPUs that count their readings; a call waits while its device is held."""

    listed: tuple[int, ...] = (0, 1)
    absent: Missing | None = None
    clock: Callable[[], int] = time.monotonic_ns
    NAME: ClassVar[str] = "fake"
    reads: dict[int, int] = field(default_factory=dict)
    held: dict[int, threading.Event] = field(default_factory=dict)
    opening: threading.Event | None = None
    opens: int = 0
    broken: set[int] = field(default_factory=set)
    process_calls: list[int] = field(default_factory=list)
    uses_of: dict[int, tuple[GpuUse, ...] | Missing] = field(default_factory=dict)

    def open(self) -> tuple[FakeGpu, ...] | Missing:
        self.opens += 1
        if self.opening is not None:
            self.opening.wait(LONGEST_S)
        return self.absent or tuple(FakeGpu(self, number) for number in self.listed)


@dataclass(frozen=True)
class FakeGpu:
    of: FakeGpus
    number: int

    def sample(self) -> tuple[DeviceSample, ...]:
        of, number = self.of, self.number
        if number in of.held:
            of.held[number].wait(LONGEST_S)
        if number in of.broken:
            raise RuntimeError("no such thing")
        of.reads[number] = of.reads.get(number, 0) + 1
        values = {"power_w": float(of.reads[number])}
        instance = DeviceSample(1000 + number, of.NAME, of.clock(), {}, parent=number)
        return (DeviceSample(number, of.NAME, of.clock(), values), instance)

    def processes(self) -> tuple[GpuUse, ...] | Missing:
        self.of.process_calls.append(self.number)
        return self.of.uses_of.get(self.number, ())

    def read(self, *, full: bool) -> dict[str, float | int] | Missing:
        return Missing("not a run")


class FakeHost:
    """A host that always responds."""

    def __init__(self, clock: Callable[[], int] = time.monotonic_ns) -> None:
        self.clock = clock
        self.reads = 0
        self.held: threading.Event | None = None

    def sample(self) -> DeviceSample:
        if self.held is not None:
            self.held.wait(LONGEST_S)
        self.reads += 1
        return DeviceSample(HOST, "host", self.clock(), {"load_1min": float(self.reads)})


class FakeTable:
    """Reports what the driver reports about a process."""

    def look_up(self, uses: Sequence[GpuUse]) -> tuple[ProcessSample, ...]:
        none = Missing("not here")
        return tuple(ProcessSample(use.pid, (use,), none, none, none, none, none, none, none) for use in uses)

    def look_up_all(self) -> tuple[ProcessSample, ...]:
        none = Missing("not here")
        return (ProcessSample(7, (), none, none, none, none, none, none, none),)


class Watched:
    """A collector, and a way to wait for its samples."""

    def __init__(self, collector: Collector, called: threading.Semaphore) -> None:
        self.collector = collector
        self._called = called
        self.called = 0
        """Number of times the collector reported a new sample."""

    def until(self, condition: Callable[[LiveSample], bool]) -> LiveSample:
        deadline = time.monotonic() + LONGEST_S
        while not condition(sample := self.collector.latest()):
            self.called += self._called.acquire(timeout=1.0)
            assert time.monotonic() < deadline, sample
        return sample


@contextmanager
def collecting(
    *sources: FakeGpus,
    host: FakeHost | None = None,
    clock: Callable[[], int] = time.monotonic_ns,
    interval_s: float = SOON_S,
    host_processes: bool = False,
) -> Iterator[Watched]:
    called = threading.Semaphore(0)
    collector = Collector(
        sources,
        (host or FakeHost(clock)).sample,
        interval_s,
        FakeTable().look_up,
        look_up_all=FakeTable().look_up_all if host_processes else None,
        on_sample=called.release,
        clock=clock,
        poll_every_s=SOON_S,
    )
    collector.start()
    try:
        yield Watched(collector, called)
    finally:
        for source in sources:
            for event in (*source.held.values(), source.opening):
                if event is not None:
                    event.set()
        collector.close()


def gpu(sample: LiveSample, device: int) -> DeviceSample:
    return next(one for one in sample.gpus if one.device == device)


def power_w(sample: LiveSample, device: int) -> float:
    found = [one.values.get("power_w", 0.0) for one in sample.gpus if one.device == device]
    return float(found[0]) if found and isinstance(found[0], float) else 0.0


def has_read(gpus: Mapping[int, int], host: int, sample: LiveSample) -> bool:
    load = sample.host.values.get("load_1min", 0.0)
    return all(power_w(sample, n) >= reads for n, reads in gpus.items()) and load == host


def test_gpus_come_in_order_each_with_its_instances_behind_it() -> None:
    with collecting(FakeGpus((0, 1, 2))) as watched:
        sample = watched.until(lambda s: all(power_w(s, n) for n in (0, 1, 2)))
    assert [one.device for one in sample.gpus] == [0, 1000, 1, 1001, 2, 1002]
    assert sample.absent == {}
    assert sample.host.device == HOST


def test_samples_count_up_are_kept_while_nothing_changes_and_another_interval_holds_at_once() -> None:
    clock = Clock()
    with collecting(FakeGpus((0,)), clock=clock, interval_s=1000.0) as watched:
        first = watched.until(lambda s: power_w(s, 0) > 0 and "load_1min" in s.host.values)
        # The host's thread may still have to finish this round.
        watched.until(lambda _: watched.collector.latest() is watched.collector.latest())
        watched.collector.set_interval(SOON_S)
        later = watched.until(lambda s: power_w(s, 0) > 5)
    assert later.number > first.number


def test_gpus_that_are_found_after_a_round_has_begun_are_read_with_their_processes_in_a_new_one() -> None:
    gpus = FakeGpus((0,), opening=threading.Event(), uses_of={0: (GpuUse(0, 4001, "C", 2**30, 12.0),)})
    with collecting(gpus, interval_s=1000.0) as watched:
        watched.collector.want_processes(True)
        watched.until(lambda s: "load_1min" in s.host.values)
        assert gpus.opening is not None
        gpus.opening.set()
        sample = watched.until(lambda s: not isinstance(s.processes, Missing))
    assert power_w(sample, 0) > 0
    assert not isinstance(sample.processes, Missing)
    assert [process.pid for process in sample.processes] == [4001]


def test_a_source_that_takes_long_to_open_is_reported_as_opening_and_the_host_is_shown() -> None:
    clock = Clock()
    gpus = FakeGpus(opening=threading.Event())
    with collecting(gpus, clock=clock) as watched:
        sample = watched.until(lambda s: "load_1min" in s.host.values)
        assert sample.absent == {"fake": OPENING}
        assert sample.gpus == ()
        clock.now_ns += 12 * 10**9
        sample = watched.until(lambda s: s.absent["fake"] != OPENING)
        assert sample.absent["fake"].reason == "being opened: no answer for 12 s"
        assert gpus.opening is not None
        gpus.opening.set()
        watched.until(lambda s: power_w(s, 0) > 0 and not s.absent)


def test_a_source_without_devices_says_why_once_and_is_retried_until_its_driver_comes() -> None:
    gpus = FakeGpus(absent=Missing("the driver is not loaded"))
    with collecting(gpus, interval_s=1000.0) as watched:
        watched.until(lambda s: "load_1min" in s.host.values and s.absent == {"fake": gpus.absent})
        before, opens = watched.collector.latest(), gpus.opens
        watched.until(lambda _: gpus.opens > opens + 5)
        assert watched.collector.latest() is before, "that it is still not there is no news"
        gpus.absent = None
        watched.until(lambda s: power_w(s, 1) > 0 and not s.absent)


def test_a_call_that_hangs_leaves_the_other_gpus_current_and_its_own_value_old() -> None:
    clock = Clock()
    gpus = FakeGpus(clock=clock)
    with collecting(gpus, clock=clock) as watched:
        watched.until(lambda s: power_w(s, 0) > 0 and power_w(s, 1) > 0)
        release = gpus.held.setdefault(1, threading.Event())
        reads = gpus.reads[0]
        watched.until(lambda s: power_w(s, 0) > reads + 20)
        stuck_ns = gpu(watched.collector.latest(), 1).t_ns
        clock.now_ns += 5 * 10**9
        sample = watched.until(lambda s: gpu(s, 0).t_ns == clock.now_ns)
        assert gpu(sample, 0).problem is None
        stuck = gpu(sample, 1)
        assert stuck.problem == Missing("the driver has not answered for 5 s")
        assert gpu(sample, 1001).problem == stuck.problem
        assert stuck.t_ns == stuck_ns
        assert power_w(sample, 1) == gpus.reads[1]
        clock.now_ns += 10**9
        assert "for 6 s" in str(gpu(watched.collector.latest(), 1).problem)
        reads = gpus.reads[1]
        del gpus.held[1]
        release.set()
        watched.until(lambda s: power_w(s, 1) > reads and gpu(s, 1).problem is None)


def test_eight_gpus_have_one_reader_and_each_hung_one_adds_one() -> None:
    gpus = FakeGpus(tuple(range(8)))
    with collecting(gpus) as watched:
        watched.until(lambda s: all(power_w(s, n) > 0 for n in range(8)) and readers() == 1)
        releases = [gpus.held.setdefault(n, threading.Event()) for n in (2, 5)]
        reads = dict(gpus.reads)
        others = [n for n in range(8) if n not in (2, 5)]
        watched.until(lambda s: all(power_w(s, n) > reads[n] + 5 for n in others) and readers() == 3)
        gpus.held.clear()
        for release in releases:
            release.set()
        watched.until(lambda s: all(power_w(s, n) > reads[n] + 5 for n in (2, 5)) and readers() == 1)


def readers() -> int:
    return sum(thread.name == "read fake" for thread in threading.enumerate())


@pytest.mark.parametrize("has_host", [True, False])
def test_without_gpus_the_processes_of_the_host_are_listed_where_they_can_be(has_host: bool) -> None:
    with collecting(host_processes=has_host) as watched:
        watched.collector.want_processes(True)
        sample = watched.until(lambda s: s.processes == NO_GPU or isinstance(s.processes, tuple))
        listed = sample.processes if isinstance(sample.processes, tuple) else ()
        assert [(process.pid, process.uses) for process in listed] == [(7, ())][:has_host]


def test_a_host_that_hangs_leaves_the_gpus_current() -> None:
    clock, host = Clock(), FakeHost()
    gpus = FakeGpus(clock=clock)
    with collecting(gpus, host=host, clock=clock) as watched:
        watched.until(lambda s: power_w(s, 0) > 0 and "load_1min" in s.host.values)
        host.held = threading.Event()
        reads = gpus.reads[0]
        watched.until(lambda s: power_w(s, 0) > reads + 20)
        clock.now_ns += 4 * 10**9
        sample = watched.until(lambda s: s.host.problem is not None)
        assert sample.host.problem == Missing("the kernel has not answered for 4 s")
        assert gpu(sample, 0).problem is None
        host.held.set()
        watched.until(lambda s: s.host.problem is None)


def test_an_error_that_nobody_foresaw_is_a_problem_of_that_gpu_and_heals() -> None:
    gpus = FakeGpus(broken={1})
    with collecting(gpus) as watched:
        sample = watched.until(lambda s: power_w(s, 0) > 3)
        problem = gpu(sample, 1).problem
        assert problem is not None
        assert problem.reason == "this is a bug in gputui: RuntimeError: no such thing"
        gpus.broken.clear()
        watched.until(lambda s: power_w(s, 1) > 0 and gpu(s, 1).problem is None)


def test_process_lists_are_read_only_while_they_are_wanted() -> None:
    use = GpuUse(0, 41, "C", 2**30, 12.0)
    gpus = FakeGpus(uses_of={0: (use,), 1: Missing("no permission")})
    with collecting(gpus) as watched:
        sample = watched.until(lambda s: power_w(s, 0) > 3)
        assert sample.processes == NOT_ASKED
        assert gpus.process_calls == []
        watched.collector.want_processes(True)
        sample = watched.until(lambda s: not isinstance(s.processes, Missing))
        assert isinstance(sample.processes, tuple)
        assert [process.uses for process in sample.processes] == [(use,)]
        watched.collector.want_processes(False)
        assert watched.collector.latest().processes == NOT_ASKED
        calls = len(gpus.process_calls)
        reads = gpus.reads[0]
        watched.until(lambda s: power_w(s, 0) > reads + 5)
        # A call that had begun may still end.
        assert len(gpus.process_calls) <= calls + 2


def test_process_lists_that_no_gpu_gives_are_missing_for_the_drivers_reason() -> None:
    refused = Missing("no permission to ask the NVIDIA driver")
    with collecting(FakeGpus(uses_of={0: refused, 1: refused})) as watched:
        watched.collector.want_processes(True)
        watched.until(lambda s: s.processes == refused)


def test_process_lists_are_expensive_and_read_every_other_second_at_most() -> None:
    clock = Clock()
    gpus = FakeGpus((0,), clock=clock)
    with collecting(gpus, clock=clock) as watched:
        watched.collector.want_processes(True)
        watched.until(lambda s: s.processes == ())
        reads = gpus.reads[0]
        watched.until(lambda s: power_w(s, 0) > reads + 10)
        assert gpus.process_calls == [0]
        clock.now_ns += 2 * 10**9
        watched.until(lambda s: len(gpus.process_calls) == 2)


def test_whoever_draws_is_woken_once_in_a_round_however_many_gpus_there_are() -> None:
    gpus, host, rounds = FakeGpus(tuple(range(8))), FakeHost(), 20
    with collecting(gpus, host=host, interval_s=1000.0) as watched:
        watched.until(lambda s: all(power_w(s, n) for n in gpus.listed) and "load_1min" in s.host.values)
        before = watched.called
        for _ in range(rounds):
            wanted = {n: reads + 1 for n, reads in gpus.reads.items()}
            watched.collector.set_interval(1000.0)
            watched.until(partial(has_read, wanted, host.reads + 1))
        # On a busy machine a thread may be late, and then calls again without being notified.
        assert watched.called - before < 3 * rounds


def test_the_host_is_read_after_the_gpus_of_its_round_and_not_beside_them() -> None:
    gpus, gpu_reads = FakeGpus((0,), opening=threading.Event()), []

    class LastHost(FakeHost):
        def sample(self) -> DeviceSample:
            gpu_reads.append(gpus.reads.get(0, 0))
            return super().sample()

    with collecting(gpus, host=LastHost(), interval_s=1000.0) as watched:
        watched.until(lambda s: s.host.values.get("load_1min") == 1.0)
        assert gpus.opening is not None
        gpus.opening.set()
        watched.until(lambda s: s.host.values.get("load_1min") == 2.0)
    assert gpu_reads == [0, 1]


@pytest.mark.parametrize("what", ["open", "gpu", "host"])
def test_closing_does_not_wait_for_a_call_that_hangs(what: str) -> None:
    stuck = threading.Event()
    gpus, host = FakeGpus(), FakeHost()
    if what == "open":
        gpus.opening = stuck
    elif what == "gpu":
        gpus.held[1] = stuck
    else:
        host.held = stuck
    with collecting(gpus, host=host) as watched:
        if what == "gpu":
            watched.until(lambda s: power_w(s, 0) > 3)
        watched.collector.close()  # the call is held until this has returned
        stuck.set()
