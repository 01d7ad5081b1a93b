"""`gputui results`: the app, starting with its Results screen."""

from __future__ import annotations

import click

from gputui.cli.monitor import show_app
from gputui.cli.surroundings import no_terminal
from gputui.errors import GputuiError


@click.command()
@click.argument("file", required=False, metavar="[F[@RUN]]")
def command(file: str | None) -> int:
    """Look through result files, their runs and each run in full, on the screen."""
    if why := no_terminal():
        raise GputuiError(f"results: {why}", "gputui runs F lists the runs of a file")
    return show_app("results", *([file] if file else []))
