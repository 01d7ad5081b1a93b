"""`gputui demo`: the live view on a simulated box."""

from __future__ import annotations

from collections.abc import Callable

import click

from gputui.cli.surroundings import no_terminal
from gputui.errors import GputuiError
from gputui.model.units import counted


@click.command()
@click.option("--gpus", type=click.IntRange(1, 72), default=8, show_default=True, help="Number of GPUs.")
@click.option("--ascii", "is_ascii", is_flag=True, help="Draw with ASCII characters only.  [$GPUTUI_ASCII]")
@click.option("--no-mouse", is_flag=True, help="Leave the mouse to the terminal.")
def command(gpus: int, is_ascii: bool, no_mouse: bool) -> int:
    """Look around in every screen on made-up data: GPUs, a run, three boxes compared. All say DEMO DATA.

    No GPU is needed, nothing is measured or started, and no file stays.
    """
    if why := no_terminal():
        raise GputuiError(f"demo: {why}", "gputui snapshot prints one reading of this box")
    return show_demo(gpus, is_ascii=is_ascii, has_mouse=not no_mouse)


def show_demo(gpus: int = 8, *, is_ascii: bool = False, has_mouse: bool = True) -> int:
    """Run the app on so many made-up GPUs until the user leaves; returns the exit status."""
    from gputui.services.live.demo import CAUTION, USD_PER_HOUR_AND_GPU, USER, DemoBox, DemoFeed
    from gputui.services.playback.demo import Demo
    from gputui.tui.launch import LiveOptions, show_live
    from gputui.tui.widgets.plain_ascii import wants_ascii

    demo: Demo | None = None
    try:
        demo = Demo(gpus)
    except OSError as error:
        click.echo(f"demo: only the monitor is shown, since no directory can be made: {error}", err=True)

    def feed(interval_s: float, on_sample: Callable[[], None]) -> DemoFeed:
        return DemoFeed(DemoBox(gpus), interval_s, on_sample)

    options = LiveOptions(
        title=counted(gpus, "made-up GPU"),
        caution=CAUTION,
        usd_per_hour=gpus * USD_PER_HOUR_AND_GPU,
        is_ascii=is_ascii or wants_ascii(),
        has_mouse=has_mouse,
        keeps_settings=False,
        user=USER,
        has_screens=demo is not None,
        demo=demo,
    )
    return show_live(feed, options)
