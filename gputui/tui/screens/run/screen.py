"""The Run screen: one picture, keys for its model, and threads that do what the model asks for."""

from __future__ import annotations

from collections.abc import Callable
from datetime import datetime
from time import monotonic_ns

from textual import events

from gputui.document.spans import Line
from gputui.tui.screens.run.background_tasks import BackgroundTasks, DemoTasks
from gputui.tui.screens.run.form import ACTIONS, BY_KEY
from gputui.tui.screens.run.model import RunModel
from gputui.tui.screens.run.pictures import heading, picture
from gputui.tui.shell.registry import header_line
from gputui.tui.terminal.renderer import PaintedScreen
from gputui.tui.widgets.app_context import Shell, copy, in_loop_of, shell_of
from gputui.tui.widgets.cells import in_ascii

PAINT_EVERY_S = 1.0
"""While a run is watched: its clock moves."""


class RunScreen(PaintedScreen, inherit_bindings=False):
    """Choose what to measure, start it, watch it, leave it and come back.

    Keys that have no meaning here go on to the app, but while text is typed.
    """

    ID = "run"
    ACTIONS = ACTIONS
    shown_actions = ACTIONS
    """What help shows."""

    def __init__(self) -> None:
        super().__init__()
        self._tasks = BackgroundTasks(self._tell)
        self.model = RunModel(self._tasks, self._copy_text, self._open_screen, self._leave)

    def on_mount(self) -> None:
        """Begin to look around."""
        if isinstance(self.app, Shell) and self.app.demo is not None:
            self.model.tasks = self._tasks = DemoTasks(self._tell)
        self._tasks.open()
        self._view.show(self._picture(*self.app.size))

    def on_unmount(self) -> None:
        """Nothing is followed any more; a run goes on."""
        self._tasks.close()

    def show_words(self, words: tuple[str, ...]) -> None:
        """Open the form of a profile."""
        self.model.show_profile(words[0])
        self.paint()

    def on_screen_resume(self) -> None:
        """It is looked at again: a run in progress is watched at once."""
        self.model.opened()

    def on_key(self, event: events.Key) -> None:
        """Letters while text is typed, else the keys of the table."""
        model = self.model
        if model.is_typing and event.is_printable and event.character is not None:
            model.type(event.character)
        elif not (model.edit(event.key) or model.press(BY_KEY.get(event.key, ""))):
            return
        event.stop()
        event.prevent_default()
        self.paint()

    def on_paste(self, event: events.Paste) -> None:
        """Text from elsewhere is text, or nothing."""
        event.stop()
        self.model.type(event.text)
        self.paint()

    def press(self, action_id: str) -> None:
        self.model.press(action_id)
        self.paint()

    def say(self, text: str, style: str = "") -> None:
        """One sentence, until the next key."""
        self.model.say(text, style)
        self.paint()

    def paint(self) -> None:
        """Draw the picture as it is now."""
        if not self.has_room:
            return
        self.painter.paint_lines(self._view, self._picture(*self._view.size))
        if self.model.view == "watch":
            self.paint_in(PAINT_EVERY_S)

    def _copy_text(self, text: str) -> None:
        """Put a text where it can be pasted from, and say where that is."""
        self.model.say(copy(self.app, text))

    def _open_screen(self, screen_id: str, words: tuple[str, ...]) -> None:
        shell_of(self).open_screen(screen_id, words)

    def _leave(self) -> None:
        self.call_next(self.app.run_action, "quit")

    def _tell(self, change: Callable[[RunModel], None]) -> None:
        """Called in threads."""
        in_loop_of(self, self._learn, change)

    def _learn(self, change: Callable[[RunModel], None]) -> None:
        change(self.model)
        self.paint()

    def _picture(self, width: int, height: int) -> tuple[Line, ...]:
        app, progress = self.app, self.model.progress
        head: tuple[Line, ...] = ()
        if isinstance(app, Shell):
            head = (header_line("run", heading(self.model), width, is_demo=app.demo is not None),)
        ends = "" if progress is None else progress.ends_at(datetime.now())
        lines = (*head, *picture(self.model, width, height - len(head), monotonic_ns(), ends=ends))
        return tuple(map(in_ascii, lines)) if shell_of(self).ascii_only else lines


SCREEN = RunScreen
