"""Why a box or a GPU stands out from its kind: in what it differs from all others.

First what is recorded of each box, such as a power limit; then what telemetry says of the time in which the
main case was measured, which is read for the few that stand out and for some of the others.
"""

from __future__ import annotations

import math
import statistics
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from typing import Any  # of a GPU, and how it is written

from gputui.errors import GputuiError
from gputui.model.absent import Missing
from gputui.model.machine import Gpu
from gputui.model.result import RunSummary
from gputui.model.units import format_bytes, format_percent
from gputui.services.compare.fleet import (
    FLEET_FROM,
    GPUS_FROM,
    RANKED_BY,
    Fleet,
    RankedBox,
    Split,
    fleet_of,
    fleet_sides,
    gpu_of,
)
from gputui.services.compare.pairing import Side
from gputui.services.results.conditions import Evidence
from gputui.services.results.selectors import select_all
from gputui.store.locking import Locked
from gputui.store.reading import CaseConditions

_ALIKE = 0.8
"""Share of the others that have one value, from which another value is a difference."""
_EXPLAINED = 8
"""Boxes whose telemetry is read because they stand out, and as many of the others."""
_MARKED_SHARE = 0.1
"""How much more of the time a GPU was slowed down than the others, from which the reason names it."""
_MARKED_CLOCK = math.log(1.02)


def _switch(is_on: bool) -> str:
    return "on" if is_on else "off"


_OF_GPUS: tuple[tuple[str, Callable[[Gpu], Any], Callable[[Any], str]], ...] = (
    ("power limit is", lambda gpu: gpu.power_limit_w, "{:.0f} W".format),
    ("link has", lambda gpu: gpu.pcie_width, "{} PCIe lanes".format),
    ("MIG is", lambda gpu: gpu.mig_enabled, _switch),
    ("ECC is", lambda gpu: gpu.ecc_enabled, _switch),
    ("memory is", lambda gpu: gpu.memory_bytes, format_bytes),
)
"""What of them differs, its value and that in words; the likeliest cause first, as in the next."""
_OF_RUN: tuple[tuple[str, Callable[[RunSummary], object]], ...] = (
    ("driver is", lambda run: run.machine.driver_version),
    ("usable cores are", lambda run: run.machine.cpu.usable_cores),
    ("torch is", lambda run: run.runtime.torch_version),
    ("kernel is", lambda run: run.machine.kernel),
)


def _recorded(box: RankedBox) -> dict[str, object]:
    """What is known of it, but for what its GPUs differ in."""
    gpu, run = gpu_of(box.side), box.side.run
    gpus = run.machine.gpus if gpu is None else [gpu]
    of_gpus = {what: ({value(one) for one in gpus}, words) for what, value, words in _OF_GPUS}
    found = {what: words(*values) for what, (values, words) in of_gpus.items() if _is_known(values)}
    return found | {what: value(run) for what, value in _OF_RUN if _is_known({value(run)})}


def _is_known(values: set[object]) -> bool:
    """Whether there is one value, and that is not missing."""
    return len(values) == 1 and not isinstance(next(iter(values)), Missing)


def ranking_of(
    files: Sequence[str], by: str, *, pool: bool = False, trust: bool = False
) -> tuple[Fleet, tuple[str, ...]] | None:
    """Many sides, each beside its kind and with reasons, and what to warn of; None of few.

    Raises GputuiError if a file cannot be read.
    """
    if by not in RANKED_BY and (by or len(files) < FLEET_FROM):
        return None
    selections = select_all(files, trust=trust, pool=pool, only_rates=True)
    sides = fleet_sides(selections, by, pool=pool)
    if len(sides) < (GPUS_FROM if by == "gpu" else FLEET_FROM):
        return None
    warnings = tuple(warning for selection in selections for warning in selection.warnings)
    if not by:
        warnings += tuple(_same_runs(sides))
    return explained(fleet_of(sides, by), Evidence(selections, trust=trust)), warnings


def _same_runs(sides: Sequence[Side]) -> Iterator[str]:
    """Copies of one file are no boxes of their own."""
    for run_id, count in Counter(side.run.run_id for side in sides).items():
        if count > 1:
            yield f"{count} of these files hold the same run {run_id[-8:]}: they are one box, not {count}"


