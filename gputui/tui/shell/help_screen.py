"""Help: the keys of the screen below, generated from their declarations."""

from __future__ import annotations

from collections.abc import Iterable
from textwrap import wrap

from textual.app import ComposeResult
from textual.binding import Binding
from textual.screen import ModalScreen

from gputui.tui.shell.keymap import APP_ACTIONS, SCREENS_ACTIONS, Action, shown_keys
from gputui.tui.shell.registry import ScreenEntry
from gputui.tui.terminal.lines import Line, Span
from gputui.tui.widgets.lines_page import LinesPage

_SENTENCES_FROM = 29
"""The column where descriptions of keys start."""
_NARROW, _INDENT = 56, 3
"""Below this width descriptions go on separate lines, indented this far."""


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
            lambda: self._page.show(help_lines(self._actions, self._entries, self.size.width))
        )

    def action_leave(self) -> None:
        self.dismiss(None)

    def action_scroll(self, lines: int) -> None:
        self._page.scroll_relative(y=lines, animate=False)


def help_lines(actions: Iterable[Action], entries: Iterable[ScreenEntry], width: int) -> tuple[Line, ...]:
    """Keys, titles and descriptions, those of the screen first; long descriptions wrap."""
    opening = [Action(entry.id, entry.key, entry.title, entry.tooltip) for entry in entries]
    opening += SCREENS_ACTIONS if opening else ()
    lines: list[Line] = [(Span("Keys of this screen", "title"), Span("  (esc goes back)", "dim"))]
    for group, heading in ((list(actions), ""), ([*opening, *APP_ACTIONS], "Keys of every screen")):
        if heading:
            lines += [(), (Span(heading, "title"),)]
        for action in group:
            keys = ", ".join(shown_keys(action))
            head = (Span(f" {keys:14} ", "accent"), Span(f"{action.title:12} "))
            if width < _NARROW:
                more = wrap(action.sentence, max(width - _INDENT - 1, 10))
                lines += [head, *((Span(" " * _INDENT + rest, "dim"),) for rest in more)]
                continue
            first, *more = wrap(action.sentence, width - _SENTENCES_FROM - 1) or [""]
            lines.append((*head, Span(first)))
            lines += [(Span(" " * _SENTENCES_FROM + rest),) for rest in more]
    return tuple(lines)
