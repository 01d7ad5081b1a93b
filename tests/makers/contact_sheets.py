"""Contact sheets of every screen, to be looked at:

    python tests/makers/contact_sheets.py OUT [--looks dark,light] [--sizes 80x24] [--only WORD]

writes SVG files with several screens each, and PNG files beside them where Chromium is installed.
"""

from __future__ import annotations

import argparse
import asyncio
import os
import sys
import tempfile
from contextlib import ExitStack
from pathlib import Path

if __name__ == "__main__":
    tests = Path(__file__).parents[1]
    sys.path[:0] = [str(Path(__file__).parent), str(tests), str(tests.parent / "screenshots")]

from browser import CHROMIUM, Browser, browser
from every_screen import Look, app_states, drawn_states, store_serving
from palettes import INDEXED, PLAIN, SIXTEEN, SIXTEEN_LIGHT, TRUE
from rich.terminal_theme import TerminalTheme
from screen_goldens import store_on_gpu, store_three
from shell_app import Row
from terminal_svg import Ground, contact_sheet

from gputui.document.theme import Depth, Palette

_TANGO = [
    (0x2E, 0x34, 0x36),
    (0xCC, 0x00, 0x00),
    (0x4E, 0x9A, 0x06),
    (0xC4, 0xA0, 0x00),
    (0x34, 0x65, 0xA4),
    (0x75, 0x50, 0x7B),
    (0x06, 0x98, 0x9A),
    (0xD3, 0xD7, 0xCF),
]
_BRIGHT = [
    (0x55, 0x57, 0x53),
    (0xEF, 0x29, 0x29),
    (0x8A, 0xE2, 0x34),
    (0xFC, 0xE9, 0x4F),
    (0x72, 0x9F, 0xCF),
    (0xAD, 0x7F, 0xA8),
    (0x34, 0xE2, 0xE2),
    (0xEE, 0xEE, 0xEC),
]
DARK = Ground("#14171c", "#d4d4d4", TerminalTheme((0x14, 0x17, 0x1C), (0xD4, 0xD4, 0xD4), _TANGO, _BRIGHT))
UBUNTU = Ground("#300a24", "#ffffff", TerminalTheme((0x30, 0x0A, 0x24), (255, 255, 255), _TANGO, _BRIGHT))
LIGHT = Ground("#fdf6e3", "#2e3436", TerminalTheme((0xFD, 0xF6, 0xE3), (0x2E, 0x34, 0x36), _TANGO, _BRIGHT))
LOOKS: dict[str, tuple[Palette, bool, Ground]] = {
    "dark": (TRUE, False, DARK),
    "256": (INDEXED, False, UBUNTU),
    "light": (Palette(Depth.TRUE, "#fdf6e3"), False, LIGHT),
    "16": (SIXTEEN, False, UBUNTU),
    "16-light": (SIXTEEN_LIGHT, False, LIGHT),
    "none": (PLAIN, False, DARK),
    "ascii": (SIXTEEN, True, DARK),
}
"""Depth of colours, whether only ASCII is drawn, and the terminal's colours."""
SIZES = ("80x24", "120x40", "200x50")
_SHEET: dict[int, tuple[int, int]] = {80: (2, 3), 120: (2, 2), 200: (1, 2)}
"""Pictures beside and below each other, by columns: letters stay legible where a viewer shrinks it."""


async def states(look: Look, screens: str) -> dict[str, list[Row]]:
    """Rows of each state by its name."""
    found = dict(drawn_states(look)) if screens != "app" else {}
    if screens != "drawn":
        async for name, rows in app_states(look):
            found[name] = rows
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description="Contact sheets of every screen.")
    parser.add_argument("folder", type=Path)
    parser.add_argument("--looks", default=",".join(LOOKS), help="of " + ", ".join(LOOKS))
    parser.add_argument("--sizes", default=",".join(SIZES))
    parser.add_argument("--only", default="", help="states whose names hold one of these words, by commas")
    parser.add_argument("--screens", choices=("all", "drawn", "app"), default="all")
    chosen = parser.parse_args()
    chosen.folder.mkdir(parents=True, exist_ok=True)
    with ExitStack() as held:
        place = Path(held.enter_context(tempfile.TemporaryDirectory(prefix="gputui-")))
        os.environ["GPUTUI_DB"], os.environ["GPUTUI_STATE"] = str(store_three(place)), str(place / "state")
        store_on_gpu(place / "a.db")
        store_serving(place)
        tab = held.enter_context(browser()) if CHROMIUM else None
        for size in chosen.sizes.split(","):
            width, height = map(int, size.split("x"))
            for look in chosen.looks.split(","):
                palette, ascii_only, ground = LOOKS[look]
                found = asyncio.run(states(Look(width, height, palette, ascii_only), chosen.screens))
                words = chosen.only.split(",")
                kept = {name: rows for name, rows in found.items() if any(word in name for word in words)}
                _write(chosen.folder, f"{look}-{size}", kept, width, ground, tab)


def _write(
    folder: Path, name: str, found: dict[str, list[Row]], width: int, ground: Ground, tab: Browser | None
) -> None:
    across, down = _SHEET.get(width, (1, 1))
    names = list(found)
    for number, at in enumerate(range(0, len(names), across * down)):
        some = {one: found[one] for one in names[at : at + across * down]}
        svg, (wide, high) = contact_sheet(some, width, across, ground)
        path = folder / f"{name}-{number:02}.svg"
        path.write_text(svg, encoding="utf-8")
        if tab is not None:
            tab.open(path, wide, height=high)
            path.with_suffix(".png").write_bytes(tab.picture(is_whole=False))
        print(path.with_suffix(".png" if tab else ".svg"), " ".join(some))


if __name__ == "__main__":
    main()
