"""Telemetry of a run or a part of it: numbers and a chart of each metric."""

from __future__ import annotations

import math
from bisect import bisect_left, bisect_right
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise
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
_HOLD_US = 1_500_000
"""A value is extended for this long: outside of blocks the sampler reads once a second."""


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
    parts = [_Part(one, window, place.cells) for one in series]
    pieces = max((part.end - part.start for part in parts), default=0)
    lines: list[Line] = list(paragraph(_span_words(window, pieces), width, "dim"))
    lines += paragraph(_cursor_words(detail, window), width, "dim", indent=2)
    names = {gpu.index: gpu.name for gpu in detail.run.summary.machine.gpus}
    headings = _headings(width)
    metrics = sum(len(_measured(part)) for part in parts)
    around = len(lines) + 3 * len(parts)
    rows = min(max((height - around) // max(metrics, 1), 1), _HIGHEST) if place.cells else 1
    heads = " " * _NAME + "".join(f"{heading:>{_NUMBER}}" for heading in headings)
    for part in parts:
        device = part.series.device_index
        title = "host" if device == HOST else f"GPU {device}"
        lines += [(), (Span(f"{title} {names.get(device, '')}".strip(), "title"),)]
        if part.start == part.end:
            lines += paragraph("  no reading here", width)
            continue
        ruler = _ruler(detail, window, place.cells)
        lines.append((Span(heads, "dim"), Span("  "), Span(ruler, "accent")))
        lines += _metric_lines(part, place, headings, rows)
    return tuple(lines)


class _Part:
    """The samples of a series within a window."""

    def __init__(self, series: TelemetrySeries, window: TimeWindow, cells: int) -> None:
        t_us = series.t_us
        self.series = series
        self.start, self.end = bisect_left(t_us, window.from_us), bisect_right(t_us, window.to_us)
        mine = t_us[self.start : self.end]
        gaps = [later - earlier for earlier, later in pairwise(mine)]
        self._hold_us = max(2.5 * median(gaps), _HOLD_US) if gaps else _HOLD_US
        edges = [window.from_us + window.span_us * cell / cells for cell in range(cells)]
        ends = (*edges, window.to_us + 1) if edges else ()
        self._cells = [self._pieces(*pair) for pair in pairwise(ends)]
        self._here = self._pieces(window.cursor_us, window.cursor_us + 1)

    def chart(self, column: Sequence[float]) -> list[float]:
        """The highest value in each cell of the chart; NaN where nothing was measured."""
        return [_highest(column[start:end]) for start, end in self._cells]

    def here(self, column: Sequence[float]) -> float:
        """The value at the cursor; NaN where nothing was measured."""
        return _highest(column[slice(*self._here)])

    def _pieces(self, from_us: float, to_us: float) -> tuple[int, int]:
        """Indices of the samples that end between two instants, else of the one before if it is recent."""
        t_us = self.series.t_us
        start, end = bisect_left(t_us, from_us), bisect_left(t_us, to_us)
        is_held = start == end and start > 0 and from_us - t_us[start - 1] <= self._hold_us
        return (start - 1, start) if is_held else (start, end)


def _highest(values: Sequence[float]) -> float:
    return max((v for v in values if math.isfinite(v)), default=math.nan)


def _measured(part: _Part) -> list[tuple[Metric, list[float]]]:
    """The metrics that have a chart, with their values within the window."""
    scope = "host" if part.series.device_index == HOST else "gpu"
    found = []
    for metric in STORED:
        column: Sequence[float] = part.series.columns.get(metric.key, ())
        values = [v for v in column[part.start : part.end] if math.isfinite(v)]
        if values and metric.hue and metric.scope == scope:
            found.append((metric, values))
    return found


def _metric_lines(part: _Part, place: ChartPlace, headings: Sequence[str], rows: int) -> Iterator[Line]:
    for metric, values in _measured(part):
        column = part.series.columns[metric.key]
        numbers = {
            "least": min(values),
            "median": median(values),
            "most": max(values),
            CURSOR: part.here(column),
        }
        plain = {what: metric.plain(value) for what, value in numbers.items()}
        text = "".join(f"{plain[heading]:>{_NUMBER}}" for heading in headings)
        name = f"  {metric.heading[: _NAME - 2]:{_NAME - 2}}"
        if not place.cells:
            yield Span(name, "dim"), Span(text)
            continue
        shown = [v if math.isfinite(v) else None for v in part.chart(column)]
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
