"""Every text is readable on dark and on light terminals, from 256 colours on: its contrast is 4.5 (WCAG)."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from monitor_golden import SECONDS, faulty
from monitor_golden import model as monitor
from monitor_samples import SECOND, START, sample
from rich.color import Color, ColorSystem
from rich.style import Style
from screen_goldens import store_three
from shell_app import make_app, press, settled

from gputui.tui.app import MonitorApp
from gputui.tui.terminal.cell_diff import rich_style
from gputui.tui.terminal.theme import (
    LETTERS,
    SELECTED,
    SHAPES,
    STYLES,
    WIDGET_COLOURS,
    Depth,
    definition,
    depth_of,
)
from gputui.tui.widgets.charts import body_styles
from gputui.tui.widgets.plain_ascii import wants_ascii

LEAST = 4.5
DARK = {
    "black": "#000000",
    "ink": "#14171c",
    "VS Code": "#1e1e1e",
    "Ubuntu": "#300a24",
    "Solarized": "#002b36",
}
"""Default backgrounds of terminals."""
LIGHT = {"white": "#ffffff", "Tango": "#d3d7cf", "Solarized": "#fdf6e3"}
PLAIN = {Depth.INDEXED: "#d3d7cf", Depth.TRUE: "#d3d7cf", Depth.LIGHT: "#2e3436"}
"""The default text colours of GNOME's palettes."""
NO_LETTERS = frozenset(" ━╸╺─┄│├└┌┐┘▁▂▃▄▅▆▇█")

Pair = tuple[str, str]
"""Text colour and background; empty for the terminal's default."""


def shown_as(colour: Color | None) -> str:
    """A colour as a terminal with 256 colours shows it."""
    if colour is None or colour.is_default:
        return ""
    return colour.downgrade(ColorSystem.EIGHT_BIT).get_truecolor().hex


def shown_exactly(style: Style) -> Pair:
    """The colours of a style at 24 bits, or by number."""
    colours = (style.color, style.bgcolor)
    text, behind = ("" if c is None or c.is_default else c.get_truecolor().hex for c in colours)
    return text, behind


def ratio(one: str, other: str) -> float:
    """https://www.w3.org/TR/WCAG21/#dfn-contrast-ratio"""
    low, high = sorted(map(luminance, (one, other)))
    return (high + 0.05) / (low + 0.05)


def luminance(colour: str) -> float:
    parts = [int(colour[at : at + 2], 16) / 255 for at in (1, 3, 5)]
    red, green, blue = (v / 12.92 if v <= 0.03928 else ((v + 0.055) / 1.055) ** 2.4 for v in parts)
    return 0.2126 * red + 0.7152 * green + 0.0722 * blue


def pair_of(style: Style) -> Pair:
    pair = shown_as(style.color), shown_as(style.bgcolor)
    return pair[::-1] if style.reverse else pair


def least_ratio(pair: Pair, depth: Depth = Depth.INDEXED) -> float:
    letters, background = pair
    grounds = LIGHT if depth is Depth.LIGHT else DARK
    return min(ratio(letters or PLAIN[depth], background or behind) for behind in grounds.values())


def pairs_on(app: MonitorApp) -> dict[Pair, str]:
    """Pairs of colours that text is drawn with, each with an example."""
    return {
        pair_of(style or Style.null()): text
        for row in app.shown_rows()
        for strip in row
        for text, style, control in strip
        if not control and set(text) - NO_LETTERS and not "\u2800" <= text.strip()[0] <= "\u28ff"
    }


def walk() -> Iterator[tuple[str, ...]]:
    """Keys that lead through every screen, with questions, filters and selected text."""
    yield ("3",)
    yield ("slash",)
    yield ("x",)
    yield ("escape", "space", "down", "space")
    yield ("o",)
    yield ("a", "b", "shift+home")
    yield ("escape", "D")
    yield ("n", "enter")
    for _ in range(8):
        yield ("tab",)
    yield ("escape", "c")
    yield ("enter",)
    yield ("question_mark",)
    yield ("escape", "2")
    yield ("tab", "n", "o")
    yield ("escape", "escape", "ctrl+p")
    yield ("down", "x", "y", "z")
    yield ("escape", "5")
    yield ("L",)


@pytest.mark.parametrize("depth", PLAIN)
@pytest.mark.parametrize("style", [*LETTERS, *(name + SELECTED for name in LETTERS), "selected"])
def test_every_style_of_letters_can_be_read(style: str, depth: Depth) -> None:
    assert least_ratio(shown_exactly(Style.parse(definition(style, depth))), depth) >= LEAST


@pytest.mark.parametrize("style", SHAPES)
def test_every_shape_can_be_seen(style: str) -> None:
    for depth in PLAIN:
        least = 1.5 if style == "track" else 2.5
        assert least_ratio(shown_exactly(Style.parse(definition(style, depth))), depth) >= least


