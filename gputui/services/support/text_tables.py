"""Tables and lines of plain text, drawn by rich: nothing from a file is taken for markup."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import IO, Literal

from rich.cells import cell_len
from rich.console import Console, ConsoleOptions, ConsoleRenderable, RenderableType, RenderHook, RenderResult
from rich.measure import Measurement
from rich.segment import Segment
from rich.table import Table
from rich.text import Text

from gputui.services.support.plain_text import in_encoding
from gputui.store.text import clean_lines, clean_text

Pieces = Sequence[tuple[str, str]]
"""Texts with their styles, as rich writes them."""


def console_on(file: IO[str], width: int | None = None, *, is_terminal: bool | None = None) -> Console:
    """A console that writes to `file`; without a width that of the terminal, or 80 columns (or $COLUMNS).

    Text is made fit to be shown, in the encoding of the file, before it is laid out. No line ends in spaces.
    `is_terminal` None asks the file whether it takes escape sequences.
    """
    made = Console(
        file=file,
        width=width,
        force_terminal=is_terminal,
        force_jupyter=False,  # else text made in a kernel has colours
        highlight=False,
        markup=False,
        emoji=False,
        soft_wrap=False,
    )
    made.push_render_hook(_Edge())
    return made


class _Edge(RenderHook):
    """Text is made fit to be shown before it is laid out, and lines are trimmed after it."""

    def process_renderables(self, renderables: list[ConsoleRenderable]) -> list[ConsoleRenderable]:
        return [_Trimmed(_Plain(r) if isinstance(r, Text) else r) for r in renderables]


class _Plain:
    """Text as the console's stream can show it; it is measured as it will be drawn."""

    def __init__(self, text: Text, *, has_lines: bool = True) -> None:
        self._text = text
        self._clean = clean_lines if has_lines else clean_text

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        yield self._on(console)

    def __rich_measure__(self, console: Console, options: ConsoleOptions) -> Measurement:
        return Measurement.get(console, options, self._on(console))

    def _on(self, console: Console) -> Text:
        plain = in_encoding(self._clean(self._text.plain), console.encoding)
        if plain == self._text.plain:
            return self._text
        return Text(plain, self._text.style, justify=self._text.justify, overflow=self._text.overflow)


class _Trimmed:
    """Rich fills the last column of a table, and leaves the space at which it breaks a line."""

    def __init__(self, whole: ConsoleRenderable) -> None:
        self._whole = whole

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        held: list[Segment] = []
        for segment in console.render(self._whole, options):
            if segment.control:
                yield segment
                continue
            text = _SPACES_BEFORE_END.sub("", segment.text)
            if text.startswith("\n"):
                held.clear()
            told = text.rstrip(" ")
            if told:
                yield from held
                held.clear()
                yield Segment(told, segment.style)
            if told != text:
                held.append(Segment(text[len(told) :], segment.style))


_SPACES_BEFORE_END = re.compile(r" +(?=\n)")


def table_width(lines: Iterable[Sequence[str]], encoding: str) -> int:
    """Columns of a table of these lines, headings included, in which no cell is broken."""
    plain = ([in_encoding(clean_text(cell), encoding) for cell in line] for line in lines)
    return sum(max(map(cell_len, column)) + 1 for column in zip(*plain, strict=True)) - 1


def table(headings: Sequence[str], right: Iterable[int] = (), breaks: Iterable[int] = (0,)) -> Table:
    """An empty table without lines; the columns in `right` are aligned to the right.

    Where it is too wide, cells of the columns in `breaks` go on in a second line; nothing is cut.
    """
    made = Table(box=None, pad_edge=False, padding=(0, 1, 0, 0), collapse_padding=True, header_style="bold")
    numeric, broken = set(right), set(breaks)
    for index, heading in enumerate(headings):
        side: Literal["left", "right"] = "right" if index in numeric else "left"
        made.add_column(
            _Plain(Text(heading), has_lines=False),
            justify=side,
            no_wrap=index not in broken,
            overflow="fold" if index in broken else "ellipsis",
        )
    return made


