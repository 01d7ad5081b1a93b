"""The collectives of a trace: how often, how large, how fast, and how long no compute hides them."""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from gputui.analysis.operator_flops import TYPE_BYTES
from gputui.model.units import counted, format_bytes, format_rate, format_seconds
from gputui.services.traces.chrome_trace import Message, Trace
from gputui.worker.profiling.step_breakdown import Partition

_MOST_KINDS = 4
_TYPES = {"Float": "float", "Long": "int64", "Int": "int", "Byte": "unsigned char", "Double": "double"}
"""What messages call types that have another name among the inputs of operators."""


@dataclass(frozen=True, slots=True)
class Collective:
    """One piece of communication; on a CPU a range in which torch.distributed sends and receives."""

    name: str
    """`allreduce`, or that of the kernel or range."""
    start_ns: int
    """Since the first event of the trace."""
    length_ns: int
    exposed_ns: int
    """How long no compute hides it: as slices of the pass have it."""
    message: Message | None


def collectives_of(trace: Trace, found: Partition) -> tuple[Collective, ...]:
    """In order of time."""
    collectives = []
    for event, exposed_ns in sorted(found.transfers, key=lambda one: one[0].start_ns):
        message = trace.messages.get(event.correlation)
        bare = event.name.removeprefix("void ").replace("(anonymous namespace)::", "")
        name = re.split(r"[<(]", bare)[0] if message is None else message.operation
        length_ns = event.end_ns - event.start_ns
        collectives.append(Collective(name, event.start_ns, length_ns, exposed_ns, message))
    return tuple(collectives)


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
        alike[one.name, message_bytes(one.message)].append(one)
    kinds = sorted(alike.items(), key=lambda kind: -sum(one.length_ns for one in kind[1]))
    each = "a step" if steps > 1 else "in all"
    for (name, size), ones in kinds[:_MOST_KINDS]:
        sums_ns = sum(one.length_ns for one in ones), sum(one.exposed_ns for one in ones)
        took, exposed = (format_seconds(ns / steps * 1e-9) for ns in sums_ns)
        rate = max(bus_bytes(one.message) / max(one.length_ns, 1) for one in ones)
        of = f" of {format_bytes(size)}" if size else ""
        bus = f", at best {format_rate(rate * 1e9, 'B')} on the bus" if rate else ""
        yield f"{name}{of}: {len(ones) / steps:.3g} {each}, {took}, {exposed} of it exposed{bus}"
    if len(kinds) > _MOST_KINDS:
        yield f"{counted(len(kinds) - _MOST_KINDS, 'other kind')} of communication"
