"""The shortest byte sequence that turns the picture a terminal shows into another one.

Over SSH bytes are what makes a live view slow; Textual's own output is several times as long.
"""

from __future__ import annotations

import re
import unicodedata
from bisect import bisect_left
from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import lru_cache, partial
from itertools import compress, groupby
from operator import attrgetter, ne
from typing import TYPE_CHECKING, NamedTuple, TypeAlias

from rich.cells import cell_len, split_graphemes
from rich.color import Color, ColorSystem
from rich.style import Style

from gputui.document.spans import Line, Span
from gputui.document.theme import INDEXED, Depth, Palette, definition

if TYPE_CHECKING:
    from textual.strip import Strip


_MARKED = ("warn", "alarm")
"""Styles that are an underline or reverse video where there are no colours."""


_NOT_WORDS = re.compile("(^ +| +$|  +|[─-◿]+)")
"""Blanks around words and between the columns of a row; lines, bars and points."""


def without_marked_blanks(line: Line) -> Line:
    """The same line, in which words of warning are marked, without the blanks and the bars beside them.

    An underline would double a bar.
    """
    if not any(span.style in _MARKED and _NOT_WORDS.search(span.text) for span in line):
        return line
    return tuple(part for span in line for part in _parts(span))


def _parts(span: Span) -> Line:
    if span.style not in _MARKED:
        return (span,)
    texts = _NOT_WORDS.split(span.text)
    return tuple(Span(text, "" if _NOT_WORDS.fullmatch(text) else span.style) for text in texts if text)


JOINED_GAP = 2
"""Unchanged cells between changed ones are written too if they take at most so many bytes: no move takes
fewer, and short pieces are often below each other."""
_LEAST_TAIL = 3
"""So many blanks at the end of a row are erased: that takes 3 bytes."""
_WHOLE_PICTURE = 0.25
"""From this share of changed cells on, a picture is written from the top, as people read, not by style."""
_NEAR = 8
"""Pieces are below each other if one begins at most this many columns from where the one above ends."""
_FEW_ROWS = 2
"""Up to this many rows, single steps take the fewest bytes."""
_ONE_CELL_EACH = re.compile(
    "[ -~\u00a1-\u00ac\u00ae-\u02ff\u2010-\u2027\u2030-\u205e\u2190-\u21ff\u2500-\u25fc\u2800-\u28ff]*"
)
_RIGHT_HALF = ""
_SYSTEMS = {
    Depth.NONE: ColorSystem.TRUECOLOR,
    Depth.ANSI: ColorSystem.STANDARD,
    Depth.INDEXED: ColorSystem.EIGHT_BIT,
    Depth.TRUE: ColorSystem.TRUECOLOR,
}

Placed: TypeAlias = "tuple[int, Strip]"
"""A strip and its first column."""


@lru_cache(maxsize=256)
def rich_style(name: str, palette: Palette) -> Style:
    return Style.parse(definition(name, palette))


class TextStyle(NamedTuple):
    """Parameters of the SGR sequence for a style; empty for the terminal's default."""

    of_text: str
    of_blanks: str
    """Also empty where only the text colour or weight differs, which a blank does not show."""


def text_style(style: Style | None, depth: Depth) -> TextStyle:
    if style is None:
        return TextStyle("", "")
    foreground, background = style.color, style.bgcolor
    if depth is Depth.NONE:
        foreground = background = None
    if foreground is not None and foreground.is_default:
        foreground = None
    if background is not None and background.is_default:
        background = None
    bare = style.without_color + Style(color=_short(foreground), bgcolor=_short(background))
    # links are omitted, as on old Windows: a target may have any length
    rendered = bare.render("x", color_system=_SYSTEMS[depth], legacy_windows=True)
    parameters = rendered.partition("x")[0].removeprefix("\x1b[").removesuffix("m")
    on_blanks = background or any(
        (style.reverse, style.underline, style.underline2, style.strike, style.overline, style.blink)
    )
    return TextStyle(parameters, parameters if on_blanks else "")


def _short(colour: Color | None) -> Color | None:
    """A colour of 24 bits as the same one of the 256, if it is one: its sequence is half as long."""
    if colour is None or colour.triplet is None:
        return colour
    number = INDEXED.get(colour.triplet.hex)
    return colour if number is None else Color.from_ansi(number)


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


def _styles_of(cells: Sequence[str], style: TextStyle) -> list[str]:
    """The style of each cell: blanks do not show all styles."""
    of_text, of_blanks = style
    if of_text == of_blanks or " " not in cells:
        return [of_text] * len(cells)
    return [of_blanks if cell == " " else of_text for cell in cells]


