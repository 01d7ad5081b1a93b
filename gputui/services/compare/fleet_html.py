"""A ranking as one self-contained HTML page: who stands out, then every box on one axis for its kind."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from gputui.analysis.fleet import spread_of
from gputui.document.html import bullets, folded, page_of, part, safe, with_units
from gputui.model.absent import Missing
from gputui.model.units import counted, format_change, format_rate, listed
from gputui.services.compare.fleet import Fleet, Kind, RankedBox
from gputui.services.compare.fleet_text import price_text, style_of_box, why_of
from gputui.services.compare.svg import ChangeAxis, axis_over

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
            part("Stands out", _forest(fleet, out)),
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
    axis = _axis(fleet.boxes)
    lines = "".join(
        f'<tr class="first"><th>{safe(kind.name)}</th>'
        f'<td class="n rate">{safe(format_rate(kind.spread.median, fleet.case.unit))}</td>'
        f'<td class="n change">{kind.spread.boxes}</td>'
        f'<td class="drawn">{_plot(fleet, [box for box in fleet.boxes if box.kind == kind.name], axis)}</td>'
        f'<td class="verdict">{safe(_about(fleet, kind))}</td></tr>\n'
        for kind in fleet.kinds
    )
    many = counted(2, fleet.noun).removeprefix("2 ")
    head = (
        f'<th>kind</th><th class="n rate">median</th><th class="n change">{safe(many)}</th>'
        f'<th class="drawn">{axis.labels()}</th><th class="verdict">middle 90 %</th>'
    )
    return f'<table class="forest fleet"><thead><tr>{head}</tr></thead><tbody>{lines}</tbody></table>'


def _about(fleet: Fleet, kind: Kind) -> str:
    ends = (format_rate(end, fleet.case.unit) for end in (kind.spread.low, kind.spread.high))
    tie = next(tier for tier in fleet.tiers if kind in tier)
    words = [" to ".join(ends)]
    if not isinstance(kind.usd_per_million, Missing):
        words.append(price_text(kind.usd_per_million, fleet.case.unit))
    if len(tie) > 1:
        words.append(f"ties with {listed([one.name for one in tie if one != kind])}")
    return "; ".join(words)


def _of_kind(fleet: Fleet, kind: Kind) -> str:
    """All boxes of a kind, the fastest first; many are folded."""
    boxes = [box for box in fleet.boxes if box.kind == kind.name]
    title = f"Every {fleet.noun}" if len(fleet.kinds) == 1 else kind.name
    drawn = _forest(fleet, boxes)
    if len(boxes) > _AT_ONCE:
        return folded(f"{title}, {len(boxes)} of them", drawn)
    return part(title, drawn)


def _forest(fleet: Fleet, boxes: Sequence[RankedBox]) -> str:
    if not boxes:
        return ""
    axis = _axis(fleet.boxes)
    ranks = {box.name: rank for rank, box in enumerate(fleet.boxes, 1)}
    lines = "".join(_line(fleet, box, ranks[box.name], axis) for box in boxes)
    head = (
        f'<th>{safe(fleet.noun)}</th><th class="n rate">rate</th><th class="n change">all cases</th>'
        f'<th class="drawn">{axis.labels()}</th><th class="verdict">stands out</th>'
    )
    return f'<table class="forest fleet"><thead><tr>{head}</tr></thead><tbody>{lines}</tbody></table>'


def _axis(boxes: Sequence[RankedBox]) -> ChangeAxis:
    """One for all boxes, so that tables can be held against each other."""
    apart = [end for box in boxes if not isinstance(box.apart, Missing) for end in box.apart]
    return axis_over((*(box.overall for box in boxes), *apart))


def _line(fleet: Fleet, box: RankedBox, rank: int, axis: ChangeAxis) -> str:
    colour, change = style_of_box(box) or "same", format_change(box.overall)
    return (
        f'<tr class="first"><th>{safe(f"{rank}. {box.name}")}</th>'
        f'<td class="n rate">{safe(format_rate(box.speed.units_per_s, fleet.case.unit))}</td>'
        f'<td class="n change"><b class="{colour}">{safe(change)}</b></td>'
        f'<td class="drawn">{_plot(fleet, [box], axis)}</td>'
        f'<td class="verdict">{safe(why_of(fleet, box))}</td></tr>\n'
    )


def _plot(fleet: Fleet, boxes: Sequence[RankedBox], axis: ChangeAxis) -> str:
    """Boxes of one kind on the axis, over the middle 90 % of their kind."""
    kind = spread_of([box.overall for box in fleet.boxes if box.kind == boxes[0].kind])
    low, high = axis.at(kind.low), axis.at(kind.high)
    drawn = [f'<rect class="band" x="{low:.2f}%" width="{high - low:.2f}%" height="100%"/>{axis.grid()}']
    for box in boxes:
        colour = style_of_box(box) or "same"
        if len(boxes) == 1 and not isinstance(box.apart, Missing):
            ends = (axis.at(end) for end in box.apart)
            drawn.append(
                '<line class="interval {}" x1="{:.2f}%" x2="{:.2f}%" y1="50%" y2="50%"/>'.format(
                    colour, *ends
                )
            )
        radius = 5.5 if len(boxes) == 1 else 4
        drawn.append(
            f'<circle class="point {colour}" cx="{axis.at(box.overall):.2f}%" cy="50%" r="{radius}"/>'
        )
    return f'<svg class="plot" aria-hidden="true">{"".join(drawn)}</svg>'
