"""Where the memory of one step goes: every allocation of torch on the device, and what it belongs to.

torch's allocators report each allocation and release to the profiler, on CPU and GPU, with the exact number
of bytes. Memory that torch does not allocate (library workspaces, the interpreter, the GPU context) is not
included.
"""

from __future__ import annotations

import bisect
import gc
import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any  # Any: torch's types

from ..accelerator import allocator, synchronize

PARTS = ("weights", "gradients", "optimizer", "activations", "inputs", "other")
POINTS = ("start", "after_forward", "after_backward", "after_optimizer", "peak")
Allocation = tuple[int, int, int]
"""When, at which address, and how many bytes: negative for a release."""
Phase = tuple[str, int, int]
"""A part of a step: `forward`, `backward` or `optimizer`, and its begin and end in ns."""
_MARK = "gputui::step"


class AllocationsUnavailable(Exception):
    """This torch does not report its allocations."""


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
    _, allocations = _recorded(device, work)
    return sum(split_at_points(allocations, (), {})["peak"].values())


def split_at_points(
    allocations: Iterable[Allocation], phases: Sequence[Phase], held: Mapping[int, tuple[str, int]]
) -> dict[str, dict[str, int]]:
    """What every part holds at each of POINTS that the step has. Pure.

    What the forward pass leaves behind is activations; what a backward pass leaves to the optimizer is
    gradients; what lives within one phase is `other`: temporaries, and activations computed a second time.
    Without a backward pass everything that a forward pass allocates is activations. `held`: part and size of
    each storage that existed before the step, by address. Raises AllocationsUnavailable without an event.
    """
    ordered = sorted(allocations, key=lambda one: one[0])
    if not ordered:
        raise AllocationsUnavailable("this torch told of no allocation")
    changes: list[tuple[float, int, str]] = []
    living: dict[int, tuple[float, int, str]] = {
        address: (-math.inf, size_bytes, part) for address, (part, size_bytes) in held.items()
    }

    def end(address: int, end_ns: float) -> None:
        start_ns, size_bytes, part = living.pop(address)
        part = part or _part(start_ns, end_ns, phases)
        changes.extend(((start_ns, size_bytes, part), (end_ns, -size_bytes, part)))

    for at_ns, address, allocated_bytes in ordered:
        if address in living:  # also when it is given out again, since not every release is reported
            end(address, at_ns)
        if allocated_bytes > 0:
            living[address] = (at_ns, allocated_bytes, "")
    for address in list(living):
        end(address, math.inf)
    changes.sort()
    found: dict[str, dict[str, int]] = {}
    ends_ns = {f"after_{name}": end_ns for name, _, end_ns in sorted(phases, key=lambda phase: phase[2])}
    for point in POINTS[:-1]:
        if point == "start" or point in ends_ns:
            found[point] = dict.fromkeys(PARTS, 0)
            for t_ns, size_bytes, part in changes:
                if t_ns <= ends_ns.get(point, -math.inf):
                    found[point][part] += size_bytes
    now, total, highest = dict.fromkeys(PARTS, 0), 0, -1
    for t_ns, size_bytes, part in changes:
        now[part] += size_bytes
        total += size_bytes
        if t_ns < math.inf and total > highest:
            found["peak"], highest = dict(now), total
    return found


def _part(start_ns: float, end_ns: float, phases: Sequence[Phase]) -> str:
    """What was allocated and released then belongs to."""
    gradients_from_ns = max((end for name, _, end in phases if name == "backward"), default=None)
    if gradients_from_ns is None:
        return "activations"
    name, _, phase_end_ns = next((p for p in phases if p[1] <= start_ns <= p[2]), ("", 0, 0))
    if name == "forward" and end_ns > phase_end_ns:
        return "activations"
    if name == "backward" and end_ns > gradients_from_ns:
        return "gradients"
    return "optimizer" if name == "optimizer" and end_ns == math.inf else "other"


