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


def watch_alerts(on_alert: Callable[[str], None]) -> Callable[[], None]:
    """Raise alerts for all runs, whoever started them; returns at once, with what ends it.

    Calls `on_alert` in daemon threads.
    """
    ends = threading.Event()

    def alert(text: str) -> None:
        if text and not ends.is_set():
            on_alert(text)

    threading.Thread(target=_poll, args=(alert, ends), name="gputui-alerts", daemon=True).start()
    return ends.set


def _poll(alert: Callable[[str], None], ends: threading.Event) -> None:
    from gputui.services.runs.process import runs_in_progress  # after the first frame is drawn

    is_late, followed = True, set[str]()
    while not ends.is_set():
        for runs in runs_in_progress():
            if runs[0].run_id not in followed:
                followed.add(runs[0].run_id)
                of_run = (alert, ends, runs, is_late)
                threading.Thread(
                    target=_follow, args=of_run, name="gputui-alerts-of-run", daemon=True
                ).start()
        is_late = False
        ends.wait(POLL_EVERY_S)


def _follow(
    alert: Callable[[str], None], ends: threading.Event, runs: tuple[LiveRun, ...], is_late: bool
) -> None:
    from gputui.recording.spec import Spec
    from gputui.services.runs.alerts import Alerts
    from gputui.services.runs.process import called, follow

    try:
        plans = [Spec.read(run.run_dir).plan for run in runs]
    except GputuiError:
        return  # of another version: the screen of the run reports that
    alerts = Alerts(plans, " and ".join(called(run) for run in runs), is_late=is_late)
    for index, line in follow(runs, READ_EVERY_S):
        if ends.is_set():
            return
        if line is not None:
            alerts.hear(index, line)
        else:
            alert(alerts.tick())
    alert(alerts.end())
