"""`gputui paths`: the locations of all files, and how to remove them."""

from __future__ import annotations

import shlex

import click

from gputui.cli.options import json_option
from gputui.cli.output import print_json
from gputui.model.units import format_bytes
from gputui.services.support.home import missing_home
from gputui.services.support.paths import places


@click.command()
@json_option
def command(as_json: bool) -> None:
    """Show where result file, run directories, probes, settings and key lie, and how to remove them."""
    found = places()
    if as_json:
        plain = [
            {"what": p.what, "path": str(p.path), "exists": p.exists, "bytes": p.total_bytes} for p in found
        ]
        print_json({"places": plain})
        return
    if without_home := missing_home():
        click.echo(without_home, err=True)
    for place in found:
        size = format_bytes(place.total_bytes) if place.exists else "(not there)"
        click.echo(f"{place.what + ':':19}{place.path}  {size}")
        if place.note:
            click.echo(f"{'':19}{place.note}")
    there = [shlex.quote(str(place.path)) for place in found if place.exists]
    if there:
        click.echo(f"to remove all of it, your results too:\n  rm -r {' '.join(there)}")