def flowing(text: str) -> RenderableType:
    """A line that goes on below where it is too long, but not between a number and its unit."""
    return _Flowing(text)


class _Flowing:
    def __init__(self, text: str) -> None:
        self._text = text

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        text = in_encoding(clean_lines(self._text), console.encoding)
        for segment in console.render(Text(_BEFORE_UNIT.sub(_KEPT_SPACE, text)), options):
            yield Segment(segment.text.replace(_KEPT_SPACE, " "), segment.style, segment.control)


_BEFORE_UNIT = re.compile(r"(?<=\d) (?=(?:%|[A-Za-zµ]{1,3}(?:/[a-z]+)?)(?:[ ,;:.)]|$))")
_KEPT_SPACE = "\ue000"
"""In place of a space at which no line is to end: rich ends lines at every other."""


def add_row(to: Table, *cells: str, style: str = "") -> None:
    """One row of plain text."""
    to.add_row(*(_Plain(Text(cell), has_lines=False) for cell in cells), style=style)


class Page:
    """Lines and tables that are drawn in one go; what fits is laid out here, what does not by rich.

    The same is drawn as if each were printed, in a fifth of the time.
    """

    def __init__(self, out: Console) -> None:
        self.width, self.encoding, self.is_terminal = out.width, out.encoding, out.is_terminal
        self._out = out
        self._segments: list[Segment] = []

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        """What was put on it."""
        return self._segments

    @property
    def height(self) -> int:
        """Lines that are on it."""
        return sum(segment.text.count("\n") for segment in self._segments)

    def line(self, text: str = "", *, is_whole: bool = False) -> None:
        """A plain line, continued below where it is too long unless it is to stay whole."""
        plain = self._plain(text)
        if is_whole or (not plain.endswith(" ") and cell_len(plain) <= self.width):
            self._segments += (Segment(plain), Segment.line())
        else:
            self.add(flowing(plain))

    def table(
        self,
        headings: Sequence[str],
        rows: Sequence[Sequence[str]],
        right: Collection[int] = (),
        styles: Sequence[str] = (),
        painted: Mapping[tuple[int, int], Pieces] | None = None,
    ) -> None:
        """A table as `table` makes them, with the style of each row where they have one.

        `painted` are cells of several styles, by row and column; together their pieces are the cell.
        """
        lines = [[self._plain(cell) for cell in cells] for cells in (headings, *rows)]
        widths = [max(map(cell_len, column)) for column in zip(*lines, strict=True)]
        if sum(widths) + len(widths) - 1 > self.width:
            made = table(headings, right)
            for index, cells in enumerate(rows):
                add_row(made, *cells, style=styles[index] if styles else "")
            self.add(made)
            return
        places = [(width, index in right) for index, width in enumerate(widths)]
        for index, cells in enumerate(lines):
            padded = [_padded(text, *place) for text, place in zip(cells, places, strict=True)]
            style = "bold" if index == 0 else styles[index - 1] if styles else ""
            whole = self._out.get_style(style) if style else None
            line: list[Segment] = []
            for place, text in enumerate(padded):
                line.append(Segment(" " if place else "", whole))
                pieces = (painted or {}).get((index - 1, place))
                if pieces is None:
                    line.append(Segment(text, whole))
                    continue
                space = Segment(" " * (cell_len(text) - cell_len(cells[place])), whole)
                line += [space] if place in right else []
                for piece, name in pieces:
                    own = self._out.get_style(name) if name else None
                    line.append(Segment(self._plain(piece), own if whole is None else whole + own))
                line += [] if place in right else [space]
            self._segments += (*Segment.simplify(line), Segment.line())

    def add(self, what: RenderableType) -> None:
        """Whatever rich can draw."""
        self._segments += self._out.render(_Plain(what) if isinstance(what, Text) else what)

    def show(self) -> None:
        """Draw it."""
        self._out.print(self, crop=False)

    def _plain(self, text: str) -> str:
        return in_encoding(clean_text(text), self.encoding)


def _padded(text: str, width: int, is_right: bool) -> str:
    space = " " * (width - cell_len(text))
    return space + text if is_right else text + space
