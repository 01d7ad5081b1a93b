"""The lists of the Results screen, which are result files and the runs of one; and one run in tabs."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from datetime import datetime
from functools import partial
from pathlib import Path

from textual import events
from textual.app import ComposeResult
from textual.containers import Vertical
from textual.widget import Widget
from textual.widgets import ContentSwitcher, Tab, Tabs

from gputui.document.table import Column, Table, table_of
from gputui.model.absent import Missing
from gputui.model.result import CaseResult, RunSummary
from gputui.model.units import counted, format_bytes
from gputui.services.results.browser import (
    FileEntry,
    FileRuns,
    RunDetail,
    Sheet,
    breakdown_for,
    cases_sheet,
    operators_sheet,
    read_series,
    telemetry_sheet,
)
from gputui.services.results.labels import case_name, day, device_words
from gputui.services.results.step_breakdown import profiled_cases
from gputui.services.results.throughput import speeds_of
from gputui.services.run_page import whole_table
from gputui.store.reading import TelemetrySeries
from gputui.tui.screens.results_pages import case_page, overview_page
from gputui.tui.screens.timeline import BETWEEN_READINGS_US, PINNED, TimeWindow, at_cursor, share_at, timeline
from gputui.tui.shell.shell_screen import ShellScreen
from gputui.tui.widgets.cells import ends_of
from gputui.tui.widgets.charts import axis_cells
from gputui.tui.widgets.scrolled import LinesPage, TableList

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
        numbers = {key: f"*{number}" for number, key in enumerate(self.marked, 1)}
        marks = Column("", [numbers.get((contents.path, run_id), "") for run_id in ids])
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
        if self.here is None or self.contents is None:
            return
        key = self.contents.path, self.here.run_id
        if key in self.marked:
            self.marked.remove(key)
        else:
            self.marked.append(key)
        self.draw()
        self.step(1)


TABS = ("overview", "cases", "step", "timeline")
_SCROLLBAR = 1


class RunPane(Vertical):
    """The pages of a run, and the case and the moment that they show."""

    def __init__(self, id: str | None = None) -> None:
        super().__init__(id=id)
        self._series: tuple[TelemetrySeries, ...] = ()
        self._window: TimeWindow | None = None
        self._back_to = ""
        """The tab from which `enter` led to this one."""
        self.detail: RunDetail | None = None
        self.tabs: tuple[str, ...] = TABS
        """Those that the run has something for."""
        self._listed: list[CaseResult] = []
        self._case_id = -1  # none was chosen
        self._cases = TableList(id="cases")
        self._page = LinesPage(id="page")
        self._tabs = Tabs(*(Tab(name.capitalize(), id=name) for name in TABS))
        self._tabs.can_focus = False
        self._switcher = ContentSwitcher(self._cases, self._page, initial="cases", id="pages")

    def compose(self) -> ComposeResult:
        yield self._tabs
        yield self._switcher

    @property
    def _shell(self) -> ShellScreen:
        assert isinstance(self.screen, ShellScreen)
        return self.screen

    @property
    def tab(self) -> str:
        return str(self._tabs.active or TABS[0])

    @property
    def body(self) -> Widget:
        return self._cases if self.tab == "cases" else self._page

    def show(self, detail: RunDetail) -> None:
        """Show another run, from its first tab; tabs without content are hidden."""
        self.detail, self._series, self._window = detail, detail.series, None
        measured = speeds_of(detail.run)
        self._listed, self._case_id = [case for case, _ in measured], -1
        if detail.series or detail.spans:
            self._window = TimeWindow.over_all(detail.series, detail.spans)
        has_content = {"cases": self._listed, "step": self._with_steps(), "timeline": self._window}
        self.tabs = tuple(name for name in TABS if has_content.get(name, True))
        for name in TABS:
            if name in self.tabs:
                self._tabs.show(name)
            else:
                self._tabs.hide(name)
        if measured:
            self._cases.show_table(whole_table(detail.run, measured))
        self.show_tab(TABS[0])

    def show_tab(self, name: str, back_to: str = "") -> None:
        self._tabs.active, self._back_to = name, back_to
        self.draw()

    def go_back(self) -> bool:
        """Return to the tab from which this one was opened; False if none was."""
        if not self._back_to:
            return False
        self.show_tab(self._back_to)
        return True

    def step_tab(self, step: int) -> None:
        """Move by this many tabs, wrapping around."""
        self.show_tab(self.tabs[(self.tabs.index(self.tab) + step) % len(self.tabs)])

    def step_case(self, step: int) -> None:
        """Move by this many cases; on the timeline by this many launches."""
        detail, cases = self.detail, self._with_steps()
        if self.tab == "timeline" and detail is not None and detail.spans:
            self.change_window(lambda window: window.next_span(detail.spans, step))
        elif self.shown_case is not None:
            place = cases.index(self.shown_case)
            self._case_id = cases[(place + step) % len(cases)].case_id
            self.draw()

    def change_window(self, change: Callable[[TimeWindow], TimeWindow]) -> None:
        """Change the window of the telemetry: draw what is loaded at once, read what is missing."""
        detail, before = self.detail, self._window
        if self.tab != "timeline" or detail is None or before is None:
            return
        self._window = now = change(before)
        if now.is_whole:
            self._series = detail.series
        elif (now.from_us, now.to_us) != (before.from_us, before.to_us):
            run_id = detail.run.summary.run_id
            within_us = now.from_us - BETWEEN_READINGS_US, now.to_us + BETWEEN_READINGS_US
            self._shell.begin(
                lambda job: read_series(detail.path, run_id, within_us, job), partial(self._take_series, now)
            )
        self._draw_timeline(keeps_place=True)

    def open_further(self) -> None:
        """From the timeline to the step of what was timed at its cursor."""
        if self.tab == "timeline" and self.detail is not None and self._window is not None:
            found = at_cursor(self.detail, self._window)
            if found is not None and found[0] in self._with_steps():
                self._open_case(found[0])

    def _open_case(self, case: CaseResult) -> None:
        self._case_id = case.case_id
        self.show_tab("step", back_to=self.tab)

    def step_cursor(self, cells: int) -> None:
        width = self._page_cells
        self.change_window(lambda window: window.stepped(cells / (width - axis_cells(width))))

    def _take_series(self, window: TimeWindow, series: tuple[TelemetrySeries, ...]) -> None:
        """Show what was read for a window, if it is still the current one."""
        shown = self._window
        if shown is not None and (shown.from_us, shown.to_us) == (window.from_us, window.to_us):
            self._series = series
            self._draw_timeline(keeps_place=True)

    def on_click(self, event: events.Click) -> None:
        share = share_at(event.screen_x, self._page_cells)
        if 0 <= share <= 1:
            self.change_window(lambda window: window.at(share))

    def draw(self) -> None:
        detail, case = self.detail, self.shown_case
        if detail is None:
            return
        self._switcher.current = "cases" if self.tab == "cases" else "page"
        width = self._page_cells
        if self.tab == "overview":
            self._page.show(overview_page(detail, width))
        elif case is not None:
            self._page.show(case_page(detail, case, width))
        self._draw_timeline()
        cases = self._with_steps()
        told = "" if case is None else f"{case_name(case)}  (case {cases.index(case) + 1} of {len(cases)})"
        self._shell.say(told, "accent")
        self.body.focus()

    def on_tabs_tab_activated(self, event: Tabs.TabActivated) -> None:
        event.stop()
        if self.display:
            self.draw()

    def on_lines_list_chosen(self, event: TableList.Chosen) -> None:
        event.stop()
        self._open_case(self._listed[event.key])

    def sheet(self) -> Sheet | Missing:
        """What the tab shows, to be saved; Missing with the reason where that is not a table."""
        detail, case = self.detail, self.shown_case
        if detail is None:
            return Missing("no run is shown")
        if self.tab == "timeline" and self._window is not None:
            return telemetry_sheet(detail, self._series, (self._window.from_us, self._window.to_us))
        if case is None:
            return cases_sheet(detail)
        breakdown = breakdown_for(detail, case)
        if isinstance(breakdown, Missing):
            return breakdown
        return operators_sheet(detail, case, breakdown.operators)

    @property
    def shown_case(self) -> CaseResult | None:
        """The one that was chosen, else that of the headline; None on a tab of the whole run."""
        cases = self._with_steps()
        if self.tab != "step" or not cases:
            return None
        return next((case for case in cases if case.case_id == self._case_id), cases[0])

    def _with_steps(self) -> list[CaseResult]:
        """The cases that were profiled, that of the headline first, and then those that were only timed."""
        if self.detail is None:
            return []
        profiled = profiled_cases(self.detail.run, self.detail.passes)
        return [*profiled, *(case for case in self._listed if case not in profiled)]

    @property
    def _page_cells(self) -> int:
        return self.screen.size.width - _SCROLLBAR

    def _draw_timeline(self, *, keeps_place: bool = False) -> None:
        if self.detail is not None and self._window is not None and self.tab == "timeline":
            lines = timeline(self.detail, self._series, self._window, self._page_cells)
            self._page.show(lines, keeps_place=keeps_place, pinned=PINNED)
