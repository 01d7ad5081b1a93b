"""`gputui monitor`: GPUs, host and processes, live; also what `gputui` alone shows."""

from __future__ import annotations

import platform
import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

import click

from gputui.cli.hosts import host_options, named_hosts
from gputui.cli.surroundings import no_terminal
from gputui.errors import EXIT_DONE

if TYPE_CHECKING:
    from gputui.services.hosts.host import Host

COMMON = ("--host", "--interval", "--price")

_FIRST_COMMANDS = {
    "gputui doctor": "is this box healthy and ready to measure?",
    "gputui run quick": "how fast is it? 2 min 20 s",
    "gputui --help": "all commands",
}


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
@click.option("--ascii", "is_ascii", is_flag=True, help="Draw with ASCII characters only.  [$GPUTUI_ASCII]")
@click.option("--notify", is_flag=True, help="Ring and show a desktop notification when a run ends or fails.")
@click.option("--no-mouse", is_flag=True, help="Leave the mouse to the terminal.")
@host_options
def command(
    interval: float | None,
    price: float | None,
    is_ascii: bool,
    notify: bool,
    no_mouse: bool,
    addresses: tuple[str, ...] = (),
    files: tuple[Path, ...] = (),
    vias: tuple[str, ...] = (),
    directory: str = "",
) -> int:
    """Watch the GPUs, the host and the processes of this box; with --host, those of others.

    ? shows the keys, q leaves. Without a terminal one reading is printed.
    """
    hosts = named_hosts(addresses, files, vias, directory)
    why = no_terminal()
    if hosts and why:
        from gputui.cli.snapshot import print_snapshots

        return print_snapshots(hosts, processes=False, require_gpu=False, in_json=False)
    if hosts:
        return _show_hosts(hosts, interval_s=interval, is_ascii=is_ascii, has_mouse=not no_mouse)
    if why:
        return instead_of_live(why)
    return show_app(
        interval=interval, price=price, is_ascii=is_ascii, notifies=notify, has_mouse=not no_mouse
    )


def _show_hosts(hosts: tuple[Host, ...], *, interval_s: float | None, is_ascii: bool, has_mouse: bool) -> int:
    """The live view of several hosts, until the user leaves."""
    from gputui.services.hosts.live import watch_hosts
    from gputui.services.live.snapshot import current_user
    from gputui.services.support.paths import monitor_file
    from gputui.tui.hosts_app import HostsApp
    from gputui.tui.monitor.settings import load_settings
    from gputui.tui.widgets.plain_ascii import wants_ascii

    settings, complaint = load_settings(monitor_file())
    if complaint:
        click.echo(complaint, err=True)
    feeds = watch_hosts(hosts, interval_s or settings.interval_s)
    try:
        return HostsApp(feeds, settings, current_user(), is_ascii or wants_ascii()).run_until_ended(
            mouse=has_mouse
        )
    finally:
        for feed in feeds:
            feed.close()


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
    from gputui.services.live.snapshot import current_user
    from gputui.tui.launch import SHOW_DEMO, LiveOptions, show_live
    from gputui.tui.widgets.plain_ascii import wants_ascii

    options = LiveOptions(
        title=platform.node() or "this box",
        interval_s=interval,
        usd_per_hour=price,
        is_ascii=is_ascii or wants_ascii(),
        has_mouse=has_mouse,
        user=current_user(),
        has_screens=True,
        opens=opens,
        notifies=notifies,
    )
    status = show_live(live_collector, options)
    while status == SHOW_DEMO:
        from gputui.cli.demo import show_demo

        options = replace(options, opens=())
        status = show_demo(is_ascii=is_ascii, has_mouse=has_mouse) or show_live(live_collector, options)
    return status


def instead_of_live(why: str) -> int:
    """Print one reading and what to type next, for pipes, notebook cells and terminals that cannot draw."""
    from gputui.cli.output import console, wrapped
    from gputui.cli.snapshot import command as snapshot
    from gputui.document.page import Page
    from gputui.document.plain_text import command_spans

    click.echo(
        wrapped(f"gputui profiles and compares GPUs and CPUs; {why}, so this is one reading:", sys.stderr),
        err=True,
    )
    callback: Callable[..., int] | None = snapshot.callback
    assert callback is not None
    callback(processes=True, require_gpu=False, in_json=False)
    page = Page(console())
    for number, (typed, why_typed) in enumerate(_FIRST_COMMANDS.items()):
        for line in command_spans(typed, None, "      " if number else "next: ", why_typed):
            page.spans(line)
    page.show()
    return EXIT_DONE
