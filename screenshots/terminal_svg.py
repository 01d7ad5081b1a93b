"""Lines of styled text as an SVG picture that looks like the terminal they are made for.

Bytes depend on the lines alone. Nothing is loaded from elsewhere. Text is set in the reader's own monospace
font, each piece at its column and stretched to its cells; charts, bars and rules are shapes, so that they
stand in their cells whatever the font has.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from html import escape

from rich.color import Color
from rich.style import Style
from rich.terminal_theme import TerminalTheme
from textual.strip import Strip

from gputui.document.spans import Line
from gputui.document.theme import Depth, Palette, definition
from gputui.tui.terminal.cell_diff import cells_of

CELL_WIDTH, CELL_HEIGHT = 8, 17
FONT_SIZE = 13.2
BASELINE = 13
MARGIN = 10
BACKGROUND, FOREGROUND = "#14171c", "#d4d4d4"
_FONTS = "'DejaVu Sans Mono','Liberation Mono',Menlo,Consolas,ui-monospace,monospace"
_DOT_BITS = ((0x01, 0x02, 0x04, 0x40), (0x08, 0x10, 0x20, 0x80))
"""Of a braille cell: left column and right column, from above."""
_DOT_STEP = CELL_WIDTH / 2
_DOT_SIZE = 2.6
_FIRST_DOT_Y, _DOT_STEP_Y = 2.2, 4.2
_EIGHTHS = "▁▂▃▄▅▆▇█"
_RULE = "─"
_BARS = "━╸╺"
_DRAWN = "\u2800-\u28ff▁-█─━╸╺"
_PIECES = re.compile(rf"[\u2800-\u28ff]+|[▁-█]+|─+|[{_BARS}]+|[^{_DRAWN} ]+(?: [^{_DRAWN} ]+)*")


@dataclass(frozen=True, slots=True)
class Colours:
    """What a style of the theme comes to."""

    foreground: str
    background: str
    """Empty for that of the picture."""
    is_bold: bool
    is_underlined: bool


def colours_of(style: str) -> Colours:
    """A style of the theme as a terminal with all colours shows it."""
    words = definition(style, Palette(Depth.TRUE)).split()
    behind = words[words.index("on") + 1] if "on" in words else ""
    before = next((word for word in words if word.startswith("#") and word != behind), FOREGROUND)
    if "reverse" in words:
        before, behind = behind or BACKGROUND, before
    return Colours(before, behind, "bold" in words, "underline" in words)


Piece = tuple[str, Colours]
"""A text and what it looks like."""


@dataclass(frozen=True, slots=True)
class Ground:
    """The colours of a terminal."""

    background: str = BACKGROUND
    foreground: str = FOREGROUND
    sixteen: TerminalTheme | None = None
    """What the numbers below 16 look like; None for Rich's choice."""

    def colours_of(self, style: Style) -> Colours:
        """A style of Rich in this terminal."""
        before, behind = self._hex(style.color) or self.foreground, self._hex(style.bgcolor)
        if style.reverse:
            before, behind = behind or self.background, before
        return Colours(before, behind, bool(style.bold), bool(style.underline))

    def _hex(self, colour: Color | None) -> str:
        """Empty for the terminal's own."""
        return "" if colour is None or colour.is_default else colour.get_truecolor(self.sixteen).hex


def svg_of(lines: Sequence[Line], width: int, title: str) -> str:
    """A picture of so many columns; `title` is read to those who do not see it."""
    return svg_of_pieces(pieces_of_lines(lines), width, title)


def pieces_of(strips: Iterable[Strip]) -> list[Piece]:
    """One row of a screen, as Textual draws it."""
    return [
        (text, Ground().colours_of(style or Style.null()))
        for strip in strips
        for text, style, control in strip
        if text and not control
    ]


def pieces_of_lines(lines: Iterable[Line]) -> list[list[Piece]]:
    """Rows of the monitor, as its theme colours them."""
    return [[(span.text, colours_of(span.style)) for span in line] for line in lines]


def svg_of_pieces(rows: Sequence[Sequence[Piece]], width: int, title: str) -> str:
    """A picture of rows of pieces; see `svg_of`."""
    behind, shapes = _Shapes(), _Shapes()
    texts: list[str] = []
    for row, pieces in enumerate(rows):
        _draw(pieces, row, behind, shapes, texts)
    return _picture((width, len(rows)), title, "", [*behind.drawn(), *shapes.drawn(), *texts])


