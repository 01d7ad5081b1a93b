"""Runs of `quick` in progress, and a terminal that receives their pictures."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import replace
from itertools import pairwise

import pyte
from builders import H200, make_interpreter, make_machine
from journals import RUNTIME
from run_screen_golden import RUN_ID

from gputui.model.journal import (
    JOURNAL_SCHEMA,
    Block,
    CaseEnd,
    CasePlanned,
    CaseWarm,
    LaunchEnd,
    LaunchStart,
    MachineFound,
    RunStart,
    RuntimeFound,
)
from gputui.model.journal import Line as JournalLine
from gputui.model.machine import Machine
from gputui.model.plan import Plan
from gputui.model.telemetry import HOST
from gputui.services.profiles.loader import find_profile
from gputui.services.profiles.planner import resolve_plan
from gputui.services.runs.device_history import DeviceHistory
from gputui.services.runs.progress import ProgressSnapshot, ProgressTracker

SECOND = 10**9
HOST_NOW = DeviceHistory(
    HOST,
    {"cpu_busy_pct": 198.0, "memory_used_bytes": 3 * 2**30, "load_1min": 2.1, "cpu_clock_mhz": 2600.0},
    1.0,
    dict.fromkeys(("cpu_busy_pct", "memory_used_bytes", "load_1min", "cpu_clock_mhz"), (100.0, 200.0)),
)


class Emulated:
    """A terminal that receives what `Redrawn` and a shell write, with its scrollback."""

    def __init__(self, columns: int, rows: int) -> None:
        self._begin(columns, rows)
        self._broken: set[tuple[str, str]] = set()
        """Rows that one line was broken into, of which each knows its next one."""

    def _begin(self, columns: int, rows: int) -> None:
        self.screen = pyte.HistoryScreen(columns, rows, history=1000)
        self._stream = pyte.Stream(self.screen)

    def resize(self, columns: int, rows: int, unused: int) -> None:
        """As terminals with a scrollback do: lines are broken and joined, and the last rows are in sight.

        tmux leaves more of them out of sight than it must, above `unused` rows below the cursor.
        """
        lines: list[list[str]] = []
        for row in self.lines:
            if lines and (lines[-1][-1], row) in self._broken:
                lines[-1].append(row)
            else:
                lines.append([row])
        self._broken.clear()
        feed = []
        for line in map("".join, lines):
            pieces = [line[at : at + columns] for at in range(0, len(line), columns)] or [""]
            self._broken.update(pairwise(pieces))
            feed += pieces
        self._begin(columns, rows)
        below = len(pieces) - 1 + unused
        self.feed("\n".join(feed) + "\n" * unused + f"\x1b[{below}A" * bool(below) + "\r")

    def feed(self, text: str) -> None:
        self._stream.feed(re.sub(r"\r?\n", "\r\n", text))  # as the kernel does

    @property
    def lines(self) -> list[str]:
        """All of it, what has scrolled up first, without blank lines at the end."""
        above = ["".join(row[x].data for x in range(self.screen.columns)) for row in self.screen.history.top]
        found = [line.rstrip() for line in (*above, *self.screen.display)]
        while found and not found[-1]:
            found.pop()
        return found


def planned(machine: Machine) -> Plan:
    """The profile `quick` on this box."""
    interpreter = make_interpreter(H200) if machine.gpus else make_interpreter(cuda=None)
    box = make_machine("NVIDIA H200") if machine.gpus else make_machine()
    return resolve_plan(find_profile("quick"), interpreter, box)


def steps_of(plan: Plan, case_id: int) -> int:
    """Steps of a block: one of a size for GPUs."""
    return 1 if plan.cases[case_id].case.work.size == "common" else 10


def journal_of(plan: Plan, machine: Machine) -> Iterator[JournalLine]:
    """A run of this plan, block by block; a second for each launch."""
    yield RunStart(JOURNAL_SCHEMA, RUN_ID, 0, 0, 0, "0", "quick", 1, 1, 1, 140.0, "", None)
    yield MachineFound(machine)
    yield RuntimeFound(RUNTIME)
    for case in plan.cases:
        on_gpu = case.case.variant.device_class == "gpu"
        yield CasePlanned(case, 0 if on_gpu else None, "NVIDIA H200" if on_gpu else "Xeon 8481C")
    for launch in plan.launches:
        now_ns = (1 + launch.launch_id) * SECOND
        number = launch.launch_id
        yield LaunchStart(number, launch.replicate, launch.case_ids, 1, 9.0, now_ns)
        for case_id in launch.case_ids:
            precision = plan.cases[case_id].case.variant.precision
            used = "amp-bf16" if precision == "amp" else precision
            yield CaseWarm(number, case_id, used, 1, 2, 3, 3, True, steps_of(plan, case_id), now_ns)
        for index in range(6):
            for case_id in launch.case_ids:
                taken_ns = SECOND // 2 + (index * 7919 % 13) * 100_000
                yield Block(
                    number, case_id, index, steps_of(plan, case_id), now_ns, taken_ns, None, taken_ns, 0
                )
        for case_id in launch.case_ids:
            yield CaseEnd(number, case_id, "ok", "", 6, now_ns)
        yield LaunchEnd(number, "ok", "", 0, "", now_ns)


def pictured(plan: Plan, machine: Machine, *, until: int) -> ProgressSnapshot:
    """After so many lines of its journal."""
    tracker = ProgressTracker([plan])
    for line in list(journal_of(plan, machine))[:until]:
        tracker.hear(0, line)
    return replace(tracker.picture(), devices=(HOST_NOW,))
