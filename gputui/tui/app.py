"""The app: its screens, what they share, and how it ends."""

from __future__ import annotations

import asyncio
import threading
import traceback
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import replace
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
from gputui.tui.monitor.settings import MonitorSettings
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

    Start it with `run_until_ended`. DOES has what its keys do.
    """

    ENABLE_COMMAND_PALETTE = False
    BINDINGS = [  # noqa: RUF012 - Textual declares it so
        Binding(action.key, f"do({action.id!r})", action.title, show=False, priority=action.key in _ALWAYS)
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
        self.entries = {entry.id: entry for entry in screens}
        self.opened: dict[str, AppScreen] = {}
        self.runs_in_progress = 0
        """As of the last check, a few seconds ago at most."""
        self._has_ended = threading.Event()
        self.opens_first: tuple[str, ...] = ()
        """The first screen and its arguments; empty for the monitor."""
        self.notifies = model.settings.notify
        """Whether the terminal notifies of events in runs."""
        self.invites = False
        """Whether the monitor shows what a newcomer asks while there is no result file."""
        self.used = list(model.settings.palette)
        """What was chosen in the palette, the last first; 20 at most."""
        self._end_alerts: Callable[[], None] | None = None
        self._hook_before = threading.excepthook
        for action in SCREENS_ACTIONS if self.entries else ():
            self._bindings.bind(  # at once: what is typed right behind the palette's key goes to the palette
                action.key, f"do({action.id!r})", action.title, show=False, priority=action.id == "palette"
            )
        for entry in self.entries.values():
            self.bind(entry.key, f"open_screen({entry.id!r})", description=entry.title, show=False)
        self._disable_tooltips = self._disable_notifications = True  # two widgets fewer to lay out
        self.model = model
        self.monitor = MonitorScreen(model, feed, on_request)
        self._first = first or self.monitor
        self._feed = feed

    @property
    def settings(self) -> MonitorSettings:
        """As the user has left them."""
        theme, used = self.palette.theme, tuple(self.used)
        return replace(self.model.settings, palette=used, notify=self.notifies, theme=theme)

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
        threading.excepthook = self._hook_before
        self._feed.close()
        self._has_ended.set()
        if self._end_alerts is not None:
            self._end_alerts()

    def on_terminal_closed(self, _: TerminalClosed) -> None:
        self.exit(EXIT_HUNG_UP)

    def on_mount(self) -> None:
        """Open the screen that was asked for before anything is painted: the monitor stays unseen."""
        if self.opens_first:
            self.open_screen(self.opens_first[0], self.opens_first[1:])

    def on_ready(self) -> None:
        """The first frame is on the screen: start watching runs."""
        if self.entries:
            watch_runs(partial(in_loop_of, self, self._take_runs), self._has_ended)
            self.watch_alerts()

    def _take_runs(self, groups: Groups) -> None:
        self.runs_in_progress = count = sum(map(len, groups))
        _invite(self)
        self.model.screens = screens_line("monitor", count)
        self.monitor.paint()
        if isinstance(self.screen, AppScreen):
            self.screen.refresh_lines()

    def watch_alerts(self) -> None:
        """As long as the terminal notifies of them."""

        def notify(text: str) -> None:
            if self.notifies and self._driver is not None:
                self._driver.write(notification(text).decode("utf-8"))  # between two frames

        if self.notifies and self._end_alerts is None:
            self._end_alerts = watch_alerts(partial(in_loop_of, self, notify))
        elif not self.notifies and self._end_alerts is not None:
            self._end_alerts()
            self._end_alerts = None

    def _thread_failed(self, failure: threading.ExceptHookArgs) -> None:
        """Report an unexpected error in a thread: nothing else would, since Textual captures stderr."""
        error = failure.exc_value
        if error is not None:
            self.keep_error("gputui", "".join(traceback.format_exception(error)).rstrip())
            what = f"{type(error).__name__}: {error}"
            in_loop_of(self, self.say, f"this is a bug in gputui: {what}: L shows where", "warn")

    def say(self, text: str, style: str) -> None:
        """On the screen that is shown; a dialog says nothing."""
        if isinstance(self.screen, AppScreen):
            self.screen.say(text, style)

    def keep_error(self, screen_id: str, text: str) -> None:
        keep_error(error_log(), screen_id, text)

    def open_screen(self, screen_id: str, words: tuple[str, ...] = ()) -> None:
        """Show a screen in its previous state; `words` are arguments as on the command line."""
        entry = self.entries.get(screen_id)
        if entry is None:
            return
        if entry.id == "monitor":  # it is always loaded, below all others
            while len(self.screen_stack) > 1:
                self.pop_screen()
            return
        screen = self.opened.get(screen_id)
        if screen is None:
            self.apply_theme()
            words = words or (() if self.demo is None else self.demo.WORDS.get(screen_id, ()))
            screen = self.opened[screen_id] = load_screen(entry)
            self.install_screen(screen, screen_id)
        if self.screen is not screen:
            if len(self.screen_stack) > 1:
                self.switch_screen(screen)
            else:
                self.push_screen(screen)
        if words:
            screen.show_words(words)

    action_open_screen = open_screen

    def action_do(self, action_id: str) -> None:
        DOES[action_id](self)

    def cover(self, screen: Screen[T], then: Callable[[T | None], None] | None = None) -> None:
        """Show something on top; `then` gets its result."""
        self.apply_theme()
        self.push_screen(screen, then)

    def apply_theme(self) -> None:
        """Give stock widgets their colours, once the first is shown: the monitor has none."""
        self.animation_level = "none"
        theme = theme_for(self.palette)
        self.register_theme(theme)
        self.theme = theme.name

    def _fatal_error(self) -> None:
        """End; `run_until_ended` raises the error, so that it is reported like any other."""
        if self._exception is not None:
            self.keep_error("gputui", "".join(traceback.format_exception(self._exception)))
        self._close_messages_no_wait()


def _invite(app: MonitorApp) -> None:
    """Find out, in a thread, whether the monitor should show what a newcomer asks."""

    def look() -> None:
        from gputui.services.profiles.loader import find_profile
        from gputui.services.results.browser import recent_files

        has_results = bool(recent_files(Path()))
        in_loop_of(app, app.model.invite, None if has_results else find_profile("quick").budget_s)

    if app.invites and not default_result_file().is_file():
        threading.Thread(target=look, name="gputui-newcomer", daemon=True).start()
    else:
        app.model.invite(None)


def _ring(app: MonitorApp) -> None:
    app.notifies = not app.notifies
    app.watch_alerts()
    message = "rings and notifies when a run ends, a case fails or memory runs out"
    app.say(message if app.notifies else "rings no more", "good")


def _open_log(app: MonitorApp) -> None:
    from gputui.tui.shell.on_top import PageScreen, log_lines

    app.cover(PageScreen(partial(log_lines, error_log())))


def _help(app: MonitorApp) -> None:
    from gputui.tui.shell.on_top import PageScreen, help_lines

    actions = app.screen.shown_actions if isinstance(app.screen, AppScreen) else ()
    app.cover(PageScreen(partial(help_lines, actions, tuple(app.entries.values()))))


def _palette(app: MonitorApp) -> None:
    """Show the palette: what can be done here, and what can be opened."""
    from gputui.tui.shell.on_top import PageScreen, Palette, doc_lines, nouns, text_of

    screen = app.screen
    if isinstance(screen, Palette):
        screen.dismiss(None)
    if not isinstance(screen, AppScreen):  # a dialog or a page covers it
        return

    def chosen(choice: Choice | None) -> None:
        if choice is not None:
            app.used = list(dict.fromkeys((text_of(choice), *app.used)))[:20]
            choice[1]()

    def open_page(text: str) -> None:
        app.cover(PageScreen(partial(doc_lines, text)))

    def read() -> None:
        path = getattr(app.opened.get("results"), "path", None)
        in_loop_of(app, palette.add, list(nouns(path, app.open_screen, open_page)))

    palette = Palette(_verbs(app, screen), app.used)
    app.cover(palette, chosen)
    threading.Thread(target=read, name="gputui-palette", daemon=True).start()


def _verbs(app: MonitorApp, screen: AppScreen) -> Iterator[Choice]:
    def open_gpu(device: int) -> None:
        app.model.show_details(device)
        app.open_screen("monitor")
        app.monitor.paint()

    for entry in app.entries.values():
        action = Action(entry.id, entry.key, entry.title, entry.tooltip)
        yield action, partial(app.open_screen, entry.id)
    for action in screen.shown_actions:
        yield action, partial(screen.press, action.id)
    for action in (*SCREENS_ACTIONS, *APP_ACTIONS):
        if action.id not in _NOT_IN_PALETTE:
            yield action, partial(app.call_later, DOES[action.id], app)
    for gpu in app.model.shown_gpus():
        name = f"GPU {gpu.label} {short_name(gpu)}"
        action = Action("", "", name, "All its values, and why some are absent")
        yield action, partial(open_gpu, gpu.device)


def _theme(app: MonitorApp) -> None:
    place = THEMES.index(app.palette.of_theme) + 1
    app.palette = app.palette._replace(theme=THEMES[place % len(THEMES)].id)
    app._shown.use(app.palette)
    app.apply_theme()
    app.repaint()
    app.say(f"colours: {app.palette.of_theme.title}", "good")


DOES: Mapping[str, Callable[[MonitorApp], None]] = {
    "help": _help,
    "quit": lambda app: app.exit(0),
    "theme": _theme,
    "repaint": MonitorApp.repaint,
    "suspend_process": MonitorApp.action_suspend_process,
    "interrupt": lambda app: app.exit(EXIT_INTERRUPTED),
    "ring": _ring,
    "open_log": _open_log,
    "palette": _palette,
}
"""By the id of each of APP_ACTIONS and SCREENS_ACTIONS."""


_AS_THE_TERMINAL = (
    *("block-cursor-blurred-foreground", "block-cursor-blurred-background"),
    *("scrollbar-background", "scrollbar-background-hover", "scrollbar-background-active"),
    *("input-cursor-foreground", "input-cursor-background"),
    *("screen-selection-foreground", "screen-selection-background"),
    *("ansi-background", "ansi-foreground"),
)


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
            **dict.fromkeys(_AS_THE_TERMINAL, "ansi_default"),
            "block-cursor-foreground": cursor,
            "block-cursor-background": behind,
            "block-cursor-text-style": "reverse" if plain else "bold",
            "block-cursor-blurred-text-style": "underline",
            "border": colours["accent"],
            **dict.fromkeys(("border-blurred", "scrollbar", "scrollbar-hover"), colours["track"]),
            "scrollbar-active": colours["accent"],
            "input-cursor-text-style": "reverse",
            "input-selection-foreground": chosen,
            "input-selection-background": behind_chosen,
        },
    )
