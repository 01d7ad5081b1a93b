"""What scrolls: a page of lines, a list of entries of which one is selected, and a table as such a list."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

from rich.style import Style
from textual import events
from textual.binding import Binding
from textual.geometry import Size
from textual.message import Message
from textual.scroll_view import ScrollView
from textual.strip import Strip

from gputui.document.spans import Line, Span, line_width
from gputui.document.table import Table, changed, columns_that_fit, lines_of
from gputui.document.theme import SELECTED
from gputui.errors import clean_text
from gputui.tui.terminal.renderer import shell_of, strip_of
from gputui.tui.widgets.cells import clean, fitted, in_ascii

LinesOf = Callable[[int], Iterable[Line]]
"""Lines for any width."""
MARKER = "▸ "
"""Before the selected entry; the others are indented as far."""
_GAP = 2


class ScrolledLines(ScrollView, can_focus=True):
    DEFAULT_CSS = """
    ScrolledLines {
        height: 1fr; background: ansi_default; overflow-x: hidden; scrollbar-size-vertical: 1;
    }
    """

    def on_mount(self) -> None:
        """Hide the scrollbar in ASCII mode: it is drawn with blocks."""
        if shell_of(self).ascii_only:
            self.styles.scrollbar_size_vertical = 0

    def _shown(self, lines: Iterable[Line]) -> tuple[Line, ...]:
        """In ASCII if the terminal has nothing else."""
        return tuple(map(in_ascii, lines)) if shell_of(self).ascii_only else tuple(lines)


class LinesPage(ScrolledLines):
    """Shows lines, marking those that are cut; arrow and page keys scroll."""

    def __init__(self, id: str | None = None) -> None:
        super().__init__(id=id)
        self._lines: tuple[Line, ...] = ()
        self._lines_of: LinesOf | None = None
        self._pinned = 0

    @property
    def text(self) -> str:
        return "\n".join(_text_of(line).rstrip() for line in self._lines)

    def show(self, lines: Iterable[Line], *, keeps_place: bool = False, pinned: int = 0) -> None:
        """Show these lines, from the top unless `keeps_place`; so many are `pinned` there."""
        self._lines, self._lines_of, self._pinned = self._shown(lines), None, pinned
        self.virtual_size = Size(self.size.width, len(self._lines))
        if not keeps_place:
            self.scroll_to(0, 0, animate=False)
        self.refresh()

    def show_at_any_width(self, lines_of: LinesOf, *, keeps_place: bool = False) -> None:
        """Show what is made for the width of the page, and for each width that it gets. One not laid out yet
        takes that of the screen: if the layout is asked for before it is drawn, Textual sends no size."""
        self.show(lines_of(self.size.width or self.screen.size.width), keeps_place=keeps_place)
        self._lines_of = lines_of

    def on_resize(self) -> None:
        if self._lines_of is not None:
            self.show_at_any_width(self._lines_of, keeps_place=True)

    def step(self, lines: int) -> None:
        self.scroll_relative(y=lines, animate=False)

    def render_line(self, y: int) -> Strip:
        place = y if y < self._pinned else y + self.scroll_offset.y
        line, width = self._lines[place] if place < len(self._lines) else (), self.size.width
        shell, room = shell_of(self), self.scrollable_content_region.width
        if line_width(line) > room > 0 and _text_of(line)[room:].strip(" ─"):  # no mark for the end of a rule
            (line,) = self._shown([fitted(line, room)])
        below = len(self._lines) - self.scroll_offset.y - self.size.height
        if shell.ascii_only and below > 0 and y == self.size.height - 1 > 0:  # there is no scrollbar
            more = f"  {below} more v"
            if len(_text_of(line).rstrip()) > width - len(more):  # half a line would say something else
                line, more = (), f"  {below + 1} more v"
            line = (*in_ascii(fitted(line, max(width - len(more), 0))), Span(more, "dim"))
        return strip_of(line, width, shell.palette)


def _text_of(line: Line) -> str:
    return "".join(span.text for span in line)


@dataclass(frozen=True, slots=True)
class Entry:
    lines: tuple[Line, ...]
    key: int = -1
    """What is selected with it; negative of a heading, which cannot be selected."""


class LinesList(ScrolledLines):
    """Entries below each other; arrows, page keys and clicks select one, enter chooses it."""

    BINDINGS = [  # noqa: RUF012 - Textual declares it so
        Binding("up,k", "step(-1)", show=False),
        Binding("down,j", "step(1)", show=False),
        Binding("pageup", "page(-1)", show=False),
        Binding("pagedown", "page(1)", show=False),
        Binding("home", "step(-1000000)", show=False),
        Binding("end", "step(1000000)", show=False),
        Binding("enter", "choose", show=False),
    ]

    class Selected(Message):
        """Another entry is selected."""

        def __init__(self, key: int) -> None:
            super().__init__()
            self.key = key

    class Chosen(Message):
        """Enter, or a click on the selected entry."""

        def __init__(self, key: int) -> None:
            super().__init__()
            self.key = key

    def __init__(self, id: str | None = None) -> None:
        super().__init__(id=id)
        self._placed: list[tuple[int, Line]] = []
        """Key and text of each line."""
        self._keys: list[int] = []
        """Of the entries that can be selected."""
        self._pinned = 0
        self.key = -1
        """Of the selected entry; negative if there is none."""
        self.text = ""

    def fill(self, entries: Sequence[Entry], text: str, key: int, *, pinned: int = 0) -> None:
        """Show these entries, and select the one with this key; the first if there is none. So many lines are
        `pinned` at the top."""
        self.text, self._pinned = text, pinned
        self._placed = [(entry.key, line) for entry in entries for line in self._shown(entry.lines)]
        self._keys = [entry.key for entry in entries if entry.key >= 0]
        self.key = key if key in self._keys else next(iter(self._keys), -1)
        self.virtual_size = Size(self.size.width, len(self._placed))
        self.call_after_refresh(self._show_selected)
        self.refresh()

    def select(self, key: int) -> None:
        if key in self._keys and key != self.key:
            self.key = key
            self.refresh()
            self.post_message(self.Selected(key))
        self._show_selected()

    def step(self, entries: int) -> None:
        """Select the entry that is so many after the selected one."""
        if keys := self._keys:
            self.select(keys[min(max(keys.index(self.key) + entries, 0), len(keys) - 1)])

    action_step = step

    def action_page(self, pages: int) -> None:
        self.step(pages * max(self.size.height - 1, 1))

    def action_choose(self) -> None:
        if self.key >= 0:
            self.post_message(self.Chosen(self.key))

    def on_click(self, event: events.Click) -> None:
        place = self._place(event.y)
        key = self._placed[place][0] if place < len(self._placed) else -1
        if key < 0:
            return
        event.stop()
        if key == self.key:
            self.post_message(self.Chosen(key))
        else:
            self.select(key)

    def on_resize(self) -> None:
        self.virtual_size = Size(self.size.width, len(self._placed))
        self.call_after_refresh(self._show_selected)

    def render_line(self, y: int) -> Strip:
        place, width, shell = self._place(y), self.size.width, shell_of(self)
        if place >= len(self._placed):
            return Strip.blank(width, Style.null())
        key, line = self._placed[place]
        is_selected = 0 <= key == self.key
        is_first = is_selected and (place == 0 or self._placed[place - 1][0] != key)
        marker = MARKER if is_first else " " * len(MARKER) if key >= 0 else ""
        if shell.ascii_only:
            marker = marker.replace("▸", ">")
        room = self.scrollable_content_region.width
        whole = (Span(marker, "accent"), *line)
        if not is_selected:
            return strip_of(fitted(whole, room), width, shell.palette)
        chosen = (Span(span.text, (span.style or "title") + SELECTED) for span in fitted(whole, room))
        return strip_of(tuple(chosen), room, shell.palette)

    def _place(self, y: int) -> int:
        """Of the line in a row of the widget."""
        return y if y < self._pinned else y + self.scroll_offset.y

    def _show_selected(self) -> None:
        """Scroll as little as needed; a heading above the first entry comes along."""
        rows = [row for row, (key, _) in enumerate(self._placed) if key == self.key]
        if not rows or not self.size.height:
            return
        top, height = self.scroll_offset.y, self.size.height
        first = 0 if rows[0] <= 1 else rows[0] - self._pinned
        if first < top:
            self.scroll_to(0, first, animate=False)
        elif rows[-1] >= top + height:
            self.scroll_to(0, rows[-1] - height + 1, animate=False)


class TableList(LinesList):
    """The rows of a table in the columns that fit, below its headings; one is selected."""

    def __init__(self, id: str | None = None) -> None:
        super().__init__(id=id)
        self._table = Table(())
        self._selectable: int | None = None

    def show_table(self, table: Table, key: int = 0, selectable: int | None = None) -> None:
        """Show these rows, and select the one in this place; only so many can be selected, the first."""
        self._table, self._selectable = table, selectable
        self._lay_out(key)

    def on_resize(self) -> None:
        self._lay_out(self.key)

    def _lay_out(self, selected: int) -> None:
        room = max((self.size.width or self.screen.size.width) - len(MARKER) - 1, 1)
        columns = columns_that_fit([changed(column, clean) for column in self._table.columns], room, _GAP)
        headings, *rows = lines_of(columns, room, gap=_GAP, cuts=True)
        lines = (self._table.headings, *self._table.rows)
        text = "\n".join("\t".join(map(clean_text, cells)) for cells in lines)
        margin, last = Span(" " * len(MARKER)), len(rows) if self._selectable is None else self._selectable
        entries = [
            Entry(row, place) if 0 <= place < last else Entry(tuple((margin, *line) for line in row))
            for place, row in enumerate((headings, *rows), -1)
        ]
        self.fill(entries, text, selected, pinned=1)
        self.refresh(layout=True)
