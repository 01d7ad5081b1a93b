"""Drawings beside figures, as wide as their table leaves room for: bars, and intervals on an axis."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import accumulate

from gputui.document.markup import safe
from gputui.document.spans import Line, Span, line_width
from gputui.document.table import Column, Drawing
from gputui.document.theme import FAMILIES, Palette
from gputui.model.units import format_change, format_percent

NO_READING = "┄"
BLOCKS = " ▁▂▃▄▅▆▇█"
"""By eighths of a cell."""
_NOTHING = 0.01
"""A share below it is drawn as 0 is: an idle host has some."""


def level_of(value: float, high: float, most: int, low: float = 0.0) -> int:
    """How many of `most` steps a value from `low` to `high` fills.

    The first shows that there is a reading, so more than nothing fills two.
    """
    share = (value - low) / (high - low) if high > low else 0.0
    return min(max(round(share * most), 1 + (share >= _NOTHING)), most)


def strip(values: Sequence[float | None], high: float, low: float = 0.0) -> str:
    """Values from `low` to `high` as columns in one row, of which the highest eighth stays free."""
    return "".join(" " if value is None else BLOCKS[level_of(value, high, 7, low)] for value in values)


def columns_picture(values: Sequence[float | None], high: float, style: str) -> str:
    """For a page: values from 0 to `high` as columns, as wide as their place."""
    drawn = "".join(
        f"M{place} 100v-{max(100 * value / high, 3) if high > 0 else 3:.1f}h1V100z"
        for place, value in enumerate(values)
        if value is not None
    )
    return (
        f'<svg class="columns" viewBox="0 0 {len(values)} 100" preserveAspectRatio="none" aria-hidden="true">'
        f'<path class="body {style}" d="{drawn}"/></svg>'
    )


def gauge(value: float | None, high: float, width: int) -> tuple[str, str]:
    """A gauge and the rest of its track, together `width` cells; without a reading the track is dotted."""
    if value is None or high <= 0 or width <= 0:
        return "", NO_READING * max(width, 0)
    return gauge_of(halves_of(value, high, width), width)


def halves_of(value: float, high: float, width: int) -> int:
    """How many half cells of a gauge a value fills."""
    return min(max(round(value / high * 2 * width), 0), 2 * width)


def gauge_of(halves: int, width: int) -> tuple[str, str]:
    """A gauge with that many half cells filled, and the rest of its track."""
    filled = "━" * (halves // 2) + "╸" * (halves % 2)
    return filled, "─" * (width - len(filled))


def gauge_spans(value: float | None, high: float, width: int, style: str) -> tuple[Span, ...]:
    """A gauge of `width` cells with its track."""
    filled, rest = gauge(value, high, width)
    return Span(filled, style), Span(rest, "track")


def bars(
    values: Sequence[float | None],
    high: float,
    styles: str | Sequence[str],
    *,
    least: int = 8,
    most: int = 80,
    priority: float = 1,
) -> Drawing:
    """A column of gauges, blank where there is no value; in one style, or in one for each."""
    of_each = [styles] * len(values) if isinstance(styles, str) else styles

    def draw(cells: int, beside: Sequence[Column]) -> Column:
        drawn = [
            [(Span(" " * cells),) if value is None else gauge_spans(value, high, cells, style)]
            for value, style in zip(values, of_each, strict=True)
        ]
        return Column("", drawn)

    def picture() -> tuple[str, Sequence[str]]:
        return "", [_bar(value, high, style) for value, style in zip(values, of_each, strict=True)]

    return Drawing(draw, least, most, priority, picture=picture)


def _bar(value: float | None, high: float, style: str) -> str:
    """For a page, as wide as its place."""
    if value is None:
        return ""
    width = 100 * min(max(value / high, 0.0), 1.0) if high > 0 else 0.0
    bar = '<rect class="{}" width="{:.2f}%" y="25%" height="50%" rx="2"/>'
    return f'<svg class="bars" aria-hidden="true">{bar.format("track", 100)}{bar.format(style, width)}</svg>'


PATTERNS = dict(zip((*FAMILIES, "track"), "█▓▒▚▞░", strict=True))
"""Of the parts of a bar, by hue: where there are few colours, two hues may look alike, or all."""
_SOLID, _SQUARES = (str.maketrans(dict.fromkeys("▓▒▚▞░", solid)) for solid in "█■")

BarPart = tuple[str, float, str]
"""A part of a whole: its name, its share of 1, and the style of its bar."""


def parts_bar(parts: Sequence[BarPart], cells: int) -> list[Span]:
    """Parts side by side with a gap between them, each as wide as its share and at least one cell."""
    room = max(cells - len(parts) + 1, len(parts))
    widths = [max(round(share * room), 1) for _, share, _ in parts]
    if widths:
        widths[widths.index(max(widths))] -= max(sum(widths) - room, 0)
    spans: list[Span] = []
    for (_, _, style), width in zip(parts, widths, strict=True):
        pattern = PATTERNS[style.partition(" ")[0]]
        spans += [Span(" " if spans else ""), Span(pattern * width, style)]
    return spans


def in_hues(span: Span, palette: Palette) -> str:
    """A span's text without the patterns of parts, where each hue has another colour."""
    if span.text.isascii() or not palette.has_backgrounds:
        return span.text
    return span.text.translate(_SQUARES if span.text.endswith(" ") else _SOLID)


