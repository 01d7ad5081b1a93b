"""Stores what earlier runs left behind, before anything else."""

from __future__ import annotations

import click

from gputui.services.runs.recovery import recover_orphans


def report_recovered() -> None:
    """Store runs whose supervisors died; reports each in one line on stderr."""
    for found in recover_orphans():
        if found.message:
            click.echo(found.message, err=True)
