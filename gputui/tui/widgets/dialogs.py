"""Dialogs on top of a screen: a line of text, or yes and no."""

from __future__ import annotations

from textual.app import ComposeResult
from textual.binding import Binding
from textual.containers import Vertical
from textual.screen import ModalScreen
from textual.widget import Widget
from textual.widgets import Input, Static

from gputui.store.text import clean_text
from gputui.tui.widgets.app_context import shell_of
from gputui.tui.widgets.plain_ascii import text_in_ascii

# The outer box is blank beside the frame: words of the screen below would touch it.
_CSS = """
{0} {{ align: center middle; background: ansi_default; }}
{0} > Vertical {{ width: 80; max-width: 100%; height: auto; padding: 0 2; background: ansi_default; }}
{0} > Vertical > Vertical {{ height: auto; padding: 0 1; background: ansi_default; }}
{0} Input, {0} Input:focus {{ border: none; height: 1; padding: 0; background: ansi_default; }}
{0} Input > .input--selection {{ text-style: $block-cursor-text-style; }}
{0} Input:ansi > .input--cursor {{ background: ansi_default; color: ansi_default; }}
"""


class AskText(ModalScreen[str | None]):
    """Asks for one line; None after esc."""

    DEFAULT_CSS = _CSS.format("AskText")
    BINDINGS = [Binding("escape", "leave", "Back", show=False)]  # noqa: RUF012 - Textual declares it so

    def __init__(self, question: str, value: str = "") -> None:
        super().__init__()
        self._question = question
        self._value = value

    def compose(self) -> ComposeResult:
        with Vertical(), Vertical() as box:
            box.styles.border = ("ascii" if shell_of(self).ascii_only else "solid", "ansi_default")
            yield Static(_question(self, self._question), markup=False)
            field = Input(clean_text(self._value))
            field.cursor_blink = False
            yield field
            yield Static("enter takes it, esc leaves everything as it is", markup=False)

    def on_mount(self) -> None:
        self.query_one(Input).focus()

    def on_input_submitted(self, event: Input.Submitted) -> None:
        self.dismiss(event.value)

    def action_leave(self) -> None:
        self.dismiss(None)


class Confirm(ModalScreen[bool]):
    """Asks before an irreversible action; only `y` confirms."""

    DEFAULT_CSS = _CSS.format("Confirm")
    BINDINGS = [  # noqa: RUF012 - Textual declares it so
        Binding("y", "answer(True)", "Yes", show=False),
        Binding("n,escape,q,enter", "answer(False)", "No", show=False),
    ]

    def __init__(self, question: str) -> None:
        super().__init__()
        self._question = question

    def compose(self) -> ComposeResult:
        with Vertical(), Vertical() as box:
            box.styles.border = ("ascii" if shell_of(self).ascii_only else "solid", "ansi_default")
            yield Static(_question(self, self._question), markup=False)
            yield Static("y yes    n no", markup=False)

    def action_answer(self, is_yes: bool) -> None:
        self.dismiss(is_yes)


def _question(dialog: Widget, text: str) -> str:
    safe = clean_text(text)
    return text_in_ascii(safe) if shell_of(dialog).ascii_only else safe
