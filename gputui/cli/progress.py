"""The progress of a run on stderr: a picture that is rewritten in place, or one line per event."""

from __future__ import annotations

import contextlib
import os
import shutil
import sys
import time
from collections.abc import Callable, Sequence
from types import TracebackType

from gputui.cli.output import beneath, drawn_on, shown, wrapped
from gputui.cli.redrawn import Redrawn
from gputui.cli.run_picture import picture_lines
from gputui.document.background import cursor_row, hide_typing
from gputui.document.page import Page, console_on
from gputui.model.journal import (
    CaseEnd,
    Event,
    LaunchEnd,
    LaunchesLeftOut,
    LaunchStart,
    Line,
    ProfiledPass,
    RunEnd,
)
from gputui.model.plan import Plan
from gputui.model.units import counted, format_clock, format_seconds
from gputui.services.results.labels import plain_case_name
from gputui.services.runs.device_history import HistoryReader
from gputui.services.runs.progress import ProgressTracker

MOST_PASSES_IN_FULL = 3
"""A run of more passes has a line for each case of the first, and then a line for each pass."""
_REDRAWN_EVERY_S = 1.0
_TIMES = (("ttft_p50_s", "TTFT"), ("tpot_p50_s", "TPOT"))
_FOUND = ("failed", "oom")
"""Outcomes of which a picture has no more than the word."""


