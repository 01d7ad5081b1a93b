"""The Results screen: a list of files, the runs of one, and one run in tabs."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from pathlib import Path

from textual.app import ComposeResult
from textual.containers import Horizontal, Vertical
from textual.widgets import ContentSwitcher, DataTable, Input

from gputui.document.spans import Line, Span
from gputui.errors import GputuiError
from gputui.model.absent import Missing
from gputui.model.result import Run, RunSummary
from gputui.services.results.browser import (
    FileEntry,
    FileRuns,
    RunDetail,
    read_boxes,
    read_detail,
    read_runs,
    read_series,
    recent_files,
)
from gputui.services.results.exports import files_sheet
from gputui.services.results.labels import day
from gputui.services.results.selectors import split_selector
from gputui.services.support.background import Job
from gputui.services.support.paths import default_result_file
from gputui.store.opening import expanded
from gputui.store.selecting import check_label, find_run
from gputui.store.writing import label_run, remove_run
from gputui.tui.screens.results.overview import (
    boxes_lines,
    cases_lines,
    marked_lines,
    preview_lines,
    verdict_lines,
)
from gputui.tui.screens.results.pages import ask_for_sheet, first_steps, no_runs
from gputui.tui.screens.results.run_pane import OF_A_CASE, RunPane
from gputui.tui.screens.results.tables import FILE_HEADINGS, RunsTable, file_row
from gputui.tui.screens.results.timeline import BETWEEN_READINGS_US, TimeWindow
from gputui.tui.shell.registry import Action
from gputui.tui.shell.shell_screen import AskText, Confirm, ShellScreen, bindings_of
from gputui.tui.terminal.renderer import LinesView
from gputui.tui.widgets.app_context import shell_of
from gputui.tui.widgets.cells import error_lines, fitted, paragraph
from gputui.tui.widgets.scrolled import LinesOf, LinesPage, PlainTable

ACTIONS: tuple[Action, ...] = (
    Action(
        "enter", "enter", "Open", "Open the file, run or case: when it was timed, its step, its operators"
    ),
    Action("back", "escape,backspace", "Back", "Cancel reading, or go one level up"),
    Action("open-path", "o", "Path", "Open a result file by typing its path"),
    Action("filter", "slash", "Filter", "Show only runs or operators that contain a text"),
    Action("sort", "s", "Sort", "Sort by the next column"),
    Action("mark", "space", "Mark", "Mark the run for comparison, or unmark it"),
    Action("compare", "c", "Compare", "Compare the marked runs, the first as the baseline"),
    Action("label", "l", "Label", "Rename the run"),
    Action("delete", "D", "Delete", "Remove the run from its file permanently; asks first"),
    Action("next-tab", "tab", "Next tab", "The next page of the run", does="step_tab(1)"),
    Action("previous-tab", "shift+tab", "Tab before", "The page before", does="step_tab(-1)"),
    Action(
        "next-case",
        "n",
        "Next case",
        "The next case that has such a page; timeline: the next launch",
        does="step_case(1)",
    ),
    Action("previous-case", "p", "Case before", "The case before", does="step_case(-1)"),
    Action("zoom-in", "plus,equals_sign", "Zoom in", "Timeline: zoom in around the cursor", does="zoom(0.5)"),
    Action("zoom-out", "minus", "Zoom out", "Timeline: zoom out", does="zoom(2.0)"),
    Action("whole", "0", "Whole", "Timeline: the whole run"),
    Action("earlier", "left", "Earlier", "Timeline: move the cursor back", does="step_cursor(-1)"),
    Action("later", "right", "Later", "Timeline: move the cursor forward", does="step_cursor(1)"),
    Action(
        "move-back",
        "left_square_bracket",
        "Move back",
        "Timeline: scroll back half a page",
        does="scroll_pages(-0.5)",
    ),
    Action(
        "move-on",
        "right_square_bracket",
        "Move on",
        "Timeline: scroll forward half a page",
        does="scroll_pages(0.5)",
    ),
    Action("group", "g", "Group", "Operators one by one, by category, or by phase"),
    Action("copy", "y", "Copy", "Copy the table or page shown, as tab-separated text"),
    Action(
        "save", "e", "Save as", "Save what is shown as .csv or .json, or the run's Chrome trace as .json.gz"
    ),
    Action("reload", "r", "Reload", "Read the files again"),
    Action("down", "j", "Down", "One line down, as the arrow does", does="step(1)"),
    Action("up", "k", "Up", "One line up", does="step(-1)"),
)


_HINTS = {
    "files": ("enter", "open-path", "reload", "back"),
    "runs": ("enter", "filter", "sort", "mark", "compare", "label", "save", "delete", "back"),
    "run": ("next-tab", "save", "back", "compare"),
    "cases": ("next-tab", "enter", "save", "back"),
    "step": ("next-tab", "next-case", "enter", "save", "back"),
    "run of a case": ("next-tab", "next-case", "save", "back"),
    "operators": ("next-tab", "next-case", "filter", "sort", "group", "save", "back"),
    "timeline": (
        *("next-tab", "enter", "zoom-in", "zoom-out", "next-case", "whole", "save", "later", "move-on"),
        "back",
    ),
    "notice": ("open-path", "reload", "back"),
}


_WIDE, _HIGH = 110, 20
"""From this height on what the selected run says stands below the list, from this width on also beside it."""
_PREVIEW_SHARE = 0.38
_AROUND = 3
"""Lines of the screen that are not of the body."""
_MOST_PREVIEWS = 20
"""Runs that are kept in memory for their preview."""


class ResultsScreen(ShellScreen):
    """Files, runs, one run; esc goes back one level."""

    ID = "results"
    ACTIONS = ACTIONS
    BINDINGS = bindings_of(ACTIONS)
    DEFAULT_CSS = """
    ResultsScreen #level, ResultsScreen #pages { height: 1fr; }
    ResultsScreen Vertical, ResultsScreen Horizontal { height: 1fr; }
    ResultsScreen #below { height: 1fr; }
    ResultsScreen #filter { display: none; }
    ResultsScreen #filter.-shown { display: block; }
    """

    def __init__(self) -> None:
        super().__init__()
        self._files_table = PlainTable(FILE_HEADINGS, id="files")
        self._files: tuple[FileEntry, ...] = ()
        self._opened: dict[Path, None] = {}
        """Files that were read, wherever they are: they stay in the list."""
        self._runs_table = RunsTable(id="runs")
        self._pane = RunPane(self.say, self._read_window, id="run")
        self._page = LinesPage(id="notice")
        self._page_heading = ""
        self._page_back_to = "files"
        """Where esc leads from it: `files`, `runs` or `monitor`."""
        self._previews: dict[str, RunDetail] = {}
        """Runs of the file by id, the last read last."""
        self._boxes: tuple[Run, ...] | None = None
        """The newest run of each box of the known files; None before they were read."""

    def compose_body(self) -> ComposeResult:
        self._preview, self._below = LinesView(), LinesView()
        self._below.id = "below"
        with ContentSwitcher(initial="notice", id="level"):
            yield self._files_table
            with Horizontal(id="list"):
                yield Vertical(self._runs_table, self._below)
                yield self._preview
            yield self._pane
            yield self._page
        field = Input(id="filter", placeholder="filter: enter keeps it, esc clears it")
        field.cursor_blink = False
        yield field

    def begin_with(self, words: tuple[str, ...]) -> None:
        """Open `F` or `F@RUN`; else the default file."""
        if words:
            self._open_selected(words[0])
        else:
            self._begin()

    @property
    def path(self) -> Path | None:
        """The file whose runs are shown."""
        return None if self._runs_table.contents is None else self._runs_table.contents.path

    @property
    def level(self) -> str:
        """`files`, `runs`, `run` or `notice`."""
        current = str(self.query_one("#level", ContentSwitcher).current)
        return "runs" if current == "list" else current

    def heading(self) -> str:
        match self.level:
            case "files":
                return "result files"
            case "runs":
                return self._runs_table.heading
            case "run" if self._pane.detail is not None:
                summary = self._pane.detail.run.summary
                return f"{summary.short_id} {summary.label or summary.profile}, {day(summary)}"
        return self._page_heading

    def hints(self) -> tuple[str, ...]:
        if self.level != "run":
            return _HINTS[self.level]
        tab = self._pane.tab
        if tab in _HINTS:
            return _HINTS[tab]
        return _HINTS["run of a case" if tab in OF_A_CASE else "run"]

    # files

    def _begin(self) -> None:
        """Show the runs of the default file if it exists, else the files."""
        default = expanded(default_result_file()).absolute()
        self._list_files(opens=default if default.is_file() else None)

    def _list_files(self, opens: Path | None = None) -> None:
        self._notice("looking for result files", back_to="monitor")
        self._read_files(opens)

    def _read_files(self, opens: Path | None = None) -> None:
        opened = tuple(self._opened)
        self.begin(
            lambda job: recent_files(Path.cwd(), opened),
            lambda files: self._take_files(files, opens),
            self._notice_error,
        )

    def _take_files(self, files: tuple[FileEntry, ...], opens: Path | None) -> None:
        self._files = files
        self._files_table.fill([*map(file_row, files)], keys=[str(entry.path) for entry in files])
        if opens is not None:
            self.open_file(opens)
        elif files:
            self._show_level("files")
        else:
            runs = shell_of(self).runs_in_progress
            self._notice("no result files", partial(first_steps, runs), back_to="monitor")

    # runs

    def open_file(self, path: Path, run: str = "") -> None:
        """Read the runs of a file in the background, and show them, or the run named."""
        self._notice(path.name)
        self._read_runs(path, lambda contents: self._take_runs(contents, run))

    def _read_runs(self, path: Path, then: Callable[[FileRuns], None]) -> None:
        self._runs_table.expect(path)
        self._page_heading = path.name
        self.begin(lambda job: read_runs(path, job), then, self._notice_error)

    def _take_runs(self, contents: FileRuns, run: str = "") -> None:
        self._previews.clear()
        self._boxes = None
        self._runs_table.hold(contents)
        self._opened[contents.path] = None
        for warning in contents.warnings:
            self.say(warning, "warn")
        if not contents.runs:
            self._notice(contents.path.name, partial(no_runs, contents.path))
            return
        self._show_level("runs")
        if run:
            try:
                self._open_run(find_run(contents.runs, run))
                return
            except GputuiError as error:
                self.say_error(error)
        self._draw_preview()

    @property
    def _run_here(self) -> RunSummary | None:
        if self.level == "run" and self._pane.detail is not None:
            return self._pane.detail.run.summary
        return self._runs_table.here if self.level == "runs" else None

    # the selected run beside the list

    def on_data_table_row_highlighted(self, event: DataTable.RowHighlighted) -> None:
        event.stop()
        if event.data_table is self._runs_table and self.level == "runs":
            self.give_up_quietly()
            self._draw_preview()

    def _draw_preview(self) -> None:
        """What is known of the selected run; what is not is read in the background."""
        run, contents = self._runs_table.here, self._runs_table.contents
        if self.level != "runs" or contents is None:
            return
        width, height = self.size.width, self.size.height - _AROUND
        has_below = self.size.height >= _HIGH
        has_preview = has_below and width >= _WIDE
        self._preview.display, self._below.display = has_preview, has_below
        rows = min(self._runs_table.row_count + 1, max(height // 2, 6))
        self._runs_table.styles.height = rows if has_below else "1fr"
        if not has_below or run is None:
            return
        detail = self._previews.get(run.run_id)
        if has_preview:
            wide = round(width * _PREVIEW_SHARE)
            self._preview.styles.width = wide
            lines: list[Line] = [] if detail is None else preview_lines(detail, wide - 2, height)
            lines += [()] * (height - len(lines))
            self.show_in(self._preview, *(fitted((Span("│ ", "track"), *line), wide) for line in lines))
            self._draw_below(detail, [], width - wide - 1, height - rows)
        else:
            verdict = [] if detail is None else [*verdict_lines(detail, width)]
            self._draw_below(detail, verdict, width, height - rows)
        if not self.is_busy:
            self._read_preview(contents, run)

    def _draw_below(self, detail: RunDetail | None, verdict: list[Line], width: int, height: int) -> None:
        marked = marked_lines(self._runs_table.marked_here, len(self._runs_table.marked), width)
        blocks = [verdict, marked]
        if detail is not None and self._boxes is not None:
            room = height - sum(len(block) + 1 for block in blocks if block)
            blocks.insert(1, boxes_lines(detail, self._boxes, width, room - 1))
        room = height - sum(len(block) + 1 for block in blocks if block)
        if detail is not None:
            blocks.append(cases_lines(detail.run, width, room - 1))
        self.show_in(self._below, *(line for block in blocks if block for line in ((), *block)))

    def _read_preview(self, contents: FileRuns, run: RunSummary) -> None:
        def take(detail: RunDetail) -> None:
            self._previews[run.run_id] = detail
            while len(self._previews) > _MOST_PREVIEWS:
                del self._previews[next(iter(self._previews))]
            self._draw_preview()

        def take_boxes(boxes: tuple[Run, ...]) -> None:
            self._boxes = boxes
            self._draw_preview()

        if run.run_id not in self._previews:
            self.begin(lambda job: read_detail(contents.path, run.run_id, job), take, is_quiet=True)
        elif self._boxes is None:
            opened = tuple(self._opened)
            self.begin(
                lambda job: read_boxes([one.path for one in recent_files(Path.cwd(), opened)], job),
                take_boxes,
                is_quiet=True,
            )

    # one run

    def _open_run(self, run: RunSummary) -> None:
        contents = self._runs_table.contents
        assert contents is not None
        self.give_up_quietly()
        if run.run_id in self._previews:
            self._take_detail(self._previews[run.run_id])
            return
        self._notice(f"{run.short_id} {run.label}", back_to="runs")
        self.begin(
            lambda job: read_detail(contents.path, run.run_id, job), self._take_detail, self._notice_error
        )

    def _take_detail(self, detail: RunDetail) -> None:
        self._show_level("run")
        self._pane.show(detail)

    def _read_window(self, detail: RunDetail, window: TimeWindow) -> None:
        run_id = detail.run.summary.run_id
        within_us = window.from_us - BETWEEN_READINGS_US, window.to_us + BETWEEN_READINGS_US
        self.begin(
            lambda job: read_series(detail.path, run_id, within_us, job),
            lambda series: self._pane.take_series(window, series),
        )

    # keys

    def action_enter(self) -> None:
        """Open what is at the cursor of the timeline, or more of a step; tables handle the key themselves."""
        if self.level == "run":
            self._pane.open_further()

    def on_data_table_row_selected(self, event: DataTable.RowSelected) -> None:
        """Enter, or a click on the selected row."""
        event.stop()
        if event.data_table is self._files_table:
            self.open_file(Path(self._files_table.key))
        elif (run := self._runs_table.here) is not None:
            self._open_run(run)

    def action_back(self) -> None:
        """Close the filter, cancel reading, or go back to where enter came from, at last to the monitor."""
        self.give_up_quietly()
        field = self.query_one("#filter", Input)
        if field.has_class("-shown"):
            field.value = ""
            self._close_filter()
        elif self.give_up():
            self.say("cancelled")
            self._leave_notice()
        elif self.level == "run":
            if not self._pane.go_back():
                self.say("")
                self._show_level("runs")
                self._draw_preview()
        elif self.level == "runs" and self._runs_table.filter_text:
            self._filter_runs("")
        elif self.level == "runs":
            self._list_files()
        elif self.level == "notice" and self._page_back_to == "runs":
            self._leave_notice()
        elif self.level == "notice" and self._page_back_to == "files":
            self._list_files()
        else:
            shell_of(self).open_screen("monitor")

    def _leave_notice(self) -> None:
        """Return to the previous level, if it has something to show."""
        contents = self._runs_table.contents
        if self._page_back_to == "runs" and contents is not None and contents.runs:
            self._show_level("runs")
            self._draw_preview()
        elif self._files:
            self._show_level("files")
        else:
            again = partial(paragraph, "press r to look again")
            self._notice("result files", again, back_to="monitor")

    def action_open_path(self) -> None:
        self.ask(AskText("Path of a result file, or F@RUN"), self._open_selected)

    def _open_selected(self, selector: str) -> None:
        if selector:
            path, run = split_selector(selector)
            self.open_file(path.absolute(), run)

    def action_reload(self) -> None:
        if self.level == "run" and self._pane.detail is not None:
            self._open_run(self._pane.detail.run.summary)
        elif self.level == "runs" and self._runs_table.contents is not None:
            self.open_file(self._runs_table.contents.path)
        else:
            self._list_files()

    def action_filter(self) -> None:
        if self.level == "runs" or (self.level == "run" and self._pane.tab == "operators"):
            field = self.query_one("#filter", Input)
            field.value = self._runs_table.filter_text if self.level == "runs" else self._pane.operator_filter
            field.add_class("-shown")
            field.focus()

    def on_input_changed(self, event: Input.Changed) -> None:
        if not event.input.has_class("-shown"):
            return
        if self.level == "runs":
            self._filter_runs(event.value)
        elif self.level == "run":
            self._pane.filter_operators(event.value)

    def on_input_submitted(self, event: Input.Submitted) -> None:
        self._close_filter()

    def _filter_runs(self, text: str) -> None:
        self._runs_table.filter_text = text
        self._runs_table.draw()
        self._draw_preview()
        self.refresh_lines()

    def _close_filter(self) -> None:
        self.query_one("#filter", Input).remove_class("-shown")
        self._focus_body()

    def action_sort(self) -> None:
        if self.level == "runs":
            self._runs_table.sort_by_next()
            self.refresh_lines()
        elif self.level == "run":
            self._pane.sort()

    def action_group(self) -> None:
        if self.level == "run":
            self._pane.group()

    def action_mark(self) -> None:
        if self.level == "runs":
            self._runs_table.mark()
            self._draw_preview()
            self.refresh_lines()

    def action_compare(self) -> None:
        if len(self._runs_table.marked) < 2:
            self.say(
                "mark two runs with space first, the baseline first; marks are kept across files", "warn"
            )
            return
        words = tuple(f"{path}@{run_id.replace('-', '')[-8:]}" for path, run_id in self._runs_table.marked)
        shell_of(self).open_screen("compare", words)

    def action_label(self) -> None:
        run, contents = self._run_here, self._runs_table.contents
        if run is None or contents is None:
            return
        self.give_up_quietly()

        def labelled(text: str) -> None:
            if text != run.label:
                message = f"{run.short_id} is now {text}" if text else f"{run.short_id} has no label now"
                write = partial(label_run, contents.path, run.run_id)
                self._change(contents.path, lambda: write(check_label(text)), message)

        self.ask(AskText(f"Label of {run.short_id}; leave it empty to remove it", run.label), labelled)

    def action_delete(self) -> None:
        run, contents = self._run_here, self._runs_table.contents
        if run is None or contents is None:
            return
        path, label = contents.path, f" ({run.label})" if run.label else ""
        question = (
            f"Remove run {run.short_id}{label}: {run.profile}, {run.status}, {day(run)},"
            f" from {path}? This cannot be undone."
        )
        remove = partial(remove_run, path, run.run_id)
        self.ask(Confirm(question), lambda is_yes: self._change(path, remove, f"removed {run.short_id}"))

    def _change(self, path: Path, change: Callable[[], None], message: str) -> None:
        """Write to the file in the background, then show its new contents."""

        def work(job: Job[FileRuns]) -> FileRuns:
            change()
            return read_runs(path, job)

        def done(now: FileRuns) -> None:
            self._take_runs(now)
            self.say(f"{message} in {path.name}", "good")

        self.begin(work, done, writes=True)

    def action_step_tab(self, tabs: int) -> None:
        if self.level == "run":
            self._pane.step_tab(tabs)

    def action_step_case(self, cases: int) -> None:
        if self.level == "run":
            self._pane.step_case(cases)

    def action_save(self) -> None:
        if self.level == "run":
            ask_for_sheet(self, self._pane.sheet(), self._pane.detail, self._pane.shown_case)
        elif self.level == "notice":
            ask_for_sheet(self, Missing("no table is shown"))
        else:
            ask_for_sheet(self, self._runs_table.sheet if self.level == "runs" else files_sheet(self._files))

    def action_zoom(self, factor: float) -> None:
        self._pane.change_window(lambda window: window.zoomed(factor))

    def action_whole(self) -> None:
        self._pane.change_window(lambda window: window.whole())

    def action_step_cursor(self, steps: int) -> None:
        self._pane.step_cursor(steps)

    def action_scroll_pages(self, pages: float) -> None:
        self._pane.change_window(lambda window: window.moved(pages))

    def on_resize(self) -> None:
        self.call_after_refresh(self._draw_again)

    def _draw_again(self) -> None:
        if self.level == "runs":
            self._runs_table.draw()
            self._draw_preview()
            self.refresh_lines()
        elif self.level == "run":
            self._pane.draw()

    def on_screen_resume(self) -> None:
        """Update the tables with what was stored in the meantime."""
        super().on_screen_resume()
        self.give_up_quietly()
        if not self.is_ready or self.is_busy:
            return
        contents = self._runs_table.contents
        if self.level == "runs" and contents is not None and self._runs_table.is_outdated:
            self._read_runs(contents.path, self._take_runs)
        elif self.level == "files":
            self._read_files()
        elif self.level == "notice" and self._page_back_to == "monitor":
            self._begin()

    # views

    def _show_level(self, name: str) -> None:
        self.query_one("#level", ContentSwitcher).current = "list" if name == "runs" else name
        self._focus_body()
        self.refresh_lines()

    def _focus_body(self) -> None:
        level = self.level
        (self._pane.body if level == "run" else self.query_one(f"#{level}")).focus()

    def _notice(self, heading: str, words: LinesOf = lambda width: (), back_to: str = "files") -> None:
        """Show a text instead of a table, none while something is read; `back_to` is where esc leads."""
        self._page_heading, self._page_back_to = heading, back_to
        self._page.show_at_any_width(words)
        self._show_level("notice")

    def _notice_error(self, message: str, hint: str) -> None:
        back_to = {"run": "runs", "runs": "files"}.get(self.level, self._page_back_to)
        self._notice(self._page_heading, partial(error_lines, message, hint), back_to)


SCREEN = ResultsScreen
