"""A terminal emulator as Textual sets it up, and the output that Textual itself would write."""

from __future__ import annotations

from collections.abc import Sequence

import pyte
from rich.console import Console
from textual.strip import Strip

Picture = Sequence[Sequence[tuple[int, Strip]]]


class Emulator:
    """A terminal as Textual sets it up: no line wrap."""

    def __init__(self, width: int, height: int) -> None:
        self.screen = pyte.Screen(width, height)
        self._stream = pyte.Stream(self.screen)
        self.feed("\x1b[?7l")

    def feed(self, text: str) -> None:
        self._stream.feed(text)

    def cells(self) -> list[list[tuple[object, ...]]]:
        """The visible part of each cell: without colour and weight of blanks."""
        screen = self.screen
        seen: list[list[tuple[object, ...]]] = []
        for y in range(screen.lines):
            row: list[tuple[object, ...]] = []
            for x in range(screen.columns):
                cell = screen.buffer[y][x]
                ground = (cell.bg, cell.reverse, cell.underscore, cell.strikethrough)
                letters = (cell.fg, cell.bold, cell.italics) if cell.data != " " or cell.reverse else ()
                row.append((cell.data, *ground, *letters))
            seen.append(row)
        return seen


def as_textual_writes(picture: Picture, width: int) -> Emulator:
    console = Console(color_system="truecolor", force_terminal=True, width=width, _environ={})
    expected = Emulator(width, len(picture))
    for y, strips in enumerate(picture):
        for x, strip in strips:
            expected.feed(f"\x1b[{y + 1};{x + 1}H{strip.render(console)}")
    return expected
