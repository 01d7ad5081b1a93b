"""A run on one axis of time: what was timed, and in lanes below it what the box did meanwhile."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache, reduce
from operator import or_

from gputui.document.drawings import PATTERNS
from gputui.document.spans import Line, Span
from gputui.document.theme import FAMILIES, SELECTED, TONES
from gputui.metrics import charted, limits_of
from gputui.model.absent import Missing
from gputui.model.journal import Block
from gputui.model.result import CaseResult, Measurement
from gputui.model.telemetry import HOST, POWER_CAP
from gputui.model.units import format_clock, format_percent, format_seconds
from gputui.services.results.browser import RunDetail, breakdown_for
from gputui.services.results.labels import launch_number, plain_name
from gputui.services.results.throughput import CROWDED_SHARE
from gputui.store.reading import SLOWED_BITS, MeasuredSpan, TelemetrySeries
from gputui.tui.screens.results.overview import largest_operators, main_series, step_lines
from gputui.tui.screens.results.pages import not_sampled
from gputui.tui.screens.results.tables import launch_lines
from gputui.tui.widgets.cells import fitted, left, right, section
from gputui.tui.widgets.charts import area, body_styles

LEAST_US = 1_000_000
"""The shortest part: samples are at least a tenth of a second apart."""
BETWEEN_READINGS_US = 1_500_000
"""Readings so far outside of a part tell what its ends were like: outside of blocks there is one a second."""
_MARGIN = 0.05
"""Around a span that is jumped to, as a share of it."""

_ALL_BUT = 0.999
"""From this share of the whole on, all of it is shown, so that doubling ends at the whole."""


@dataclass(frozen=True, slots=True)
class TimeWindow:
    """A part of the whole, never beyond its ends; all in UTC epoch microseconds."""

    whole_from_us: int
    whole_to_us: int
    from_us: int
    to_us: int
    cursor_us: int

    @classmethod
    def over_all(cls, series: Sequence[TelemetrySeries], spans: Sequence[MeasuredSpan] = ()) -> TimeWindow:
        """The whole of what was sampled and timed, of which there is some; at least LEAST_US long.

        The cursor is in the middle of what was timed then, if anything was.
        """
        first_us = min([s.first_us for s in series] + [s.first_utc_us for s in spans])
        lasts_us = [s.t_us[-1] for s in series] + [s.last_utc_us for s in spans]
        last_us = max(*lasts_us, first_us + LEAST_US)
        middle = spans[len(spans) // 2] if spans else MeasuredSpan(0, 0, first_us, last_us)
        cursor_us = (middle.first_utc_us + middle.last_utc_us) // 2
        return cls(first_us, last_us, first_us, last_us, cursor_us)

    @property
    def span_us(self) -> int:
        return self.to_us - self.from_us

    @property
    def is_whole(self) -> bool:
        return (self.from_us, self.to_us) == (self.whole_from_us, self.whole_to_us)

    def zoomed(self, factor: float) -> TimeWindow:
        """This many times as long, with the cursor at the same place on the screen."""
        span_us = max(round(self.span_us * factor), LEAST_US)
        if factor > 1 and span_us >= _ALL_BUT * (self.whole_to_us - self.whole_from_us):
            return self.whole()
        before_us = round((self.cursor_us - self.from_us) * span_us / self.span_us)
        return self._placed(self.cursor_us - before_us, span_us)

    def moved(self, share: float) -> TimeWindow:
        """Moved by a share of its length, positive for later; the cursor moves with it."""
        step_us = round(self.span_us * share)
        return replace(self, cursor_us=self.cursor_us + step_us)._placed(self.from_us + step_us, self.span_us)

    def stepped(self, share: float) -> TimeWindow:
        """The cursor moved by a share of the length, positive for later; past an end the window follows."""
        wanted_us = self.cursor_us + round(self.span_us * share)
        cursor_us = min(max(wanted_us, self.whole_from_us), self.whole_to_us)
        there = replace(self, cursor_us=cursor_us)
        if self.from_us <= cursor_us <= self.to_us:
            return there
        return there._placed(cursor_us - self.span_us // 2, self.span_us)

    def at(self, share: float) -> TimeWindow:
        """The cursor at a share of the window, from its left."""
        return replace(self, cursor_us=self.from_us + round(self.span_us * min(max(share, 0.0), 1.0)))

    def between(self, first_us: int, last_us: int) -> TimeWindow:
        """From one instant to another, the cursor at the first."""
        first_us = min(max(first_us, self.whole_from_us), self.whole_to_us)
        return replace(self, cursor_us=first_us)._placed(first_us, max(last_us - first_us, LEAST_US))

    def over(self, span: MeasuredSpan) -> TimeWindow:
        """A whole span with a small margin, the cursor at its beginning."""
        margin_us = round((span.last_utc_us - span.first_utc_us) * _MARGIN)
        shown = self.between(span.first_utc_us - margin_us, span.last_utc_us + margin_us)
        return replace(shown, cursor_us=min(max(span.first_utc_us, shown.from_us), shown.to_us))

    def whole(self) -> TimeWindow:
        """All of it; the cursor stays."""
        return replace(self, from_us=self.whole_from_us, to_us=self.whole_to_us)

    def next_span(self, spans: Sequence[MeasuredSpan], step: int) -> TimeWindow:
        """The next of these spans after the cursor, or the one before it, wrapping around."""
        firsts = sorted(spans, key=lambda span: span.first_utc_us)
        if step > 0:
            found = next((s for s in firsts if s.first_utc_us > self.cursor_us), firsts[0])
        else:
            before = [s for s in firsts if s.first_utc_us < self.cursor_us]
            found = (before or firsts)[-1]
        return self.over(found)

    def _placed(self, from_us: int, span_us: int) -> TimeWindow:
        span_us = min(span_us, self.whole_to_us - self.whole_from_us)
        from_us = min(max(from_us, self.whole_from_us), self.whole_to_us - span_us)
        cursor_us = min(max(self.cursor_us, from_us), from_us + span_us)
        return replace(self, from_us=from_us, to_us=from_us + span_us, cursor_us=cursor_us)


LEAD, _VALUE = 19, 10
"""Cells of a lane's name and axis, and of its value at the cursor."""
_SCROLLBAR = 1
_LEAST_CELLS = 8
_HELD = SLOWED_BITS | POWER_CAP
_HIGHEST = 3
"""Rows of a chart, at most; two at least, for the ends of its axis. Where there are more, one stays empty."""
_LEAST_TICK = 10
"""Cells from one time of the axis to the next, at least."""
_TICKS_S = (0.1, 0.2, 0.5, 1, 2, 5, 10, 20, 30, 60, 120, 300, 600, 1800, 3600, 7200, 21600, 86400)
_AROUND_CHARTS = 7
"""Rows of the cursor, the whole run, the axis, the cases, their precisions, and two lanes that are lines."""
PINNED = 5
"""Rows of the cursor, the whole run, the axis and what was timed, which stay where the page is scrolled."""
_OPENED = 9
"""Rows for the case at the cursor, a step and its launches, before charts are higher than they must be."""


