"""`gputui replay`: the telemetry of a stored run in the live panes."""

from __future__ import annotations

from pathlib import Path

import click

from gputui.cli.monitor import has_terminal
from gputui.errors import GputuiError


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
@click.option("--ascii", "is_ascii", is_flag=True, help="No braille, no lines.  [$GPUTUI_ASCII]")
@click.option("--no-mouse", is_flag=True, help="Leave the mouse to the terminal.")
def command(run: str, file: Path | None, speed: float, is_ascii: bool, no_mouse: bool) -> int:
    """Play what was sampled during RUN of FILE in the panes of the monitor."""
    if not has_terminal():
        raise GputuiError(
            "replay: there is no terminal to draw on", "gputui show RUN FILE prints what was sampled"
        )
    from gputui.services.replay import Playback, open_replay
    from gputui.tui.live import LiveOptions, show_live, wants_ascii

    replay = open_replay(run, file)

    def feed(interval_s: float, on_sample: object) -> Playback:
        played = Playback(replay, interval_s, on_sample=on_sample)  # type: ignore[arg-type]
        played.set_speed(speed)
        return played

    options = LiveOptions(
        title=f"replay of {replay.summary.label or replay.summary.short_id}",
        is_ascii=is_ascii or wants_ascii(),
        has_mouse=not no_mouse,
        keeps_settings=False,
    )
    return show_live(feed, options)
