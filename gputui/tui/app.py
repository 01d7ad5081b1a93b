"""The app: its screens, what they share, and how it ends."""

from __future__ import annotations

import asyncio
import threading
import traceback
from collections.abc import Callable, Iterable, Iterator
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar

from textual.binding import Binding
from textual.screen import Screen
from textual.theme import Theme

from gputui.document.theme import SIXTEEN, THEMES, Palette, definition
from gputui.errors import EXIT_HUNG_UP, EXIT_INTERRUPTED
from gputui.services.runs.alerts import Groups, notification, watch_alerts, watch_runs
from gputui.services.support.paths import default_result_file, error_log, keep_error
from gputui.tui.monitor.frame import short_name
from gputui.tui.monitor.model import MonitorModel
from gputui.tui.monitor.screen import Feed, MonitorScreen
from gputui.tui.monitor.status import Asked
from gputui.tui.shell.registry import (
    APP_ACTIONS,
    SCREENS_ACTIONS,
    Action,
    ScreenEntry,
    load_screen,
    screens_line,
)
from gputui.tui.terminal.cell_diff import CellDiff
from gputui.tui.terminal.driver import TerminalClosed
from gputui.tui.terminal.renderer import AppScreen, FastPaint, in_loop_of
from gputui.tui.terminal.splash import end_by_signal

if TYPE_CHECKING:
    from gputui.services.playback.demo import Demo
    from gputui.tui.shell.on_top import Choice


T = TypeVar("T")
_NOT_IN_PALETTE = ("interrupt", "palette")
_ALWAYS = ("ctrl+c", "ctrl+z")
"""Keys that no widget may handle."""


