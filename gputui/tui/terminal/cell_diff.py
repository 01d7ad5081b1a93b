"""The shortest bytes that turn the picture a terminal shows into another one."""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Iterable, Mapping
from functools import lru_cache
from itertools import compress
from operator import ne
from typing import NamedTuple

from rich.cells import cell_len, split_graphemes
from rich.color import ColorSystem
from rich.style import Style
from textual.strip import Strip

from gputui.tui.terminal.lines import Line
from gputui.tui.terminal.theme import Depth, definition

JOINED_GAP = 6
"""Runs of changed cells with fewer unchanged ones between are written as one: a move costs as many bytes."""
ERASED_BLANKS = 14
"""So many plain blanks inside a run are erased rather than written: an erasure and a move take 10 bytes."""
_ONE_CELL_EACH = re.compile(
    "[ -~\u00a1-\u00ac\u00ae-\u02ff\u2010-\u2027\u2030-\u205e\u2190-\u21ff\u2500-\u25fc\u2800-\u28ff]*"
)
_RIGHT_HALF = ""
_SYSTEMS = {
    Depth.NONE: ColorSystem.TRUECOLOR,
    Depth.ANSI: ColorSystem.STANDARD,
    Depth.INDEXED: ColorSystem.EIGHT_BIT,
    Depth.TRUE: ColorSystem.TRUECOLOR,
    Depth.LIGHT: ColorSystem.EIGHT_BIT,
}

Placed = tuple[int, Strip]
"""A strip and the column it begins at."""


@lru_cache(maxsize=128)
def rich_style(name: str, depth: Depth) -> Style:
    """The style of a span at a depth."""
    return Style.parse(definition(name, depth))


class TextStyle(NamedTuple):
    """Parameters of the SGR sequence for a style; empty for the terminal's own."""

    of_text: str
    of_blanks: str
    """Empty also where only the colour of the letters or their weight differs: a blank does not show it."""


class TextStyles:
    """Rich styles as SGR parameters at one depth, remembered."""

    def __init__(self, depth: Depth) -> None:
        self._depth = depth
        self._known: dict[Style, TextStyle] = {}
        self._named: dict[str, TextStyle] = {}

    def named(self, name: str) -> TextStyle:
        """How text of a style of the theme is switched on."""
        look = self._named.get(name)
        if look is None:
            look = self._named[name] = self.of(rich_style(name, self._depth))
        return look

    def of(self, style: Style | None) -> TextStyle:
        """How text of a style is switched on."""
        if style is None:
            return TextStyle("", "")
        look = self._known.get(style)
        if look is None:
            look = self._known[style] = self._made(style)
        return look

    def _made(self, style: Style) -> TextStyle:
        foreground, background = style.color, style.bgcolor
        if self._depth is Depth.NONE:
            foreground = background = None
        if foreground is not None and foreground.is_default:
            foreground = None
        if background is not None and background.is_default:
            background = None
        bare = style.without_color + Style(color=foreground, bgcolor=background)
        # a link is left out as on old Windows: what it points to may be of any length
        rendered = bare.render("x", color_system=_SYSTEMS[self._depth], legacy_windows=True)
        parameters = rendered.partition("x")[0].removeprefix("\x1b[").removesuffix("m")
        on_blanks = background or any(
            (style.reverse, style.underline, style.underline2, style.strike, style.overline, style.blink)
        )
        return TextStyle(parameters, parameters if on_blanks else "")


def width_of(text: str) -> int:
    """Cells that a text takes."""
    return len(text) if _ONE_CELL_EACH.fullmatch(text) else cell_len(text)


def cells_of(text: str) -> tuple[str, ...]:
    """What stands in each cell of a text; the right half of a wide character is empty.

    Control characters and marks of writing direction, which a terminal would obey, become blanks or vanish,
    as wide as they were counted. Of several pictures joined to one, the first is left.
    """
    return tuple(text) if _ONE_CELL_EACH.fullmatch(text) else _cells_of_graphemes(text)


@lru_cache(maxsize=256)
def _cells_of_graphemes(text: str) -> tuple[str, ...]:
    cells: list[str] = []
    for start, end, width in split_graphemes(text)[0]:
        base, marks = text[start], text[start + 1 : end]
        if width == 0:
            continue  # a mark without a letter
        if unicodedata.category(base) in ("Cc", "Cf", "Cs", "Zl", "Zp"):
            cells.extend(" " * width)
            continue
        cells.append(base + "".join(mark for mark in marks if unicodedata.category(mark) in ("Mn", "Me")))
        cells.extend([_RIGHT_HALF] * (width - 1))
    return tuple(cells)


