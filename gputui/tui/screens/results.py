"""The Results screen: a list of files, the runs of one, and one run in tabs."""

from __future__ import annotations

from functools import partial
from pathlib import Path

from textual.app import ComposeResult
from textual.widgets import ContentSwitcher

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
)
from gputui.services.results.labels import day
from gputui.services.results.selectors import split_selector
from gputui.services.support.paths import default_result_file
from gputui.store.opening import expanded
from gputui.store.selecting import find_run
from gputui.tui.screens.results_pages import ask_for_sheet, first_steps, no_runs
from gputui.tui.screens.results_panes import RunPane, RunsPane, files_table
from gputui.tui.shell.registry import Action
from gputui.tui.shell.shell_screen import AskText, ShellScreen, bindings_of
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
    Action("next-case", "n", "Next case", "Step: the next case; timeline: next launch", does="step_case(1)"),
    Action("previous-case", "p", "Case before", "The case before", does="step_case(-1)"),
    Action("zoom-in", "plus,equals_sign", "Zoom in", "Timeline: zoom in around the cursor", does="zoom(0.5)"),
    Action("zoom-out", "minus", "Zoom out", "Timeline: zoom out", does="zoom(2.0)"),
    Action("whole", "0", "Whole", "Timeline: the whole run"),
    Action("earlier", "left", "Earlier", "Timeline: move the cursor back", does="step_cursor(-1)"),
    Action("later", "right", "Later", "Timeline: move the cursor forward", does="step_cursor(1)"),
    Action("back-further", "left_square_bracket", "Move back", "Timeline: far back", does="step_cursor(-20)"),
    Action("on-further", "right_square_bracket", "Move on", "Timeline: far on", does="step_cursor(20)"),
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