def legend_lines(entries: Iterable[tuple[str, str, str]], cells: int) -> list[Line]:
    """A swatch for each part of a bar, in the order of the bar; `entries` are name, figure and style."""
    lines: list[list[Span]] = [[]]
    for name, figure, style in entries:
        mark = PATTERNS[style.partition(" ")[0]].replace("█", "■")
        entry = [Span(f"{mark} ", style), Span(name), Span(figure, "dim")]
        if lines[-1] and line_width([*lines[-1], *entry]) + 3 > cells:
            lines.append([])
        lines[-1] += [*([Span("   ")] if lines[-1] else []), *entry]
    return [tuple(line) for line in lines]


def stacked_bar(shares: Sequence[BarPart], rows: int = 1) -> Drawing:
    """One bar of so many rows with a gap between its parts, above a legend in the same order."""

    def draw(cells: int, beside: Sequence[Column]) -> Column:
        entries = [(name, f" {format_percent(share)}", style) for name, share, style in shares]
        return Column("", [[tuple(parts_bar(shares, cells))] * rows + legend_lines(entries, cells)])

    def picture() -> tuple[str, Sequence[str]]:
        begins = accumulate((share for _, share, _ in shares), initial=0.0)
        drawn = "".join(
            f'<rect class="{style}" x="{100 * begin:.2f}%" width="{max(100 * share - 0.5, 0.2):.2f}%"'
            ' height="100%"/>'
            for begin, (_, share, style) in zip(begins, shares, strict=False)
        )
        legend = "".join(
            f'<li><i class="{style}">■</i> {safe(name)} <b>{format_percent(share)}</b></li>'
            for name, share, style in shares
        )
        return "", [f'<svg class="stacked" aria-hidden="true">{drawn}</svg><ul class="legend">{legend}</ul>']

    return Drawing(draw, 1, 400, picture=picture)


_TICKS = (
    0.01,
    0.1,
    0.2,
    0.3,
    0.5,
    0.7,
    0.8,
    0.9,
    0.95,
    1.05,
    1.1,
    1.25,
    1.5,
    2.0,
    3.0,
    5.0,
    10.0,
    30.0,
    100.0,
)
_NARROWEST = math.log(1.05)
_WIDEST = math.log(100)
_LEAST, _MOST, PAGE_CELLS = 9, 56, 40
"""Of the drawing; on a page, what its labels have room in."""
_MARGIN_PCT = 4
ZERO = "│"


@dataclass(frozen=True, slots=True)
class Interval:
    """One ratio with its ends; the three are equal where no end is known."""

    ratio: float
    low: float
    high: float
    mark: str
    """Where the ratio lies: `●`, hollow if it is undecided, a diamond of a mean, or a side's letter."""
    style: str
    beside: str = ""
    """The heading of the column that it belongs to: it is drawn where that has room."""


