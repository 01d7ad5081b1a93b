"""What pages are made of: headings in a rule, wrapped paragraphs, and a document's tables."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

from gputui.document import spans
from gputui.document.spans import Line, Span
from gputui.document.table import Table, changed, columns_that_fit, lines_of
from gputui.store.text import clean_text
from gputui.tui.widgets.cells import clean, cut, fitted, left, line_width, width_of, wrapped

_LEAD = "── "
_GAP = 2
"""Cells between the columns of a table."""


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


def joined(parts: Iterable[Sequence[Span]], gap: str = "  ") -> tuple[Span, ...]:
    """Parts that are not empty, with a gap between them."""
    spans: list[Span] = []
    for part in parts:
        if part:
            spans += (*((Span(gap),) if spans else ()), *part)
    return tuple(spans)


def fitting(parts: Iterable[Line], room: int, gap: str = "", least: int = 0) -> list[Line]:
    """The first parts that fit beside each other with a gap between them, `least` at least."""
    kept: list[Line] = []
    for part in parts:
        if len(kept) >= least and line_width(joined((*kept, part), gap)) > room:
            break
        kept.append(part)
    return kept


def stacked(blocks: Iterable[Sequence[Line]], height: int) -> list[Line]:
    """Blocks below each other with a blank line before each, as long as they fit whole."""
    lines: list[Line] = []
    for block in blocks:
        if block and len(lines) + len(block) + 1 <= height:
            lines += [(), *block]
    return lines


def paragraph(text: str, width: int, style: str = "", *, indent: int = 0) -> tuple[Line, ...]:
    """A text wrapped at spaces: paths and options stay whole where they can, and numbers keep their unit.

    Lines after the first are indented.
    """
    return tuple((Span(line, style),) for line in spans.wrapped(text, max(width - 1, 20), indent))


def facts_lines(
    facts: Sequence[tuple[str, str]],
    width: int,
    label_cells: int,
    abreast: int,
    *,
    is_down: bool = False,
    most: int = 6,
) -> Iterator[Line]:
    """Labels and texts, so many abreast: from left to right, or with `is_down` column by column.

    Texts too long for that have lines of their own, at most `most`.
    """
    each = width // abreast
    short = [fact for fact in facts if width_of(fact[1]) < each - label_cells]
    rows = -(-len(short) // abreast)
    for row in range(rows):
        here = short[row::rows] if is_down else short[row * abreast :][:abreast]
        cells = [
            (Span(left(label, label_cells), "dim"), Span(left(text, each - label_cells)))
            for label, text in here
        ]
        yield fitted(joined(cells, ""), width)
    for label, text in facts:
        if (label, text) not in short:
            for number, part in enumerate(wrapped(text, max(width - label_cells - 1, 8), most)):
                yield fitted((Span(left("" if number else label, label_cells), "dim"), Span(part)), width)


def log_lines(rows: Iterable[str], width: int, indent: int = 4) -> Iterator[Line]:
    """The end of a log: its lines go on below where they are too long, and keep some of their indent."""
    for row in rows:
        margin = " " * (indent + min(len(row) - len(row.lstrip()), 8))
        for part in spans.wrapped(row.strip(), max(width - len(margin) - 1, 20)):
            yield (Span(margin + part),)


def error_lines(message: str, hint: str, width: int) -> tuple[Line, ...]:
    """An error and what to do next."""
    lines = paragraph(clean_text(message), width, "warn")
    return (*lines, (), *paragraph(clean_text(hint), width)) if hint else lines


def table_lines(
    table: Table,
    width: int,
    *,
    margin: int = 2,
    marks: Sequence[bool] = (),
    folds: bool = False,
    has_headings: bool = True,
) -> Iterator[Line]:
    """The columns that fit, a line for each row, or more where cells fold; the rest of a cell is cut.

    Rows may be marked with `▸` in the margin.
    """
    room = width - margin
    columns = columns_that_fit([changed(column, clean) for column in table.columns], room, _GAP)
    drawn = lines_of(columns, room, gap=_GAP, cuts=not folds)
    for number, lines in enumerate(drawn):
        if number == 0 and not has_headings:
            continue
        is_marked = number > 0 and bool(marks) and marks[number - 1]
        lead = Span(f"{'▸ ' if is_marked else '':>{margin}}", "accent")
        for line in lines:
            yield fitted((lead, *line), width)
