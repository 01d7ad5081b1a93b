"""The output stage of the screens: writes only changed cells, at most one frame ahead; and what is painted
with it: the widget that shows lines, and screens of one.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import suppress
from functools import lru_cache
from time import monotonic
from typing import TYPE_CHECKING, Any, Protocol, cast  # Any: actions, which the shell declares

from rich.console import RenderableType
from rich.segment import Segment
from rich.style import Style
from textual import events
from textual._compositor import ChopsUpdate, LayoutUpdate
from textual.app import App, ComposeResult
from textual.geometry import Offset, Region
from textual.message_pump import MessagePump
from textual.screen import Screen
from textual.strip import Strip
from textual.widget import Widget

from gputui.document.background import palette_here
from gputui.document.drawings import in_hues
from gputui.document.spans import Line, Span
from gputui.document.theme import Depth, Palette
from gputui.tui.terminal.cell_diff import CellDiff, Placed, rich_style, width_of, without_marked_blanks
from gputui.tui.terminal.driver import QuietDriver

if TYPE_CHECKING:
    from gputui.services.playback.demo import Demo


@lru_cache(maxsize=1024)  # charts never repeat: more would only fill memory
def _segment(span: Span, palette: Palette) -> Segment:
    return Segment(in_hues(span, palette), rich_style(span.style, palette))


def strip_of(line: Line, width: int, palette: Palette) -> Strip:
    """A line as a Textual strip, cut or padded to a width."""
    if palette.depth is Depth.NONE:
        line = without_marked_blanks(line)
    cells = sum(width_of(span.text) for span in line)
    return Strip([_segment(span, palette) for span in line], cells).adjust_cell_length(width, Style.null())


class Shell(Protocol):
    palette: Palette
    ascii_only: bool
    runs_in_progress: int
    demo: Demo | None

    def open_screen(self, screen_id: str, words: tuple[str, ...] = ()) -> None: ...

    def keep_error(self, screen_id: str, text: str) -> None: ...


def in_loop_of(pump: MessagePump, call: Callable[..., object], *values: object) -> None:
    """Have the event loop call something for a screen or an app; may be called from any thread."""
    with suppress(RuntimeError):  # the app has ended in the meantime
        pump.call_later(call, *values)


def shell_of(widget: Widget) -> Shell:
    return cast(Shell, widget.app)


class LinesView(Widget, can_focus=False, inherit_bindings=False):
    """Shows lines as they are; an unchanged line costs nothing."""

    DEFAULT_CSS = "LinesView { width: 100%; height: 100%; }"

    def __init__(self, id: str | None = None) -> None:
        super().__init__(id=id)
        self._lines: tuple[Line, ...] = ()
        self._strips: dict[int, Strip] = {}
        self._drawn_for: tuple[int, Palette] | None = None

    def show(self, lines: tuple[Line, ...]) -> None:
        """Show these lines from the top, and nothing below them."""
        self.refresh_rows(self.take(lines))

    def take(self, lines: tuple[Line, ...]) -> dict[int, Line]:
        """Keep these lines without drawing them; returns the visible rows that changed."""
        old = self._lines
        common = min(len(old), len(lines))
        changed = [y for y in range(common) if lines[y] is not old[y] and lines[y] != old[y]]
        changed.extend(range(common, max(len(old), len(lines))))
        self._lines = lines
        for y in changed:
            self._strips.pop(y, None)
        height = self.size.height
        return {y: lines[y] if y < len(lines) else () for y in changed if y < height}

    def refresh_rows(self, rows: Iterable[int]) -> None:
        width = self.size.width
        regions = [Region(0, y, width, 1) for y in rows]
        if regions and width:
            self.refresh(*regions)

    def render_line(self, y: int) -> Strip:
        """The strip of a row; the same object as long as the line is the same."""
        width, palette = self.size.width, shell_of(self).palette
        if self._drawn_for != (width, palette):
            self._strips.clear()
            self._drawn_for = width, palette
        strip = self._strips.get(y)
        if strip is None:
            line = self._lines[y] if y < len(self._lines) else ()
            strip = self._strips[y] = strip_of(line, width, palette)
        return strip

    def render_lines(self, crop: Region) -> list[Strip]:
        """The strips of a region; skips borders and filters, which these lines do not have."""
        strips = [self.render_line(y) for y in crop.line_range]
        if crop.x == 0 and crop.width == self.size.width:
            return strips
        return [strip.crop(crop.x, crop.right) for strip in strips]


SYNC_BEGIN, SYNC_END = "\x1b[?2026h", "\x1b[?2026l"
SYNC_FROM = 1200
"""Bytes. A shorter frame arrives in one packet, so that no terminal shows half of it."""
LEAST_PATIENCE_S = 0.1
_REPAINT_REOPENS_S = 1.0
SILENCE_S = 2.0
"""A terminal that has not answered anything for this long after the start is assumed never to answer."""
SLOW_LINK_S = 0.25
"""After two consecutive round trips longer than this, the link rests as long as it was busy; a single one is
a hiccup."""
LONGEST_REST_S = 5.0
QUERY_AGAIN_S = 60.0
"""After this long an answer counts as lost, as when a detached session is attached to another terminal."""


class FrameGate:
    """One frame in flight, acknowledged by the terminal; times are monotonic seconds.

    A frame ends with a cursor position query; its answer means that the terminal has parsed the frame. What
    the pty accepts means nothing: an SSH server buffers half a minute of output.
    """

    def __init__(self, now_s: float) -> None:
        self._opened_s = now_s
        self._sent_s: float | None = None
        self._rest_until_s = now_s
        self._unanswered = 0
        self.has_answered = False
        self.round_trip_s = 0.0
        """Of the last frame that was answered, transit included."""

    def is_deaf(self, now_s: float) -> bool:
        """Whether the terminal is assumed not to answer; then the writer's backlog decides."""
        return not self.has_answered and now_s - self._opened_s > SILENCE_S

    def may_write(self, now_s: float, is_backlogged: bool) -> bool:
        if self.is_deaf(now_s):
            return not is_backlogged
        return self._sent_s is None and now_s >= self._rest_until_s

    def sent(self, now_s: float) -> None:
        """A frame was sent, or only its query."""
        self._sent_s = now_s
        self._unanswered += 1

    def query_again(self, now_s: float) -> bool:
        """Whether the answer is so late that the query should be sent again, alone."""
        if self.is_deaf(now_s) or self._sent_s is None or now_s - self._sent_s < QUERY_AGAIN_S:
            return False
        self._unanswered = 0
        return True

    def answered(self, now_s: float) -> None:
        self.has_answered = True
        self._unanswered = max(0, self._unanswered - 1)
        if self._sent_s is None or self._unanswered:
            return
        before_s, self.round_trip_s = self.round_trip_s, now_s - self._sent_s
        self._sent_s = None
        busy_s = min(before_s, self.round_trip_s)
        if busy_s > SLOW_LINK_S:
            self._rest_until_s = now_s + min(busy_s, LONGEST_REST_S)

    def retry_in_s(self, now_s: float) -> float:
        """Seconds until it is worth calling `may_write` again, if no answer arrives before."""
        if self.is_deaf(now_s):
            return 0.25
        if self._sent_s is None:
            return max(0.0, self._rest_until_s - now_s)
        if not self.has_answered:
            return max(0.0, self._opened_s + SILENCE_S - now_s) + 0.01
        return max(0.0, self._sent_s + QUERY_AGAIN_S - now_s) + 0.01

    def in_flight_s(self, now_s: float) -> float:
        """How long the current frame has been in flight; 0 if there is none."""
        return 0.0 if self._sent_s is None else now_s - self._sent_s

    def reopen(self, now_s: float) -> None:
        """Nothing is in flight: this is another terminal, or this one after other programs used it."""
        self._sent_s = None
        self._unanswered = 0
        self._rest_until_s = now_s