def _recorded(device: str, work: Callable[[], object]) -> tuple[list[Any], list[Allocation]]:
    """Everything that the profiler notes during `work`, and the allocations on the device."""
    from torch.profiler import ProfilerActivity, profile

    with profile(activities=[ProfilerActivity.CPU], profile_memory=True) as profiled:
        work()
    try:
        nodes = list(_nodes(profiled.profiler.kineto_results.experimental_event_tree()))
        return nodes, [
            (node.start_time_ns, node.extra_fields.ptr, node.extra_fields.alloc_size)
            for node in nodes
            if hasattr(node.extra_fields, "alloc_size") and node.extra_fields.device.type == device
        ]
    except AttributeError as error:
        raise AllocationsUnavailable("this torch does not tell of its allocations") from error


def _nodes(tree: Iterable[Any]) -> Iterator[Any]:
    waiting = list(tree)
    while waiting:
        node = waiting.pop()
        waiting.extend(node.children)
        yield node


def points_of_a_step(device: str, run: Callable[[], object]) -> dict[str, dict[str, int]]:
    """Bytes of each of PARTS at each of POINTS of any step.

    Does two steps. Weights are the parameters of this process; optimizer state is found through torch's
    hooks, phases through what autograd and optimizers mark in a trace. Raises AllocationsUnavailable.
    """
    from torch.profiler import record_function

    held: dict[int, tuple[str, int]] = {}

    def two_steps() -> None:
        optimizers = _optimizers_of(run)  # memory allocated before profiling starts has no reported release
        held.update(_held(device, optimizers))
        synchronize(device)
        with record_function(_MARK):
            run()
            synchronize(device)

    nodes, allocations = _recorded(device, two_steps)
    begun_ns = next(node.start_time_ns for node in nodes if node.name == _MARK)
    phases = _phases_of([node for node in nodes if node.start_time_ns > begun_ns], begun_ns)
    return split_at_points([one for one in allocations if one[0] > begun_ns], phases, held)


def _optimizers_of(run: Callable[[], object]) -> list[Any]:
    """The optimizers that a step calls; empty if it does not train."""
    from torch.optim import optimizer

    found: dict[int, Any] = {}
    hook = optimizer.register_optimizer_step_post_hook(lambda called, *_: found.update({id(called): called}))
    try:
        run()
    finally:
        hook.remove()
    return list(found.values())


def _held(device: str, optimizers: Iterable[Any]) -> dict[int, tuple[str, int]]:
    """Part and size of every storage on the device that Python can see, by address."""
    import torch

    seen = [o for o in gc.get_objects() if issubclass(type(o), torch.Tensor)]
    weights = [o for o in seen if issubclass(type(o), torch.nn.Parameter)]
    states = [state for one in optimizers for state in one.state.values()]
    held: dict[int, tuple[str, int]] = {}
    for part, tensors in (
        ("weights", weights),
        ("gradients", [w.grad for w in weights if w.grad is not None]),
        ("optimizer", [v for state in states for v in state.values() if isinstance(v, torch.Tensor)]),
        ("inputs", seen),
    ):
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
    return held


def _phases_of(nodes: Sequence[Any], begun_ns: int) -> list[Phase]:
    """Forward until autograd's next node, backward until an operator outside of these; an optimizer marks
    itself, and may stand within either."""
    operators_ns = sorted(n.start_time_ns for n in nodes if n.name.startswith("aten::"))
    engine = [n for n in nodes if n.name.startswith("autograd::engine::")]
    found = [
        ("optimizer", n.start_time_ns, n.end_time_ns) for n in nodes if n.name.startswith("Optimizer.step")
    ]
    passes_ns: list[tuple[int, int]] = []
    for node in sorted(engine, key=lambda n: n.start_time_ns):
        begin_ns, end_ns = passes_ns[-1] if passes_ns else (0, 0)
        between = bisect.bisect_left(operators_ns, node.start_time_ns) > bisect.bisect(operators_ns, end_ns)
        if between or not passes_ns:
            passes_ns.append((node.start_time_ns, node.end_time_ns))
        else:
            passes_ns[-1] = begin_ns, max(end_ns, node.end_time_ns)
    at_ns = begun_ns
    for begin_ns, end_ns in passes_ns:
        found += [("forward", at_ns, begin_ns), ("backward", begin_ns, end_ns)]
        at_ns = end_ns
    if not passes_ns:
        found.append(("forward", begun_ns, max((n.end_time_ns for n in nodes), default=begun_ns)))
    return found
