"""`gputui import`: store the journal of a run directory."""

from __future__ import annotations

from pathlib import Path

import click

from gputui.errors import EXIT_DONE
from gputui.services.runs.recovery import import_journal
from gputui.services.support.paths import default_result_file


@click.command()
@click.argument(
    "run_dirs", nargs=-1, required=True, type=click.Path(path_type=Path, readable=False), metavar="RUNDIR..."
)
@click.option(
    "--db",
    type=click.Path(path_type=Path, readable=False),
    help="Result file.  [$GPUTUI_DB, else the one `gputui paths` names]",
)
def command(run_dirs: tuple[Path, ...], db: Path | None) -> int:
    """Store the journals of run directories: of runs that were cut short, or copied from another box."""
    target = default_result_file() if db is None else db
    if db is None:
        target.parent.mkdir(parents=True, exist_ok=True)
    for run_dir in run_dirs:
        stored = import_journal(run_dir, target)
        what = (
            "was there already" if stored.already_there else f"{stored.cases} cases, {stored.blocks} blocks"
        )
        click.echo(f"{stored.run_id[-8:]} {stored.status}: {what} ({stored.db})")
        for left_out in stored.left_out:
            click.echo(f"  left out: {left_out}", err=True)
    return EXIT_DONE