class MonitorApp(FastPaint):
    """The Monitor and the other screens, ended by `q`, Ctrl-C, an ending signal or a lost terminal.

    Start it with `run_until_ended`.
    """

    ENABLE_COMMAND_PALETTE = False
    BINDINGS = [  # noqa: RUF012 - Textual declares it so
        Binding(action.key, action.id, action.title, show=False, priority=action.key in _ALWAYS)
        for action in APP_ACTIONS
    ]

    def __init__(
        self,
        model: MonitorModel,
        feed: Feed,
        on_request: Callable[[Asked], None] = lambda request: None,
        palette: Palette | None = None,
        screens: Iterable[ScreenEntry] = (),
        ascii_only: bool = False,
        shown: CellDiff | None = None,
        first: AppScreen | None = None,
    ) -> None:
        """`shown` is what the terminal already shows, in this palette; `first` stands below all screens, else
        the monitor."""
        super().__init__(palette, shown)
        self.ascii_only = ascii_only
        self.demo: Demo | None = None
        """What screens show instead of what this machine is and keeps; None outside of the demo."""
        self._entries = {entry.id: entry for entry in screens}
        self._opened: dict[str, AppScreen] = {}
        self.runs_in_progress = 0
        """As of the last check, a few seconds ago at most."""
        self._has_ended = threading.Event()
        self.opens_first: tuple[str, tuple[str, ...]] | None = None
        """The first screen and its arguments; None for the monitor."""
        self.notifies = False
        """Whether the terminal notifies of events in runs; set before the app runs."""
        self.invites = False
        """Whether the monitor shows what a newcomer asks while there is no result file."""
        self.chose_notifies: bool | None = None
        """The user's choice, None if there was none."""
        self.used: list[str] = []
        """What was chosen in the palette, the last first; 20 at most."""
        self._end_alerts: Callable[[], None] | None = None
        self._hook_before = threading.excepthook
        for action in SCREENS_ACTIONS if self._entries else ():
            self._bindings.bind(  # at once: what is typed right behind the palette's key goes to the palette
                action.key, action.id, action.title, show=False, priority=action.id == "palette"
            )
        for entry in self._entries.values():
            self.bind(entry.key, f"open_screen({entry.id!r})", description=entry.title, show=False)
        self._disable_tooltips = self._disable_notifications = True  # two widgets fewer to lay out
        self._model = model
        self._monitor = MonitorScreen(model, feed, on_request)
        self._first = first or self._monitor
        self._feed = feed

    def run_until_ended(self, *, mouse: bool = True) -> int:
        """Run until the end; returns the exit status. Errors inside are raised after restoring the
        terminal."""
        status = self.run(mouse=mouse)
        if self._exception is not None:
            raise self._exception
        return 0 if status is None else status

    def get_default_screen(self) -> Screen[object]:
        return self._first  # type: ignore[return-value]

    def on_load(self) -> None:
        """Handle ending signals, before the app takes the terminal."""
        end_by_signal(asyncio.get_running_loop(), self.exit)
        self._hook_before, threading.excepthook = threading.excepthook, self._thread_failed

    def on_unmount(self) -> None:
        """Stop sampling, without waiting for anything that may hang."""
        super().on_unmount()
        threading.excepthook = self._hook_before
        self._feed.close()
        self._has_ended.set()
        if self._end_alerts is not None:
            self._end_alerts()

    def on_terminal_closed(self, _: TerminalClosed) -> None:
        self.exit(EXIT_HUNG_UP)

    def on_mount(self) -> None:
        """Open the screen that was asked for before anything is painted: the monitor stays unseen."""
        if self.opens_first is not None:
            self.open_screen(*self.opens_first)

    def on_ready(self) -> None:
        """The first frame is on the screen: start watching runs."""
        if self._entries:
            watch_runs(partial(in_loop_of, self, self._take_runs), self._has_ended)
            self._watch_alerts()

    def _look_for_results(self) -> None:
        """Find out, in a thread, whether the monitor should show what a newcomer asks."""

        def look() -> None:
            from gputui.services.profiles.loader import find_profile
            from gputui.services.results.browser import recent_files

            has_results = bool(recent_files(Path()))
            in_loop_of(self, self._model.invite, None if has_results else find_profile("quick").budget_s)

        if self.invites and not default_result_file().is_file():
            threading.Thread(target=look, name="gputui-newcomer", daemon=True).start()
        else:
            self._model.invite(None)

    def _take_runs(self, groups: Groups) -> None:
        self.runs_in_progress = count = sum(map(len, groups))
        self._look_for_results()
        self._monitor.name_screens(screens_line("monitor", count))
        if isinstance(self.screen, AppScreen):
            self.screen.refresh_lines()

    def _watch_alerts(self) -> None:
        if self.notifies and self._end_alerts is None:
            self._end_alerts = watch_alerts(partial(in_loop_of, self, self._notify))
        elif not self.notifies and self._end_alerts is not None:
            self._end_alerts()
            self._end_alerts = None

    def _notify(self, text: str) -> None:
        """Written between two frames."""
        if self.notifies and self._driver is not None:
            self._driver.write(notification(text).decode("utf-8"))

    def action_ring(self) -> None:
        self.notifies = self.chose_notifies = not self.notifies
        self._watch_alerts()
        message = "rings and notifies when a run ends, a case fails or memory runs out"
        self._say(message if self.notifies else "rings no more", "good")

    def _thread_failed(self, failure: threading.ExceptHookArgs) -> None:
        """Report an unexpected error in a thread: nothing else would, since Textual captures stderr."""
        error = failure.exc_value
        if error is None:
            return
        self.keep_error("gputui", "".join(traceback.format_exception(error)).rstrip())
        what = f"{type(error).__name__}: {error}"
        in_loop_of(self, self._say, f"this is a bug in gputui: {what}: L shows where", "warn")

    def _say(self, text: str, style: str) -> None:
        """On the screen that is shown; a dialog says nothing."""
        if isinstance(self.screen, AppScreen):
            self.screen.say(text, style)

    def keep_error(self, screen_id: str, text: str) -> None:
        keep_error(error_log(), screen_id, text)

    def action_open_log(self) -> None:
        from gputui.tui.shell.on_top import PageScreen, log_lines

        self._cover(PageScreen(partial(log_lines, error_log())))

    def open_screen(self, screen_id: str, words: tuple[str, ...] = ()) -> None:
        """Show a screen in its previous state; `words` are arguments as on the command line."""
        entry = self._entries.get(screen_id)
        if entry is None:
            return
        if entry.id == "monitor":  # it is always loaded, below all others
            while len(self.screen_stack) > 1:
                self.pop_screen()
            return
        screen = self._opened.get(screen_id)
        if screen is None:
            self._apply_theme()
            words = words or (() if self.demo is None else self.demo.WORDS.get(screen_id, ()))
            screen = self._opened[screen_id] = load_screen(entry)
            self.install_screen(screen, screen_id)
        if self.screen is not screen:
            if len(self.screen_stack) > 1:
                self.switch_screen(screen)
            else:
                self.push_screen(screen)
        if words:
            screen.show_words(words)

    action_open_screen = open_screen

    def action_help(self) -> None:
        from gputui.tui.shell.on_top import PageScreen, help_lines

        actions = self.screen.shown_actions if isinstance(self.screen, AppScreen) else ()
        self._cover(PageScreen(partial(help_lines, actions, tuple(self._entries.values()))))

    def action_palette(self) -> None:
        """Show the palette: what can be done here, and what can be opened."""
        from gputui.tui.shell.on_top import Palette, nouns, text_of

        screen = self.screen
        if isinstance(screen, Palette):
            screen.dismiss(None)
        if not isinstance(screen, AppScreen):  # a dialog or a page covers it
            return

        def chosen(choice: Choice | None) -> None:
            if choice is not None:
                self.used = list(dict.fromkeys((text_of(choice), *self.used)))[:20]
                choice[1]()

        def read() -> None:
            path = getattr(self._opened.get("results"), "path", None)
            in_loop_of(self, palette.add, list(nouns(path, self.open_screen, self._open_page)))

        palette = Palette(self._verbs(screen), self.used)
        self._cover(palette, chosen)
        threading.Thread(target=read, name="gputui-palette", daemon=True).start()

    def _verbs(self, screen: AppScreen) -> Iterator[Choice]:
        for entry in self._entries.values():
            action = Action(entry.id, entry.key, entry.title, entry.tooltip)
            yield action, partial(self.open_screen, entry.id)
        for action in screen.shown_actions:
            yield action, partial(screen.press, action.id)
        for action in (*SCREENS_ACTIONS, *APP_ACTIONS):
            if action.id not in _NOT_IN_PALETTE:
                yield action, partial(self.call_later, self.run_action, action.id)
        for gpu in self._model.shown_gpus():
            name = f"GPU {gpu.label} {short_name(gpu)}"
            action = Action("", "", name, "All its values, and why some are absent")
            yield action, partial(self._open_gpu, gpu.device)

    def _open_gpu(self, device: int) -> None:
        self._model.show_details(device)
        self.open_screen("monitor")
        self._monitor.paint()

    def _open_page(self, text: str) -> None:
        from gputui.tui.shell.on_top import PageScreen, doc_lines

        self._cover(PageScreen(partial(doc_lines, text)))

    def _cover(self, screen: Screen[T], then: Callable[[T | None], None] | None = None) -> None:
        """Show something on top; `then` gets its result."""
        self._apply_theme()
        self.push_screen(screen, then)

    def _apply_theme(self) -> None:
        """Give stock widgets their colours, once the first is shown: the monitor has none."""
        self.animation_level = "none"
        theme = theme_for(self.palette)
        self.register_theme(theme)
        self.theme = theme.name

    def action_theme(self) -> None:
        place = THEMES.index(self.palette.of_theme) + 1
        self.palette = self.palette._replace(theme=THEMES[place % len(THEMES)].id)
        self._shown.use(self.palette)
        self._apply_theme()
        self.repaint()
        self._say(f"colours: {self.palette.of_theme.title}", "good")

    async def action_quit(self) -> None:
        self.exit(0)

    def action_interrupt(self) -> None:
        self.exit(EXIT_INTERRUPTED)

    action_repaint = FastPaint.repaint

    def _fatal_error(self) -> None:
        """End; `run_until_ended` raises the error, so that it is reported like any other."""
        if self._exception is not None:
            self.keep_error("gputui", "".join(traceback.format_exception(self._exception)))
        self._close_messages_no_wait()


