"""`gputui merge`: one result file of many."""

from __future__ import annotations

import sys
from pathlib import Path

import click

from gputui.errors import EXIT_DONE
from gputui.model.units import counted
from gputui.services.results.selectors import result_file_of
from gputui.store.merging import merge_files
from gputui.store.opening import expanded

_MOST, _SHOWN = 20, 5
"""Files that get a line each, and how many do where there are more."""


@click.command()
@click.argument(
    "files", nargs=-1, required=True, type=click.Path(path_type=Path, readable=False), metavar="IN..."
)
@click.option(
    "-o", "--output", "out", required=True, type=click.Path(path_type=Path, readable=False), metavar="OUT"
)
def command(files: tuple[Path, ...], out: Path) -> int:
    """Copy all runs of the files IN into OUT, which may exist; merging twice adds nothing."""
    with click.progressbar(
        length=len(files), label="reading", file=sys.stderr, hidden=not sys.stderr.isatty()
    ) as bar:
        named = [result_file_of(expanded(path)) for path in files]
        results = merge_files(named, out, lambda done: bar.update(done - bar.pos))
    typed = {path.resolve(): file for path, file in zip(named, files, strict=True)}
    for merged in results[:_SHOWN] if len(results) > _MOST else results:
        there = f", {merged.already_there} were there already" if merged.already_there else ""
        click.echo(f"{typed.get(merged.source, merged.source)}: {len(merged.added)} added{there}")
    if len(results) > _MOST:
        added = sum(len(one.added) for one in results)
        known = sum(one.already_there for one in results)
        more = f"and {len(results) - _SHOWN} more files"
        click.echo(f"{more}: {counted(added, 'run')} added in all, {known} were there")
    return EXIT_DONE