def lane_cells(width: int) -> int:
    """How many cells a lane has on a page of this width."""
    return max(width - LEAD - _VALUE - _SCROLLBAR, _LEAST_CELLS)


def share_at(x: int, width: int) -> float:
    """The share of the lanes to the left of a cell's centre; below 0 or above 1 outside."""
    return (x - LEAD + 0.5) / lane_cells(width)


@dataclass(frozen=True, slots=True)
class _Timed:
    """One block on the axis."""

    case_id: int
    first_us: int
    last_us: int
    speed_pct: float
    """Of the fastest block of its case."""
    waited: float
    """Share of their time that its threads waited for a CPU."""
    words: str
    """Which block of its launch it is, and how long a step took."""


def timeline(
    detail: RunDetail, series: Sequence[TelemetrySeries], window: TimeWindow, width: int, height: int
) -> tuple[Line, ...]:
    """The part of a run within a window, `width` cells wide; lanes are as high as `height` rows allow.

    `series` has the telemetry of that part.
    """
    cells = lane_cells(width)
    cursor = min(_cell_of(window.cursor_us, window, cells), cells - 1)
    timed, block = _blocks(detail), _block_at(detail, window)
    here = at_cursor(detail, window)
    moment = _moment(window.cursor_us - window.whole_from_us)
    lines: list[Line] = [
        fitted((Span(f"cursor {moment}", "title"), Span(f"   {_slice_words(detail, here, block)}")), width),
        _whole_line(window, cells),
        (Span(f"{'time':{LEAD}}{_ticks(window, cells):{cells}}{'at cursor':>{_VALUE}}", "dim"),),
    ]
    for name, texts in _slices(detail):
        lines.append((Span(f"{name:{LEAD}}", "dim"), *_slice_lane(texts, here, window, cells)))
    main = main_series(detail)
    shown = sorted(
        series, key=lambda one: (main is None or one.device_index != main.device_index, one.device_index)
    )
    lanes = sum(len(charted(one.device_index)) for one in shown[:1]) + bool(timed)
    each = (height - _AROUND_CHARTS - _OPENED) // max(lanes, 1)
    rows = min(max(each, 2), _HIGHEST)
    gap: list[Line] = [()] if each > rows else []

    def charts_of(one: TelemetrySeries) -> Iterator[Line]:
        for lane in _telemetry_lanes(detail, one, window, cells, rows, cursor):
            yield from (*lane, *gap)

    if timed:
        speeds = _by_cell(timed, window, cells, lambda one: one.speed_pct, min)
        text = "–" if (value := speeds[cursor]) is None else f"{value:.0f} %"
        lines += _lane("speed", "100 %", text, speeds, 100.0, "power", rows, cursor)
        lines.append(_other_programs(timed, block, window, cells, cursor))
    for one in shown[:1]:
        lines += [*_slowed(main, one, window, cells, cursor), *gap, *charts_of(one)]
    lines += () if detail.series else not_sampled(width)
    lines += _opened(detail, here, width - _SCROLLBAR, height - len(lines))
    for one in shown[1:]:
        title = "host" if one.device_index == HOST else f"GPU {one.device_index}"
        lines += [section((Span(title, "title"),), width), *charts_of(one)]
    return tuple(lines)


