"""Telemetry of a run or a part of it: numbers and a chart of each metric."""

from __future__ import annotations

import math
from bisect import bisect_left, bisect_right
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from statistics import median

from gputui.metrics import STORED, Metric
from gputui.model.devices import HOST
from gputui.model.units import format_clock, format_seconds
from gputui.services.results.browser import RunDetail
from gputui.services.results.labels import case_name
from gputui.store.reading import TelemetrySeries
from gputui.tui.screens.results.window import TimeWindow
from gputui.tui.terminal.lines import Line, Span
from gputui.tui.widgets.charts import area, body_styles
from gputui.tui.widgets.paragraphs import paragraph

CURSOR, TIMED = "v", "-"
_NAME, _NUMBER = 26, 10
"""Width of a metric's name, and of each number after it."""
_NARROW, _WIDE = 67, 100
"""Below the first width only the median fits; from the second on also the value at the cursor."""
_LEAST_CHART, _MOST_CHART = 8, 120
_SCROLLBAR = 1
_HIGHEST = 4
"""Rows of a chart, at most."""


@dataclass(frozen=True, slots=True)
class ChartPlace:
    """Where the charts are on the page."""

    left: int
    cells: int
    """0 if they do not fit."""

    def share_at(self, x: int) -> float:
        """The share of the chart to the left of a cell's centre; below 0 or above 1 outside."""
        return (x - self.left + 0.5) / self.cells if self.cells else -1.0


def chart_place(width: int) -> ChartPlace:
    """Where the charts are on a page of this width."""
    left = _NAME + _NUMBER * len(_headings(width)) + 2
    cells = min(width - left - _SCROLLBAR, _MOST_CHART)
    return ChartPlace(left, cells if cells >= _LEAST_CHART else 0)


def _headings(width: int) -> tuple[str, ...]:
    """The numbers that fit on a page of this width."""
    if width < _NARROW:
        return ("median",)
    return ("least", "median", "most", *((CURSOR,) if width >= _WIDE else ()))


