"""The picture of a run while it goes, and of one that has ended."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import groupby

from gputui.analysis.peak_tests import (
    ABOVE_LIMIT,
    BELOW_NORMAL,
    NO_REFERENCE,
    NO_VERDICT,
    NORMAL,
    Expectation,
    PeakTest,
    PerformanceCheck,
)
from gputui.analysis.statistics import Interval
from gputui.document.spans import Line, Span, line_width
from gputui.document.table import Column, Drawing, Table
from gputui.model.units import (
    axis_of_seconds,
    counted,
    format_clock,
    format_percent,
    format_rate,
    format_seconds,
)
from gputui.services.results.case_table import CaseLine, rates_table
from gputui.services.results.expected import CHECK_WORDS
from gputui.services.results.next_steps import NextStep
from gputui.services.runs.progress import Happened, ProgressSnapshot, TimedCase
from gputui.tui.screens.run.form import KEYS
from gputui.tui.screens.run.model import EndedRuns, RunModel, sentence
from gputui.tui.screens.run.panes import (
    STATE_STYLES,
    cases_so_far,
    device_charts,
    device_rows,
    device_under_test,
    host_lines,
    load_lines,
    overall,
)
from gputui.tui.widgets.cells import (
    clean,
    filled,
    fitted,
    left,
    right,
    section,
    side_by_side,
    table_lines,
    wrapped,
)
from gputui.tui.widgets.charts import area, axis_cells, body_styles, with_axis

_TALL_WHEN_ENDED, _LEAST_CHARTS = 30, 14
"""Lines of a terminal from which there are gaps, and free ones from which there are charts."""
_HIGHEST_CHART = 8
_OF_BOXES = 5
"""Normal cases that are shown beside the boxes of a reference."""
_MARGIN = "   "
_WIDEST_BAR = 40
_POINT, _RANGE, _TRACK = "●", "━", "─"
_LABELS = (50, 75, *range(100, 400, 50))
"""Of the axis of published figures, in percent."""
_Judged = tuple[PerformanceCheck, PeakTest, Expectation]


def ended_lines(model: RunModel, ended: EndedRuns, width: int, height: int) -> list[Line]:
    """At most `height` lines, scrolled as the model says."""
    lines = list(_page(ended, width, is_tall=height >= _TALL_WHEN_ENDED))
    lines += _telemetry(model.progress, width, height - len(lines))
    model.scrolled = min(model.scrolled, max(len(lines) - height, 0))
    shown = lines[model.scrolled : model.scrolled + height]
    below = len(lines) - model.scrolled - height
    if below > 0:
        more = fitted((Span(f"{_MARGIN}{counted(below + 1, 'more line')} below: arrows", "dim"),), width)
        shown[-1] = more
    return shown


def _page(ended: EndedRuns, width: int, *, is_tall: bool) -> Iterator[Line]:
    answer = list(_answer(ended, width))
    yield from answer
    gap = [fitted((), width)] if is_tall else []
    judged = [
        (check, one, one.expectation)
        for check in ended.checks
        for one in check.peak_tests
        if one.expectation is not None and one.word != NO_REFERENCE
    ]
    if judged:
        yield from gap if answer else ()
        yield from _published(ended.checks, judged, width)
    if ended.next_steps and not is_tall:  # what has no room is scrolled to
        yield from _next(ended.next_steps, width)
    measured = [row for row in ended.rows if row.rate]
    if measured:
        yield from gap if answer or judged else ()
        title = f"all {counted(len(measured), 'case')}" if len(measured) > 1 else "the case"
        yield section((Span(title, "title"),), width)
        yield from table_lines(rates_table(measured, widest_bar=_WIDEST_BAR), width, margin=len(_MARGIN))
    yield from _not_measured(ended.rows, width)
    if ended.next_steps and is_tall:
        yield from gap
        yield section((Span("next", "title"),), width)
        yield from _next(ended.next_steps, width)
    for said in ended.said:
        yield from _flowing(clean(said), width, "dim")
    if ended.wrong is None:
        yield from _flowing(f"stored in {clean(ended.target)}", width, "dim")


def _answer(ended: EndedRuns, width: int) -> Iterator[Line]:
    """What it comes to; what went wrong, if it did."""
    if ended.wrong is not None:
        yield from _flowing(clean(sentence(ended.wrong)), width, "alarm", indent=1)
        return
    words = {check.word for check in ended.checks}
    style = "alarm" if ABOVE_LIMIT in words else "warn" if BELOW_NORMAL in words else "title"
    for headline in ended.headlines:
        yield from _flowing(clean(headline), width, style, indent=1)
    if ended.status != "finished" and not ended.headlines:
        yield from _flowing(f"The run did not finish: {clean(ended.status)}.", width, "warn", indent=1)


def _telemetry(progress: ProgressSnapshot | None, width: int, room: int) -> list[Line]:
    """What the device under test did meanwhile, where there is room for charts."""
    if progress is None or device_under_test(progress) is None or room < _LEAST_CHARTS:
        return []
    rows = min((room - 3) // 2 - 1, _HIGHEST_CHART)
    return [fitted((), width), *device_charts(progress, width, rows, abreast=2)]


# The box beside its published range


def _published(checks: Sequence[PerformanceCheck], judged: Sequence[_Judged], width: int) -> Iterator[Line]:
    names = dict.fromkeys(check.device_name.removeprefix("NVIDIA ") for check, _, _ in judged)
    standings = [check.standing for check in checks if check.standing is not None and check.standing.judges]
    whose = " and ".join(dict.fromkeys(counted(one.boxes, "box") for one in standings)) or "published"
    legend = (Span("● ", "title"), Span("this box  ", "dim"), Span(f"━━ {whose}", "dim"))
    named = clean(" and ".join(names))
    words = f"{named} and {whose} of its kind" if standings else f"published figures for {named}"
    yield section((Span(words, "title"),), width, legend)
    left_out = 0
    if standings:  # a reference judges every case: the worst are shown, and how many are like them
        judged = sorted(judged, key=lambda one: (one[1].word == NORMAL, one[1].share or 0.0))
        odd = sum(test.word != NORMAL for _, test, _ in judged)
        left_out = max(len(judged) - max(odd, _OF_BOXES), 0)
    columns = _published_columns(judged[: len(judged) - left_out], "case" if standings else "peak test")
    yield from table_lines(Table(columns), width, margin=len(_MARGIN))
    if left_out:
        yield fitted((Span(f"{_MARGIN}and {counted(left_out, 'case')} more, all normal", "dim"),), width)


def _published_columns(judged: Sequence[_Judged], heading: str) -> tuple[Column | Drawing, ...]:
    many = len({check.device_index for check, _, _ in judged}) > 1
    shares = [test.units_per_s / expected.measured_low for _, test, expected in judged]
    most = [
        expected.measured_high and expected.measured_high / expected.measured_low for *_, expected in judged
    ]
    words = [CHECK_WORDS[test.word] for _, test, _ in judged]

    def draw(cells: int, beside: Sequence[Column]) -> Column:
        low = min(0.5, *(share // 0.25 * 0.25 for share in shares))
        high = max(*shares, *filter(None, most))
        axis = Axis(max(low, 0.0), max(1.25, 1.03 * high), max(cells, 8))
        drawn = [
            [range_plot(share, 1.0, end, axis, word.style)]
            for share, end, word in zip(shares, most, words, strict=True)
        ]
        return Column(axis_labels(axis), drawn)

    names = [
        Span(_label(check, test, many=many), "" if test.word in (NORMAL, NO_VERDICT) else "title")
        for check, test, _ in judged
    ]
    return (
        Column(heading, names, breaks=True),
        Column("here", [format_rate(test.units_per_s, test.unit) for _, test, _ in judged], True),
        Column("elsewhere", [Span(_elsewhere(of, test), "dim") for _, test, of in judged], priority=2),
        Drawing(draw, 8, 200, wishes=((2, 27),)),
        Column("", list(map(format_percent, shares)), True),
        Column("", words),
    )


def _label(check: PerformanceCheck, judged: PeakTest, *, many: bool) -> str:
    """The peak test, and on which of several GPUs."""
    label = clean(judged.label)
    return f"GPU {check.device_index} {label}" if many and check.device_index is not None else label


def _elsewhere(expectation: Expectation, test: PeakTest) -> str:
    """`49.8 to 53.2`, without the unit where it is that of the figure beside it; `from 380`."""
    units = (test.units_per_s, expectation.measured_low, expectation.measured_high or test.units_per_s)
    rates = [format_rate(value, test.unit) for value in units]
    if len({rate.partition(" ")[2] for rate in rates}) == 1:
        rates = [rate.partition(" ")[0] for rate in rates]
    _, low, high = rates
    if expectation.measured_high is None:
        return f"from {low}"
    return low if low == high else f"{low} to {high}"


@dataclass(frozen=True, slots=True)
class Axis:
    """What the two ends of a line of cells stand for."""

    low: float
    high: float
    cells: int

    def place(self, value: float) -> int:
        """The cell of a value; the first or the last if it lies outside."""
        share = (value - self.low) / (self.high - self.low)
        return min(max(int(share * self.cells), 0), self.cells - 1)


def range_plot(value: float, low: float, high: float | None, axis: Axis, style: str) -> tuple[Span, ...]:
    """`────●──━━━━──`: the value as a point, the range from `low` to `high`, or to the end if it is open."""
    first = axis.place(low)
    last = axis.cells - 1 if high is None else axis.place(high)
    kinds = [_RANGE if first <= cell <= last else _TRACK for cell in range(axis.cells)]
    kinds[axis.place(value)] = _POINT
    styles = {_RANGE: "dim", _TRACK: "track", _POINT: style}
    return tuple(Span("".join(cells), styles[kind]) for kind, cells in groupby(kinds))


def axis_labels(axis: Axis) -> str:
    """Labels that begin at the cells of their values; one that has no room or no value here is left out."""
    text = ""
    for percent in _LABELS:
        label, place = f"{percent} %", axis.place(percent / 100)
        is_inside = axis.low <= percent / 100 <= axis.high and place + len(label) <= axis.cells
        if is_inside and (not text or place > len(text)):
            text = text.ljust(place) + label
    return text.ljust(axis.cells)


# What was measured


def _not_measured(rows: Sequence[CaseLine], width: int) -> Iterable[Line]:
    """Each outcome and reason once, however many cases have it: without a GPU that is most of them."""
    named: dict[str, list[str]] = {}
    for row in rows:
        if not row.rate:
            named.setdefault(row.why, []).append(row.name)
    for why, names in named.items():
        style = STATE_STYLES.get(why.partition(":")[0], "dim")
        who = ", ".join(names) if len(names) == 1 or style != "dim" else counted(len(names), "case")
        yield from _flowing(f"{clean(who)}: {clean(why)}", width, style)


# What to do next


def _next(steps: Sequence[NextStep], width: int) -> Iterator[Line]:
    cells = max(len(clean(step.command)) for step in steps)
    for step in steps:
        spans = (Span(f"{_MARGIN}$ ", "dim"), Span(clean(step.command), "accent"))
        why = Span("  " + " " * (cells - len(clean(step.command))) + step.why, "dim")
        yield fitted((*spans, why) if line_width((*spans, why)) <= width else spans, width)


def _flowing(text: str, width: int, style: str, indent: int = 3) -> Iterator[Line]:
    for row in wrapped(text, width - indent - 1, 6):
        yield fitted((Span(" " * indent), Span(row, style)), width)


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
