"""The Run screen: one picture, keys for its model, and threads that do what the model asks for."""

from __future__ import annotations

from collections.abc import Callable
from datetime import datetime
from time import monotonic_ns

from textual import events

from gputui.tui.screens.run.actions import ACTIONS, BY_KEY
from gputui.tui.screens.run.background_tasks import BackgroundTasks, DemoTasks
from gputui.tui.screens.run.model import RunModel
from gputui.tui.screens.run.pictures import heading, picture
from gputui.tui.screens.run.requests import (
    AskHosts,
    CheckDraft,
    Copy,
    FollowHosts,
    Leave,
    OpenScreen,
    Request,
    Start,
    StartHosts,
    Stop,
    StopHosts,
    Unwatch,
    Watch,
)
from gputui.tui.shell.clipboard import copy
from gputui.tui.shell.registry import header_line
from gputui.tui.terminal.lines import Line
from gputui.tui.terminal.renderer import PaintedScreen
from gputui.tui.widgets.app_context import Shell, in_loop_of, shell_of
from gputui.tui.widgets.plain_ascii import in_ascii, wants_ascii

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

    def __init__(self, *, ascii_only: bool | None = None) -> None:
        super().__init__()
        self.model = RunModel()
        self._ascii_only = ascii_only
        self._tasks = BackgroundTasks(self._tell)

    def on_mount(self) -> None:
        """Begin to look around."""
        if isinstance(self.app, Shell) and self.app.demo is not None:
            self._tasks = DemoTasks(self._tell)
        self._tasks.open()
        self._view.show(self._picture(*self.app.size))

    def on_unmount(self) -> None:
        """Nothing is followed any more; a run goes on."""
        self._tasks.close()

    def show_words(self, words: tuple[str, ...]) -> None:
        """Open the form of a profile."""
        self.model.show_profile(words[0])
        self._done()

    def on_screen_resume(self) -> None:
        """It is looked at again: a run in progress is watched at once."""
        self.model.opened()
        self.call_next(self._ask)

    def on_key(self, event: events.Key) -> None:
        """Letters while text is typed, else the keys of the table."""
        model = self.model
        if model.is_typing and event.is_printable and event.character is not None:
            model.type(event.character)
        elif not (model.edit(event.key) or self._press(event.key)):
            return
        event.stop()
        event.prevent_default()
        self._done()

    def on_paste(self, event: events.Paste) -> None:
        """Text from elsewhere is text, or nothing."""
        event.stop()
        self.model.type(event.text)
        self._done()

    def press(self, action_id: str) -> None:
        self.model.press(action_id)
        self._done()

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

    def _tell(self, change: Callable[[RunModel], None]) -> None:
        """Called in threads."""
        in_loop_of(self, self._learn, change)

    def _learn(self, change: Callable[[RunModel], None]) -> None:
        change(self.model)
        self._done()

    def _picture(self, width: int, height: int) -> tuple[Line, ...]:
        app = self.app
        head = (
            (header_line("run", heading(self.model), width, is_demo=isinstance(self._tasks, DemoTasks)),)
            if isinstance(app, Shell)
            else ()
        )
        of_app = bool(getattr(app, "ascii_only", False)) or wants_ascii()
        ascii_only = of_app if self._ascii_only is None else self._ascii_only
        progress = self.model.progress
        ends = "" if progress is None else progress.ends_at(datetime.now())
        body = picture(
            self.model, width, height - len(head), monotonic_ns(), ends=ends, ascii_only=ascii_only
        )
        return (*(in_ascii(line) if ascii_only else line for line in head), *body)

    def _press(self, key: str) -> bool:
        action_id = BY_KEY.get(key)
        return action_id is not None and self.model.press(action_id)

    def _done(self) -> None:
        self._ask()
        self.paint()

    def _ask(self) -> None:
        for request in self.model.take_requests():
            self._do(request)

    def _do(self, request: Request) -> None:
        match request:
            case CheckDraft():
                self._tasks.check(request)
            case Start():
                self._tasks.start(request)
            case AskHosts():
                self._tasks.ask_hosts(request)
            case StartHosts():
                self._tasks.start_hosts()
            case FollowHosts():
                self._tasks.follow_hosts(request.name)
            case StopHosts():
                self._tasks.stop_hosts()
            case Watch():
                self._tasks.watch(request.run_id)
            case Unwatch():
                self._tasks.unwatch()
            case Stop():
                self._tasks.stop(request)
            case Copy():
                self.model.say(copy(self.app, request.text))
            case OpenScreen():
                shell_of(self).open_screen(request.screen_id, request.words)
            case Leave():
                self.call_next(self.app.run_action, "quit")


SCREEN = RunScreen
