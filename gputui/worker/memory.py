"""Where the memory of one step is: every allocation of torch on the device, and who it belongs to.

The allocators of torch tell the profiler of each allocation and each release, on a CPU as on a GPU, with the
exact number of bytes. Memory that torch does not allocate (libraries' workspaces, the interpreter, the
context of a GPU) is not in it.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import Any  # torch's own types

PhaseOf = Callable[[str], AbstractContextManager[object]]
"""Marks a part of a step as `forward`, `backward` or `optimizer`."""
PARTS = ("weights", "gradients", "optimizer", "activations", "inputs", "other")
_MARK = "gputui::"


class NotTold(Exception):
    """This torch does not tell of its allocations."""


@dataclass(frozen=True)
class Event:
    """One allocation or release."""

    t_ns: int
    address: int
    size_bytes: int
    """Negative for a release."""


@dataclass(frozen=True)
class Phase:
    """A marked part of a step."""

    name: str
    start_ns: int
    end_ns: int


@dataclass
class _Lifetime:
    address: int
    size_bytes: int
    start_ns: float
    end_ns: float = float("inf")


def no_phases(name: str) -> AbstractContextManager[object]:
    """For a step that is only timed."""
    return contextlib.nullcontext()


def storage_bytes(tensors: Iterable[Any]) -> int:
    """Memory behind tensors, each storage once."""
    storages = {t.untyped_storage().data_ptr(): t.untyped_storage().nbytes() for t in tensors}
    return sum(storages.values())


def peak_of_a_step(
    device: str,
    step: Callable[[PhaseOf], object],
    *,
    weights: Sequence[Any],
    optimizer_state: Sequence[Any],
    inputs: Sequence[Any],
) -> dict[str, int]:
    """Bytes of each of PARTS at the instant of a step at which most is allocated; they sum to the peak.

    `step` marks its phases; nothing of the step before it may be left, so release gradients first. On CUDA
    the peak is that of the caching allocator. Raises NotTold.
    """
    held = {
        "weights": storage_bytes(weights),
        "optimizer": storage_bytes(optimizer_state),
        "inputs": storage_bytes(inputs),
    }
    peak_bytes = None
    if device == "cuda":
        import torch

        torch.cuda.synchronize()
        torch.cuda.reset_peak_memory_stats()
    events, phases = _observed(device, step)
    found = split_at_peak(events, phases)
    if device == "cuda":
        torch.cuda.synchronize()
        peak_bytes = int(torch.cuda.max_memory_allocated())
    parts = {name: held.get(name, 0) + found.get(name, 0) for name in PARTS}
    if peak_bytes is not None:  # rounded up by the allocator, and what else this process has there
        parts["other"] += max(peak_bytes - sum(parts.values()), 0)
    return parts


def highest_allocated(device: str, work: Callable[[], object]) -> int:
    """Most bytes that torch holds on the device at once, of all that is allocated during `work`.

    Raises NotTold; what `work` raises goes through.
    """
    if device == "cuda":
        import torch

        torch.cuda.reset_peak_memory_stats()
        before_bytes = int(torch.cuda.memory_allocated())
        work()
        torch.cuda.synchronize()
        return int(torch.cuda.max_memory_allocated()) - before_bytes
    events, _ = _observed(device, lambda _: work())
    return sum(split_at_peak(events, ()).values())


def split_at_peak(events: Iterable[Event], phases: Sequence[Phase]) -> dict[str, int]:
    """What a step allocates, by part, at the instant of its peak. Pure.

    What the forward pass leaves behind is activations; what a backward pass leaves to the optimizer is
    gradients; what lives within one phase is `other`: temporaries, and activations computed a second time.
    """
    ordered = sorted(events, key=lambda e: e.t_ns)
    lifetimes = _lifetimes(ordered)
    gradients_from_ns = max((p.end_ns for p in phases if p.name == "backward"), default=0)
    changes = []
    for life in lifetimes:
        part = _part(life, phases, gradients_from_ns)
        changes.append((life.start_ns, 1, life.size_bytes, part))
        if life.end_ns != float("inf"):
            changes.append((life.end_ns, 0, -life.size_bytes, part))
    now = dict.fromkeys(("gradients", "optimizer", "activations", "other"), 0)
    peak, highest = dict(now), 0
    for _, _, size_bytes, part in sorted(changes, key=lambda c: c[:2]):
        now[part] += size_bytes
        if sum(now.values()) > highest:
            peak, highest = dict(now), sum(now.values())
    return peak


def _lifetimes(ordered: Iterable[Event]) -> list[_Lifetime]:
    """Allocations with their releases; the release of something older than the step belongs to nobody."""
    living: dict[int, _Lifetime] = {}
    found: list[_Lifetime] = []
    for event in ordered:
        if event.size_bytes > 0:
            living[event.address] = _Lifetime(event.address, event.size_bytes, event.t_ns)
            found.append(living[event.address])
        elif event.address in living:
            living.pop(event.address).end_ns = event.t_ns
    return found


def _part(life: _Lifetime, phases: Sequence[Phase], gradients_from_ns: int) -> str:
    phase = next((p for p in phases if p.start_ns <= life.start_ns <= p.end_ns), None)
    if phase is None:
        return "other"
    if phase.name == "forward" and life.end_ns > phase.end_ns:
        return "activations"
    if phase.name == "backward" and life.end_ns > gradients_from_ns:
        return "gradients"
    if phase.name == "optimizer" and life.end_ns == float("inf"):
        return "optimizer"
    return "other"


def _observed(device: str, step: Callable[[PhaseOf], object]) -> tuple[list[Event], list[Phase]]:
    """Run a step under the profiler; its allocations on the device and its phases, on one clock."""
    from torch.profiler import ProfilerActivity, profile, record_function

    def marked(name: str) -> AbstractContextManager[object]:
        context: AbstractContextManager[object] = record_function(_MARK + name)
        return context

    with profile(activities=[ProfilerActivity.CPU], profile_memory=True) as profiled:
        step(marked)
    try:
        tree = profiled.profiler.kineto_results.experimental_event_tree()
        events, phases = [], []
        for node in _nodes(tree):
            fields = node.extra_fields
            if hasattr(fields, "alloc_size") and fields.device.type == device:
                events.append(Event(node.start_time_ns, fields.ptr, fields.alloc_size))
            elif node.name.startswith(_MARK):
                phases.append(Phase(node.name[len(_MARK) :], node.start_time_ns, node.end_time_ns))
    except AttributeError as error:
        raise NotTold(f"this torch does not tell of its allocations: {error}") from error
    if not events:
        raise NotTold("this torch told of no allocation")
    return events, phases


def _nodes(tree: Iterable[Any]) -> Iterator[Any]:
    waiting = list(tree)
    while waiting:
        node = waiting.pop()
        waiting.extend(node.children)
        yield node
