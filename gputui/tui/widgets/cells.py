"""Text measured in cells: cleaned, cut, wrapped and laid out side by side; in ASCII where a terminal has
nothing else.
"""

from __future__ import annotations

import os
import re
import sys
import unicodedata
from collections.abc import Iterable, Iterator, Sequence
from functools import lru_cache

from rich.cells import cell_len

from gputui.document import spans
from gputui.document.spans import Line, Span, cut, in_encoding, line_width, width_of
from gputui.document.table import Table, changed, columns_that_fit, lines_of
from gputui.errors import clean_text

_NO_WIDTH = frozenset({"Mn", "Me", "Mc"})
"""Marks combined with the previous character."""


def clean(text: str) -> str:
    """A name as `clean_text` shows it, without marks whose width terminals disagree about."""
    if text.isascii() and text.isprintable():
        return text
    return _cleaned(text[:4096])


@lru_cache(maxsize=256)
def _cleaned(text: str) -> str:
    composed = clean_text(unicodedata.normalize("NFC", text))
    return "".join(c for c in composed if unicodedata.category(c) not in _NO_WIDTH and cell_len(c) > 0)


def ends_of(text: str, width: int) -> str:
    """The beginning and the end of the text in at most `width` cells; `…` marks where it was cut.

    Names that differ in their last letters stay different.
    """
    if width_of(text) <= width or width < 3:
        return cut(text, width)
    behind = end_of(text, width // 2)
    return cut(text, width + 1 - width_of(behind))[:-1] + behind


def end_of(text: str, width: int) -> str:
    """The end of the text in at most `width` cells; `…` marks where it was cut."""
    if width_of(text) <= width:
        return text
    while text and width_of(text) > width - 1:
        text = text[1:]
    return f"…{text}" if width > 0 else ""


def left(text: str, width: int) -> str:
    """Cut or padded on the right to exactly `width` cells."""
    if text.isascii() and len(text) <= width:
        return text.ljust(width)
    short = cut(text, width)
    return short + " " * (width - width_of(short))


def right(text: str, width: int) -> str:
    """Cut or padded on the left to exactly `width` cells."""
    if text.isascii() and len(text) <= width:
        return text.rjust(width)
    short = cut(text, width)
    return " " * (width - width_of(short)) + short


def fitted(spans: Iterable[Span], width: int) -> Line:
    """A line of exactly `width` cells, cut with `…` or padded; adjacent spans of one style are merged."""
    return _fitted(tuple(spans), width)


@lru_cache(maxsize=256)  # most lines are those of the last picture
def _fitted(spans: tuple[Span, ...], width: int) -> Line:
    line: list[Span] = []
    room = width
    for span in spans:
        text = span.text
        if not text:
            continue
        taken = len(text) if text.isascii() else cell_len(text)
        if taken > room:
            if room > 0:
                _append(line, Span(left(text, room), span.style))
            elif line:
                last = line.pop()
                _append(line, Span(left(last.text + "…", width_of(last.text)), last.style))
            return tuple(line)
        room -= taken
        _append(line, span)
    if room > 0:
        _append(line, Span(" " * room))
    return tuple(line)


def _append(line: list[Span], span: Span) -> None:
    if line and line[-1].style == span.style:
        line[-1] = Span(line[-1].text + span.text, span.style)
    else:
        line.append(span)


def noted(line: Line, note: str, width: int, style: str = "dim") -> Line:
    """A line of exactly `width` cells with a note at its right end; what has no room before it is cut."""
    *before, last = line
    bare = (*before, Span(last.text.rstrip(), last.style))
    return (*fitted(bare, max(width - len(note), 0)), Span(note[:width], style))


def ruled(parts: Iterable[Span], width: int, rule: str = "─") -> Line:
    """A heading drawn into a horizontal rule: `─ 0 H200 SXM ── 71 °C ────`.

    Parts that do not fit are omitted, but the first is cut.
    """
    spans: list[Span] = [Span(rule + " ", "track")]
    room = width - 2
    for number, part in enumerate(parts):
        text = part.text
        lead = f" {rule}{rule} " if number else ""
        if number == 0:
            text = cut(text, max(0, room - 2))
        need = width_of(text) + len(lead)
        if not text or need > room - 2:
            continue
        if lead:
            spans.append(Span(lead, "track"))
        spans.append(Span(text, part.style))
        room -= need
    if room > 0:
        spans.append(Span(" " + rule * (room - 1), "track"))
    return fitted(spans, width)


def filled(lines: Sequence[Line], width: int, height: int) -> list[Line]:
    """Exactly `height` lines, cut or padded with empty ones."""
    blank = fitted((), width)
    return [*lines[:height], *[blank] * (height - len(lines))]


def side_by_side(blocks: Sequence[Sequence[Line]], width: int, gap: int = 1) -> list[Line]:
    """Blocks with `gap` blank columns between them, the shorter ones padded."""
    if len(blocks) == 1 and line_width(blocks[0][0]) == width:
        return list(blocks[0])
    widths = [line_width(block[0]) for block in blocks]
    between = (Span(" " * gap),)
    behind = width - sum(widths) - gap * (len(blocks) - 1)
    lines = []
    for row in range(max(len(block) for block in blocks)):
        line: Line = ()
        for place, block in enumerate(blocks):
            if place:
                line += between
            line += block[row] if row < len(block) else (Span(" " * widths[place]),)
        lines.append((*line, Span(" " * behind)) if behind > 0 else line)
    return lines


def wrapped(text: str, width: int, most: int) -> list[str]:
    """Words in at most `most` rows, none of no words; what does not fit is cut."""
    words = " ".join(text.split())
    rows = spans.wrapped(words, width) if words else []
    return rows if len(rows) <= most else [*rows[: most - 1], cut(" ".join(rows[most - 1 :]), width)]


_LEAD = "── "
_GAP = 2


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


def paragraph(text: str, width: int, style: str = "", *, indent: int = 0) -> tuple[Line, ...]:
    """A text wrapped at spaces: paths and options stay whole where they can, and numbers keep their unit.

    Lines after the first are indented.
    """
    return tuple((Span(line, style),) for line in spans.wrapped(text, max(width - 1, 20), indent))


def facts_lines(
    facts: Sequence[tuple[str, str]], width: int, label_cells: int, abreast: int
) -> Iterator[Line]:
    """Labels and texts, so many abreast, column by column; texts too long for that go below."""
    each = width // abreast
    short = [fact for fact in facts if width_of(fact[1]) < each - label_cells]
    rows = -(-len(short) // abreast)
    for row in range(rows):
        cells = (
            (Span(left(label, label_cells), "dim"), Span(left(text, each - label_cells)))
            for label, text in short[row::rows]
        )
        yield fitted(joined(cells, ""), width)
    for label, text in facts:
        if (label, text) not in short:
            for number, part in enumerate(wrapped(text, max(width - label_cells - 1, 8), 6)):
                yield fitted((Span(left("" if number else label, label_cells), "dim"), Span(part)), width)


def log_lines(rows: Iterable[str], width: int, indent: int = 4) -> Iterator[Line]:
    """The end of a log: its lines go on below where they are too long, and keep some of their indent."""
    for row in rows:
        margin = " " * (indent + min(len(row) - len(row.lstrip()), 8))
        for part in spans.wrapped(row.strip(), max(width - len(margin) - 1, 20)):
            yield (Span(margin + part),)


def error_lines(message: str, hint: str, width: int) -> tuple[Line, ...]:
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


_OF_ONE_CELL = {"…": "~", "°": " ", "±": "~", "≥": ">", "≤": "<", "≠": "#", "²": "2", "³": "3"}
"""For characters whose usual replacement is wider than they are; `±` where there is no room for `+-`."""
_BLANK_BEHIND = re.compile(r"[^│|]*?(?= (?: |$))")
"""Up to a blank that a line can spare; what stands behind a border stays in its place."""
_IN_NUMBER = re.compile(r"±[\d.]+(?= %)")
_DEGREES = re.compile(r"(?<=\d )°([CF])(?= |$)")
_SHAPES = dict(zip("▁▂▃▄▅▆▇█━╸╺┄●○◆■", ".,:;+x*#===.o?*#", strict=True))
"""For the shapes of charts, gauges and intervals, which differ from each other in ASCII too."""
_NO_SHAPES: tuple[str, ...] = ("linux", "vt1", "vt2", "vt3", "dumb")
"""Beginnings of the names of terminals whose fonts lack them: the console of Linux, and the old ones."""


def in_ascii(line: Line) -> Line:
    """The same line in ASCII, with the same width."""
    if all(span.text.isascii() for span in line):
        return line
    swaps, begin, found = _with_room("".join(span.text for span in line)), 0, []
    for text, style in line:
        places = enumerate(text, begin)
        plain = (swaps.get(place, one if one.isascii() else _cells(one)) for place, one in places)
        found.append(Span("".join(plain), style))
        begin += len(text)
    return tuple(found)


def text_in_ascii(text: str) -> str:
    return "".join(span.text for span in in_ascii((Span(text),)))


def _with_room(text: str) -> dict[int, str]:
    """By places: `+-` for each `±` that finds a blank, nothing for that blank, and `64 C ` for `64 °C`.

    `±` takes one of several blanks before it or behind its words, else the one in `±1 %`, else the only one
    before it.
    """
    swaps: dict[int, str] = {}
    for degree in _DEGREES.finditer(text):
        swaps |= {degree.start(): degree[1], degree.start() + 1: " "}
    for sign in re.finditer("±", text):
        at = sign.start()
        behind = _BLANK_BEHIND.match(text, at)
        before = text[max(at - 2, 0) : at]
        if before == "  " and at - 2 not in swaps:
            blank = at - 1
        elif behind and behind.end() not in swaps:
            blank = behind.end()
        elif number := _IN_NUMBER.match(text, at):
            blank = number.end()
        elif before.endswith(" "):
            blank = at - 1
        else:
            continue
        swaps |= {at: "+-", blank: ""}
    return swaps


def _cells(character: str) -> str:
    plain = _OF_ONE_CELL.get(character) or _SHAPES.get(character) or in_encoding(character, "ascii")
    width = width_of(character)
    return plain if len(plain) == width else "?" * width


def wants_ascii(environment: dict[str, str] | None = None) -> bool:
    """Whether the terminal shows only ASCII: GPUTUI_ASCII, else by its name; or an encoding without more."""
    environ = os.environ if environment is None else environment
    # Not sys.stdout, which Textual replaces while it runs: screens call this then.
    encoding = (getattr(sys.__stdout__, "encoding", None) or "ascii").lower().replace("-", "")
    wanted = environ.get("GPUTUI_ASCII") or str(int(environ.get("TERM", "").startswith(_NO_SHAPES)))
    return wanted != "0" or encoding != "utf8"
