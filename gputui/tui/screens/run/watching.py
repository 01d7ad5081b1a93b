"""A run in progress: how far it is, what it measured, the blocks as they come, and the device under test."""

from __future__ import annotations

from collections.abc import Sequence

from gputui.analysis.statistics import Interval
from gputui.model.units import axis_of_seconds, counted, format_clock, format_seconds
from gputui.services.runs.progress import Happened, ProgressSnapshot, TimedCase
from gputui.tui.screens.run.actions import KEYS
from gputui.tui.screens.run.cases_pane import cases_so_far, overall
from gputui.tui.screens.run.devices_pane import device_charts, device_rows, host_lines
from gputui.tui.screens.run.load_pane import load_lines
from gputui.tui.screens.run.model import RunModel
from gputui.tui.terminal.lines import Line, Span
from gputui.tui.widgets.cells import clean, filled, fitted, left, line_width, right, side_by_side
from gputui.tui.widgets.charts import area, axis_cells, body_styles, with_axis
from gputui.tui.widgets.sections import section

_TALL, _LOW, _WIDE, _VERY_WIDE = 34, 24, 110, 170
"""From the first height on there is room for charts of several rows, above the second for the host; from the
first width on for gauges in the table, from the second on for the devices beside it."""
_EVENTS = 6


