"""`gputui attach`: watch a run in progress again."""

from __future__ import annotations

import click

from gputui.cli.bakeoff import see_through
from gputui.cli.recovered import report_recovered
from gputui.cli.watching import (
    ALL_HELP,
    NOTIFY_HELP,
    VERBOSE_HELP,
    alerts_of,
    continuing,
    finish,
    hold_signals,
    watch,
)
from gputui.recording.spec import Spec
from gputui.services.hosts.bakeoff import bakeoff_in_progress
from gputui.services.runs.held_runs import runs_in_progress
from gputui.services.runs.process import find_in_progress


@click.command()
@click.argument("run", default="")
@click.option("--notify", is_flag=True, help=NOTIFY_HELP)
@click.option("--all", "shows_all", is_flag=True, help=ALL_HELP)
@click.option("-v", "--verbose", is_flag=True, help=VERBOSE_HELP)
@click.option("--json", "as_json", is_flag=True, help="Print the results as JSON.")
def command(run: str, notify: bool, shows_all: bool, verbose: bool, as_json: bool) -> int:
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
