"""A screen that is one view of lines and sets the time of its next picture: a timer that outlived its screen
would draw over the one after it."""

from __future__ import annotations

import asyncio

from textual import events
from textual.app import ComposeResult
from textual.geometry import Region
from textual.screen import Screen
from textual.strip import Strip

from gputui.tui.terminal.lines_view import LinesView
from gputui.tui.terminal.renderer import FastPaint


class PaintedScreen(Screen[None], inherit_bindings=False):
    """One view over all of it, drawn by `paint`: at another size, and when `paint_in` says so."""

    DEFAULT_CSS = "PaintedScreen { overflow: hidden; }"

    def __init__(self) -> None:
        super().__init__()
        self._view = LinesView()
        self._next: asyncio.TimerHandle | None = None

    def compose(self) -> ComposeResult:
        """The one widget."""
        yield self._view

    def paint(self) -> None:
        """Draw it as it is now."""
        raise NotImplementedError

    def press(self, action_id: str) -> None:
        """Do an action of the screen's table; a key, the wheel, the palette or a footer may call this."""
        raise NotImplementedError

    @property
    def has_room(self) -> bool:
        """Whether it is looked at, in a size that is known."""
        return self.is_current and all(self._view.size)

    @property
    def painter(self) -> FastPaint:
        """The app, which writes."""
        app = self.app
        assert isinstance(app, FastPaint)
        return app

    def paint_in(self, seconds: float) -> None:
        """Draw it then, and not when it was last said."""
        self._stop()
        loop = asyncio.get_running_loop()
        self._next = loop.call_later(seconds, lambda: self.call_later(self.paint))

    def render_lines(self, crop: Region) -> list[Strip]:
        """Blank: the view covers everything."""
        return [Strip.blank(crop.width)] * crop.height

    def on_unmount(self) -> None:
        """Textual calls it after that of a subclass, which need not."""
        self._stop()

    def on_resize(self, event: events.Resize) -> None:
        self.call_next(self.paint)

    def on_screen_resume(self) -> None:
        self.call_next(self.paint)

    def on_mouse_scroll_down(self, event: events.MouseScrollDown) -> None:
        """The wheel moves what the arrows move."""
        self.press("down")

    def on_mouse_scroll_up(self, event: events.MouseScrollUp) -> None:
        self.press("up")

    def _stop(self) -> None:
        if self._next is not None:
            self._next.cancel()