class FastPaint(App[int]):
    """An app that writes what changed since the last frame it sent, one frame in flight.

    Nothing in a dropped frame is lost: the widgets hold it, and the next frame shows it.
    """

    def __init__(self, palette: Palette | None = None, shown: CellDiff | None = None) -> None:
        """`shown` is what the terminal already shows, in this palette."""
        self.palette = palette_here() if palette is None else palette
        super().__init__(driver_class=QuietDriver, ansi_color=True)
        self._shown = CellDiff(self.palette) if shown is None else shown
        self._gate = FrameGate(monotonic())
        self._is_behind = False
        self._retry: asyncio.TimerHandle | None = None
        self._cursor_sent = Offset(0, 0)

    @property
    def round_trip_s(self) -> float:
        """How long the terminal takes to answer a frame, transit included; 0 while unknown."""
        return max(self._gate.round_trip_s, self._gate.in_flight_s(monotonic()) if self._is_behind else 0.0)

    def paint_now(self, widget: Widget) -> None:
        """Write what was refreshed of a widget of the top screen without waiting for Textual's next frame."""
        screen = self.screen
        if widget.screen is screen and self._running and not self._batch_count:
            screen._compositor.update_widgets({widget})
            screen._compositor_refresh()

    def paint_lines(self, view: LinesView, lines: tuple[Line, ...]) -> None:
        """Write what changed of a view that covers its screen, before Textual knows of it.

        Bypasses Textual's compositor, which would double the time.
        """
        driver, rows = self._driver, view.take(lines)
        if not rows:
            return
        if (
            not (isinstance(driver, QuietDriver) and view.screen is self.screen and view.size == self.size)
            or self._is_held()
        ):
            view.refresh_rows(rows)
            self.paint_now(view)
            return
        try:
            now = monotonic()
            if not self._gate.may_write(now, driver.is_backlogged):
                self._fall_behind(driver, now)
            elif self._is_behind or self._shown.forgotten or self._shown.size != tuple(self.size):
                self._show(driver, self.whole_picture())
            else:
                self._write(driver, self._shown.diff_lines(rows), now)
        finally:
            self.post_display_hook()

    def repaint(self) -> None:
        """Send the whole picture again, whatever the terminal is assumed to show."""
        self._shown.forget()
        if self._gate.in_flight_s(monotonic()) > _REPAINT_REOPENS_S:
            self._gate.reopen(monotonic())  # the answer went to another terminal
        self._catch_up()

    def on_mount(self) -> None:
        self._gate = FrameGate(monotonic())
        if isinstance(self._driver, QuietDriver):
            self._driver.on_answer = self._on_answer

        def resumed(_: App[object]) -> None:
            self._gate.reopen(monotonic())
            self.repaint()

        self.app_resume_signal.subscribe(self, resumed, immediate=True)

    def on_unmount(self) -> None:
        if self._retry is not None:
            self._retry.cancel()

    def on_cursor_position(self, event: events.CursorPosition) -> None:
        """An answer that came with other input, or before the app was mounted."""
        event.stop()
        self._take_answer()
        self._catch_up_if_behind()

    def _on_answer(self) -> None:
        """An answer that came alone."""
        self._take_answer()
        if self._is_behind:
            self.call_later(self._catch_up_if_behind)

    def _take_answer(self) -> None:
        """The terminal has parsed a frame: the next one may follow."""
        self._gate.answered(monotonic())
        if isinstance(self._driver, QuietDriver):
            self._driver.patience_s = max(3 * self._gate.round_trip_s, LEAST_PATIENCE_S)

    def _display(self, screen: Screen[object], renderable: RenderableType | None) -> None:
        driver = self._driver
        if (
            not isinstance(renderable, LayoutUpdate | ChopsUpdate)
            or not isinstance(driver, QuietDriver)
            or self._is_held()
        ):
            if isinstance(driver, QuietDriver) and renderable is not None and not self._is_held():
                self._shown.forget()  # it is written past the difference
            super()._display(screen, renderable)
            return
        try:
            self._show(driver, renderable)
        finally:
            self.post_display_hook()

    def _show(self, driver: QuietDriver, update: LayoutUpdate | ChopsUpdate) -> None:
        now = monotonic()
        if not self._gate.may_write(now, driver.is_backlogged):
            self._fall_behind(driver, now)
            return
        size = (self.size.width, self.size.height)
        if size != self._shown.size:
            self._shown.resize(*size)
        whole = isinstance(update, LayoutUpdate)
        if not whole and (self._is_behind or self._shown.forgotten):
            update = self.whole_picture()
        self._is_behind = False
        self._write(driver, self._shown.diff(rows_of(update)), now)

    def _is_held(self) -> bool:
        """Whether painting is suspended: before the start, after the end, or during a batch."""
        return bool(self._batch_count) or not self._running or self._closed

    def _write(self, driver: QuietDriver, sequence: str, now: float) -> None:
        if self.cursor_position != self._cursor_sent:
            self._cursor_sent = self.cursor_position
            sequence += f"\x1b[{self.cursor_position.y + 1};{self.cursor_position.x + 1}H"
        if not sequence:
            return
        if self._sync_available and len(sequence.encode()) >= SYNC_FROM:
            sequence = f"{SYNC_BEGIN}{sequence}{SYNC_END}"
        self._send(driver, sequence, now)

    def _send(self, driver: QuietDriver, sequence: str, now: float) -> None:
        if self._gate.is_deaf(now):
            driver.patience_s = 0.0
        else:
            sequence += driver.query()
            self._gate.sent(now)
        driver.write(sequence)

    def _fall_behind(self, driver: QuietDriver, now: float) -> None:
        self._is_behind = True
        if self._gate.query_again(now) and not driver.is_backlogged:
            self._send(driver, "", now)
        if self._retry is None:
            wait_s = self._gate.retry_in_s(now)
            self._retry = asyncio.get_running_loop().call_later(wait_s, self._on_retry)

    def _on_retry(self) -> None:
        self._retry = None
        self.call_later(self._catch_up_if_behind)

    def _catch_up_if_behind(self) -> None:
        if self._is_behind:
            self._catch_up()

    def _catch_up(self) -> None:
        if self._running and self.screen_stack and not self._batch_count:
            self._display(self.screen, self.whole_picture())

    def whole_picture(self) -> LayoutUpdate:
        picture = self.screen._compositor.render_update(full=True, screen_stack=self._background_screens)
        assert isinstance(picture, LayoutUpdate)
        return picture


