"""The panes of the Results screen: result files, the runs of one, and one run in tabs. Each does what keys
mean only in it."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from datetime import datetime
from functools import partial
from itertools import compress
from pathlib import Path

from textual.app import ComposeResult
from textual.containers import Vertical
from textual.message import Message
from textual.widget import Widget
from textual.widgets import ContentSwitcher, Tab, Tabs

from gputui.document.table import Column, Table, table_of
from gputui.model.absent import Missing
from gputui.model.result import CaseResult, RunSummary
from gputui.model.units import counted, format_bytes
from gputui.services.results.browser import (
    FileEntry,
    FileRuns,
    ListedRun,
    RunDetail,
    Sheet,
    breakdown_for,
    cases_sheet,
    operators_sheet,
    read_detail,
    read_runs,
    runs_sheet,
)
from gputui.services.results.labels import case_name, day, device_words
from gputui.services.results.step_breakdown import profiled_cases
from gputui.services.results.throughput import speeds_of
from gputui.services.run_page import whole_table
from gputui.services.support.background import Job
from gputui.store.selecting import check_label
from gputui.store.writing import label_run, remove_run
from gputui.tui.screens.results_pages import ask_for_sheet, case_page, overview_page
from gputui.tui.screens.timeline import TimelinePage
from gputui.tui.shell.shell_screen import AskText, Confirm, Field, screen_of
from gputui.tui.widgets.cells import ends_of
from gputui.tui.widgets.scrolled import LinesPage, TableList

_LABEL_CELLS = 14
"""Where there is too little room for whole labels."""
_HIGH = 20
"""From this height on, what the selected run says stands below the list."""


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


def matching_runs(runs: Iterable[RunSummary], text: str) -> list[RunSummary]:
    """Those that have a text in one of their columns."""
    return [run for run in runs if text.casefold() in "\t".join(_columns_of(run)).casefold()]


def runs_table(runs: Sequence[RunSummary], marks: Sequence[str]) -> Table:
    """A row for each run, behind its mark if any has one."""
    rows = map(_columns_of, runs)
    short, when, labels, profiles, status, devices = zip(*rows, strict=True) if runs else ((),) * 6
    narrow = Column("label", [ends_of(label, _LABEL_CELLS) for label in labels])
    return Table(
        (
            *((Column("", marks),) if any(marks) else ()),
            Column("run", short),
            Column("when", when),
            Column("label", labels, priority=1, narrow=narrow),
            Column("profile", profiles),
            Column("status", status),
            Column("device", devices, breaks=True),
        )
    )


def _columns_of(run: RunSummary) -> tuple[str, ...]:
    return run.short_id, day(run), run.label, run.profile, run.status, device_words(run)


class RunHolder(Vertical):
    """A pane in which a run is selected, which can be renamed and removed."""

    class FileChanged(Message):
        """What the file holds now, and a message that says what was changed."""

        def __init__(self, contents: FileRuns, message: str) -> None:
            super().__init__()
            self.contents = contents
            self.message = message

    here: ListedRun | None = None
    """The selected run."""

    def action_label(self) -> None:
        if self.here is None:
            return
        screen_of(self).give_up_quietly()
        run, path = self.here.summary, self.here.path

        def labelled(text: str) -> None:
            if text != run.label:
                message = f"{run.short_id} is now {text}" if text else f"{run.short_id} has no label now"
                self._change(path, lambda: label_run(path, run.run_id, check_label(text)), message)

        question = f"Label of {run.short_id}; leave it empty to remove it"
        screen_of(self).ask(AskText(question, run.label), labelled)

    def action_delete(self) -> None:
        if self.here is None:
            return
        run, path = self.here.summary, self.here.path
        label = f" ({run.label})" if run.label else ""
        question = (
            f"Remove run {run.short_id}{label}: {run.profile}, {run.status}, {day(run)},"
            f" from {path}? This cannot be undone."
        )
        remove, message = partial(remove_run, path, run.run_id), f"removed {run.short_id}"
        screen_of(self).ask(Confirm(question), lambda is_yes: self._change(path, remove, message))

    def _change(self, path: Path, change: Callable[[], None], message: str) -> None:
        """Write to the file in the background, then read what it holds."""

        def work(job: Job[FileRuns]) -> FileRuns:
            change()
            return read_runs(path, job)

        def done(now: FileRuns) -> None:
            self.post_message(self.FileChanged(now, f"{message} in {path.name}"))

        screen_of(self).begin(work, done, writes=True)


class RunsPane(RunHolder):
    """A row for each run of a file that matches the filter, newest first, and what the selected one says;
    marks are kept across files."""

    def __init__(self, id: str | None = None) -> None:
        super().__init__(id=id)
        self.contents = FileRuns(Path(), (), ())
        """Of no file before one was read."""
        self.marked: list[tuple[Path, str]] = []
        """File and id, in the order of marking."""
        self.shown: Sequence[RunSummary] = ()
        self._table = TableList()
        self._preview = LinesPage(id="preview")
        self._preview.can_focus = False
        self._previewed: RunDetail | None = None
        self._filter = Field(id="filter", placeholder="filter: enter keeps it, esc clears it")

    def compose(self) -> ComposeResult:
        yield self._table
        yield self._preview
        yield self._filter

    @property
    def heading(self) -> str:
        """File, number of runs shown, and of those marked."""
        marks = f", {len(self.marked)} marked" if self.marked else ""
        if elsewhere := sum(path != self.contents.path for path, _ in self.marked):
            marks += " elsewhere" if elsewhere == len(self.marked) else f", {elsewhere} elsewhere"
        count, text = len(self.shown), self._filter.value
        words = f"{count} of {len(self.contents.runs)} holding {text}" if text else counted(count, "run")
        return f"{self.contents.path.name}: {words}{marks}"

    def hold(self, contents: FileRuns) -> None:
        """Show the contents of a file; marks of runs that no longer exist are removed."""
        there = {run.run_id for run in contents.runs}
        self.marked = [key for key in self.marked if key[0] != contents.path or key[1] in there]
        self.contents, self._previewed = contents, None
        self._draw()

    def _draw(self) -> None:
        """Show the rows; the cursor stays on its run."""
        self.shown = matching_runs(self.contents.runs, self._filter.value)
        ids, at = [run.run_id for run in self.shown], max(self._table.key, 0)
        if self.here is not None and self.here.summary.run_id in ids:
            at = ids.index(self.here.summary.run_id)
        numbers = {key: f"*{number}" for number, key in enumerate(self.marked, 1)}
        marks = [numbers.get((self.contents.path, run_id), "") for run_id in ids]
        self._table.show_table(runs_table(self.shown, marks), min(at, len(ids) - 1))
        self._select()
        screen_of(self).refresh_lines()

    def _select(self) -> None:
        """The run at the cursor is the selected one."""
        at = self._table.key
        self.here = ListedRun(self.shown[at], self.contents.path) if at >= 0 else None
        self.draw_preview()

    def draw_preview(self) -> None:
        """What the selected run says; it is read in the background."""
        screen, here, (width, height) = screen_of(self), self.here, self.screen.size
        self._preview.display = has_room = height >= _HIGH
        self._table.styles.height = min(len(self.shown) + 2, height // 2) if has_room else "1fr"
        if not has_room or here is None or not self.display:
            return
        detail = self._previewed
        if detail is not None and detail.run.summary.run_id == here.summary.run_id:
            self._preview.show(overview_page(detail, width - 1))
        elif not screen.is_busy:

            def taken(detail: RunDetail) -> None:
                self._previewed = detail
                self.draw_preview()

            self._preview.show(())
            screen.begin(lambda job: read_detail(here.path, here.summary.run_id, job), taken, is_quiet=True)

    def on_resize(self) -> None:
        self.call_after_refresh(self.draw_preview)

    def on_lines_list_selected(self, event: TableList.Selected) -> None:
        event.stop()
        screen_of(self).give_up_quietly()
        self._select()

    def action_filter(self) -> None:
        self._filter.add_class("-shown")
        self._filter.focus()

    def on_input_changed(self) -> None:
        self._draw()

    def on_input_submitted(self) -> None:
        self._filter.remove_class("-shown")
        self._table.focus()

    def go_back(self) -> bool:
        """Show all runs again; False if nothing was typed, and nothing is."""
        if not (self._filter.value or self._filter.has_class("-shown")):
            return False
        self._filter.value = ""
        self.on_input_submitted()
        return True

    def action_mark(self) -> None:
        if self.here is None:
            return
        key = self.here.path, self.here.summary.run_id
        if key in self.marked:
            self.marked.remove(key)
        else:
            self.marked.append(key)
        self._draw()
        self._table.step(1)

    def action_save(self) -> None:
        ask_for_sheet(screen_of(self), runs_sheet(self.contents.path, self.shown))


TABS = ("overview", "cases", "step", "timeline")
_GIVES_WAY = {"95 % range": 0.3, "per step": 0.6, "blocks": 0.9}
"""Priorities of columns of cases: the last to go, where their names need the room."""


class RunPane(RunHolder):
    """The pages of a run, and the case that they show."""

    _detail: RunDetail
    _listed: list[CaseResult]
    _with_steps: list[CaseResult]
    """The cases that were profiled, that of the headline first, and then those that were only timed."""
    _case: CaseResult | None
    """Of which the step is shown."""

    def __init__(self, id: str | None = None) -> None:
        super().__init__(id=id)
        self._back_to = ""
        """The tab from which `enter` led to this one."""
        self.tabs: tuple[str, ...] = TABS
        """Those that the run has something for."""
        self._tabs = Tabs(*(Tab(name.capitalize(), id=name) for name in TABS))
        self._tabs.can_focus = False
        self._cases, self.page = TableList(id="cases"), LinesPage(id="page")
        self._timeline = TimelinePage(id="moments")
        self._switcher = ContentSwitcher(self._cases, self.page, self._timeline, initial="cases", id="pages")

    def compose(self) -> ComposeResult:
        yield self._tabs
        yield self._switcher

    @property
    def tab(self) -> str:
        return str(self._tabs.active or TABS[0])

    def hold(self, detail: RunDetail) -> None:
        """Show another run, from its first tab; tabs without content are hidden."""
        measured = speeds_of(detail.run)
        profiled = profiled_cases(detail.run, detail.passes)
        self.here = ListedRun(detail.run.summary, detail.path)
        self._detail, self._listed = detail, [case for case, _ in measured]
        self._with_steps = [*profiled, *(case for case in self._listed if case not in profiled)]
        self._case = next(iter(self._with_steps), None)
        moments = detail.series or detail.spans
        self.tabs = tuple(compress(TABS, (True, measured, self._with_steps, moments)))
        for name in TABS:
            if name in self.tabs:
                self._tabs.show(name)
            else:
                self._tabs.hide(name)
        if moments:
            self._timeline.hold(detail)
        if measured:
            columns = whole_table(detail.run, measured).written
            gives_way = (replace(one, priority=_GIVES_WAY.get(one.heading, one.priority)) for one in columns)
            self._cases.show_table(Table(tuple(gives_way)))
        self.show_tab(TABS[0])

    def show_tab(self, name: str, back_to: str = "") -> None:
        self._tabs.active, self._back_to = name, back_to
        self.draw()

    def draw(self) -> None:
        """The tab, if a run is shown: Textual names the first tab before there is one."""
        if self.here is None or not self.display:
            return
        case, width, said = self._case, self.screen.size.width - 1, ""
        bodies: dict[str, Widget] = {"cases": self._cases, "timeline": self._timeline}
        body = bodies.get(self.tab, self.page)
        if self.tab == "overview":
            self.page.show(overview_page(self._detail, width))
        elif self.tab == "timeline":
            self._timeline.draw()
        elif self.tab == "step" and case is not None:
            self.page.show(case_page(self._detail, case, width))
            count = len(self._with_steps)
            said = f"{case_name(case)}  (case {self._with_steps.index(case) + 1} of {count})"
        self._switcher.current = body.id
        body.focus()
        screen_of(self).say(said, "accent")

    def on_resize(self) -> None:
        self.call_after_refresh(self.draw)

    def on_tabs_tab_activated(self, event: Tabs.TabActivated) -> None:
        event.stop()
        self.draw()

    def on_lines_list_chosen(self, event: TableList.Chosen) -> None:
        event.stop()
        self._open_case(self._listed[event.key])

    def on_timeline_page_chosen(self, event: TimelinePage.Chosen) -> None:
        if event.case in self._with_steps:
            self._open_case(event.case)

    def _open_case(self, case: CaseResult) -> None:
        self._case = case
        self.show_tab("step", back_to=self.tab)

    def go_back(self) -> bool:
        """Return to the tab from which this one was opened; False if none was."""
        if self._back_to:
            self.show_tab(self._back_to)
            return True
        return False

    def action_step_tab(self, tabs: int) -> None:
        """Move by this many tabs, wrapping around."""
        self.show_tab(self.tabs[(self.tabs.index(self.tab) + tabs) % len(self.tabs)])

    def action_step_case(self, cases: int) -> None:
        if self.tab == "step" and self._case is not None:
            place = self._with_steps.index(self._case) + cases
            self._case = self._with_steps[place % len(self._with_steps)]
            self.draw()

    def action_save(self) -> None:
        """Ask for a name for the table of the tab, or where it has none for a trace."""
        case = self._case if self.tab == "step" else None
        ask_for_sheet(screen_of(self), sheet_of(self._detail, case), self._detail, case)


def sheet_of(detail: RunDetail, case: CaseResult | None) -> Sheet | Missing:
    """The operators of a case, else all cases of the run; Missing with the reason if it was not profiled."""
    if case is None:
        return cases_sheet(detail)
    breakdown = breakdown_for(detail, case)
    if isinstance(breakdown, Missing):
        return breakdown
    return operators_sheet(detail, case, breakdown.operators)
