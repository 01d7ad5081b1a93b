"""Every text of every theme is readable on dark and on light terminals, from 256 colours on."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from monitor_golden import SECONDS, faulty
from monitor_golden import model as monitor
from monitor_samples import SECOND, START, sample
from palettes import EACH, INDEXED, INDEXED_LIGHT, PLAIN, SIXTEEN, SIXTEEN_LIGHT, TRUE, TRUE_LIGHT
from rich.color import Color, ColorSystem
from rich.style import Style
from screen_goldens import store_three
from shell_app import make_app, press, settled

from gputui.document.theme import (
    APART,
    LETTERS,
    SELECTED,
    SHAPES,
    STYLES,
    THEMES,
    Depth,
    Palette,
    Theme,
    contrast,
    definition,
    depth_of,
    sgr,
)
from gputui.tui.app import MonitorApp, theme_for
from gputui.tui.terminal.cell_diff import rich_style
from gputui.tui.widgets.cells import wants_ascii
from gputui.tui.widgets.charts import body_styles

LEAST = 4.5
DARK = ("#000000", "#14171c", "#1e1e1e", "#300a24", "#002b36")
LIGHT = ("#ffffff", "#d3d7cf", "#fdf6e3")
"""Default backgrounds of terminals."""
TEXT = {False: "#d3d7cf", True: "#2e3436"}
"""The default text colours of GNOME's palettes, on dark and on light."""
COLOURED = (INDEXED, INDEXED_LIGHT, TRUE, TRUE_LIGHT)
TERMINALS = ("#ffffff", "#000000", "#fdf6e3", "#002b36", "#300a24", "#1e1e1e", "#f8f8f8")
"""Backgrounds that terminals say they have: white, black, Solarized's, and the defaults of others."""
NO_LETTERS = frozenset(" ━╸╺─┄│├└┌┐┘▁▂▃▄▅▆▇█■▓▒▚▞░")

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


def pair_of(style: Style) -> Pair:
    pair = shown_as(style.color), shown_as(style.bgcolor)
    return pair[::-1] if style.reverse else pair


def least_ratio(pair: Pair, palette: Palette = INDEXED) -> float:
    letters, background = pair
    grounds = LIGHT if palette.is_light else DARK
    text = letters or TEXT[palette.is_light]
    return min(contrast(text, background or behind) for behind in grounds)


