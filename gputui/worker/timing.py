"""Timing of one block of steps, and when enough blocks are known.

Every figure of gputui is made of these times, and nothing that could wait runs between two stamps.
"""

from __future__ import annotations

import math
import statistics
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from itertools import combinations
from pathlib import Path
from typing import Any  # Any: torch's events

from .accelerator import synchronize, timing_event

_TASKS = Path("/proc/self/task")


def waited_ns() -> int | None:
    """Time that all threads of this process were runnable but not running, since they started; None if
    unknown.

    It only rises when others use the same CPUs. Takes about 50 µs.
    """
    threads = times_of_threads(_TASKS).values()
    return sum(waited for _, waited in threads) if threads else None


def times_of_threads(tasks: Path) -> dict[str, tuple[int, int]]:
    """How long each thread of a process ran, and waited on a run queue, in ns; empty if unknown.

    `tasks` is its directory in /proc. The first two numbers of `schedstat` (Linux, Documentation/
    scheduler/sched-stats).
    """
    found = {}
    with suppress(OSError):  # the process has ended
        for task in tasks.iterdir():
            with suppress(OSError, ValueError):
                ran, waited = (task / "schedstat").read_text().split()[:2]
                found[task.name] = int(ran), int(waited)
    return found


NEGLIGIBLE = 0.005
"""A relative change of blocks below this is none."""


@dataclass(frozen=True)
class BlockTime:
    """How long one block took."""

    start_ns: int
    """CLOCK_MONOTONIC."""
    wall_ns: int
    device_ns: int | None
    cpu_ns: int
    """CPU time of this process, all threads."""
    waited_ns: int | None = None
    """Time its threads waited for a CPU, if known where the steps ran."""

    @property
    def block_ns(self) -> int:
        """Device time where there is one, else wall time."""
        return self.wall_ns if self.device_ns is None else self.device_ns


Stopwatch = Callable[[Callable[[], object], int], BlockTime]
"""Times so many calls of a function; a GPU is idle before the first and after the last."""


def cpu_stopwatch(run: Callable[[], object], steps: int) -> BlockTime:
    """Wall and process-CPU time around a bare loop."""
    repeat, waited_before_ns = range(steps), waited_ns()
    start_ns = time.monotonic_ns()
    cpu_start_ns = time.process_time_ns()
    clock_start_ns = time.perf_counter_ns()
    for _ in repeat:
        run()
    wall_ns = time.perf_counter_ns() - clock_start_ns
    cpu_ns = time.process_time_ns() - cpu_start_ns
    return BlockTime(start_ns, wall_ns, None, cpu_ns, _waited_since(waited_before_ns))


def gpu_stopwatch(device: str, run: Callable[[], object], steps: int) -> BlockTime:
    """Device time between two events, and wall time to the end of the last kernel.

    Waits once per block, at its end.
    """
    first, last = timing_event(device), timing_event(device)
    waited_before_ns = waited_ns()
    synchronize(device)
    start_ns = time.monotonic_ns()
    cpu_start_ns = time.process_time_ns()
    clock_start_ns = time.perf_counter_ns()
    first.record()
    for _ in range(steps):
        run()
    last.record()
    synchronize(device)
    wall_ns = time.perf_counter_ns() - clock_start_ns
    cpu_ns = time.process_time_ns() - cpu_start_ns
    device_ns = round(first.elapsed_time(last) * 1e6)
    return BlockTime(start_ns, wall_ns, device_ns, cpu_ns, _waited_since(waited_before_ns))


def _waited_since(before_ns: int | None) -> int | None:
    """How long the threads of this process waited since then; one that ends takes its time along."""
    after_ns = waited_ns()
    return None if before_ns is None or after_ns is None else max(after_ns - before_ns, 0)


def stopwatch_for(device: str) -> Stopwatch:
    """The stopwatch of a kind of device."""
    return cpu_stopwatch if device == "cpu" else partial(gpu_stopwatch, device)


class NotApart(Exception):
    """Why host and device time of a step are not known."""


TimesApart = Callable[[Callable[[], object], int, float], tuple[int, int]]
"""Calls a function so often in a row, some times over, within about so many ns. Returns what a call takes of
the host to enqueue it, and of the device to do it once it is enqueued, in ns. Raises NotApart."""
QUEUED_S = 0.001
"""Steps of this length are queued at once: long beside two events and, unless one step is longer, fewer
kernels than a queue holds: about 1000 on CUDA, where a launch takes the host some 3 us."""
_WANTED_TIMES = 3
_PIECE_NS = 300_000
_LEAST_SIDE, _MOST_SIDE = 256, 4096
"""Of the matrices whose product occupies a device for so long, or almost."""
WAITS = "a step waits for the device, or launches more than its queue holds"
NO_TIME_APART = "a step takes too long for it"


