"""Commands that open the screens: `monitor`, which `gputui` alone is too, `demo` and `results`; and how the
app begins and ends: a feed of samples, the Monitor's model, the terminal, the settings.
"""

from __future__ import annotations

import os
import platform
import signal
import sys
import threading
from collections.abc import Callable, Sequence
from dataclasses import fields, replace
from functools import partial
from pathlib import Path
from time import monotonic, monotonic_ns
from typing import TYPE_CHECKING, NamedTuple

import click

from gputui.cli.options import FILE, ascii_option, host_options, live_options, named_hosts, no_mouse_option
from gputui.cli.output import no_terminal, printed, wrapped
from gputui.document.background import palette_here
from gputui.document.spans import command_spans
from gputui.errors import EXIT_DONE, GputuiError
from gputui.model.absent import Missing
from gputui.model.units import counted
from gputui.services.support.background import WRITES
from gputui.services.support.paths import error_log, keep_error, monitor_file
from gputui.tui.terminal.splash import draw, first_picture, load_asyncio, thaw, without_collecting

if TYPE_CHECKING:
    from gputui.document.theme import Palette
    from gputui.services.hosts.host import Host
    from gputui.services.playback.demo import Demo
    from gputui.tui.monitor.model import MonitorModel
    from gputui.tui.monitor.screen import Feed
    from gputui.tui.monitor.settings import MonitorSettings
    from gputui.tui.monitor.status import Asked
    from gputui.tui.shell.registry import ScreenEntry
    from gputui.tui.terminal.cell_diff import CellDiff

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
@live_options
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
    hosts = named_hosts(addresses, files, vias, directory) if addresses or files or vias else ()
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
    from gputui.services.hosts.live import watch_hosts
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

    here = _Box(live_collector, platform.node() or "this box", current_user(), price)
    show = partial(
        _show_live, here, interval_s=interval, is_ascii=is_ascii, has_mouse=has_mouse, notifies=notifies
    )
    status = show(opens)
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

    box = _Box(feed, counted(gpus, "made-up GPU"), USER, gpus * USD_PER_HOUR_AND_GPU, CAUTION, made_up)
    return _show_live(box, is_ascii=is_ascii, has_mouse=has_mouse)


@click.command()
@click.argument("file", required=False, metavar="[F[@RUN]]")
def results(file: str | None) -> int:
    """Look through result files, their runs and each run in full, on the screen."""
    if why := no_terminal():
        raise GputuiError(f"results: {why}", "gputui runs F lists the runs of a file")
    return show_app("results", *([file] if file else []))


SHOW_DEMO = -1
"""In place of an exit status: the user wants to see the demo."""
_FIRST_READINGS_S = 0.05
"""How long to wait for them: threads that read get little done while code is loaded."""
_READERS_END_S = 0.02
"""Time for read-only threads to end; they lose nothing when they are killed."""
_WRITERS_END_S = 0.5
"""Time for a requested change of a file to complete; it is atomic."""


class _Box(NamedTuple):
    """What is watched: this box, or that of the demo.

    `feed_of` takes the interval in seconds, and what to call when there is a new sample. The price is that of
    the whole box. The caution, of a feed without real measurements, stands before the title, and leaves the
    settings alone. `demo` is what the other screens of the demo show, and is closed at the end.
    """

    feed_of: Callable[[float, Callable[[], None]], Feed]
    title: str
    user: str
    usd_per_hour: float | None
    caution: str = ""
    demo: Demo | None = None


def _show_live(
    box: _Box,
    opens: tuple[str, ...] = (),
    *,
    interval_s: float | None = None,
    is_ascii: bool,
    has_mouse: bool,
    notifies: bool = False,
) -> int:
    """Show the live view on this terminal until the user leaves; returns the exit status, or SHOW_DEMO.

    Sampling starts before the screen's code is loaded. The interval is that of the settings without
    `interval_s`. `opens` names the first screen and its arguments, the monitor if it is empty. With
    `notifies`, the terminal notifies of runs, whatever the settings say.
    """
    with first_picture(1, "  ".join(filter(None, ("gputui", box.caution, box.title)))):
        load_asyncio()
        from gputui.tui.monitor.settings import load_settings

        loaded, complaint = load_settings(monitor_file())
        settings = _with_options(loaded, interval_s, is_made_up=bool(box.caution), notifies=notifies)
        first_readings = threading.Event()
        feed = box.feed_of(settings.interval_s, first_readings.set)
        feed.want_processes(settings.show_processes)
        feed.start()
        try:
            with without_collecting():
                from gputui.tui.shell.registry import SCREENS

                screens = SCREENS if box.demo is not None or not box.caution else ()
                model = _model_of(box, settings, screens, feed, is_ascii=is_ascii)
            model.say(complaint)
            palette = palette_here(settings.theme)
            shown = None if opens else _drawn_early(model, feed, first_readings, palette)
            with without_collecting():
                from gputui.tui.app import MonitorApp

            def asked(request: Asked) -> None:
                _handle(request, feed, model.say, app.exit)

            app = MonitorApp(model, feed, asked, palette, screens, model.ascii_only, shown)
            app.demo = box.demo
            app.invites = loaded.questions and not box.caution
            app.opens_first = opens
            status = app.run_until_ended(mouse=has_mouse)
        finally:
            feed.close()
            if box.demo is not None:
                box.demo.close()
            thaw()
    if status == EXIT_DONE and (count := app.runs_in_progress):
        runs, see = ("1 run goes", "it") if count == 1 else (f"{count} runs go", "them")
        print(f"gputui: {runs} on; to see {see} again: gputui, or gputui attach", file=sys.stderr)
    if not box.caution:
        _keep_changed(loaded, settings, app.settings)
    if status != SHOW_DEMO:
        _end_before_python(status)
    return status