class CellDiff:
    """The cells that were last sent to the terminal, and the difference to a new picture.

    Its output must go to a terminal of exactly this size with line wrap off. It leaves the style that it used
    last active: whatever else writes text resets it, and then the contents are unknown.
    """

    def __init__(self, palette: Palette, width: int = 0, height: int = 0) -> None:
        self.size = (width, height)
        self.use(palette)

    def use(self, palette: Palette) -> None:
        """Write in these colours; the next picture must be complete."""
        self._depth = palette.depth
        self._style_of = lru_cache(maxsize=1024)(partial(text_style, depth=palette.depth))
        self._named = lru_cache(maxsize=256)(lambda name: self._style_of(rich_style(name, palette)))
        self.forget()

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
        self._style = ""
        """Active in the terminal."""
        self._sent: list[tuple[Placed, ...]] = [()] * height
        self._spans: list[dict[int, Span]] = [{}] * height
        """By row and first column: spans of the last line, as far as they are known to be on the screen."""

    def diff(self, rows: Mapping[int, Iterable[Placed]]) -> str:
        """The bytes that make the terminal show these strips, by row; empty if it already does."""
        pieces: list[_Piece] = []
        for y, strips in rows.items():
            if 0 <= y < self.size[1]:
                pieces += self._row(y, tuple(strips))
        return self._written(pieces)

    def diff_lines(self, rows: Mapping[int, Line]) -> str:
        """Like `diff`, for lines that each fill a row; they are cut or padded with blanks."""
        pieces: list[_Piece] = []
        for y, line in rows.items():
            if 0 <= y < self.size[1]:
                self._sent[y] = ()
                if self._depth is Depth.NONE:
                    line = without_marked_blanks(line)
                found = None if self._odd[y] else self._change_spans(y, line)
                if found is None:
                    self._spans[y] = {}
                    cells, styles = [" "] * self.size[0], [""] * self.size[0]
                    named = ((span.text, self._named(span.style)) for span in line)
                    odd = self._lay(cells, styles, 0, named)
                    found = self._change(y, cells, styles, odd)
                pieces += found
        return self._written(pieces)

    def _change_spans(self, y: int, line: Line) -> list[_Piece] | None:
        """What changed of one row; None, with nothing done, if a character is not one cell wide.

        Only spans that were not in the same place before are compared cell by cell.
        """
        width, known = self.size[0], self._spans[y]
        spans: dict[int, Span] = {}
        new: list[tuple[int, str, str, Span | None]] = []
        x = 0
        for span in line:
            text = span.text
            if not text or x >= width:
                continue
            spans[x] = span
            before = known.get(x)
            if before != span:
                if not _ONE_CELL_EACH.fullmatch(text):
                    return None
                new.append((x, text[: width - x], span.style, before))
            x += len(text)
        if x < width:
            new.append((x, " " * (width - x), "", None))
        self._spans[y] = spans
        cells, styles = self._cells[y], self._styles[y]
        changed: list[int] = []
        for start, text, style, before in new:
            end = start + len(text)
            sgr = self._named(style)
            if before is not None and before.style == style and len(before.text) == len(text):
                its_changes = list(compress(range(start, end), map(ne, text, before.text)))
                for at in its_changes:
                    styles[at] = sgr.of_blanks if text[at - start] == " " else sgr.of_text
            else:
                its_styles = _styles_of(text, sgr)
                its_changes = list(compress(range(start, end), map(ne, text, cells[start:end])))
                if styles[start:end] != its_styles:
                    restyled = compress(range(start, end), map(ne, its_styles, styles[start:end]))
                    its_changes = sorted({*its_changes, *restyled})
                    styles[start:end] = its_styles
            if its_changes:
                cells[start:end] = text
                changed += its_changes
        return _pieces(y, cells, styles, changed) if changed else []

    def _written(self, pieces: list[_Piece]) -> str:
        """Moves and switches styles only where necessary; it is not known where the cursor is."""
        width, height = self.size
        out = ["\x1b[m\x1b[2J"] if self.forgotten else []
        self.forgotten = False
        groups: Iterable[Iterable[_Piece]] = [pieces]
        if sum(len(piece.text) for piece in pieces) >= _WHOLE_PICTURE * width * height:
            groups = (of_row for _, of_row in groupby(pieces, key=attrgetter("y")))
        active, at_y, at_x = self._style, -1, -1
        for group in groups:
            for style, y, start, text, after in _in_order(group, active, at_y):
                if style != active:
                    off = style and active and not (_is_colour(style) and _is_colour(active))
                    out.append(f"\x1b[{'0;' if off else ''}{style}m")
                    active = style
                if y != at_y or start != at_x:
                    out.append(_move(at_y, at_x, y, start))
                out.append(text)
                # in the last column, the cursor may be waiting to wrap
                at_y, at_x = y, after if after < width else -1
        self._style = active
        return "".join(out)

    def _row(self, y: int, strips: tuple[Placed, ...]) -> list[_Piece]:
        sent = self._sent[y]
        if len(sent) == len(strips) and all(
            new is old and x == at for (x, new), (at, old) in zip(strips, sent, strict=True)
        ):
            return []
        cells, styles = self._cells[y].copy(), self._styles[y].copy()
        odd = self._odd[y]
        for x, strip in strips:
            texts = ((text, self._style_of(style)) for text, style, control in strip if not control)
            odd |= self._lay(cells, styles, x, texts)
        self._sent[y] = strips
        self._spans[y] = {}
        return self._change(y, cells, styles, odd)

    def _change(self, y: int, cells: list[str], styles: list[str], odd: bool) -> list[_Piece]:
        old_cells, old_styles = self._cells[y], self._styles[y]
        if odd:
            _mend_halves(cells)
        changed = list(compress(range(len(cells)), map(ne, cells, old_cells)))
        if styles != old_styles:
            restyled = compress(range(len(cells)), map(ne, styles, old_styles))
            changed = sorted({*changed, *restyled})
        if not changed:
            return []
        self._cells[y], self._styles[y] = cells, styles
        self._odd[y] = odd and not all(len(cell) == 1 for cell in cells)
        return _pieces(y, cells, styles, changed, odd=odd)

    def _lay(
        self, cells: list[str], styles: list[str], x: int, texts: Iterable[tuple[str, TextStyle]]
    ) -> bool:
        """Put texts into a row, clipped to it. True if any character does not take exactly one cell."""
        width = self.size[0]
        odd = False
        for text, sgr in texts:
            odd = odd or not _ONE_CELL_EACH.fullmatch(text)
            pieces = cells_of(text)
            shown = _styles_of(pieces, sgr)
            end = x + len(pieces)
            if x < 0 or end > width:
                pieces, shown = pieces[max(0, -x) : max(0, width - x)], shown[max(0, -x) : max(0, width - x)]
                x = max(0, x)
            cells[x : x + len(pieces)] = pieces
            styles[x : x + len(pieces)] = shown
            x = end
        return odd


