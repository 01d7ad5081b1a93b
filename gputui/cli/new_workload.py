"""`gputui new-workload`: a template for a user's workload."""

from __future__ import annotations

import shlex
from pathlib import Path

import click

from gputui.errors import EXIT_DONE
from gputui.services.profiles.user_workload import write_template


@click.command()
@click.argument("file", type=click.Path(path_type=Path, readable=False))
def command(file: Path) -> int:
    """Write FILE: a commented workload that runs at once, to be changed into your own."""
    write_template(file)
    click.echo(f"wrote {file}; run it: gputui run {shlex.quote(str(file))} --db a.db")
    return EXIT_DONE
