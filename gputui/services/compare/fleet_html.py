"""A ranking as one self-contained HTML page: who stands out, then every box on one axis for its kind."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from gputui.analysis.fleet import spread_of
from gputui.document.html import bullets, folded, page_of, part, safe, table, with_units
from gputui.document.intervals import PAGE_CELLS, Interval, axis_of, intervals
from gputui.document.spans import Span
from gputui.document.table import Column, Drawing, Table
from gputui.model.absent import Missing
from gputui.model.units import counted, listed
from gputui.services.compare.fleet import Fleet, Kind, RankedBox
from gputui.services.compare.fleet_text import box_table, kind_table, style_of_box, why_of

_AT_ONCE = 40
"""Boxes of a kind that are shown without a click, besides those that stand out."""


def fleet_as_page(fleet: Fleet) -> str:
    """A page that fetches and runs nothing; names from files cannot become markup."""
    first, *rest = fleet.sentences
    out = [box for box in fleet.boxes if box.stands_out]
    title = f"{counted(len(fleet.boxes), fleet.noun)}, ranked"
    body = "".join(
        (
            f'<p class="dim">{safe(title)}: {safe(fleet.subject)}</p><h1>{with_units(safe(first))}</h1>',
            f'<p class="lead">{safe(" ".join(rest))}</p>' if rest else "",
            part("Stands out", _boxes(fleet, out)),
            part("All" if len(fleet.kinds) == 1 else "Kinds, the fastest first", _kinds(fleet)),
            *(_of_kind(fleet, kind) for kind in fleet.kinds),
            bullets([f"not measured there: {listed(fleet.unmeasured)}"] if fleet.unmeasured else [], "notes"),
            folded("How to read this page", bullets(_how_to_read(fleet))),
        )
    )
    return page_of(safe(title), body)


def _how_to_read(fleet: Fleet) -> Iterable[str]:
    noun = fleet.noun
    yield (
        f"Each dot is a {noun}: its rates against the medians of its kind, of the same devices, as the"
        " geometric mean over all cases. The band is the middle 90 % of the kind."
    )
    yield f"Rates and ranks are of the main case: {fleet.subject}."
    yield (
        f"A {noun} stands out if it does not belong to one distribution with the rest of its kind, over all"
        " cases or in one. 5 % of healthy fleets have one. Less than 3 % never stands out."
    )
    yield "A line is the 95 % interval of its distance from the others, by how far these lie apart."


def _kinds(fleet: Fleet) -> str:
    """A row for each kind, with all of its boxes as dots."""
    of_kinds = [[box for box in fleet.boxes if box.kind == kind.name] for kind in fleet.kinds]
    tiers = [next(tier for tier in fleet.tiers if kind in tier) for kind in fleet.kinds]
    ties = [
        ", ".join(other.name for other in tier if other is not kind)
        for kind, tier in zip(fleet.kinds, tiers, strict=True)
    ]
    columns = [*kind_table(fleet).columns, _drawing(fleet, of_kinds)]
    columns += [Column("ties with", ties)] if any(ties) else []
    return table(Table(tuple(columns)), "forest fleet")


def _of_kind(fleet: Fleet, kind: Kind) -> str:
    """All boxes of a kind, the fastest first; many are folded."""
    boxes = [box for box in fleet.boxes if box.kind == kind.name]
    title = f"Every {fleet.noun}" if len(fleet.kinds) == 1 else kind.name
    drawn = _boxes(fleet, boxes)
    if len(boxes) > _AT_ONCE:
        return folded(f"{title}, {len(boxes)} of them", drawn)
    return part(title, drawn)


def _boxes(fleet: Fleet, boxes: Sequence[RankedBox]) -> str:
    if not boxes:
        return ""
    *columns, _ = box_table(fleet, boxes).columns
    why = Column("stands out", [Span(why_of(fleet, box), style_of_box(box)) for box in boxes], breaks=True)
    return table(Table((*columns, _drawing(fleet, [[box] for box in boxes]), why)), "forest fleet")


def _drawing(fleet: Fleet, rows: Sequence[Sequence[RankedBox]]) -> Drawing:
    """Boxes of one kind in a row, over the middle 90 % of their kind; a box alone with its interval. The axis
    is one for all boxes, so that tables can be held against each other."""
    kinds = [spread_of([box.overall for box in fleet.boxes if box.kind == row[0].kind]) for row in rows]
    return intervals(
        [[_interval(box, is_alone=len(row) == 1) for box in row] for row in rows],
        bands=[(kind.low, kind.high) for kind in kinds],
        axis=axis_of((_interval(box, is_alone=True) for box in fleet.boxes), PAGE_CELLS),
    )


def _interval(box: RankedBox, *, is_alone: bool) -> Interval:
    low = high = box.overall
    if is_alone and not isinstance(box.apart, Missing):
        low, high = box.apart
    return Interval(box.overall, low, high, "●", style_of_box(box) or "dim")
