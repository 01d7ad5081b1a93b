"""The runs of several result files in one list."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from gputui.errors import GputuiError
from gputui.model.result import RunSummary
from gputui.services.results.selectors import batches
from gputui.store.locking import Locked
from gputui.store.machines import with_common_ids
from gputui.store.opening import FilesInTurn, TooLarge
from gputui.store.reading import open_result, open_results_in_turn, summaries_of

_TOGETHER = 16


@dataclass(frozen=True, slots=True)
class ListedRun:
    """A run, and the file that holds it."""

    summary: RunSummary
    path: Path


def list_runs(files: Sequence[Path], trust: bool = False, as_stored: bool = False) -> list[ListedRun]:
    """The runs of these files by absolute path, newest first; `as_stored` as in `open_result`.

    Raises GputuiError for the first file that cannot be read.
    """
    found: list[ListedRun] = []
    turns = FilesInTurn(files, trust)
    try:
        for some in batches(files, _TOGETHER):
            found += _runs_in(some, turns, trust, as_stored)
    finally:
        turns.close()
    (common,) = with_common_ids([[one.summary for one in found]])
    found = [ListedRun(summary, one.path) for summary, one in zip(common, found, strict=True)]
    return sorted(found, key=lambda one: (one.summary.started_utc_us, one.summary.run_id), reverse=True)


def _runs_in(files: Sequence[Path], turns: FilesInTurn, trust: bool, as_stored: bool) -> list[ListedRun]:
    if len(files) > 1:
        try:
            with open_results_in_turn(turns, files, as_stored) as opened:
                together = summaries_of(opened)
        except TooLarge:
            raise
        except (GputuiError, Locked):
            pass  # one by one, each is waited for, and the one at fault is named
        else:
            return [
                ListedRun(summary, file)
                for file, summaries in zip(files, together, strict=True)
                for summary in summaries
            ]
    found = []
    for file in files:
        with open_result(file, trust, as_stored) as alone:
            found += [ListedRun(summary, file) for summary in alone.summaries()]
    return found
