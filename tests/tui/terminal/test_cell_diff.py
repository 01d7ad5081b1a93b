"""The diff of two pictures, fed to a terminal emulator, gives what Textual itself would have written."""

from __future__ import annotations

from collections.abc import Sequence

import pytest
from emulator import Emulator, Picture, as_textual_writes
from hypothesis import given, settings
from hypothesis import strategies as st
from palettes import EACH, INDEXED, INDEXED_LIGHT, PLAIN, SIXTEEN, SIXTEEN_LIGHT, TRUE, TRUE_LIGHT
from rich._palettes import EIGHT_BIT_PALETTE
from rich.color import Color
from rich.segment import Segment
from rich.style import Style
from textual.strip import Strip
from wcwidth import wcswidth, wcwidth

from gputui.document.background import palette_here
from gputui.document.spans import Line, Span
from gputui.document.theme import STYLES, Depth, Palette
from gputui.tui.terminal.cell_diff import _ONE_CELL_EACH, CellDiff, cells_of, text_style
from gputui.tui.terminal.renderer import strip_of

WIDTH, HEIGHT = 30, 6

LETTERS = st.sampled_from("ab  ─█⣿é·温度字ｗ한")
STYLE = st.sampled_from(
    [
        None,
        Style(),
        Style(color="red"),
        Style(bold=True),
        Style(bgcolor="blue"),
        Style(reverse=True),
        Style(color="#123456", bgcolor="color(20)", underline=True),
        Style(dim=False, strike=True),
    ]
)


@st.composite
def strips(draw: st.DrawFn, width: int = WIDTH) -> Strip:
    pieces = draw(st.lists(st.tuples(st.text(LETTERS, min_size=1, max_size=width), STYLE), max_size=5))
    return Strip([Segment(text, style) for text, style in pieces]).adjust_cell_length(width)


@st.composite
def pictures(draw: st.DrawFn) -> Picture:
    """Whole strips, some of them divided as if several widgets were side by side."""
    rows: list[list[tuple[int, Strip]]] = []
    for _ in range(HEIGHT):
        strip = draw(strips())
        cut = draw(st.integers(0, WIDTH - 1))
        if cut:
            left, right = strip.divide([cut, WIDTH])
            rows.append([(0, left), (cut, right)])
        else:
            rows.append([(0, strip)])
    return rows


@settings(max_examples=60, deadline=None)
@given(st.lists(pictures(), min_size=1, max_size=5), st.data())
def test_any_sequence_of_pictures_is_shown_as_textual_would(
    shown: list[Picture], data: st.DataObject
) -> None:
    diff = CellDiff(TRUE, WIDTH, HEIGHT)
    emulator = Emulator(WIDTH, HEIGHT)
    emulator.feed("left over from before" * 9)
    current: list[Sequence[tuple[int, Strip]]] = []
    for picture in shown:
        # after the first, only some rows, as in a partial update
        rows = range(HEIGHT) if not current else sorted(data.draw(st.sets(st.integers(0, HEIGHT - 1))))
        current = [picture[y] if y in rows else current[y] for y in range(HEIGHT)]
        emulator.feed(diff.diff({y: picture[y] for y in rows}))
        assert emulator.cells() == as_textual_writes(current, WIDTH).cells()
    assert diff.diff(dict(enumerate(current))) == ""


@settings(max_examples=60, deadline=None)
@given(strips(), st.lists(st.tuples(st.integers(0, WIDTH - 1), strips(8)), max_size=6))
def test_a_strip_over_half_of_a_wide_character_leaves_no_half(
    below: Strip, above: list[tuple[int, Strip]]
) -> None:
    diff = CellDiff(TRUE, WIDTH, 1)
    emulator = Emulator(WIDTH, 1)
    emulator.feed(diff.diff({0: [(0, below)]}))
    for x, strip in above:
        emulator.feed(diff.diff({0: [(x, strip)]}))
        row = "".join(cell or "" for cell in diff._cells[0])
        assert wcswidth(row) == WIDTH
        assert emulator.screen.display[0] == row


@st.composite
def spans(draw: st.DrawFn) -> Line:
    """A line that may be shorter or longer than its row."""
    pieces = st.lists(st.tuples(st.text(LETTERS, max_size=WIDTH), st.sampled_from(STYLES)), max_size=5)
    return tuple(Span(text, style) for text, style in draw(pieces))


