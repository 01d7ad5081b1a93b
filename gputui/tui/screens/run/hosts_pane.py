"""Runs on several hosts: what each would measure, then a line for each while it does."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass

from gputui.document.spans import Line, Span, cut, width_of
from gputui.document.table import Column, Table
from gputui.model.units import counted, format_clock
from gputui.services.hosts.bakeoff import STYLES, HostStatus
from gputui.services.hosts.hosts_table import hosts_table
from gputui.tui.widgets.cells import clean, fitted, section, table_lines, wrapped

_MOST_NAME, _DETAIL_ROWS = 20, 3


@dataclass(frozen=True, slots=True)
class HostsPlan:
    """Hosts that were asked, before anything is started."""

    summary: str
    """Profile, hosts, time and cost."""
    rows: tuple[tuple[str, tuple[str, ...]], ...]
    """Of each host that can be measured its name, what it is, and what would disturb it."""
    refused: tuple[str, ...]
    """A line for each host that cannot."""


@dataclass(frozen=True, slots=True)
class HostsProgress:
    """Hosts at one moment, while they measure or after."""

    name: str
    """Of the bakeoff, for `gputui attach`."""
    statuses: tuple[HostStatus, ...]
    elapsed_s: float
    """Since it is watched."""
    is_over: bool = False
    selectors: tuple[str, ...] = ()
    """What to compare, `FILE@RUN` of each that was stored; empty while it goes on."""

    @property
    def summary(self) -> str:
        """`2 running, 1 done`."""
        states = Counter(one.state for one in self.statuses)
        return ", ".join(f"{count} {state}" for state, count in states.items())


def plan_lines(plan: HostsPlan, width: int, height: int) -> list[Line]:
    """What would be measured where; the last lines are left out where there is no room."""
    names = [Span(cut(clean(name), _MOST_NAME), "accent") for name, _ in plan.rows]
    room = width - 4 - max((width_of(name.text) for name in names), default=0)
    texts = [
        [
            *((Span(row),) for row in wrapped(clean(first), room, 3)),
            *((Span(f"! {row}", "warn"),) for one in more for row in wrapped(clean(one), room - 2, 3)),
        ]
        for _, (first, *more) in plan.rows
    ]
    table = Table((Column("", names), Column("", texts)))
    lines = [section((Span("Hosts", "title"), Span(f"  {clean(plan.summary)}")), width)]
    lines += table_lines(table, width, folds=True, has_headings=False)
    for line in plan.refused:
        lines += [fitted((Span(f"  {row}", "alarm"),), width) for row in wrapped(clean(line), width - 4, 3)]
    hidden = len(lines) - height
    if hidden > 0:
        lines = [*lines[: height - 1], fitted((Span(f"  {counted(hidden + 1, 'more line')}", "dim"),), width)]
    return lines


def progress_lines(progress: HostsProgress, selected: int, width: int, height: int) -> list[Line]:
    """A row for each host, and below them what is to be known of the selected one."""
    statuses = progress.statuses
    detail = _detail(statuses[selected], width) if statuses else []
    room = max(height - 2 - len(detail), 1)
    first = min(max(selected - room + 1, 0), max(len(statuses) - room, 0))
    shown = statuses[first : first + room]
    marks = [one is statuses[selected] for one in shown]
    for most in (_DETAIL_ROWS, 1):
        table = list(table_lines(hosts_table(shown, width, most), width, marks=marks, folds=True))
        if len(table) <= room + 1:
            break
    title = (Span("Hosts", "title"), Span(f"  {progress.summary}"))
    return [section(title, width, (Span(format_clock(progress.elapsed_s)),)), *table, *detail]


def _detail(one: HostStatus, width: int) -> list[Line]:
    """What the row of the selected host may have no room for."""
    words = " · ".join(filter(None, (one.device, one.case, one.rate, one.why, one.health)))
    rows = wrapped(clean(words), width - 4, _DETAIL_ROWS)
    style = STYLES.get(one.state, "dim") if one.why else "dim"
    lines = [fitted((Span(f"  {row}", style),), width) for row in rows]
    return [section((Span(clean(one.name), "title"),), width), *lines] if lines else []
