"""Follows every run in progress on this machine, in threads, and raises alerts.

Separate from `alerts`, whose imports would delay the first frame of the screens.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import TYPE_CHECKING

from gputui.errors import GputuiError

if TYPE_CHECKING:
    from gputui.services.runs.process import LiveRun

POLL_EVERY_S = 2.0
READ_EVERY_S = 0.5


class AlertsWatch:
    """Raises alerts for all runs, whoever started them. Calls `alert` in daemon threads."""

    def __init__(self, on_alert: Callable[[str], None], poll_every_s: float = POLL_EVERY_S) -> None:
        self._on_alert = on_alert
        self._poll_every_s = poll_every_s
        self._ends = threading.Event()
        self._followed: set[str] = set()

    def start(self) -> None:
        """Start; returns at once."""
        threading.Thread(target=self._poll, name="gputui-alerts", daemon=True).start()

    def close(self) -> None:
        """Stop raising alerts; returns at once."""
        self._ends.set()

    def _poll(self) -> None:
        from gputui.services.runs.process import runs_in_progress  # after the first frame is drawn

        is_first = True
        while not self._ends.is_set():
            for runs in runs_in_progress():
                if runs[0].run_id not in self._followed:
                    self._followed.add(runs[0].run_id)
                    threading.Thread(
                        target=self._follow, args=(runs, is_first), name="gputui-alerts-of-run", daemon=True
                    ).start()
            is_first = False
            self._ends.wait(self._poll_every_s)

    def _follow(self, runs: tuple[LiveRun, ...], is_late: bool) -> None:
        from gputui.recording.spec import Spec
        from gputui.services.runs.alerts import Alerts
        from gputui.services.runs.process import called, follow

        try:
            plans = [Spec.read(run.run_dir).plan for run in runs]
        except GputuiError:
            return  # of another version: the screen of the run reports that
        alerts = Alerts(plans, " and ".join(called(run) for run in runs), is_late=is_late)
        for index, line in follow(runs, READ_EVERY_S):
            if self._ends.is_set():
                return
            if line is not None:
                alerts.hear(index, line)
            else:
                self._alert(alerts.tick())
        self._alert(alerts.end())

    def _alert(self, text: str) -> None:
        if text and not self._ends.is_set():
            self._on_alert(text)
