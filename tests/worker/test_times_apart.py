"""Host and device time of a step, on a device that does its work later than it is asked to."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

import pytest

from gputui.worker import timing
from gputui.worker.timing import NO_TIME_APART, WAITS, NotApart, times_apart

LAUNCH_NS = 3000
QUEUE = 1024
PIECE_NS = 300_000
SECOND_NS = 1e9


@dataclass
class Device:
    """A queue of kernels beside a host; time passes only on its clock."""

    now_ns: int = 0
    """Of the host."""
    ends_ns: list[int] = field(default_factory=list)
    """When each kernel that was launched ends, in order."""

    def launch(self, kernel_ns: int) -> None:
        """Takes the host LAUNCH_NS, and longer while QUEUE kernels have not ended."""
        self.now_ns += LAUNCH_NS
        if len(self.ends_ns) >= QUEUE:
            self.now_ns = max(self.now_ns, self.ends_ns[-QUEUE])
        self.ends_ns.append(max(self.now_ns, self.free_ns) + kernel_ns)

    @property
    def free_ns(self) -> int:
        return self.ends_ns[-1] if self.ends_ns else 0

    def synchronize(self) -> None:
        self.now_ns = max(self.now_ns, self.free_ns)

    def event(self) -> Event:
        return Event(self)

    def occupy(self, pieces: int) -> None:
        for _ in range(pieces):
            self.launch(PIECE_NS)

    def step(self, kernels: int, kernel_ns: int) -> Callable[[], None]:
        """One that only launches."""

        def run() -> None:
            for _ in range(kernels):
                self.launch(kernel_ns)

        return run

    def apart(
        self, run: Callable[[], object], steps: int = 1, limit_ns: float = SECOND_NS
    ) -> tuple[int, int]:
        return times_apart(
            self.event, self.synchronize, self.occupy, run, steps, limit_ns, clock=lambda: self.now_ns
        )


@dataclass
class Event:
    """Happens when the device has done all that was launched before."""

    device: Device
    at_ns: int = -1

    def record(self) -> None:
        self.at_ns = max(self.device.now_ns, self.device.free_ns)

    def query(self) -> bool:
        return self.at_ns <= self.device.now_ns

    def elapsed_time(self, other: Event) -> float:
        """In milliseconds, and only of events that happened."""
        assert self.query()
        assert other.query()
        return (other.at_ns - self.at_ns) / 1e6


@pytest.fixture
def device() -> Device:
    return Device()


@pytest.mark.parametrize(
    ("kernels", "kernel_ns", "steps"),
    [(100, 1000, 3), (100, 3000, 1), (100, 50_000, 1), (1000, 1000, 1), (1, 900, 300)],
)
def test_each_time_is_that_of_its_own_side(device: Device, kernels: int, kernel_ns: int, steps: int) -> None:
    found = device.apart(device.step(kernels, kernel_ns), steps)
    assert found == (kernels * LAUNCH_NS, kernels * kernel_ns)


def test_the_stopwatch_alone_takes_the_host_for_the_device(
    device: Device, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(timing, "timing_event", lambda kind: Event(device))
    monkeypatch.setattr(timing, "synchronize", lambda kind: device.synchronize())
    step = device.step(100, 1000)
    timed = timing.gpu_stopwatch("fake", step, 50)
    assert timed.block_ns / 50 == pytest.approx(100 * LAUNCH_NS, rel=0.01)
    assert device.apart(step) == (100 * LAUNCH_NS, 100_000)


def test_a_host_that_pauses_once_does_not_count(device: Device) -> None:
    pauses = [5_000_000]
    step = device.step(10, 1000)

    def run() -> None:
        device.now_ns += pauses.pop() if pauses else 0
        step()

    assert device.apart(run) == (10 * LAUNCH_NS, 10_000)


def test_a_step_that_waits_for_its_result_has_no_such_times(device: Device) -> None:
    step = device.step(10, 1000)

    def run() -> None:
        step()
        device.synchronize()

    with pytest.raises(NotApart, match=WAITS):
        device.apart(run)


@pytest.mark.parametrize("kernel_ns", [1000, 10_000])
def test_a_step_of_more_kernels_than_the_queue_holds_has_no_such_times(
    device: Device, kernel_ns: int
) -> None:
    with pytest.raises(NotApart, match=WAITS):
        device.apart(device.step(2 * QUEUE, kernel_ns))


def test_nothing_is_measured_beyond_its_time(device: Device) -> None:
    limit_ns = 1_000_000
    with pytest.raises(NotApart, match=NO_TIME_APART):
        device.apart(device.step(100, 500_000), limit_ns=limit_ns)
    assert device.now_ns < limit_ns + 100 * 500_000 + 2 * PIECE_NS


def test_where_time_is_short_one_measurement_will_do(device: Device) -> None:
    found = device.apart(device.step(50, 20_000), limit_ns=500_000)
    assert found == (50 * LAUNCH_NS, 50 * 20_000)
    assert device.now_ns < 2_000_000
