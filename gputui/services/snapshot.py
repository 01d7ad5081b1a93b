"""A single reading of everything on this machine, within half a second. In: sources. Out: a frozen sample."""

from __future__ import annotations

import getpass
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from gputui.model.telemetry import DeviceSample, LiveSample
from gputui.recording.collector import FIRST_READING, OPENING, Collector, live_collector

_NO_ROUNDS_S = 1e6
"""An interval so long that only one round is read."""
_ROUND_S = 1.0
"""Less than the age from which a reading is reported as old."""
_APART_S = 0.2
"""Between the two readings that rates need; NVIDIA asks for at least 100 ms."""
_OPENS_WITHIN_S = 20.0
"""Without persistence mode the driver wakes its GPUs one by one, a second each."""
_READS_WITHIN_S = 5.0


def take_snapshot(*, processes: bool) -> LiveSample:
    """Everything, read twice within half a second: rates need two readings.

    What takes too long is left out with the reason: 20 s to open a driver, 5 s to read a device.
    """
    # While one device hangs the others are read repeatedly: none should look as old as the wait.
    with readings(processes=processes, repeats_s=_ROUND_S) as read:
        return read()


@contextmanager
def readings(*, processes: bool, repeats_s: float = _NO_ROUNDS_S) -> Iterator[Callable[[], LiveSample]]:
    """Open everything, and read it anew with each call; rates are those since the last one.

    A call waits up to 5 s for a device that hangs, and meanwhile repeats the others every `repeats_s`.
    """
    said = threading.Event()
    collector = live_collector(_NO_ROUNDS_S, said.set)
    collector.want_processes(processes)
    collector.start()
    try:
        _wait(collector, said, _OPENS_WITHIN_S, _is_read)

        def read() -> LiveSample:
            time.sleep(_APART_S)
            begun = {_key(device): device.t_ns for device in _devices(collector.latest())}
            collector.set_interval(repeats_s)

            def is_read_again(sample: LiveSample) -> bool:
                return all(
                    device.problem is not None or device.t_ns > begun.get(_key(device), 0)
                    for device in _devices(sample)
                )

            return _wait(collector, said, _READS_WITHIN_S, is_read_again)

        yield read
    finally:
        collector.close()


def _wait(
    collector: Collector, said: threading.Event, longest_s: float, is_enough: Callable[[LiveSample], bool]
) -> LiveSample:
    deadline_s = time.monotonic() + longest_s
    while not is_enough(sample := collector.latest()):
        left_s = deadline_s - time.monotonic()
        if left_s <= 0:
            break
        said.clear()
        # A device whose call hangs sends nothing; that it hangs shows after a while.
        said.wait(min(left_s, 1.0))
    return sample


def _is_read(sample: LiveSample) -> bool:
    is_opening = any(why.reason.startswith(OPENING.reason) for why in sample.absent.values())
    return not is_opening and not any(device.problem == FIRST_READING for device in _devices(sample))


def _devices(sample: LiveSample) -> tuple[DeviceSample, ...]:
    return (sample.host, *sample.gpus)


def _key(device: DeviceSample) -> tuple[str, int]:
    return device.source, device.device


def current_user() -> str:
    """Empty for a user id without a name, as in containers."""
    try:
        return getpass.getuser()
    except (KeyError, OSError):
        return ""