@lru_cache(maxsize=8)
def _blocks(detail: RunDetail) -> tuple[_Timed, ...]:
    """The blocks of a run that are on its axis."""
    spans = {(span.case_id, span.launch_id): span for span in detail.spans}
    found = []
    for case in detail.run.cases:
        steps_ns = [block.block_ns / block.steps for m in case.measurements for block in m.blocks]
        for measurement in case.measurements:
            span = spans.get((case.case_id, measurement.launch_id))
            if span is None:
                continue
            for block in measurement.blocks:
                first_us = span.first_utc_us + (block.start_ns - measurement.blocks[0].start_ns) // 1000
                found.append(
                    _Timed(
                        case.case_id,
                        first_us,
                        first_us + block.wall_ns // 1000,
                        100 * min(steps_ns) / (block.block_ns / block.steps),
                        (block.waited_ns or 0) / max(block.thread_ns, 1),
                        _block_words(case, measurement, block),
                    )
                )
    return tuple(found)


def _block_words(case: CaseResult, measurement: Measurement, block: Block) -> str:
    """`, block 3 of 6: 20.0 ms a step`; nothing for a load, which lasts as long as it shall."""
    if not case.case.has_steps:
        return ""
    number = "" if case.case.is_whole else f", block {block.index + 1} of {len(measurement.blocks)}"
    return f"{number}: {format_seconds(block.block_ns / block.steps / 1e9)} a step"


def _block_at(detail: RunDetail, window: TimeWindow) -> _Timed | None:
    """The block that was timed at the cursor."""
    at_us = window.cursor_us
    return next((one for one in _blocks(detail) if one.first_us <= at_us <= one.last_us), None)


# What was timed


def at_cursor(detail: RunDetail, window: TimeWindow) -> list[MeasuredSpan]:
    """What was timed at the cursor: cases that one launch interleaved, the one whose block it was first."""
    found = [one for one in detail.spans if one.first_utc_us <= window.cursor_us <= one.last_utc_us]
    block = _block_at(detail, window)
    return sorted(found, key=lambda one: (block is None or one.case_id != block.case_id, one.case_id))


def _slice_words(detail: RunDetail, here: Sequence[MeasuredSpan], block: _Timed | None) -> str:
    """`gemm fp32, launch 2, block 3 of 6: 20.0 ms a step`; all precisions of a launch between its blocks."""
    cases = {case.case_id: case for case in detail.run.cases}
    timed = [cases[one.case_id] for one in here if one.case_id in cases][: None if block is None else 1]
    if not timed:
        return "nothing was timed"
    precisions = " and ".join(dict.fromkeys(one.case.variant.precision for one in timed))
    words = "" if block is None else block.words
    launch = launch_number(timed[0], here[0].launch_id)
    return f"{plain_name(timed[0].case.work.workload)} {precisions}, launch {launch}{words}"