class _Piece(NamedTuple):
    style: str
    y: int
    start: int
    """The first column."""
    text: str
    """May erase cells and set the column."""
    after: int
    """The cursor's column afterwards; -1 where terminals disagree about it."""


def _in_order(pieces: Iterable[_Piece], style: str, at_y: int) -> Iterator[_Piece]:
    """Pieces, which come row by row, in an order that takes few bytes; the cursor is in a row, with a style.

    That is style by style, because to switch colours takes more bytes than to move, and of a style those
    below each other at once, because the moves between them are the shortest.
    """
    by_style: dict[str, list[_Piece]] = {style: []}
    for piece in pieces:
        by_style.setdefault(piece[0], []).append(piece)
    for alike in by_style.values():
        for chain in _chains(alike):
            if abs(chain[-1].y - at_y) < abs(chain[0].y - at_y):
                chain.reverse()
            yield from chain
            at_y = chain[-1].y


def _chains(pieces: Iterable[_Piece]) -> list[list[_Piece]]:
    """Pieces below each other, like those of a column of figures, together; each chain goes down."""
    chains: list[list[_Piece]] = []
    open_chains: list[list[_Piece]] = []
    for piece in pieces:
        best, least = None, _NEAR + 1
        for chain in open_chains:
            end = chain[-1]
            away = abs(end.after - piece.start)
            if away < least and 0 < piece.y - end.y <= _FEW_ROWS:
                best, least = chain, away
        if best is not None:
            best.append(piece)
            continue
        open_chains = [chain for chain in open_chains if piece.y - chain[-1].y <= _FEW_ROWS]
        chain = [piece]
        open_chains.append(chain)
        chains.append(chain)
    return chains


@lru_cache(maxsize=4096)
def _move(from_y: int, from_x: int, y: int, x: int) -> str:
    """The shortest sequence that moves the cursor; -1 is an unknown row or column.

    Only what every terminal since the VT100 knows, and CHA. No line feed or vertical tab: line disciplines
    and web terminals may add a carriage return to them, but not to IND.
    """
    absolute = f"\x1b[{y + 1};{x + 1}H" if x else f"\x1b[{y + 1}H"
    if from_y < 0:
        return absolute
    rows = y - from_y
    down, up = ("\x1bD", "\x1bM") if abs(rows) <= _FEW_ROWS else (f"\x1b[{rows}B", f"\x1b[{-rows}A")
    vertical = (down if rows > 0 else up) * (abs(rows) if abs(rows) <= _FEW_ROWS else 1)
    ways = [f"\x1b[{x + 1}G" if x else "\r"]
    if from_x >= 0:
        columns = x - from_x
        if columns <= 0:
            ways.append("\b" * -columns)
        count = abs(columns) if abs(columns) > 1 else ""
        ways.append(f"\x1b[{count}{'C' if columns > 0 else 'D'}")
    return min(absolute, vertical + min(ways, key=len), key=len)


