"""Follows every run in progress on this machine, in threads, and raises alerts; how a terminal shows one.

Separate from `alerts`, whose imports would delay the first frame of the screens.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING

from gputui.errors import GputuiError
from gputui.services.runs.active import Groups, watch_runs
from gputui.store.text import clean_text

if TYPE_CHECKING:
    from gputui.services.runs.held_runs import LiveRun

LONGEST = 200
"""Length of a message; GNU screen passes on at most 768 bytes of a string."""
_BELL = b"\x07"
_TITLE = "gputui"
_BELL_ALONE = ("", "dumb", "linux", "vt100", "vt220")
"""Values of TERM; some of these terminals print what follows the ESC of an unknown sequence."""
_TAKES_777 = ("foot", "wezterm", "xterm-ghostty", "xterm-kitty")
"""These show OSC 9 as well, so that both would show the message twice."""
_PROGRAMS_TAKE_777 = ("WezTerm", "ghostty")
_PROGRAMS_TAKE_9 = ("iTerm.app",)


def notification(text: str, environment: Mapping[str, str] = os.environ) -> bytes:
    """A bell, and OSC 9 and OSC 777 with a text; a terminal shows the one it knows.

    `environment` reveals multiplexers: tmux and GNU screen drop unknown sequences unless they are wrapped
    (for tmux: its FAQ, "passthrough escape sequence"). Both pass on a bell.
    """
    term = environment.get("TERM", "")
    if term in _BELL_ALONE:
        return _BELL
    shown = clean_text(text).replace(";", ",")[:LONGEST].encode("utf-8", "replace")
    osc_9 = b"\x1b]9;%s: %s\x07" % (_TITLE.encode(), shown)
    osc_777 = b"\x1b]777;notify;%s;%s\x07" % (_TITLE.encode(), shown)
    program = environment.get("TERM_PROGRAM", "")
    if environment.get("TMUX") or term.startswith("tmux"):
        return _BELL + _through_tmux(osc_9) + _through_tmux(osc_777)
    if environment.get("STY") or term.startswith("screen"):
        return _BELL + _through_screen(osc_9) + _through_screen(osc_777)
    if term.startswith(_TAKES_777) or program in _PROGRAMS_TAKE_777:
        return _BELL + osc_777
    if program in _PROGRAMS_TAKE_9:
        return _BELL + osc_9
    return _BELL + osc_9 + osc_777


def _through_tmux(sequence: bytes) -> bytes:
    return b"\x1bPtmux;" + sequence.replace(b"\x1b", b"\x1b\x1b") + b"\x1b\\"


def _through_screen(sequence: bytes) -> bytes:
    """Wrapped without escaping: screen only treats an ESC before a backslash as the end of the string."""
    return b"\x1bP" + sequence + b"\x1b\\"


READ_EVERY_S = 0.5


def watch_alerts(on_alert: Callable[[str], None]) -> Callable[[], None]:
    """Raise alerts for all runs, whoever started them; returns at once, with what ends it.

    Calls `on_alert` in daemon threads.
    """
    ends = threading.Event()
    followed: set[str] | None = None

    def alert(text: str) -> None:
        if text and not ends.is_set():
            on_alert(text)

    def follow_new(groups: Groups) -> None:
        nonlocal followed
        is_late, followed = followed is None, followed or set()
        for runs in groups:
            if runs[0].run_id not in followed:
                followed.add(runs[0].run_id)
                of_run = (alert, ends, runs, is_late)
                threading.Thread(target=_follow, args=of_run, name="gputui-alerts", daemon=True).start()

    watch_runs(follow_new, ends)
    return ends.set


def _follow(
    alert: Callable[[str], None], ends: threading.Event, runs: tuple[LiveRun, ...], is_late: bool
) -> None:
    from gputui.recording.run_directory import Spec
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
