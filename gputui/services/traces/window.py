"""The window of steps in a trace, and where its time went."""

from __future__ import annotations

import bisect
import re
from array import array
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import accumulate, pairwise

from gputui.errors import GputuiError
from gputui.model.units import counted, format_seconds
from gputui.services.traces.chrome_trace import KINDS, Trace
from gputui.services.traces.lines import MARK
from gputui.worker.profiling.profiled_pass import OUR_STEP, OUR_WINDOW
from gputui.worker.profiling.rows import LineTimes
from gputui.worker.profiling.step_breakdown import Partition, PartitionInParts, TraceEvent

PROFILER_STEP = "ProfilerStep#"
WHOLE = "the whole trace"
_EVENTS_AT_A_TIME = 200_000
_ON_DEVICE = tuple(KINDS.index(kind) for kind in ("kernel", "copy", "memset"))
_OP, _RANGE, _RUNTIME = KINDS.index("op"), KINDS.index("range"), KINDS.index("runtime")
_LEAST_OPERATORS = 0.1
"""Of the busiest thread's: a thread with fewer does no steps."""
_LEAST_LAG = 0.01
"""Of a step: a device that ends its work later than this after the host's step lags behind it."""


@dataclass(frozen=True, slots=True)
class Window:
    """A stretch of a trace, in nanoseconds since its first event."""

    start_ns: int
    end_ns: int
    steps_ns: tuple[tuple[int, int], ...]
    """Start and end of each step, in order; one that spans the window where none were found."""
    thread: int
    """Index of the host thread that does the steps."""
    found_by: str
    """`ProfilerStep`, the name of a range, `--window`, or `the whole trace`."""
    host_steps_ns: tuple[tuple[int, int], ...] = ()
    """The same steps on the host, where the device lags behind it; else empty."""

    @property
    def has_steps(self) -> bool:
        return self.found_by not in ("--window", WHOLE)

    @property
    def host_ns(self) -> tuple[int, int]:
        """When the host did these steps."""
        if not self.host_steps_ns:
            return self.start_ns, self.end_ns
        return self.host_steps_ns[0][0], self.host_steps_ns[-1][1]

    @property
    def whole_ns(self) -> tuple[int, int]:
        """From the first to the last of what host and device did for these steps."""
        return min(self.start_ns, self.host_ns[0]), max(self.end_ns, self.host_ns[1])


def window_of(trace: Trace, step_range: str = "", window_s: tuple[float, float] | None = None) -> Window:
    """The steps of a trace: ranges named `step_range`, else those that we or the profiler marked, else all of
    it.

    `step_range` matches the beginning of a range's name. `window_s`: seconds since the first event.
    Raises GputuiError if there is no such range, or nothing in that window.
    """
    if window_s is not None:
        start_ns, end_ns = (round(edge * 1e9) for edge in window_s)
        last_ns = max(trace.end_ns)
        if not 0 <= start_ns < end_ns or start_ns >= last_ns:
            raise GputuiError(
                f"--window {window_s[0]:g}:{window_s[1]:g}: holds nothing of this trace",
                f"seconds from its start, START:END, within 0:{last_ns / 1e9:.4g}",
            )
        end_ns = min(end_ns, last_ns)
        return Window(start_ns, end_ns, ((start_ns, end_ns),), _busiest_thread(trace), "--window")
    for prefix, found_by in ((step_range, step_range), (OUR_STEP, OUR_STEP), (PROFILER_STEP, "ProfilerStep")):
        marked = _ranges(trace, prefix) if prefix and (prefix == step_range or not step_range) else []
        if marked:
            thread = Counter(trace.thread[index] for index in marked).most_common(1)[0][0]
            steps = sorted(
                (trace.start_ns[index], trace.end_ns[index])
                for index in marked
                if trace.thread[index] == thread
            )
            around = [(trace.start_ns[i], trace.end_ns[i]) for i in _ranges(trace, OUR_WINDOW)]
            if found_by == OUR_STEP and len(around) == 1:
                return Window(*around[0], tuple(steps), thread, found_by)
            return Window(steps[0][0], max(end for _, end in steps), tuple(steps), thread, found_by)
        if prefix and prefix == step_range:
            names = Counter(trace.names[trace.name[i]] for i in range(len(trace)) if trace.kind[i] == _RANGE)
            known = ", ".join(name for name, _ in names.most_common(5)) or "it has no ranges at all"
            raise GputuiError(f"--step {step_range}: no range of that name in this trace", known)
    end_ns = max(trace.end_ns)
    return Window(0, end_ns, ((0, end_ns),), _busiest_thread(trace), WHOLE)


