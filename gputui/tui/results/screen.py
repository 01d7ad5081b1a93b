"""The Results screen: a list of files, the runs of one, and one run in tabs."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from textual.app import ComposeResult
from textual.widgets import ContentSwitcher, DataTable, Input

from gputui.errors import GputuiError
from gputui.model.result import RunSummary
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
from gputui.services.wording import day
from gputui.store.editing import label_run, remove_run
from gputui.store.opening import expanded
from gputui.store.selecting import MAX_LABEL, check_label, find_run
from gputui.store.text import clean_text
from gputui.tui.dialogs import AskText, Confirm
from gputui.tui.lines import Line
from gputui.tui.lines_page import LinesPage
from gputui.tui.monitor.cells import cut
from gputui.tui.plain_table import PlainTable
from gputui.tui.results import pages
from gputui.tui.results.actions import ACTIONS
from gputui.tui.results.run_pane import OF_A_CASE, RunPane
from gputui.tui.results.tables import (
    FILE_HEADINGS,
    MARK,
    RUN_HEADINGS,
    RUN_ORDERS,
    file_row,
    holds_text,
    run_row,
    sorted_runs,
)
from gputui.tui.screens import screens_here
from gputui.tui.shell import ShellScreen, bindings_of, shell_of

_LABEL = RUN_HEADINGS.index("label")
_WIDE, _LABEL_CELLS = 100, 14
"""From this width on labels are shown whole; below it status and box are worth more."""
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
        self._files_table = PlainTable(FILE_HEADINGS, id="files")
        self._runs_table = PlainTable(RUN_HEADINGS, id="runs")
        self._pane = RunPane(self.say, id="run")
        self._words: tuple[str, ...] = ()
        self._notice_heading = ""
        self._behind_notice = "files"
        self._notice_made: Callable[[int], tuple[Line, ...]] = lambda width: ()
        """The page of words, as wide as the screen is then."""
        self._held_when: tuple[int, int] = (0, 0)
        """When the file that is held was changed last, and its size."""

    def compose_body(self) -> ComposeResult:
        """The three levels, and the page for what cannot be shown."""
        with ContentSwitcher(initial="notice", id="level"):
            yield self._files_table
            yield self._runs_table
            yield self._pane
            yield LinesPage(id="notice")
        field = Input(id="filter", placeholder="filter: enter keeps it, esc drops it")
        field.cursor_blink = False
        yield field

    def on_mount(self) -> None:
        """The runs of the default file if there is one, else the files."""
        self.is_ready = True
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
            case "run" if self._pane.detail is not None:
                summary = self._pane.detail.run.summary
                return f"{summary.short_id} {summary.label or summary.profile}, {day(summary)}"
        return self._notice_heading

    def hints(self) -> tuple[str, ...]:
        """The keys of the level, and of the tab."""
        if self.level != "run":
            return _HINTS[self.level]
        tab = self._pane.tab
        if tab == "operators":
            return _HINTS["operators"]
        return _HINTS["run of a case" if tab in OF_A_CASE else "run"]

    # files

    def _list_files(self, opens: Path | None = None) -> None:
        self._notice("looking for result files", behind="monitor")
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
            runs = shell_of(self).runs_in_progress
            self._notice("no result files", lambda width: _first_steps(width, runs), behind="monitor")
            return
        self._files_table.fill([file_row(entry) for entry in files])
        self._show_level("files")

    # runs

    def open_file(self, path: Path, run: str = "") -> None:
        """Read the runs of a file in the background, and show them, or the one that is named."""
        self._notice(path.name)
        self._read_runs(path, lambda held: self._take_runs(held, run))

    def _read_runs(self, path: Path, then: Callable[[FileRuns], None]) -> None:
        self._held_when, self._notice_heading = _changed(path), path.name
        self.begin(lambda job: read_runs(path, job), then, self._notice_error)

    def _take_runs(self, held: FileRuns, run: str) -> None:
        self._held = held
        if held.path not in self._opened:
            self._opened.append(held.path)
        for warning in held.warnings:
            self.say(warning, "warn")
        if not held.runs:
            self._notice(
                held.path.name,
                lambda width: (
                    *pages.paragraph(f"{held.path} holds no run yet.", width),
                    *pages.paragraph(f"measure into it: gputui run quick --db {held.path}", width, "dim"),
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
        self._runs_table.fill([(*c[:_LABEL], cut(c[_LABEL], room), *c[_LABEL + 1 :]) for _, c in kept])
        for place, run in enumerate(self._shown):
            if run.run_id == keeps:
                self._runs_table.move_cursor(row=place)
        self.refresh_lines()

    def _mark_of(self, run: RunSummary) -> str:
        key = (self._held.path, run.run_id) if self._held else None
        return f"{MARK}{self._marked.index(key) + 1}" if key in self._marked else ""

    @property
    def _run_here(self) -> RunSummary | None:
        if self.level == "run" and self._pane.detail is not None:
            return self._pane.detail.run.summary
        place = self._runs_table.cursor_row
        return self._shown[place] if self.level == "runs" and place < len(self._shown) else None

    # one run

    def _open_run(self, run: RunSummary) -> None:
        held = self._held
        assert held is not None
        self._notice(f"{run.short_id} {run.label}", behind="runs")
        self.begin(lambda job: read_detail(held.path, run.run_id, job), self._take_detail, self._notice_error)

    def _take_detail(self, detail: RunDetail) -> None:
        self._show_level("run")
        self._pane.show(detail)

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
        elif self.level == "notice" and self._behind_notice == "files":
            self._list_files()
        else:
            shell_of(self).open_screen("monitor")

    def _leave_notice(self) -> None:
        """To the level before, if it has something to show."""
        if self._behind_notice == "runs" and self._held is not None and self._held.runs:
            self._show_level("runs")
        elif self._files:
            self._files_table.fill([file_row(entry) for entry in self._files])
            self._show_level("files")
        else:
            self._notice(
                "result files", lambda width: pages.paragraph("press r to look again", width), "monitor"
            )

    def action_open_path(self) -> None:
        """Ask for a path."""

        def opened(text: str | None) -> None:
            if text and text.strip():
                path, run = split_selector(text.strip())
                self.open_file(path.absolute(), run)

        self.app.push_screen(AskText("Path of a result file, or F@RUN"), opened)

    def action_reload(self) -> None:
        """Read again what is shown."""
        if self.level == "run" and self._pane.detail is not None:
            self._open_run(self._pane.detail.run.summary)
        elif self.level == "runs" and self._held is not None:
            self.open_file(self._held.path)
        else:
            self._list_files()

    def action_filter(self) -> None:
        """Type a filter."""
        if self.level == "runs" or (self.level == "run" and self._pane.tab == "operators"):
            field = self.query_one("#filter", Input)
            field.value = self._filter if self.level == "runs" else self._pane.operator_filter
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
            self._pane.filter_operators(event.value)

    def on_input_submitted(self, event: Input.Submitted) -> None:
        """The filter is kept."""
        self._close_filter()

    def _close_filter(self) -> None:
        self.query_one("#filter", Input).remove_class("-shown")
        self._focus_body()

    def action_sort(self) -> None:
        """By the next column."""
        if self.level == "runs":
            here = self._run_here
            self._order = (self._order + 1) % len(RUN_ORDERS)
            self._fill_runs(here.run_id if here else "")
        elif self.level == "run":
            self._pane.sort()

    def action_group(self) -> None:
        """By the next of GROUPS."""
        if self.level == "run":
            self._pane.group()

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
        self._runs_table.action_cursor_down()

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

        self.begin(work, done, failed, writes=True)

    def action_next_tab(self) -> None:
        """The next page of a run."""
        if self.level == "run":
            self._pane.step_tab(1)

    def action_previous_tab(self) -> None:
        """The page before."""
        if self.level == "run":
            self._pane.step_tab(-1)

    def action_next_case(self) -> None:
        """The next case of the tab."""
        if self.level == "run":
            self._pane.step_case(1)

    def action_previous_case(self) -> None:
        """The case before."""
        if self.level == "run":
            self._pane.step_case(-1)

    def on_resize(self) -> None:
        """Tables and pages are cut to the width."""
        self.call_after_refresh(self._draw_again)

    def _draw_again(self) -> None:
        here = self._run_here
        if self.level == "runs":
            self._fill_runs(here.run_id if here else "")
        elif self.level == "run":
            self._pane.draw()
        elif self.level == "notice":
            self.query_one("#notice", LinesPage).show(self._notice_made(self.size.width))

    def on_screen_resume(self) -> None:
        """Shown again: what was stored in the meantime is there."""
        super().on_screen_resume()
        if not self.is_ready or self.is_busy:
            return
        held = self._held
        if self.level == "runs" and held is not None and _changed(held.path) != self._held_when:
            here = self._run_here
            self._read_runs(held.path, lambda now: self._take_again(now, here))
        elif self.level == "notice" and self._behind_notice == "monitor":
            self._list_files()

    def _take_again(self, held: FileRuns, here: RunSummary | None) -> None:
        self._take_runs(held, "")
        if here is not None and self.level == "runs":
            self._fill_runs(here.run_id)

    # pieces

    def _show_level(self, name: str) -> None:
        self.query_one("#level", ContentSwitcher).current = name
        self._focus_body()
        self.refresh_lines()

    def _focus_body(self) -> None:
        level = self.level
        (self._pane.body if level == "run" else self.query_one(f"#{level}")).focus()

    def _notice(
        self,
        heading: str,
        made: Callable[[int], tuple[Line, ...]] = lambda width: (),
        behind: str = "files",
    ) -> None:
        """A page of words where there is no table to show; `behind` is where esc leads."""
        self._notice_heading, self._behind_notice, self._notice_made = heading, behind, made
        self.query_one("#notice", LinesPage).show(made(self.size.width))
        self._show_level("notice")

    def _notice_error(self, message: str, hint: str) -> None:
        def made(width: int) -> tuple[Line, ...]:
            lines = pages.paragraph(clean_text(message), width, "warn")
            return (*lines, (), *pages.paragraph(clean_text(hint), width)) if hint else lines

        behind = "runs" if self.level == "run" else self._behind_notice
        self._notice(self._notice_heading, made, "files" if self.level == "runs" else behind)


def _changed(path: Path) -> tuple[int, int]:
    """When a file was changed last, and its size; it is not opened."""
    try:
        found = path.stat()
    except OSError:
        return 0, 0
    return found.st_mtime_ns, found.st_size


def _first_steps(width: int, runs_in_progress: int) -> tuple[Line, ...]:
    """What to do where nothing was ever measured."""
    can_run = any(entry.id == "run" for entry in screens_here())
    under_way = "What is being measured now will be here when it has ended. Press 2 to watch it."
    return (
        *pages.paragraph("No runs yet.", width, "title"),
        (),
        *((*pages.paragraph(under_way, width, "warn"), ()) if runs_in_progress else ()),
        *pages.paragraph(f"Measure this box: {'press 2, or in a shell' if can_run else 'in a shell'}", width),
        *pages.paragraph("  gputui run quick", width, "accent"),
        (),
        *pages.paragraph(
            f"Looked in {default_result_file().parent} and {Path.cwd()}. A file elsewhere: press o.",
            width,
            "dim",
        ),
    )
