"""The shortest byte sequence that turns the picture a terminal shows into another one."""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Iterable, Mapping
from functools import lru_cache
from itertools import compress
from operator import ne
from typing import TYPE_CHECKING, NamedTuple, TypeAlias

from rich.cells import cell_len, split_graphemes
from rich.color import ColorSystem
from rich.style import Style

from gputui.tui.terminal.lines import Line, Span, without_marked_blanks
from gputui.tui.terminal.theme import Depth, definition

if TYPE_CHECKING:  # Textual takes long to load, and the first frame is drawn before
    from textual.strip import Strip

JOINED_GAP = 6
"""Runs of changed cells with fewer unchanged cells between them are written as one: a cursor move costs as
many bytes."""
ERASED_BLANKS = 14
"""At least this many plain blanks in a run are erased instead of written: erasing and moving takes 10
bytes."""
_ONE_CELL_EACH = re.compile(
    "[ -~\u00a1-\u00ac\u00ae-\u02ff\u2010-\u2027\u2030-\u205e\u2190-\u21ff\u2500-\u25fc\u2800-\u28ff]*"
)
_RIGHT_HALF = ""
_SYSTEMS = {
    Depth.NONE: ColorSystem.TRUECOLOR,
    Depth.ANSI: ColorSystem.STANDARD,
    Depth.ANSI_LIGHT: ColorSystem.STANDARD,
    Depth.INDEXED: ColorSystem.EIGHT_BIT,
    Depth.TRUE: ColorSystem.TRUECOLOR,
    Depth.LIGHT: ColorSystem.EIGHT_BIT,
}

Placed: TypeAlias = "tuple[int, Strip]"
"""A strip and its first column."""


@lru_cache(maxsize=128)
def rich_style(name: str, depth: Depth) -> Style:
    return Style.parse(definition(name, depth))


class TextStyle(NamedTuple):
    """Parameters of the SGR sequence for a style; empty for the terminal's default."""

    of_text: str
    of_blanks: str
    """Also empty where only the text colour or weight differs, which a blank does not show."""


class TextStyles:
    """Rich styles as SGR parameters at one colour depth, cached."""

    def __init__(self, depth: Depth) -> None:
        self._depth = depth
        self._known: dict[Style, TextStyle] = {}
        self._named: dict[str, TextStyle] = {}

    def named(self, name: str) -> TextStyle:
        sgr = self._named.get(name)
        if sgr is None:
            sgr = self._named[name] = self.of(rich_style(name, self._depth))
        return sgr

    def of(self, style: Style | None) -> TextStyle:
        if style is None:
            return TextStyle("", "")
        sgr = self._known.get(style)
        if sgr is None:
            sgr = self._known[style] = self._made(style)
        return sgr

    def _made(self, style: Style) -> TextStyle:
        foreground, background = style.color, style.bgcolor
        if self._depth is Depth.NONE:
            foreground = background = None
        if foreground is not None and foreground.is_default:
            foreground = None
        if background is not None and background.is_default:
            background = None
        bare = style.without_color + Style(color=foreground, bgcolor=background)
        # links are omitted, as on old Windows: a target may have any length
        rendered = bare.render("x", color_system=_SYSTEMS[self._depth], legacy_windows=True)
        parameters = rendered.partition("x")[0].removeprefix("\x1b[").removesuffix("m")
        on_blanks = background or any(
            (style.reverse, style.underline, style.underline2, style.strike, style.overline, style.blink)
        )
        return TextStyle(parameters, parameters if on_blanks else "")


def width_of(text: str) -> int:
    return len(text) if _ONE_CELL_EACH.fullmatch(text) else cell_len(text)


def cells_of(text: str) -> tuple[str, ...]:
    """The character in each cell of a text; the right half of a wide character is empty.

    Control characters and marks of writing direction, which a terminal would obey, are replaced by blanks or
    dropped, keeping their counted width. Only the first of several joined emoji is kept.
    """
    return tuple(text) if _ONE_CELL_EACH.fullmatch(text) else _cells_of_graphemes(text)


