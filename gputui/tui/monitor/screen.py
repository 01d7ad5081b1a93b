"""The Monitor as a screen: draws its model's lines, forwards keys, and never waits for the collector."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from contextlib import suppress
from contextvars import copy_context
from time import monotonic, monotonic_ns
from typing import Protocol

from textual import events

from gputui.model.telemetry import LiveSample
from gputui.tui.monitor.model import MonitorModel
from gputui.tui.monitor.status import Asked
from gputui.tui.shell.registry import screen_at
from gputui.tui.terminal.renderer import PaintedScreen, shell_of
from gputui.tui.widgets.cells import noted

PAINT_EVERY_S = 1.0
_SLACK_S = 0.1
"""A sample this much early is drawn when it arrives; without a sample, the frame is drawn this much late."""
_BEGINNING_S = 2.0
_PAINT_FIRST_EVERY_S = 0.1
"""At the start devices arrive one by one, and the first should be visible at once."""
SLOW_FRAME_S = 0.5
"""From this round trip on, the frame says that the link is slow."""


class Feed(Protocol):
    """A source of samples: this box, or made-up GPUs."""

    on_sample: Callable[[], None]
    """Called in a thread of the feed when there is a new sample: it must be quick."""

    def start(self) -> None:
        """Start sampling; returns at once."""

    def latest(self) -> LiveSample:
        """The current sample, at once; the same object as before if nothing has changed."""

    def want_processes(self, wanted: bool) -> None: ...

    def set_interval(self, interval_s: float) -> None: ...

    def close(self) -> None:
        """End within 0.1 s, even while a call hangs."""


class MonitorScreen(PaintedScreen, inherit_bindings=False):
    def __init__(self, model: MonitorModel, feed: Feed, on_request: Callable[[Asked], None]) -> None:
        super().__init__()
        self._model = model
        self._feed = feed
        self._on_request = on_request
        self._mounted_s = self._painted_s = 0.0
        self.shown_actions = model.actions

    def on_mount(self) -> None:
        self._mounted_s = monotonic()
        loop, context = asyncio.get_running_loop(), copy_context()

        def rung() -> None:  # without a message: Textual takes longer to pass one on than a frame to be drawn
            with suppress(RuntimeError):  # the loop has ended
                loop.call_soon_threadsafe(self._take_samples, context=context)

        self._feed.on_sample = rung
        width, height = self.app.size  # the size the view will have: the first frame is not blank
        self._view.show(self._model.lines(width, height, monotonic_ns(), self._feed.latest()))

    def on_unmount(self) -> None:
        self._feed.on_sample = lambda: None

    def _take_samples(self) -> None:
        """Add the newest samples to the charts; draw at most once a second."""
        if not self.is_running:
            return  # it came after the end
        now = monotonic()
        is_new = now - self._mounted_s < _BEGINNING_S
        wait_s = self._painted_s + (_PAINT_FIRST_EVERY_S if is_new else PAINT_EVERY_S - _SLACK_S) - now
        if wait_s <= 0:
            self.paint()
            return
        self._model.add(self._feed.latest())
        if is_new:
            self.paint_in(wait_s)

    def on_key(self, event: events.Key) -> None:
        """Forward letters while text is typed; other keys are those of the base, which Textual calls next."""
        if self._model.is_typing and event.is_printable and event.character is not None:
            self._model.type(event.character)
            self.paint()
            event.stop()
            event.prevent_default()

    def on_paste(self, event: events.Paste) -> None:
        if self._model.is_typing:
            self._model.type(event.text)
            self.paint()

    def on_click(self, event: events.Click) -> None:
        if event.screen_y == 0 and (found := screen_at(event.screen_x, self.size.width)):
            shell_of(self).open_screen(found)
            return
        self._model.click(event.screen_x, event.screen_y)
        self.paint()

    def say(self, text: str, style: str = "") -> None:
        self._model.say(text, style)
        self.paint()

    def press(self, action_id: str) -> None:
        before = self._model.settings
        request = self._model.press(action_id)
        now = self._model.settings
        if now.interval_s != before.interval_s:
            self._feed.set_interval(now.interval_s)
        if now.show_processes != before.show_processes:
            self._feed.want_processes(now.show_processes)
        if request is not None:
            self._on_request(request)
        self.paint()

    def paint(self) -> None:
        newest = self._feed.latest()  # nothing is said of a new sample while a call hangs
        self._painted_s = monotonic()
        self.paint_in(PAINT_EVERY_S + _SLACK_S)
        width, height = self._view.size
        if not (self.is_current and width and height):
            self._model.add(newest)
            return
        lines = self._model.lines(width, height, monotonic_ns(), newest)
        if self.painter.round_trip_s > SLOW_FRAME_S and lines:
            note = f" link slow: a picture takes {self.painter.round_trip_s:.1f} s "
            lines = (noted(lines[0], note, width, "warn"), *lines[1:])
        self.painter.paint_lines(self._view, lines)
