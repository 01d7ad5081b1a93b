"""Which runs are of one box, by what each box is known by."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace

from gputui.model.machine import Identity, Machine
from gputui.model.result import Run, RunSummary

_EXCLUSIVE = ("stated", "product-uuid")
"""A box has one of each of these kinds: two that differ are two boxes, whatever else they share."""
_KINDS = (*_EXCLUSIVE, "machine-id", "gpus", "GPU", "account", "boot", "run", "looks")
"""The surest first."""
_Known = tuple[Identity, ...]


def with_common_ids(
    groups: Sequence[Sequence[RunSummary]], *, pool: bool = False
) -> list[tuple[RunSummary, ...]]:
    """The same summaries, whose `machine_id` is equal for all runs of one box.

    Boxes are one if they share an id, or a GPU, unless their firmware or their user says that they are two.
    With `pool`, so are those that look the same if nothing sure is known of them.
    """
    ids = _common_ids((summary.machine for group in groups for summary in group), pool)
    return [tuple(_renamed(summary, ids, pool) for summary in group) for group in groups]


def runs_with_common_ids(runs: Sequence[Run], *, pool: bool = False) -> tuple[Run, ...]:
    """As `with_common_ids` for whole runs."""
    (summaries,) = with_common_ids([[run.summary for run in runs]], pool=pool)
    return tuple(
        run if run.summary is summary else replace(run, summary=summary)
        for run, summary in zip(runs, summaries, strict=True)
    )


def known_by(machine: Machine) -> tuple[Identity, ...]:
    """What the box is known by, its GPUs included."""
    return _known_by(machine, pool=False)


def are_one_box(a: Iterable[Identity], b: Iterable[Identity]) -> bool:
    """Whether what two boxes are known by makes them one, as in `with_common_ids`."""
    a, b = set(a), set(b)
    return bool(a & b) and not _are_two(a, b)


def _renamed(summary: RunSummary, ids: Mapping[_Known, str], pool: bool) -> RunSummary:
    machine = summary.machine
    common = ids[_known_by(machine, pool)]
    if machine.machine_id in ("", common):
        return summary
    return replace(summary, machine=replace(machine, machine_id=common))


def _known_by(machine: Machine, pool: bool) -> _Known:
    found = machine.identities
    if not found:  # earlier versions stored one id, under the user's key
        return (Identity("account", machine.machine_id),)
    if found[0].kind == "stated":
        return found
    looks = [_looks(machine)] if pool and not machine.is_sure else []
    return (*found, *(Identity("GPU", gpu.gpu_id) for gpu in machine.gpus if gpu.gpu_id), *looks)


def _looks(machine: Machine) -> Identity:
    names = [gpu.name for gpu in machine.gpus]
    memory_gib = round(machine.memory.host_bytes / 2**30)
    return Identity("looks", f"{machine.cpu.model} {machine.cpu.host_threads} {memory_gib} {names}")


def _common_ids(machines: Iterable[Machine], pool: bool) -> dict[_Known, str]:
    """The id of the box of each set of identities: the surest that any of its runs has."""
    names = {_known_by(machine, pool): machine.machine_id for machine in machines}
    box_of = {known: set(known) for known in names}
    for kind in _KINDS:
        first: dict[str, set[Identity]] = {}
        for known in names:
            for one in known:
                if one.kind != kind:
                    continue
                box, mine = first.setdefault(one.id, box_of[known]), box_of[known]
                if box is not mine and not _are_two(box, mine):
                    box |= mine
                    box_of.update((each, box) for each in names if box_of[each] is mine)
                    first.update((id, box) for id, other in first.items() if other is mine)
    return {known: names[known] if len(box) == len(known) else _surest(box) for known, box in box_of.items()}


def _surest(box: Iterable[Identity]) -> str:
    ids = [one for one in box if one.kind not in ("GPU", "looks")]
    return min(ids, key=lambda one: (_KINDS.index(one.kind) if one.kind in _KINDS else 99, one.id)).id


def _are_two(a: Iterable[Identity], b: Iterable[Identity]) -> bool:
    mine, theirs = ({one.kind: one.id for one in box if one.kind in _EXCLUSIVE} for box in (a, b))
    return any(theirs.get(kind, id) != id for kind, id in mine.items())
