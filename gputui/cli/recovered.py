"""What earlier runs left behind is stored and told of before anything else is done."""

from __future__ import annotations

import click

from gputui.services.runs.recovery import recover_orphans


def report_recovered() -> None:
    """Store what runs left behind whose supervisors died; one line on stderr for each."""
    for found in recover_orphans():
        if found.message:
            click.echo(found.message, err=True)
