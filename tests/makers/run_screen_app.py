"""The Run screen alone in an app."""

from __future__ import annotations

import asyncio

from palettes import INDEXED
from textual.binding import Binding
from textual.screen import Screen

from gputui.tui.screens.run.screen import RunScreen
from gputui.tui.terminal.renderer import FastPaint
from gputui.tui.terminal.splash import end_by_signal


class RunScreenApp(FastPaint):
    """One screen, and what it uses of the app."""

    ENABLE_COMMAND_PALETTE = False
    BINDINGS = [Binding("q", "quit", "Quit")]  # noqa: RUF012 - Textual declares it so

    def __init__(self) -> None:
        super().__init__(INDEXED)
        self.ascii_only = False
        self.run_screen = RunScreen()
        self.is_left = False
        self.opened: list[tuple[str, tuple[str, ...]]] = []
        self.digits: list[str] = []

    def on_load(self) -> None:
        end_by_signal(asyncio.get_running_loop(), self.exit)

    def get_default_screen(self) -> Screen[object]:
        return self.run_screen  # type: ignore[return-value]

    def on_key(self, event: object) -> None:
        key = getattr(event, "key", "")
        if key.isdigit():
            self.digits.append(key)

    async def action_quit(self) -> None:
        self.is_left = True
        self.exit(0)

    def open_screen(self, screen_id: str, words: tuple[str, ...] = ()) -> None:
        self.opened.append((screen_id, words))