def _slices(detail: RunDetail) -> list[tuple[str, list[tuple[MeasuredSpan, str]]]]:
    """Rows of slices with their names: workloads, and below them the precisions that a launch interleaved."""
    cases = {case.case_id: case.case for case in detail.run.cases}
    works, precisions = [], []
    by_launch: dict[int, list[MeasuredSpan]] = {}
    for span in detail.spans:
        if span.case_id in cases:
            by_launch.setdefault(span.launch_id, []).append(span)
    for launch_id, spans in by_launch.items():
        mine = [cases[span.case_id] for span in spans]
        first_us, last_us = min(s.first_utc_us for s in spans), max(s.last_utc_us for s in spans)
        whole = MeasuredSpan(spans[0].case_id, launch_id, first_us, last_us)
        works.append((whole, plain_name(mine[0].work.workload)))
        precisions.append((whole, " ".join(dict.fromkeys(one.variant.precision for one in mine))))
    return [("case", works), ("precision", precisions)] if works else []


def _slice_lane(
    slices: Sequence[tuple[MeasuredSpan, str]],
    here: Sequence[MeasuredSpan],
    window: TimeWindow,
    cells: int,
) -> list[Span]:
    """Slices with their names, without room for these in a hue of each; that at the cursor stands out."""
    names = [*dict.fromkeys(name for _, name in slices)]
    drawn = [Span(" ")] * cells
    current = here[0].launch_id if here else -1
    for span, name in sorted(slices, key=lambda one: one[0].launch_id == current):  # no other covers it
        is_here, hue = span.launch_id == current, FAMILIES[names.index(name) % len(FAMILIES)]
        first = _cell_of(span.first_utc_us, window, cells)
        end = min(max(_cell_of(span.last_utc_us, window, cells), first + 1), cells)
        first = max(first, 0)
        wide = max(end - first - (end < cells), 1)
        text, style = PATTERNS[hue] * wide, f"{hue} {TONES}"
        if len(name) <= wide:
            text, style = name.center(wide), f"{'accent' if is_here else 'dim'}{SELECTED}"
        elif is_here:
            text, style = "█" * wide, "title"
        if first < end:
            drawn[first : first + wide] = [Span(one, style) for one in text]
    return drawn