def theme_for(palette: Palette) -> Theme:
    """The theme in a palette; without colours, the cursor is shown in reverse video."""
    plain = not palette.has_backgrounds
    roles = ("accent", "good", "warn", "alarm", "dim", "track")
    words = {role: definition(role, palette).split(" ")[-1] for role in roles}
    colours = {
        role: word if word.startswith("#") else f"ansi_{word if word in SIXTEEN else 'default'}"
        for role, word in words.items()
    }
    cursor, _, behind = ("ansi_default",) * 3 if plain else definition("selected", palette).split()[1:]
    chosen, behind_chosen = ("ansi_default", colours["dim"]) if plain else ("#ffffff", "#005f87")
    return Theme(
        name=f"gputui {palette.theme} {palette.background}",
        ansi=True,
        dark=not palette.is_light,
        primary=colours["accent"],
        secondary=colours["accent"],
        accent=colours["accent"],
        success=colours["good"],
        warning=colours["warn"],
        error=colours["alarm"],
        foreground="ansi_default",
        background="ansi_default",
        surface="ansi_default",
        panel="ansi_default",
        boost="ansi_default",
        variables={
            "block-cursor-foreground": cursor,
            "block-cursor-background": behind,
            "block-cursor-text-style": "reverse" if plain else "bold",
            "block-cursor-blurred-foreground": "ansi_default",
            "block-cursor-blurred-background": "ansi_default",
            "block-cursor-blurred-text-style": "underline",
            "border": colours["accent"],
            "border-blurred": colours["track"],
            "scrollbar": colours["track"],
            "scrollbar-hover": colours["track"],
            "scrollbar-active": colours["accent"],
            "scrollbar-background": "ansi_default",
            "scrollbar-background-hover": "ansi_default",
            "scrollbar-background-active": "ansi_default",
            "input-cursor-text-style": "reverse",
            "input-cursor-foreground": "ansi_default",
            "input-cursor-background": "ansi_default",
            "input-selection-foreground": chosen,
            "input-selection-background": behind_chosen,
            "screen-selection-foreground": chosen,
            "screen-selection-background": behind_chosen,
            "ansi-background": "ansi_default",
            "ansi-foreground": "ansi_default",
        },
    )