def rows_of(update: LayoutUpdate | ChopsUpdate) -> Mapping[int, Iterable[Placed]]:
    if isinstance(update, LayoutUpdate):
        left, top = update.region.offset
        return {y: tuple(_side_by_side(left, line)) for y, line in enumerate(update.strips, top)}
    rows = {y for y, _, _ in update.spans}
    return {
        y: tuple((x, strip) for x, strip in update.chops[y].items() if strip is not None)
        for y in sorted(rows)
        if y < len(update.chops)
    }


def _side_by_side(x: int, strips: Iterable[Strip]) -> Iterator[Placed]:
    for strip in strips:
        yield x, strip
        x += strip.cell_length


class AppScreen(Screen[None]):
    """A screen of the app, as opposed to a dialog or a page on top of it."""

    shown_actions: tuple[Any, ...] = ()
    """The table of its keys, for the help and the palette."""

    def say(self, text: str, style: str = "") -> None:
        raise NotImplementedError

    def press(self, action_id: str) -> None:
        """Do an action of the screen's table; a key, the wheel, the palette or a footer may call this."""
        raise NotImplementedError

    def refresh_lines(self) -> None:
        """Draw what stands around the body anew; a painted screen does so by itself."""

    def show_words(self, words: tuple[str, ...]) -> None:
        """Show what words on the command line would; nothing where there is only one thing to show."""


