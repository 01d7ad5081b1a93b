"""Text measured in cells: cleaned, cut and laid out side by side."""

from __future__ import annotations

import unicodedata
from collections.abc import Iterable, Sequence
from functools import lru_cache

from rich.cells import cell_len

from gputui.document import spans
from gputui.document.spans import cut as cut
from gputui.document.spans import line_width as line_width
from gputui.document.spans import width_of as width_of
from gputui.store.text import clean_text
from gputui.tui.terminal.lines import Line, Span

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
