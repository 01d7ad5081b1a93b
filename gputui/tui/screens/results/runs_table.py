"""The runs of one file: filtered, sorted, marked."""

from __future__ import annotations

from pathlib import Path

from gputui.model.result import RunSummary
from gputui.services.results.browser import FileRuns
from gputui.services.results.table_export import Sheet, runs_sheet
from gputui.store.selecting import MAX_LABEL
from gputui.tui.screens.results.tables import (
    MARK,
    RUN_HEADINGS,
    RUN_ORDERS,
    holds_text,
    run_row,
    sorted_runs,
)
from gputui.tui.widgets.plain_table import PlainTable

_MARK, _LABEL = RUN_HEADINGS.index(""), RUN_HEADINGS.index("label")
_WIDE, _LABEL_CELLS = 150, 14
"""From this width of the screen on labels are shown in full; below it status and box take precedence."""


class RunsTable(PlainTable):
    """A row for each run that matches the filter; marks are kept across files."""

    def __init__(self, id: str | None = None) -> None:
        super().__init__(RUN_HEADINGS, id=id)
        self.contents: FileRuns | None = None
        """The contents of the file; None before one was read."""
        self.shown: list[RunSummary] = []
        """The run of each row."""
        self.marked: list[tuple[Path, str]] = []
        """File and id, in the order of marking."""
        self.filter_text = ""
        self._order = 0
        self._cells: dict[str, tuple[str, ...]] = {}
        """Of each run, without its mark."""
        self._read_state: tuple[int, int] = (0, 0)

    @property
    def here(self) -> RunSummary | None:
        """The run under the cursor."""
        return self.shown[self.cursor_row] if self.cursor_row < len(self.shown) else None

    @property
    def heading(self) -> str:
        """File, number of runs shown and their order, and the number of marked ones."""
        if self.contents is None:
            return ""
        marks = f", {len(self.marked)} marked" if self.marked else ""
        count = len(self.shown)
        of = f" of {len(self.contents.runs)} holding {self.filter_text}," if self.filter_text else ""
        of = of or (" run" if count == 1 else " runs")
        return f"{self.contents.path.name}: {count}{of} by {RUN_ORDERS[self._order][0]}{marks}"

    @property
    def sheet(self) -> Sheet:
        """The visible runs, in their order, to be saved."""
        assert self.contents is not None
        return runs_sheet(self.contents.path, self.shown)

    @property
    def is_outdated(self) -> bool:
        """Whether the file has changed since it was read."""
        return self.contents is not None and _changed(self.contents.path) != self._read_state

    def expect(self, path: Path) -> None:
        """A file is about to be read: later changes may be missing from what `hold` gets."""
        self._read_state = _changed(path)

    def hold(self, contents: FileRuns) -> None:
        """Show the contents of a file; marks of runs that no longer exist are removed."""
        there = {run.run_id for run in contents.runs}
        self.marked = [key for key in self.marked if key[0] != contents.path or key[1] in there]
        self.contents = contents
        self._cells = {run.run_id: run_row(run) for run in contents.runs}
        self.draw()

    def draw(self, keeps: str = "") -> None:
        """Draw the rows in the columns that fit the width, with the cursor on the run of this id."""
        contents = self.contents
        if contents is None:
            return
        rows = (
            (run, (self._mark_of(run), *self._cells[run.run_id]))
            for run in sorted_runs(contents.runs, self._order)
        )
        kept = [(run, cells) for run, cells in rows if holds_text(cells, self.filter_text)]
        self.shown = [run for run, _ in kept]
        room = _LABEL_CELLS if self.screen.size.width < _WIDE else MAX_LABEL
        self.fill([cells for _, cells in kept], widest={_LABEL: room})
        for place, run in enumerate(self.shown):
            if run.run_id == keeps:
                self.move_cursor(row=place)

    def redraw(self) -> None:
        """The same rows; the cursor stays on its run."""
        here = self.here
        self.draw(here.run_id if here else "")

    def sort_by_next(self) -> None:
        """Sort by the next of RUN_ORDERS."""
        here = self.here
        self._order = (self._order + 1) % len(RUN_ORDERS)
        self.draw(here.run_id if here else "")

    def mark(self) -> None:
        """Mark or unmark the run under the cursor, and go on to the next row."""
        run = self.here
        if run is None or self.contents is None:
            return
        key = (self.contents.path, run.run_id)
        if key in self.marked:
            self.marked.remove(key)
        else:
            self.marked.append(key)
        for row, one in enumerate(self.shown):
            self.change(row, _MARK, self._mark_of(one))
        self.action_cursor_down()

    def _mark_of(self, run: RunSummary) -> str:
        key = (self.contents.path, run.run_id) if self.contents else None
        return f"{MARK}{self.marked.index(key) + 1}" if key in self.marked else ""


def _changed(path: Path) -> tuple[int, int]:
    """Modification time and size of a file, without opening it."""
    try:
        found = path.stat()
    except OSError:
        return 0, 0
    return found.st_mtime_ns, found.st_size
