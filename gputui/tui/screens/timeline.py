"""A run on one axis of time: what was timed, and in charts below it what the box did meanwhile; and the page
that shows a part of it, with the keys that move and zoom it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache, partial, reduce
from operator import or_

from textual import events
from textual.message import Message

from gputui.document.drawings import PATTERNS
from gputui.document.spans import Line, Span
from gputui.document.theme import FAMILIES, SELECTED, TONES
from gputui.metrics import charted, limits_of
from gputui.model.result import CaseResult
from gputui.model.telemetry import HOST, POWER_CAP
from gputui.model.units import format_clock, format_seconds
from gputui.services.results.browser import RunDetail, read_series, telemetry_sheet
from gputui.services.results.labels import launch_number, plain_name, shared_case_words, short_result_name
from gputui.store.reading import SLOWED_BITS, MeasuredSpan, TelemetrySeries
from gputui.tui.screens.results_pages import ask_for_sheet
from gputui.tui.shell.shell_screen import screen_of
from gputui.tui.widgets.cells import fitted, left, paragraph, section
from gputui.tui.widgets.charts import area_with_axis, axis_cells, chart_title, time_axis, time_chart
from gputui.tui.widgets.scrolled import LinesPage

LEAST_US = 1_000_000
"""The shortest part: samples are at least a tenth of a second apart."""
_BETWEEN_READINGS_US = 1_500_000
"""Readings so far outside of a part tell what its ends were like: outside of blocks there is one a second."""
_PINNED = 3
"""Lines that stay while the charts are scrolled: the cursor, the axis of time, what was timed."""
_MARGIN = 0.05
"""Around a span that is jumped to, as a share of it."""
_ALL_BUT = 0.999
"""From this share of the whole on, all of it is shown, so that doubling ends at the whole."""
_HELD = SLOWED_BITS | POWER_CAP
_ROWS = 2
"""Of a chart."""


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

    def over(self, span: MeasuredSpan) -> TimeWindow:
        """A whole span with a small margin, the cursor at its beginning."""
        length_us = span.last_utc_us - span.first_utc_us
        margin_us = round(length_us * _MARGIN)
        there = replace(self, cursor_us=span.first_utc_us)
        return there._placed(span.first_utc_us - margin_us, max(length_us + 2 * margin_us, LEAST_US))

    def whole(self) -> TimeWindow:
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

    def cell(self, t_us: int, cells: int) -> int:
        """In which of so many cells a time lies."""
        return (t_us - self.from_us) * cells // self.span_us

    def _placed(self, from_us: int, span_us: int) -> TimeWindow:
        span_us = min(span_us, self.whole_to_us - self.whole_from_us)
        from_us = min(max(from_us, self.whole_from_us), self.whole_to_us - span_us)
        cursor_us = min(max(self.cursor_us, from_us), from_us + span_us)
        return replace(self, from_us=from_us, to_us=from_us + span_us, cursor_us=cursor_us)


def share_at(x: int, width: int) -> float:
    """The share of the charts to the left of a cell's centre; below 0 or above 1 outside."""
    lead = axis_cells(width)
    return (x - lead + 0.5) / (width - lead)


@dataclass(frozen=True, slots=True)
class _Timed:
    case: CaseResult
    first_us: int
    last_us: int
    speed_pct: float
    """Of the fastest block of its case."""
    words: str
    """Which case, launch and block it is, and how long a step took."""