def pairs_on(app: MonitorApp) -> dict[Pair, str]:
    """Pairs of colours that text is drawn with, each with an example."""
    return {
        pair_of(style or Style.null()): text
        for row in app.whole_picture().strips
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


@pytest.mark.parametrize("palette", COLOURED)
def test_every_style_of_letters_can_be_read_and_every_shape_seen(palette: Palette) -> None:
    least = dict.fromkeys((*LETTERS, *(name + SELECTED for name in LETTERS), "selected"), LEAST)
    least |= {style: 1.5 if style == "track" else 2.5 for style in SHAPES}
    ratios = {
        style: least_ratio(shown_exactly(Style.parse(definition(style, palette))), palette) for style in least
    }
    assert {style: ratio for style, ratio in ratios.items() if ratio < least[style]} == {}


def colours_on(palette: Palette) -> dict[str, str]:
    """Of letters, by style, as the terminal shows them on its own background and on the selected row."""
    pairs = {name: shown_exactly(Style.parse(definition(name, palette))) for name in LETTERS}
    return {name: text for name, (text, _) in pairs.items() if text}


@pytest.mark.parametrize("depth", [Depth.INDEXED, Depth.TRUE])
@pytest.mark.parametrize("theme", [theme for theme in THEMES if theme.dark])
def test_every_theme_can_be_read_on_any_background_and_tells_well_from_not_also_to_the_red_green_blind(
    theme: Theme, depth: Depth
) -> None:
    for background in TERMINALS:
        palette = Palette(depth, background, theme.id)
        letters = colours_on(palette)
        assert contrast(letters["good"], letters["warn"]) >= APART, background
        assert contrast(to_deuteranopes(letters["good"]), to_deuteranopes(letters["warn"])) >= 1.3
        if theme.background:
            continue
        assert palette.is_light == (contrast(background, "#000000") > contrast(background, "#ffffff"))
        assert len(letters) == len(LETTERS) - 2
        least = max(LEAST, theme.contrast)
        assert min(contrast(text, background) for text in letters.values()) >= least, background
        selected = [shown_exactly(Style.parse(definition(name + SELECTED, palette))) for name in LETTERS]
        assert min(contrast(text, behind) for text, behind in selected) >= LEAST, background


def to_deuteranopes(colour: str) -> str:
    """Machado, Oliveira and Fernandes 2009, severity 1: https://doi.org/10.1109/TVCG.2009.113."""
    parts = [int(colour[at : at + 2], 16) / 255 for at in (1, 3, 5)]
    linear = [v / 12.92 if v <= 0.04045 else ((v + 0.055) / 1.055) ** 2.4 for v in parts]
    rows = (
        (0.367322, 0.860646, -0.227968),
        (0.280085, 0.672501, 0.047413),
        (-0.011820, 0.042940, 0.968881),
    )
    seen = [min(max(sum(a * b for a, b in zip(row, linear, strict=True)), 0.0), 1.0) for row in rows]
    encoded = [12.92 * v if v <= 0.0031308 else 1.055 * v ** (1 / 2.4) - 0.055 for v in seen]
    return "#" + "".join(f"{round(255 * v):02x}" for v in encoded)


def test_a_theme_for_a_dark_or_a_light_background_is_so_whatever_the_terminal_says() -> None:
    for background in TERMINALS:
        assert Palette(Depth.TRUE, background, "light").is_light
        assert not Palette(Depth.TRUE, background, "dark").is_light
    assert Palette(Depth.TRUE, "#ffffff", "no such theme").of_theme == THEMES[0]


def test_the_theme_of_the_terminal_uses_its_sixteen_colours_alone() -> None:
    for background, words in (("#000000", "cyan"), ("#ffffff", "blue")):
        palette = Palette(Depth.TRUE, background, "terminal")
        assert definition("accent", palette) == words
        assert not [style for style in STYLES if "#" in definition(style, palette)]
        assert definition("warn" + SELECTED, palette) == "reverse"


def test_a_page_is_written_in_the_colours_of_the_screens() -> None:
    assert sgr("warn", TRUE) == "38;5;214", "shorter than as 24 bits"
    assert sgr("warn", Palette(Depth.TRUE, "#ffffff", "solarized")) == "38;2;147;111;0"
    assert sgr("alarm", SIXTEEN) == "1;91"
    assert sgr("warn", SIXTEEN_LIGHT) == "31"
    assert (sgr("", INDEXED), sgr("dim", SIXTEEN)) == ("", "")


def test_with_sixteen_colours_no_body_of_a_chart_is_as_bright_as_letters() -> None:
    for palette in (SIXTEEN, SIXTEEN_LIGHT):
        assert [style for style in SHAPES if not definition(style, palette)] == []
    assert definition("clock", SIXTEEN) == "", "figures are letters"
    assert definition("clock 1", PLAIN) == ""
    faint = {style for style in STYLES if "bright_black" in definition(style, SIXTEEN)}
    assert faint == {"track", "stale"} <= set(SHAPES)
    assert definition("dim", SIXTEEN) == ""
    lines = monitor(faulty).lines(80, 24, START + (SECONDS - 1) * SECOND)
    bodies = {span.style for line in lines for span in line if set(span.text) & set("▂▃▄▅▆▇█")}
    assert "stale" in bodies, "of a lost GPU"
    assert not bodies & set(LETTERS), "in sixteen colours these have the colour of letters"


def test_with_sixteen_colours_on_a_light_background_no_letter_has_a_pale_one() -> None:
    pale = ("yellow", "cyan", "green", "white", "bright")
    shown = {style: definition(style, SIXTEEN_LIGHT) for style in LETTERS}
    assert not {style: words for style, words in shown.items() if any(one in words for one in pale)}
    of_widgets = theme_for(SIXTEEN_LIGHT)
    letters = (of_widgets.accent, of_widgets.success, of_widgets.warning, of_widgets.error)
    assert letters == ("ansi_blue", "ansi_default", "ansi_red", "ansi_red")
    assert shown["warn"] != shown["alarm"] != ""


def test_every_style_is_known_and_without_colours_uses_none() -> None:
    for palette in EACH:
        for style in STYLES:
            parsed = Style.parse(definition(style, palette))
            assert palette.depth is not Depth.NONE or (parsed.color, parsed.bgcolor) == (None, None)
    assert definition("alarm" + SELECTED, SIXTEEN) == "bold reverse"
    assert definition("warn" + SELECTED, INDEXED) == "#ffaf00 on #262626"


def test_a_chart_of_several_rows_rises_from_its_mid_tone_to_its_full_tone() -> None:
    tones = [definition(style, TRUE) for style in body_styles("compute", 4)]
    assert (tones[0], tones[-1]) == (definition("compute", TRUE), "#5f87af")
    assert len(set(tones)) == 4
    for palette in (INDEXED, Palette(Depth.INDEXED, "#ffffff")):  # two tones would read as two series
        assert {definition(style, palette) for style in body_styles("compute", 8)} == {"#5f87af"}
    assert body_styles("power", 1) == ("power 1",)


async def test_a_key_turns_the_theme_of_every_screen_and_its_widgets() -> None:
    app = make_app(palette=INDEXED)
    async with app.run_test(size=(80, 24)) as pilot:
        await press(pilot, "3")
        shown = []
        for _ in THEMES:
            await press(pilot, "T")
            accent = Color.parse(definition("accent", app.palette).split()[-1])
            colours = {
                style.color
                for row in app.whole_picture().strips
                for strip in row
                for _, style, _ in strip
                if style
            }
            assert accent in colours
            shown.append((app.palette.theme, app.current_theme.accent))
        assert [theme for theme, _ in shown] == [theme.id for theme in (*THEMES[1:], THEMES[0])]
        assert len({accent for _, accent in shown}) >= 6
        assert app.palette == INDEXED


def test_terminals_whose_fonts_lack_blocks_get_ascii() -> None:
    for term in ("linux", "vt100", "vt220", "dumb"):
        assert wants_ascii({"TERM": term})
        assert not wants_ascii({"TERM": term, "GPUTUI_ASCII": "0"})
        assert depth_of({"TERM": term}) is (Depth.ANSI if term == "linux" else Depth.NONE)
    assert not wants_ascii({"TERM": "xterm-256color"})
    assert wants_ascii({"TERM": "xterm-256color", "GPUTUI_ASCII": "1"})


def test_every_text_of_the_monitor_can_be_read() -> None:
    made = monitor(lambda second: sample(8, second))
    made.press("next-gpu")
    styles: dict[str, str] = {}
    for key in ("down", "details", "details", "metrics", "metrics", "filter"):
        lines = made.lines(120, 40, START + SECONDS * SECOND)
        styles |= {span.style: span.text for line in lines for span in line if set(span.text) - NO_LETTERS}
        made.press(key)
    faint = {
        text: style
        for style, text in styles.items()
        if least_ratio(pair_of(rich_style(style, INDEXED))) < LEAST
    }
    assert not faint
    assert len(styles) > 2


@pytest.mark.slow
@pytest.mark.parametrize("palette", [INDEXED, INDEXED_LIGHT])
async def test_every_text_of_every_screen_can_be_read(
    palette: Palette, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("GPUTUI_DB", str(store_three(tmp_path)))
    app = make_app(palette=palette)
    found: dict[Pair, str] = {}
    async with app.run_test(size=(100, 30)) as pilot:
        await settled(pilot)
        for keys in walk():
            await press(pilot, *keys)
            found |= pairs_on(app)
    ratios = {text: (pair, least_ratio(pair, palette)) for pair, text in found.items()}
    assert not {text: ratio for text, ratio in ratios.items() if ratio[1] < LEAST}
    assert len(found) > 5