def test_with_sixteen_colours_no_body_of_a_chart_is_as_bright_as_letters() -> None:
    for depth in (Depth.ANSI, Depth.ANSI_LIGHT):
        assert [style for style in SHAPES if not definition(style, depth)] == []
    assert definition("clock", Depth.ANSI) == "", "figures are letters"
    assert definition("clock 1", Depth.NONE) == ""


def test_the_history_of_a_lost_gpu_is_fainter_than_that_of_the_others() -> None:
    made = monitor(faulty)
    for size in ((80, 24), (120, 40)):
        lines = made.lines(*size, START + (SECONDS - 1) * SECOND)
        bodies = {span.style for line in lines for span in line if set(span.text) & set("▂▃▄▅▆▇█")}
        assert "stale" in bodies
        assert not bodies & set(LETTERS), "in sixteen colours these have the colour of letters"


def test_with_sixteen_colours_letters_never_use_bright_black() -> None:
    faint = {style for style in STYLES if "bright_black" in definition(style, Depth.ANSI)}
    assert faint == {"track", "stale"} <= set(SHAPES)
    assert definition("dim", Depth.ANSI) == ""
    assert WIDGET_COLOURS[Depth.ANSI]["dim"] == "ansi_default"


def test_with_sixteen_colours_on_a_light_background_no_letter_has_a_pale_one() -> None:
    pale = ("yellow", "cyan", "green", "white", "bright")
    shown = {style: definition(style, Depth.ANSI_LIGHT) for style in LETTERS}
    assert not {style: words for style, words in shown.items() if any(one in words for one in pale)}
    letters = {name: c for name, c in WIDGET_COLOURS[Depth.ANSI_LIGHT].items() if name != "track"}
    assert not {name: words for name, words in letters.items() if any(one in words for one in pale)}
    assert shown["warn"] != shown["alarm"] != ""


def test_every_style_is_known_and_without_colours_uses_none() -> None:
    for depth in Depth:
        for style in STYLES:
            parsed = Style.parse(definition(style, depth))
            assert depth is not Depth.NONE or (parsed.color, parsed.bgcolor) == (None, None)
    assert definition("alarm" + SELECTED, Depth.ANSI) == "bold reverse"
    assert definition("warn" + SELECTED, Depth.INDEXED) == "color(214) on color(235)"


def test_a_chart_of_several_rows_rises_from_its_mid_tone_to_its_full_tone() -> None:
    tones = [definition(style, Depth.TRUE) for style in body_styles("compute", 4)]
    assert (tones[0], tones[-1]) == (definition("compute", Depth.TRUE), "#5f87af")
    assert len(set(tones)) == 4
    for depth in (Depth.INDEXED, Depth.LIGHT):  # two tones would read as two series
        assert {definition(style, depth) for style in body_styles("compute", 8)} == {"color(67)"}
    assert body_styles("power", 1) == ("power 1",)


@pytest.mark.parametrize("term", ["linux", "vt100", "vt220", "dumb"])
def test_terminals_whose_fonts_lack_blocks_get_ascii(term: str) -> None:
    assert wants_ascii({"TERM": term})
    assert not wants_ascii({"TERM": term, "GPUTUI_ASCII": "0"})
    assert depth_of({"TERM": term}) is (Depth.ANSI if term == "linux" else Depth.NONE)


def test_other_terminals_get_blocks() -> None:
    assert not wants_ascii({"TERM": "xterm-256color"})
    assert wants_ascii({"TERM": "xterm-256color", "GPUTUI_ASCII": "1"})


@pytest.mark.parametrize("keys", [(), ("details",), ("metrics",), ("filter",), ("tree", "end")])
def test_every_text_of_the_monitor_can_be_read(keys: tuple[str, ...]) -> None:
    made = monitor(lambda second: sample(8, second))
    made.press("next-gpu")
    for key in keys:
        made.press(key)
    lines = made.lines(120, 40, START + SECONDS * SECOND)
    styles = {span.style: span.text for line in lines for span in line if set(span.text) - NO_LETTERS}
    faint = {
        text: style
        for style, text in styles.items()
        if least_ratio(pair_of(rich_style(style, Depth.INDEXED))) < LEAST
    }
    assert not faint
    assert len(styles) > 2


@pytest.mark.slow
@pytest.mark.parametrize("depth", [Depth.INDEXED, Depth.LIGHT])
async def test_every_text_of_every_screen_can_be_read(
    depth: Depth, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("GPUTUI_DB", str(store_three(tmp_path)))
    app = make_app(depth=depth)
    found: dict[Pair, str] = {}
    async with app.run_test(size=(100, 30)) as pilot:
        await settled(pilot)
        for keys in walk():
            await press(pilot, *keys)
            found |= pairs_on(app)
    ratios = {text: (pair, least_ratio(pair, depth)) for pair, text in found.items()}
    assert not {text: ratio for text, ratio in ratios.items() if ratio[1] < LEAST}
    assert len(found) > 5