def timeline(
    detail: RunDetail, series: Sequence[TelemetrySeries], window: TimeWindow, width: int
) -> tuple[Line, ...]:
    """The part of a run within a window, `width` cells wide; `series` has the telemetry of that part."""
    lead = axis_cells(width)
    cells = width - lead
    cursor = min(window.cell(window.cursor_us, cells), cells - 1)
    first, at, last = (
        _moment(t_us - window.whole_from_us) for t_us in (window.from_us, window.cursor_us, window.to_us)
    )
    _, words = at_cursor(detail, window) or (None, "nothing was timed")
    top: list[Line] = [
        fitted((Span(f"cursor {at}", "title"), Span(f"   {words}")), width),
        time_axis(first, "", last, width),
        (Span(left("case", lead), "dim"), *_slices(detail, window, cells)),
    ]
    charts: list[Line] = []
    if timed := _blocks(detail):
        speeds = _speeds(timed, window, cells)
        share = speeds[cursor]
        here = Span("–" if share is None else f"{share:.0f} %", "title")
        charts.append(chart_title("speed", here, "", width))
        charts += area_with_axis(speeds, 100.0, _ROWS, width, "power", "100 %")
    # Devices with a case come first, in their order; then the host of a run on GPUs.
    used = {case.device_index for case in detail.run.cases if case.outcome == "ok"}
    for one in sorted(series, key=lambda one: (one.device_index not in used, one.device_index)):
        name = "host" if one.device_index == HOST else f"GPU {one.device_index}"
        charts += [section((Span(name, "title"),), width), *_slowed(one, window, cells, lead)]
        limits = limits_of(detail.run.summary.machine, one.device_index)
        for metric in charted(one.device_index):
            if not one.of(metric.key).known:
                continue
            over_time = one.of(metric.key, window.from_us)
            combine: Callable[[Sequence[float]], float] = min if metric.unit == "MHz" else max
            values = over_time.cells(window.span_us * 1e-6 / cells, cells, combine)
            figure = metric.text(values[cursor])
            charts += time_chart(metric, over_time, values, limits, figure, "", width, _ROWS)
    if not detail.series:
        charts += paragraph(
            "nothing was sampled during this run: its driver and /proc could not be read", width
        )
    return (*top, *(_with_cursor(line, lead + cursor) for line in charts))


def at_cursor(detail: RunDetail, window: TimeWindow) -> tuple[CaseResult, str] | None:
    """What was timed at the cursor, in a block or between two of a launch, in words too."""
    at_us = window.cursor_us
    for block in _blocks(detail):
        if block.first_us <= at_us <= block.last_us:
            return block.case, block.words
    cases = {case.case_id: case for case in detail.run.cases}
    for span in detail.spans:
        if span.case_id in cases and span.first_utc_us <= at_us <= span.last_utc_us:
            return cases[span.case_id], _launch_words(detail, cases[span.case_id], span.launch_id)
    return None


@lru_cache(maxsize=8)
def _blocks(detail: RunDetail) -> tuple[_Timed, ...]:
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
                step_ns = block.block_ns / block.steps
                words = _launch_words(detail, case, measurement.launch_id)
                if not case.case.is_whole:
                    words += f", block {block.index + 1} of {len(measurement.blocks)}"
                if case.case.has_steps:  # a load lasts as long as it shall
                    words += f": {format_seconds(step_ns / 1e9)} a step"
                last_us = first_us + block.wall_ns // 1000
                speed_pct = 100 * min(steps_ns) / step_ns
                found.append(_Timed(case, first_us, last_us, speed_pct, words))
    return tuple(found)


def _launch_words(detail: RunDetail, case: CaseResult, launch_id: int) -> str:
    """`matmul base gpu fp32, launch 2`; of what all cases of the run have in common only the precision."""
    common = shared_case_words(one.case for one in detail.run.cases)
    unsaid = [word for word in common if word != case.case.variant.precision]
    return f"{short_result_name(case, unsaid, is_short=True)}, launch {launch_number(case, launch_id)}"


def _slices(detail: RunDetail, window: TimeWindow, cells: int) -> list[Span]:
    """What each launch timed, by name; without room for names in a hue of each. That at the cursor stands
    out."""
    workloads = {case.case_id: plain_name(case.case.work.workload) for case in detail.run.cases}
    names = [*dict.fromkeys(workloads.values())]
    by_launch: dict[int, list[MeasuredSpan]] = {}
    for span in detail.spans:
        if span.case_id in workloads:
            by_launch.setdefault(span.launch_id, []).append(span)
    drawn = [Span(" ")] * cells
    for spans in by_launch.values():
        first_us, last_us = min(s.first_utc_us for s in spans), max(s.last_utc_us for s in spans)
        begin = window.cell(first_us, cells)
        end = min(max(window.cell(last_us, cells), begin + 1), cells)
        begin = max(begin, 0)
        name = workloads[spans[0].case_id]
        hue = FAMILIES[names.index(name) % len(FAMILIES)]
        text, style = PATTERNS[hue] * cells, f"{hue} {TONES}"
        if len(name) < end - begin:
            text, style = name.center(end - begin), "dim" + SELECTED
        if first_us <= window.cursor_us <= last_us:
            style = "accent" + SELECTED
        for place in range(begin, end):
            drawn[place] = Span(text[place - begin], style)
    return drawn


def _speeds(timed: Sequence[_Timed], window: TimeWindow, cells: int) -> list[float | None]:
    """The slowest block in each cell; None where nothing was timed."""
    found: list[float | None] = [None] * cells
    for one in timed:
        first, last = window.cell(one.first_us, cells), window.cell(one.last_us, cells)
        for cell in range(max(first, 0), min(last, cells - 1) + 1):
            found[cell] = min(one.speed_pct, found[cell] or 100.0)
    return found


