"""From result files to a whole comparison: what `compare` prints and the Compare screen shows."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from gputui.errors import GputuiError
from gputui.services.comparison import (
    Comparison,
    Side,
    compare_sides,
    side_of_runs,
    sides_by,
    telling_dimension,
)
from gputui.services.evidence import Evidence
from gputui.services.explaining import Why, explain
from gputui.services.selecting import select_runs


@dataclass(frozen=True, slots=True)
class Answer:
    """Each side against the baseline."""

    comparisons: tuple[Comparison, ...]
    whys: tuple[tuple[Why, ...], ...]
    """Of each comparison."""


@dataclass(frozen=True, slots=True)
class Asked:
    """Sides that were read and can be compared, with any of them as the baseline."""

    sides: tuple[Side, ...]
    ignore: str
    """The dimension that the sides differ in; empty if they are files or runs."""
    evidence: Evidence
    warnings: tuple[str, ...]

    def compared(self, baseline: int = 0) -> Answer:
        """Every other side against the baseline, in their order.

        Raises GputuiError if nothing was measured on any side, or a file can no longer be read.
        """
        first = self.sides[baseline]
        others = [side for place, side in enumerate(self.sides) if place != baseline]
        comparisons = tuple(
            compare_sides(first, side, ignore=self.ignore, conditions=self.evidence.conditions)
            for side in others
        )
        if not any(comparison.rows for comparison in comparisons):
            raise GputuiError(
                "nothing was measured on any side", "gputui show RUN FILE tells why each case was not run"
            )
        return Answer(comparisons, tuple(explain(comparison, self.evidence) for comparison in comparisons))


def ask(files: Sequence[str], *, by: str | None = None, pool: bool = False, trust: bool = False) -> Asked:
    """Read what is to be compared: several `F[@RUN]`, or the variants within one.

    Raises GputuiError if a file cannot be read, or there is nothing to compare in it.
    """
    selections = [select_runs(text, trust=trust, pool=pool, with_passes=True) for text in files]
    if by is None and len(selections) > 1:
        sides = [side_of_runs(selection.text, selection.runs, pool=pool) for selection in selections]
        ignore = ""
    else:
        runs = [run for selection in selections for run in selection.runs]
        ignore = by or telling_dimension(runs)
        if ignore in ("device", "precision", "threads", "mode"):
            side_of_runs(selections[0].text, runs)  # several machines in one side would be mixed silently
        sides = list(sides_by(ignore, runs, pool=pool))
    warnings = tuple(warning for selection in selections for warning in selection.warnings)
    return Asked(tuple(sides), ignore, Evidence(selections, trust=trust), warnings)