class CellDiff:
    """Remembers, cell by cell, what was last sent to the terminal.

    The picture must be fed to a terminal of exactly this size with line wrap off.
    """

    def __init__(self, depth: Depth, width: int = 0, height: int = 0) -> None:
        self._looks = TextStyles(depth)
        self.resize(width, height)

    def resize(self, width: int, height: int) -> None:
        """The terminal has another size: what it shows now is not known."""
        self.size = (width, height)
        self.forget()

    def forget(self) -> None:
        """What the terminal shows is not known; the next picture must be whole."""
        width, height = self.size
        self.forgotten = True
        self._cells = [[" "] * width for _ in range(height)]
        self._styles = [[""] * width for _ in range(height)]
        self._odd = [False] * height
        self._sent: list[tuple[Placed, ...]] = [()] * height

    def diff(self, rows: Mapping[int, Iterable[Placed]]) -> str:
        """What to write so that the terminal shows these strips, by row; empty when it does already."""
        pen = self._pen()
        for y, strips in rows.items():
            if 0 <= y < self.size[1]:
                self._row(y, tuple(strips), pen)
        return pen.done()

    def diff_lines(self, rows: Mapping[int, Line]) -> str:
        """The same for lines that each fill a row; one that does not is cut, or filled with blanks."""
        pen = self._pen()
        width, height = self.size
        for y, line in rows.items():
            if not 0 <= y < height:
                continue
            cells: list[str] = []
            styles: list[str] = []
            odd = False
            for span in line:
                text = span.text
                if not text:
                    continue
                if _ONE_CELL_EACH.fullmatch(text):
                    cells += text
                else:
                    odd = True
                    cells += cells_of(text)
                look = self._looks.named(span.style)
                del cells[width:]
                letters = len(cells) - len(styles)
                if look.of_blanks != look.of_text:
                    blanks = 0
                    while blanks < letters and cells[-1 - blanks] == " ":
                        blanks += 1
                    styles += [look.of_text] * (letters - blanks)
                    styles += [look.of_blanks] * blanks
                else:
                    styles += [look.of_text] * letters
            if len(cells) < width:
                styles += [""] * (width - len(cells))
                cells += " " * (width - len(cells))
            self._sent[y] = ()
            self._change(y, cells, styles, odd, pen)
        return pen.done()

    def _pen(self) -> _Pen:
        pen = _Pen()
        if self.forgotten:
            pen.write("\x1b[m\x1b[2J")
            self.forgotten = False
        return pen

    def _row(self, y: int, strips: tuple[Placed, ...], pen: _Pen) -> None:
        sent = self._sent[y]
        if len(sent) == len(strips) and all(
            new is old and x == at for (x, new), (at, old) in zip(strips, sent, strict=True)
        ):
            return
        cells, styles = self._cells[y].copy(), self._styles[y].copy()
        odd = self._odd[y]
        for x, strip in strips:
            odd |= self._lay(cells, styles, x, strip)
        self._sent[y] = strips
        self._change(y, cells, styles, odd, pen)

    def _change(self, y: int, cells: list[str], styles: list[str], odd: bool, pen: _Pen) -> None:
        """Have the terminal show these cells in a row."""
        old_cells, old_styles = self._cells[y], self._styles[y]
        if odd:
            _mend_halves(cells)
        changed = list(compress(range(len(cells)), map(ne, cells, old_cells)))
        if styles != old_styles:
            restyled = compress(range(len(cells)), map(ne, styles, old_styles))
            changed = sorted({*changed, *restyled})
        if not changed:
            return
        self._cells[y], self._styles[y] = cells, styles
        self._odd[y] = odd and not all(map(_is_one_character, cells))
        _write_row(y, cells, styles, _runs(cells, changed), odd, pen)

    def _lay(self, cells: list[str], styles: list[str], x: int, strip: Strip) -> bool:
        """Put a strip into a row, cut to it. Whether anything in it is not one character in one cell."""
        width = self.size[0]
        odd = False
        for text, style, control in strip:
            if control or not text:
                continue
            odd = odd or not _ONE_CELL_EACH.fullmatch(text)
            look = self._looks.of(style)
            pieces = cells_of(text)
            shown = [look.of_text] * len(pieces)
            if look.of_blanks != look.of_text and text[-1] == " ":
                letters = len(pieces) - len(text) + len(text.rstrip(" "))
                shown[letters:] = [look.of_blanks] * (len(pieces) - letters)
            end = x + len(pieces)
            if x < 0 or end > width:
                pieces, shown = pieces[max(0, -x) : max(0, width - x)], shown[max(0, -x) : max(0, width - x)]
                x = max(0, x)
            cells[x : x + len(pieces)] = pieces
            styles[x : x + len(pieces)] = shown
            x = end
        return odd


class _Pen:
    """Where text goes and in which style; switches only when it must."""

    def __init__(self) -> None:
        self._out: list[str] = []
        self.write = self._out.append
        self.now = ""
        """The style that is switched on."""

    def style(self, style: str) -> None:
        if style != self.now:
            off = style and self.now and not (_is_colour(style) and _is_colour(self.now))
            self.write(f"\x1b[{'0;' if off else ''}{style}m")
            self.now = style

    def done(self) -> str:
        """All that was written, the terminal's own style behind it."""
        self.style("")
        return "".join(self._out)


