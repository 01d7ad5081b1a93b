"""Where to save what the Results screen shows."""

from __future__ import annotations

from pathlib import Path

from gputui.errors import GputuiError
from gputui.model.absent import Missing
from gputui.services.results.browser import RunDetail
from gputui.services.results.table_export import (
    TRACE_ENDING,
    Sheet,
    default_name,
    save_sheet,
    save_trace,
    trace_of,
)
from gputui.tui.screens.results.run_pane import RunPane
from gputui.tui.shell.shell_screen import ShellScreen, ask_and_save


def report_nothing(screen: ShellScreen, why: str) -> None:
    screen.say(f"there is nothing to save here: {why}", "warn")


def ask_for_list(screen: ShellScreen, sheet: Sheet) -> None:
    """Ask for a path for the table of files or runs, unless it is empty."""
    if not sheet.rows:
        report_nothing(screen, "no row is shown")
        return
    question = f"Save the {sheet.what} as .csv or .json"
    ask_and_save(screen, question, default_name(sheet), lambda path: save_sheet(path, sheet))


def ask_for_tab(screen: ShellScreen, detail: RunDetail, pane: RunPane) -> None:
    """Ask for a path for the table of the tab, or for the Chrome trace, unless there is neither."""
    sheet, case = pane.sheet(), pane.shown_case
    if isinstance(sheet, Sheet) and not sheet.rows:
        sheet = Missing("no row is shown")
    if isinstance(sheet, Missing):
        try:
            trace_of(detail, case)
        except GputuiError:
            report_nothing(screen, sheet.reason)
            return
    question, name = f"Save the Chrome trace as {TRACE_ENDING}", f"trace{TRACE_ENDING}"
    if isinstance(sheet, Sheet):
        question = f"Save the {sheet.what} as .csv or .json; the Chrome trace as {TRACE_ENDING}"
        name = default_name(sheet)

    def save(path: Path) -> str:
        if path.name.lower().endswith(TRACE_ENDING):
            return save_trace(path, detail, case)
        if not isinstance(sheet, Sheet):
            raise GputuiError(f"there is no table here: {sheet.reason}", "go to another tab")
        return save_sheet(path, sheet)

    ask_and_save(screen, question, name, save)