def telemetry_page(
    detail: RunDetail, series: Sequence[TelemetrySeries], window: TimeWindow, width: int, height: int
) -> tuple[Line, ...]:
    """Minimum, median and maximum of each metric of each device within a window, and its chart.

    Only the part of `series` within the window is drawn. Charts are as high as `height` rows for all allow.
    """
    place = chart_place(width)
    within = [
        slice(bisect_left(one.t_us, window.from_us), bisect_right(one.t_us, window.to_us)) for one in series
    ]
    pieces = max((part.stop - part.start for part in within), default=0)
    lines: list[Line] = list(paragraph(_span_words(window, pieces), width, "dim"))
    lines += paragraph(_cursor_words(detail, window), width, "dim", indent=2)
    names = {gpu.index: gpu.name for gpu in detail.run.summary.machine.gpus}
    headings = _headings(width)
    measured = [_measured(*pair) for pair in zip(series, within, strict=True)]
    around = len(lines) + 3 * len(series)
    rows = min(max((height - around) // max(sum(map(len, measured)), 1), 1), _HIGHEST) if place.cells else 1
    heads = " " * _NAME + "".join(f"{heading:>{_NUMBER}}" for heading in headings)
    for one, found in zip(series, measured, strict=True):
        title = "host" if one.device_index == HOST else f"GPU {one.device_index}"
        lines += [(), (Span(f"{title} {names.get(one.device_index, '')}".strip(), "title"),)]
        if not found:
            lines += paragraph("  no reading here", width)
            continue
        ruler = _ruler(detail, window, place.cells)
        lines.append((Span(heads, "dim"), Span("  "), Span(ruler, "accent")))
        for metric, values in found:
            lines += _metric_lines(one, metric, values, window, place, headings, rows)
    return tuple(lines)


def _measured(series: TelemetrySeries, within: slice) -> list[tuple[Metric, list[float]]]:
    """The metrics that have a chart, with their values within the window."""
    scope = "host" if series.device_index == HOST else "gpu"
    found = []
    for metric in STORED:
        column: Sequence[float] = series.columns.get(metric.key, ())
        values = [v for v in column[within] if math.isfinite(v)]
        if values and metric.hue and metric.scope == scope:
            found.append((metric, values))
    return found


def _metric_lines(
    series: TelemetrySeries,
    metric: Metric,
    values: Sequence[float],
    window: TimeWindow,
    place: ChartPlace,
    headings: Sequence[str],
    rows: int,
) -> Iterator[Line]:
    (here,) = series.of(metric.key, window.cursor_us).cells(1e-6, 1, max)
    numbers = {
        "least": min(values),
        "median": median(values),
        "most": max(values),
        CURSOR: math.nan if here is None else here,
    }
    plain = {what: metric.plain(value) for what, value in numbers.items()}
    text = "".join(f"{plain[heading]:>{_NUMBER}}" for heading in headings)
    name = f"  {metric.heading[: _NAME - 2]:{_NAME - 2}}"
    if not place.cells:
        yield Span(name, "dim"), Span(text)
        return
    over_time = series.of(metric.key, window.from_us)
    shown = over_time.cells(window.span_us * 1e-6 / place.cells, place.cells, max)
    low, high = numbers["least"], numbers["most"]
    if plain["least"] == plain["most"]:
        high = low
    for row, chart in enumerate(_chart(shown, low, high, rows, metric.hue)):
        before = (Span(name, "dim"), Span(text)) if row == 0 else (Span(" " * (place.left - 2)),)
        yield *before, Span("  "), chart


def _chart(values: Sequence[float | None], low: float, high: float, rows: int, family: str) -> list[Span]:
    """A chart from minimum to maximum; gaps stay empty, and what never changed fills half of it."""
    if high > low:
        heights = [None if value is None else value - low for value in values]
    else:
        heights = [None if value is None else float(value != 0) / 2 for value in values]
    drawn = area(heights, high - low or 1.0, rows)
    return [Span(text, style) for text, style in zip(drawn, body_styles(family, rows), strict=True)]


def _ruler(detail: RunDetail, window: TimeWindow, cells: int) -> str:
    """Marks where cases were timed, and the cursor."""
    marks = [" "] * cells
    for span in detail.spans:
        first = max(_cell_of(span.first_utc_us, window, cells), 0)
        last = min(_cell_of(span.last_utc_us, window, cells), cells - 1)
        for cell in range(first, last + 1):
            marks[cell] = TIMED
    if cells:
        marks[min(_cell_of(window.cursor_us, window, cells), cells - 1)] = CURSOR
    return "".join(marks)


def _cell_of(t_us: int, window: TimeWindow, cells: int) -> int:
    return (t_us - window.from_us) * cells // window.span_us


def _span_words(window: TimeWindow, pieces: int) -> str:
    begins_us = window.whole_from_us
    whole = format_seconds((window.whole_to_us - begins_us) / 1e6)
    ends = _moment(window.from_us - begins_us), _moment(window.to_us - begins_us)
    part = f"the whole {whole}" if window.is_whole else f"from {ends[0]} to {ends[1]} of {whole}"
    return f"{part} in {pieces} pieces; numbers are their means, charts least to most"


def _cursor_words(detail: RunDetail, window: TimeWindow) -> str:
    """The time at the cursor, and what was timed then."""
    text = f"{CURSOR} is the cursor, at {_moment(window.cursor_us - window.whole_from_us)}"
    cases = {case.case_id: case for case in detail.run.cases}
    for span in detail.spans:
        if span.first_utc_us <= window.cursor_us <= span.last_utc_us and span.case_id in cases:
            return f"{text}: {case_name(cases[span.case_id])}, launch {span.launch_id + 1}"
    return f"{text}; {TIMED} where a case was timed" if detail.spans else text


def _moment(since_us: int) -> str:
    """Time since the first reading: `3.4 s`, `2:03.4`, `1:02:03.4`."""
    seconds, tenth = divmod(round(since_us / 100_000), 10)
    return f"{format_clock(seconds)}.{tenth}" if seconds >= 60 else f"{seconds}.{tenth} s"