@lru_cache(maxsize=256)
def _is_colour(style: str) -> bool:
    """Whether a style is a colour of letters and nothing else, so that another such takes its place."""
    return _COLOUR.fullmatch(style) is not None


_COLOUR = re.compile(r"(?:3[0-7]|9[0-7]|38;5;\d+|38;2;\d+;\d+;\d+)")


def _is_one_character(cell: str) -> bool:
    return len(cell) == 1


def _mend_halves(cells: list[str]) -> None:
    """Half of a wide character cannot be shown: what another strip left over becomes a blank."""
    last = len(cells) - 1
    for i, cell in enumerate(cells):
        if cell == _RIGHT_HALF:
            if i == 0 or not _is_wide(cells[i - 1]):
                cells[i] = " "
        elif _is_wide(cell) and (i == last or cells[i + 1] != _RIGHT_HALF):
            cells[i] = " "


def _is_wide(cell: str) -> bool:
    return bool(cell) and not _ONE_CELL_EACH.fullmatch(cell) and len(cells_of(cell)) > 1


def _runs(cells: list[str], changed: list[int]) -> list[tuple[int, int]]:
    """First and behind-last columns of what is written; no wide character is cut."""
    runs: list[tuple[int, int]] = []
    for i in changed:
        start = i - 1 if cells[i] == _RIGHT_HALF and i else i
        end = i + 2 if i + 1 < len(cells) and cells[i + 1] == _RIGHT_HALF else i + 1
        if runs and start - runs[-1][1] < JOINED_GAP:
            runs[-1] = (runs[-1][0], max(end, runs[-1][1]))
        else:
            runs.append((start, end))
    last_start, last_end = runs[-1]
    if last_end < len(cells) and cells[last_end] == _RIGHT_HALF:
        runs[-1] = (last_start, last_end + 1)
    return runs


def _write_row(
    y: int, cells: list[str], styles: list[str], runs: list[tuple[int, int]], odd: bool, pen: _Pen
) -> None:
    tail = len(cells)
    while tail and cells[tail - 1] == " " and not styles[tail - 1]:
        tail -= 1
    pieces: list[_Piece] = []
    for start, end in runs:
        at = start
        while at < min(end, tail):
            style = styles[at]
            until = at + 1
            while until < end and until < tail and styles[until] == style:
                until += 1
            pieces.append((style, at, until))
            at = until
        if end > tail:
            pieces.append(("", max(start, tail), end))
            break
    if len(pieces) > 2 and not odd:
        pieces = _cheapest(pieces, pen.now)
    move = f"\x1b[{y + 1};{{}}H"
    cursor = -1
    for style, start, end in pieces:
        if start != cursor:
            pen.write(move.format(start + 1))
            move = "\x1b[{}G"
        pen.style(style)
        if end > tail:
            pen.write("\x1b[K")
            cursor = start
        else:
            cursor = _write_text(cells, start, end, plain=not style, odd=odd, pen=pen)


_Piece = tuple[str, int, int]
"""Cells of one style: the style, the first column and the one behind the last."""


def _cheapest(pieces: list[_Piece], now: str) -> list[_Piece]:
    """From left to right, or style by style: a colour may take more bytes than a move."""
    by_style: dict[str, list[_Piece]] = {now: []}
    for piece in pieces:
        by_style.setdefault(piece[0], []).append(piece)
    grouped = [piece for group in by_style.values() for piece in group]
    return grouped if _bytes_of(grouped, now) < _bytes_of(pieces, now) else pieces


def _bytes_of(pieces: list[_Piece], style: str) -> int:
    """What moves and styles take, about."""
    count, cursor = 0, -1
    for wanted, start, end in pieces:
        if wanted != style:
            count += len(wanted) + 3
            style = wanted
        if start != cursor:
            count += 6
        cursor = end
    return count


def _write_text(cells: list[str], start: int, end: int, *, plain: bool, odd: bool, pen: _Pen) -> int:
    """Cells of one style, and where the cursor is then.

    Behind a character whose width is disputed among terminals it is nowhere.
    """
    if odd and not all(map(_is_one_character, cells[start:end])):
        disputed = False
        for i in range(start, end):
            if disputed and cells[i] != _RIGHT_HALF:
                pen.write(f"\x1b[{i + 1}G")
                disputed = False
            pen.write(cells[i])
            disputed = disputed or len(cells[i]) != 1
        return -1 if disputed else end
    text = "".join(cells[start:end])
    if plain and " " * ERASED_BLANKS in text:
        at = cursor = start
        for piece in _BLANKS.split(text):
            if piece.startswith(" " * ERASED_BLANKS):
                pen.write(f"\x1b[{len(piece)}X")
            elif piece:
                if at != cursor:
                    pen.write(f"\x1b[{at + 1}G")
                pen.write(piece)
                cursor = at + len(piece)
            at += len(piece)
        return cursor
    pen.write(text)
    return end


_BLANKS = re.compile(f"( {{{ERASED_BLANKS},}})")