def _whole_line(window: TimeWindow, cells: int) -> Line:
    """Which part of the run is shown."""
    whole_us = window.whole_to_us - window.whole_from_us
    ends = "0:00", format_clock(whole_us / 1e6)
    room = max(cells - len(ends[0]) - len(ends[1]) - 2, 1)
    first = (window.from_us - window.whole_from_us) * room // whole_us
    shown = max(window.span_us * room // whole_us, 1)
    return (
        Span(f"{'whole run':{LEAD}}{ends[0]} ", "dim"),
        Span("─" * first, "track"),
        Span("━" * shown, "accent"),
        Span("─" * (room - first - shown), "track"),
        Span(f" {ends[1]}", "dim"),
    )


def _ticks(window: TimeWindow, cells: int) -> str:
    """Times along the axis, each beginning at its cell."""
    cell_s = window.span_us / 1e6 / cells
    step_s = next((one for one in _TICKS_S if one >= _LEAST_TICK * cell_s), _TICKS_S[-1])
    from_s = (window.from_us - window.whole_from_us) / 1e6
    text = ""
    for number in range(math.ceil(from_s / step_s), math.ceil((from_s + cells * cell_s) / step_s)):
        seconds = number * step_s
        label = format_clock(seconds) + (f"{seconds % 1:.1f}"[1:] if step_s < 1 else "")
        at = int((seconds - from_s) / cell_s)
        if at >= len(text) and at + len(label) <= cells:
            text = f"{text:{at}}{label} "
    return text.rstrip()


# Lanes


def _lane(
    name: str,
    top: str,
    value: str,
    cells: Sequence[float | None],
    high: float,
    hue: str,
    rows: int,
    cursor: int,
) -> Iterator[Line]:
    """A chart from 0 to `high`, its two ends at the left and the value at the cursor at the right."""
    for row, (text, style) in enumerate(zip(area(cells, high, rows), body_styles(hue, rows), strict=True)):
        end = top if row == 0 else "0" if row == rows - 1 else ""
        lead = f"{left(name if row == 0 else '', LEAD - len(end) - 2)} {end} "
        yield (
            Span(lead, "dim"),
            Span(text[:cursor], style),
            Span("┃", "accent"),
            Span(text[cursor + 1 :], style),
            Span(right(value if row == 0 else "", _VALUE), "title"),
        )


def _telemetry_lanes(
    detail: RunDetail, series: TelemetrySeries, window: TimeWindow, cells: int, rows: int, cursor: int
) -> Iterator[Iterator[Line]]:
    limits = limits_of(detail.run.summary.machine, series.device_index)
    # A reading so many cells after the cursor is its value.
    ahead = BETWEEN_READINGS_US * cells // window.span_us + 1
    for metric in charted(series.device_index):
        if not series.of(metric.key).known:
            continue
        over_time = series.of(metric.key, window.from_us)
        combine = min if metric.unit == "MHz" else max
        drawn = over_time.cells(window.span_us * 1e-6 / cells, cells + ahead, combine)
        top = metric.top(limits, max(over_time.known, default=0.0))
        here = next((one for one in drawn[cursor : cursor + ahead] if one is not None), None)
        yield _lane(
            metric.name, metric.axis(top), metric.text(here), drawn[:cells], top, metric.hue, rows, cursor
        )


def _slowed(
    whole: TelemetrySeries | None, shown: TelemetrySeries, window: TimeWindow, cells: int, cursor: int
) -> Iterator[Line]:
    """When the clocks of a GPU were held back, as a line; nothing if they never were.

    The value is what holds them back at the cursor, or how much of the whole run something did.
    """
    known = [] if whole is None else [int(one) & _HELD > 0 for one in whole.of("throttle_bits").known]
    if not any(known):
        return
    of = shown.of("throttle_bits", window.from_us)
    bits = of.cells(window.span_us * 1e-6 / cells, cells, lambda some: reduce(or_, map(int, some)))
    held = [None if one is None else float(int(one) & _HELD) for one in bits]
    word = "by heat" if int(bits[cursor] or 0) & SLOWED_BITS else "by power"
    share = format_percent(sum(known) / len(known))
    yield _line("slowed", held, 0.5, word if held[cursor] else share, cursor)


def _other_programs(
    timed: Sequence[_Timed], here: _Timed | None, window: TimeWindow, cells: int, cursor: int
) -> Line:
    """When other programs had the CPU, as a line."""
    waited = _by_cell(timed, window, cells, lambda one: one.waited, max)
    most = f"most {format_percent(max((one.waited for one in timed), default=0.0))}"
    value = most if here is None else format_percent(here.waited)
    return _line("other programs", waited, CROWDED_SHARE, value, cursor)


def _line(name: str, values: Sequence[float | None], most: float, value: str, cursor: int) -> Line:
    spans = [Span(f"{name:{LEAD}}", "dim")]
    for place, one in enumerate(values):
        is_over = one is not None and one > most
        text, style = ("━", "warn") if is_over else ("─", "track")
        spans.append(Span("┃", "accent") if place == cursor else Span(text, style))
    is_over = (values[cursor] or 0.0) > most
    return (*spans, Span(right(value, _VALUE), "warn" if is_over else "title"))


def _by_cell(
    timed: Sequence[_Timed],
    window: TimeWindow,
    cells: int,
    value_of: Callable[[_Timed], float],
    combine: Callable[[float, float], float],
) -> list[float | None]:
    """A value of the blocks in each cell; None where nothing was timed."""
    found: list[float | None] = [None] * cells
    for one in timed:
        first, last = _cell_of(one.first_us, window, cells), _cell_of(one.last_us, window, cells)
        for cell in range(max(first, 0), min(last, cells - 1) + 1):
            before = found[cell]
            found[cell] = value_of(one) if before is None else combine(before, value_of(one))
    return found


def _opened(detail: RunDetail, here: Sequence[MeasuredSpan], width: int, height: int) -> Iterator[Line]:
    """The case at the cursor: its step, its launches and, where there is room, its largest operators."""
    cases = {case.case_id: case for case in detail.run.cases}
    for span in [one for one in here if one.case_id in cases][:1]:
        case = cases[span.case_id]
        breakdown = breakdown_for(detail, case)
        lines = [] if isinstance(breakdown, Missing) else [*step_lines(case, breakdown, width)]
        lines += launch_lines(detail, case, width, span.launch_id)
        if not isinstance(breakdown, Missing):
            lines += largest_operators(detail, case, breakdown, width, height - len(lines))
        yield from lines


def _cell_of(t_us: int, window: TimeWindow, cells: int) -> int:
    return (t_us - window.from_us) * cells // window.span_us


def _moment(since_us: int) -> str:
    """Time since the first reading: `3.4 s`, `2:03.4`, `1:02:03.4`."""
    seconds, tenth = divmod(round(since_us / 100_000), 10)
    return f"{format_clock(seconds)}.{tenth}" if seconds >= 60 else f"{seconds}.{tenth} s"
