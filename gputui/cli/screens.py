"""Commands that open the screens: `monitor`, which `gputui` alone is too, `demo` and `results`."""

from __future__ import annotations

import platform
import sys
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING  # Any: a feed, and what is passed on

import click

from gputui.cli.options import FILE, ascii_option, host_options, named_hosts, no_mouse_option
from gputui.cli.output import no_terminal, printed, wrapped
from gputui.document.spans import command_spans
from gputui.errors import EXIT_DONE, GputuiError
from gputui.model.units import counted
from gputui.tui.launch import SHOW_DEMO, show_live

if TYPE_CHECKING:
    from gputui.services.hosts.host import Host

COMMON = ("--host", "--interval", "--price")

_FIRST_COMMANDS = {
    "gputui doctor": "is this box healthy and ready to measure?",
    "gputui run quick": "how fast is it? 2 min 20 s",
    "gputui --help": "all commands",
}


def _address(context: click.Context, parameter: click.Parameter, text: str | None) -> tuple[str, int] | None:
    """`:9400` is a port of loopback, `0.0.0.0:9400` of every interface."""
    if text is None:
        return None
    host, _, port = text.rpartition(":")
    if not port.isdecimal() or int(port) > 65535:
        raise GputuiError(f"--openmetrics {text}: names no port", ":9400, or ADDRESS:9400 for others too")
    return host or "127.0.0.1", int(port)


@click.command()
@click.option(
    "--interval",
    type=click.FloatRange(0.2, 10.0),
    metavar="S",
    help="Seconds between samples, 0.2 to 10.  [1, or as last time]",
)
@click.option(
    "--price",
    type=click.FloatRange(0, 1e6, min_open=True),
    metavar="USD_PER_H",
    help="What the box costs per hour.",
)
@ascii_option
@click.option("--notify", is_flag=True, help="Ring and show a desktop notification when a run ends or fails.")
@no_mouse_option
@click.option(
    "--openmetrics",
    "address",
    callback=_address,
    metavar="[ADDRESS]:PORT",
    help="No screen: answer Prometheus here.  [on loopback]",
)
@click.option(
    "--textfile", type=FILE, metavar="FILE", help="No screen: write FILE.prom for node_exporter every 15 s."
)
@host_options
def monitor(
    interval: float | None,
    price: float | None,
    is_ascii: bool,
    notify: bool,
    no_mouse: bool,
    address: tuple[str, int] | None,
    textfile: Path | None,
    addresses: tuple[str, ...] = (),
    files: tuple[Path, ...] = (),
    vias: tuple[str, ...] = (),
    directory: str = "",
) -> int:
    """Watch the GPUs, the host and the processes of this box; with --host, those of others.

    ? shows the keys, q leaves. Without a terminal one reading is printed.
    """
    hosts = named_hosts(addresses, files, vias, directory)
    if address is not None or textfile is not None:
        if hosts:
            raise GputuiError("--openmetrics and --textfile: of this box alone", "start them on each host")
        from gputui.services.snapshot import export

        export(address, textfile, partial(click.echo, err=True))
        return EXIT_DONE
    why = no_terminal()
    if hosts and why:
        raise GputuiError(f"monitor --host: {why}", "on each host: gputui snapshot")
    if hosts:
        return _show_hosts(hosts, interval_s=interval, is_ascii=is_ascii, has_mouse=not no_mouse)
    if why:
        return _instead_of_live(why)
    return show_app(
        interval=interval, price=price, is_ascii=is_ascii, notifies=notify, has_mouse=not no_mouse
    )


def _show_hosts(hosts: tuple[Host, ...], *, interval_s: float | None, is_ascii: bool, has_mouse: bool) -> int:
    """The live view of several hosts, until the user leaves."""
    from gputui.document.background import palette_here
    from gputui.services.hosts.live import watch_hosts
    from gputui.services.support.paths import monitor_file
    from gputui.tui.app import MonitorApp
    from gputui.tui.hosts import HostsModel, HostsScreen
    from gputui.tui.monitor.model import MonitorModel
    from gputui.tui.monitor.settings import load_settings
    from gputui.tui.widgets.cells import wants_ascii

    settings, complaint = load_settings(monitor_file())
    if complaint:
        click.echo(complaint, err=True)
    ascii_only = is_ascii or wants_ascii()
    feeds = watch_hosts(hosts, interval_s or settings.interval_s)
    try:
        return MonitorApp(
            MonitorModel(settings),
            feeds[0],
            palette=palette_here(settings.theme),
            ascii_only=ascii_only,
            first=HostsScreen(HostsModel(ascii_only), feeds, settings),
        ).run_until_ended(mouse=has_mouse)
    finally:
        for feed in feeds:
            feed.close()


