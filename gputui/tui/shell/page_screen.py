"""A page on top of the current screen: its keys, the error log, or a page of the documentation."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from pathlib import Path

from textual.app import ComposeResult
from textual.binding import Binding
from textual.screen import ModalScreen

from gputui.document.spans import Line, Span, width_of
from gputui.document.table import Column, Table
from gputui.services.support.paths import kept_errors
from gputui.tui.shell.registry import APP_ACTIONS, SCREENS_ACTIONS, Action, ScreenEntry, shown_keys
from gputui.tui.widgets.app_context import copy
from gputui.tui.widgets.cells import left, paragraph, section, table_lines, wrapped
from gputui.tui.widgets.lines_page import LinesOf, LinesPage

THIS_SCREEN, EVERY_SCREEN = "Keys of this screen", "Keys of every screen"
_TITLES_FROM, _TITLE = 96, 12
"""From this width on titles have a column, and its cells."""
_TABLE_RULE = re.compile(r"\n[|:-]+(?=\n)")


class PageScreen(ModalScreen[None]):
    """Lines that fit the width beside a scrollbar, below a message about what was copied."""

    DEFAULT_CSS = "PageScreen { background: ansi_default; }"
    BINDINGS = [  # noqa: RUF012 - Textual declares it so
        Binding("escape,backspace,question_mark,L,q,enter", "dismiss", "Back", show=False),
        Binding("j", "scroll(1)", show=False),
        Binding("k", "scroll(-1)", show=False),
        Binding("y,c", "copy", "Copy", show=False),
    ]

    def __init__(self, lines_of: LinesOf) -> None:
        super().__init__()
        self._lines_of = lines_of
        self._page = LinesPage()

    def compose(self) -> ComposeResult:
        yield self._page

    def on_mount(self) -> None:
        self._page.focus()
        self._show()

    def action_scroll(self, lines: int) -> None:
        self._page.step(lines)

    def action_copy(self) -> None:
        self._show()
        self._show((Span(copy(self.app, self._page.text), "good"),))

    def _show(self, *above: Line) -> None:
        self._page.show_at_any_width(lambda width: (*above, *self._lines_of(width - 1)))


def help_lines(actions: Iterable[Action], entries: Iterable[ScreenEntry], width: int) -> list[Line]:
    """The keys of the screen, then those of the app: titles where there is room, and descriptions."""
    opening = [Action(entry.id, entry.key, entry.title, entry.tooltip) for entry in entries]
    opening += SCREENS_ACTIONS if opening else ()
    groups = ((THIS_SCREEN, tuple(actions)), (EVERY_SCREEN, (*opening, *APP_ACTIONS)))
    listed = [(heading, of_group) for heading, of_group in groups if of_group]
    lead = max((width_of(_keys_of(one)) for _, of_group in listed for one in of_group), default=0)
    lines: list[Line] = []
    for heading, of_group in listed:
        hint = () if lines else (Span("esc leaves", "dim"),)
        lines += [()] if lines else []
        lines.append(section((Span(heading, "title"),), width, hint))
        titles = [left(action.title, _TITLE) for action in of_group] if width >= _TITLES_FROM else []
        columns = (
            Column("", [Span(left(_keys_of(action), lead), "accent") for action in of_group]),
            *((Column("", titles),) if titles else ()),
            Column("", [action.sentence for action in of_group], breaks=True),
        )
        lines += table_lines(Table(columns), width, margin=1, folds=True, has_headings=False)
    return lines


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


def _keys_of(action: Action) -> str:
    return ", ".join(shown_keys(action))