@lru_cache(maxsize=256)
def _cells_of_graphemes(text: str) -> tuple[str, ...]:
    cells: list[str] = []
    for start, end, width in split_graphemes(text)[0]:
        base, marks = text[start], text[start + 1 : end]
        if width == 0:
            continue  # a mark without a base character
        if unicodedata.category(base) in ("Cc", "Cf", "Cs", "Zl", "Zp"):
            cells.extend(" " * width)
            continue
        cells.append(base + "".join(mark for mark in marks if unicodedata.category(mark) in ("Mn", "Me")))
        cells.extend([_RIGHT_HALF] * (width - 1))
    return tuple(cells)


class CellDiff:
    """The cells that were last sent to the terminal, and the difference to a new picture.

    Its output must go to a terminal of exactly this size with line wrap off.
    """

    def __init__(self, depth: Depth, width: int = 0, height: int = 0) -> None:
        self._text_styles = TextStyles(depth)
        self._depth = depth
        self.resize(width, height)

    def resize(self, width: int, height: int) -> None:
        """Resize; the contents of the terminal are unknown afterwards."""
        self.size = (width, height)
        self.forget()

    def forget(self) -> None:
        """Treat the contents of the terminal as unknown; the next picture must be complete."""
        width, height = self.size
        self.forgotten = True
        self._cells = [[" "] * width for _ in range(height)]
        self._styles = [[""] * width for _ in range(height)]
        self._odd = [False] * height
        self._sent: list[tuple[Placed, ...]] = [()] * height
        self._spans: list[dict[int, Span]] = [{}] * height
        """By row and first column: spans of the last line, as far as they are known to be on the screen."""

    def diff(self, rows: Mapping[int, Iterable[Placed]]) -> str:
        """The bytes that make the terminal show these strips, by row; empty if it already does."""
        pen = self._pen()
        for y, strips in rows.items():
            if 0 <= y < self.size[1]:
                self._row(y, tuple(strips), pen)
        return pen.done()

    def diff_lines(self, rows: Mapping[int, Line]) -> str:
        """Like `diff`, for lines that each fill a row; they are cut or padded with blanks."""
        pen = self._pen()
        for y, line in rows.items():
            if 0 <= y < self.size[1]:
                self._sent[y] = ()
                if self._depth is Depth.NONE:
                    line = without_marked_blanks(line)
                if self._odd[y] or not self._change_spans(y, line, pen):
                    self._spans[y] = {}
                    self._change(y, *self._laid(line), pen)
        return pen.done()

    def _change_spans(self, y: int, line: Line, pen: _Pen) -> bool:
        """Write what changed of one row; False, with nothing done, if a character is not one cell wide.

        Only spans that were not in the same place before are compared cell by cell.
        """
        width, known = self.size[0], self._spans[y]
        spans: dict[int, Span] = {}
        new: list[tuple[int, str, str]] = []
        x = 0
        for span in line:
            text = span.text
            if not text or x >= width:
                continue
            spans[x] = span
            if known.get(x) != span:
                if not _ONE_CELL_EACH.fullmatch(text):
                    return False
                new.append((x, text[: width - x], span.style))
            x += len(text)
        if x < width:
            new.append((x, " " * (width - x), ""))
        self._spans[y] = spans
        cells, styles = self._cells[y], self._styles[y]
        changed: list[int] = []
        for start, text, style in new:
            end = start + len(text)
            sgr = self._text_styles.named(style)
            letters = len(text.rstrip(" ")) if sgr.of_blanks != sgr.of_text else len(text)
            its_styles = [sgr.of_text] * letters + [sgr.of_blanks] * (len(text) - letters)
            its_changes = list(compress(range(start, end), map(ne, text, cells[start:end])))
            if styles[start:end] != its_styles:
                restyled = compress(range(start, end), map(ne, its_styles, styles[start:end]))
                its_changes = sorted({*its_changes, *restyled})
                styles[start:end] = its_styles
            if its_changes:
                cells[start:end] = text
                changed += its_changes
        if changed:
            _write_row(y, cells, styles, _runs(cells, changed), odd=False, pen=pen)
        return True

    def _laid(self, line: Line) -> tuple[list[str], list[str], bool]:
        """The cells of a line, their styles, and whether a character does not take exactly one cell."""
        width = self.size[0]
        cells: list[str] = []
        styles: list[str] = []
        odd = False
        for span in line:
            if not span.text:
                continue
            odd = odd or not _ONE_CELL_EACH.fullmatch(span.text)
            cells += cells_of(span.text)
            sgr = self._text_styles.named(span.style)
            del cells[width:]
            letters = len(cells) - len(styles)
            blanks = 0
            while sgr.of_blanks != sgr.of_text and blanks < letters and cells[-1 - blanks] == " ":
                blanks += 1
            styles += [sgr.of_text] * (letters - blanks) + [sgr.of_blanks] * blanks
        styles += [""] * (width - len(cells))
        cells += " " * (width - len(cells))
        return cells, styles, odd

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
        self._spans[y] = {}
        self._change(y, cells, styles, odd, pen)

    def _change(self, y: int, cells: list[str], styles: list[str], odd: bool, pen: _Pen) -> None:
        """Write the cells of one row that changed."""
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
        """Put a strip into a row, clipped to it. True if any of its characters does not take exactly one
        cell."""
        width = self.size[0]
        odd = False
        for text, style, control in strip:
            if control or not text:
                continue
            odd = odd or not _ONE_CELL_EACH.fullmatch(text)
            sgr = self._text_styles.of(style)
            pieces = cells_of(text)
            shown = [sgr.of_text] * len(pieces)
            if sgr.of_blanks != sgr.of_text and text[-1] == " ":
                letters = len(pieces) - len(text) + len(text.rstrip(" "))
                shown[letters:] = [sgr.of_blanks] * (len(pieces) - letters)
            end = x + len(pieces)
            if x < 0 or end > width:
                pieces, shown = pieces[max(0, -x) : max(0, width - x)], shown[max(0, -x) : max(0, width - x)]
                x = max(0, x)
            cells[x : x + len(pieces)] = pieces
            styles[x : x + len(pieces)] = shown
            x = end
        return odd


