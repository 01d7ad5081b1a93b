"""`gputui demo`: the live panes on a box that does not exist, and pictures of them."""

from __future__ import annotations

from pathlib import Path

import click

from gputui.errors import EXIT_DONE, GputuiError
from gputui.model.units import counted


@click.command()
@click.option("--gpus", type=click.IntRange(1, 72), default=8, show_default=True, help="How many there are.")
@click.option(
    "--screenshots", type=click.Path(path_type=Path), metavar="DIR", help="Write pictures (SVG) instead."
)
@click.option(
    "--measure",
    is_flag=False,
    flag_value="",
    metavar="[PROFILE]",
    help="With --screenshots: measure here, twice, and make pictures of the other screens as well."
    "  [gemm and gpt_train of quick]",
)
@click.option("--ascii", "is_ascii", is_flag=True, help="No braille, no lines.  [$GPUTUI_ASCII]")
@click.option("--no-mouse", is_flag=True, help="Leave the mouse to the terminal.")
def command(gpus: int, screenshots: Path | None, measure: str | None, is_ascii: bool, no_mouse: bool) -> int:
    """Look around in the monitor on made-up GPUs: every picture of it says DEMO DATA.

    No GPU is needed, and none is read. Pictures of the other screens show what --measure measured.
    """
    if screenshots is not None:
        return write_screenshots(screenshots, measure)
    if measure is not None:
        raise GputuiError("--measure makes pictures only", "gputui demo --screenshots DIR --measure")
    from gputui.cli.monitor import has_terminal

    if not has_terminal():
        raise GputuiError(
            "demo: there is no terminal to draw on", "gputui demo --screenshots DIR writes pictures instead"
        )
    from collections.abc import Callable

    from gputui.services.live.demo import CAUTION, USD_PER_HOUR_AND_GPU, USER, DemoBox, DemoFeed
    from gputui.tui.launch import LiveOptions, show_live
    from gputui.tui.widgets.plain_ascii import wants_ascii

    def feed(interval_s: float, on_sample: Callable[[], None]) -> DemoFeed:
        return DemoFeed(DemoBox(gpus), interval_s, on_sample)

    options = LiveOptions(
        title=counted(gpus, "made-up GPU"),
        caution=CAUTION,
        usd_per_hour=gpus * USD_PER_HOUR_AND_GPU,
        is_ascii=is_ascii or wants_ascii(),
        has_mouse=not no_mouse,
        keeps_settings=False,
        user=USER,
        is_demo=True,
    )
    return show_live(feed, options)


def write_screenshots(folder: Path, measure: str | None) -> int:
    """All pictures, into a folder that is made if there is none; `measure` None: of the monitor alone."""
    from gputui.tui.demo_pictures import pictures

    try:
        folder.mkdir(parents=True, exist_ok=True)
        for name, svg in pictures():
            _write(folder / name, svg)
        if measure is not None:
            from gputui.tui.measured_pictures import QUICK, Subject, measured_pictures

            subject = Subject(measure) if measure else QUICK
            for name, svg in measured_pictures(subject, lambda said: click.echo(said, err=True)).items():
                _write(folder / name, svg)
    except OSError as error:
        raise GputuiError(
            f"{folder}: pictures cannot be written ({error.strerror})", "name a directory you may write"
        ) from error
    return EXIT_DONE


def _write(path: Path, svg: str) -> None:
    path.write_text(svg, encoding="utf-8")
    click.echo(path)
