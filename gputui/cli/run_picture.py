"""The picture of a run in progress below a shell's prompt, in at most 24 rows."""

from __future__ import annotations

import re
import time
from collections.abc import Sequence
from datetime import datetime
from pathlib import Path

from gputui.document.spans import Line, Span
from gputui.model.plan import Plan
from gputui.services.results.labels import machine_words, torch_in
from gputui.services.runs.progress import ProgressSnapshot

MOST_ROWS = 24
_KEYS = re.compile(r"(Ctrl-\S|gputui .*)")
MOST_COLUMNS = 100
"""Lines that change each second are no longer than this, for the sake of slow links."""


def picture_lines(
    progress: ProgressSnapshot, plans: Sequence[Plan], into: str, keys: str, columns: int, rows: int
) -> list[Line]:
    """What runs, how far it is, what was measured of each case, the load of the box, and the keys."""
    # what draws takes a while to import, and pipes do without
    from gputui.tui.screens.run.panes import cases_so_far, device_rows, host_lines, load_lines, overall
    from gputui.tui.widgets.cells import fitted, in_ascii, wants_ascii

    width, height = min(columns, MOST_COLUMNS), min(rows, MOST_ROWS)
    ends = progress.ends_at(datetime.now())
    head = [_heading(progress, plans, into, width), overall(progress, width, time.monotonic_ns(), ends)]
    foot = [*device_rows(progress, width), *host_lines(progress, width)]
    if progress.load is not None:
        foot = [*load_lines(progress.load, width, 2, has_axis=False), *foot]
    room = height - len(head) - len(foot) - 1
    cases, _ = cases_so_far(progress, width, room)
    spare = room - len(cases)
    gaps = [[()] if spare > number else [] for number in range(3)]
    named = [Span(part, "accent" if place % 2 else "") for place, part in enumerate(_KEYS.split(f" {keys}"))]
    lines = [*head, *gaps[0], *cases, *gaps[2], *foot, *gaps[1]][: height - 1]
    lines.append(fitted(named, width))
    return [in_ascii(line) for line in lines] if wants_ascii() else lines


def _heading(progress: ProgressSnapshot, plans: Sequence[Plan], into: str, width: int) -> Line:
    """`quick on AMD EPYC, 2 cores   torch 2.13.0+cpu            a.db`."""
    from gputui.document.spans import line_width, width_of
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