def on_device(trace: Trace, window: Window, device: int | None) -> Window:
    """The steps as the device did them, where it lags behind the host.

    Then a step lasts from the end of the work that the step before launched to the end of its work. The first
    of several is left out, since the end of the work before it is not known; a single one begins where
    earlier work ends. Without a lag, and where the trace does not tell what a step launched, the host's steps
    count.
    """
    if device is None or not window.has_steps:
        return window
    steps = window.steps_ns
    step_of = _steps_by_launch(trace, steps)
    ends_ns, begin_ns = [0] * len(steps), trace.end_ns[-1]
    earlier: list[int] = []
    for index in range(len(trace)):
        if trace.kind[index] not in _ON_DEVICE or trace.device[index] != device:
            continue
        step = step_of.get(trace.correlation[index])
        if step is None:
            earlier.append(index)
            continue
        ends_ns[step] = max(ends_ns[step], trace.end_ns[index])
        if not step:
            begin_ns = min(begin_ns, trace.start_ns[index])
    before = (trace.end_ns[i] for i in earlier if trace.start_ns[i] < begin_ns)
    before_ns = max(window.start_ns, min(max(before, default=0), begin_ns))
    lag_ns = max(before_ns - window.start_ns, ends_ns[-1] - window.end_ns)
    if not all(ends_ns) or lag_ns <= _LEAST_LAG * (window.end_ns - window.start_ns) / len(steps):
        last_ns = max(window.end_ns, ends_ns[-1])
        return replace(window, end_ns=last_ns, steps_ns=(*steps[:-1], (steps[-1][0], last_ns)))
    counted = steps[1:] or steps
    edges = [*accumulate(([before_ns, *ends_ns] if counted is steps else ends_ns), max)]
    return replace(
        window, start_ns=edges[0], end_ns=edges[-1], steps_ns=tuple(pairwise(edges)), host_steps_ns=counted
    )


def _steps_by_launch(trace: Trace, steps: Sequence[tuple[int, int]]) -> dict[int, int]:
    """The step in which each call of the driver was made, by its correlation."""
    starts_ns = [start_ns for start_ns, _ in steps]
    return {
        trace.correlation[i]: bisect.bisect_right(starts_ns, trace.start_ns[i]) - 1
        for i in range(len(trace))
        if trace.kind[i] == _RUNTIME and starts_ns[0] <= trace.start_ns[i] < steps[-1][1]
    }


def _ranges(trace: Trace, prefix: str) -> list[int]:
    names = {number for number, name in enumerate(trace.names) if name.startswith(prefix)}
    return [i for i in range(len(trace)) if trace.kind[i] == _RANGE and trace.name[i] in names]


def _busiest_thread(trace: Trace) -> int:
    """The thread with the most operators; beside a device, of those in which autograd does not run."""
    counts = Counter(trace.thread[i] for i in range(len(trace)) if trace.kind[i] == _OP)
    if not counts:
        return 1
    (busiest, most), *_ = counts.most_common(1)
    engine = {number for number, name in enumerate(trace.names) if name.startswith("autograd::engine")}
    of_autograd = {trace.thread[i] for i in range(len(trace)) if trace.name[i] in engine}
    if device_of(trace) is not None:
        for thread, count in counts.most_common():
            if thread not in of_autograd and count >= _LEAST_OPERATORS * most:
                return thread
    return busiest


