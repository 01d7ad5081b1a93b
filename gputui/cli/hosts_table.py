"""The table of hosts while they are measured."""

from __future__ import annotations

import shutil
import sys
import time
from collections import Counter
from collections.abc import Sequence

from gputui.cli.output import beneath, console, say, shown
from gputui.document.page import Page
from gputui.model.units import format_clock, format_whole_seconds
from gputui.services.hosts.bakeoff import LOST, RUNNING, HostStatus
from gputui.services.hosts.hosts_table import hosts_table

_ERASE_BELOW = "\x1b[J"


class HostsTable:
    """One line per host, rewritten in place on a terminal; elsewhere a line whenever it changes."""

    def __init__(self, is_live: bool) -> None:
        self._is_live = is_live
        self._drawn = 0
        self._seen: dict[str, tuple[str, str]] = {}
        self._begun_s = time.monotonic()

    def say(self, text: str) -> None:
        """Print a line that stays."""
        self._erase()
        say(text)

    def draw(self, statuses: Sequence[HostStatus], *, is_last: bool = False) -> None:
        """Show all hosts; the last table stays, with every line in full."""
        if not self._is_live:
            for status in statuses:
                now = status.state, status.why or status.case
                if self._seen.get(status.name) != now:
                    self._seen[status.name] = now
                    say(f"{self._elapsed()} {_row(status)}")
            return
        room = shutil.get_terminal_size().lines - 4
        order = sorted(
            range(len(statuses)), key=lambda n: (not statuses[n].why, statuses[n].state == "done", n)
        )
        # What is over, or goes well, is counted where there is no room.
        listed = list(statuses) if is_last else [statuses[n] for n in sorted(order[:room])]
        counts = Counter(status.state for status in statuses)
        summary = ", ".join(f"{count} {state}" for state, count in counts.items())
        page = Page(console(sys.stderr))
        page.line(f"{self._elapsed()}  {summary}", "title")
        page.table(hosts_table(listed, page.width, None if is_last else 1), gap=2)
        if len(listed) < len(statuses):
            page.line(f"and {len(statuses) - len(listed)} more", "dim")
        self._erase()
        page.show()
        self._drawn = 0 if is_last else page.height

    def _erase(self) -> None:
        if self._drawn:
            print(f"\x1b[{self._drawn}A\r{_ERASE_BELOW}", end="", file=beneath(sys.stderr))
            self._drawn = 0

    def _elapsed(self) -> str:
        return format_clock(time.monotonic() - self._begun_s)


def _row(status: HostStatus) -> str:
    """`gpu-a  running  45 %  about 2 min left  matmul base gpu fp32  41.2 TFLOP/s ±1 %`."""
    parts = [shown(status.name), shown(status.device), status.state]
    if status.share_done is not None and status.state == RUNNING:
        left = "" if status.left_s is None else f"  about {format_whole_seconds(status.left_s)} left"
        parts.append(f"{100 * status.share_done:.0f} %{left}")
    if status.state == LOST:
        parts.append(f"heard {format_whole_seconds(status.silent_s)} ago")
    parts += (status.case, status.rate, status.why or (f"! {status.health}" if status.health else ""))
    return "  ".join(filter(None, parts))
