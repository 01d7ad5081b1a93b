"""The ranking of many boxes as text and Markdown."""

from __future__ import annotations

import io
import math
from collections.abc import Sequence

from rich.console import Console
from rich.text import Text

from gputui.model.absent import Missing
from gputui.model.units import cost_unit, counted, format_change, format_rate, format_usd, listed
from gputui.services.compare.fleet import Fleet, Kind, RankedBox
from gputui.services.compare.markdown import escaped
from gputui.services.support.text_tables import Page, console_on

ROWS = 20
"""Boxes that are shown where there is no room for all."""
_REASONS = 5
"""Boxes whose reasons are."""


def kind_rows(fleet: Fleet) -> tuple[list[str], list[list[str]]]:
    """Headings and a line for each kind of box."""
    has_price = any(not isinstance(kind.usd_per_million, Missing) for kind in fleet.kinds)
    rows = [
        [
            kind.name,
            str(kind.spread.boxes),
            format_rate(kind.spread.median, fleet.case.unit),
            _ends(kind, fleet.case.unit),
            *([price_text(kind.usd_per_million, fleet.case.unit)] if has_price else []),
        ]
        for kind in fleet.kinds
    ]
    return [
        "kind",
        counted(2, fleet.noun).removeprefix("2 "),
        "median",
        "middle 90 %",
        *(["cost"] if has_price else []),
    ], rows


def _ends(kind: Kind, unit: str) -> str:
    return f"{format_rate(kind.spread.low, unit)} to {format_rate(kind.spread.high, unit)}"


def price_text(usd_per_million: float | Missing, unit: str) -> str:
    """For as much work as costs cents to dollars; a dash without a price."""
    if isinstance(usd_per_million, Missing):
        return "—"
    factor, amount = cost_unit(usd_per_million, unit)
    return f"{format_usd(usd_per_million * factor)} per {amount}"


def box_rows(fleet: Fleet, room: int | None) -> tuple[list[str], list[list[str]], int]:
    """Headings, a line for each box shown, and how many are not.

    All by rank; with less room those that stand out, slow ones first, then the fastest.
    """
    ranks = {box.name: rank for rank, box in enumerate(fleet.boxes, 1)}
    shown: Sequence[RankedBox] = fleet.boxes
    if room is not None and len(shown) > room:
        order = {"slower": 0, "uneven": 1, "faster": 2}
        out = [box for box in fleet.boxes if box.stands_out]
        out.sort(key=lambda box: (order[box.stands_out], -abs(math.log(box.overall))))
        rest = [box for box in fleet.boxes if not box.stands_out]
        shown = [*out, *rest][:room]
    rows = [
        [
            str(ranks[box.name]),
            box.name,
            format_rate(box.speed.units_per_s, fleet.case.unit),
            format_change(box.of_kind),
            format_change(box.overall),
            where_of(box),
        ]
        for box in shown
    ]
    headings = ["rank", fleet.noun, "rate", "vs its kind", "all cases", "stands out"]
    return headings, rows, len(fleet.boxes) - len(rows)


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
    page.add(Text(fleet.headline, style="bold"))
    page.line()
    if len(fleet.kinds) > 1:
        headings, rows = kind_rows(fleet)
        page.table(headings, rows, (1, 2, 3))
        page.line()
    reasons = list(fleet.why.items())[: None if shows_all else _REASONS]
    room = ROWS
    if out.is_terminal:
        below = len(reasons) + bool(fleet.unmeasured)
        room = max(min(ROWS, out.size.height - page.height - below - 4), 5)
    headings, rows, left = box_rows(fleet, None if shows_all else room)
    page.table(headings, rows, (0, 2, 3, 4))
    for name, why in reasons:
        page.line(f"{name}: {why}")
    if fleet.unmeasured:
        page.line(
            f"not measured there: {listed(fleet.unmeasured[:5])}"
            + (" and more" if len(fleet.unmeasured) > 5 else "")
        )
    more = [f"{counted(left, f'more {fleet.noun}')}: --all"] if left else []
    page.line("  ".join([*more, "side by side: --matrix", "as JSON: --format json"]))
    page.show()


def fleet_as_markdown(fleet: Fleet) -> str:
    """Headline, kinds if there are several, and all boxes."""
    lines = [f"**{escaped(fleet.headline)}**", ""]
    box_headings, boxes, _ = box_rows(fleet, None)
    tables = [kind_rows(fleet)] if len(fleet.kinds) > 1 else []
    for titles, table in (*tables, (box_headings, boxes)):
        lines += [f"| {' | '.join(titles)} |", f"|{'---|' * len(titles)}"]
        lines += [f"| {' | '.join(map(escaped, row))} |" for row in table]
        lines.append("")
    lines += [f"- {escaped(f'{name}: {why}')}" for name, why in fleet.why.items()]
    return "\n".join(lines).rstrip() + "\n"


def fleet_as_text(fleet: Fleet) -> str:
    """All boxes, as they are written to a file."""
    page = io.StringIO()
    write_fleet(console_on(page, 120), fleet, shows_all=True)
    return page.getvalue()
