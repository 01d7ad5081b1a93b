"""`gputui replay`: the telemetry of a stored run in the live view."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import click

from gputui.cli.surroundings import no_terminal
from gputui.errors import GputuiError

_PICTURE_EVERY_S = 1.0
"""Replaces the monitor's interval; the speed determines how much of the recording passes."""


@click.command()
@click.argument("run", metavar="RUN|F@RUN")
@click.argument("file", required=False, type=click.Path(path_type=Path, readable=False))
@click.option(
    "--speed",
    type=click.FloatRange(0.1, 1000.0),
    default=1.0,
    show_default=True,
    help="Seconds of the run shown in each second.",
)
@click.option("--ascii", "is_ascii", is_flag=True, help="Draw with ASCII characters only.  [$GPUTUI_ASCII]")
@click.option("--no-mouse", is_flag=True, help="Leave the mouse to the terminal.")
def command(run: str, file: Path | None, speed: float, is_ascii: bool, no_mouse: bool) -> int:
    """Play what was sampled during RUN of FILE in the panes of the monitor.

    space pauses, left and right seek, + and - set the speed; ? shows all keys.
    """
    if why := no_terminal():
        raise GputuiError(f"replay: {why}", "gputui show RUN FILE prints what was sampled")
    from gputui.services.playback.replay import Playback, open_replay
    from gputui.tui.launch import LiveOptions, show_live
    from gputui.tui.widgets.plain_ascii import wants_ascii

    replay = open_replay(run, file)

    def feed(interval_s: float, on_sample: Callable[[], None]) -> Playback:
        return Playback(replay, interval_s, speed=speed, on_sample=on_sample)

    options = LiveOptions(
        title=f"replay of {replay.summary.label or replay.summary.short_id}",
        interval_s=_PICTURE_EVERY_S,
        is_ascii=is_ascii or wants_ascii(),
        has_mouse=not no_mouse,
        keeps_settings=False,
        is_replay=True,
    )
    return show_live(feed, options)
