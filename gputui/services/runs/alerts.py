"""Watches the runs in progress on this machine: which they are, and what alerts a user who looks elsewhere.

Imports little, so that the first frame of the screens is not delayed.
"""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING

from gputui.errors import GputuiError, clean_text
from gputui.model.journal import CaseEnd, Line, RunEnd

if TYPE_CHECKING:
    from gputui.model.plan import Plan
    from gputui.services.runs.process import LiveRun

EVERY_S = 2.0
Groups = Sequence[tuple["LiveRun", ...]]
"""The runs of each supervisor, the newest first."""


def watch_runs(changed: Callable[[Groups], None], ends: threading.Event) -> None:
    """Report the runs in progress at first, and whenever they change, until `ends` is set; returns at once.

    Calls `changed` in another thread.
    """
    threading.Thread(target=_poll, args=(changed, ends), name="gputui-runs", daemon=True).start()


def _poll(changed: Callable[[Groups], None], ends: threading.Event) -> None:
    from gputui.services.support.paths import run_directories  # after the first frame is drawn

    last: Groups | None = None
    while not ends.is_set():
        found: Groups = ()
        if run_directories().exists():
            from gputui.services.runs.process import runs_in_progress  # only if there was ever a run

            found = runs_in_progress()
        if found != last and not ends.is_set():
            changed(found)
            last = found
        ends.wait(EVERY_S)


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
    from gputui.services.runs.process import follow

    try:
        plans = [Spec.read(run.run_dir).plan for run in runs]
    except GputuiError:
        return  # of another version: the screen of the run reports that
    alerts = alerts_of(runs, plans, is_late=is_late)
    for index, line in follow(runs, READ_EVERY_S):
        if ends.is_set():
            return
        if line is not None:
            alerts.hear(index, line)
        else:
            alert(alerts.tick())
    alert(alerts.end())


LEAST_APART_S = 10.0
"""Events that follow an alert sooner are reported with the next one."""
_WORDS = {"failed": "failed", "oom": "ran out of memory"}


def endings(ends: Collection[RunEnd], runs: int) -> Iterable[str]:
    """How so many runs of one supervisor ended, each word once."""
    found = [f"{end.status}: {end.reason}" if end.reason else end.status for end in ends]
    return dict.fromkeys([*found, *(["its supervisor was killed"] if len(ends) < runs else [])])


class Alerts:
    """Reads journals and writes alerts for a user who is looking elsewhere. For one thread.

    With `is_late`, what was written before the first `tick` is history and raises no alert.
    """

    def __init__(
        self,
        plans: Sequence[Plan],
        called: str,
        *,
        is_late: bool = False,
        clock_s: Callable[[], float] = time.monotonic,
    ) -> None:
        self._plans = plans
        self._called = called
        self._is_history = is_late
        self._clock_s = clock_s
        self._alerted_s: float | None = None
        self._waiting: list[str] = []
        self._seen: set[tuple[int, int, str]] = set()
        self._ends: dict[int, RunEnd] = {}

    def hear(self, index: int, line: Line) -> None:
        """Read one line of the journal of run `index`."""
        if isinstance(line, RunEnd):
            self._ends[index] = line
        elif isinstance(line, CaseEnd) and line.outcome in _WORDS:
            key = (index, line.case_id, line.outcome)
            if key not in self._seen and not self._is_history:
                self._waiting.append(self._sentence(index, line))
            self._seen.add(key)

    def tick(self) -> str:
        """The alert to raise now, empty for none; call it when there are no more lines to read."""
        self._is_history = False
        now_s = self._clock_s()
        is_soon = self._alerted_s is not None and now_s - self._alerted_s < LEAST_APART_S
        if not self._waiting or is_soon:
            return ""
        self._alerted_s = now_s
        return f"run {self._called}: {self._taken()}"

    def end(self) -> str:
        """The alert to raise when all runs are stored, or their supervisor is gone."""
        cases = f"; {self._taken()}" if self._waiting else ""
        return f"run {self._called} {', '.join(endings(self._ends.values(), len(self._plans)))}{cases}"

    def _sentence(self, index: int, line: CaseEnd) -> str:
        from gputui.services.results.labels import plain_case_name  # slow, and only bad news needs it

        planned = self._plans[index].cases
        is_planned = line.case_id < len(planned)
        name = plain_case_name(planned[line.case_id].case) if is_planned else f"case {line.case_id}"
        name = name if len(self._plans) == 1 else f"[{index + 1}] {name}"
        return f"{name} {_WORDS[line.outcome]}"

    def _taken(self) -> str:
        first, *others = self._waiting
        self._waiting.clear()
        return f"{first}, and {len(others)} more" if others else first


def alerts_of(runs: Sequence[LiveRun], plans: Sequence[Plan], *, is_late: bool = False) -> Alerts:
    """The alerts of these runs; `is_late` if they began before this process."""
    from gputui.services.runs.process import called

    return Alerts(plans, " and ".join(called(run) for run in runs), is_late=is_late)
