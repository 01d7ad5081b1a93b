"""`gputui label`: give a run of a result file another label."""

from __future__ import annotations

from pathlib import Path

import click

from gputui.errors import EXIT_DONE
from gputui.services.results.selectors import locate_run
from gputui.store.selecting import check_label
from gputui.store.writing import label_run


@click.command()
@click.argument("run", metavar="RUN|F@RUN")
@click.argument("text")
@click.argument("file", required=False, type=click.Path(path_type=Path, readable=False))
def command(run: str, text: str, file: Path | None) -> int:
    """Give RUN of FILE another label; an empty TEXT removes it."""
    label = check_label(text)
    path, found = locate_run(run, file)
    label_run(path, found.run_id, label)
    click.echo(f"{found.short_id} is now {label}" if label else f"{found.short_id} now has no label")
    return EXIT_DONE
