"""`gputui merge`: one result file of many."""

from __future__ import annotations

from pathlib import Path

import click

from gputui.errors import EXIT_DONE
from gputui.store.merging import merge_files


@click.command()
@click.argument(
    "files", nargs=-1, required=True, type=click.Path(path_type=Path, readable=False), metavar="IN..."
)
@click.option(
    "-o", "--output", "out", required=True, type=click.Path(path_type=Path, readable=False), metavar="OUT"
)
def command(files: tuple[Path, ...], out: Path) -> int:
    """Copy all runs of the files IN into OUT, which may exist; merging twice adds nothing."""
    for merged in merge_files(files, out):
        there = f", {merged.already_there} were there already" if merged.already_there else ""
        click.echo(f"{merged.source}: {len(merged.added)} added{there}")
    return EXIT_DONE
