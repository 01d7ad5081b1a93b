"""The collectives of a trace: how often, how large, how fast, and how long no compute hides them."""

from __future__ import annotations

import bisect
import re
from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import accumulate

from gputui.analysis.operator_flops import TYPE_BYTES
from gputui.model.absent import Missing
from gputui.model.units import counted, format_bytes, format_rate, format_seconds
from gputui.services.traces.chrome_trace import KINDS, Message, Trace
from gputui.services.traces.window import Window
from gputui.worker.profiling.op_categories import category_of, category_of_kernel
from gputui.worker.profiling.step_breakdown import TRANSFERS

_KERNEL, _RANGE = KINDS.index("kernel"), KINDS.index("range")
_MOST_KINDS = 4
_OF_A_CPU = Missing("threads of a CPU communicate beside the one that computes")
_TYPES = {"Float": "float", "Long": "int64", "Int": "int", "Byte": "unsigned char", "Double": "double"}
"""What messages call types that have another name among the inputs of operators."""


@dataclass(frozen=True, slots=True)
class Collective:
    """One piece of communication; on a CPU a range in which torch.distributed sends and receives."""

    name: str
    """Of its kernel or range."""
    start_ns: int
    """Since the first event of the trace."""
    end_ns: int
    exposed_ns: int | Missing
    """How long it is alone: no compute runs, and no collective that began before it."""
    message: Message | None

    @property
    def operation(self) -> str:
        """`allreduce`, or the kernel's name without its types."""
        if self.message is not None:
            return self.message.operation
        name = self.name.removeprefix("void ").replace("(anonymous namespace)::", "")
        return re.split(r"[<(]", name)[0]


def collectives_of(trace: Trace, window: Window, device: int | None) -> tuple[Collective, ...]:
    """Those that begin within the window, in order of time; of a CPU those of any thread."""
    kind, on = (_RANGE, -1) if device is None else (_KERNEL, device)
    names = {number for number, name in enumerate(trace.names) if _is_collective(name, device)}
    mine = [i for i in range(len(trace)) if trace.kind[i] == kind and trace.device[i] == on]
    begun = sorted(
        (trace.start_ns[i], i)
        for i in mine
        if trace.name[i] in names and window.start_ns <= trace.start_ns[i] < window.end_ns
    )
    if not begun:
        return ()
    compute = [(trace.start_ns[i], trace.end_ns[i]) for i in mine if trace.name[i] not in names]
    busy, reached_ns, found = _Union(compute), 0, []
    for start_ns, i in begun:
        end_ns = trace.end_ns[i]
        alone_from, alone_to = max(start_ns, reached_ns), min(end_ns, window.end_ns)
        reached_ns = max(reached_ns, end_ns)
        alone_ns = max(0, alone_to - alone_from - busy.within_ns(alone_from, alone_to))
        exposed_ns = _OF_A_CPU if device is None else alone_ns
        name, message = trace.names[trace.name[i]], trace.messages.get(i)
        found.append(Collective(name, start_ns, end_ns, exposed_ns, message))
    return tuple(found)


def _is_collective(name: str, device: int | None) -> bool:
    if device is None:
        return name.startswith(TRANSFERS)
    return "communication" in (category_of(name), category_of_kernel(name))


class _Union:
    """The union of intervals."""

    def __init__(self, intervals: Sequence[tuple[int, int]]) -> None:
        self._starts_ns: list[int] = []
        self._ends_ns: list[int] = []
        for start_ns, end_ns in sorted(intervals):
            if self._ends_ns and start_ns <= self._ends_ns[-1]:
                self._ends_ns[-1] = max(self._ends_ns[-1], end_ns)
            else:
                self._starts_ns.append(start_ns)
                self._ends_ns.append(end_ns)
        lengths = (end - start for start, end in zip(self._starts_ns, self._ends_ns, strict=True))
        self._before_ns = [0, *accumulate(lengths)]

    def within_ns(self, start_ns: int, end_ns: int) -> int:
        """How much of it lies between two times."""
        return self._until_ns(end_ns) - self._until_ns(start_ns) if end_ns > start_ns else 0

    def _until_ns(self, t_ns: int) -> int:
        place = bisect.bisect_right(self._starts_ns, t_ns)
        return self._before_ns[place] - (max(0, self._ends_ns[place - 1] - t_ns) if place else 0)


def message_bytes(message: Message | None) -> int:
    """The size by which nccl-tests counts a collective: what all ranks hold together of a gather, else what
    one gives; 0 if unknown."""
    if message is None:
        return 0
    elements = message.got if "gather" in message.operation else message.given
    return elements * TYPE_BYTES.get(_TYPES.get(message.dtype, message.dtype), 0)


def bus_bytes(message: Message | None) -> float:
    """What crosses the slowest link of each rank at least, by the formulas of nccl-tests; 0 if unknown.

    Source: https://github.com/NVIDIA/nccl-tests/blob/master/doc/PERFORMANCE.md
    """
    if message is None or not message.ranks:
        return 0.0
    passes_on = (message.ranks - 1) / message.ranks
    factor = 1.0
    if "allreduce" in message.operation:
        factor = 2 * passes_on
    elif any(word in message.operation for word in ("gather", "scatter", "all_to_all", "alltoall")):
        factor = passes_on
    return factor * message_bytes(message)


def collective_lines(found: Sequence[Collective], steps: int) -> Iterator[str]:
    """A line for each kind and size with the most time: `allreduce of 26.6 MB: 2 a step, ...`."""
    alike: dict[tuple[str, int], list[Collective]] = defaultdict(list)
    for one in found:
        alike[one.operation, message_bytes(one.message)].append(one)
    kinds = sorted(alike.items(), key=lambda kind: -sum(one.end_ns - one.start_ns for one in kind[1]))
    each = "a step" if steps > 1 else "in all"
    for (operation, size), ones in kinds[:_MOST_KINDS]:
        took = format_seconds(sum(o.end_ns - o.start_ns for o in ones) / steps * 1e-9)
        alone_ns = [o.exposed_ns for o in ones if not isinstance(o.exposed_ns, Missing)]
        exposed = f", {format_seconds(sum(alone_ns) / steps * 1e-9)} of it exposed" if alone_ns else ""
        rate = max(bus_bytes(o.message) / (o.end_ns - o.start_ns) for o in ones if o.end_ns > o.start_ns)
        of = f" of {format_bytes(size)}" if size else ""
        bus = f", at best {format_rate(rate * 1e9, 'B')} on the bus" if rate else ""
        yield f"{operation}{of}: {len(ones) / steps:.3g} {each}, {took}{exposed}{bus}"
    if len(kinds) > _MOST_KINDS:
        yield f"{counted(len(kinds) - _MOST_KINDS, 'other kind')} of communication"
