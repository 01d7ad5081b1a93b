"""A stock table whose cells are plain text: nothing in them is taken for markup."""

from __future__ import annotations

from collections.abc import Sequence

from rich.text import Text
from textual.widgets import DataTable

from gputui.store.text import clean_text
from gputui.tui.lines import Span
from gputui.tui.monitor.plain_ascii import in_ascii
from gputui.tui.shell import shell_of


class PlainTable(DataTable[Text]):
    """Rows of text under headings; the cursor is a row."""

    def __init__(self, headings: Sequence[str] = (), id: str | None = None) -> None:
        super().__init__(id=id, cursor_type="row", cell_padding=1)
        self.add_columns(*map(Text, headings))
        self._headings = tuple(headings)
        self._texts: list[tuple[str, ...]] = []

    @property
    def text(self) -> str:
        """What it holds, as lines with tabs."""
        return "\n".join("\t".join(cells) for cells in (self._headings, *self._texts))

    def fill(self, rows: Sequence[Sequence[str]], headings: Sequence[str] | None = None) -> None:
        """Show these rows; the cursor stays in its place as far as there are rows."""
        place = self.cursor_row
        self.clear(columns=headings is not None)
        if headings is not None:
            self._headings = tuple(headings)
            self.add_columns(*map(Text, headings))
        self._texts = [tuple(clean_text(cell) for cell in cells) for cells in rows]
        for cells in self._texts:
            self.add_row(*(Text(self._plain(cell), no_wrap=True) for cell in cells))
        self.move_cursor(row=min(place, max(len(rows) - 1, 0)))

    def step(self, rows: int) -> None:
        """Move the cursor."""
        self.move_cursor(row=max(self.cursor_row + rows, 0))

    def _plain(self, text: str) -> str:
        if not shell_of(self).ascii_only:
            return text
        return "".join(span.text for span in in_ascii((Span(text),)))
