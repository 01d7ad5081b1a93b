"""Asks what the sides of a comparison shall be."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from textual.app import ComposeResult
from textual.binding import Binding

from gputui.store.text import clean_text
from gputui.tui.terminal.lines import Span
from gputui.tui.widgets.dialogs import Dialog
from gputui.tui.widgets.lines_page import MARKER, Entry, LinesList

FILES = "files"
_MOST_LINES = 12
_LINES_AROUND = 5
"""Above and below what can be chosen, on a narrow terminal."""


class AskBy(Dialog[str]):
    """One of the dimensions, or FILES for the files themselves."""

    BINDINGS = [  # noqa: RUF012 - Textual declares it so
        Binding("backspace", "dismiss", "Back", show=False),
        Binding("j", "step(1)", show=False),
        Binding("k", "step(-1)", show=False),
    ]
    KEYS = "enter applies, esc cancels"

    def __init__(self, files: Sequence[str], dimensions: Mapping[str, Sequence[str]], current: str) -> None:
        super().__init__("What separates the sides?")
        self._names = [FILES, *dimensions]
        self._current = self._names.index(current or FILES)
        several = len(files) > 1
        possible = {FILES: (", ".join(files) if several else "a second file is needed: o", several)}
        for name, values in dimensions.items():
            only = f"only {values[0]}" if values else "none recorded"
            possible[name] = (", ".join(values), True) if len(values) > 1 else (only, False)
        self._entries: list[Entry] = []
        for key, (name, (told, is_possible)) in enumerate(possible.items()):
            text = f"{name:10} {clean_text(told)}"
            dimmed = Entry(((Span(" " * len(MARKER) + text, "dim"),),))
            self._entries.append(Entry(((Span(text),),), key) if is_possible else dimmed)

    def compose_body(self) -> ComposeResult:
        self._list = LinesList(id="sides")
        yield self._list

    def on_mount(self) -> None:
        """The cursor stands on what is shown now."""
        room = min(_MOST_LINES, max(self.app.size.height - _LINES_AROUND, 2))
        self._list.styles.height = min(len(self._entries), room)
        self._list.styles.scrollbar_size_vertical = 0
        self._list.fill(self._entries, "", self._current)
        self._list.focus()

    def on_lines_list_chosen(self, event: LinesList.Chosen) -> None:
        event.stop()
        self.dismiss(self._names[event.key])

    def action_step(self, lines: int) -> None:
        self._list.step(lines)
