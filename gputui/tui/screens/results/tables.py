"""The lists of the Results screen: result files, and the runs of one."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from datetime import datetime
from pathlib import Path

from gputui.document.table import Column, Table, table_of
from gputui.model.result import RunSummary
from gputui.model.units import counted, format_bytes
from gputui.services.results.browser import FileEntry, FileRuns
from gputui.services.results.labels import day, device_words
from gputui.tui.widgets.cells import ends_of
from gputui.tui.widgets.scrolled import TableList

_LABEL_CELLS = 14
"""Where there is too little room for whole labels."""


def files_table(entries: Iterable[FileEntry]) -> Table:
    """Name, size, time of the last change, directory."""
    rows = [
        (
            f"{entry.path.name} (default)" if entry.is_default else entry.path.name,
            format_bytes(entry.total_bytes),
            f"{datetime.fromtimestamp(entry.modified_s):%Y-%m-%d %H:%M}",
            str(entry.path.parent),
        )
        for entry in entries
    ]
    return table_of(("file", "size", "changed", "in"), rows, (1,), breaks=(0, 3))


class RunsTable(TableList):
    """A row for each run that matches the filter, newest first; marks are kept across files."""

    def __init__(self, id: str | None = None) -> None:
        super().__init__(id=id)
        self.contents: FileRuns | None = None
        """The contents of the file; None before one was read."""
        self.marked: list[tuple[Path, str]] = []
        """File and id, in the order of marking."""
        self.filter_text = ""
        self.shown: Sequence[RunSummary] = ()

    @property
    def here(self) -> RunSummary | None:
        """The selected run."""
        return self.shown[self.key] if 0 <= self.key < len(self.shown) else None

    @property
    def heading(self) -> str:
        """File, number of runs shown, and of those marked."""
        if self.contents is None:
            return ""
        marks = f", {len(self.marked)} marked" if self.marked else ""
        count = len(self.shown)
        of = f"{count} of {len(self.contents.runs)} holding {self.filter_text}"
        words = of if self.filter_text else counted(count, "run")
        return f"{self.contents.path.name}: {words}{marks}"

    def hold(self, contents: FileRuns) -> None:
        """Show the contents of a file; marks of runs that no longer exist are removed."""
        there = {run.run_id for run in contents.runs}
        self.marked = [key for key in self.marked if key[0] != contents.path or key[1] in there]
        self.contents = contents
        self.draw()

    def draw(self) -> None:
        """Show the rows; the cursor stays on its run."""
        contents, here = self.contents, self.here
        if contents is None:
            return
        wanted = self.filter_text.casefold()
        rows = {
            run.run_id: (run.short_id, day(run), run.label, run.profile, run.status, device_words(run))
            for run in contents.runs
        }
        self.shown = [run for run in contents.runs if wanted in "\t".join(rows[run.run_id]).casefold()]
        ids = [run.run_id for run in self.shown]
        place = ids.index(here.run_id) if here is not None and here.run_id in ids else max(self.key, 0)
        short, when, labels, profiles, status, devices = (
            [rows[run_id][column] for run_id in ids] for column in range(6)
        )
        narrow = Column("label", [ends_of(label, _LABEL_CELLS) for label in labels])
        marks = Column("", [self._mark_of(run_id) for run_id in ids])
        columns = (
            *((marks,) if any(marks.texts) else ()),
            Column("run", short),
            Column("when", when),
            Column("label", labels, priority=1, narrow=narrow),
            Column("profile", profiles),
            Column("status", status),
            Column("device", devices, breaks=True),
        )
        self.show_table(Table(columns), min(place, len(ids) - 1))

    def mark(self) -> None:
        """Mark or unmark the selected run, and go on to the next row."""
        if self.here is None or self.contents is None:
            return
        key = self.contents.path, self.here.run_id
        if key in self.marked:
            self.marked.remove(key)
        else:
            self.marked.append(key)
        self.draw()
        self.step(1)

    def _mark_of(self, run_id: str) -> str:
        key = (Path() if self.contents is None else self.contents.path), run_id
        return f"*{self.marked.index(key) + 1}" if key in self.marked else ""
