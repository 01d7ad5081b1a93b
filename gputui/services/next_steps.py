"""What would let a row be judged that cannot be judged yet: as commands, ready to be typed."""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterable

from gputui.analysis.verdict import LAUNCHES_MEASURED, RatioEstimate
from gputui.services.comparison import CROWDED, Cell, Row
from gputui.services.evidence import Evidence
from gputui.services.selecting import from_here

_NEEDED = re.compile(r"needs (?:about )?(\d+) launches")
_MOST_LAUNCHES = 20
"""As many as it is worth to name: beyond, a difference is too small to matter."""


def next_steps(row: Row, evidence: Evidence) -> tuple[str, ...]:
    """A line each; nothing for rows that were judged, or that nothing helps."""
    match row.verdict.word:
        case "inconclusive":
            return tuple(_for_unsure(row, evidence))
        case "not comparable":
            return tuple(_for_absent(row, evidence))
    return ()


def _for_unsure(row: Row, evidence: Evidence) -> Iterable[str]:
    if not isinstance(row.estimate, RatioEstimate):
        return
    if any(flag.word == CROWDED for flag in row.flags):
        yield "what else runs on the box makes blocks differ: measure when it is idle"
    found = _NEEDED.search(row.verdict.reason)
    wanted = int(found[1]) if found else LAUNCHES_MEASURED
    sides = ((row.a, row.estimate.launches_a, "a"), (row.b, row.estimate.launches_b, "b"))
    if found is None and row.estimate.replicated:
        return
    if wanted > _MOST_LAUNCHES:
        yield f"more than {_MOST_LAUNCHES} launches a side: so near to the same that it hardly pays"
        return
    runs = set()
    for cell, launches, letter in sides:
        if launches < wanted and cell.run is not None and cell.run.run_id not in runs:
            runs.add(cell.run.run_id)
            yield f"on the box of {letter}: {_again(cell, evidence)} --launches {wanted}"


def _for_absent(row: Row, evidence: Evidence) -> Iterable[str]:
    for mine, other, letter in ((row.a, row.b, "a"), (row.b, row.a, "b")):
        if mine.result is None and other.run is not None:
            yield f"on the box of {letter}: {_again(other, evidence)} --only {row.case.work.workload}"
        elif mine.result is not None and mine.result.outcome == "oom":
            yield f"{letter} needs more memory for this size; smaller sizes of the workload may fit"
        elif mine.result is not None and "budget" in mine.result.reason:
            only = f"--only {row.case.work.workload}"
            yield f"on the box of {letter}: the same profile with {only} gives it more time"


def _again(cell: Cell, evidence: Evidence) -> str:
    """The command that repeats the cases of a run."""
    if cell.run is None:
        return "gputui run"
    file = from_here(str(evidence.file(cell.run.run_id)))
    return f"gputui run --like {shlex.quote(f'{file}@{cell.run.short_id}')}"
