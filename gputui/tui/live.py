"""The live panes from start to end: a feed of samples, the Monitor's picture, the terminal, the settings."""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from typing import Protocol, runtime_checkable

from gputui.errors import GputuiError
from gputui.model.live import LiveSample
from gputui.tui.bell import Bell
from gputui.tui.skeleton import first_picture


class Feed(Protocol):
    """Where samples come from: this box, or a stored run."""

    def start(self) -> None:
        """Begin; returns at once."""

    def latest(self) -> LiveSample:
        """What is known now."""

    def want_processes(self, wanted: bool) -> None:
        """Whether process lists are looked at."""

    def set_interval(self, interval_s: float) -> None:
        """Sample this often."""

    def close(self) -> None:
        """End, within 0.1 s."""


@runtime_checkable
class Remembers(Protocol):
    """A feed that knows what was before the panes opened."""

    def earlier(self) -> Iterable[LiveSample]:
        """The oldest first: charts begin filled."""


@dataclass(frozen=True, slots=True)
class LiveOptions:
    """What the command line says of the picture."""

    title: str
    caution: str = ""
    """That these are no measurements, if so: stands before the title."""
    interval_s: float | None = None
    """None: as it was last time."""
    usd_per_hour: float | None = None
    """Price of the whole box."""
    is_ascii: bool = False
    has_mouse: bool = True
    keeps_settings: bool = True
    user: str = ""


def show_live(feed_of: Callable[[float, Callable[[], None]], Feed], options: LiveOptions) -> int:
    """Show the panes on this terminal until they are left; the exit status.

    `feed_of` is given the interval in seconds and a function to call when there is something new. Sampling
    begins before the screen's own code is loaded. Settings that cannot be kept are told on stderr.
    """
    with first_picture(1, "  ".join(word for word in ("gputui", options.caution, options.title) if word)):
        from gputui.tui.monitor.settings import load_settings, save_settings, settings_path

        path = settings_path()
        loaded, complaint = load_settings(path)
        settings = loaded if options.interval_s is None else replace(loaded, interval_s=options.interval_s)
        bell = Bell()
        feed = feed_of(settings.interval_s, bell.ring)
        feed.want_processes(settings.show_processes)
        feed.start()
        try:
            from gputui.tui.app import MonitorApp
            from gputui.tui.monitor.actions import ACTIONS
            from gputui.tui.monitor.model import MonitorModel

            model = MonitorModel(
                settings,
                usd_per_hour=options.usd_per_hour,
                ascii_only=options.is_ascii,
                title=options.title,
                caution=options.caution,
                user=options.user,
            )
            for sample in feed.earlier() if isinstance(feed, Remembers) else ():
                model.add(sample)
            if complaint:
                model.say(complaint)
            app = MonitorApp(model, feed, bell, ACTIONS, _Errands(feed, model.say).do)
            status = app.run_until_ended(mouse=options.has_mouse)
        finally:
            feed.close()
    kept = model.settings
    if options.interval_s is not None and kept.interval_s == options.interval_s:
        kept = replace(kept, interval_s=loaded.interval_s)  # asked for once, not for ever
    if options.keeps_settings and kept != loaded:
        try:
            save_settings(path, kept)
        except GputuiError as error:
            print(f"gputui: {error.message}\n  {error.hint}", file=sys.stderr)
    return status


def wants_ascii(environment: dict[str, str] | None = None) -> bool:
    """Whether the terminal is to get nothing beyond ASCII: GPUTUI_ASCII, or an encoding without more."""
    environ = os.environ if environment is None else environment
    encoding = (getattr(sys.stdout, "encoding", None) or "ascii").lower().replace("-", "")
    return environ.get("GPUTUI_ASCII", "") not in ("", "0") or encoding != "utf8"


class _Errands:
    """Does what keys ask of the outside."""

    def __init__(self, feed: Feed, say: Callable[[str, str], None]) -> None:
        self._feed = feed
        self._say = say

    def do(self, request: object) -> None:
        """One request; what came of it is said in the last line."""
        from gputui.sources.processes import end_process
        from gputui.tui.monitor.requests import EndProcess, SetInterval, WantProcesses

        if isinstance(request, SetInterval):
            self._feed.set_interval(request.seconds)
        elif isinstance(request, WantProcesses):
            self._feed.want_processes(request.wanted)
        elif isinstance(request, EndProcess):
            try:
                end_process(request.pid, request.start_ticks, signal.Signals[request.signal])
            except GputuiError as error:
                self._say(error.message, "warn")
            else:
                self._say(f"{request.signal} was sent to process {request.pid}", "good")
