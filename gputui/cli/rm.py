"""`gputui rm`: remove one run from a result file."""

from __future__ import annotations

import sys
from pathlib import Path

import click

from gputui.cli.output import confirmed
from gputui.cli.surroundings import unattended
from gputui.errors import EXIT_DONE, GputuiError
from gputui.services.results.selectors import locate_run
from gputui.store.writing import remove_run


@click.command()
@click.argument("run", metavar="RUN|F@RUN")
@click.argument("file", required=False, type=click.Path(path_type=Path, readable=False))
@click.option("--yes", is_flag=True, help="Remove without asking.")
def command(run: str, file: Path | None, yes: bool) -> int:
    """Remove RUN (its short id, its label, `latest` or `latest~1`) from FILE, for good."""
    path, found = locate_run(run, file, guesses=False)
    if not yes:
        from gputui.services.results.labels import day

        label = f" ({found.label})" if found.label else ""
        what = f"run {found.short_id}{label}: {found.profile}, {found.status}, {day(found)}"
        if unattended() or not sys.stdin.isatty():
            raise GputuiError(f"{what} is not removed without confirmation", "add --yes")
        if not confirmed(f"remove {what}, from {path}?"):
            click.echo("nothing was removed", err=True)
            return EXIT_DONE
    remove_run(path, found.run_id)
    click.echo(f"removed {found.short_id} from {path}")
    return EXIT_DONE
