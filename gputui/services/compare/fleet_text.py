"""The ranking of many boxes as text, Markdown and CSV."""

from __future__ import annotations

import io
import math
from collections.abc import Sequence

from gputui.document.markdown import escaped, markdown_list, markdown_table
from gputui.document.page import Console, Page, console_on
from gputui.document.spans import Span
from gputui.document.table import Column, Table, table_of
from gputui.model.absent import Missing
from gputui.model.units import cost_unit, counted, format_change, format_rate, format_usd, listed
from gputui.services.compare.fleet import Fleet, Kind, RankedBox
from gputui.services.compare.fleet_sides import gpu_of
from gputui.services.compare.row_text import style_of_word
from gputui.services.compare.text import write_options
from gputui.services.support.csv_cells import Value, csv_text

ROWS = 20
"""Boxes that are shown where there is no room for all."""
_REASONS = 5
"""Boxes whose reasons are."""


def kind_table(fleet: Fleet) -> Table:
    """A line for each kind of box."""
    unit, many = fleet.case.unit, counted(2, fleet.noun).removeprefix("2 ")
    costs = [price_text(kind.usd_per_million, unit) for kind in fleet.kinds]
    return Table(
        (
            Column("kind", [kind.name for kind in fleet.kinds], breaks=True),
            Column(many, [str(kind.spread.boxes) for kind in fleet.kinds], True),
            Column("median", [format_rate(kind.spread.median, unit) for kind in fleet.kinds], True),
            Column("middle 90 %", [_ends(kind, unit) for kind in fleet.kinds], True, 2),
            *([Column("cost", costs, priority=1)] if set(costs) != {"—"} else []),
        )
    )


def _ends(kind: Kind, unit: str) -> str:
    return f"{format_rate(kind.spread.low, unit)} to {format_rate(kind.spread.high, unit)}"


def price_text(usd_per_million: float | Missing, unit: str) -> str:
    """For as much work as costs cents to dollars; a dash without a price."""
    if isinstance(usd_per_million, Missing):
        return "—"
    factor, amount = cost_unit(usd_per_million, unit)
    return f"{format_usd(usd_per_million * factor)} per {amount}"


def shown_boxes(fleet: Fleet, room: int | None) -> Sequence[RankedBox]:
    """All by rank; with less room those that stand out, slow ones first, then the fastest."""
    if room is None or len(fleet.boxes) <= room:
        return fleet.boxes
    order = {"slower": 0, "uneven": 1, "faster": 2}
    out = [box for box in fleet.boxes if box.stands_out]
    out.sort(key=lambda box: (order[box.stands_out], -abs(math.log(box.overall))))
    return [*out, *(box for box in fleet.boxes if not box.stands_out)][:room]


def box_table(fleet: Fleet, boxes: Sequence[RankedBox]) -> Table:
    """A line for each of these boxes."""
    ranks = {box.name: rank for rank, box in enumerate(fleet.boxes, 1)}
    rows = [
        (
            str(ranks[box.name]),
            box.name,
            format_rate(box.speed.units_per_s, fleet.case.unit),
            format_change(box.of_kind),
            format_change(box.overall),
            Span(where_of(box), style_of_box(box)),
        )
        for box in boxes
    ]
    headings = ("rank", fleet.noun, "rate", "vs its kind", "all cases", "stands out")
    return table_of(headings, rows, (0, 2, 3, 4), (1,), priorities={3: 1})


def style_of_box(box: RankedBox) -> str:
    """As a verdict of that word has it."""
    return {"uneven": "accent", "": ""}.get(box.stands_out, style_of_word(box.stands_out))


def where_of(box: RankedBox) -> str:
    """Whether it is slower or faster than its kind, or the case in which it is; empty for most."""
    if box.stands_out != "uneven":
        return box.stands_out
    name, ratio = box.where[0]
    return f"{name} {format_change(ratio)}"


def why_of(fleet: Fleet, box: RankedBox) -> str:
    """As `where_of`, with the reason."""
    why = fleet.why.get(box.name, "")
    return f"{where_of(box)}: {why}" if why else where_of(box)


def write_fleet(out: Console, fleet: Fleet, shows_all: bool) -> None:
    """Headline, kinds, then as many boxes as there is room for: ROWS, or all where that is asked for."""
    page = Page(out)
    page.line(fleet.headline, "title")
    page.line()
    if len(fleet.kinds) > 1:
        page.table(kind_table(fleet))
        page.line()
    reasons = list(fleet.why.items())[: None if shows_all else _REASONS]
    room = ROWS
    if out.is_terminal:
        below = len(reasons) + bool(fleet.unmeasured)
        room = max(min(ROWS, out.height - page.height - below - 4), 5)
    boxes = shown_boxes(fleet, None if shows_all else room)
    page.table(box_table(fleet, boxes))
    for name, why in reasons:
        page.line(why, lead=f"{name}: ")
    if fleet.unmeasured:
        page.line(
            f"not measured there: {listed(fleet.unmeasured[:5])}"
            + (" and more" if len(fleet.unmeasured) > 5 else "")
        )
    left = len(fleet.boxes) - len(boxes)
    more = [f"{counted(left, f'more {fleet.noun}')}: --all"] if left else []
    write_options(page, [*more, "side by side: --matrix", "as JSON: --format json"])
    page.show()


def fleet_as_markdown(fleet: Fleet) -> str:
    """Headline, kinds if there are several, and all boxes."""
    parts = [
        f"**{escaped(fleet.headline)}**\n",
        *([markdown_table(kind_table(fleet))] if len(fleet.kinds) > 1 else []),
        markdown_table(box_table(fleet, fleet.boxes)),
        markdown_list(f"{name}: {why}" for name, why in fleet.why.items()),
    ]
    return "\n".join(filter(None, parts))


def fleet_as_text(fleet: Fleet) -> str:
    """All boxes, as they are written to a file."""
    page = io.StringIO()
    write_fleet(console_on(page, 120), fleet, shows_all=True)
    return page.getvalue()


def fleet_as_csv(fleet: Fleet) -> str:
    """A row for each box by rank and then for those without the main case, as `csv_text` writes them."""
    rows = [_row(fleet, rank) for rank in range(len(fleet.boxes))]
    rows += [dict.fromkeys(rows[0]) | {"name": name} for name in fleet.unmeasured]
    return csv_text((rows[0], *(row.values() for row in rows)))


def _row(fleet: Fleet, place: int) -> dict[str, Value]:
    box = fleet.boxes[place]
    gpu = gpu_of(box.side)
    apart = (None, None) if isinstance(box.apart, Missing) else box.apart
    usd = box.usd_per_million
    return {
        "rank": place + 1,
        "name": box.name,
        "kind": box.kind,
        "machine": box.side.run.machine.machine_id,
        "device_index": None if gpu is None else gpu.index,
        "run": box.side.run.short_id,
        **fleet.case.identity(),
        "units_per_s": box.speed.units_per_s,
        "units_per_s_low": box.speed.low,
        "units_per_s_high": box.speed.high,
        "of_kind": box.of_kind,
        "overall": box.overall,
        "overall_low": apart[0],
        "overall_high": apart[1],
        "cases": box.cases,
        "stands_out": box.stands_out,
        "where": "; ".join(f"{name} {ratio:.4f}" for name, ratio in box.where),
        "why": fleet.why.get(box.name, ""),
        "usd_per_million": None if isinstance(usd, Missing) else usd,
    }