@dataclass(frozen=True, slots=True)
class Axis:
    """Changes from `low` to `high`, both logarithms of ratios: equal factors are equally far apart."""

    low: float
    high: float
    cells: int

    def cell(self, ratio: float) -> int:
        """Where a ratio lies; one that is off the axis lies at its end."""
        return self._half(ratio) // 2

    def percent(self, ratio: float) -> float:
        """The same in percent of the width of a page's drawing, which has a margin for labels."""
        return _MARGIN_PCT + (100 - 2 * _MARGIN_PCT) * min(max(self._share(ratio), 0.0), 1.0)

    def ticks(self) -> list[tuple[float, str, int]]:
        """Ratio, label, and the first cell of the label: of no change and, where they have room, of changes
        to each side, the outermost first."""
        zero = self.cell(1.0)
        chosen, taken = [(1.0, "0", zero)], {zero}
        for tick in sorted(_TICKS, key=lambda tick: -abs(math.log(tick))):
            label = format_change(tick).removesuffix(" %")
            label = f"{tick:g}x" if label.endswith("x") else label
            start = self.cell(tick) - len(label) // 2
            fits = self.low <= math.log(tick) <= self.high and 0 <= start <= self.cells - len(label)
            if fits and taken.isdisjoint(range(start - 2, start + len(label) + 2)):
                chosen.append((tick, label, start))
                taken.update(range(start, start + len(label)))
        return chosen

    def heading(self) -> str:
        """The labels of the ticks."""
        text = [" "] * self.cells
        for _, label, start in self.ticks():
            text[start : start + len(label)] = label
        return "".join(text)

    def lines(self, row: Iterable[Interval]) -> list[Line]:
        """Each with its mark, `━●╸`, and the zero line where nothing covers it; one that would cover another
        is drawn on a line below."""
        lines: list[list[Span | None]] = []
        for one in row:
            first, cells = self._drawn(one)
            around = range(max(first - 1, 0), min(first + len(cells) + 1, self.cells))
            line = next((line for line in lines if all(line[place] is None for place in around)), None)
            if line is None:
                line = [None] * self.cells
                lines.append(line)
            line[first : first + len(cells)] = [Span(text, one.style) for text in cells]
        return [self._joined(line) for line in lines or [[None] * self.cells]]

    def _joined(self, line: Sequence[Span | None]) -> Line:
        """Neighbouring cells of one style as one piece."""
        zero, pieces = self.cell(1.0), list[Span]()
        for place, drawn in enumerate(line):
            text, style = drawn or Span(ZERO if place == zero else " ", "track")
            if pieces and pieces[-1].style == style:
                text = pieces.pop().text + text
            pieces.append(Span(text, style))
        return tuple(pieces)

    def _share(self, ratio: float) -> float:
        return (math.log(ratio) - self.low) / (self.high - self.low)

    def _half(self, ratio: float) -> int:
        """The half of a cell in which a ratio lies."""
        last = 2 * self.cells - 1
        return min(max(round(self._share(ratio) * last), 0), last)

    def _drawn(self, one: Interval) -> tuple[int, list[str]]:
        """The first cell of an interval, and its cells."""
        zero = self.cell(1.0)
        begin, end = self._half(one.low), self._half(one.high)
        if one.low > 1:  # an interval without 0 stops before the line, whatever rounding says
            begin = min(max(begin, 2 * zero + 2), 2 * self.cells - 1)
            end = max(begin, end)
        if one.high < 1:
            end = max(min(end, 2 * zero - 1), 0)
            begin = min(begin, end)
        first, last = begin // 2, end // 2
        cells = ["┿" if place == zero else "━" for place in range(first, last + 1)]
        if end % 2 == 0 and last != zero:
            cells[-1] = "╸"
        if begin % 2 == 1 and first != zero:
            cells[0] = "╺"
        point = min(max(self.cell(one.ratio), first), last)
        cells[point - first] = one.mark
        return first, cells