class PaintedScreen(AppScreen, inherit_bindings=False):
    """One view over all of it, drawn by `paint`: at another size, and when `paint_in` says so."""

    DEFAULT_CSS = "PaintedScreen { overflow: hidden; }"

    def __init__(self) -> None:
        super().__init__()
        self._view = LinesView()
        self._next: asyncio.TimerHandle | None = None

    def compose(self) -> ComposeResult:
        yield self._view

    def paint(self) -> None:
        raise NotImplementedError

    @property
    def has_room(self) -> bool:
        """Whether it is looked at, in a size that is known."""
        return self.is_current and all(self._view.size)

    @property
    def painter(self) -> FastPaint:
        app = self.app
        assert isinstance(app, FastPaint)
        return app

    def paint_in(self, seconds: float) -> None:
        """Draw it then, and not when it was last said."""
        self._stop()
        loop = asyncio.get_running_loop()
        self._next = loop.call_later(seconds, lambda: self.call_later(self.paint))

    def on_key(self, event: events.Key) -> None:
        """Do what the key of an action means, in the order they were typed; keys of the app go on to it.

        Bindings would be looked up later: the first key of a burst would come too late to change the meaning
        of the others.
        """
        for action in self.shown_actions:
            if event.key in action.key.split(","):
                self.press(action.id)
                event.stop()
                event.prevent_default()

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
