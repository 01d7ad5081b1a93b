"""The Results screen: a list of files, the runs of one, and one run in tabs."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from pathlib import Path

from textual.app import ComposeResult
from textual.containers import Vertical
from textual.widget import Widget
from textual.widgets import ContentSwitcher, Input

from gputui.errors import GputuiError
from gputui.model.absent import Missing
from gputui.model.result import RunSummary
from gputui.services.results.browser import (
    FileEntry,
    FileRuns,
    RunDetail,
    read_detail,
    read_runs,
    recent_files,
    runs_sheet,
)
from gputui.services.results.labels import day
from gputui.services.results.selectors import split_selector
from gputui.services.support.background import Job
from gputui.services.support.paths import default_result_file
from gputui.store.opening import expanded
from gputui.store.selecting import check_label, find_run
from gputui.store.writing import label_run, remove_run
from gputui.tui.screens.results_pages import ask_for_sheet, first_steps, no_runs, overview_page
from gputui.tui.screens.results_panes import RunPane, RunsTable, files_table
from gputui.tui.shell.registry import Action
from gputui.tui.shell.shell_screen import AskText, Confirm, ShellScreen, bindings_of
from gputui.tui.terminal.renderer import shell_of
from gputui.tui.widgets.cells import error_lines, paragraph
from gputui.tui.widgets.scrolled import LinesOf, LinesPage, TableList

ACTIONS: tuple[Action, ...] = (
    Action("enter", "enter", "Open", "Open the file, the run, or the step of the case"),
    Action("back", "escape,backspace", "Back", "Cancel reading, or go one level up"),
    Action("open-path", "o", "Path", "Open a result file by typing its path"),
    Action("filter", "slash", "Filter", "Show only runs that contain a text"),
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
        "Step: the next case; timeline: the next launch",
        does="step_case(1)",
    ),
    Action("previous-case", "p", "Case before", "The case before", does="step_case(-1)"),
    Action("zoom-in", "plus,equals_sign", "Zoom in", "Timeline: zoom in around the cursor", does="zoom(0.5)"),
    Action("zoom-out", "minus", "Zoom out", "Timeline: zoom out", does="zoom(2.0)"),
    Action("whole", "0", "Whole", "Timeline: the whole run"),
    Action("earlier", "left", "Earlier", "Timeline: move the cursor back", does="step_cursor(-1)"),
    Action("later", "right", "Later", "Timeline: move the cursor forward", does="step_cursor(1)"),
    Action(
        "back-further",
        "left_square_bracket",
        "Move back",
        "Timeline: move the cursor far back",
        does="step_cursor(-20)",
    ),
    Action(
        "on-further",
        "right_square_bracket",
        "Move on",
        "Timeline: move the cursor far on",
        does="step_cursor(20)",
    ),
    Action("copy", "y", "Copy", "Copy the table or page shown, as tab-separated text"),
    Action("save", "e", "Save as", "Save the table as .csv or .json, or the run's Chrome trace as .json.gz"),
    Action("reload", "r", "Reload", "Read the files again"),
    Action("down", "j", "Down", "One line down, as the arrow does", does="step(1)"),
    Action("up", "k", "Up", "One line up", does="step(-1)"),
)


_HINTS = {
    "files": ("enter", "open-path", "reload", "back"),
    "runs": ("enter", "filter", "mark", "compare", "label", "save", "delete", "back"),
    "run": ("next-tab", "save", "back", "compare"),
    "cases": ("next-tab", "enter", "save", "back"),
    "step": ("next-tab", "next-case", "save", "back"),
    "timeline": ("next-tab", "enter", "zoom-in", "zoom-out", "next-case", "whole", "save", "later", "back"),
    "notice": ("open-path", "reload", "back"),
}
_HIGH = 20
"""From this height on, what the selected run says stands below the list."""


class ResultsScreen(ShellScreen):
    ID = "results"
    ACTIONS = ACTIONS
    BINDINGS = bindings_of(ACTIONS)
    DEFAULT_CSS = """
    ResultsScreen #level, ResultsScreen #pages, ResultsScreen Vertical { height: 1fr; }
    ResultsScreen #preview { scrollbar-size: 0 0; }
    ResultsScreen #filter { display: none; }
    ResultsScreen #filter.-shown { display: block; }
    """

    def __init__(self) -> None:
        super().__init__()
        self._files_list = TableList(id="files")
        self._files: tuple[FileEntry, ...] = ()
        self._opened: dict[Path, None] = {}
        """Files that were read, wherever they are: they stay in the list."""
        self._runs = RunsTable()
        self._preview = LinesPage(id="preview")
        self._previewed: RunDetail | None = None
        self._pane = RunPane(id="run")
        self._page = LinesPage(id="notice")
        self._page_heading = ""
        self._page_back_to = "files"
        """Where esc leads from it: `files`, `runs` or `monitor`."""

    def compose_body(self) -> ComposeResult:
        self._preview.can_focus = False
        with ContentSwitcher(initial="notice", id="level"):
            yield self._files_list
            with Vertical(id="runs"):
                yield self._runs
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
        return None if self._runs.contents is None else self._runs.contents.path

    def heading(self) -> str:
        match self.level:
            case "files":
                return "result files"
            case "runs":
                return self._runs.heading
            case "run" if self._pane.detail is not None:
                summary = self._pane.detail.run.summary
                return f"{summary.short_id} {summary.label or summary.profile}, {day(summary)}"
        return self._page_heading

    def hints(self) -> tuple[str, ...]:
        if self.level != "run":
            return _HINTS[self.level]
        return _HINTS.get(self._pane.tab, _HINTS["run"])

    # files

    def _begin(self) -> None:
        """Show the runs of the default file if it exists, else the files."""
        default = expanded(default_result_file()).absolute()
        self._list_files(opens=default if default.is_file() else None)

    def _list_files(self, opens: Path | None = None, *, is_shown: bool = False) -> None:
        if not is_shown:
            self._notice("looking for result files", back_to="monitor")
        opened = tuple(self._opened)
        self.begin(
            lambda job: recent_files(Path.cwd(), opened),
            lambda files: self._take_files(files, opens),
            self._notice_error,
        )

    def _take_files(self, files: tuple[FileEntry, ...], opens: Path | None) -> None:
        here = self._file_here
        self._files = files
        paths = [entry.path for entry in files]
        self._files_list.show_table(files_table(files), paths.index(here) if here in paths else 0)
        if opens is not None:
            self.open_file(opens)
        elif files:
            self._show_level("files")
        else:
            runs = shell_of(self).runs_in_progress
            self._notice("no result files", partial(first_steps, runs), back_to="monitor")

    @property
    def _file_here(self) -> Path | None:
        key = self._files_list.key
        return self._files[key].path if 0 <= key < len(self._files) else None

    # runs

    def open_file(self, path: Path, run: str = "") -> None:
        """Read the runs of a file in the background, and show them, or the run named."""
        self._notice(path.name)
        self._read_runs(path, lambda contents: self._take_runs(contents, run))

    def _read_runs(self, path: Path, then: Callable[[FileRuns], None]) -> None:
        self._page_heading = path.name
        self.begin(lambda job: read_runs(path, job), then, self._notice_error)

    def _take_runs(self, contents: FileRuns, run: str = "") -> None:
        self._previewed = None
        self._runs.hold(contents)
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
        return self._runs.here if self.level == "runs" else None

    # what the selected run says, below the list

    def on_lines_list_selected(self, event: TableList.Selected) -> None:
        event.stop()
        if self.level == "runs":
            self.give_up_quietly()
            self._draw_preview()

    def _draw_preview(self) -> None:
        """What the selected run says; it is read in the background."""
        run, contents = self._runs.here, self._runs.contents
        if self.level != "runs" or contents is None:
            return
        has_room = self.size.height >= _HIGH
        self._preview.display = has_room
        self._runs.styles.height = (
            min(len(self._runs.shown) + 2, self.size.height // 2) if has_room else "1fr"
        )
        if not has_room or run is None:
            return
        detail = self._previewed
        if detail is not None and detail.run.summary.run_id == run.run_id:
            self._preview.show(overview_page(detail, self.size.width - 1))
        elif not self.is_busy:

            def taken(detail: RunDetail) -> None:
                self._previewed = detail
                self._draw_preview()

            self._preview.show(())
            self.begin(lambda job: read_detail(contents.path, run.run_id, job), taken, is_quiet=True)

    # one run

    def _open_run(self, run: RunSummary) -> None:
        contents = self._runs.contents
        assert contents is not None
        self.give_up_quietly()
        self._notice(f"{run.short_id} {run.label}", back_to="runs")

        def taken(detail: RunDetail) -> None:
            self._show_level("run")
            self._pane.show(detail)

        self.begin(lambda job: read_detail(contents.path, run.run_id, job), taken, self._notice_error)

    # keys

    def action_enter(self) -> None:
        """Open what is at the cursor of the timeline; lists handle the key themselves."""
        if self.level == "run":
            self._pane.open_further()

    def on_lines_list_chosen(self, event: TableList.Chosen) -> None:
        """Enter, or a click on the selected row."""
        event.stop()
        if self.level == "files" and self._file_here is not None:
            self.open_file(self._file_here)
        elif self.level == "runs" and self._runs.here is not None:
            self._open_run(self._runs.here)

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
        elif self.level == "runs" and self._runs.filter_text:
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
        contents = self._runs.contents
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
        elif self.level == "runs" and self._runs.contents is not None:
            self.open_file(self._runs.contents.path)
        else:
            self._list_files()

    def action_filter(self) -> None:
        if self.level == "runs":
            field = self.query_one("#filter", Input)
            field.value = self._runs.filter_text
            field.add_class("-shown")
            field.focus()

    def on_input_changed(self, event: Input.Changed) -> None:
        if event.input.has_class("-shown"):
            self._filter_runs(event.value)

    def on_input_submitted(self, event: Input.Submitted) -> None:
        self._close_filter()

    def _filter_runs(self, text: str) -> None:
        self._runs.filter_text = text
        self._runs.draw()
        self._draw_preview()
        self.refresh_lines()

    def _close_filter(self) -> None:
        self.query_one("#filter", Input).remove_class("-shown")
        self._body_of(self.level).focus()

    def action_mark(self) -> None:
        if self.level == "runs":
            self._runs.mark()
            self._draw_preview()
            self.refresh_lines()

    def action_compare(self) -> None:
        if len(self._runs.marked) < 2:
            self.say(
                "mark two runs with space first, the baseline first; marks are kept across files", "warn"
            )
            return
        words = tuple(f"{path}@{run_id.replace('-', '')[-8:]}" for path, run_id in self._runs.marked)
        shell_of(self).open_screen("compare", words)

    def action_label(self) -> None:
        run, contents = self._run_here, self._runs.contents
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
        run, contents = self._run_here, self._runs.contents
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
        elif self.level == "runs" and self.path is not None:
            ask_for_sheet(self, runs_sheet(self.path, self._runs.shown))
        else:
            ask_for_sheet(self, Missing("no run is shown"))

    def action_zoom(self, factor: float) -> None:
        self._pane.change_window(lambda window: window.zoomed(factor))

    def action_whole(self) -> None:
        self._pane.change_window(lambda window: window.whole())

    def action_step_cursor(self, steps: int) -> None:
        self._pane.step_cursor(steps)

    def on_resize(self) -> None:
        self.call_after_refresh(self._draw_again)

    def _draw_again(self) -> None:
        self.refresh_lines()
        self._draw_preview()
        if self.level == "run":
            self._pane.draw()

    def on_screen_resume(self) -> None:
        """Update the tables with what was stored in the meantime."""
        super().on_screen_resume()
        self.give_up_quietly()
        if not self.is_ready or self.is_busy:
            return
        contents = self._runs.contents
        if self.level == "runs" and contents is not None:
            self._read_runs(contents.path, self._take_runs)
        elif self.level == "files":
            self._list_files(is_shown=True)
        elif self.level == "notice" and self._page_back_to == "monitor":
            self._begin()

    # views

    def _show_level(self, name: str) -> None:
        self.show_level(name, self._body_of(name))

    def _body_of(self, level: str) -> Widget:
        bodies = {"files": self._files_list, "runs": self._runs, "run": self._pane.body}
        return bodies.get(level, self._page)

    def _notice(self, heading: str, words: LinesOf = lambda width: (), back_to: str = "files") -> None:
        """Show a text instead of a table, none while something is read; `back_to` is where esc leads."""
        self._page_heading, self._page_back_to = heading, back_to
        self._page.show_at_any_width(words)
        self._show_level("notice")

    def _notice_error(self, message: str, hint: str) -> None:
        back_to = {"run": "runs", "runs": "files"}.get(self.level, self._page_back_to)
        self._notice(self._page_heading, partial(error_lines, message, hint), back_to)


SCREEN = ResultsScreen