def axis_of(drawn: Iterable[Interval], cells: int) -> Axis:
    """An axis that holds no change and all of these, as far as a hundredth and a hundred times.

    On either side of 0 there are two cells at least, so that no interval lies on the zero line by rounding.
    """
    ends = [math.log(end) for one in drawn for end in (one.low, one.high)]
    low = max(min([-_NARROWEST, *ends]), -_WIDEST)
    high = min(max([_NARROWEST, *ends]), _WIDEST)
    least = 2.5 / max(cells - 3, 3)
    return Axis(min(low, -least * high), max(high, -least * low), cells)


def intervals(
    rows: Sequence[Sequence[Interval]],
    wishes: tuple[tuple[float, int], ...] = (),
    bands: Sequence[tuple[float, float]] = (),
    axis: Axis | None = None,
) -> Drawing:
    """A column of intervals, several in a row; `wishes` as in `Drawing`.

    `bands` lie behind the rows of a page; `axis` is one that a page shares with other tables.
    """

    def draw(cells: int, beside: Sequence[Column]) -> Column:
        headings = {"", *(column.heading for column in beside)}
        shown = [[one for one in row if one.beside in headings] for row in rows]
        of_all = axis_of((one for row in shown for one in row), cells)
        return Column(of_all.heading(), [of_all.lines(row) for row in shown])

    def picture() -> tuple[str, Sequence[str]]:
        of_all = axis or axis_of((one for row in rows for one in row), PAGE_CELLS)
        return _labels(of_all), [_plot(of_all, row, bands[n : n + 1]) for n, row in enumerate(rows)]

    return Drawing(draw, _LEAST, _MOST, wishes=wishes, picture=picture)


# SVG: a drawing is as wide as its place, so that positions are percentages. No script, no style attribute


def _labels(axis: Axis) -> str:
    words = "".join(
        f'<text x="{axis.percent(tick):.1f}%" y="14" text-anchor="middle">{label}</text>'
        for tick, label, _ in axis.ticks()
    )
    return f'<svg class="labels" aria-hidden="true">{words}</svg>'


def _plot(axis: Axis, row: Sequence[Interval], band: Sequence[tuple[float, float]]) -> str:
    """All on one line; with letters, which would hide each other, each on its own."""
    behind = "".join(
        f'<rect class="band" x="{axis.percent(low):.2f}%" height="100%"'
        f' width="{axis.percent(high) - axis.percent(low):.2f}%"/>'
        for low, high in band
    )
    grid = "".join(
        f'<line class="{"zero" if tick == 1 else "grid"}" {_from_to(axis, tick, tick)} y2="100%"/>'
        for tick, _, _ in axis.ticks()
    )
    lines = sum(one.mark.isalpha() for one in row)
    drawn = "".join(
        _with_mark(axis, one, 100 * (place + 0.5) / lines if lines else 50) for place, one in enumerate(row)
    )
    height = f' height="{lines * 1.1 + 0.4:.1f}em"' if lines else ""
    return f'<svg class="plot"{height} aria-hidden="true">{behind}{grid}{drawn}</svg>'


def _with_mark(axis: Axis, one: Interval, y: float) -> str:
    at = f'{axis.percent(one.ratio):.2f}%" y="{y:.1f}%"'
    kind = f"{one.style} hollow" if one.mark in "○◇" else one.style
    ends = f'{_from_to(axis, one.low, one.high)} y1="{y:.1f}%" y2="{y:.1f}%"'
    mark = f'<svg x="{at}><circle class="point {kind}" r="5"/></svg>'
    if one.mark.isalpha():
        mark = f'<text class="{one.style}" x="{at} dy=".35em" text-anchor="middle">{one.mark}</text>'
    elif one.mark in "◆◇":
        mark = f'<svg x="{at}><path class="point {kind}" d="M-7 0L0-7 7 0 0 7z"/></svg>'
    return f'<line class="interval {one.style}" {ends}/>{mark}'


def _from_to(axis: Axis, low: float, high: float) -> str:
    return f'x1="{axis.percent(low):.2f}%" x2="{axis.percent(high):.2f}%"'
