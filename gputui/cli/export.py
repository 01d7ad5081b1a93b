"""`gputui export`: runs as Parquet files, for Spark, polars, DuckDB and others."""

from __future__ import annotations

import shlex
import sys
from pathlib import Path

import click

from gputui.cli.output import print_hint
from gputui.errors import EXIT_DONE
from gputui.model.units import counted


@click.command()
@click.argument("files", nargs=-1, required=True, metavar="F[@RUN]...")
@click.option(
    "--parquet",
    "directory",
    required=True,
    type=click.Path(path_type=Path),
    metavar="DIR",
    help="The export's directory, created if it does not exist.",
)
def command(files: tuple[str, ...], directory: Path) -> int:
    """Add the runs of F, or F@RUN alone, to Parquet files in DIR; exporting twice adds nothing.

    F may be a directory: all result files in it. DIR itself can be named wherever a result file can.
    """
    from gputui.services.results.selectors import chosen_files
    from gputui.store.parquet import export_runs

    paths, only = chosen_files(files)
    with click.progressbar(
        length=len(paths), label="reading", file=sys.stderr, hidden=not sys.stderr.isatty()
    ) as bar:
        done = export_runs(paths, directory, only, lambda count: bar.update(count - bar.pos))
    there = f", {counted(done.already_there, 'run')} already there" if done.already_there else ""
    click.echo(
        f"{counted(len(done.added), 'run')} of {counted(len(paths), 'file')} added to {directory}{there}"
    )
    if done.added:
        place = shlex.quote(str(directory))
        print_hint("next", f"gputui runs {place}, gputui show latest {place}, gputui help engines.md")
    return EXIT_DONE