class ResultsScreen(ShellScreen):
    """What is shown stays while something is read: the line for messages says what, and esc cancels."""

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
        self._files: tuple[FileEntry, ...] = ()
        self._opened: dict[Path, None] = {}
        """Files that were read, wherever they are: they stay in the list."""
        self._files_list = TableList(id="files")
        self._runs, self._run = RunsPane(id="runs"), RunPane(id="run")
        self._notice_page = LinesPage(id="notice")
        self._notice_heading = "looking for result files"
        self._notice_back_to = "monitor"
        """Where esc leads from it: `monitor`, `files` or `runs`."""

    def compose_body(self) -> ComposeResult:
        with ContentSwitcher(initial="notice", id="level"):
            yield self._files_list
            yield self._runs
            yield self._run
            yield self._notice_page

    def begin_with(self, words: tuple[str, ...]) -> None:
        """Open `F` or `F@RUN`; else the default file."""
        if any(words):
            path, run = split_selector(words[0])
            self._open_file(path.absolute(), run)
        else:
            self.action_reload()

    @property
    def path(self) -> Path | None:
        return self._runs.contents.path if self._opened else None

    def heading(self) -> str:
        match self.level:
            case "files":
                return "result files"
            case "runs":
                return self._runs.heading
            case "run" if self._run.here is not None:
                run = self._run.here.summary
                return f"{run.short_id} {run.label or run.profile}, {day(run)}"
        return self._notice_heading

    def hints(self) -> tuple[str, ...]:
        return _HINTS.get(self._run.tab if self.level == "run" else self.level, _HINTS["run"])

    def _list_files(self, opens: Path | None = None) -> None:
        """Show the files that there are now, or the runs of one of them."""

        def taken(files: tuple[FileEntry, ...]) -> None:
            here = self._files[self._files_list.key].path if self._files else None
            self._files, paths = files, [entry.path for entry in files]
            self._files_list.show_table(files_table(files), paths.index(here) if here in paths else 0)
            if opens is not None:
                self._open_file(opens)
            elif files:
                self.show_level("files")
            else:
                runs = shell_of(self).runs_in_progress
                self._notice("no result files", partial(first_steps, runs), "monitor")

        opened = tuple(self._opened)
        self.begin(
            lambda job: recent_files(Path.cwd(), opened),
            taken,
            partial(self._fail, "result files", "monitor"),
        )

    def _open_file(self, path: Path, run: str = "") -> None:
        """Read the runs of a file in the background, and show them, or the run named."""
        self.begin(
            lambda job: read_runs(path, job),
            lambda contents: self._take_runs(contents, run),
            partial(self._fail, path.name, "files"),
        )

    def _take_runs(self, contents: FileRuns, run: str = "") -> None:
        self._runs.hold(contents)
        self._opened[contents.path] = None
        for warning in contents.warnings:
            self.say(warning, "warn")
        if not contents.runs:
            self._notice(contents.path.name, partial(no_runs, contents.path), "files")
            return
        self.show_level("runs")
        if run:
            try:
                self._open_run(contents.path, find_run(contents.runs, run))
                return
            except GputuiError as error:
                self.say_error(error)
        self._runs.draw_preview()

    def on_run_holder_file_changed(self, event: RunPane.FileChanged) -> None:
        self._take_runs(event.contents)
        self.say(event.message, "good")

    def _open_run(self, path: Path, run: RunSummary) -> None:
        def taken(detail: RunDetail) -> None:
            self.show_level("run")
            self._run.hold(detail)

        failed = partial(self._fail, f"{run.short_id} {run.label}", "runs")
        self.begin(lambda job: read_detail(path, run.run_id, job), taken, failed)

    def on_lines_list_chosen(self, event: TableList.Chosen) -> None:
        """Enter, or a click on the selected row."""
        if self.level == "files":
            self._open_file(self._files[event.key].path)
        elif self._runs.here is not None:
            self._open_run(self._runs.here.path, self._runs.here.summary)

    def action_back(self) -> None:
        """Close the filter, cancel reading, or go back to where enter came from, at last to the monitor."""
        self.give_up_quietly()
        level = self.level
        if level == "runs" and self._runs.go_back():
            return
        if self.give_up():
            self.say("cancelled")
            if level == "notice":
                self._notice("result files", partial(paragraph, "press r to look again"), "monitor")
            return
        if level == "run" and self._run.go_back():
            return
        match {"files": "monitor", "runs": "files", "run": "runs"}.get(level, self._notice_back_to):
            case "runs" if self._runs.contents.runs:
                self.say("")
                self.show_level("runs")
                self._runs.draw_preview()
            case "monitor":
                shell_of(self).open_screen("monitor")
            case _:
                self._list_files()

    def action_open_path(self) -> None:
        self.ask(AskText("Path of a result file, or F@RUN"), lambda text: self.begin_with((text,)))

    def action_reload(self) -> None:
        """Read again what is shown; what there is at the beginning is the default file, if it exists."""
        default = expanded(default_result_file()).absolute()
        if self.level == "run" and self._run.here is not None:
            self._open_run(self._run.here.path, self._run.here.summary)
        elif self.level == "runs":
            self._open_file(self._runs.contents.path)
        elif self.level == "notice" and self._notice_back_to == "monitor" and default.is_file():
            self._list_files(opens=default)
        else:
            self._list_files()

    def action_compare(self) -> None:
        marked = self._runs.marked
        if len(marked) < 2:
            wanted = "mark two runs with space first, the baseline first; marks are kept across files"
            self.say(wanted, "warn")
            return
        words = tuple(f"{path}@{run_id.replace('-', '')[-8:]}" for path, run_id in marked)
        shell_of(self).open_screen("compare", words)

    def action_save(self) -> None:
        """Where no pane has anything to save."""
        ask_for_sheet(self, Missing("no run is shown"))

    def on_screen_resume(self) -> None:
        """Update the lists with what was stored in the meantime; a run or an error stays."""
        super().on_screen_resume()
        self.give_up_quietly()
        if not self.is_ready or self.is_busy:
            return
        if self.level in ("files", "runs") or (self.level, self._notice_back_to) == ("notice", "monitor"):
            self.action_reload()

    def _notice(self, heading: str, words: LinesOf, back_to: str) -> None:
        """Show a text instead of a list; `back_to` is where esc leads."""
        self._notice_heading, self._notice_back_to = heading, back_to
        self._notice_page.show_at_any_width(words)
        self.show_level("notice")

    def _fail(self, heading: str, back_to: str, message: str, hint: str) -> None:
        self._notice(heading, partial(error_lines, message, hint), back_to)


SCREEN = ResultsScreen