def device_of(trace: Trace) -> int | None:
    """The device with the most work; None if the trace has none of any."""
    busy_ns: Counter[int] = Counter()
    for index in range(len(trace)):
        if trace.kind[index] in _ON_DEVICE:
            busy_ns[trace.device[index]] += trace.end_ns[index] - trace.start_ns[index]
    return busy_ns.most_common(1)[0][0] if busy_ns else None


def device_name(trace: Trace, device: int | None) -> str:
    """The name of a device in the trace; `GPU 3` if the trace does not say, empty for None."""
    if device is None:
        return ""
    only = next(iter(trace.devices.values())) if len(trace.devices) == 1 else ""
    return trace.devices.get(device, only) or f"GPU {device}"


def partition_of(trace: Trace, window: Window, device: int | None) -> Partition:
    """Where the window went, in parts of some 200,000 events, so that memory does not grow with the trace."""
    lines = LineTimes(trace.frames.pieces(window.thread, *window.whole_ns))
    parts = PartitionInParts(window.thread, (window.start_ns, window.end_ns), window.host_ns, lines)
    for start_ns, end_ns, events, following in _parts(trace, window, device):
        parts.add(events, start_ns, end_ns, following)
    return parts.result()


def _parts(
    trace: Trace, window: Window, device: int | None
) -> Iterator[tuple[int, int, list[TraceEvent], TraceEvent | None]]:
    """Start, end, events and the next work of the device, for each part."""
    order = array("q", sorted(_wanted(trace, window, device), key=trace.start_ns.__getitem__))
    place, carried = 0, array("q")
    start_ns, until_ns = window.whole_ns
    while True:
        last = min(place + _EVENTS_AT_A_TIME, len(order))
        end_ns = until_ns if last == len(order) else trace.start_ns[order[last]]
        while last < len(order) and trace.start_ns[order[last]] <= end_ns:
            last += 1
        if last == len(order):
            end_ns = until_ns
        taken = array("q", [*carried, *order[place:last]])
        following = next((i for i in order[last:] if trace.kind[i] in _ON_DEVICE), None)
        if end_ns > start_ns:
            yield (
                start_ns,
                end_ns,
                [trace.event(i) for i in taken],
                None if following is None else trace.event(following),
            )
        if last == len(order):
            return
        carried = array("q", [i for i in taken if trace.end_ns[i] > end_ns])
        place, start_ns = last, end_ns


def _wanted(trace: Trace, window: Window, device: int | None) -> Iterator[int]:
    """The events of these steps, without the marks of steps and the work of other devices."""
    start_ns, end_ns = window.whole_ns
    marks = {
        number
        for number, name in enumerate(trace.names)
        if name.startswith(PROFILER_STEP) or name in (OUR_STEP, OUR_WINDOW, MARK)
    }
    for index in range(len(trace)):
        kind = trace.kind[index]
        if kind in _ON_DEVICE:
            if trace.device[index] != device:
                continue
        elif kind == _RANGE and trace.name[index] in marks:
            continue
        if trace.end_ns[index] > start_ns and trace.start_ns[index] < end_ns:
            yield index


def described(window: Window) -> str:
    """`6 steps, 155 ms each`, `1 step, 47.2 ms`, `12.9 ms, without marks of steps`."""
    length_ns = window.end_ns - window.start_ns
    if not window.has_steps:
        return f"{format_seconds(length_ns * 1e-9)}, steps not marked"
    each = " each" if len(window.steps_ns) > 1 else ""
    step_s = length_ns / len(window.steps_ns) * 1e-9
    return f"{counted(len(window.steps_ns), 'step')}, {format_seconds(step_s)}{each}"


def window_from(text: str) -> tuple[float, float]:
    """`0.5:2` as seconds. Raises GputuiError for anything else."""
    found = re.fullmatch(r"\s*([0-9.]+)s?\s*:\s*([0-9.]+)s?\s*", text)
    try:
        if found:
            return float(found[1]), float(found[2])
    except ValueError:
        pass
    raise GputuiError(
        f"--window {text}: must be START:END", "seconds from the start of the trace, such as 0.5:2"
    )