def _slowed(series: TelemetrySeries, window: TimeWindow, cells: int, lead: int) -> Iterator[Line]:
    """When the clocks of a GPU were held back, as a line; nothing if they never were."""
    of = series.of("throttle_bits", window.from_us)
    if not any(int(one) & _HELD for one in of.known):
        return
    bits = of.cells(window.span_us * 1e-6 / cells, cells, lambda some: reduce(or_, map(int, some)))
    held = [int(one or 0) & _HELD for one in bits]
    yield (
        Span(left("slowed", lead), "dim"),
        *(Span("━", "chart") if one else Span("─", "track") for one in held),
    )


def _with_cursor(line: Line, at: int) -> Line:
    """With the cursor in one cell, but not over words."""
    spans: list[Span] = []
    begin = 0
    for text, style in line:
        place = at - begin
        if 0 <= place < len(text) and not text[place].isalnum():
            spans += [Span(text[:place], style), Span("┃", "accent"), Span(text[place + 1 :], style)]
        else:
            spans.append(Span(text, style))
        begin += len(text)
    return tuple(spans)


def _moment(since_us: int) -> str:
    """Time since the first reading: `3.4 s`, `2:03.4`, `1:02:03.4`."""
    seconds, tenth = divmod(round(since_us / 100_000), 10)
    return f"{format_clock(seconds)}.{tenth}" if seconds >= 60 else f"{seconds}.{tenth} s"


class TimelinePage(LinesPage):
    """A part of a run's timeline, with a cursor; telemetry that is not loaded of that part is read."""

    class Chosen(Message):
        """Enter: the case that was timed at the cursor."""

        def __init__(self, case: CaseResult) -> None:
            super().__init__()
            self.case = case

    _detail: RunDetail
    _series: Sequence[TelemetrySeries]
    _window: TimeWindow

    def hold(self, detail: RunDetail) -> None:
        """Show the whole of another run, in which something was timed or sampled."""
        self._detail, self._series = detail, detail.series
        self._window = TimeWindow.over_all(detail.series, detail.spans)

    def draw(self, *, keeps_place: bool = False) -> None:
        lines = timeline(self._detail, self._series, self._window, self._cells)
        self.show(lines, keeps_place=keeps_place, pinned=_PINNED)

    def change(self, how: Callable[[TimeWindow], TimeWindow]) -> None:
        """Show another part: draw what is loaded at once, read what is missing."""
        detail, before = self._detail, self._window
        self._window = now = how(before)
        if now.is_whole:
            self._series = detail.series
        elif (now.from_us, now.to_us) != (before.from_us, before.to_us):
            run_id = detail.run.summary.run_id
            within_us = now.from_us - _BETWEEN_READINGS_US, now.to_us + _BETWEEN_READINGS_US
            screen_of(self).begin(
                lambda job: read_series(detail.path, run_id, within_us, job), partial(self._take, now)
            )
        self.draw(keeps_place=True)

    def _take(self, window: TimeWindow, series: Sequence[TelemetrySeries]) -> None:
        """Show what was read for a window, if it is still the current one."""
        if (self._window.from_us, self._window.to_us) == (window.from_us, window.to_us):
            self._series = series
            self.draw(keeps_place=True)

    @property
    def _cells(self) -> int:
        """Beside the scrollbar."""
        return self.screen.size.width - 1

    def on_click(self, event: events.Click) -> None:
        share = share_at(event.x, self._cells)
        if 0 <= share <= 1:
            self.change(lambda window: window.at(share))

    def action_zoom(self, factor: float) -> None:
        self.change(lambda window: window.zoomed(factor))

    def action_whole(self) -> None:
        self.change(lambda window: window.whole())

    def action_step_cursor(self, cells: int) -> None:
        self.change(lambda window: window.stepped(cells / (self._cells - axis_cells(self._cells))))

    def action_step_case(self, launches: int) -> None:
        if spans := self._detail.spans:
            self.change(lambda window: window.next_span(spans, launches))

    def action_enter(self) -> None:
        """Open the step of what was timed at the cursor."""
        if found := at_cursor(self._detail, self._window):
            self.post_message(self.Chosen(found[0]))

    def action_save(self) -> None:
        sheet = telemetry_sheet(self._detail, self._series, (self._window.from_us, self._window.to_us))
        ask_for_sheet(screen_of(self), sheet, self._detail)
