"""A stock table whose cells are plain text: no markup, and cuts are marked."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import accumulate

from rich.segment import Segment
from rich.text import Text
from textual.coordinate import Coordinate
from textual.strip import Strip
from textual.widgets import DataTable

from gputui.document.spans import width_of
from gputui.store.text import clean_text
from gputui.tui.widgets.app_context import shell_of
from gputui.tui.widgets.cells import ends_of, text_in_ascii

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