def times_apart(
    event: Callable[[], Any],
    synchronize: Callable[[], object],
    occupy: Callable[[int], object],
    run: Callable[[], object],
    steps: int,
    limit_ns: float,
    *,
    clock: Callable[[], int] = time.perf_counter_ns,
) -> tuple[int, int]:
    """What a step takes of host and device as TimesApart says, on a device with these events.

    `occupy` enqueues so many pieces of other work. Behind enough of them, all steps are queued before the
    first begins. Where they were not, the try does not count, and the next has more pieces. Raises NotApart.
    """
    found, pieces, needed_ns, refused = list[tuple[int, int]](), 1, math.inf, 0
    end_ns = clock() + limit_ns
    while len(found) < _WANTED_TIMES and clock() < end_ns:
        first, free, last = event(), event(), event()
        synchronize()
        first.record()
        occupy(pieces)
        free.record()
        begun_ns = clock()
        for _ in range(steps):
            run()
        host_ns = clock() - begun_ns
        is_queued = not free.query()
        last.record()
        synchronize()
        occupied_ns = first.elapsed_time(free) * 1e6
        if is_queued:
            found.append((host_ns // steps, round(free.elapsed_time(last) * 1e6 / steps)))
        else:
            refused += occupied_ns >= needed_ns
            needed_ns = 2.0 * host_ns
            pieces = max(pieces + 1, math.ceil(pieces * needed_ns / max(occupied_ns, 1.0)))
        if refused == 2:  # enqueuing took longer each time that more work lay before it
            raise NotApart(WAITS)
    if not found:
        raise NotApart(NO_TIME_APART)
    host, device = (statistics.median_low(ns) for ns in zip(*found, strict=True))
    return host, device


def device_times_apart(
    device: str, run: Callable[[], object], steps: int, limit_ns: float
) -> tuple[int, int]:
    """`times_apart` on an accelerator, behind products of matrices, which take up to 128 MiB meanwhile."""
    import torch

    event, wait = partial(timing_event, device), partial(synchronize, device)
    side, piece_ns = _LEAST_SIDE // 2, 0.0

    def occupy(pieces: int) -> None:
        for _ in range(pieces):
            torch.mm(factor, factor, out=product)

    while piece_ns < _PIECE_NS and side < _MOST_SIDE:
        side *= 2
        try:
            factor = torch.ones(side, side, device=device)
            product = factor @ factor  # the first of a size loads its kernel
        except RuntimeError as error:
            raise NotApart("no memory was left for it") from error
        first, last = event(), event()
        first.record()
        occupy(1)
        last.record()
        wait()
        piece_ns = first.elapsed_time(last) * 1e6
    return times_apart(event, wait, occupy, run, steps, limit_ns)


def steps_for(block_s: float, step_ns: float) -> int:
    """Steps that fill a block of at least `block_s` seconds."""
    return max(1, math.ceil(block_s * 1e9 / max(step_ns, 1.0)))


def has_trend(block_ns: Sequence[float]) -> bool:
    """Whether blocks became steadily slower or faster, beyond their scatter and by more than NEGLIGIBLE.

    Mann-Kendall test, two-sided at 5 %, by normal approximation with continuity correction; fewer than five
    blocks never show a trend. Source: Kendall 1975, Rank Correlation Methods, chapter 4.
    """
    n = len(block_ns)
    rises = sum((later > earlier) - (later < earlier) for earlier, later in combinations(block_ns, 2))
    beyond_scatter = abs(rises) - 1 > 1.96 * math.sqrt(n * (n - 1) * (2 * n + 5) / 18)
    return beyond_scatter and abs(block_ns[-1] - block_ns[0]) > NEGLIGIBLE * block_ns[0]


def still_falls(block_ns: Sequence[float]) -> bool:
    """Whether the last block is the fastest so far by more than NEGLIGIBLE: a record, which one of n
    blocks without a trend is by chance in one of n cases. True for fewer than two."""
    return len(block_ns) < 2 or block_ns[-1] < min(block_ns[:-1]) * (1 - NEGLIGIBLE)


def median_half_width(block_ns: Sequence[int]) -> float:
    """Half the 95 % order-statistic interval of the median, relative to the median.

    The narrowest pair of blocks, counted equally far from both ends, that holds the median with at
    least 95 %: exact binomial tails. Infinite below 6 blocks, where no such pair exists. Source: Hoefler
    & Belli 2015 (doi 10.1145/2807591.2807644), section 3.1.3, there by normal approximation.
    """
    n = len(block_ns)
    outside, tail = 0, 1  # of 2**n: the outcomes beyond the pair on one side, with one more block left out
    while tail <= 0.025 * 2**n:
        outside += 1
        tail += math.comb(n, outside)
    if outside == 0:
        return math.inf
    ordered = sorted(block_ns)
    return (ordered[n - outside] - ordered[outside - 1]) / 2 / statistics.median(ordered)