class _Pen:
    """Collects output and switches styles only when necessary."""

    def __init__(self) -> None:
        self._out: list[str] = []
        self.write = self._out.append
        self.now = ""
        """The active style."""

    def style(self, style: str) -> None:
        if style != self.now:
            off = style and self.now and not (_is_colour(style) and _is_colour(self.now))
            self.write(f"\x1b[{'0;' if off else ''}{style}m")
            self.now = style

    def done(self) -> str:
        """Everything written, followed by a reset of the style."""
        self.style("")
        return "".join(self._out)


@lru_cache(maxsize=256)
def _is_colour(style: str) -> bool:
    """Whether a style only sets the text colour, so that another colour replaces it without a reset."""
    return _COLOUR.fullmatch(style) is not None


_COLOUR = re.compile(r"(?:3[0-7]|9[0-7]|38;5;\d+|38;2;\d+;\d+;\d+)")


def _is_one_character(cell: str) -> bool:
    return len(cell) == 1


def _mend_halves(cells: list[str]) -> None:
    """Replace halves of wide characters that another strip cut in two by blanks."""
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
    """Start and end columns (end exclusive) of what is written; never splits a wide character."""
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
"""Cells of one style: the style, the first column and the one after the last."""


def _cheapest(pieces: list[_Piece], now: str) -> list[_Piece]:
    """The pieces from left to right or grouped by style: switching colours may take more bytes than
    moving."""
    by_style: dict[str, list[_Piece]] = {now: []}
    for piece in pieces:
        by_style.setdefault(piece[0], []).append(piece)
    grouped = [piece for group in by_style.values() for piece in group]
    return grouped if _bytes_of(grouped, now) < _bytes_of(pieces, now) else pieces


def _bytes_of(pieces: list[_Piece], style: str) -> int:
    """Approximate bytes for cursor moves and styles."""
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
    """Write cells of one style; returns the cursor's column.

    It is -1 after a character whose width terminals disagree about.
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
