"""The progress of a run on stderr: one line that is rewritten, or one line per event."""

from __future__ import annotations

import contextlib
import os
import shutil
import sys
import time
from collections.abc import Sequence
from types import TracebackType

from gputui.cli.output import beneath, shown, wrapped
from gputui.model.absent import Missing
from gputui.model.journal import (
    Block,
    CaseEnd,
    CaseWarm,
    Event,
    Figure,
    LaunchEnd,
    LaunchesLeftOut,
    LaunchStart,
    Line,
    RunEnd,
)
from gputui.model.plan import Plan
from gputui.model.profiled import ProfiledPass
from gputui.model.serving import LoadNow
from gputui.model.units import counted, format_clock, format_rate, format_seconds
from gputui.services.results.throughput import speed_of_launch
from gputui.services.runs.progress import INTERVAL_BLOCKS, TimeLeft, load_now_words

MOST_PASSES_IN_FULL = 3
"""A run of more passes has a line for each case of the first, and then a line for each pass."""
_ERASE = "\r\x1b[K"
"""Moves to the first column and clears the line."""


class Progress:
    """Writes to stderr. With `live`, for a terminal, the last line is rewritten in place."""

    def __init__(self, plans: Sequence[Plan], *, live: bool) -> None:
        self._plans = plans
        self._live = live
        self._pace = TimeLeft(plans)
        self._now = "starting"
        self._timed: tuple[int, int] | None = None
        """Run and case of the last line, if it was a block; its text is only built when it is drawn."""
        self._blocks: dict[tuple[int, int], list[Block]] = {}
        self._figures: dict[tuple[int, int, str], Figure] = {}
        """By run, case and key: of the last launch."""
        self._pass = 0
        self._said: set[tuple[int, int, str]] = set()
        """Run, case and outcome of each line about a case: of many passes only the first has a line."""
        self._drawn_s = 0.0

    def __enter__(self) -> Progress:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._erase()

    def say(self, text: str) -> None:
        """Print a line that stays."""
        self._erase()
        print(wrapped(text, sys.stderr), file=sys.stderr, flush=True)

    def interject(self, text: str) -> None:
        """Print a line that stays, from a signal handler: bypasses Python's buffer, which may be in use.

        Writing to a buffered stream while it is being flushed raises RuntimeError.
        """
        line = f"{_ERASE if self._live else ''}{shown(text, sys.stderr)}\n"
        with contextlib.suppress(OSError):  # nobody reads it any more
            os.write(2, line.encode(sys.stderr.encoding))

    def tick(self) -> None:
        """Rewrite the live line, at most once a second."""
        now_s = time.monotonic()
        if self._live and now_s - self._drawn_s >= 1.0:
            self._drawn_s = now_s
            width = shutil.get_terminal_size().columns
            now = self._of_block(*self._timed) if self._timed else self._now
            text = shown(f"{format_clock(self._pace.elapsed_s())} {self._remaining()}{now}", sys.stderr)
            print(f"{_ERASE}{text[: width - 1]}", end="", file=beneath(sys.stderr), flush=True)

    def hear(self, index: int, line: Line) -> None:
        """Take one line of the journal of run `index`, possibly written long before."""
        self._pace.hear(index, line)
        if not isinstance(line, Block):
            self._timed = None
        if isinstance(line, LaunchStart):
            names = ", ".join(self._name(index, case_id) for case_id in line.case_ids)
            self._now = f"{names}: starting"
            plan = self._plans[index]
            if plan.replicates <= MOST_PASSES_IN_FULL:
                self._said.clear()
            if plan.replicates <= MOST_PASSES_IN_FULL or not line.replicate:
                if not self._live:
                    self.say(f"{self._elapsed()} launch {line.launch_id + 1} {names}")
            elif line.replicate > self._pass:
                self._pass = line.replicate
                self.say(f"{self._elapsed()} pass {self._pass + 1} of {plan.replicates}")
        elif isinstance(line, CaseWarm):
            self._now = f"{self._name(index, line.case_id)}: warm"
        elif isinstance(line, LoadNow):
            self._now = f"{self._name(index, line.case_id)}: {load_now_words(line)}"
        elif isinstance(line, Figure):
            self._figures[index, line.case_id, line.key] = line
        elif isinstance(line, Block):
            blocks = self._blocks.setdefault((index, line.case_id), [])
            blocks.append(line)
            self._timed = index, line.case_id
        elif isinstance(line, CaseEnd):
            self._case_ended(index, line)
        elif isinstance(line, ProfiledPass) and not line.is_valid:
            self.say(f"{self._elapsed()} {self._name(index, line.case_id)}  not profiled: {line.reason}")
        elif isinstance(line, LaunchEnd):
            if line.log_tail:
                how = "a case failed" if line.outcome == "ok" else f"{line.outcome}: {line.reason}"
                if line.outcome == "ok" and line.exit_status:
                    how = f"its worker left with {line.exit_status}"
                self.say(f"{self._elapsed()} launch {line.launch_id + 1}: {how}; its log ends:")
                for row in line.log_tail.split("\n"):
                    print(f"    {row}", file=sys.stderr, flush=True)
        elif isinstance(line, Event):
            self.say(f"{self._elapsed()} {line.level}: {line.message}")
        elif isinstance(line, LaunchesLeftOut):
            self.say(f"{self._elapsed()} {line.message}")
        elif isinstance(line, RunEnd):
            self._now = "storing"
            if line.status != "finished":
                self.say(f"{self._elapsed()} run {line.status}: {line.reason}")

    def _of_block(self, index: int, case_id: int) -> str:
        blocks = self._blocks[index, case_id]
        rate = self._rate(index, blocks[-INTERVAL_BLOCKS:])
        return f"{self._name(index, case_id)}: block {len(blocks)}, {rate}"

    def _case_ended(self, index: int, line: CaseEnd) -> None:
        name = self._name(index, line.case_id)
        blocks = self._blocks.pop((index, line.case_id), [])
        if (index, line.case_id, line.outcome) in self._said:
            return
        self._said.add((index, line.case_id, line.outcome))
        if line.outcome == "ok" and blocks:
            what = self._times(index, line.case_id) or counted(line.blocks, "block")
            self.say(f"{self._elapsed()} {name}  {self._rate(index, blocks)}  {what}")
        else:
            self.say(f"{self._elapsed()} {name}  {line.outcome}: {line.reason}")

    def _times(self, index: int, case_id: int) -> str:
        """The median times of a load, `TTFT 52.0 ms, TPOT 10.1 ms`; empty for a case of another kind."""
        found = []
        for key, name in (("ttft_p50_s", "TTFT"), ("tpot_p50_s", "TPOT")):
            figure = self._figures.get((index, case_id, key))
            if figure is not None and not isinstance(figure.value, Missing):
                found.append(f"{name} {format_seconds(figure.value)}")
        return ", ".join(found)

    def _name(self, index: int, case_id: int) -> str:
        name = self._plans[index].cases[case_id].case.name
        return name if len(self._plans) == 1 else f"[{index + 1}] {name}"

    def _rate(self, index: int, blocks: Sequence[Block]) -> str:
        """The rate of blocks of one launch, as in the final table."""
        case = self._plans[index].cases[blocks[0].case_id].case
        return format_rate(speed_of_launch(case, blocks), case.unit)

    def _elapsed(self) -> str:
        return format_clock(self._pace.elapsed_s())

    def _remaining(self) -> str:
        left_s = self._pace.left_s()
        if left_s is None:
            return ""
        return f"~{format_clock(left_s)} left " if left_s >= 1 else "nearly done "

    def _erase(self) -> None:
        if self._live:
            print(_ERASE, end="", file=beneath(sys.stderr), flush=True)
