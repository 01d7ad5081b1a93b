"""Dialogs on top of a screen: a line of text, yes and no, or what the sides of a comparison shall be."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TypeVar

from textual.app import ComposeResult
from textual.binding import Binding
from textual.containers import Vertical
from textual.screen import ModalScreen
from textual.widgets import Input, Static

from gputui.store.text import clean_text
from gputui.tui.terminal.lines import Span
from gputui.tui.widgets.app_context import shell_of
from gputui.tui.widgets.lines_page import MARKER, Entry, LinesList
from gputui.tui.widgets.plain_ascii import text_in_ascii

Answer = TypeVar("Answer")


class Dialog(ModalScreen[Answer | None]):
    """A question in a frame above what a subclass asks with; None after esc."""

    # The outer box is blank beside the frame: words of the screen below would touch it.
    DEFAULT_CSS = """
    Dialog { align: center middle; background: ansi_default; }
    Dialog > Vertical { width: 80; max-width: 100%; height: auto; padding: 0 2; background: ansi_default; }
    Dialog > Vertical > Vertical { height: auto; padding: 0 1; background: ansi_default; }
    Dialog Input, Dialog Input:focus { border: none; height: 1; padding: 0; background: ansi_default; }
    Dialog Input > .input--selection { text-style: $block-cursor-text-style; }
    Dialog Input:ansi > .input--cursor { background: ansi_default; color: ansi_default; }
    """
    BINDINGS = [Binding("escape", "dismiss", "Back", show=False)]  # noqa: RUF012 - Textual declares it so
    KEYS = ""
    """What is said of its keys below."""

    def __init__(self, question: str) -> None:
        super().__init__()
        self._question = clean_text(question)

    def compose(self) -> ComposeResult:
        is_ascii = shell_of(self).ascii_only
        with Vertical(), Vertical() as box:
            box.styles.border = ("ascii" if is_ascii else "solid", "ansi_default")
            yield Static(text_in_ascii(self._question) if is_ascii else self._question, markup=False)
            yield from self.compose_body()
            yield Static(self.KEYS, markup=False)

    def compose_body(self) -> ComposeResult:
        yield from ()


class AskText(Dialog[str]):
    """Asks for one line."""

    KEYS = "enter takes it, esc leaves everything as it is"

    def __init__(self, question: str, value: str = "") -> None:
        super().__init__(question)
        self._value = clean_text(value)

    def compose_body(self) -> ComposeResult:
        field = Input(self._value)
        field.cursor_blink = False
        yield field

    def on_mount(self) -> None:
        self.query_one(Input).focus()

    def on_input_submitted(self, event: Input.Submitted) -> None:
        self.dismiss(event.value.strip())


class Confirm(Dialog[bool]):
    """Asks before an irreversible action; only `y` confirms."""

    BINDINGS = [  # noqa: RUF012 - Textual declares it so
        Binding("y", "dismiss(True)", "Yes", show=False),
        Binding("n,q,enter", "dismiss", "No", show=False),
    ]
    KEYS = "y yes    n no"


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