@lru_cache(maxsize=256)
def _is_colour(style: str) -> bool:
    """Whether a style only sets the text colour, so that another colour replaces it without a reset."""
    return _COLOUR.fullmatch(style) is not None


_COLOUR = re.compile(r"(?:3[0-7]|9[0-7]|38;5;\d+|38;2;\d+;\d+;\d+)")


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


def _pieces(
    y: int, cells: list[str], styles: list[str], changed: list[int], *, odd: bool = False
) -> list[_Piece]:
    """How to write the changed cells of a row; a wide character is never split."""
    if odd:
        halves = {x + 1 for x in changed if cells[x + 1 : x + 2] == [_RIGHT_HALF]}
        changed = sorted({*changed, *halves, *(x - 1 for x in changed if x and cells[x] == _RIGHT_HALF)})
    tail = _blank_tail(cells, styles, changed)
    found: list[_Piece] = []
    start = end = -1
    style = ""
    for x in changed:
        if x >= tail:
            break
        new = styles[x]
        if end == x and (new == style or (not new and cells[x] == " " and _is_of_letters(style))):
            end += 1
            continue
        is_near = 0 <= x - end <= JOINED_GAP and end > 0
        joined = _joined(cells, styles, start, end, x, style) if is_near else None
        if joined is None:
            if end >= 0:
                found.append(_piece(y, cells, style, start, end))
            start, style = x, new
        else:
            style = joined
        end = x + 1
    if end >= 0:
        found.append(_piece(y, cells, style, start, end))
    if tail < len(cells):
        found.append(_Piece("", y, tail, "\x1b[K", tail))
    return found


def _blank_tail(cells: list[str], styles: list[str], changed: list[int]) -> int:
    """The first changed column from which on the row is erased; its width if there is none."""
    width, last = len(cells), changed[-1]
    if cells[last] != " " or styles[last]:
        return width
    if any(styles[last:]) or "".join(cells[last:]).strip(" "):
        return width
    tail = last
    while tail and cells[tail - 1] == " " and not styles[tail - 1]:
        tail -= 1
    first = changed[bisect_left(changed, tail)]
    return first if last - first >= _LEAST_TAIL else width


def _joined(cells: list[str], styles: list[str], start: int, end: int, x: int, style: str) -> str | None:
    """The style in which cells from `start` on may be written up to `x`; None if a move is shorter."""
    between = cells[end:x]
    if len("".join(between).encode()) > JOINED_GAP or not all(len(cell) == 1 for cell in between):
        return None
    new = styles[x]
    if style != new and not style and not "".join(cells[start:end]).strip(" "):
        style = new  # blanks have the colour of what follows them
    elif new and style != new:
        return None
    is_of_letters = _is_of_letters(style)
    for at in (*range(start, end), *range(end, x + 1)):
        if styles[at] != style and not (is_of_letters and not styles[at] and cells[at] == " "):
            return None
    return style


@lru_cache(maxsize=256)
def _is_of_letters(style: str) -> bool:
    """Whether a style cannot be seen on blanks."""
    return _OF_LETTERS.fullmatch(style) is not None


_OF_LETTERS = re.compile(r"(?:(?:1|2|3[0-7]|9[0-7]|38;5;\d+|38;2;\d+;\d+;\d+)(?:;(?=\d)|$))*")


def _piece(y: int, cells: list[str], style: str, start: int, end: int) -> _Piece:
    shown = cells[start:end]
    text = "".join(shown)
    if len(text) != end - start or not all(shown):
        return _Piece(style, y, start, *_with_columns(shown, start))
    return _Piece(style, y, start, text, end)


def _with_columns(shown: list[str], start: int) -> tuple[str, int]:
    """Cells with the column set again after a character whose width terminals disagree about."""
    out: list[str] = []
    is_disputed = False
    for x, cell in enumerate(shown, start):
        if is_disputed and cell != _RIGHT_HALF:
            out.append(f"\x1b[{x + 1}G")
            is_disputed = False
        out.append(cell)
        is_disputed = is_disputed or len(cell) != 1
    return "".join(out), -1 if is_disputed else start + len(shown)
