"""The base of all screens but the Monitor: a header with the screens, a line for messages, and the keys; and
what they ask on top of themselves.
"""

from __future__ import annotations

import base64
import os
import traceback
from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Any, TypeVar

from textual import events
from textual.app import App, ComposeResult
from textual.binding import Binding, BindingType
from textual.containers import Vertical
from textual.screen import ModalScreen
from textual.widget import Widget
from textual.widgets import ContentSwitcher, Input, Static

from gputui.document.spans import Line, Span, cut
from gputui.errors import GputuiError, clean_text
from gputui.model.units import counted
from gputui.services.support.background import Job
from gputui.services.support.paths import copies_directory, make_directory
from gputui.store.opening import expanded
from gputui.tui.shell.registry import Action, header_line, key_hint, keys_line, screen_at, shown_key
from gputui.tui.terminal.renderer import AppScreen, LinesView, in_loop_of, shell_of
from gputui.tui.widgets.cells import fitted, in_ascii, text_in_ascii
from gputui.tui.widgets.scrolled import LinesList, LinesPage, ScrolledLines

T = TypeVar("T")
Failed = Callable[[str, str], None] | None
"""Takes the message and the hint of an error; None says them as a warning."""


class Field(Input):
    """A line to type in, without a frame; its cursor shows in every palette."""

    DEFAULT_CSS = """
    Field, Field:focus { border: none; height: 1; padding: 0; background: ansi_default; }
    Field > .input--selection { text-style: $block-cursor-text-style; }
    Field:ansi > .input--cursor { background: ansi_default; color: ansi_default; }
    """

    def __init__(self, value: str = "", placeholder: str = "", *, id: str | None = None) -> None:
        super().__init__(value, placeholder, id=id)
        self.cursor_blink = False


class Framed(ModalScreen[T | None]):
    """A frame on top of a screen."""

    # The outer box is blank beside the frame: words of the screen below would touch it.
    DEFAULT_CSS = """
    Framed { align: center middle; background: ansi_default; }
    Framed > Vertical { width: 80; max-width: 100%; height: auto; padding: 0 2; background: ansi_default; }
    Framed > Vertical > Vertical { height: auto; padding: 0 1; background: ansi_default; }
    """

    def compose(self) -> ComposeResult:
        with Vertical(), Vertical() as box:
            box.styles.border = ("ascii" if shell_of(self).ascii_only else "solid", "ansi_default")
            yield from self.compose_inside()

    def compose_inside(self) -> ComposeResult:
        raise NotImplementedError


class Dialog(Framed[T]):
    """A question above what a subclass asks with; None after esc."""

    BINDINGS = [Binding("escape", "dismiss", "Back", show=False)]  # noqa: RUF012 - Textual declares it so
    KEYS = ""
    """What is said of its keys below."""

    def __init__(self, question: str) -> None:
        super().__init__()
        self._question = clean_text(question)

    def compose_inside(self) -> ComposeResult:
        question = text_in_ascii(self._question) if shell_of(self).ascii_only else self._question
        yield Static(question, markup=False)
        yield from self.compose_body()
        yield Static(self.KEYS, markup=False)

    def compose_body(self) -> ComposeResult:
        yield from ()


class AskText(Dialog[str]):
    KEYS = "enter takes it, esc leaves everything as it is"

    def __init__(self, question: str, value: str = "") -> None:
        super().__init__(question)
        self._value = clean_text(value)

    def compose_body(self) -> ComposeResult:
        yield Field(self._value)

    def on_mount(self) -> None:
        self.query_one(Field).focus()

    def on_input_submitted(self, event: Input.Submitted) -> None:
        self.dismiss(event.value.strip())


class Confirm(Dialog[bool]):
    """Asks before an irreversible action; only `y` confirms."""

    BINDINGS = [  # noqa: RUF012 - Textual declares it so
        Binding("y", "dismiss(True)", "Yes", show=False),
        Binding("n,q,enter", "dismiss", "No", show=False),
    ]
    KEYS = "y yes    n no"


