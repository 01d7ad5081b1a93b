"""The ranking of many boxes as text and Markdown."""

from __future__ import annotations

import io
import json
import math
from collections.abc import Callable, Mapping, Sequence

from rich.console import Console
from rich.text import Text

from gputui.model.absent import Missing
from gputui.model.units import RATES, counted, format_change, format_rate, format_usd, listed
from gputui.services.compare.fleet import Box, Fleet, Kind, fleet_as_json
from gputui.services.compare.markdown import escaped
from gputui.services.support.text_tables import Page, console_on

ROWS = 20
"""Boxes that are shown where there is no room for all."""


def kind_rows(fleet: Fleet) -> tuple[list[str], list[list[str]]]:
    """Headings and a line for each kind of box."""
    has_price = any(not isinstance(kind.usd_per_million, Missing) for kind in fleet.kinds)
    rows = [
        [
            kind.name,
            str(kind.spread.boxes),
            format_rate(kind.spread.median, fleet.case.unit),
            _ends(kind, fleet.case.unit),
            *([_price(kind.usd_per_million, fleet.case.unit)] if has_price else []),
        ]
        for kind in fleet.kinds
    ]
    return ["kind", "boxes", "median", "middle 90 %", *(["cost"] if has_price else [])], rows


def _ends(kind: Kind, unit: str) -> str:
    return f"{format_rate(kind.spread.low, unit)} to {format_rate(kind.spread.high, unit)}"


def _price(usd_per_million: float | Missing, unit: str) -> str:
    """For a million units, in the unit that costs are shown in; a dash without a price."""
    if isinstance(usd_per_million, Missing):
        return "—"
    return f"{format_usd(usd_per_million)}/M {RATES[unit].noun}s"


def box_rows(fleet: Fleet, room: int | None) -> tuple[list[str], list[list[str]], int]:
    """Headings, a line for each box shown, and how many are not.

    All by rank; with less room those that stand out, slow ones first, then the fastest.
    """
    ranks = {box.name: rank for rank, box in enumerate(fleet.boxes, 1)}
    shown: Sequence[Box] = fleet.boxes
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
            _why(box),
        ]
        for box in shown
    ]
    headings = ["rank", "box", "rate", "vs its kind", "all cases", "stands out"]
    return headings, rows, len(fleet.boxes) - len(rows)


def _why(box: Box) -> str:
    if box.stands_out in ("", "slower", "faster"):
        return box.stands_out
    name, ratio = box.where[0]
    return f"{name} {format_change(ratio)}"


def write_fleet(out: Console, fleet: Fleet, shows_all: bool) -> None:
    """Headline, kinds, then as many boxes as there is room for: ROWS, or all where that is asked for."""
    page = Page(out)
    page.add(Text(fleet.headline, style="bold"))
    page.line()
    if len(fleet.kinds) > 1:
        headings, rows = kind_rows(fleet)
        page.table(headings, rows, (1, 2, 3))
        page.line()
    room = ROWS
    if out.is_terminal:
        room = max(min(ROWS, out.size.height - page.height - 4), 5)
    headings, rows, left = box_rows(fleet, None if shows_all else room)
    page.table(headings, rows, (0, 2, 3, 4))
    if fleet.unmeasured:
        page.line(
            f"not measured there: {listed(fleet.unmeasured[:5])}"
            + (" and more" if len(fleet.unmeasured) > 5 else "")
        )
    more = [f"{counted(left, 'more box')}: --all"] if left else []
    page.line("  ".join([*more, "side by side: --matrix", "as JSON: --format json"]))
    page.show()


def fleet_as_markdown(fleet: Fleet) -> str:
    """Headline, kinds and all boxes."""
    lines = [f"**{escaped(fleet.headline)}**", ""]
    headings, rows = kind_rows(fleet)
    box_headings, boxes, _ = box_rows(fleet, None)
    for titles, table in ((headings, rows), (box_headings, boxes)):
        lines += [f"| {' | '.join(titles)} |", f"|{'---|' * len(titles)}"]
        lines += [f"| {' | '.join(map(escaped, row))} |" for row in table]
        lines.append("")
    return "\n".join(lines)


def _as_text(fleet: Fleet) -> str:
    page = io.StringIO()
    write_fleet(console_on(page, 120), fleet, shows_all=True)
    return page.getvalue()


FLEET_FORMATS: Mapping[str, Callable[[Fleet], str]] = {
    "text": _as_text,
    "markdown": fleet_as_markdown,
    "json": lambda fleet: json.dumps(fleet_as_json(fleet), indent=1) + "\n",
}
"""How a ranking is written; the other formats of `compare` show sides against a baseline."""
