"""Runs on several hosts: what each would measure, then a line for each while it does."""

from __future__ import annotations

from dataclasses import dataclass

from gputui.document.bars import gauge_spans
from gputui.model.units import counted, format_clock
from gputui.services.hosts.bakeoff import RUNNING, STYLES, HostStatus
from gputui.tui.terminal.lines import Line, Span
from gputui.tui.widgets.cells import clean, fitted, left, line_width, right, width_of, wrapped
from gputui.tui.widgets.lines_page import MARKER
from gputui.tui.widgets.sections import section

_MOST_NAME, _STATE, _GAUGE, _PERCENT, _LEFT, _DEVICE = 20, 14, 8, 6, 7, 24
_WIDE = 110
"""From this width on there are gauges, and the device has a column."""
_DETAIL_ROWS = 3


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
        states = [one.state for one in self.statuses]
        return ", ".join(f"{states.count(state)} {state}" for state in dict.fromkeys(states))


def plan_lines(plan: HostsPlan, width: int, height: int) -> list[Line]:
    """What would be measured where; the last lines are left out where there is no room."""
    lines = [section((Span("Hosts", "title"), Span(f"  {clean(plan.summary)}")), width)]
    name_cells = min(max((width_of(clean(name)) for name, _ in plan.rows), default=0), _MOST_NAME)
    for name, (first, *cautions) in plan.rows:
        rows = wrapped(clean(first), width - name_cells - 4, 3)
        for number, row in enumerate(rows):
            label = left(clean(name), name_cells) if number == 0 else " " * name_cells
            lines.append(fitted((Span(f"  {label}", "accent"), Span(f"  {row}")), width))
        for caution in cautions:
            for row in wrapped(clean(caution), width - name_cells - 6, 3):
                lines.append(fitted((Span(" " * (name_cells + 4)), Span(f"! {row}", "warn")), width))
    for line in plan.refused:
        lines += [fitted((Span(f"  {row}", "alarm"),), width) for row in wrapped(clean(line), width - 4, 3)]
    hidden = len(lines) - height
    if hidden > 0:
        lines = [*lines[: height - 1], fitted((Span(f"  {counted(hidden + 1, 'more line')}", "dim"),), width)]
    return lines


def progress_lines(progress: HostsProgress, selected: int, width: int, height: int) -> list[Line]:
    """A line for each host, and below it what is to be known of the selected one."""
    title = (Span("Hosts", "title"), Span(f"  {progress.summary}"))
    statuses = progress.statuses
    name_cells = min(max([4, *(width_of(clean(one.name)) for one in statuses)]), _MOST_NAME)
    detail = _detail(statuses[selected], width) if statuses else []
    room = max(height - 2 - len(detail), 1)
    longest = max((width_of(clean(one.device)) for one in statuses), default=0)
    device_cells = min(max(longest, _DEVICE), _DEVICE + (width - _WIDE) // 3) if width >= _WIDE else 0
    first = min(max(selected - room + 1, 0), max(len(statuses) - room, 0))
    shown = statuses[first : first + room]
    rows = [
        _rows(one, name_cells, device_cells, width, is_selected=first + number == selected)
        for number, one in enumerate(shown)
    ]
    if sum(map(len, rows)) > room:
        rows = [
            _rows(one, name_cells, device_cells, width, most=1, is_selected=first + number == selected)
            for number, one in enumerate(shown)
        ]
    top = [
        section(title, width, (Span(format_clock(progress.elapsed_s)),)),
        _heading(name_cells, device_cells, width),
    ]
    return [*top, *(line for each in rows for line in each), *detail]


def _heading(name_cells: int, device_cells: int, width: int) -> Line:
    device = left("DEVICE", device_cells + 2) if device_cells else ""
    done = right("DONE", _PERCENT + (_GAUGE if width >= _WIDE else 0))
    text = f"  {left('HOST', name_cells)}  {device}{left('STATE', _STATE)}{done}"
    return fitted((Span(f"{text}{right('LEFT', _LEFT)}  CASE, RATE", "dim"),), width)


def _rows(
    one: HostStatus,
    name_cells: int,
    device_cells: int,
    width: int,
    *,
    most: int = _DETAIL_ROWS,
    is_selected: bool,
) -> list[Line]:
    """The line of a host; a reason longer than its place goes on below it, in at most `most` lines."""
    done = one.share_done
    spans = [
        Span(MARKER if is_selected else "  ", "accent"),
        Span(left(clean(one.name), name_cells), "title" if is_selected else ""),
        Span("  "),
    ]
    if device_cells:
        spans.append(Span(left(clean(one.device), device_cells) + "  ", "dim"))
    spans.append(Span(left(one.state, _STATE), STYLES.get(one.state, "dim")))
    if width >= _WIDE:
        gauge = gauge_spans(100 * done, 100.0, _GAUGE, "compute") if done is not None else ()
        spans += gauge or (Span(" " * _GAUGE),)
    spans.append(Span(right("" if done is None else f"{100 * done:.0f} %", _PERCENT)))
    time_left = "" if one.left_s is None or one.state != RUNNING else format_clock(one.left_s)
    spans.append(Span(right(time_left, _LEFT) + "  "))
    if one.why:
        style = STYLES.get(one.state, "warn")
        indent = line_width(tuple(spans))
        why, *more = wrapped(clean(one.why), width - indent, most)
        below = [fitted((Span(" " * indent), Span(row, style)), width) for row in more]
        return [fitted((*spans, Span(why, style)), width), *below]
    spans += [Span(clean(one.case), "accent"), Span("  " if one.case else ""), Span(clean(one.rate))]
    if one.health:
        spans.append(Span(f"  ! {clean(one.health)}", "warn"))
    return [fitted(spans, width)]


def _detail(one: HostStatus, width: int) -> list[Line]:
    """What the line of the selected host may have no room for."""
    words = " · ".join(filter(None, (one.device, one.case, one.rate, one.why, one.health)))
    rows = wrapped(clean(words), width - 4, _DETAIL_ROWS)
    style = STYLES.get(one.state, "dim") if one.why else "dim"
    if not rows:
        return []
    return [
        section((Span(clean(one.name), "title"),), width),
        *(fitted((Span(f"  {row}", style),), width) for row in rows),
    ]