_NARROW = 80
"""Below this width the key to go back always has room, before the others."""


def bindings_of(actions: Iterable[Action]) -> list[BindingType]:
    """Textual's bindings for the actions of a screen, each of which its `action_press` does."""
    return [
        Binding(action.key, f"press({action.id!r})", action.title, show=False, tooltip=action.tooltip)
        for action in actions
    ]


class _Header(LinesView):
    """The first line; a click on the name of a screen opens it."""

    def on_click(self, event: events.Click) -> None:
        if found := screen_at(event.x, self.size.width):
            shell_of(self).open_screen(found)


class ShellScreen(AppScreen):
    """A header, a body that the subclass composes, a line for messages, and the keys that apply.

    Slow work is done in threads, one job at a time: it says how far that is, and what went wrong.

    What a key of ACTIONS does is a method `action_ID`, of a pane of the body where it means something only
    there, else of the screen.
    """

    DEFAULT_CSS = """
    ShellScreen { layers: base; background: ansi_default; overflow: hidden; }
    ShellScreen.-ascii Underline { display: none; }
    ShellScreen > .shell-line { height: 1; width: 100%; }
    ShellScreen Underline:ansi > .underline--bar { color: $accent; background: $border-blurred; }
    ShellScreen Tabs Tab:ansi.-active {
        text-style: $block-cursor-text-style;
        color: $block-cursor-foreground;
        background: $block-cursor-background;
    }
    """
    ID = ""
    ACTIONS: tuple[Action, ...] = ()

    def __init__(self) -> None:
        super().__init__()
        self._job: Job[Any] | None = None
        self._is_quiet = False
        self.shown_actions = self.ACTIONS
        self._header, self._message_view, self._hints = _Header(), LinesView(), LinesView()
        self._message: Line = ()
        self.is_ready = False
        """Whether its widgets are mounted."""
        self._words: tuple[str, ...] = ()
        """What it was asked to show, as on the command line."""

    def compose(self) -> ComposeResult:
        for view in (self._header, self._message_view, self._hints):
            view.add_class("shell-line")
        self.set_class(shell_of(self).ascii_only, "-ascii")
        yield self._header
        yield from self.compose_body()
        yield self._message_view
        yield self._hints

    def compose_body(self) -> ComposeResult:
        raise NotImplementedError

    def on_mount(self) -> None:
        self.is_ready = True
        self.begin_with(self._words)

    def show_words(self, words: tuple[str, ...]) -> None:
        """Show what words on the command line would, as soon as there are widgets."""
        self._words = words
        if self.is_ready:
            self.begin_with(words)

    def begin_with(self, words: tuple[str, ...]) -> None:
        """Show this; where nothing was asked for, what the screen shows by itself."""
        raise NotImplementedError

    def on_resize(self) -> None:
        self.call_after_refresh(self.refresh_lines)

    def on_screen_resume(self) -> None:
        self.refresh_lines()

    def heading(self) -> str:
        return ""

    def hints(self) -> tuple[str, ...]:
        """The ids of the actions to show, the most useful first."""
        return tuple(action.id for action in self.ACTIONS)

    def refresh_lines(self) -> None:
        if not self.is_ready:
            return
        width, shell = self.size.width, shell_of(self)
        runs = 0 if self.ID == "run" else shell.runs_in_progress  # which that screen itself shows
        header = header_line(self.ID, self.heading(), width, runs, is_demo=shell.demo is not None)
        show_in(self._header, header)
        show_in(self._message_view, fitted(self._message, width))
        show_in(self._hints, hints_line(self.ACTIONS, self.hints(), width))

    def say(self, text: str, style: str = "") -> None:
        self._message = (Span(cut(clean_text(text), 1000), style),) if text else ()
        self.refresh_lines()

    @property
    def level(self) -> str:
        """Which of several bodies in a switcher `#level` is shown."""
        return str(self.query_one("#level", ContentSwitcher).current)

    def show_level(self, name: str) -> None:
        """Show one of them; its first list or page gets the keys."""
        switcher = self.query_one("#level", ContentSwitcher)
        switcher.current = name
        next(iter(switcher.get_child_by_id(name).walk_children(ScrolledLines, with_self=True))).focus()
        self.refresh_lines()

    def begin(
        self,
        work: Callable[[Job[T]], T],
        then: Callable[[T], None],
        failed: Failed = None,
        *,
        writes: bool = False,
        is_quiet: bool = False,
    ) -> None:
        """Start a job in the background, cancelling the current one.

        `then` gets the result. A job that `writes` gets time to end when the app exits. A quiet one shows no
        progress and leaves messages alone.
        """
        self.give_up()
        self._is_quiet = is_quiet

        def with_files(job: Job[T]) -> T:
            if (demo := shell_of(self).demo) is not None:
                demo.write(job.say)
            return work(job)

        arrived = partial(in_loop_of, self, self._take_outcome, then, failed)
        told = partial(in_loop_of, self, self._take_progress)
        self._job = Job(with_files, arrived, told, writes=writes)
        self._job.start()
        self.refresh_lines()

    @property
    def is_busy(self) -> bool:
        return self._job is not None

    def give_up_quietly(self) -> None:
        """Cancel the job if it is one that nobody waits for."""
        if self._is_quiet:
            self.give_up()

    def give_up(self) -> bool:
        """Cancel the job; False if there was none."""
        if self._job is None:
            return False
        self._job.cancel()
        self._job = None
        return True

    def on_unmount(self) -> None:
        self.give_up()

    def say_error(self, error: Exception, say: Failed = None) -> None:
        """Also to the log, which has the traceback of what is a bug; `say` gets message and hint."""
        message, hint = f"this is a bug in gputui: {type(error).__name__}: {error}", ""
        logged = "".join(traceback.format_exception(error)).rstrip()
        if isinstance(error, GputuiError):
            message, hint = error.message, error.hint
            logged = sentence(message, hint)
        shell_of(self).keep_error(self.ID, logged)
        if say is None:
            self.say(sentence(message, hint), "warn")
        else:
            say(message, hint)

    def _take_progress(self, job: Job[Any], text: str) -> None:
        """Show the progress of the current job; cancelled jobs are ignored."""
        if job is self._job and not self._is_quiet:
            self.say(f"{text} ... (esc cancels)", "dim")

    def _take_outcome(
        self, then: Callable[[Any], None], failed: Failed, job: Job[Any], outcome: object
    ) -> None:
        """Hand over the result of the current job; cancelled jobs are ignored."""
        if job is not self._job:
            return
        self._job = None
        if not self._is_quiet:
            self.say("")
        if isinstance(outcome, Exception):
            self.say_error(outcome, failed)
        else:
            then(outcome)
        self.refresh_lines()

    def ask(self, question: Dialog[T], then: Callable[[T], None]) -> None:
        """Ask on top of the screen; `then` gets the answer, if there is one."""

        def answered(answer: T | None) -> None:
            if answer is not None:
                then(answer)

        self.app.push_screen(question, answered)

    def check_action(self, action: str, parameters: tuple[object, ...]) -> bool | None:
        """A key that is typed before the widgets are there does nothing; nor does one that asks for a file in
        the demo, which shows its own only."""
        asks_for_file = not {"open-path", "open-files"}.isdisjoint(parameters)
        is_demo = shell_of(self).demo is not None
        return self.is_ready and not (asks_for_file and is_demo) and super().check_action(action, parameters)

    def press(self, action_id: str) -> None:
        """Run one of its actions, as its key does."""
        self.call_later(self.run_action, f"press({action_id!r})")

    async def action_press(self, action_id: str) -> None:
        """Have an action done by the innermost of what has the keys that knows it, at last by the screen."""
        action = next(action for action in self.ACTIONS if action.id == action_id)
        does = action.does or action_id.replace("-", "_")
        for node in (self.focused or self).ancestors_with_self:
            if await self.app.run_action(does, node) or node is self:
                return

    def action_copy(self) -> None:
        text = self.focused.text if isinstance(self.focused, LinesList | LinesPage) else ""
        if text:
            self.say(copy(self.app, text), "good")

    def action_step(self, lines: int) -> None:
        if isinstance(self.focused, LinesList | LinesPage):
            self.focused.step(lines)


