"""Help: the keys of the screen below, generated from their declarations."""

from __future__ import annotations

from collections.abc import Iterable

from textual.app import ComposeResult
from textual.binding import Binding
from textual.screen import ModalScreen

from gputui.tui.shell.keymap import APP_ACTIONS, SCREENS_ACTIONS, Action
from gputui.tui.shell.keys_page import EVERY_SCREEN, THIS_SCREEN, key_lines
from gputui.tui.shell.registry import ScreenEntry
from gputui.tui.terminal.lines import Line
from gputui.tui.widgets.lines_page import LinesPage

_SCROLLBAR = 1


class HelpScreen(ModalScreen[None]):
    """All keys, one a line."""

    DEFAULT_CSS = "HelpScreen { background: ansi_default; }"
    BINDINGS = [  # noqa: RUF012 - Textual declares it so
        Binding("escape,backspace,question_mark,q,enter", "leave", "Back", show=False),
        Binding("j", "scroll(1)", show=False),
        Binding("k", "scroll(-1)", show=False),
    ]

    def __init__(self, actions: Iterable[Action], entries: Iterable[ScreenEntry]) -> None:
        super().__init__()
        self._actions = tuple(actions)
        self._entries = tuple(entries)
        self._page = LinesPage(id="help")

    def compose(self) -> ComposeResult:
        yield self._page

    def on_mount(self) -> None:
        self._page.focus()
        self.call_after_refresh(
            lambda: self._page.show(help_lines(self._actions, self._entries, self.size.width - _SCROLLBAR))
        )

    def action_leave(self) -> None:
        self.dismiss(None)

    def action_scroll(self, lines: int) -> None:
        self._page.scroll_relative(y=lines, animate=False)


def help_lines(actions: Iterable[Action], entries: Iterable[ScreenEntry], width: int) -> tuple[Line, ...]:
    """The keys of the screen, then those of the app."""
    opening = [Action(entry.id, entry.key, entry.title, entry.tooltip) for entry in entries]
    opening += SCREENS_ACTIONS if opening else ()
    groups = ((THIS_SCREEN, tuple(actions)), (EVERY_SCREEN, (*opening, *APP_ACTIONS)))
    return tuple(key_lines(groups, width))