def _with_options(
    loaded: MonitorSettings, interval_s: float | None, *, is_made_up: bool, notifies: bool
) -> MonitorSettings:
    """The settings for this time; the order of one's own processes means nothing among made-up ones."""
    from gputui.tui.monitor.settings import MonitorSettings

    usual = MonitorSettings() if is_made_up else loaded
    return replace(
        loaded,
        interval_s=interval_s or loaded.interval_s,
        notify=notifies or loaded.notify,
        sort=usual.sort,
        descending=usual.descending,
    )


def _model_of(
    box: _Box, settings: MonitorSettings, screens: Sequence[ScreenEntry], feed: Feed, *, is_ascii: bool
) -> MonitorModel:
    from gputui.services.playback.demo_gpus import DemoFeed
    from gputui.tui.monitor.model import MonitorModel
    from gputui.tui.shell.registry import screens_line
    from gputui.tui.widgets.cells import wants_ascii

    openings = [f"{one.key} {one.tooltip[0].lower()}{one.tooltip[1:]}" for one in screens[1:]]
    model = MonitorModel(
        settings,
        usd_per_hour=box.usd_per_hour,
        ascii_only=is_ascii or wants_ascii(),
        title=box.title,
        caution=box.caution,
        user=box.user,
        screens=screens_line("monitor") if screens else None,
        opening=" · ".join(openings),
    )
    for sample in feed.earlier() if isinstance(feed, DemoFeed) else ():
        model.add(sample)
    return model


def _keep_changed(loaded: MonitorSettings, begun: MonitorSettings, now: MonitorSettings) -> None:
    """Save what the user has changed, and no option of the command line; a failure is said on stderr."""
    from gputui.tui.monitor.settings import save_settings

    names = [one.name for one in fields(now)]
    changed = {name: getattr(now, name) for name in names if getattr(now, name) != getattr(begun, name)}
    try:
        if changed:
            save_settings(monitor_file(), replace(loaded, **changed))
    except GputuiError as error:
        print(f"gputui: {error.message}\n  {error.hint}", file=sys.stderr)


def _drawn_early(model: MonitorModel, feed: Feed, news: threading.Event, palette: Palette) -> CellDiff:
    """Draw the first frame before Textual is loaded, which takes longer than reading all GPUs.

    Returns what the terminal shows, which is unknown if the GPUs have not been read in time. `news` is set
    when there is a new sample.
    """
    from gputui.tui.terminal.cell_diff import CellDiff

    size = os.get_terminal_size(1)
    shown = CellDiff(palette, size.columns, size.lines)
    deadline_s = monotonic() + _FIRST_READINGS_S
    while isinstance((sample := feed.latest()).processes, Missing) and monotonic() < deadline_s:
        news.wait(deadline_s - monotonic())
        news.clear()
    if sample.gpus and all(gpu.problem is None for gpu in sample.gpus):
        lines = model.lines(size.columns, size.lines, monotonic_ns(), sample)
        draw(1, shown.diff_lines(dict(enumerate(lines))))
    return shown


def _end_before_python(status: int) -> None:
    """Exit the process at once if a thread is still inside DuckDB.

    Python ends daemon threads by unwinding them, upon which C++ aborts the process.
    """
    if "duckdb" not in sys.modules:
        return
    begin_s = monotonic()
    others = [thread for thread in threading.enumerate() if thread.daemon]
    for thread in others:
        end_s = begin_s + (_WRITERS_END_S if thread.name == WRITES else _READERS_END_S)
        thread.join(max(end_s - monotonic(), 0))
    if any(thread.is_alive() for thread in others):
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(status)


def _handle(
    request: Asked, feed: Feed, say: Callable[[str, str], None], leave: Callable[[int], None]
) -> None:
    """Handle a request of the model that concerns the demo or another process, and report the outcome."""
    from gputui.services.playback.demo_gpus import DemoFeed
    from gputui.sources.processes import end_process
    from gputui.tui.monitor.status import ShowDemo

    if isinstance(request, ShowDemo) and isinstance(feed, DemoFeed):
        say("these are the made-up GPUs", "")
    elif isinstance(request, ShowDemo):
        leave(SHOW_DEMO)
    else:
        try:
            end_process(request.pid, request.start_ticks, signal.Signals[request.signal])
        except GputuiError as error:
            keep_error(error_log(), "monitor", error.message)
            say(error.message, "warn")
        else:
            say(f"{request.signal} was sent to process {request.pid}", "good")
