"""The progress of a run on stderr: a picture that is rewritten in place, or one line per event."""

from __future__ import annotations

import contextlib
import os
import re
import shutil
import signal
import sys
import time
from collections.abc import Callable, Sequence
from datetime import datetime
from itertools import zip_longest
from pathlib import Path
from types import FrameType, TracebackType

from gputui.cli.output import beneath, drawn_on, shown, wrapped
from gputui.document.background import cursor_row, hide_typing, is_in_background, put_aside
from gputui.document.page import Page, console_on
from gputui.document.spans import Line, Span, line_width, width_of
from gputui.model.journal import CaseEnd, Event, LaunchEnd, LaunchStart
from gputui.model.journal import Line as JournalLine
from gputui.model.plan import Plan
from gputui.model.units import format_clock
from gputui.services.results.labels import machine_words, torch_in
from gputui.services.runs.device_history import HistoryReader
from gputui.services.runs.progress import ProgressSnapshot, ProgressTracker

_WHOLE_EVERY = 30
"""Drawings: whatever a key or another program wrote into the lines meanwhile is gone then."""
_STYLED = re.compile(r"\x1b\[[\d;]*m")


class Redrawn:
    """What such lines need to be changed: texts for a terminal that moves its cursor; it writes none itself.

    The cursor stays in the first cell of the last line, so that as many lines as the terminal has fit without
    scrolling, and it is known where it is when lines are broken.
    """

    def __init__(self) -> None:
        self._lines: tuple[str, ...] = ()
        self._above: list[int] = []
        """Cells of older lines that a smaller terminal pushed out of sight; a larger one shows them again."""
        self.size = 0, 0
        """Columns and rows of the terminal that has them."""
        self._drawings = 0

    def drawing(self, lines: Sequence[str], size: tuple[int, int], in_sight: int) -> str:
        """What makes these the lines; of the same size, mostly only those that differ.

        Of another size it counts how many rows, down to that of the cursor, are `in_sight`.
        """
        self._drawings += 1
        is_kept = size == self.size and len(lines) >= len(self._lines)
        begin = _up(len(self._lines)) if is_kept else self._clearing(size[0], in_sight) or "\r"
        before = self._lines if self._drawings % _WHOLE_EVERY else ()
        pairs = zip_longest(before[: len(lines)], lines)
        # cleared at its end, a line would stay as long
        changed = ["" if old == line else f"\x1b[K{line}" for old, line in pairs]
        self._lines, self.size = tuple(lines), size
        return begin + "\n".join(changed) + "\r"

    def erasing(self, size: tuple[int, int]) -> str:
        """What removes them, for something else to be written in their place."""
        text = self._clearing(*size)
        self.forget()  # it stands between older lines and the next ones
        return text

    def forget(self) -> None:
        """Leave them where they are: somebody else has written below them."""
        self._lines, self._above = (), []

    def _clearing(self, columns: int, in_sight: int) -> str:
        """What removes all that is in sight; a narrower terminal goes on with long lines in the next row."""
        cells = [*self._above, *(width_of(_STYLED.sub("", line)) for line in self._lines[:-1])]
        cells += [0] * bool(self._lines)  # the cursor is in the first row of the last line
        seen = 0
        while cells and seen < in_sight:
            taken = -(-cells[-1] // max(columns, 1)) or 1
            hidden = max(seen + taken - in_sight, 0)
            seen += taken - hidden
            cells[-1:] = [hidden * columns] if hidden else []
        self._lines, self._above = (), cells
        # Row by row: of a screen that is cleared from its first cell on, tmux keeps the lines in its history.
        return _up(seen) + "\x1b[B".join(["\x1b[K"] * seen) + "\x1b[C\x1b[J" + _up(seen) if seen else ""


def _up(rows: int) -> str:
    """To the first cell of so many rows, the last of which has the cursor."""
    return f"\x1b[{rows - 1}A\r" if rows > 1 else "\r"


MOST_ROWS = 24
_KEYS = re.compile(r"(Ctrl-\S|gputui .*)")
MOST_COLUMNS = 100
"""Lines that change each second are no longer than this, for the sake of slow links."""


def picture_lines(
    progress: ProgressSnapshot, plans: Sequence[Plan], into: str, keys: str, columns: int, rows: int
) -> list[Line]:
    """What runs, how far it is, what was measured of each case, the load of the box, and the keys."""
    # what draws takes a while to import, and pipes do without
    from gputui.tui.screens.run_panes import cases_so_far, device_rows, host_lines, load_lines, overall
    from gputui.tui.widgets.cells import fitted, in_ascii, wants_ascii

    width, height = min(columns, MOST_COLUMNS), min(rows, MOST_ROWS)
    ends = progress.ends_at(datetime.now())
    head = [_heading(progress, plans, into, width), overall(progress, width, time.monotonic_ns(), ends)]
    foot = [*device_rows(progress, width), *host_lines(progress, width)]
    if progress.load is not None:
        foot = [*load_lines(progress.load, width, 2, has_axis=False), *foot]
    room = height - len(head) - len(foot) - 1
    cases = cases_so_far(progress, width, room)
    spare = room - len(cases)
    gaps = [[()] if spare > number else [] for number in range(3)]
    named = [Span(part, "accent" if place % 2 else "") for place, part in enumerate(_KEYS.split(f" {keys}"))]
    lines = [*head, *gaps[0], *cases, *gaps[2], *foot, *gaps[1]][: height - 1]
    lines.append(fitted(named, width))
    return [in_ascii(line) for line in lines] if wants_ascii() else lines


def _heading(progress: ProgressSnapshot, plans: Sequence[Plan], into: str, width: int) -> Line:
    """`quick on AMD EPYC, 2 cores   torch 2.13.0+cpu            a.db`."""
    from gputui.tui.widgets.cells import clean, fitted

    spans = [Span(clean(" and ".join(dict.fromkeys(plan.profile for plan in plans))), "title")]
    if progress.machine is not None:
        spans.append(Span(f" on {clean(machine_words(progress.machine))}"))
    if progress.runtime is not None and len(plans) == 1:
        spans.append(Span(f"   {clean(torch_in(progress.runtime))}", "dim"))
    room = width - line_width(spans) - 4
    named = next((name for name in map(clean, (into, Path(into).name)) if width_of(name) <= room), "")
    gap = " " * (room + 3 - width_of(named))
    return fitted((Span(" "), *spans, Span(gap + named, "dim")), width)


MOST_PASSES_IN_FULL = 3
"""A run of more passes has a line for each case of the first, and then a line for each pass."""
_REDRAWN_EVERY_S = 1.0
_FOUND = ("failed", "oom")
"""Outcomes of which a picture has no more than the word."""


class Progress:
    """Writes to stderr: a line per event or, on a terminal, a picture that stays at its end.

    What goes wrong is a line there too, and scrolls up. Ctrl-Z removes the picture and gives the terminal
    back; after `fg` all of it is drawn.
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
        self.tracker = ProgressTracker(plans, is_of_this_clock=bool(histories))
        self._histories, self._into, self._keys = histories, into, keys
        self._rows = Redrawn()
        self._pass = 0
        self._said: set[tuple[int, int, str]] = set()
        """Run, case and outcome of each line about a case: of many passes only the first has a line."""
        self._logs: set[str] = set()
        self._drawn_s = 0.0
        self._show_typing: Callable[[], None] | None = None

    def __enter__(self) -> Progress:
        if self._live:
            self._show_typing = hide_typing()
            signal.signal(signal.SIGTSTP, self._put_aside)
            signal.signal(signal.SIGCONT, self._leave_to_shell)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._write(self._erasing())
        self.give_back()
        if self._live:
            signal.signal(signal.SIGTSTP, signal.SIG_DFL)
            signal.signal(signal.SIGCONT, signal.SIG_DFL)

    def _put_aside(self, number: int, frame: FrameType | None) -> None:
        self.interject("the run goes on; to see it again: fg")
        self.give_back()
        put_aside()

    def _leave_to_shell(self, *_: object) -> None:
        """It has written below the picture, and set the terminal; `tick` takes that again when it may."""
        self._rows.forget()
        self._drawn_s = 0.0
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
        now_s = time.monotonic()
        if self._live and is_in_background(2):
            self._leave_to_shell()
        elif self._live and now_s - self._drawn_s >= _REDRAWN_EVERY_S:
            self._drawn_s = now_s
            self._show_typing = self._show_typing or hide_typing()
            page = Page(console_on(drawn_on(sys.stderr), is_terminal=True))
            progress = self.tracker.picture(self._histories)
            size = page.out.width, page.out.height
            for line in picture_lines(progress, self._plans, self._into, self._keys, *size):
                page.spans(line)
            has_changed = size != self._rows.size and self._show_typing is not None
            in_sight = (has_changed and cursor_row()) or size[1]
            self._write(self._rows.drawing(page.written, size, in_sight))

    def hear(self, index: int, line: JournalLine) -> None:
        """Take one line of the journal of run `index`, possibly written long before."""
        event = self.tracker.hear(index, line)
        if isinstance(line, LaunchStart):
            self._begin_launch(index, line)
        elif isinstance(line, LaunchEnd) and line.log_tail:
            launch = self.tracker.launched.get((index, line.launch_id), "a launch")
            what = f"{launch}: a case failed" if event is None else event.message
            known = line.log_tail in self._logs
            self._logs.add(line.log_tail)
            rows = [] if known else [f"    {row}" for row in line.log_tail.split("\n")]
            self.say(f"{self._when()} {what}; its log ends{' as before' if known else ':'}", *rows)
        elif event is not None and not (isinstance(line, CaseEnd) and self._is_known(index, line)):
            level = f"{line.level}: " if isinstance(line, Event) else ""
            self.say(f"{self._when()} {level}{event.message}")

    def _begin_launch(self, index: int, line: LaunchStart) -> None:
        """What a picture shows in place: each launch, or pass if there are many."""
        replicates = self._plans[index].replicates
        if self._live:
            return
        if replicates <= MOST_PASSES_IN_FULL:
            self._said.clear()
        if replicates <= MOST_PASSES_IN_FULL or not line.replicate:
            self.say(f"{self._when()} {self.tracker.launched[index, line.launch_id]}")
        elif line.replicate > self._pass:
            self._pass = line.replicate
            self.say(f"{self._when()} pass {self._pass + 1} of {replicates}")

    def _is_known(self, index: int, line: CaseEnd) -> bool:
        """Whether the same was said of this case, or the picture shows it."""
        key = index, line.case_id, line.outcome
        is_known = key in self._said or (self._live and line.outcome not in _FOUND)
        self._said.add(key)
        return is_known

    def _when(self) -> str:
        return format_clock(self.tracker.heard_s)

    def _erasing(self) -> str:
        """What removes the picture, which is drawn again at the next tick."""
        self._drawn_s = 0.0
        return self._rows.erasing(shutil.get_terminal_size())

    def _write(self, text: str) -> None:
        if text:
            print(text, end="", file=beneath(sys.stderr), flush=True)
