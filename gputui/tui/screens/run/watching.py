"""The page of a run in progress: how far it is, its cases, blocks, device, and what happened."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

from gputui.analysis.statistics import Interval
from gputui.document.spans import Line, Span, line_width
from gputui.model.units import axis_of_seconds, format_clock, format_seconds
from gputui.services.runs.progress import Happened, LogTail, ProgressSnapshot, TimedCase
from gputui.tui.screens.run.panes import (
    cases_so_far,
    device_charts,
    device_rows,
    host_lines,
    load_lines,
    overall,
)
from gputui.tui.widgets.cells import clean, filled, fitted, left, log_lines, right, section, wrapped
from gputui.tui.widgets.charts import area, axis_cells, body_styles, with_axis

_TALL, _LOW = 34, 24
"""From the first height on there is room for charts of several rows, above the second for the host."""
_EVENTS = 6


def watching_lines(
    progress: ProgressSnapshot,
    into: str,
    width: int,
    height: int,
    now_ns: int,
    ends: str = "",
    scrolled: int = 0,
) -> list[Line]:
    """At most `height` lines; `ends` is the time of day at which it is expected to end, empty if unknown.

    `scrolled` is by how many cases.
    """
    is_tall = height >= _TALL
    lines = [overall(progress, width, now_ns, ends)]
    if is_tall:
        lines += [fitted((Span(f"  {clean(into)}", "dim"),), width), fitted((), width)]
    needed = 1 + len(progress.to_run) + bool(progress.not_run_line)
    hosts = host_lines(progress, width) if height > _LOW else []
    events = _EVENTS if is_tall else _EVENTS // 2
    spare = height - len(lines) - needed - len(hosts) - events  # charts take what the cases leave
    if is_tall:
        rows = min(max((spare - 7) // 2, 3), 6)
        below = [fitted((), width), *_strip(progress, width, rows, has_axis=True)]
        below += [*device_charts(progress, width, rows), *hosts]
    else:
        devices = device_rows(progress, width)
        searches = progress.load is not None and progress.load.is_open
        rows = min(max(spare - len(devices) - 3 - searches, 2), 5)
        below = [*_strip(progress, width, rows, has_axis=searches), *devices, *hosts]
    room = min(max(height - len(lines) - len(below) - events - 1, 3), needed)
    lines += [*cases_so_far(progress, width, room, scrolled)[0], *below]
    return [*lines, *_events(progress, width, max(height - len(lines), 0))]


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
    most = f" of at most {strip.most_blocks}" if strip.aim else ""
    aim = (Span(f"enough: {strip.aim}", "dim"),) if strip.aim else ()
    title = (Span(clean(strip.name), "title"), Span(f"  {launch}{most}"))
    return [section(title, width, aim), *_blocks(strip, width, rows, has_axis=has_axis)]


def _blocks(strip: TimedCase, width: int, rows: int, *, has_axis: bool) -> Iterator[Line]:
    """The rate of this launch, and its step times as columns behind those of launches before."""
    shown = _shown_blocks(strip, width - axis_cells(width) - 2)
    low, high, low_text, high_text = axis_of_seconds(min(map(min, shown)), max(map(max, shown)))
    yield _running(strip, width, begins_at_0=low == 0)
    drawn = [area([step - low for step in one], high - low, rows) for one in shown]
    bodies = map("┆".join, zip(*drawn, strict=True))
    painted = [(Span(*row),) for row in zip(bodies, body_styles("compute", rows), strict=True)]
    yield from (fitted(line, width) for line in with_axis(painted, high_text, width, low_text))
    if has_axis:
        first = len(strip.step_s) - len(shown) + 1
        names = [left(f"launch {first + place}", len(one)) for place, one in enumerate(shown)]
        yield fitted((Span(" " * axis_cells(width)), Span(" ".join(names), "dim")), width)


def _running(strip: TimedCase, width: int, *, begins_at_0: bool) -> Line:
    """`  215k tok/s ±1.4 % in this launch        76.2 ms a step, axis not from 0`."""
    sure = f"  {strip.interval.reason}" if not isinstance(strip.interval, Interval) else f"  {strip.spread} "
    where = "in this launch" if isinstance(strip.interval, Interval) else ""
    here = (Span(f"  {strip.rate}", "title"), Span(sure), Span(where, "dim"))
    note = f"{format_seconds(strip.centre_s)} a step{'' if begins_at_0 else ', axis not from 0'}"
    return fitted((*here, Span(right(note, max(width - line_width(here), 0)), "dim")), width)


def _shown_blocks(strip: TimedCase, room: int) -> list[tuple[float, ...]]:
    """Step times by launch, the oldest first; columns stay where they are while a launch goes on."""
    *earlier, newest = strip.step_s
    shown = [newest[-room:]]
    before = room - min(max(strip.most_blocks, len(newest)), room) - 1
    for one in reversed(earlier):
        if before < 1:
            break
        shown.insert(0, one[-before:])
        before -= len(shown[0]) + 1
    return shown


def _events(progress: ProgressSnapshot, width: int, height: int) -> list[Line]:
    """The newest events, newest last; of older ones warnings stay in sight."""
    if height < 2:
        return []
    lines = [section((Span("events", "title"),), width)]
    if not progress.events:
        lines.append(fitted((Span("  none so far", "dim"),), width))
    for event in _in_sight(progress.events, height - 1):
        style = {"warning": "warn", "error": "alarm"}.get(event.level, "")
        text = ("! " if style else "") + clean(event.message)
        at = Span(f"  {right(format_clock(event.at_s), 5)}  ", "dim")
        lines.append(fitted((at, Span(text, style)), width))
    return lines


def _in_sight(events: Sequence[Happened], rows: int) -> Sequence[Happened]:
    """The last ones; up to half of the room goes to the last warnings."""
    newest = list(events[-rows:])
    kept = sum(event.level != "info" for event in newest)
    warnings = [event for event in events[:-rows] if event.level != "info"]
    more = warnings[-(rows // 2 - kept) :] if rows // 2 > kept else []
    return [*more, *newest[len(more) :]]


def logs_lines(words: Sequence[LogTail], places: Iterable[object], width: int) -> Iterator[Line]:
    """What workers had written when their launch failed, and where their whole logs are."""
    if not words:
        yield (Span("  no worker has failed", "dim"),)
    for said in words:
        about = clean(f"{said.launch}: {said.outcome}{': ' if said.reason else ''}{said.reason}")
        for number, row in enumerate(wrapped(about, width - 9, 4)):
            at = "" if number else format_clock(said.at_s)
            yield (Span(f"  {at:5}", "dim"), Span(row, "warn"))
        yield from log_lines(map(clean, said.lines), width)
    for place in places:
        for row in wrapped(f"full logs, until the directory is removed: {clean(str(place))}", width - 3, 3):
            yield (Span(f"  {row}", "dim"),)