def contact_sheet(
    pictures: Mapping[str, Sequence[Sequence[tuple[str, Style]]]], width: int, across: int, ground: Ground
) -> tuple[str, tuple[int, int]]:
    """Screens of so many columns beside and below each other, each under its name; and the size in pixels."""
    high = max(len(rows) for rows in pictures.values()) * CELL_HEIGHT + 3 * MARGIN + CELL_HEIGHT
    wide = width * CELL_WIDTH + 2 * MARGIN
    drawn: list[str] = []
    for place, (name, rows) in enumerate(pictures.items()):
        behind, shapes = _Shapes(), _Shapes()
        texts: list[str] = []
        for row, pieces in enumerate(rows):
            _draw([(text, ground.colours_of(style)) for text, style in pieces], row, behind, shapes, texts)
        left, top = place % across * wide + MARGIN, place // across * high + MARGIN + CELL_HEIGHT
        drawn += [
            f'<text x="{left}" y="{top - 6}" fill="#888888">{escape(name)}</text>',
            f'<g transform="translate({left} {top})">',
            f'<rect x="-4" y="-2" width="{wide - 12}" height="{high - 32}" fill="{ground.background}"/>',
            f'<g fill="{ground.foreground}">',
            *behind.drawn(),
            *shapes.drawn(),
            *texts,
            "</g></g>",
        ]
    size = (min(across, len(pictures)) * wide, -(-len(pictures) // across) * high)
    head = (
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{size[0]}" height="{size[1]}" '
        f'font-family="{_FONTS}" font-size="{FONT_SIZE}" xml:space="preserve">'
    )
    return "\n".join([head, *drawn, "</svg>\n"]), size


@dataclass(frozen=True, slots=True)
class Frame:
    """What a moving picture shows for some seconds."""

    rows: Sequence[Sequence[Piece]]
    seconds: float


def moving_svg(frames: Sequence[Frame], width: int, title: str) -> str:
    """Frames one after the other, over and over, moved by style rules alone.

    What stands still in several frames is in the file once. Who does not want motion, or cannot have it,
    gets the last frame.
    """
    shown_in: dict[tuple[int, str], list[bool]] = {}
    for number, frame in enumerate(frames):
        for row, pieces in enumerate(frame.rows):
            behind, shapes = _Shapes(), _Shapes()
            texts: list[str] = []
            _draw(pieces, row, behind, shapes, texts)
            for layer, drawn in enumerate((behind.drawn(), shapes.drawn(), texts)):
                for one in drawn:
                    shown_in.setdefault((layer, one), [False] * len(frames))[number] = True
    by_times: dict[tuple[int, tuple[bool, ...]], list[str]] = {}
    for (layer, one), is_in in shown_in.items():
        by_times.setdefault((layer, tuple(is_in)), []).append(one)
    names = {shown: f"t{number}" for number, shown in enumerate(dict.fromkeys(s for _, s in by_times))}
    whole = sum(frame.seconds for frame in frames)
    rules = [f"g g{{animation:{whole:g}s step-end infinite}}"]
    for shown, name in names.items():
        if not all(shown):
            still = "" if shown[-1] else "visibility:hidden;"
            rules.append(
                f".{name}{{{still}animation-name:{name}}}@keyframes {name}{{{_keyframes(shown, frames)}}}"
            )
    rules.append("@media(prefers-reduced-motion:reduce){g g{animation:none}}")
    groups = [
        f'<g class="{names[shown]}">{"".join(by_times[layer, shown])}</g>'
        for layer, shown in sorted(by_times, key=lambda key: key[0])
    ]
    rows = max(len(frame.rows) for frame in frames)
    return _picture((width, rows), title, f"<style>{''.join(rules)}</style>", groups)


def _keyframes(shown: Sequence[bool], frames: Sequence[Frame]) -> str:
    """When something appears and disappears, in percent of the whole."""
    whole = sum(frame.seconds for frame in frames)
    made: list[str] = []
    begin_s, last = 0.0, None
    for is_on, frame in zip(shown, frames, strict=True):
        if is_on is not last:
            made.append(f"{100 * begin_s / whole:.4g}%{{visibility:{'visible' if is_on else 'hidden'}}}")
        begin_s, last = begin_s + frame.seconds, is_on
    return "".join(made)


def _picture(cells: tuple[int, int], title: str, style: str, drawn: Iterable[str]) -> str:
    across, down = cells[0] * CELL_WIDTH + 2 * MARGIN, cells[1] * CELL_HEIGHT + 2 * MARGIN
    out = [
        (
            f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {across} {down}" '
            f'width="{across}" height="{down}" role="img"><title>{escape(title)}</title>{style}'
        ),
        f'<rect width="100%" height="100%" rx="6" fill="{BACKGROUND}"/>',
        f'<g font-family="{_FONTS}" font-size="{FONT_SIZE}" transform="translate({MARGIN} {MARGIN})">',
        *drawn,
        "</g></svg>\n",
    ]
    return "\n".join(out)


def _draw(pieces: Sequence[Piece], row: int, behind: _Shapes, shapes: _Shapes, texts: list[str]) -> None:
    """One row: backgrounds go to `behind`, what is drawn to the shapes, what is written to the texts."""
    at = 0
    for written, colours in pieces:
        cells = cells_of(written)
        text = _one_each(cells)
        if colours.background:
            behind.block(colours.background, at, row, len(cells))
        if colours.is_underlined:
            shapes.rule(colours.foreground, at, row, len(cells), CELL_HEIGHT - 2)
        for piece in _PIECES.finditer(text):
            shown = piece.group()
            if "\u2800" <= shown[0] <= "\u28ff":
                shapes.braille(colours.foreground, at + piece.start(), row, shown)
            elif shown[0] in _EIGHTHS:
                shapes.eighths(colours.foreground, at + piece.start(), row, shown)
            elif shown[0] == _RULE:
                shapes.rule(colours.foreground, at + piece.start(), row, len(shown), CELL_HEIGHT / 2)
            elif shown[0] in _BARS:
                shapes.bar(colours.foreground, at + piece.start(), row, shown)
            else:
                texts.append(_text(colours, at + piece.start(), row, shown))
        at += len(cells)


def _one_each(cells: Iterable[str]) -> str:
    """A character for each cell; the right half of a wide one becomes a mark that text can be cut at."""
    return "".join(cell[:1] or "\u200b" for cell in cells)


def _text(colours: Colours, column: int, row: int, shown: str) -> str:
    written = shown.replace("\u200b", "")
    style = f' fill="{colours.foreground}"' + (' font-weight="bold"' if colours.is_bold else "")
    x, y = column * CELL_WIDTH, row * CELL_HEIGHT + BASELINE
    length = f' textLength="{len(shown) * CELL_WIDTH}" lengthAdjust="spacingAndGlyphs"'
    return f'<text x="{x}" y="{y}"{style}{length}>{escape(written, quote=False)}</text>'


class _Shapes:
    """What is drawn and not written, one path for each kind and colour."""

    def __init__(self) -> None:
        self._blocks: dict[str, list[str]] = {}
        self._dots: dict[str, list[str]] = {}
        self._rules: dict[str, list[str]] = {}

    def block(self, colour: str, column: int, row: int, cells: int) -> None:
        self._box(colour, column * CELL_WIDTH, row * CELL_HEIGHT, cells * CELL_WIDTH, CELL_HEIGHT)

    def eighths(self, colour: str, column: int, row: int, text: str) -> None:
        """Cells of one height are one box."""
        for run in re.finditer(r"(.)\1*", text):
            high = CELL_HEIGHT * (_EIGHTHS.index(run.group(1)) + 1) / 8
            x, y = (column + run.start()) * CELL_WIDTH, (row + 1) * CELL_HEIGHT - high
            self._box(colour, x, y, len(run.group()) * CELL_WIDTH, high)

    def rule(self, colour: str, column: int, row: int, cells: int, below: float) -> None:
        x, y = column * CELL_WIDTH, row * CELL_HEIGHT + below
        self._rules.setdefault(colour, []).append(f"M{x} {y:g}h{cells * CELL_WIDTH}")

    def bar(self, colour: str, column: int, row: int, text: str) -> None:
        """A thick rule, whose ends may be halves of cells."""
        for place, character in enumerate(text):
            left = (column + place + (0.5 if character == "╺" else 0)) * CELL_WIDTH
            wide = CELL_WIDTH if character == "━" else CELL_WIDTH / 2
            self._box(colour, left, row * CELL_HEIGHT + CELL_HEIGHT / 2 - 1, wide, 2)

    def braille(self, colour: str, column: int, row: int, text: str) -> None:
        """Dots beside each other are one dashed stroke, which takes far fewer bytes."""
        dots = self._dots.setdefault(colour, [])
        for level in range(4):
            y = row * CELL_HEIGHT + _FIRST_DOT_Y + level * _DOT_STEP_Y
            lit = [bool(ord(cell) & _DOT_BITS[side][level]) for cell in text for side in (0, 1)]
            start = 0
            while start < len(lit):
                if not lit[start]:
                    start += 1
                    continue
                end = start
                while end < len(lit) and lit[end]:
                    end += 1
                x = column * CELL_WIDTH + start * _DOT_STEP + (_DOT_STEP - _DOT_SIZE) / 2
                dots.append(f"M{x:g} {y:g}h{(end - start - 1) * _DOT_STEP + _DOT_SIZE:g}")
                start = end

    def _box(self, colour: str, x: float, y: float, width: float, height: float) -> None:
        self._blocks.setdefault(colour, []).append(f"M{x:g} {y:g}h{width:g}v{height:g}h{-width:g}z")

    def drawn(self) -> Iterable[str]:
        """What lies behind comes first."""
        for colour, paths in self._blocks.items():
            yield f'<path fill="{colour}" d="{"".join(paths)}"/>'
        for colour, paths in self._rules.items():
            yield f'<path stroke="{colour}" opacity=".75" d="{"".join(paths)}"/>'
        for colour, paths in self._dots.items():
            yield (
                f'<path stroke="{colour}" stroke-width="{_DOT_SIZE}" fill="none" '
                f'stroke-dasharray="{_DOT_SIZE} {_DOT_STEP - _DOT_SIZE:g}" d="{"".join(paths)}"/>'
            )
