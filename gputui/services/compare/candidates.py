"""Pairs of stored runs that are worth comparing, for somebody who has not said what to compare."""

from __future__ import annotations

import shlex
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from gputui.errors import GputuiError
from gputui.model.plan import TRACE_PROFILE
from gputui.model.result import RunSummary
from gputui.services.results.browser import ListedRun, read_runs, recent_files
from gputui.services.support.background import Job
from gputui.store.selecting import with_common_ids

_MOST_FILES, _MOST_PAIRS = 8, 4


@dataclass(frozen=True, slots=True)
class Candidate:
    """Two runs of one profile."""

    a: ListedRun
    """The earlier one."""
    b: ListedRun
    is_one_box: bool

    @property
    def words(self) -> tuple[str, ...]:
        """Behind `gputui compare`."""
        return self.a.name, self.b.name

    @property
    def command(self) -> str:
        return shlex.join(("gputui", "compare", *self.words))


def candidates(directory: Path, job: Job[Any]) -> tuple[Candidate, ...]:
    """For each profile its newest run with the newest one before it, on another box if there is one.

    Looks at the result files that changed last; what is wrong with one is shown where it is opened.
    Raises Cancelled if the job was cancelled.
    """
    found: list[tuple[Path, Sequence[RunSummary]]] = []
    for entry in recent_files(directory)[:_MOST_FILES]:
        with suppress(GputuiError):
            runs = read_runs(entry.path, job).runs
            found.append(
                (
                    entry.path,
                    [run for run in runs if run.status == "finished" and run.profile != TRACE_PROFILE],
                )
            )
    known = with_common_ids([runs for _, runs in found])
    stored = [ListedRun(run, path) for (path, _), runs in zip(found, known, strict=True) for run in runs]
    unique = {one.summary.run_id: one for one in reversed(stored)}
    newest = sorted(unique.values(), key=lambda one: -one.summary.started_utc_us)
    return tuple(_pairs(newest))[:_MOST_PAIRS]


def _pairs(newest: Sequence[ListedRun]) -> Iterator[Candidate]:
    by_profile: dict[tuple[str, int], list[ListedRun]] = {}
    for one in newest:
        by_profile.setdefault((one.summary.profile, one.summary.profile_version), []).append(one)
    for b, *earlier in by_profile.values():
        if earlier:
            here = b.summary.machine.machine_id
            a = next((one for one in earlier if one.summary.machine.machine_id != here), earlier[0])
            yield Candidate(a, b, is_one_box=a.summary.machine.machine_id == here)
