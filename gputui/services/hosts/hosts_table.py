"""Hosts while they are measured, as the table that `gputui bakeoff` draws."""

from __future__ import annotations

from collections.abc import Sequence

from gputui.document.drawings import gauge_spans
from gputui.document.spans import Line, Span, cut, wrapped
from gputui.document.table import Column, Table
from gputui.model.units import format_clock
from gputui.services.hosts.bakeoff import LOST, RUNNING, STYLES, HostStatus
from gputui.store.text import clean_text

_MOST_NAME, _GAUGE = 24, 8
_FIGURES, _LEAST_ROOM = 33, 16
"""Cells of the columns between a name and what is measured, without those that may go."""
_WIDE = 100
"""From this width on there is room for devices and gauges."""


def hosts_table(statuses: Sequence[HostStatus], width: int, most: int | None = None) -> Table:
    """A row for each host, in at most so many lines; what goes wrong there may need several."""
    names = [cut(clean_text(one.name), _MOST_NAME) for one in statuses]
    devices = [cut(clean_text(one.device), width // 4) for one in statuses]
    beside = max(map(len, devices), default=0) + _GAUGE + 4 if width >= _WIDE else 0
    room = max(width - max(map(len, names), default=0) - _FIGURES - beside, _LEAST_ROOM)
    gauges = [
        [() if one.share_done is None else gauge_spans(one.share_done, 1.0, _GAUGE, "compute")]
        for one in statuses
    ]
    done = ["" if one.share_done is None else f"{100 * one.share_done:.0f} %" for one in statuses]
    lefts = [
        "" if one.left_s is None or one.state != RUNNING else format_clock(one.left_s) for one in statuses
    ]
    return Table(
        (
            Column("HOST", names),
            Column("DEVICE", [Span(device, "dim") for device in devices], priority=2),
            Column(f"{'STATE':13}", [Span(one.state, STYLES.get(one.state, "dim")) for one in statuses]),
            Column("", gauges, priority=1),
            Column(f"{'DONE':>5}", done, True),
            Column(f"{'LEFT':>5}", lefts, True, priority=0.5),
            Column("CASE, RATE", [_latest(one, room, most) for one in statuses]),
        )
    )


def _latest(one: HostStatus, room: int, most: int | None) -> Sequence[Line]:
    """What went wrong, else what is measured, and what to look at there if there is room."""
    silent = f"heard {format_clock(one.silent_s)} ago" if one.state == LOST else ""
    now = "  ".join(filter(None, (silent, clean_text(one.case), clean_text(one.rate))))
    health = f"! {clean_text(one.health)}" if one.health else ""
    if one.why:
        texts = [(clean_text(one.why), STYLES.get(one.state, "warn"))]
    elif len(now) + len(health) + 2 <= room:
        return [(Span(now, "accent"), Span(f"  {health}", "warn"))]
    else:
        texts = [(now, "accent"), (health, "warn")]
    rows = [(row, style) for text, style in texts for row in wrapped(text, room - 1) if row]
    if most is not None and len(rows) > most:
        row, style = rows[most - 1]
        rows = [*rows[: most - 1], (row if row == now else f"{row}…", style)]
    return [(Span(row, style),) for row, style in rows]
