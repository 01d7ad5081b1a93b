"""The table of hosts while they are measured."""

from __future__ import annotations

import shutil
import sys
import time
from collections import Counter
from collections.abc import Sequence

from gputui.cli.output import beneath, console, say, shown
from gputui.document.page import Page
from gputui.document.spans import Line, Span
from gputui.document.spans import wrapped as lines_in
from gputui.model.units import format_clock, format_seconds
from gputui.services.hosts.bakeoff import STYLES, HostStatus

_DEVICE_CELLS, _STATE_CELLS, _MOST_NAME_CELLS = 20, 13, 24
_DEVICES_FROM = 110
"""Columns of a terminal; the devices were listed before the start."""
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
        width = min(max(len(shown(status.name)) for status in statuses), _MOST_NAME_CELLS)
        if not self._is_live:
            for status in statuses:
                now = status.state, status.why or status.case
                if self._seen.get(status.name) != now:
                    self._seen[status.name] = now
                    say(f"{self._elapsed()} {_row(status, width)}")
            return
        size = shutil.get_terminal_size()
        has_devices = size.columns >= _DEVICES_FROM
        rows = [(_row(one, width, has_devices=has_devices), STYLES.get(one.state, "dim")) for one in statuses]
        if is_last:
            rows = [
                (line, style)
                for row, style in rows
                for line in lines_in(row, size.columns - 1, width + 2, breaks=False)
            ]
        elif len(rows) > size.lines - 3:  # what is over, or goes well, is counted
            room = size.lines - 3
            order = sorted(
                range(len(rows)), key=lambda n: (not statuses[n].why, statuses[n].state == "done", n)
            )
            hidden = f"and {len(rows) - room + 1} more", ""
            rows = [*(rows[n] for n in sorted(order[: room - 1])), hidden]
        page = Page(console(sys.stderr))
        counts = Counter(status.state for status in statuses)
        summary = " · ".join(f"{count} {state}" for state, count in counts.items())
        page.line(_cut(f"{self._elapsed()} {summary}", size.columns - 1), "title", is_whole=True)
        state_at = width + 2 + has_devices * (_DEVICE_CELLS + 2)
        for row, style in rows:
            page.spans(_coloured(_cut(shown(row, sys.stderr), size.columns - 1), state_at, style))
        self._erase()
        page.show()
        self._drawn = 0 if is_last else page.height

    def _erase(self) -> None:
        if self._drawn:
            print(f"\x1b[{self._drawn}A\r{_ERASE_BELOW}", end="", file=beneath(sys.stderr))
            self._drawn = 0

    def _elapsed(self) -> str:
        return format_clock(time.monotonic() - self._begun_s)


def _row(status: HostStatus, name_cells: int, *, has_devices: bool = True) -> str:
    """`gpu-a  NVIDIA L4  running  45 %  ~2 min left  gemm base gpu fp32  41.2 TFLOP/s ±1 %`."""
    parts = [f"{_cut(shown(status.name), name_cells):{name_cells}}"]
    if has_devices:
        parts.append(f"{_cut(shown(status.device), _DEVICE_CELLS):{_DEVICE_CELLS}}")
    parts.append(f"{status.state:{_STATE_CELLS}}")
    if status.share_done is not None and status.state == "running":
        left = "" if status.left_s is None else f"  ~{format_seconds(round(status.left_s))} left"
        parts.append(f"{100 * status.share_done:3.0f} %{left}")
    if status.state == "link lost":
        parts.append(f"heard {format_seconds(round(status.silent_s))} ago")
    parts += filter(None, (status.case, status.rate, status.why))
    if status.health and not status.why:
        parts.append(f"! {status.health}")
    return "  ".join(parts).rstrip()


def _coloured(row: str, state_at: int, style: str) -> Line:
    """A row with its state in this style; what a row goes on with in the next line has none."""
    end = state_at if row.startswith(" ") else state_at + _STATE_CELLS
    return Span(row[:state_at]), Span(row[state_at:end], style), Span(row[end:])


def _cut(text: str, cells: int) -> str:
    """The beginning of a text that is too long, up to a whole word."""
    if len(text) <= cells:
        return text
    words = text[: cells - 1].rsplit(" ", 1)[0].rstrip()
    return f"{words if len(words) > cells // 2 else text[: cells - 1]}…"