def explained(fleet: Fleet, evidence: Evidence) -> Fleet:
    """The ranking with the reasons why boxes stand out, as far as they are known.

    Opens the files of a few boxes; what cannot be read any more explains nothing.
    """
    out = [box for box in fleet.boxes if box.stands_out]
    out.sort(key=lambda box: -abs(math.log(box.overall)))
    why: dict[str, list[str]] = {}
    for box in out:
        others = [other for other in fleet.boxes if other.kind == box.kind and not other.stands_out]
        why[box.name] = list(_differs(_recorded(box), [_recorded(other) for other in others]))
    for box, text in _of_telemetry(fleet, out[:_EXPLAINED], evidence):
        why[box.name].append(text)
    return replace(
        fleet,
        why={name: "; ".join(texts[:2]) for name, texts in why.items() if texts},
        splits=tuple(replace(split, why=_of_groups(fleet, split)) for split in fleet.splits),
    )


def _of_groups(fleet: Fleet, split: Split) -> str:
    """In what nearly all of the slower ones differ from nearly all others; empty if that is not known."""
    slower, faster = (
        [_recorded(box) for box in fleet.boxes if box.name in names] for names in (split.slower, split.faster)
    )
    for what in slower[0]:
        values = [Counter(one.get(what) for one in group).most_common(1)[0] for group in (slower, faster)]
        (mine, count), (theirs, others) = values
        is_clear = count >= _ALIKE * len(slower) and others >= _ALIKE * len(faster)
        if is_clear and mine != theirs and None not in (mine, theirs):
            noun = what.removesuffix(" is").removesuffix(" has")
            return f"{noun} {mine} in the slower ones, {theirs} in the others"
    return ""


def _differs(mine: Mapping[str, object], others: Sequence[Mapping[str, object]]) -> Iterator[str]:
    """In what a box differs from nearly all others."""
    for what, value in mine.items():
        usual, count = Counter(other.get(what) for other in others).most_common(1)[0] if others else (None, 0)
        if usual not in (value, None) and count >= _ALIKE * len(others):
            yield f"its {what} {value}, theirs {usual}"


def _of_telemetry(
    fleet: Fleet, out: Sequence[RankedBox], evidence: Evidence
) -> Iterator[tuple[RankedBox, str]]:
    kinds = {box.kind for box in out}
    peers: dict[str, list[RankedBox]] = {kind: [] for kind in kinds}
    for box in sorted(fleet.boxes, key=lambda box: abs(math.log(box.overall))):
        if box.kind in kinds and not box.stands_out and len(peers[box.kind]) < _EXPLAINED:
            peers[box.kind].append(box)
    seen = _conditions(fleet, [*out, *(box for found in peers.values() for box in found)], evidence)
    for box in out:
        others = [seen[peer.name] for peer in peers[box.kind] if peer.name in seen]
        if box.name in seen and others:
            yield from ((box, text) for text in _differences(seen[box.name], others, box.overall < 1))


def _conditions(fleet: Fleet, boxes: Sequence[RankedBox], evidence: Evidence) -> dict[str, CaseConditions]:
    """By box, while its main case was timed; without those of which nothing is known any more."""
    cases = {
        box.name: next(case for case in box.side.cases if case.result.case == fleet.case) for box in boxes
    }
    evidence.read_conditions(case.run.run_id for case in cases.values())
    found = {}
    for name, case in cases.items():
        with suppress(GputuiError, Locked):
            seen = evidence.conditions(case.run.run_id, case.result.case_id)
            if not isinstance(seen, Missing):
                found[name] = seen
    return found


def _differences(mine: CaseConditions, others: Sequence[CaseConditions], is_slower: bool) -> Iterator[str]:
    """What slowed a box down more, or less if it is faster, than the middle of the others."""
    shares: tuple[tuple[str, Callable[[CaseConditions], float | Missing]], ...] = (
        ("slowed by heat or a power brake", lambda one: one.slowed_share),
        ("held at its power limit", lambda one: one.power_capped_share),
        ("shared with another process", lambda one: one.shared_share),
    )
    for words, value_of in shares:
        share, usual = value_of(mine), _middle(value_of(one) for one in others)
        if isinstance(share, Missing) or usual is None:
            continue
        if abs(share - usual) >= _MARKED_SHARE and (share > usual) == is_slower:
            yield f"it was {words} {format_percent(share)} of the time, the others {format_percent(usual)}"
    clock, usual = mine.clock_median_mhz, _middle(one.clock_median_mhz for one in others)
    if not isinstance(clock, Missing) and usual and clock > 0:
        change = math.log(clock / usual)
        if abs(change) >= _MARKED_CLOCK and (change < 0) == is_slower:
            yield f"its clock was {clock / 1000:.2f} GHz, theirs {usual / 1000:.2f} GHz"


def _middle(values: Iterable[float | Missing]) -> float | None:
    known = [value for value in values if not isinstance(value, Missing)]
    return statistics.median(known) if known else None
