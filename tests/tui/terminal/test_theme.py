"""Every text is readable at 256 colours, on dark and on light terminals: its contrast is 4.5 (WCAG)."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from monitor_golden import SECONDS
from monitor_golden import model as monitor
from monitor_samples import SECOND, START, sample
from rich.color import Color, ColorSystem
from rich.style import Style
from screen_goldens import store_three
from shell_app import make_app, press, settled

from gputui.tui.app import MonitorApp
from gputui.tui.terminal.cell_diff import rich_style
from gputui.tui.terminal.theme import STYLES, Depth, definition

LEAST = 4.5
DARK = {"black": "#000000", "VS Code": "#1e1e1e", "Ubuntu": "#300a24", "Solarized": "#002b36"}
"""Default backgrounds of terminals."""
LIGHT = {"white": "#ffffff", "Tango": "#eeeeec", "Solarized": "#fdf6e3"}
PLAIN = {Depth.INDEXED: "#d3d7cf", Depth.LIGHT: "#2e3436"}
"""The default text colours of GNOME's palettes."""
NO_LETTERS = frozenset(" ━╸╺─│┌┐└┘▁▂▃▄▅▆▇█")

Pair = tuple[str, str]
"""Text colour and background; empty for the terminal's default."""


def shown_as(colour: Color | None) -> str:
    """A colour as a terminal with 256 colours shows it."""
    if colour is None or colour.is_default:
        return ""
    return colour.downgrade(ColorSystem.EIGHT_BIT).get_truecolor().hex


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
    grounds = DARK if depth is Depth.INDEXED else LIGHT
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
@pytest.mark.parametrize("style", STYLES)
def test_every_style_of_the_theme_can_be_read(style: str, depth: Depth) -> None:
    assert least_ratio(pair_of(Style.parse(definition(style, depth))), depth) >= LEAST


@pytest.mark.parametrize("keys", [(), ("details",), ("metrics",), ("keys",), ("filter",), ("tree", "end")])
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
@pytest.mark.parametrize("depth", PLAIN)
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