@settings(max_examples=60, deadline=None)
@given(st.lists(st.dictionaries(st.integers(0, HEIGHT - 1), spans()), max_size=5), st.booleans())
def test_lines_are_shown_as_the_strips_made_of_them(
    shown: list[dict[int, Line]], are_strips_between: bool
) -> None:
    diff = CellDiff(TRUE, WIDTH, HEIGHT)
    emulator = Emulator(WIDTH, HEIGHT)
    emulator.feed("left over from before" * 9)
    current: dict[int, Line] = dict.fromkeys(range(HEIGHT), ())
    for rows in ({}, *shown):
        current |= rows
        emulator.feed(diff.diff_lines(rows))
        strips = [[(0, strip_of(current[y], WIDTH, TRUE))] for y in range(HEIGHT)]
        assert emulator.cells() == as_textual_writes(strips, WIDTH).cells()
        if are_strips_between:
            emulator.feed(diff.diff(dict(enumerate(strips))))
            assert emulator.cells() == as_textual_writes(strips, WIDTH).cells()
        else:
            assert diff.diff_lines(current) == ""


@st.composite
def moving_rows(draw: st.DrawFn) -> list[list[Line]]:
    """Pictures like a live view: figures and gauges in columns, of which some move."""
    numbers = st.integers(0, 100)
    columns = draw(st.lists(st.sampled_from(["figure", "gauge", "word"]), min_size=1, max_size=5))
    colours = st.sampled_from(["", "good", "warn", "alarm", "title", "selected"])
    drawn: dict[tuple[int, int], Line] = {}
    pictures: list[list[Line]] = []
    for _ in range(4):
        for y in range(MOVING_HEIGHT):
            for place, kind in enumerate(columns):
                if (y, place) not in drawn or draw(st.booleans()):
                    value, colour = draw(numbers), draw(colours)
                    bar = "━" * (value // 10) + "╸" * (value % 2)
                    drawn[y, place] = {
                        "figure": (Span(f"{value:5}", colour),),
                        "gauge": (Span(bar, colour), Span("─" * (11 - len(bar)) + " ", "track")),
                        "word": (Span(("idle", "HOT  12 °C", "", "温度")[value % 4], colour), Span(" ")),
                    }[kind]
        pictures.append([sum((drawn[y, n] for n in range(len(columns))), ()) for y in range(MOVING_HEIGHT)])
    return pictures


MOVING_WIDTH, MOVING_HEIGHT = 40, 12


@settings(max_examples=30, deadline=None)
@given(moving_rows(), st.sampled_from([TRUE, INDEXED, SIXTEEN]))
def test_a_moving_picture_is_shown_as_one_written_afresh(
    pictures: list[list[Line]], palette: Palette
) -> None:
    diff, emulator = CellDiff(palette, MOVING_WIDTH, MOVING_HEIGHT), Emulator(MOVING_WIDTH, MOVING_HEIGHT)
    for picture in pictures:
        emulator.feed(diff.diff_lines(dict(enumerate(picture))))
        afresh = Emulator(MOVING_WIDTH, MOVING_HEIGHT)
        afresh.feed(CellDiff(palette, MOVING_WIDTH, MOVING_HEIGHT).diff_lines(dict(enumerate(picture))))
        strips = [[(0, strip_of(line, MOVING_WIDTH, palette))] for line in picture]
        assert emulator.cells() == afresh.cells()
        if palette == TRUE:
            assert emulator.cells() == as_textual_writes(strips, MOVING_WIDTH).cells()


def lines(*texts: str, style: str = "") -> dict[int, list[tuple[int, Strip]]]:
    return {y: [(0, strip_of((Span(text, style),), WIDTH, INDEXED))] for y, text in enumerate(texts)}


def test_only_the_changed_cells_are_written_and_all_after_forgetting() -> None:
    diff = CellDiff(INDEXED, WIDTH, 1)
    first = diff.diff(lines("power 300 W"))
    assert diff.diff(lines("power 301 W")) == "\x1b[1;9H1"
    diff.forget()
    assert diff.diff(lines("power 300 W")) == first


def test_cells_between_changed_ones_are_written_where_no_move_is_shorter() -> None:
    diff = CellDiff(INDEXED, WIDTH, 1)
    diff.diff(lines("a12b123c─d"))
    assert diff.diff(lines("A12B123C─D")) == "\x1b[1HA12B\x1b[8GC\x1b[CD"
    line: Line = (Span("a", "good"), Span("12", "warn"), Span("b", "good"))
    diff.diff_lines({0: line})
    other: Line = (Span("A", "good"), Span("12", "warn"), Span("B", "good"))
    assert diff.diff_lines({0: other}).endswith("A\x1b[4GB")  # the colour would be switched twice


def test_figures_below_each_other_are_written_with_the_shortest_moves() -> None:
    diff = CellDiff(INDEXED, WIDTH, HEIGHT)
    diff.diff(lines(*["gpu  11 W   22 C"] * HEIGHT))
    after = ["gpu  33 W   44 C", "gpu  35 W   45 C", "gpu  11 W   22 C", *["gpu  36 W   47 C"] * 3]
    down, up = "\x1bD\b\b", "\x1bM\b\b"
    assert diff.diff(lines(*after)) == (
        f"\x1b[1;6H33{down}35\x1b[4;6H36{down}36{down}36\x1b[5C47{up}47{up}47\x1bM{up}45{up}44"
    )


def test_colours_are_switched_once_and_last_until_the_next_picture() -> None:
    diff = CellDiff(SIXTEEN, WIDTH, 3)
    both = {y: (Span("ok  ", "good"), Span("hot", "warn")) for y in range(3)}
    diff.diff_lines(both)
    changed = {y: (Span("OK  ", "good"), Span("HOT", "warn")) for y in range(3)}
    first = diff.diff_lines(changed)
    assert first.count("\x1b[32m") + first.count("\x1b[33m") == 1, first
    assert diff.diff_lines(both).count("m") == 1


def test_a_blank_tail_is_erased() -> None:
    diff = CellDiff(INDEXED, WIDTH, 1)
    diff.diff(lines("a long line of text"))
    assert diff.diff(lines("a")) == "\x1b[1;3H\x1b[K"
    diff.diff(lines("a 20"))
    assert diff.diff(lines("a 2")) == "\x1b[1;4H "  # as short, and the cursor is where the next one is


def test_a_strip_that_moved_is_drawn_where_it_is_now() -> None:
    strip = Strip([Segment("here")])
    blank = Strip([Segment(" " * 4)])
    diff = CellDiff(INDEXED, WIDTH, 1)
    diff.diff({0: [(0, strip), (4, blank)]})
    assert diff.diff({0: [(0, blank), (4, strip)]}) == "\x1b[1H    here"
    diff.diff({0: [(4, strip), (8, blank)]})
    assert diff.diff({0: [(8, strip), (4, blank)]}) == "\x1b[1;5H    here"


def test_of_a_wide_character_both_halves_are_written_and_after_it_the_column_is_set() -> None:
    diff = CellDiff(INDEXED, WIDTH, 1)
    assert diff.diff(lines("温度x")).endswith("\x1b[1H温\x1b[3G度\x1b[5Gx"), "its width is disputed"
    diff.diff(lines("ab温c"))
    assert diff.diff(lines("ab度c")) == "\x1b[1;3H度"
    assert diff.diff(lines("a温c")) == "\x1b[1;2H温\x1b[4Gc "


def test_what_a_terminal_would_obey_never_reaches_it() -> None:
    for obeyed in ("\x1b[2J", "\n", "\x9b31m", "\u202e", "\ud800", "\x07", "\u200b", "\u2028", ""):
        text = f"a{obeyed}b" if obeyed else "\u0301a"
        assert all(cell.isprintable() for cell in cells_of(text))
        written = CellDiff(INDEXED, WIDTH, 1).diff(lines(text)).removeprefix("\x1b[m\x1b[2J\x1b[1H")
        assert written.removesuffix("\x1b[K").isprintable()
        written.encode()


def test_what_counts_as_one_cell_is_one_cell_in_terminals() -> None:
    single = [chr(c) for c in range(0x3000) if _ONE_CELL_EACH.fullmatch(chr(c))]
    assert len(single) > 1000
    assert {c for c in single if wcwidth(c) != 1} == set()


@pytest.mark.parametrize(
    ("environment", "palette"),
    [
        ({"TERM": "xterm-256color"}, INDEXED),
        ({"TERM": "xterm-256color", "GPUTUI_LIGHT": "0"}, INDEXED),
        ({"TERM": "xterm-256color", "GPUTUI_LIGHT": "1"}, INDEXED_LIGHT),
        ({"TERM": "xterm-kitty", "GPUTUI_LIGHT": "1"}, TRUE_LIGHT),
        ({"TERM": "xterm", "GPUTUI_LIGHT": "1"}, SIXTEEN_LIGHT),
        ({"TERM": "vt100", "GPUTUI_LIGHT": "1"}, PLAIN),
        ({"TERM": "xterm-256color", "GPUTUI_LIGHT": "1", "NO_COLOR": "1"}, PLAIN),
    ],
)
def test_a_light_background_is_respected_where_there_are_colours(
    environment: dict[str, str], palette: Palette, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("COLORTERM", "NO_COLOR", "TEXTUAL_COLOR_SYSTEM", "GPUTUI_LIGHT"):
        monkeypatch.delenv(name, raising=False)
    for name, value in environment.items():
        monkeypatch.setenv(name, value)
    found = palette_here()
    assert found.depth is palette.depth
    assert found.is_light is palette.is_light or found.depth is Depth.NONE


@pytest.mark.parametrize("palette", EACH)
def test_each_style_is_written_in_the_colours_of_its_depth(palette: Palette) -> None:
    words = [name.replace(" ", "-") or "plain" for name in STYLES]
    line = tuple(Span(f"{word} ", name) for word, name in zip(words, STYLES, strict=True))
    diff = CellDiff(palette, 800, 1)
    written = diff.diff({0: [(0, strip_of(line, 800, palette))]})
    assert ("38;2;" in written) == (palette.depth is Depth.TRUE)
    assert ("38;5;" in written) == (palette.depth >= Depth.INDEXED)
    numbers = {
        int(n)
        for part in written.split("\x1b[")[3:]
        for n in part.partition("m")[0].split(";")
        if n.isdigit()
    }
    if palette == PLAIN:
        assert numbers <= {0, 1, 4, 7}
    if palette in (SIXTEEN, SIXTEEN_LIGHT):
        assert numbers <= {0, 1, 7, *range(30, 38), *range(90, 98)}
    emulator = Emulator(800, 1)
    emulator.feed(written)
    assert emulator.screen.display[0].split() == words


def test_a_colour_of_24_bits_that_is_one_of_the_256_is_written_as_such() -> None:
    assert text_style(Style(color="#5fafd7", bgcolor="#262626"), Depth.TRUE).of_text == "38;5;74;48;5;235"
    assert text_style(Style(color="#5fafd8"), Depth.TRUE).of_text == "38;2;95;175;216"
    for number in range(16, 256):
        style = Style(color=Color.from_triplet(EIGHT_BIT_PALETTE[number]))
        assert text_style(style, Depth.TRUE).of_text.startswith("38;5;")


def test_without_colours_the_blanks_and_bars_beside_a_warning_are_not_marked() -> None:
    line = (
        Span("gpu"),
        Span("  ! no GPU  ", "alarm"),
        Span("   624  W over", "warn"),
        Span("   ", "warn"),
        Span("━━●━╸", "warn"),
        Span("ok"),
    )
    drawn = []
    for lines in (True, False):
        diff, emulator = CellDiff(PLAIN, 40, 1), Emulator(40, 1)
        strip = {0: [(0, strip_of(line, 40, PLAIN))]}
        emulator.feed(diff.diff_lines({0: line}) if lines else diff.diff(strip))
        drawn.append(emulator.screen.buffer[0])
    for row in drawn:
        assert "".join(row[x].data for x in range(40)).rstrip() == "gpu  ! no GPU     624  W over   ━━●━╸ok"
        assert "".join(row[x].data for x in range(40) if row[x].reverse) == "! no GPU"
        assert "".join(row[x].data for x in range(40) if row[x].underscore) == "624W over"
