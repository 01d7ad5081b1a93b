"""Lines and tables for a terminal or a pipe, with colours where there are any. Written without a library for
terminals: importing one takes longer than a comparison of two files."""

from __future__ import annotations

import os
import re
from collections.abc import Iterable
from dataclasses import dataclass
from typing import IO

from gputui.document.background import palette_here
from gputui.document.drawings import in_hues
from gputui.document.spans import Line, Span, in_encoding, wrapped
from gputui.document.table import (
    Code,
    Links,
    Part,
    Section,
    Table,
    changed,
    columns_that_fit,
    lines_of,
    parts_of,
)
from gputui.document.theme import Depth, Palette, sgr
from gputui.errors import clean_text

_PLAIN = {"title": "1", "dim": "2", "track": "2", "italic": "3"}
"""Of styles that have no colour, as terminals know them."""
_STYLES = re.compile(r"\S+(?: \d)?")
_QUIET, _JUDGED = ("dim", "track"), ("good", "warn")
"""Styles that stay as they are in a row that stands out; where it has any of the others, only these do."""


@dataclass
class Console:
    """Where a page is shown, how large that is, and its colours; without any, a palette of no depth."""

    file: IO[str]
    width: int
    height: int
    is_terminal: bool
    has_styles: bool
    palette: Palette

    @property
    def encoding(self) -> str:
        return getattr(self.file, "encoding", None) or "utf-8"


def console_on(
    file: IO[str],
    width: int | None = None,
    *,
    height: int | None = None,
    is_terminal: bool | None = None,
) -> Console:
    """A console that writes to `file`; without a size in that of the terminal, or 80 columns (or $COLUMNS).

    `is_terminal` None asks the file, and `FORCE_COLOR`, whether it takes escape sequences.
    """
    if is_terminal is None:
        forced = os.environ.get("FORCE_COLOR")
        is_terminal = file.isatty() if forced is None else forced != ""
    kind = os.environ.get("TERM", "").lower()
    is_old_windows = os.name == "nt" and not (kind or os.environ.get("WT_SESSION"))
    has_styles = is_terminal and kind not in ("dumb", "unknown") and not is_old_windows
    columns, lines = _size()
    return Console(
        file,
        columns if width is None else width,
        lines if height is None else height,
        is_terminal,
        has_styles,
        palette_here(asks=file.isatty()) if has_styles else Palette(Depth.NONE),
    )


def _size() -> tuple[int, int]:
    """Columns and lines of the terminal that any of the standard streams is, or those of the environment."""
    found = os.terminal_size((80, 25))
    for descriptor in range(3):
        try:
            found = os.get_terminal_size(descriptor)
            break
        except OSError:
            continue
    stated = [os.environ.get(name, "") for name in ("COLUMNS", "LINES")]
    columns, lines = (int(text) if text.isdigit() else 0 for text in stated)
    return columns or found.columns or 80, lines or found.lines or 25


class Page:
    """Lines and tables that are shown in one go; text is made fit for the stream before it is laid out."""

    def __init__(self, out: Console) -> None:
        self.out, self.width = out, out.width
        self.lines: list[Line] = []

    @property
    def written(self) -> list[str]:
        """Its lines as the stream gets them."""
        return ["".join(map(self._written, line)) for line in self.lines]

    @property
    def height(self) -> int:
        """Lines that are on it."""
        return len(self.lines)

    def line(self, text: str = "", style: str = "", *, lead: str = "", is_whole: bool = False) -> None:
        """A line that goes on below where it is too long, unless it is to stay whole.

        `lead` stands before it and stands out.
        """
        first = self._plain(lead)
        whole = first + self._plain(text)
        for number, part in enumerate([whole] if is_whole else wrapped(whole, self.width)):
            begin = len(first) if number == 0 else 0
            self._add((Span(part[:begin], "title"), Span(part[begin:], style)))

    def spans(self, line: Iterable[Span]) -> None:
        """A line of pieces in their styles, as long as it is."""
        self._add([Span(self._plain(text), style) for text, style in line])

    def hint(self, text: str, typed: str) -> None:
        """What there is more, and what to type for it: `12 more rows: --all`, below it if too long."""
        if self.out.is_terminal and len(text) + len(typed) + 2 > self.width:
            self.line(f"{text}:", "dim")
            self.spans((Span(f"  {typed}", "accent"),))
        else:
            self.spans((Span(f"{text}: ", "dim"), Span(typed, "accent")))

    def table(self, table: Table, margin: int = 0, *, gap: int = 1) -> list[str]:
        """A table; columns that have no room are left out, and where all must stay their cells go on below.
        Without headings it has no line for them.

        Returns the headings of the columns that are shown.
        """
        room, lead = self.width - margin, Span(" " * margin)
        columns = columns_that_fit([changed(one, self._plain) for one in table.columns], room, gap)
        for number, part in enumerate(parts_of(columns, room, table.keeps, gap)):
            if number:
                self.line()
            for place, lines in enumerate(lines_of(part, room, gap=gap)):
                for line in lines if place or any(column.heading for column in part) else ():
                    self._add((lead, *line), table.styles[place - 1] if place and table.styles else "")
        return [column.heading for column in columns]

    def part(self, part: Part | Section, margin: int = 0) -> None:
        """A paragraph, a list without marks, a table below a blank line, code, links, or a section: the same,
        further in, behind its title."""
        indent = " " * margin
        if isinstance(part, Section):
            self.line()
            first, *rest = part.parts
            if isinstance(first, str):
                self.line(first, lead=f"{part.title}: ")
            else:
                self.line(f"{part.title}:", "title")
                rest = [first, *rest]
            for one in rest:
                self.part(one, margin=2)
        elif isinstance(part, Table):
            if not margin:
                self.line()
            self.table(part, margin)
        elif isinstance(part, Code):
            for line in part.lines:
                self.line(indent + line, "accent")
        elif isinstance(part, Links):
            for text, link in part.items:
                self.line(f"{indent}{text}{f': {link}' if link else ''}")
        else:
            for text in [part] if isinstance(part, str) else part:
                self.line(indent + text)

    def add(self, page: Page) -> None:
        """All that is on another one."""
        self.lines += page.lines

    def show(self) -> None:
        """Write it."""
        self.out.file.write("".join(f"{line}\n" for line in self.written))
        self.out.file.flush()

    def _plain(self, text: str) -> str:
        return in_encoding(clean_text(text), self.out.encoding)

    def _add(self, line: Iterable[Span], of_row: str = "") -> None:
        spans = [span for span in line if span.text]
        quiet = {"", *_QUIET} if any(span.style in _JUDGED for span in spans) else {*_QUIET}
        spans = [
            Span(text, style if style in quiet else f"{of_row} {style}".strip()) for text, style in spans
        ]
        while spans and not spans[-1].text.rstrip(" "):
            spans.pop()
        if spans:
            spans[-1] = Span(spans[-1].text.rstrip(" "), spans[-1].style)
        self.lines.append(tuple(spans))

    def _written(self, span: Span) -> str:
        codes = [code for name in _STYLES.findall(span.style) if (code := self._code(name))]
        text = in_hues(span, self.out.palette)
        return f"\x1b[{';'.join(codes)}m{text}\x1b[0m" if codes and text.strip(" ") else text

    def _code(self, name: str) -> str:
        coloured = sgr(name, self.out.palette) if self.out.palette.depth else ""
        return coloured or (_PLAIN.get(name, "") if self.out.has_styles else "")
