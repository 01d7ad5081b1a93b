"""The palette: all available actions, searchable."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from textual.app import ComposeResult
from textual.binding import Binding
from textual.containers import Vertical
from textual.screen import ModalScreen
from textual.widgets import DataTable, Input

from gputui.store.text import clean_text
from gputui.tui.shell.keymap import Action, shown_key
from gputui.tui.terminal.lines import Span
from gputui.tui.widgets.app_context import shell_of
from gputui.tui.widgets.lines_page import LinesPage
from gputui.tui.widgets.plain_table import PlainTable
from gputui.tui.widgets.wrapping import wrapped

_NOTHING = Action("", "", "", "Nothing fits: fewer letters, or others")
_MOST_LINES = 4
"""Of a description: the longest needs this many at 40 columns."""
_LINES_AROUND = 3
"""The frame, and what is typed."""


class Palette(ModalScreen[Action | None]):
    """Returns the chosen action; None after esc."""

    DEFAULT_CSS = """
    Palette { align: center top; background: ansi_default; }
    Palette > Vertical {
        width: 100%; max-width: 102; height: auto; max-height: 100%; padding: 0 1; background: ansi_default;
    }
    Palette > Vertical > Vertical { height: auto; max-height: 100%; padding: 0 1; background: ansi_default; }
    Palette Input, Palette Input:focus { border: none; height: 1; padding: 0; background: ansi_default; }
    Palette Input > .input--selection { text-style: $block-cursor-text-style; }
    Palette Input:ansi > .input--cursor { background: ansi_default; color: ansi_default; }
    Palette DataTable { background: ansi_default; height: auto; scrollbar-size: 0 1; }
    Palette DataTable > .datatable--cursor {
        background: $block-cursor-background;
        color: $block-cursor-foreground;
        text-style: $block-cursor-text-style;
    }
    Palette #sentence { height: 1; scrollbar-size: 0 0; }
    """
    BINDINGS = [  # noqa: RUF012 - Textual declares it so
        Binding("escape,ctrl+p", "leave", "Back", show=False),
        Binding("down,ctrl+n", "step(1)", show=False, priority=True),
        Binding("up", "step(-1)", show=False, priority=True),
        Binding("pagedown", "step(10)", show=False, priority=True),
        Binding("pageup", "step(-10)", show=False, priority=True),
    ]

    def __init__(self, actions: Iterable[Action]) -> None:
        super().__init__()
        self._actions = tuple(actions)
        self._shown: Sequence[Action] = ()

    def compose(self) -> ComposeResult:
        with Vertical(), Vertical() as box:
            box.styles.border = ("ascii" if shell_of(self).ascii_only else "solid", "ansi_default")
            field = Input(placeholder="what to do; enter does it, esc leaves")
            field.cursor_blink = False
            yield field
            table = PlainTable(("key", "action", "what it does"))
            table.can_focus = False
            yield table
            yield LinesPage(id="sentence")

    def on_mount(self) -> None:
        if shell_of(self).ascii_only:
            self.query_one(PlainTable).styles.scrollbar_size_vertical = 0
        self._fill("")
        self.query_one(Input).focus()

    def on_input_changed(self, event: Input.Changed) -> None:
        event.stop()
        self._fill(event.value)

    def on_input_submitted(self, event: Input.Submitted) -> None:
        event.stop()
        place = self.query_one(PlainTable).cursor_row
        self.dismiss(self._shown[place] if place < len(self._shown) else None)

    def on_resize(self) -> None:
        """Reserve room for the longest description, so that the table does not change its height."""
        width = self.query_one(PlainTable).size.width
        most = max((len(_sentence(action, width)) for action in self._actions), default=1)
        self.query_one("#sentence").styles.height = most
        self.query_one(PlainTable).styles.max_height = max(self.size.height - most - _LINES_AROUND, 2)
        self.call_after_refresh(self._describe)

    def on_data_table_row_highlighted(self, event: DataTable.RowHighlighted) -> None:
        event.stop()
        self._describe()

    def on_data_table_row_selected(self, event: DataTable.RowSelected) -> None:
        event.stop()
        self.dismiss(self._shown[event.cursor_row])

    def action_leave(self) -> None:
        self.dismiss(None)

    def action_step(self, rows: int) -> None:
        """Move the table's cursor from the field."""
        self.query_one(PlainTable).step(rows)

    def _fill(self, text: str) -> None:
        self._shown = found(text, self._actions)
        table = self.query_one(PlainTable)
        table.fill([(shown_key(action), action.title, action.sentence) for action in self._shown])
        table.move_cursor(row=0)
        self._describe()

    def _describe(self) -> None:
        """Show the full description of the selected action."""
        place, page = self.query_one(PlainTable).cursor_row, self.query_one("#sentence", LinesPage)
        here = self._shown[place] if place < len(self._shown) else _NOTHING
        page.show(tuple((Span(row, "dim"),) for row in _sentence(here, page.size.width)))


def _sentence(action: Action, width: int) -> list[str]:
    return wrapped(action.sentence, max(width, 10), _MOST_LINES)


def found(text: str, actions: Sequence[Action]) -> list[Action]:
    """Actions that contain all words of a text; those whose title starts with it first."""
    words = clean_text(text).lower().split()
    fitting = [a for a in actions if all(word in f"{a.title} {a.tooltip}".lower() for word in words)]
    return sorted(fitting, key=lambda action: not action.title.lower().startswith(" ".join(words)))