def watching(model: RunModel, width: int, height: int, now_ns: int, ends: str = "") -> list[Line]:
    """At most `height` lines; `ends` is the time of day at which it is expected to end, empty if unknown."""
    watched, progress = model.watched, model.progress
    if watched is None or progress is None:
        return [
            section((Span("Run", "title"),), width),
            fitted((Span("  reading its journal ...", "dim"),), width),
        ]
    is_tall = height >= _TALL
    lines = [overall(progress, width, now_ns, ends)]
    others = len(model.in_progress) - 1
    if others > 0:
        more = f"  {counted(others, 'more run')} in progress: {KEYS['next']} shows the next"
        lines.append(fitted((Span(more, "warn"),), width))
    if is_tall:
        into = f"  into {clean(watched.target)}"
        into += f" with {clean(watched.with_python)}" if watched.with_python else ""
        lines += [fitted((Span(into, "dim"),), width), fitted((), width)]
    if is_tall and width >= _VERY_WIDE:
        return [*lines, *_two_columns(model, progress, width, height - len(lines))]
    needed = 1 + len(progress.to_run) + bool(progress.not_run_line)
    hosts = host_lines(progress, width)
    # charts take what the cases leave
    if not is_tall:
        events = _EVENTS // 2
        devices = [*device_rows(progress, width), *(hosts if height > _LOW else [])]
        searches = progress.load is not None and progress.load.is_open
        spare = height - len(lines) - needed - len(devices) - events - 3 - searches
        below = [*_strip(progress, width, min(max(spare, 2), 5), has_axis=searches), *devices]
    else:
        events = _EVENTS
        spare = height - len(lines) - needed - len(hosts) - events - 7
        rows = min(max(spare // 2, 3), 6)
        strip = _strip(progress, width, rows, has_axis=True)
        below = [fitted((), width), *strip, *device_charts(progress, width, rows), *hosts]
    rows = min(max(height - len(lines) - len(below) - events - 1, 3), needed)
    lines += [*_cases(model, progress, width, rows), *below]
    return [*lines, *_events(progress, width, max(height - len(lines), 0))]


def _two_columns(model: RunModel, progress: ProgressSnapshot, width: int, height: int) -> list[Line]:
    """Cases, blocks and events on the left, the devices on the right."""
    beside = 66
    room = width - beside - 3
    needed = 1 + len(progress.to_run) + bool(progress.not_run_line)
    spare = (
        height - needed - 2 * _EVENTS - 5
    )  # not what the events leave: the chart would shrink as they come
    strip = _strip(progress, room, min(max(spare, 5), 10), has_axis=True)
    rows = min(needed, height - len(strip) - 10)
    mine = [*_cases(model, progress, room, rows), fitted((), room), *strip]
    mine = filled([*mine, *_events(progress, room, height - len(mine))], room, height)
    hosts = host_lines(progress, beside, 3)
    chart_rows = max((height - 2 - len(hosts)) // 5 - 1, 2)
    theirs = [*device_charts(progress, beside, min(chart_rows, 7), abreast=1), *hosts]
    theirs = filled(theirs, beside, height)
    return side_by_side([mine, theirs], width, 3)


def _cases(model: RunModel, progress: ProgressSnapshot, width: int, rows: int) -> list[Line]:
    lines, model.scrolled = cases_so_far(progress, width, rows, model.scrolled)
    return lines


# The blocks


def _strip(progress: ProgressSnapshot, width: int, rows: int, *, has_axis: bool) -> list[Line]:
    """The blocks of the case that is timed, or the load that is offered; as many lines while none is."""
    if progress.load is not None:
        return load_lines(progress.load, width, rows, has_axis=has_axis)
    strip = progress.strip
    if strip is None:
        words = "storing what was measured" if progress.is_storing else "no block has been timed yet"
        lines = [section((Span("blocks", "title"),), width), fitted((Span(f"  {words}", "dim"),), width)]
        return filled(lines, width, 2 + rows + has_axis)
    launch = f"launch {len(strip.step_s)} of {strip.launches}, block {strip.blocks}"
    most = f" of at most {strip.most_blocks}" if strip.aim and width >= _WIDE else ""
    title = (Span(clean(strip.name), "title"), Span(f"  {launch}{most}"))
    aim = (Span(f"enough: {strip.aim}", "dim"),) if strip.aim else ()
    shown = _shown_blocks(strip, width - axis_cells(width) - 2)
    ends = axis_of_seconds(min(map(min, shown)), max(map(max, shown)))
    chart = _blocks(strip, shown, ends, width, rows, has_axis=has_axis)
    return [section(title, width, aim), _running(strip, width, begins_at_0=ends[0] == 0), *chart]


def _running(strip: TimedCase, width: int, *, begins_at_0: bool) -> Line:
    """`  215k tok/s ±1.4 % in this launch        a step: 76.2 ms; its axis does not begin at 0`."""
    sure: Sequence[Span]
    if isinstance(strip.interval, Interval):
        sure = (Span(f"  {strip.spread} "), Span("in this launch", "dim"))
    else:
        sure = (Span(f"  {strip.interval.reason}", "dim"),)
    here = (Span(f"  {strip.rate}", "title"), *sure)
    room = width - line_width(here)
    note = f"step time, median {format_seconds(strip.centre_s)}"
    note += "" if begins_at_0 else "; its axis does not begin at 0"
    if len(note) + 2 > room:
        note = f"{format_seconds(strip.centre_s)} a step{'' if begins_at_0 else ', axis not from 0'}"
    return fitted((*here, Span(right(note, room) if len(note) + 2 <= room else "", "dim")), width)


def _shown_blocks(strip: TimedCase, room: int) -> list[tuple[float, ...]]:
    """Step times by launch, the oldest first; columns stay where they are while a launch goes on."""
    *earlier, step_s = strip.step_s
    step_s = step_s[_dropped(len(step_s), room) :]
    before = room - min(max(strip.most_blocks, len(step_s)), room) - 1
    shown = [step_s]
    for one in reversed(earlier):
        if before < 1:
            break
        shown.insert(0, one[-before:])
        before -= len(shown[0]) + 1
    return shown


def _blocks(
    strip: TimedCase,
    shown: Sequence[Sequence[float]],
    ends: tuple[float, float, str, str],
    width: int,
    rows: int,
    *,
    has_axis: bool,
) -> list[Line]:
    """Step times as columns, launches side by side, between the ends of an axis."""
    low, high, low_text, high_text = ends
    drawn = [area([step - low for step in one], high - low, rows) for one in shown]
    bodies = map("┆".join, zip(*drawn, strict=True))
    painted = [(Span(*row),) for row in zip(bodies, body_styles("compute", rows), strict=True)]
    lines = with_axis(painted, high_text, width, low_text)
    if has_axis:
        labels = [f"launch {len(strip.step_s) - place}" for place in reversed(range(len(shown)))]
        names = [
            left(label if len(one) > len(label) else "", len(one))
            for label, one in zip(labels, shown, strict=True)
        ]
        lines.append((Span(" " * axis_cells(width)), Span(" ".join(names), "dim")))
    return [fitted(line, width) for line in lines]


def _dropped(count: int, room: int) -> int:
    """How many of the oldest are left out: a quarter of the room at a time, so that columns seldom move."""
    step = max(room // 4, 1)
    return max(-(-(count - room) // step) * step, 0)


# What happened


def _events(progress: ProgressSnapshot, width: int, height: int) -> list[Line]:
    """The newest events, newest last; of older ones warnings stay in sight."""
    if height < 2:
        return []
    lines = [section((Span("events", "title"),), width)]
    if not progress.events:
        lines.append(fitted((Span("  none so far", "dim"),), width))
    for event in _in_sight(progress.events, height - 1):
        style = {"warning": "warn", "error": "alarm"}.get(event.level, "")
        mark = "! " if style else ""
        lines.append(
            fitted(
                (
                    Span(f"  {right(format_clock(event.at_s), 5)}  ", "dim"),
                    Span(mark + clean(event.message), style),
                ),
                width,
            )
        )
    return lines


def _in_sight(events: Sequence[Happened], rows: int) -> Sequence[Happened]:
    """The last ones; up to half of the room goes to the last warnings."""
    newest = list(events[-rows:])
    warnings = [event for event in events[:-rows] if event.level != "info"]
    kept = sum(event.level != "info" for event in newest)
    more = warnings[max(len(warnings) - max(rows // 2 - kept, 0), 0) :] if rows // 2 > kept else []
    return [*more, *newest[len(more) :]]
