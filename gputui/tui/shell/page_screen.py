"""A page on top of the current screen: its keys, the error log, or a page of the documentation."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path

from textual.app import ComposeResult
from textual.binding import Binding
from textual.screen import ModalScreen

from gputui.services.support.error_log import kept_errors
from gputui.services.support.paths import copies_directory
from gputui.tui.shell.clipboard import copy
from gputui.tui.shell.keymap import APP_ACTIONS, SCREENS_ACTIONS, Action
from gputui.tui.shell.keys_page import EVERY_SCREEN, THIS_SCREEN, key_lines
from gputui.tui.shell.registry import ScreenEntry
from gputui.tui.terminal.lines import Line, Span
from gputui.tui.widgets.lines_page import LinesPage
from gputui.tui.widgets.paragraphs import paragraph
from gputui.tui.widgets.wrapping import wrapped

_TABLE_RULE = re.compile(r"\n[|:-]+(?=\n)")


class PageScreen(ModalScreen[None]):
    """Lines that fit the width beside a scrollbar, below a message about what was copied."""

    DEFAULT_CSS = "PageScreen { background: ansi_default; }"
    BINDINGS = [  # noqa: RUF012 - Textual declares it so
        Binding("escape,backspace,question_mark,L,q,enter", "leave", "Back", show=False),
        Binding("j", "scroll(1)", show=False),
        Binding("k", "scroll(-1)", show=False),
        Binding("y,c", "copy", "Copy", show=False),
    ]

    def __init__(self, lines_of: Callable[[int], Iterable[Line]]) -> None:
        super().__init__()
        self._lines_of = lines_of
        self._page = LinesPage()

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
        self._fill()
        self._fill((Span(copy(self.app, self._page.text, copies_directory()), "good"),))

    def _fill(self, *above: Line) -> None:
        self._page.show((*above, *self._lines_of(self.size.width - 1)))


def help_lines(actions: Iterable[Action], entries: Iterable[ScreenEntry], width: int) -> list[Line]:
    """The keys of the screen, then those of the app."""
    opening = [Action(entry.id, entry.key, entry.title, entry.tooltip) for entry in entries]
    opening += SCREENS_ACTIONS if opening else ()
    groups = ((THIS_SCREEN, tuple(actions)), (EVERY_SCREEN, (*opening, *APP_ACTIONS)))
    return key_lines(groups, width)


def log_lines(path: Path, width: int) -> Iterator[Line]:
    """Path of the error log and its errors, newest first."""
    errors = kept_errors(path)
    yield (Span("Errors, the newest first", "title"), Span("  (esc goes back, y copies)", "dim"))
    yield from ((Span(row, "dim"),) for row in wrapped(str(path), width, 3))
    yield ()
    none = "None so far. Errors appear where they happen, and are kept here."
    for error in errors or (none,):
        style = "dim" if error.startswith(" ") else ""
        yield from ((Span(row, style),) for row in wrapped(error, width, 20))


def doc_lines(text: str, width: int) -> Iterator[Line]:
    """Markdown as headings, paragraphs, a line for each row of a table, and what stands between fences."""
    for number, part in enumerate(re.split("^```.*\n", text, flags=re.MULTILINE)):
        if number % 2:
            yield from (*((Span(f"  {row}", "accent"),) for row in part.splitlines()), ())
            continue
        for block in filter(None, part.strip().split("\n\n")):
            for row in re.split(r"\n(?=- |\d+\. |\|)", _TABLE_RULE.sub("", block)):
                cells = " · ".join(re.split(r"\s+\|\s+", row.strip("| ")))
                words = " ".join(re.sub(r"[`*\\]|^#+ ", "", cells).split())
                style, indent = "title" if row.startswith("#") else "", 2 * row.startswith(("- ", "|"))
                yield from paragraph(words, width, style, indent=indent)
            yield ()
