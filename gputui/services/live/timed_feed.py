"""Samples that a function makes, with the interface of a `Collector`, so that the same panes draw them."""

from __future__ import annotations

import threading
from collections.abc import Callable

from gputui.model.telemetry import LiveSample


class TimedFeed:
    """Shows what `now` makes, and asks it again after each interval, under a lock."""

    def __init__(
        self, now: Callable[[], LiveSample], interval_s: float, on_sample: Callable[[], None]
    ) -> None:
        """`now` returns the same object as before if nothing has changed."""
        self._now = now
        self._interval_s = interval_s
        self.on_sample = on_sample
        self._lock = threading.Lock()
        self._wakes = threading.Event()
        """Set by each change that was asked for."""
        self._is_closed = False
        self._sample = now()

    def start(self) -> None:
        """Start; returns at once."""
        threading.Thread(target=self._play, name="feed", daemon=True).start()

    def latest(self) -> LiveSample:
        """The current sample; the same object as before if nothing has changed."""
        return self._sample

    def want_processes(self, wanted: bool) -> None:
        """Does nothing: process lists cost nothing here, or are not stored."""

    def set_interval(self, interval_s: float) -> None:
        """Show a new sample this often, starting at once."""
        self._interval_s = interval_s
        self._wakes.set()

    def move(self, change: Callable[[], None]) -> None:
        """Change what `now` makes, and show it at once."""
        with self._lock:
            change()
            self._sample = self._now()
        self._wakes.set()

    def close(self) -> None:
        """End."""
        self._is_closed = True
        self._wakes.set()

    def _play(self) -> None:
        while True:
            self._wakes.wait(self._interval_s)
            self._wakes.clear()
            if self._is_closed:
                return
            with self._lock:
                before, self._sample = self._sample, self._now()
                is_news = self._sample is not before
            if is_news:
                self.on_sample()
