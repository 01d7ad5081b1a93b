"""`gputui stop`: end a run in progress and keep what is finished."""

from __future__ import annotations

import signal

import click

from gputui.cli.recovered import report_recovered
from gputui.cli.watching import finish, hold_signals, watch
from gputui.errors import EXIT_DONE, EXIT_TERMINATED
from gputui.recording.spec import Spec
from gputui.services.runs.process import find_in_progress, stop


@click.command()
@click.argument("run", default="")
@click.option("--json", "as_json", is_flag=True, help="Print the results as JSON.")
def command(run: str, as_json: bool) -> int:
    """End RUN (its short id or label; the only one without it), store what is finished, and show that."""
    report_recovered()
    runs = find_in_progress(run)
    plans = [Spec.read(found.run_dir).plan for found in runs]
    hold_signals()
    stop(runs[0], signal.SIGTERM)
    watched = watch(runs, plans)
    status = finish(runs, watched, runs[0].target, as_json=as_json)
    return EXIT_DONE if status == EXIT_TERMINATED else status  # stopping it was the request
