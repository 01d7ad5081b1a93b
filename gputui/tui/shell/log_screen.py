"""The errors that screens have shown, on top of the current screen."""

from __future__ import annotations

from pathlib import Path

from textual.app import ComposeResult
from textual.binding import Binding
from textual.screen import ModalScreen

from gputui.services.support.error_log import kept_errors
from gputui.services.support.paths import copies_directory
from gputui.tui.shell.clipboard import copy
from gputui.tui.terminal.lines import Line, Span
from gputui.tui.widgets.lines_page import LinesPage
from gputui.tui.widgets.wrapping import wrapped


class LogScreen(ModalScreen[None]):
    """The error log, newest first."""

    DEFAULT_CSS = "LogScreen { background: ansi_default; }"
    BINDINGS = [  # noqa: RUF012 - Textual declares it so
        Binding("escape,backspace,L,q,enter", "leave", "Back", show=False),
        Binding("j", "scroll(1)", show=False),
        Binding("k", "scroll(-1)", show=False),
        Binding("y,c", "copy", "Copy", show=False),
    ]

    def __init__(self, path: Path) -> None:
        super().__init__()
        self._path = path
        self._page = LinesPage(id="log")
        self._message = ""

    def compose(self) -> ComposeResult:
        yield self._page

    def on_mount(self) -> None:
        self._page.focus()
        self.call_after_refresh(self._fill)

    def action_leave(self) -> None:
        self.dismiss(None)

    def action_scroll(self, lines: int) -> None:
        self._page.scroll_relative(y=lines, animate=False)

    def action_copy(self) -> None:
        self._message = copy(self.app, "\n".join(kept_errors(self._path)), copies_directory())
        self._fill()

    def _fill(self) -> None:
        self._page.show(log_lines(self._path, kept_errors(self._path), self._message, self.size.width))


def log_lines(path: Path, errors: tuple[str, ...], message: str, width: int) -> tuple[Line, ...]:
    """Path of the log and its errors."""
    keys = message or "esc goes back, y copies"
    lines: list[Line] = [(Span("Errors, the newest first", "title"), Span(f"  ({keys})", "dim"))]
    lines += [(Span(row, "dim"),) for row in wrapped(str(path), width - 1, 3)]
    lines.append(())
    if not errors:
        none = "None so far. What goes wrong is told where it happened, and kept here."
        lines += [(Span(row),) for row in wrapped(none, width - 1, 3)]
    for error in errors:
        style = "dim" if error.startswith(" ") else ""
        lines += [(Span(row, style),) for row in wrapped(error, width - 1, 20)]
    return tuple(lines)