def screen_of(pane: Widget) -> ShellScreen:
    assert isinstance(pane.screen, ShellScreen)
    return pane.screen


def show_in(view: LinesView, *lines: Line) -> None:
    """Show these lines, in ASCII if the terminal has nothing else."""
    view.show(tuple(map(in_ascii, lines)) if shell_of(view).ascii_only else lines)


def hints_line(actions: Iterable[Action], names: Iterable[str], width: int) -> Line:
    """The keys of these actions by their ids, those that fit, and that of the help."""
    hints = {action.id: key_hint(shown_key(action), action.title) for action in actions}
    end: Line = (Span("?", "accent"), Span(" Help", "dim"))
    shown = list(names)
    if width < _NARROW and "back" in shown:
        shown.remove("back")
        end = (*hints["back"], *end)
    return keys_line((hints[name] for name in shown), width, end)


def sentence(message: str, hint: str) -> str:
    return f"{message}: {hint}" if hint else message


def ask_and_save(screen: ShellScreen, question: str, name: str, save: Callable[[Path], str]) -> None:
    """Ask for a path, defaulting to `name` in the working directory; confirm before replacing a file.

    `save` writes the file in a thread and returns a message; the screen shows the errors it raises.
    """

    def write(path: Path) -> None:
        screen.begin(lambda job: save(path), lambda message: screen.say(message, "good"))

    def named(text: str) -> None:
        path = expanded(Path(text)).absolute()
        if path.is_file():
            screen.ask(Confirm(f"{path} is already there. Replace it?"), lambda is_yes: write(path))
        elif text:
            write(path)

    screen.ask(AskText(question, name), named)


