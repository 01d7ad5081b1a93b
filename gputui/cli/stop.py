"""`gputui stop`: end a run in progress and keep what is finished."""

from __future__ import annotations

import signal

import click

from gputui.cli.bakeoff import see_through
from gputui.cli.recovered import report_recovered
from gputui.cli.watching import finish, hold_signals, watch
from gputui.errors import EXIT_DONE, EXIT_TERMINATED, GputuiError
from gputui.recording.spec import Spec
from gputui.services.hosts.bakeoff import bakeoff_in_progress, bakeoffs_in_progress
from gputui.services.runs.held_runs import runs_in_progress
from gputui.services.runs.process import called, find_in_progress, stop


@click.command()
@click.argument("run", default="")
@click.option("--json", "as_json", is_flag=True, help="Print the results as JSON.")
def command(run: str, as_json: bool) -> int:
    """End RUN, store what is finished, and show that.

    RUN is its short id or label, needed if several are in progress; or the name of a bakeoff.
    """
    report_recovered()
    if not run:
        _check_only_one()
    bakeoff = bakeoff_in_progress(run)
    if bakeoff is not None:
        status = see_through(bakeoff, shows_all=False, verbose=False, ends=True)
        return EXIT_DONE if status == EXIT_TERMINATED else status
    runs = find_in_progress(run)
    plans = [Spec.read(found.run_dir).plan for found in runs]
    hold_signals()
    stop(runs[0], signal.SIGTERM)
    name = runs[0].short_id
    left = "the run is ending; to see its end:", f"  gputui attach {name}"
    watched = watch(runs, plans, left=left, keys="Ctrl-C leaves it ending")
    status = finish(runs, watched, runs[0].target, as_json=as_json)
    return EXIT_DONE if status == EXIT_TERMINATED else status  # stopping it was the request


def _check_only_one() -> None:
    """Raise GputuiError if a bakeoff is in progress and something else too."""
    bakeoffs = bakeoffs_in_progress()
    runs = [called(run) for together in runs_in_progress() for run in together]
    if len(bakeoffs) > 1 or (bakeoffs and runs):
        names = [*(f"bakeoff {bakeoff.name}" for bakeoff in bakeoffs), *runs]
        raise GputuiError(f"{len(names)} runs are in progress: {', '.join(names)}", "name one of them")
