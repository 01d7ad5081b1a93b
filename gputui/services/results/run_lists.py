"""The runs of several result files in one list."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from gputui.model.result import RunSummary
from gputui.services.results.selectors import batches, from_here
from gputui.store.machines import with_common_ids
from gputui.store.reading import Readers, ResultFile, summaries_of

_TOGETHER = 16


@dataclass(frozen=True, slots=True)
class ListedRun:
    """A run, and the file that holds it."""

    summary: RunSummary
    path: Path

    @property
    def name(self) -> str:
        """As `compare` takes it: `a.db@8e2aad19`."""
        return f"{from_here(str(self.path))}@{self.summary.short_id}"


def list_runs(files: Sequence[Path], trust: bool = False, as_stored: bool = False) -> list[ListedRun]:
    """The runs of these files by absolute path, newest first; `as_stored` as in `open_result`.

    Raises GputuiError for the first file that cannot be read.
    """

    def read(opened: Sequence[ResultFile]) -> list[ListedRun]:
        together = zip(opened, summaries_of(opened), strict=True)
        return [ListedRun(summary, file.db) for file, summaries in together for summary in summaries]

    readers = Readers(files, trust, as_stored)
    try:
        found = [one for some in batches(files, _TOGETHER) for one in readers.read(some, read)]
    finally:
        readers.close()
    (common,) = with_common_ids([[one.summary for one in found]])
    found = [ListedRun(summary, one.path) for summary, one in zip(common, found, strict=True)]
    return sorted(found, key=lambda one: (one.summary.started_utc_us, one.summary.run_id), reverse=True)
