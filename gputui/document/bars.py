"""Bars beside figures, as wide as their table leaves room for."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from itertools import accumulate

from gputui.document.html import safe
from gputui.document.spans import Line, Span, line_width
from gputui.document.table import Column, Drawing
from gputui.document.theme import FAMILIES, Palette
from gputui.model.units import format_percent

NO_READING = "┄"


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
    """A span's text without the patterns of parts, where each hue has a colour of its own."""
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
