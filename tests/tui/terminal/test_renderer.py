"""The terminal shows what the widgets hold: after updates, dropped frames, resizes and modals."""

from __future__ import annotations

import asyncio
import contextlib
import inspect
from collections.abc import AsyncIterator, Callable
from time import monotonic

import pytest
from emulator import Emulator, as_textual_writes
from palettes import TRUE
from rich.style import Style
from textual import events
from textual._context import visible_screen_stack
from textual.app import ComposeResult
from textual.geometry import Size
from textual.screen import ModalScreen
from textual.widget import Widget
from textual.widgets import Static

from gputui.document.spans import Line, Span
from gputui.tui.terminal.cell_diff import width_of
from gputui.tui.terminal.driver import CURSOR_QUERY, QuietDriver
from gputui.tui.terminal.renderer import FastPaint, LinesView
from gputui.tui.widgets.cells import noted

DEADLINE_S = 300.0
both_ways = pytest.mark.parametrize("is_direct", [False, True], ids=["composed", "direct"])


class PaperDriver(QuietDriver):
    """Writes to an emulator in this process; answers when the test says so."""

    def start_application_mode(self) -> None:
        self.written: list[str] = []
        width, height = self._size or (80, 24)
        self.emulator = Emulator(width, height)

    def write(self, data: str) -> None:
        self.written.append(data)
        self.emulator.feed(data.replace(CURSOR_QUERY, ""))

    def disable_input(self) -> None:
        pass

    def stop_application_mode(self) -> None:
        pass

    def close(self) -> None:
        pass


class Pictures(FastPaint):
    """One view, and a hook after each display; with `is_direct` its rows bypass Textual's compositor."""

    def __init__(self, is_direct: bool = False) -> None:
        super().__init__(TRUE)
        self.is_direct = is_direct
        self.driver_class = PaperDriver
        self.view = LinesView()
        self.displayed = asyncio.Event()

    def compose(self) -> ComposeResult:
        yield self.view

    def post_display_hook(self) -> None:
        self.displayed.set()

    @property
    def paper(self) -> PaperDriver:
        assert isinstance(self._driver, PaperDriver)
        return self._driver

    def show(self, lines: tuple[Line, ...]) -> None:
        if self.is_direct:
            self.paint_lines(self.view, lines)
        else:
            self.view.show(lines)
            self.paint_now(self.view)

    def answer(self) -> None:
        self.on_cursor_position(events.CursorPosition(0, 0))

    def is_exact(self) -> bool:
        visible_screen_stack.set(self._background_screens)
        strips = self.screen._compositor.render_strips()
        expected = as_textual_writes([[(0, strip)] for strip in strips], self.size.width)
        return self.paper.emulator.cells() == expected.cells()

    def shows(self, text: str) -> bool:
        """Whether the terminal shows a text, after answering all output."""
        self.answer()
        return any(text in line for line in self.paper.emulator.screen.display)

    async def until(self, is_so: Callable[[], bool]) -> None:
        async with asyncio.timeout(DEADLINE_S):
            while not is_so():
                self.displayed.clear()
                await self.displayed.wait()


@contextlib.asynccontextmanager
async def running(is_direct: bool = False, width: int = 60, height: int = 12) -> AsyncIterator[Pictures]:
    app = Pictures(is_direct)
    task = asyncio.ensure_future(app.run_async(size=(width, height)))
    await app.until(lambda: app._driver is not None and bool(app.paper.written))
    with app._context():
        app.answer()
        await app.until(lambda: app.view.size == (width, height))
        yield app
    app.exit()
    await task


