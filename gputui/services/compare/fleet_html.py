"""A ranking as one self-contained HTML page: who stands out, then every box on one axis for its kind."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence

from gputui.model.units import counted, format_change, format_rate, listed
from gputui.services.compare.fleet import Box, Fleet, Kind
from gputui.services.compare.fleet_text import kind_rows, why_of
from gputui.services.compare.html import page_of
from gputui.services.compare.html_elements import bullets, folded, part, safe, table
from gputui.services.compare.svg import ChangeAxis
from gputui.services.compare.tables import TextTable

_KINDS = {"slower": "bad", "faster": "good", "uneven": "open", "": "same"}
_NARROWEST = math.log(1.02)
_AT_ONCE = 40
"""Boxes of a kind that are shown without a click, besides those that stand out."""


def fleet_as_page(fleet: Fleet) -> str:
    """A page that fetches and runs nothing; names from files cannot become markup."""
    first, *rest = fleet.sentences
    out = [box for box in fleet.boxes if box.stands_out]
    title = f"{counted(len(fleet.boxes), fleet.noun)}, ranked"
    body = "".join(
        (
            f'<p class="dim">{safe(title)}: {safe(fleet.subject)}</p><h1>{safe(first)}</h1>',
            f'<p class="lead">{safe(" ".join(rest))}</p>' if rest else "",
            part("Stands out", _forest(fleet, out)),
            part("Kinds", _kinds(fleet)),
            *(_of_kind(fleet, kind) for kind in fleet.kinds),
            bullets([f"not measured there: {listed(fleet.unmeasured)}"] if fleet.unmeasured else [], "notes"),
            folded("How to read this page", bullets(_how_to_read(fleet))),
        )
    )
    return page_of(safe(title), body)


def _how_to_read(fleet: Fleet) -> Iterable[str]:
    noun = fleet.noun
    yield f"Each {noun} is beside the median of its kind, those with the same devices, in the main case."
    yield "Lines are 95 % intervals of the run, by its own launches; the band is the middle 90 % of the kind."
    yield (
        f"A {noun} stands out if its rate does not belong to one distribution with the rest of its kind, over"
        " all cases or in one. 5 % of healthy fleets have one that does. Less than 3 % never stands out."
    )


def _kinds(fleet: Fleet) -> str:
    if len(fleet.kinds) < 2:
        return ""
    headings, rows = kind_rows(fleet)
    return table(TextTable(tuple(headings), tuple(map(tuple, rows)), (1, 2, 3)))


def _of_kind(fleet: Fleet, kind: Kind) -> str:
    """All boxes of a kind, the fastest first; many are folded."""
    boxes = [box for box in fleet.boxes if box.kind == kind.name]
    title = f"Every {fleet.noun}" if len(fleet.kinds) == 1 else kind.name
    drawn = _forest(fleet, boxes)
    if len(boxes) > _AT_ONCE:
        return folded(f"{title}, {len(boxes)} of them", drawn)
    return part(title, drawn)


def _forest(fleet: Fleet, boxes: Sequence[Box]) -> str:
    if not boxes:
        return ""
    kinds = {kind.name: kind for kind in fleet.kinds}
    axis = _axis(fleet.boxes, fleet.kinds)
    ranks = {box.name: rank for rank, box in enumerate(fleet.boxes, 1)}
    lines = "".join(_line(fleet, box, ranks[box.name], kinds[box.kind], axis) for box in boxes)
    head = (
        f'<th>{safe(fleet.noun)}</th><th class="n rate">rate</th><th class="n change">vs its kind</th>'
        f'<th class="drawn">{axis.labels()}</th><th class="verdict">stands out</th>'
    )
    return f'<table class="forest fleet"><thead><tr>{head}</tr></thead><tbody>{lines}</tbody></table>'


def _axis(boxes: Sequence[Box], kinds: Sequence[Kind]) -> ChangeAxis:
    """One for all boxes, so that tables can be held against each other."""
    medians = {kind.name: kind.spread.median for kind in kinds}
    ends = [math.log(end / medians[box.kind]) for box in boxes for end in (box.speed.low, box.speed.high)]
    low, high = min([-_NARROWEST, *ends]), max([_NARROWEST, *ends])
    margin = 0.08 * (high - low)
    return ChangeAxis(low - margin, high + margin)


def _line(fleet: Fleet, box: Box, rank: int, kind: Kind, axis: ChangeAxis) -> str:
    colour, median = _KINDS[box.stands_out], kind.spread.median
    low, high = (axis.at(end / median) for end in (box.speed.low, box.speed.high))
    band = axis.at(kind.spread.low / median), axis.at(kind.spread.high / median)
    drawn = (
        f'<rect class="band" x="{band[0]:.2f}%" width="{band[1] - band[0]:.2f}%" height="100%"/>{axis.grid()}'
        f'<line class="interval {colour}" x1="{low:.2f}%" x2="{high:.2f}%" y1="50%" y2="50%"/>'
        f'<circle class="point {colour}" cx="{axis.at(box.of_kind):.2f}%" cy="50%" r="5.5"/>'
    )
    why = why_of(fleet, box)
    if box.stands_out in ("slower", "faster"):
        why = f"{format_change(box.overall)} over {counted(box.cases, 'case')}, {why}"
    return (
        f'<tr class="first"><th>{safe(f"{rank}. {box.name}")}</th>'
        f'<td class="n rate">{safe(format_rate(box.speed.units_per_s, fleet.case.unit))}</td>'
        f'<td class="n change"><b class="{colour}">{safe(format_change(box.of_kind))}</b></td>'
        f'<td class="drawn"><svg class="plot" aria-hidden="true">{drawn}</svg></td>'
        f'<td class="verdict">{safe(why)}</td></tr>\n'
    )
