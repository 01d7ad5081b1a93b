"""The known result files: those found, and those opened by path."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from gputui.services.results.browser import FileEntry
from gputui.services.results.table_export import Sheet, files_sheet
from gputui.tui.screens.results.tables import FILE_HEADINGS, file_row
from gputui.tui.widgets.plain_table import PlainTable


class FilesTable(PlainTable):
    """A row for each file, last changed first."""

    def __init__(self, id: str | None = None) -> None:
        super().__init__(FILE_HEADINGS, id=id)
        self.files: tuple[FileEntry, ...] = ()
        """The file of each row."""
        self.opened: list[Path] = []
        """Files that were read, wherever they are: they stay in the list."""

    @property
    def here(self) -> FileEntry | None:
        """The file under the cursor."""
        return self.files[self.cursor_row] if self.cursor_row < len(self.files) else None

    @property
    def sheet(self) -> Sheet:
        """The whole table, to be saved."""
        return files_sheet(self.files)

    def hold(self, files: Sequence[FileEntry]) -> None:
        """Show these files; the cursor stays on its file."""
        here = self.here
        self.files = tuple(files)
        self.fill([file_row(entry) for entry in self.files])
        for place, entry in enumerate(self.files):
            if here is not None and entry.path == here.path:
                self.move_cursor(row=place)

    def remember(self, path: Path) -> None:
        """Keep a file that could be read in the list from now on."""
        if path not in self.opened:
            self.opened.append(path)