def _instead_of_live(why: str) -> int:
    """Print one reading and what to type next, for pipes, notebook cells and terminals that cannot draw."""
    from gputui.cli.snapshot import print_snapshot

    text = f"gputui profiles and compares GPUs and CPUs; {why}, so this is one reading:"
    click.echo(wrapped(text, sys.stderr), err=True)
    print_snapshot(processes=True, require_gpu=False, in_json=False)
    with printed() as page:
        for number, (typed, why_typed) in enumerate(_FIRST_COMMANDS.items()):
            for line in command_spans(typed, None, "      " if number else "next: ", why_typed):
                page.spans(line)
    return EXIT_DONE


def show_app(
    *opens: str,
    interval: float | None = None,
    price: float | None = None,
    is_ascii: bool = False,
    notifies: bool = False,
    has_mouse: bool = True,
) -> int:
    """Run the app on this terminal, starting with the screen and arguments in `opens`; returns the exit
    status."""
    from gputui.recording.collector import live_collector
    from gputui.services.snapshot import current_user

    def show(*opens: str) -> int:
        return show_live(
            live_collector,
            title=platform.node() or "this box",
            interval_s=interval,
            usd_per_hour=price,
            is_ascii=is_ascii,
            has_mouse=has_mouse,
            user=current_user(),
            has_screens=True,
            opens=opens,
            notifies=notifies,
        )

    status = show(*opens)
    while status == SHOW_DEMO:
        status = _show_demo(is_ascii=is_ascii, has_mouse=has_mouse) or show()
    return status


@click.command()
@click.option("--gpus", type=click.IntRange(1, 72), default=8, show_default=True, help="Number of GPUs.")
@ascii_option
@no_mouse_option
def demo(gpus: int, is_ascii: bool, no_mouse: bool) -> int:
    """Look around in every screen on made-up data: GPUs, a run, three boxes compared. All say DEMO DATA.

    No GPU is needed, nothing is measured or started, and no file stays.
    """
    if why := no_terminal():
        raise GputuiError(f"demo: {why}", "gputui snapshot prints one reading of this box")
    return _show_demo(gpus, is_ascii=is_ascii, has_mouse=not no_mouse)


def _show_demo(gpus: int = 8, *, is_ascii: bool, has_mouse: bool) -> int:
    """Run the app on so many made-up GPUs until the user leaves; returns the exit status."""
    from gputui.services.playback.demo import Demo
    from gputui.services.playback.demo_gpus import CAUTION, USD_PER_HOUR_AND_GPU, USER, DemoBox, DemoFeed

    made_up: Demo | None = None
    try:
        made_up = Demo(gpus)
    except OSError as error:
        click.echo(f"demo: only the monitor is shown, since no directory can be made: {error}", err=True)

    def feed(interval_s: float, on_sample: Callable[[], None]) -> DemoFeed:
        return DemoFeed(DemoBox(gpus), interval_s, on_sample)

    return show_live(
        feed,
        title=counted(gpus, "made-up GPU"),
        caution=CAUTION,
        usd_per_hour=gpus * USD_PER_HOUR_AND_GPU,
        is_ascii=is_ascii,
        has_mouse=has_mouse,
        keeps_settings=False,
        user=USER,
        has_screens=made_up is not None,
        demo=made_up,
    )


@click.command()
@click.argument("file", required=False, metavar="[F[@RUN]]")
def results(file: str | None) -> int:
    """Look through result files, their runs and each run in full, on the screen."""
    if why := no_terminal():
        raise GputuiError(f"results: {why}", "gputui runs F lists the runs of a file")
    return show_app("results", *([file] if file else []))