class Progress:
    """Writes to stderr: a line per event or, on a terminal, a picture that stays at its end.

    What goes wrong is a line there too, and scrolls up.
    """

    def __init__(
        self,
        plans: Sequence[Plan],
        *,
        live: bool,
        histories: Sequence[HistoryReader] = (),
        into: str = "",
        keys: str = "",
    ) -> None:
        """`live` for a terminal that moves its cursor. `histories` of what the samplers of the runs read, if
        their clock is ours, `into` the file they are stored in, and `keys` are for the picture."""
        self._plans = plans
        self._live = live
        self._tracker = ProgressTracker(plans)
        self._histories, self._into, self._keys = histories, into, keys
        self._rows = Redrawn()
        self._pass = 0
        self._said: set[tuple[int, int, str]] = set()
        """Run, case and outcome of each line about a case: of many passes only the first has a line."""
        self._logs: set[str] = set()
        """Their ends that were printed: each once."""
        self._drawn_s = 0.0
        self._show_typing: Callable[[], None] | None = None
        """Lets the terminal echo again."""

    def __enter__(self) -> Progress:
        self._show_typing = hide_typing() if self._live else None
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._write(self._erasing())
        self.give_back()

    def give_back(self) -> None:
        """Let the terminal echo again; what was typed into the picture is forgotten."""
        if self._show_typing is not None:
            self._show_typing()
            self._show_typing = None

    def say(self, text: str, *below: str) -> None:
        """Print a line that stays, and others below it."""
        self._write(self._erasing())
        print(wrapped(text, sys.stderr), *below, sep="\n", file=sys.stderr, flush=True)

    def interject(self, *lines: str) -> None:
        """Print lines that stay, from a signal handler: bypasses Python's buffer, which may be in use.

        Writing to a buffered stream while it is being flushed raises RuntimeError.
        """
        text = self._erasing() + "".join(f"{shown(line, sys.stderr)}\n" for line in lines)
        with contextlib.suppress(OSError):  # nobody reads it any more
            os.write(2, text.encode(sys.stderr.encoding))

    def tick(self) -> None:
        """Draw the picture, at most once a second, once all lines so far were heard."""
        if self._histories:
            self._tracker.pace.trust_clock()
        now_s = time.monotonic()
        if self._live and now_s - self._drawn_s >= _REDRAWN_EVERY_S:
            self._drawn_s = now_s
            page = Page(console_on(drawn_on(sys.stderr), is_terminal=True))
            progress = self._tracker.picture(self._histories)
            size = page.out.width, page.out.height
            for line in picture_lines(progress, self._plans, self._into, self._keys, *size):
                page.spans(line)
            has_changed = size != self._rows.size and self._show_typing is not None
            in_sight = (has_changed and cursor_row()) or size[1]
            self._write(self._rows.drawing(page.lines, size, in_sight))

    def hear(self, index: int, line: Line) -> None:
        """Take one line of the journal of run `index`, possibly written long before."""
        self._tracker.hear(index, line)
        if not self._live:
            self._tell(index, line)
        if isinstance(line, CaseEnd):
            self._case_ended(index, line)
        elif isinstance(line, ProfiledPass) and not line.is_valid:
            self.say(f"{self._elapsed()} {self._name(index, line.case_id)}  not profiled: {line.reason}")
        elif isinstance(line, LaunchEnd) and line.log_tail:
            how = "a case failed" if line.outcome == "ok" else f"{line.outcome}: {line.reason}"
            if line.outcome == "ok" and line.exit_status:
                how = f"its worker left with {line.exit_status}"
            known = line.log_tail in self._logs
            self._logs.add(line.log_tail)
            rows = [] if known else [f"    {row}" for row in line.log_tail.split("\n")]
            said = (
                f"{self._elapsed()} {self._tracker.launched.get((index, line.launch_id), 'a launch')}: {how}"
            )
            self.say(f"{said}; its log ends{' as before' if known else ':'}", *rows)
        elif isinstance(line, Event):
            self.say(f"{self._elapsed()} {line.level}: {line.message}")
        elif isinstance(line, LaunchesLeftOut):
            self.say(f"{self._elapsed()} {line.message}")
        elif isinstance(line, RunEnd) and line.status != "finished":
            self.say(f"{self._elapsed()} run {line.status}: {line.reason}")

    def _tell(self, index: int, line: Line) -> None:
        """What a picture shows in place: each launch, or pass if there are many."""
        if isinstance(line, LaunchStart):
            plan = self._plans[index]
            if plan.replicates <= MOST_PASSES_IN_FULL:
                self._said.clear()
            if plan.replicates <= MOST_PASSES_IN_FULL or not line.replicate:
                self.say(
                    f"{self._elapsed()} {self._tracker.launched.get((index, line.launch_id), 'a launch')}"
                )
            elif line.replicate > self._pass:
                self._pass = line.replicate
                self.say(f"{self._elapsed()} pass {self._pass + 1} of {plan.replicates}")

    def _case_ended(self, index: int, line: CaseEnd) -> None:
        name = self._name(index, line.case_id)
        if (index, line.case_id, line.outcome) in self._said or (self._live and line.outcome not in _FOUND):
            return
        self._said.add((index, line.case_id, line.outcome))
        rate = self._tracker.launch_rate(index, line.case_id, line.launch_id)
        if line.outcome == "ok" and rate:
            what = self._times(index, line.case_id) or counted(line.blocks, "block")
            self.say(f"{self._elapsed()} {name}  {rate}  {what}")
        else:
            self.say(f"{self._elapsed()} {name}  {line.outcome}: {line.reason}")

    def _times(self, index: int, case_id: int) -> str:
        """The median times of a load, `TTFT 52.0 ms, TPOT 10.1 ms`; empty for a case of another kind."""
        known = self._tracker.figures_of(index, case_id)
        return ", ".join(f"{name} {format_seconds(known[key][-1])}" for key, name in _TIMES if key in known)

    def _name(self, index: int, case_id: int) -> str:
        name = plain_case_name(self._plans[index].cases[case_id].case)
        return name if len(self._plans) == 1 else f"[{index + 1}] {name}"

    def _elapsed(self) -> str:
        return format_clock(self._tracker.pace.elapsed_s())

    def _erasing(self) -> str:
        """What removes the picture, which is drawn again at the next tick."""
        self._drawn_s = 0.0
        return self._rows.erasing(shutil.get_terminal_size())

    def _write(self, text: str) -> None:
        if text:
            print(text, end="", file=beneath(sys.stderr), flush=True)