def moving(n: int, width: int = 60, height: int = 12) -> tuple[Line, ...]:
    texts = ("power", "温度", "é", "memory 12 GiB", "█" * (n % 20), "⣿⣷", "名前 x", " " * (n % 30))
    return tuple(
        (
            Span(texts[(n + y) % 8], ("title", "chart", "alarm", "dim")[(n + y) % 4]),
            Span(f" {n * y % 1000}", "selected" if n % height == y else ""),
            Span(" " * (width // 3)),
        )
        for y in range(height)
    )


@both_ways
async def test_every_update_is_shown_exactly_and_nothing_changed_is_nothing_written(is_direct: bool) -> None:
    async with running(is_direct) as app:
        for n in range(20):
            app.show(moving(n))
            app.answer()
            assert app.is_exact()
        written = len(app.paper.written)
        app.show(moving(19))
        app.view.refresh()
        app.refresh(layout=True)
        app.displayed.clear()
        await app.displayed.wait()
        assert len(app.paper.written) == written
        app.paper.emulator.feed("\x1b[2;2Hwall: the system goes down")
        assert not app.is_exact()
        app.repaint()
        assert app.is_exact()


@both_ways
async def test_while_a_frame_is_in_flight_nothing_is_written_and_then_one_frame_shows_all(
    is_direct: bool,
) -> None:
    async with running(is_direct) as app:
        app.show(moving(0))
        written = len(app.paper.written)
        app.show(moving(1))
        app.show(moving(0))
        app.answer()
        assert len(app.paper.written) == written, "what was undone is never written"
        assert app.is_exact()
        app.show(moving(9))
        written = len(app.paper.written)
        for n in range(1, 9):
            app.show(moving(n))
        assert len(app.paper.written) == written
        assert not app.is_exact()
        app.answer()
        assert len(app.paper.written) == written + 1
        assert app.is_exact()


@both_ways
async def test_what_was_dropped_is_shown_with_the_next_change_of_another_line(is_direct: bool) -> None:
    async with running(is_direct) as app:
        first = moving(0)
        app.show(first)
        app.show(((Span("dropped"),), *first[1:]))
        app._gate.answered(monotonic())  # and nobody has caught up yet
        app.show(((Span("dropped"),), *first[1:-1], (Span("another line"),)))
        assert app.paper.emulator.screen.display[0].startswith("dropped")
        assert app.is_exact()


@both_ways
async def test_after_a_resize_the_whole_picture_is_right(is_direct: bool) -> None:
    async with running(is_direct) as app:
        for width, height in ((40, 8), (61, 20), (60, 12)):
            app.show(moving(width))
            app.answer()
            app.paper.emulator.screen.resize(height, width)
            app.post_message(events.Resize(Size(width, height), Size(width, height)))
            await app.until(lambda size=(width, height): app.view.size == size)  # type: ignore[misc]
            app.show(moving(3, width, height))
            app.answer()
            app.answer()
            assert app.is_exact()


class Question(ModalScreen[None]):
    """A stock widget over the view; its edge cuts wide characters."""

    DEFAULT_CSS = (
        "Question { align: center middle; } Question Static { width: 21; height: 3; background: blue; }"
    )

    def compose(self) -> ComposeResult:
        yield Static("End process 温度 12?")


@both_ways
async def test_another_screen_over_the_view_and_away_again_is_shown_exactly(is_direct: bool) -> None:
    async with running(is_direct) as app:
        wide: tuple[Line, ...] = tuple((Span("温度" * 15, "accent"),) for _ in range(12))
        app.show(wide)
        app.answer()
        await app.push_screen(Question())
        await app.until(lambda: app.shows("End process"))
        app.answer()
        assert app.is_exact()
        await app.pop_screen()
        await app.until(lambda: not app.shows("End process"))
        app.answer()
        assert app.is_exact()


async def test_rows_written_past_textual_are_known_to_it_when_it_draws_next() -> None:
    async with running(is_direct=True) as app:
        for n in range(6):
            app.show(moving(n))
            app.answer()
            app.view.refresh()
            app.paint_now(app.view)
            app.answer()
            assert app.is_exact()


async def test_only_changed_lines_are_drawn_again_in_the_styles_of_the_theme() -> None:
    async with running() as app:
        first = moving(0)
        app.show(first)
        before = [app.view.render_line(y) for y in range(12)]
        hot = (Span("hot", "alarm"), Span(" "), Span("unknown", "no such style"))
        app.view.show((*first[:5], hot, *first[6:]))
        after = [app.view.render_line(y) for y in range(12)]
        assert [y for y in range(12) if before[y] is not after[y]] == [5]
        segments = list(after[5])
        assert segments[0].style == Style.parse("bold #ff5f5f")
        assert segments[2].style == Style()


@pytest.mark.parametrize("width", [10, 12, 20])
def test_a_note_covers_the_right_end_of_a_line_and_cuts_no_wide_character(width: int) -> None:
    line = noted((Span("ab"), Span("温度温度", "accent"), Span("c")), " note ", width, "warn")
    assert sum(width_of(span.text) for span in line) == width
    assert line[-1] == Span(" note ", "warn")


def test_what_is_used_of_the_inside_of_textual_is_there() -> None:
    """Where this fails, check the new Textual against renderer.py and driver.py."""
    from textual._compositor import ChopsUpdate, Compositor, LayoutUpdate
    from textual._parser import Parser
    from textual.app import App
    from textual.driver import Driver
    from textual.drivers._writer_thread import WriterThread
    from textual.drivers.linux_driver import LinuxDriver
    from textual.screen import Screen

    def parameters(function: Callable[..., object]) -> list[str]:
        return list(inspect.signature(function).parameters)

    assert parameters(App._display) == ["self", "screen", "renderable"]
    assert parameters(LayoutUpdate) == ["strips", "region"]
    assert parameters(ChopsUpdate) == ["chops", "spans", "chop_ends"]
    assert parameters(Compositor.render_update)[:3] == ["self", "full", "screen_stack"]
    assert parameters(Compositor.update_widgets) == ["self", "widgets"]
    assert parameters(Screen._compositor_refresh) == ["self"]
    assert parameters(LinuxDriver.run_input_thread) == ["self"]
    assert parameters(Driver.process_message) == ["self", "message"]
    assert parameters(WriterThread)[:1] == ["file"]
    assert "_timeout_time" in inspect.getsource(Parser.__init__)
    assert "_writer_thread = WriterThread(self._file)" in inspect.getsource(
        LinuxDriver.start_application_mode
    )
    assert parameters(Widget.render_lines) == ["self", "crop"]
