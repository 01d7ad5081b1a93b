"""Runs the live view: a feed of samples, the Monitor's model, the terminal, the settings."""

from __future__ import annotations

import os
import signal
import sys
import threading
from collections.abc import Callable
from dataclasses import replace
from time import monotonic, monotonic_ns
from typing import TYPE_CHECKING

from gputui.document.background import palette_here
from gputui.errors import EXIT_DONE, GputuiError
from gputui.model.absent import Missing
from gputui.services.support.background import WRITES
from gputui.tui.terminal.splash import draw, first_picture, load_asyncio, thaw, without_collecting

if TYPE_CHECKING:
    from gputui.document.theme import Palette
    from gputui.services.playback.demo import Demo
    from gputui.tui.monitor.model import MonitorModel
    from gputui.tui.monitor.screen import Feed
    from gputui.tui.monitor.status import Asked
    from gputui.tui.terminal.cell_diff import CellDiff

SHOW_DEMO = -1
"""In place of an exit status: the user wants to see the demo."""
_FIRST_READINGS_S = 0.05
"""How long to wait for them: threads that read get little done while code is loaded."""
_READERS_END_S = 0.02
"""Time for read-only threads to end; they lose nothing when they are killed."""
_WRITERS_END_S = 0.5
"""Time for a requested change of a file to complete; it is atomic."""


def show_live(
    feed_of: Callable[[float, Callable[[], None]], Feed],
    *,
    title: str,
    caution: str = "",
    interval_s: float | None = None,
    usd_per_hour: float | None = None,
    is_ascii: bool = False,
    has_mouse: bool = True,
    keeps_settings: bool = True,
    user: str = "",
    has_screens: bool = False,
    opens: tuple[str, ...] = (),
    notifies: bool = False,
    demo: Demo | None = None,
) -> int:
    """Show the live view on this terminal until the user leaves; returns the exit status, or SHOW_DEMO.

    `feed_of` takes the interval in seconds and a function to call when there is a new sample. Sampling starts
    before the screen's code is loaded. Settings that cannot be saved are reported on stderr.

    `caution`, for a feed without real measurements, is shown before the title. The interval is that of the
    settings without `interval_s`; `usd_per_hour` is the price of the whole box. With `has_screens`, number
    keys open the other screens; `opens` names the first one and its arguments, the monitor if it is empty.
    With `notifies`, the terminal notifies of runs, whatever the settings say. `demo` is what the other
    screens of the demo show; it is closed at the end.
    """
    with first_picture(1, "  ".join(word for word in ("gputui", caution, title) if word)):
        load_asyncio()
        from gputui.services.support.paths import monitor_file
        from gputui.tui.monitor.settings import MonitorSettings, load_settings, save_settings

        path = monitor_file()
        loaded, complaint = load_settings(path)
        settings = loaded if interval_s is None else replace(loaded, interval_s=interval_s)
        if not keeps_settings:  # the order of one's own processes means nothing elsewhere
            usual = MonitorSettings()
            settings = replace(settings, sort=usual.sort, descending=usual.descending)
        first_readings = threading.Event()
        feed = feed_of(settings.interval_s, first_readings.set)
        feed.want_processes(settings.show_processes)
        feed.start()
        try:
            with without_collecting():
                from gputui.services.playback.demo_gpus import DemoFeed
                from gputui.tui.monitor.model import MonitorModel
                from gputui.tui.shell.registry import SCREENS, screens_line
                from gputui.tui.widgets.cells import wants_ascii

            screens = SCREENS if has_screens else ()
            ascii_only = is_ascii or wants_ascii()
            model = MonitorModel(
                settings,
                usd_per_hour=usd_per_hour,
                ascii_only=ascii_only,
                title=title,
                caution=caution,
                user=user,
                screens=screens_line("monitor") if screens else (),
                opening=" · ".join(
                    f"{one.key} {one.tooltip[0].lower()}{one.tooltip[1:]}" for one in screens[1:]
                ),
            )
            if isinstance(feed, DemoFeed):
                for sample in feed.earlier():
                    model.add(sample)
            if complaint:
                model.say(complaint)
            palette = palette_here(settings.theme)
            shown = None
            if not opens:
                shown = _drawn_early(model, feed, first_readings, palette)
            with without_collecting():
                from gputui.tui.app import MonitorApp
            app = MonitorApp(
                model,
                feed,
                lambda request: _handle(request, feed, model.say, app.exit),
                palette,
                screens=screens,
                ascii_only=ascii_only,
                shown=shown,
            )
            app.demo = demo
            app.notifies = notifies or loaded.notify
            app.used = list(loaded.palette)
            app.invites = loaded.questions and not isinstance(feed, DemoFeed)
            if opens:
                app.opens_first = (opens[0], opens[1:])
            status = app.run_until_ended(mouse=has_mouse)
        finally:
            feed.close()
            if demo is not None:
                demo.close()
            thaw()
    if status == EXIT_DONE and app.runs_in_progress:
        count = app.runs_in_progress
        runs, see = ("1 run goes", "it") if count == 1 else (f"{count} runs go", "them")
        print(f"gputui: {runs} on; to see {see} again: gputui, or gputui attach", file=sys.stderr)
    shown_s = model.settings.interval_s
    kept = replace(
        model.settings,
        interval_s=loaded.interval_s if shown_s == interval_s else shown_s,  # a one-time option
        palette=tuple(app.used),
        notify=model.settings.notify if app.chose_notifies is None else app.chose_notifies,
        theme=app.palette.theme,
    )
    if keeps_settings and kept != loaded:
        try:
            save_settings(path, kept)
        except GputuiError as error:
            print(f"gputui: {error.message}\n  {error.hint}", file=sys.stderr)
    if status != SHOW_DEMO:
        _end_before_python(status)
    return status


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
            from gputui.services.support.paths import error_log, keep_error

            keep_error(error_log(), "monitor", error.message)
            say(error.message, "warn")
        else:
            say(f"{request.signal} was sent to process {request.pid}", "good")
