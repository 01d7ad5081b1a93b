"""Where the memory of one step goes: every allocation of torch on the device, and what it belongs to.

torch's allocators report each allocation and release to the profiler, on CPU and GPU, with the exact number
of bytes. Memory that torch does not allocate (library workspaces, the interpreter, the GPU context) is not
included.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import Any  # Any: torch's types

from ..accelerator import allocator, synchronize

PhaseOf = Callable[[str], AbstractContextManager[object]]
"""Marks a part of a step as `forward`, `backward` or `optimizer`."""
PARTS = ("weights", "gradients", "optimizer", "activations", "inputs", "other")
POINTS = ("start", "after_forward", "after_backward", "after_optimizer", "peak")
_MARK = "gputui::"


class AllocationsUnavailable(Exception):
    """This torch does not report its allocations."""


@dataclass(frozen=True)
class AllocationEvent:
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
    size_bytes: int
    start_ns: float
    end_ns: float = float("inf")


def no_phases(name: str) -> AbstractContextManager[object]:
    """For a step that is only timed."""
    return contextlib.nullcontext()


def storage_bytes(tensors: Iterable[Any]) -> int:
    """Bytes of memory behind tensors, each storage counted once."""
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
    """Bytes of each of PARTS at the moment when a step holds most memory; they sum to the peak.

    `step` marks its phases. Nothing may be left of the step before it, so release gradients first. The peak
    is that of the device's allocator, where it counts. Raises AllocationsUnavailable.
    """
    held = {
        "weights": storage_bytes(weights),
        "optimizer": storage_bytes(optimizer_state),
        "inputs": storage_bytes(inputs),
    }
    counted = allocator(device)
    if counted:
        synchronize(device)
        counted.reset_peak_memory_stats()
    found = split_at_points(*_observed(device, step), {})["peak"]
    parts = {name: held.get(name, 0) + found[name] for name in PARTS}
    if counted:  # the allocator's rounding, and other allocations of this process
        synchronize(device)
        parts["other"] += max(int(counted.max_memory_allocated()) - sum(parts.values()), 0)
    return parts


def highest_allocated(device: str, work: Callable[[], object]) -> int:
    """The most bytes that torch holds on the device at once, of all it allocates during `work`.

    Raises AllocationsUnavailable; exceptions of `work` pass through.
    """
    counted = allocator(device)
    if counted:
        counted.reset_peak_memory_stats()
        before_bytes = int(counted.memory_allocated())
        work()
        synchronize(device)
        return int(counted.max_memory_allocated()) - before_bytes
    events, _ = _observed(device, lambda _: work())
    return sum(split_at_points(events, (), {})["peak"].values())


def split_at_points(
    events: Iterable[AllocationEvent], phases: Sequence[Phase], held: Mapping[int, tuple[str, int]]
) -> dict[str, dict[str, int]]:
    """What every part holds at each of POINTS that the step has. Pure.

    What the forward pass leaves behind is activations; what a backward pass leaves to the optimizer is
    gradients; what lives within one phase is `other`: temporaries, and activations computed a second time.
    Without a backward pass everything that a forward pass allocates is activations. `held`: part and size of
    each storage that existed before the step, by address. Raises AllocationsUnavailable without an event.
    """
    ordered = sorted(events, key=lambda e: e.t_ns)
    if not ordered:
        raise AllocationsUnavailable("this torch told of no allocation")
    gone: dict[int, int] = {}
    for event in ordered:  # a reused address implies a release, since not every release is reported
        if event.address in held:
            gone.setdefault(event.address, event.t_ns)
    trains = any(p.name == "backward" for p in phases)
    gradients_from_ns = max((p.end_ns for p in phases if p.name == "backward"), default=0)
    changes: list[tuple[float, int, str]] = []
    for address, (part, size_bytes) in held.items():
        changes.append((float("-inf"), size_bytes, part))
        if address in gone:
            changes.append((gone[address], -size_bytes, part))
    for life in _lifetimes(ordered):
        part = _part(life, phases, gradients_from_ns)
        if part == "other" and not trains:
            part = "activations"
        changes += [(life.start_ns, life.size_bytes, part), (life.end_ns, -life.size_bytes, part)]
    changes.sort(key=lambda c: (c[0], c[1]))
    instants: dict[str, float] = {"start": float("-inf")}
    for name in ("forward", "backward", "optimizer"):
        ends = [p.end_ns for p in phases if p.name == name]
        if ends:
            instants[f"after_{name}"] = max(ends)
    found: dict[str, dict[str, int]] = {}
    for point, instant in instants.items():
        found[point] = dict.fromkeys(PARTS, 0)
        for t_ns, size_bytes, part in changes:
            if t_ns <= instant:
                found[point][part] += size_bytes
    now, highest = dict.fromkeys(PARTS, 0), -1
    for t_ns, size_bytes, part in changes:
        now[part] += size_bytes
        if t_ns < float("inf") and sum(now.values()) > highest:
            found["peak"], highest = dict(now), sum(now.values())
    return found


def _lifetimes(ordered: Iterable[AllocationEvent]) -> list[_Lifetime]:
    """Allocations with their releases; releases of memory older than the step are ignored."""
    living: dict[int, _Lifetime] = {}
    found: list[_Lifetime] = []
    for event in ordered:
        if event.size_bytes > 0:
            living[event.address] = _Lifetime(event.size_bytes, event.t_ns)
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


def _observed(device: str, step: Callable[[PhaseOf], object]) -> tuple[list[AllocationEvent], list[Phase]]:
    """Profile one step; returns its allocations on the device and its phases, on one clock."""
    nodes, events = _recorded(device, lambda: step(_marked))
    return events, [
        Phase(node.name[len(_MARK) :], node.start_time_ns, node.end_time_ns)
        for node in nodes
        if node.name.startswith(_MARK)
    ]


def _marked(name: str) -> AbstractContextManager[object]:
    from torch.profiler import record_function

    context: AbstractContextManager[object] = record_function(_MARK + name)
    return context


def _recorded(device: str, work: Callable[[], object]) -> tuple[list[Any], list[AllocationEvent]]:
    """Everything that the profiler notes during `work`, and the allocations on the device."""
    from torch.profiler import ProfilerActivity, profile

    with profile(activities=[ProfilerActivity.CPU], profile_memory=True) as profiled:
        work()
    try:
        nodes = list(_nodes(profiled.profiler.kineto_results.experimental_event_tree()))
        return nodes, [
            AllocationEvent(node.start_time_ns, node.extra_fields.ptr, node.extra_fields.alloc_size)
            for node in nodes
            if hasattr(node.extra_fields, "alloc_size") and node.extra_fields.device.type == device
        ]
    except AttributeError as error:
        raise AllocationsUnavailable("this torch does not tell of its allocations") from error


def points_of_a_step(device: str, run: Callable[[], object]) -> dict[str, dict[str, int]]:
    """Bytes of each of PARTS at each of POINTS of any step, which need not mark its phases.

    Does two steps. Weights are the parameters of this process; optimizer state is found through torch's
    hooks, phases through what autograd and optimizers mark in a trace. Raises AllocationsUnavailable.
    """
    held: dict[int, tuple[str, int]] = {}

    def two_steps() -> None:
        optimizers = _optimizers_of(run)  # memory allocated before profiling starts has no reported release
        held.update(_held(device, optimizers))
        synchronize(device)
        with _marked("step"):
            run()
            synchronize(device)

    nodes, events = _recorded(device, two_steps)
    begun_ns = next(node.start_time_ns for node in nodes if node.name == f"{_MARK}step")
    phases = _phases_of([node for node in nodes if node.start_time_ns > begun_ns], begun_ns)
    return split_at_points([event for event in events if event.t_ns > begun_ns], phases, held)


def _optimizers_of(run: Callable[[], object]) -> list[Any]:
    """The optimizers that a step calls; empty if it does not train."""
    from torch.optim import optimizer

    found: list[Any] = []

    def note(called: Any, args: Any, kwargs: Any) -> None:
        if all(called is not other for other in found):
            found.append(called)

    hook = optimizer.register_optimizer_step_post_hook(note)
    try:
        run()
    finally:
        hook.remove()
    return found


def _held(device: str, optimizers: Iterable[Any]) -> dict[int, tuple[str, int]]:
    """Part and size of every storage on the device that Python can see, by address."""
    import gc

    import torch

    held: dict[int, tuple[str, int]] = {}

    def hold(part: str, tensors: Iterable[Any]) -> None:
        for tensor in tensors:
            if tensor.device.type != device or tensor.layout != torch.strided:
                continue
            try:  # tensors of a compiler's tracing have no memory, or none on this device
                storage = tensor.untyped_storage()
                address = storage.data_ptr() if storage.device.type == device else 0
            except (RuntimeError, NotImplementedError):
                continue
            if address:
                held.setdefault(address, (part, storage.nbytes()))

    seen = [o for o in gc.get_objects() if issubclass(type(o), torch.Tensor)]
    weights = [o for o in seen if issubclass(type(o), torch.nn.Parameter)]
    hold("weights", weights)
    hold("gradients", [w.grad for w in weights if w.grad is not None])
    for optimizer in optimizers:
        for state in optimizer.state.values():
            hold("optimizer", [v for v in state.values() if isinstance(v, torch.Tensor)])
    hold("inputs", seen)
    return held


def _phases_of(nodes: Iterable[Any], begun_ns: int) -> list[Phase]:
    """Forward until autograd's first node, backward until its last, then the optimizer's own mark."""
    engine = [n for n in nodes if n.name.startswith("autograd::engine::")]
    steps = [n for n in nodes if n.name.startswith("Optimizer.step")]
    last_ns = max((n.end_time_ns for n in nodes), default=begun_ns)
    if not engine:
        return [Phase("forward", begun_ns, last_ns)]
    backward = Phase("backward", min(n.start_time_ns for n in engine), max(n.end_time_ns for n in engine))
    found = [Phase("forward", begun_ns, backward.start_ns), backward]
    if steps:
        found.append(
            Phase("optimizer", min(n.start_time_ns for n in steps), max(n.end_time_ns for n in steps))
        )
    return found


def _nodes(tree: Iterable[Any]) -> Iterator[Any]:
    waiting = list(tree)
    while waiting:
        node = waiting.pop()
        waiting.extend(node.children)
        yield node