LONGEST_OSC = 74_994
"""Base64 characters that xterm accepts; https://invisible-island.net/xterm/ctlseqs/ctlseqs.html, OSC 52."""
_TERMINALS = ("xterm-kitty", "xterm-ghostty", "foot", "alacritty", "wezterm", "tmux", "screen")
_PROGRAMS = ("WezTerm", "iTerm.app", "ghostty", "vscode", "WarpTerminal")


def has_osc_52(environment: Mapping[str, str]) -> bool:
    """Whether this terminal is known to support OSC 52; one that calls itself xterm is not known."""
    term = environment.get("TERM", "")
    return (
        term.startswith(_TERMINALS)
        or environment.get("TERM_PROGRAM", "") in _PROGRAMS
        or bool(environment.get("WT_SESSION") or environment.get("KITTY_WINDOW_ID"))
    )


def osc_52(text: str) -> str:
    """The sequence that puts a text on the terminal's clipboard; tmux passes it on."""
    return f"\x1b]52;c;{base64.b64encode(text.encode('utf-8', 'replace')).decode()}\x07"


def copy(app: App[Any], text: str) -> str:
    """Copy a text; returns a message with its destination.

    Terminals never acknowledge OSC 52, so the file is written unless the terminal is known to support it.
    """
    environment = os.environ
    driver = app._driver
    sent = False
    if driver is not None and len(text) * 4 // 3 < LONGEST_OSC:
        with suppress(OSError):
            driver.write(osc_52(text))
            sent = has_osc_52(environment)
    if sent:
        return f"copied {counted(text.count(chr(10)) + 1, 'line')}"
    path = copies_directory() / "copied.txt"
    try:
        make_directory(path.parent)
        path.write_text(text + "\n", encoding="utf-8", errors="replace")
    except OSError as error:
        return f"could not be copied: {path}: {error.strerror}"
    return f"copied, if this terminal has a clipboard; also in {path}"
