"""Dialogs that change a result file: label a run, or remove it."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from gputui.errors import GputuiError
from gputui.model.result import RunSummary
from gputui.services.results.labels import day
from gputui.store.selecting import check_label
from gputui.store.writing import label_run, remove_run
from gputui.tui.shell.shell_screen import ShellScreen
from gputui.tui.widgets.dialogs import AskText, Confirm

Change = Callable[[Callable[[], None], str], None]
"""Runs a change of the file in the background, then shows a message."""


def ask_label(screen: ShellScreen, path: Path, run: RunSummary, change: Change) -> None:
    """Ask for a new label; an invalid one is reported."""

    def labelled(text: str | None) -> None:
        if text is None or text == run.label:
            return
        try:
            label = check_label(text)
        except GputuiError as error:
            screen.say_error(error)
            return
        message = f"{run.short_id} is now {label}" if label else f"{run.short_id} has no label now"
        change(lambda: label_run(path, run.run_id, label), message)

    screen.app.push_screen(
        AskText(f"Label of {run.short_id}; leave it empty to remove it", run.label), labelled
    )


def ask_removal(screen: ShellScreen, path: Path, run: RunSummary, change: Change) -> None:
    """Ask before removing a run."""

    def answered(is_yes: bool | None) -> None:
        if is_yes:
            change(lambda: remove_run(path, run.run_id), f"removed {run.short_id}")

    label = f" ({run.label})" if run.label else ""
    question = (
        f"Remove run {run.short_id}{label}: {run.profile}, {run.status}, {day(run)},"
        f" from {path}? This cannot be undone."
    )
    screen.app.push_screen(Confirm(question), answered)
