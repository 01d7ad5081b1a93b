"""What pages are made of: headings in a rule, and gauges beside their figures."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence

from gputui.document.bars import NO_READING
from gputui.tui.terminal.lines import Line, Span
from gputui.tui.widgets.cells import cut, fitted, line_width, width_of
from gputui.tui.widgets.charts import area, body_styles

_LEAD = "── "


def section(title: Sequence[Span], width: int, right: Sequence[Span] = ()) -> Line:
    """A heading in a rule: `── gemm  launch 2 of 3 ──────── 0:38 left ──`.

    What stands on the right is omitted where there is no room for it; the title is cut.
    """
    end = (Span(" "), *right, Span(" ──", "track")) if right else ()
    if line_width((*title, *end)) + len(_LEAD) + 4 > width:
        end = ()
    room = max(width - len(_LEAD) - line_width(end) - 2, 0)
    named: list[Span] = []
    for span in title:
        text = cut(span.text, room)
        room -= width_of(text)
        named.append(Span(text, span.style))
    rule = max(width - len(_LEAD) - line_width(tuple(named)) - line_width(end) - 1, 0)
    return fitted((Span(_LEAD, "track"), *named, Span(" "), Span("─" * rule, "track"), *end), width)


def area_lines(
    values: Sequence[float | None],
    high: float,
    rows: int,
    width: int,
    family: str,
    mark: float | None = None,
) -> list[tuple[Span, ...]]:
    """An area of `rows` rows, padded to `width` cells, top first; a dotted line is at `mark`."""
    drawn = [f"{text:{width}}" for text in area(values, high, rows)]
    return painted(drawn, body_styles(family, rows), mark_row(mark, high, rows) if rows > 1 else None)


def mark_row(mark: float | None, high: float, rows: int) -> int | None:
    """The row of a chart, from its top, in which a limit lies."""
    return None if mark is None else rows - 1 - min(int(mark / high * rows), rows - 1)


def painted(drawn: Sequence[str], styles: Sequence[str], marked: int | None) -> list[tuple[Span, ...]]:
    """The rows of a chart in their styles; in the marked one, empty cells are part of a line."""
    rows: list[tuple[Span, ...]] = [(Span(body, style),) for body, style in zip(drawn, styles, strict=True)]
    if marked is not None:
        rows[marked] = tuple(
            Span(NO_READING * len(part), "track") if part.isspace() else Span(part, styles[marked])
            for part in re.findall(" +|[^ ]+", drawn[marked])
        )
    return rows


def joined(parts: Iterable[Sequence[Span]], gap: str = "  ") -> tuple[Span, ...]:
    """Parts that are not empty, with a gap between them."""
    spans: list[Span] = []
    for part in parts:
        if part:
            spans += (*((Span(gap),) if spans else ()), *part)
    return tuple(spans)


def stacked(blocks: Iterable[Sequence[Line]], height: int) -> list[Line]:
    """Blocks below each other with a blank line before each, as long as they fit whole."""
    lines: list[Line] = []
    for block in blocks:
        if block and len(lines) + len(block) + 1 <= height:
            lines += [(), *block]
    return lines
