"""What scrolls: a page of lines, a list of entries of which one is selected, a stock table of plain text."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import accumulate

from rich.segment import Segment
from rich.style import Style
from rich.text import Text
from textual import events
from textual.binding import Binding
from textual.coordinate import Coordinate
from textual.geometry import Size
from textual.message import Message
from textual.scroll_view import ScrollView
from textual.strip import Strip
from textual.widgets import DataTable

from gputui.document.spans import Line, Span, line_width, width_of
from gputui.document.theme import SELECTED
from gputui.store.text import clean_text
from gputui.tui.terminal.renderer import strip_of
from gputui.tui.widgets.app_context import shell_of
from gputui.tui.widgets.cells import ends_of, fitted, in_ascii, text_in_ascii

LinesOf = Callable[[int], Iterable[Line]]
"""Lines for any width."""
MARKER = "▸ "
"""Before the selected entry; the others are indented as far."""


class ScrolledLines(ScrollView, can_focus=True):
    """What a page and a list have in common."""

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
        """The page as plain text."""
        return "\n".join(_text_of(line).rstrip() for line in self._lines)

    def show(self, lines: Iterable[Line], *, keeps_place: bool = False, pinned: int = 0) -> None:
        """Show these lines, from the top unless `keeps_place`; so many are `pinned` there."""
        self._lines, self._lines_of, self._pinned = self._shown(lines), None, pinned
        self.virtual_size = Size(self.size.width, len(self._lines))
        if not keeps_place:
            self.scroll_to(0, 0, animate=False)
        self.refresh()

    def show_at_any_width(self, lines_of: LinesOf, *, keeps_place: bool = False) -> None:
        """Show what is made for the width of the page, and for each width that it gets."""
        self.show(lines_of(self.size.width) if self.size.width else (), keeps_place=keeps_place)
        self._lines_of = lines_of

    def on_resize(self) -> None:
        if self._lines_of is not None:
            self.show_at_any_width(self._lines_of, keeps_place=True)

    def show_marked(self) -> None:
        """Scroll as far as it takes for the line with a mark in its margin to be in sight."""
        marks = (row for row, line in enumerate(self._lines) if _text_of(line).startswith((" ▸ ", " > ")))
        marked = next(marks, 0)
        least, most = marked + 1 - self.size.height, max(marked - self._pinned, 0)
        self.scroll_to(y=min(max(self.scroll_offset.y, least), most), animate=False)

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
            line = (*in_ascii(fitted(line, max(width - len(more), 0))), Span(more, "dim"))
        return strip_of(line, width, shell.palette)


def _text_of(line: Line) -> str:
    return "".join(span.text for span in line)


@dataclass(frozen=True, slots=True)
class Entry:
    """Some lines that belong together."""

    lines: tuple[Line, ...]
    key: int = -1
    """What is selected with it; negative of a heading, which cannot be selected."""


class LinesList(ScrolledLines):
    """Entries below each other; arrows, page keys and clicks select one, enter chooses it."""

    BINDINGS = [  # noqa: RUF012 - Textual declares it so
        Binding("up", "step(-1)", show=False),
        Binding("down", "step(1)", show=False),
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
        self.key = -1
        """Of the selected entry; negative if there is none."""
        self.text = ""
        """What is copied."""

    def fill(self, entries: Sequence[Entry], text: str, key: int) -> None:
        """Show these entries, and select the one with this key; the first if there is none."""
        self.text = text
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
        place = event.y + self.scroll_offset.y
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
        place, width, shell = y + self.scroll_offset.y, self.size.width, shell_of(self)
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

    def _show_selected(self) -> None:
        """Scroll as little as needed; a heading above the first entry comes along."""
        rows = [row for row, (key, _) in enumerate(self._placed) if key == self.key]
        if not rows or not self.size.height:
            return
        top, height = self.scroll_offset.y, self.size.height
        first = 0 if rows[0] <= 1 else rows[0]
        if first < top:
            self.scroll_to(0, first, animate=False)
        elif rows[-1] >= top + height:
            self.scroll_to(0, rows[-1] - height + 1, animate=False)


CURSOR = "▸"
"""Before the selected row, as in our own lists: a tint alone is hard to see on some backgrounds."""
CUT = "…"
"""Marks content beyond the edge; `left` and `right` scroll there."""


class PlainTable(DataTable[Text]):
    """Rows of text under headings; the cursor selects a row."""

    DEFAULT_CSS = """
    PlainTable:ansi > .datatable--header {
        background: ansi_default; color: ansi_default; text-style: bold;
    }
    """

    def __init__(self, headings: Sequence[str] = (), id: str | None = None) -> None:
        super().__init__(id=id, cursor_type="row", cell_padding=1)
        self._headings = tuple(headings)
        self.keys: Sequence[str] = ()
        """Of the rows; empty where they are told by their place."""
        self._texts: list[tuple[str, ...]] = []
        self._widest: dict[int, int] = {}
        self._indent = ""
        """Between the cursor's mark and the text; a first column without a heading has its own blanks."""

    @property
    def key(self) -> str:
        """Of the row under the cursor; empty if there is none."""
        return self.keys[self.cursor_row] if self.cursor_row < len(self.keys) else ""

    @property
    def text(self) -> str:
        """The table as tab-separated lines, including what does not fit on the screen."""
        return "\n".join("\t".join(cells) for cells in (self._headings, *self._texts))

    def fill(
        self,
        rows: Sequence[Sequence[str]],
        headings: Sequence[str] | None = None,
        widest: Mapping[int, int] | None = None,
        keys: Sequence[str] = (),
    ) -> None:
        """Show these rows; the cursor stays on the row with its key, else in its place.

        `widest` limits the cells shown, by column.
        """
        place = keys.index(self.key) if self.key in keys else self.cursor_row
        self.keys = keys
        self._headings = tuple(headings) if headings is not None else self._headings
        self._widest = dict(widest or {})
        self._texts = [tuple(clean_text(cell) for cell in cells) for cells in rows]
        self._indent = " " if self._headings and self._headings[0] else ""
        shown = [[self._shown(column, text) for column, text in enumerate(cells)] for cells in self._texts]
        # Recreate the columns with their widths: those of the stock table only grow, when it is idle.
        self.clear(columns=True)
        for column, heading in enumerate(self._headings):
            label = self._indent + heading if column == 0 else heading
            width = max(map(width_of, (label, *(cells[column] for cells in shown))))
            self.add_column(Text(label), width=width)
        for cells in shown:
            self.add_row(*(Text(cell, no_wrap=True) for cell in cells))
        self.move_cursor(row=min(place, max(len(rows) - 1, 0)))

    def change(self, row: int, column: int, text: str) -> None:
        """Change the text of one cell: faster than filling a long table again."""
        cells = self._texts[row]
        text = clean_text(text)
        if text == cells[column]:
            return
        self._texts[row] = (*cells[:column], text, *cells[column + 1 :])
        shown = self._shown(column, text)
        if width_of(shown) > self.ordered_columns[column].width:
            self.fill(self._texts, widest=self._widest, keys=self.keys)
        else:
            self.update_cell_at(Coordinate(row, column), Text(shown, no_wrap=True))

    def step(self, rows: int) -> None:
        self.move_cursor(row=max(self.cursor_row + rows, 0))

    def render_line(self, y: int) -> Strip:
        """A row, with a mark at each edge that it extends beyond; the selected one begins with its own."""
        strip = super().render_line(y)
        if y and self.show_cursor and self.row_count and y + self.scroll_offset.y - 1 == self.cursor_row:
            strip = _marked(strip, 0, self._plain(CURSOR))
        width, left = self.scrollable_content_region.width, self.scroll_offset.x
        if width < 2 or self.virtual_size.width <= width:
            return strip
        begins, ends = self._extent(y)
        mark = self._plain(CUT)
        if ends - left > width:
            strip = _marked(strip, width - 1, mark)
        if begins < left:
            strip = _marked(strip, 0, mark)
        return strip

    def _extent(self, y: int) -> tuple[int, int]:
        """Where the text of a screen line begins and ends, in cells from the left edge of the table."""
        columns = self.ordered_columns
        starts = [0, *accumulate(column.get_render_width(self) for column in columns)]
        row = y + self.scroll_offset.y - 1
        if y == 0:
            texts = [column.label.plain for column in columns]
        elif row < self.row_count:
            texts = [cell.plain for cell in self.get_row_at(row)]
        else:
            return 0, 0
        extents = [
            (start + self.cell_padding, start + self.cell_padding + width_of(text))
            for start, text in zip(starts, texts, strict=False)
            if text.strip()
        ]
        return (extents[0][0], extents[-1][1]) if extents else (0, 0)

    def _shown(self, column: int, text: str) -> str:
        """The text as its column shows it, in characters that the terminal supports."""
        short = ends_of(text, self._widest[column]) if column in self._widest else text
        # Columns are as wide as their cells, so this one may get longer.
        plain = self._plain(short.replace("±", "+-") if shell_of(self).ascii_only else short)
        return self._indent + plain if column == 0 else plain

    def _plain(self, text: str) -> str:
        return text_in_ascii(text) if shell_of(self).ascii_only else text


def _marked(strip: Strip, x: int, mark: str) -> Strip:
    """With a mark in one cell, in the style of the text it covers."""
    covered = list(strip.crop(x, x + 1))
    style = covered[0].style if covered else None
    cells = strip.cell_length
    return Strip([*strip.crop(0, x), Segment(mark, style), *strip.crop(x + 1, cells)], cells)
