"""The collectives of a trace: how often, how large, how fast, and how long no compute hides them."""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from gputui.analysis.operator_flops import TYPE_BYTES
from gputui.model.units import counted, format_bytes, format_rate, format_seconds
from gputui.services.traces.chrome_trace import Trace
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
    """Since the first event of the trace, as the end."""
    end_ns: int
    exposed_ns: int
    """How long no compute hides it, of the slices of the pass; 0 on a CPU."""
    size_bytes: int
    """As nccl-tests counts it; 0 if unknown."""
    bus_bytes: float
    """What crosses the slowest link of each rank at least; 0 if unknown."""


def collectives_of(trace: Trace, found: Partition) -> tuple[Collective, ...]:
    """In order of time."""
    collectives = []
    for event, exposed_ns in sorted(found.transfers, key=lambda one: one[0].start_ns):
        told = trace.messages.get(event.correlation, {})
        bare = event.name.removeprefix("void ").replace("(anonymous namespace)::", "")
        name = str(told.get("Collective name") or re.split(r"[<(]", bare)[0])
        size, bus = message_sizes(told)
        collectives.append(Collective(name, event.start_ns, event.end_ns, exposed_ns, size, bus))
    return tuple(collectives)


def message_sizes(told: Mapping[str, object]) -> tuple[int, float]:
    """Bytes of a collective and those on the bus, as nccl-tests counts them; 0 if unknown.

    The size is what all ranks hold together of a gather, else what one gives.
    Source: https://github.com/NVIDIA/nccl-tests/blob/master/doc/PERFORMANCE.md
    """
    name, ranks = str(told.get("Collective name")), told.get("Group size")
    elements = told.get("Out msg nelems" if "gather" in name else "In msg nelems")
    dtype = str(told.get("dtype"))
    if not isinstance(ranks, int) or not isinstance(elements, int) or ranks < 1:
        return 0, 0.0
    size, factor = elements * TYPE_BYTES.get(_TYPES.get(dtype, dtype), 0), 1.0
    if re.search("all_?reduce|gather|scatter|all_?to_?all", name):
        factor = (ranks - 1) / ranks * (2 if re.search("all_?reduce", name) else 1)
    return size, factor * size


def collective_lines(found: Sequence[Collective], steps: int, *, is_on_device: bool) -> Iterator[str]:
    """A line for each kind and size with the most time: `allreduce of 25.3 MiB: 2 a step, ...`."""
    alike: dict[tuple[str, int], list[Collective]] = defaultdict(list)
    for one in found:
        alike[one.name, one.size_bytes].append(one)
    kinds = sorted(alike.items(), key=lambda kind: -sum(one.end_ns - one.start_ns for one in kind[1]))
    each = "a step" if steps > 1 else "in all"
    for (name, size), ones in kinds[:_MOST_KINDS]:
        sums_ns = sum(one.end_ns - one.start_ns for one in ones), sum(one.exposed_ns for one in ones)
        took, exposed = (format_seconds(ns / steps * 1e-9) for ns in sums_ns)
        rate = max(one.bus_bytes / max(one.end_ns - one.start_ns, 1) for one in ones)
        of = f" of {format_bytes(size)}" if size else ""
        alone = f", {exposed} of it exposed" if is_on_device else ""
        bus = f", at best {format_rate(rate * 1e9, 'B')} on the bus" if rate else ""
        yield f"{name}{of}: {len(ones) / steps:.3g} {each}, {took}{alone}{bus}"
    if len(kinds) > _MOST_KINDS:
        yield f"{counted(len(kinds) - _MOST_KINDS, 'other kind')} of communication"
