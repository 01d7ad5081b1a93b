"""`gputui attach` and `gputui stop`: runs in progress, watched to their end, or ended."""

from __future__ import annotations

import signal

import click

from gputui.cli.bakeoff import see_through
from gputui.cli.options import all_cases_option, json_results_option, notify_option
from gputui.cli.recovered import report_recovered
from gputui.cli.watching import VERBOSE_HELP, alerts_of, continuing, finish, hold_signals, watch
from gputui.errors import EXIT_DONE, EXIT_TERMINATED, GputuiError
from gputui.recording.run_directory import Spec
from gputui.services.hosts.bakeoff import bakeoff_in_progress, bakeoffs_in_progress
from gputui.services.runs.held_runs import runs_in_progress
from gputui.services.runs.process import called, find_in_progress
from gputui.services.runs.process import stop as end_run


@click.command()
@click.argument("run", default="")
@notify_option
@all_cases_option
@click.option("-v", "--verbose", is_flag=True, help=VERBOSE_HELP)
@json_results_option
def attach(run: str, notify: bool, shows_all: bool, verbose: bool, as_json: bool) -> int:
    """Watch a run until it ends, then show its results. Ctrl-C leaves; the run continues.

    RUN is its short id or label, needed if several are in progress. It may be a bakeoff; without it, also the
    last one of today that is not over.
    """
    report_recovered()
    bakeoff = bakeoff_in_progress(run) if run or not runs_in_progress() else None
    if bakeoff is not None:
        return see_through(bakeoff, shows_all=shows_all, verbose=verbose, is_ours=False)
    runs = find_in_progress(run)
    plans = [Spec.read(found.run_dir).plan for found in runs]
    hold_signals()
    alerts = alerts_of(runs, plans, is_late=True) if notify else None
    watched = watch(
        runs,
        plans,
        alerts,
        left=continuing(runs),
        keys=f"Ctrl-C leaves it running; to end it: gputui stop {runs[0].short_id}",
    )
    return finish(runs, watched, runs[0].target, as_json=as_json, is_verbose=verbose, shows_all=shows_all)


@click.command()
@click.argument("run", default="")
@json_results_option
def stop(run: str, as_json: bool) -> int:
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
    end_run(runs[0], signal.SIGTERM)
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
