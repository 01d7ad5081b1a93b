"""A screen that is one view of lines and sets the time of its next picture: a timer that outlived its screen
would draw over the one after it."""

from __future__ import annotations

import asyncio

from textual import events
from textual.geometry import Region
from textual.screen import Screen
from textual.strip import Strip


class PaintedScreen(Screen[None], inherit_bindings=False):
    """One view over all of it, drawn by `paint`: at another size, and when `paint_in` says so."""

    _next: asyncio.TimerHandle | None = None

    def paint(self) -> None:
        """Draw it as it is now."""
        raise NotImplementedError

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

    def _stop(self) -> None:
        if self._next is not None:
            self._next.cancel()
