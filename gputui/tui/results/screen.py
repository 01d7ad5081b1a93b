"""The Results screen: a list of files, the runs of one, and one run in tabs."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path

from rich.text import Text
from textual.app import ComposeResult
from textual.containers import Vertical
from textual.widgets import ContentSwitcher, DataTable, Input, Tab, Tabs

from gputui.errors import GputuiError
from gputui.model.absent import Missing
from gputui.model.result import CaseResult, RunSummary
from gputui.services.browsing import (
    FileEntry,
    FileRuns,
    RunDetail,
    read_detail,
    read_runs,
    recent_files,
)
from gputui.services.jobs import Job
from gputui.services.places import default_result_file
from gputui.services.selecting import split_selector
from gputui.services.wording import case_name, day
from gputui.store.editing import label_run, remove_run
from gputui.store.opening import expanded
from gputui.store.selecting import MAX_LABEL, check_label, find_run
from gputui.store.text import clean_text
from gputui.tui.dialogs import AskText, Confirm
from gputui.tui.lines import Line
from gputui.tui.lines_page import LinesPage
from gputui.tui.monitor.cells import cut
from gputui.tui.results import pages
from gputui.tui.results.actions import ACTIONS
from gputui.tui.results.tables import (
    CASE_HEADINGS,
    FILE_HEADINGS,
    GROUPS,
    MARK,
    OPERATOR_HEADINGS,
    OPERATOR_ORDERS,
    RUN_HEADINGS,
    RUN_ORDERS,
    CaseRow,
    case_rows,
    file_row,
    holds_text,
    operator_rows,
    run_row,
    sorted_runs,
)
from gputui.tui.shell import ShellScreen, bindings_of, shell_of

TABS = ("cases", "blocks", "operators", "step", "memory", "telemetry", "environment", "findings")
_LABEL = RUN_HEADINGS.index("label")
_WIDE, _LABEL_CELLS = 100, 14
"""From this width on labels are shown whole; below it status and box are worth more."""
_OF_A_CASE = ("blocks", "operators", "step", "memory")
_HINTS = {
    "files": ("enter", "open-path", "reload", "back"),
    "runs": ("enter", "filter", "sort", "mark", "compare", "label", "delete", "back"),
    "run": ("next-tab", "back", "compare"),
    "run of a case": ("next-tab", "next-case", "back"),
    "operators": ("next-tab", "next-case", "filter", "sort", "group", "back"),
    "notice": ("open-path", "reload", "back"),
}


class ResultsScreen(ShellScreen):
    """Files, runs, one run; each level is left by esc."""

    ID = "results"
    ACTIONS = ACTIONS
    BINDINGS = bindings_of(ACTIONS)
    DEFAULT_CSS = """
    ResultsScreen #level, ResultsScreen #pages { height: 1fr; }
    ResultsScreen Vertical { height: 1fr; }
    ResultsScreen #filter { display: none; }
    ResultsScreen #filter.-shown { display: block; }
    """

    def __init__(self) -> None:
        super().__init__()
        self._files: tuple[FileEntry, ...] = ()
        self._opened: list[Path] = []
        self._held: FileRuns | None = None
        self._shown: list[RunSummary] = []
        self._order = 0
        self._filter = ""
        self._marked: list[tuple[Path, str]] = []
        self._detail: RunDetail | None = None
        self._case_rows: list[CaseRow] = []
        self._case_id = 0
        self._group = self._operator_order = 0
        self._operator_filter = ""
        self._words: tuple[str, ...] = ()
        self._notice_heading = ""
        self._behind_notice = "files"

    def compose_body(self) -> ComposeResult:
        """The three levels, and the page for what cannot be shown."""
        with ContentSwitcher(initial="notice", id="level"):
            yield self._table("files", FILE_HEADINGS)
            yield self._table("runs", RUN_HEADINGS)
            with Vertical(id="run"):
                yield Tabs(*(Tab(name.capitalize(), id=name) for name in TABS))
                with ContentSwitcher(initial="cases", id="pages"):
                    yield self._table("cases", CASE_HEADINGS)
                    yield self._table("operators", OPERATOR_HEADINGS)
                    yield LinesPage(id="page")
            yield LinesPage(id="notice")
        field = Input(id="filter", placeholder="filter: enter keeps it, esc drops it")
        field.cursor_blink = False
        yield field

    def on_mount(self) -> None:
        """The runs of the default file if there is one, else the files."""
        self.is_ready = True
        self.query_one(Tabs).can_focus = False
        if self._words:
            self.show_words(self._words)
        else:
            default = expanded(default_result_file()).absolute()
            self._list_files(opens=default if default.is_file() else None)

    def show_words(self, words: tuple[str, ...]) -> None:
        """Open `F` or `F@RUN`."""
        self._words = words
        if self.is_ready:
            path, run = split_selector(words[0])
            self.open_file(path.absolute(), run)

    @property
    def level(self) -> str:
        """`files`, `runs`, `run` or `notice`."""
        return str(self.query_one("#level", ContentSwitcher).current)

    @property
    def tab(self) -> str:
        """One of TABS."""
        return str(self.query_one(Tabs).active or TABS[0])

    def heading(self) -> str:
        """Where one is."""
        match self.level:
            case "files":
                return "result files"
            case "runs" if self._held is not None:
                marks = f", {len(self._marked)} marked" if self._marked else ""
                by = RUN_ORDERS[self._order][0]
                count = len(self._shown)
                of = f" of {len(self._held.runs)} holding {self._filter}," if self._filter else ""
                of = of or (" run" if count == 1 else " runs")
                return f"{self._held.path.name}: {count}{of} by {by}{marks}"
            case "run" if self._detail is not None:
                summary = self._detail.run.summary
                return f"{summary.short_id} {summary.label or summary.profile}, {day(summary)}"
        return self._notice_heading

    def hints(self) -> tuple[str, ...]:
        """The keys of the level, and of the tab."""
        if self.level != "run":
            return _HINTS[self.level]
        if self.tab == "operators":
            return _HINTS["operators"]
        return _HINTS["run of a case" if self.tab in _OF_A_CASE else "run"]

    # files

    def _list_files(self, opens: Path | None = None) -> None:
        self._notice("looking for result files", ())
        self.begin(
            lambda job: recent_files(Path.cwd(), tuple(self._opened)),
            lambda files: self._take_files(files, opens),
            self._notice_error,
        )

    def _take_files(self, files: tuple[FileEntry, ...], opens: Path | None) -> None:
        self._files = files
        if opens is not None:
            self.open_file(opens)
            return
        if not files:
            self._notice(
                "no result files",
                (
                    *pages.paragraph("No runs yet.", self.size.width, "title"),
                    (),
                    *pages.paragraph("Measure this box: press 2, or in a shell", self.size.width),
                    *pages.paragraph("  gputui run quick", self.size.width, "accent"),
                    (),
                    *pages.paragraph(
                        f"Looked in {default_result_file().parent} and {Path.cwd()}. Elsewhere: press o.",
                        self.size.width,
                        "dim",
                    ),
                ),
            )
            return
        self._fill("files", [file_row(entry) for entry in files])
        self._show_level("files")

    # runs

    def open_file(self, path: Path, run: str = "") -> None:
        """Read the runs of a file in the background, and show them, or the one that is named."""
        if path not in self._opened:
            self._opened.append(path)
        self._notice(f"opening {path.name}", ())
        self.begin(
            lambda job: read_runs(path, job), lambda held: self._take_runs(held, run), self._notice_error
        )

    def _take_runs(self, held: FileRuns, run: str) -> None:
        self._held = held
        for warning in held.warnings:
            self.say(warning, "warn")
        if not held.runs:
            self._notice(
                held.path.name,
                pages.paragraph(f"{held.path} holds no run yet.", self.size.width)
                + pages.paragraph(
                    "press 2, or: gputui run quick --db " + str(held.path), self.size.width, "dim"
                ),
            )
            return
        self._fill_runs()
        self._show_level("runs")
        if run:
            try:
                self._open_run(find_run(held.runs, run))
            except GputuiError as error:
                self.say_error(error)

    def _fill_runs(self, keeps: str = "") -> None:
        held = self._held
        if held is None:
            return
        rows = [(run, run_row(run, self._mark_of(run))) for run in sorted_runs(held.runs, self._order)]
        kept = [(run, cells) for run, cells in rows if holds_text(cells, self._filter)]
        self._shown = [run for run, _ in kept]
        room = _LABEL_CELLS if self.size.width < _WIDE else MAX_LABEL
        self._fill("runs", [(*c[:_LABEL], cut(c[_LABEL], room), *c[_LABEL + 1 :]) for _, c in kept])
        for place, run in enumerate(self._shown):
            if run.run_id == keeps:
                self._table_of("runs").move_cursor(row=place)
        self.refresh_lines()

    def _mark_of(self, run: RunSummary) -> str:
        key = (self._held.path, run.run_id) if self._held else None
        return f"{MARK}{self._marked.index(key) + 1}" if key in self._marked else ""

    @property
    def _run_here(self) -> RunSummary | None:
        if self.level == "run" and self._detail is not None:
            return self._detail.run.summary
        place = self._table_of("runs").cursor_row
        return self._shown[place] if self.level == "runs" and place < len(self._shown) else None

    # one run

    def _open_run(self, run: RunSummary) -> None:
        held = self._held
        assert held is not None
        self._notice(f"{run.short_id} {run.label}", (), behind="runs")
        self.begin(lambda job: read_detail(held.path, run.run_id, job), self._take_detail, self._notice_error)

    def _take_detail(self, detail: RunDetail) -> None:
        self._detail = detail
        self._case_rows = case_rows(detail.run)
        self._case_id = 0
        self._operator_filter = ""
        self._fill("cases", [row.cells for row in self._case_rows])
        self._show_level("run")
        self._show_tab("cases")

    def _show_tab(self, name: str) -> None:
        self.query_one(Tabs).active = name
        self._draw_tab()

    def on_tabs_tab_activated(self, event: Tabs.TabActivated) -> None:
        """A tab was clicked, or a key moved on."""
        event.stop()
        if self.level == "run":
            self._draw_tab()

    def _draw_tab(self) -> None:
        detail = self._detail
        if detail is None:
            return
        name, switcher = self.tab, self.query_one("#pages", ContentSwitcher)
        case = self._case_for(name)
        if name == "cases":
            switcher.current = "cases"
        elif name == "operators" and case is not None and self._fill_operators(detail, case):
            switcher.current = "operators"
        else:
            switcher.current = "page"
            self.query_one("#page", LinesPage).show(self._lines_of(detail, name, case))
        if name in _OF_A_CASE and case is not None:
            self.say(self._case_words(case), "accent")
        else:
            self.say("")
        if name == "cases":
            self._tell_case_row()
        self._focus_body()

    def _case_words(self, case: CaseResult) -> str:
        there = self._cases_for(self.tab)
        place = f"{there.index(case) + 1} of {len(there)}" if case in there else "no other"
        grouped = ""
        if self.tab == "operators":
            grouped = f"  by {GROUPS[self._group]}, sorted by {OPERATOR_ORDERS[self._operator_order][0]}"
            grouped += f", holding {self._operator_filter}" if self._operator_filter else ""
        return f"{case_name(case)}  (case {place}){grouped}"

    def _lines_of(self, detail: RunDetail, name: str, case: CaseResult | None) -> tuple[Line, ...]:
        width, height = self.size.width, self.size.height - 6
        ascii_only = shell_of(self).ascii_only
        if name == "telemetry":
            return pages.telemetry_page(detail, width, height, ascii_only=ascii_only)
        if name == "environment":
            return pages.environment_page(detail, width)
        if name == "findings":
            return pages.findings_page(detail, width)
        if case is None:
            if name == "blocks":
                return pages.paragraph("no block was measured in this run", width)
            return pages.not_profiled("no case of this run has a profiled pass", width)
        if name == "operators":
            found = pages.anatomy_for(detail, case)
            return pages.not_profiled(found.reason if isinstance(found, Missing) else "no operators", width)
        page = {"blocks": pages.blocks_page, "step": pages.step_page, "memory": pages.memory_page}[name]
        return page(detail, case, width, height, ascii_only=ascii_only)

    def _cases_for(self, name: str) -> list[CaseResult]:
        """The cases that have something on a tab."""
        detail = self._detail
        if detail is None:
            return []
        if name == "blocks":
            return [case for case in detail.run.cases if any(m.blocks for m in case.measurements)]
        return [case for case in detail.run.cases if case.case_id in detail.passes]

    def _case_for(self, name: str) -> CaseResult | None:
        there = self._cases_for(name)
        return next((case for case in there if case.case_id == self._case_id), there[0] if there else None)

    def _fill_operators(self, detail: RunDetail, case: CaseResult) -> bool:
        anatomy = pages.anatomy_for(detail, case)
        if isinstance(anatomy, Missing) or not anatomy.operators:
            return False
        rows = operator_rows(
            detail, case, anatomy.operators, self._group, self._operator_order, self._operator_filter
        )
        self._fill("operators", rows)
        return True

    def _step_case(self, step: int) -> None:
        there = self._cases_for(self.tab)
        if self.level != "run" or self.tab not in _OF_A_CASE or len(there) < 2:
            return
        here = self._case_for(self.tab)
        place = there.index(here) if here in there else 0
        self._case_id = there[(place + step) % len(there)].case_id
        self._draw_tab()

    # keys

    def action_enter(self) -> None:
        """Where no table has the keys there is nothing to open."""

    def on_data_table_row_selected(self, event: DataTable.RowSelected) -> None:
        """Enter, or a click on the row under the cursor."""
        event.stop()
        place, name = event.cursor_row, event.data_table.id
        if name == "files" and place < len(self._files):
            self.open_file(self._files[place].path)
        elif name == "runs" and place < len(self._shown):
            self._open_run(self._shown[place])
        elif name == "cases" and place < len(self._case_rows):
            self._case_id = self._case_rows[place].case.case_id
            self._show_tab("blocks")

    def on_data_table_row_highlighted(self, event: DataTable.RowHighlighted) -> None:
        """What has no room in the row of a case stands below."""
        event.stop()
        if event.data_table.id == "cases" and self.level == "run" and self.tab == "cases":
            self._tell_case_row()

    def _tell_case_row(self) -> None:
        place = self._table_of("cases").cursor_row
        if place < len(self._case_rows):
            row = self._case_rows[place]
            self.say(f"{row.cells[0].strip()}: {row.cells[-1]}" if row.cells[-1] else "", "dim")

    def action_back(self) -> None:
        """Out of the filter, out of what is being read, or one level up; from the top to the monitor."""
        field = self.query_one("#filter", Input)
        if field.has_class("-shown"):
            field.value = ""
            self._close_filter()
        elif self.give_up():
            self.say("given up")
            self._leave_notice()
        elif self.level == "run":
            self.say("")
            self._show_level("runs")
        elif self.level == "runs" and self._filter:
            self._filter = ""
            self._fill_runs()
        elif self.level == "runs":
            self._list_files()
        elif self.level == "notice" and self._behind_notice == "runs":
            self._leave_notice()
        else:
            shell_of(self).open_screen("monitor")

    def _leave_notice(self) -> None:
        """To the level before, if it has something to show."""
        if self._behind_notice == "runs" and self._held is not None and self._held.runs:
            self._show_level("runs")
        elif self._files:
            self._fill("files", [file_row(entry) for entry in self._files])
            self._show_level("files")
        else:
            self._notice("result files", pages.paragraph("press r to look again", self.size.width))

    def action_open_path(self) -> None:
        """Ask for a path."""

        def opened(text: str | None) -> None:
            if text and text.strip():
                path, run = split_selector(text.strip())
                self.open_file(path.absolute(), run)

        self.app.push_screen(AskText("Path of a result file, or F@RUN"), opened)

    def action_reload(self) -> None:
        """Read again what is shown."""
        if self.level == "run" and self._detail is not None:
            self._open_run(self._detail.run.summary)
        elif self.level == "runs" and self._held is not None:
            self.open_file(self._held.path)
        else:
            self._list_files()

    def action_filter(self) -> None:
        """Type a filter."""
        if self.level == "runs" or (self.level == "run" and self.tab == "operators"):
            field = self.query_one("#filter", Input)
            field.value = self._filter if self.level == "runs" else self._operator_filter
            field.add_class("-shown")
            field.focus()

    def on_input_changed(self, event: Input.Changed) -> None:
        """Each letter counts at once."""
        if not event.input.has_class("-shown"):
            return
        if self.level == "runs":
            self._filter = event.value
            self._fill_runs()
        elif self.level == "run":
            self._operator_filter = event.value
            self._refill_operators()

    def on_input_submitted(self, event: Input.Submitted) -> None:
        """The filter is kept."""
        self._close_filter()

    def _close_filter(self) -> None:
        self.query_one("#filter", Input).remove_class("-shown")
        self._focus_body()

    def _refill_operators(self) -> None:
        case = self._case_for("operators")
        if self._detail is not None and case is not None and self._fill_operators(self._detail, case):
            self.say(self._case_words(case), "accent")

    def action_sort(self) -> None:
        """By the next column."""
        if self.level == "runs":
            here = self._run_here
            self._order = (self._order + 1) % len(RUN_ORDERS)
            self._fill_runs(here.run_id if here else "")
        elif self.level == "run" and self.tab == "operators":
            self._operator_order = (self._operator_order + 1) % len(OPERATOR_ORDERS)
            self._refill_operators()

    def action_group(self) -> None:
        """By the next of GROUPS."""
        if self.level == "run" and self.tab == "operators":
            self._group = (self._group + 1) % len(GROUPS)
            self._refill_operators()

    def action_mark(self) -> None:
        """Mark the run under the cursor, or take its mark away."""
        run = self._run_here
        if self.level != "runs" or run is None or self._held is None:
            return
        key = (self._held.path, run.run_id)
        if key in self._marked:
            self._marked.remove(key)
        else:
            self._marked.append(key)
        self._fill_runs(run.run_id)
        self._table_of("runs").action_cursor_down()

    def action_compare(self) -> None:
        """Compare what is marked."""
        if len(self._marked) < 2:
            self.say(
                "mark two runs with space first, the baseline first; marks are kept across files", "warn"
            )
            return
        words = tuple(f"{path}@{run_id.replace('-', '')[-8:]}" for path, run_id in self._marked)
        shell_of(self).open_screen("compare", words)

    def action_label(self) -> None:
        """Ask for another label."""
        run, held = self._run_here, self._held
        if run is None or held is None:
            return

        def labelled(text: str | None) -> None:
            if text is None or text == run.label:
                return
            try:
                label = check_label(text)
            except GputuiError as error:
                self.say_error(error)
                return
            said = f"{run.short_id} is now {label}" if label else f"{run.short_id} has no label now"
            self._change(held, lambda: label_run(held.path, run.run_id, label), said)

        self.app.push_screen(AskText(f"Label of {run.short_id}; empty takes it away", run.label), labelled)

    def action_delete(self) -> None:
        """Ask, then remove the run."""
        run, held = self._run_here, self._held
        if run is None or held is None:
            return

        def answered(is_yes: bool | None) -> None:
            if is_yes:
                self._change(held, lambda: remove_run(held.path, run.run_id), f"removed {run.short_id}")

        label = f" ({run.label})" if run.label else ""
        self.app.push_screen(
            Confirm(
                f"Remove run {run.short_id}{label}: {run.profile}, {run.status}, {day(run)},"
                f" from {held.path}? It cannot be brought back."
            ),
            answered,
        )

    def _change(self, held: FileRuns, change: Callable[[], None], said: str) -> None:
        """Write to the file in the background, and show what it holds then."""

        def work(job: Job[FileRuns]) -> FileRuns:
            change()
            return read_runs(held.path, job)

        def done(now: FileRuns) -> None:
            there = {found.run_id for found in now.runs}
            self._marked = [key for key in self._marked if key[0] != held.path or key[1] in there]
            self._take_runs(now, "")
            self.say(f"{said} in {held.path.name}", "good")

        def failed(message: str, hint: str) -> None:
            self.say(f"{message}: {hint}", "warn")

        self.begin(work, done, failed)

    def action_next_tab(self) -> None:
        """The next page of a run."""
        self._step_tab(1)

    def action_previous_tab(self) -> None:
        """The page before."""
        self._step_tab(-1)

    def _step_tab(self, step: int) -> None:
        if self.level == "run":
            self._show_tab(TABS[(TABS.index(self.tab) + step) % len(TABS)])

    def action_next_case(self) -> None:
        """The next case of the tab."""
        self._step_case(1)

    def action_previous_case(self) -> None:
        """The case before."""
        self._step_case(-1)

    def action_down(self) -> None:
        """As the arrow."""
        self._move(1)

    def action_up(self) -> None:
        """As the arrow."""
        self._move(-1)

    def _move(self, step: int) -> None:
        focused = self.focused
        if isinstance(focused, DataTable):
            focused.move_cursor(row=max(focused.cursor_row + step, 0))
        elif isinstance(focused, LinesPage):
            focused.scroll_relative(y=step, animate=False)

    def on_resize(self) -> None:
        """Pages are cut to the width."""
        if self.level == "runs":
            here = self._run_here
            self.call_after_refresh(lambda: self._fill_runs(here.run_id if here else ""))
        if self.level == "run":
            self.call_after_refresh(self._draw_tab)

    # pieces

    def _table(self, name: str, headings: Sequence[str]) -> DataTable[Text]:
        made: DataTable[Text] = DataTable(id=name, cursor_type="row", cell_padding=1)
        made.add_columns(*(Text(heading) for heading in headings))
        return made

    def _table_of(self, name: str) -> DataTable[Text]:
        return self.query_one(f"#{name}", DataTable)

    def _fill(self, name: str, rows: Sequence[Sequence[str]]) -> None:
        table = self._table_of(name)
        place = table.cursor_row
        table.clear()
        for cells in rows:
            table.add_row(*(Text(self.plain(clean_text(cell)), no_wrap=True) for cell in cells))
        if place < len(rows):
            table.move_cursor(row=place)

    def _show_level(self, name: str) -> None:
        self.query_one("#level", ContentSwitcher).current = name
        self._focus_body()
        self.refresh_lines()

    def _focus_body(self) -> None:
        level = self.level
        if level == "run":
            level = str(self.query_one("#pages", ContentSwitcher).current)
        self.query_one(f"#{level}").focus()

    def _notice(self, heading: str, lines: tuple[Line, ...], behind: str = "files") -> None:
        """A page of words where there is no table to show."""
        self._notice_heading, self._behind_notice = heading, behind
        self.query_one("#notice", LinesPage).show(lines)
        self._show_level("notice")

    def _notice_error(self, message: str, hint: str) -> None:
        width = self.size.width
        lines = pages.paragraph(clean_text(message), width, "warn")
        if hint:
            lines += ((), *pages.paragraph(clean_text(hint), width))
        self._notice(self._notice_heading, lines, self._behind_notice)
