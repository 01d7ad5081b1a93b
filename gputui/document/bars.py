"""Bars beside figures, as wide as their table leaves room for."""

from __future__ import annotations

from collections.abc import Sequence

from gputui.document.spans import Span
from gputui.document.table import Column, Drawing

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
