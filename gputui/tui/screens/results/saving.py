"""Where to save what the Results screen shows."""

from __future__ import annotations

from pathlib import Path

from gputui.errors import GputuiError
from gputui.model.absent import Missing
from gputui.model.result import CaseResult
from gputui.services.results.browser import RunDetail
from gputui.services.results.table_export import (
    TRACE_ENDING,
    Sheet,
    default_name,
    save_sheet,
    save_trace,
    trace_of,
)
from gputui.tui.shell.shell_screen import ShellScreen, ask_and_save


def ask_for_sheet(
    screen: ShellScreen,
    sheet: Sheet | Missing,
    detail: RunDetail | None = None,
    case: CaseResult | None = None,
) -> None:
    """Ask for a path for a table, or for the Chrome trace of a run in `detail`, unless there is neither."""
    if isinstance(sheet, Sheet) and not sheet.rows:
        sheet = Missing("no row is shown")
    question, name = f"Save the Chrome trace as {TRACE_ENDING}", f"trace{TRACE_ENDING}"
    if isinstance(sheet, Sheet):
        trace = "" if detail is None else f"; the Chrome trace as {TRACE_ENDING}"
        question, name = f"Save the {sheet.what} as .csv or .json{trace}", default_name(sheet)
    elif detail is None or not _has_trace(detail, case):
        screen.say(f"there is nothing to save here: {sheet.reason}", "warn")
        return

    def save(path: Path) -> str:
        if detail is not None and path.name.lower().endswith(TRACE_ENDING):
            return save_trace(path, detail, case)
        if isinstance(sheet, Missing):
            raise GputuiError(f"there is no table here: {sheet.reason}", "go to another tab")
        return save_sheet(path, sheet)

    ask_and_save(screen, question, name, save)


def _has_trace(detail: RunDetail, case: CaseResult | None) -> bool:
    try:
        trace_of(detail, case)
    except GputuiError:
        return False
    return True
