"""Asks what the sides of a comparison shall be."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from textual.app import ComposeResult
from textual.binding import Binding
from textual.containers import Vertical
from textual.content import Content
from textual.screen import ModalScreen
from textual.widgets import OptionList, Static
from textual.widgets.option_list import Option

from gputui.store.text import clean_text
from gputui.tui.widgets.app_context import shell_of
from gputui.tui.widgets.cells import cut, left
from gputui.tui.widgets.lines_list import MARKER
from gputui.tui.widgets.plain_ascii import text_in_ascii

FILES = "files"
_WIDTH = 80
_MOST_LINES = 12
_LINES_AROUND = 5
"""Above and below what can be chosen, on a narrow terminal."""


class AskBy(ModalScreen[str | None]):
    """One of the dimensions, FILES for the files themselves, or None if it is left by esc."""

    DEFAULT_CSS = f"""
    AskBy {{ align: center middle; background: ansi_default; }}
    AskBy > Vertical {{
        width: {_WIDTH}; max-width: 100%; height: auto; padding: 0 2; background: ansi_default;
    }}
    AskBy > Vertical > Vertical {{ height: auto; padding: 0 1; background: ansi_default; }}
    AskBy OptionList, AskBy OptionList:focus {{
        height: auto; border: none; padding: 0; background: ansi_default;
        scrollbar-size: 0 0;
    }}
    """
    BINDINGS = [  # noqa: RUF012 - Textual declares it so
        Binding("escape,backspace", "leave", "Back", show=False),
        Binding("j", "step(1)", show=False),
        Binding("k", "step(-1)", show=False),
    ]

    def __init__(self, files: Sequence[str], dimensions: Mapping[str, Sequence[str]], current: str) -> None:
        super().__init__()
        self._files = files
        self._dimensions = dimensions
        self._current = current or FILES
        self._lines: dict[str, str] = {}
        """What is shown of each choice, without its mark."""

    def compose(self) -> ComposeResult:
        """The question and what can be chosen."""
        with Vertical(), Vertical() as box:
            box.styles.border = ("ascii" if shell_of(self).ascii_only else "solid", "ansi_default")
            yield Static("What separates the sides?", markup=False)
            options = OptionList(*self._options())
            options.styles.max_height = min(_MOST_LINES, max(self.app.size.height - _LINES_AROUND, 2))
            yield options
            yield Static("enter applies, esc cancels", markup=False)

    def on_mount(self) -> None:
        """The cursor stands on what is shown now."""
        options = self.query_one(OptionList)
        options.highlighted = [option.id for option in options.options].index(self._current)
        options.focus()

    def on_option_list_option_selected(self, event: OptionList.OptionSelected) -> None:
        """Taken."""
        event.stop()
        self.dismiss(event.option_id)

    def on_option_list_option_highlighted(self, event: OptionList.OptionHighlighted) -> None:
        """Mark it: the stock list shows no reverse video, which is all that some terminals have."""
        event.stop()
        options = self.query_one(OptionList)
        for name, line in self._lines.items():
            is_selected = name == event.option_id
            mark = MARKER if is_selected else " " * len(MARKER)
            options.replace_option_prompt(name, self._drawn(f"{mark}{line}", is_selected=is_selected))

    def action_leave(self) -> None:
        """Not taken."""
        self.dismiss(None)

    def action_step(self, lines: int) -> None:
        """As the arrows."""
        options = self.query_one(OptionList)
        if lines > 0:
            options.action_cursor_down()
        else:
            options.action_cursor_up()

    def _options(self) -> list[Option]:
        several = len(self._files) > 1
        told = ", ".join(self._files) if several else "a second file is needed: o"
        made = [self._option(FILES, told, is_possible=several)]
        for name, values in self._dimensions.items():
            is_possible = len(values) > 1
            told = ", ".join(values) if is_possible else f"only {values[0]}" if values else "none recorded"
            made.append(self._option(name, told, is_possible=is_possible))
        return made

    @property
    def _room(self) -> int:
        """Cells of a choice behind its mark."""
        return min(_WIDTH, self.app.size.width) - 10 - len(MARKER)

    def _option(self, name: str, told: str, *, is_possible: bool) -> Option:
        self._lines[name] = cut(f"{name:10} {clean_text(told)}", self._room)
        return Option(self._drawn(" " * len(MARKER) + self._lines[name]), id=name, disabled=not is_possible)

    def _drawn(self, line: str, *, is_selected: bool = False) -> Content:
        text = text_in_ascii(line) if shell_of(self).ascii_only else line
        if is_selected and not shell_of(self).palette.has_backgrounds:
            return Content.styled(left(text, self._room + len(MARKER)), "reverse")
        return Content(text)
