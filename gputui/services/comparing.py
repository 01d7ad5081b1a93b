"""From result files to a whole comparison: what `compare` prints and the Compare screen shows."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from gputui.errors import GputuiError
from gputui.model.absent import Missing
from gputui.services.comparison import (
    Cell,
    Comparison,
    Side,
    compared,
    judge_sides,
    side_of_runs,
    sides_by,
    telling_dimension,
)
from gputui.services.evidence import Evidence
from gputui.services.explaining import Why, explain
from gputui.services.selecting import select_all, split_selector
from gputui.store.reading import LaunchPower


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
    pool: bool = False
    """Launches of several runs were taken together."""

    def baseline(self, text: str) -> int:
        """Which side a text names: as it was typed, else the one file of that name, with or without ending.

        Raises GputuiError, with the list, if that is not one.
        """
        names = [side.name for side in self.sides]
        files = [Path() if self.ignore else split_selector(name)[0] for name in names]
        for candidates in (names, [str(f) for f in files], [f.name for f in files], [f.stem for f in files]):
            if candidates.count(text) == 1:
                return candidates.index(text)
        raise GputuiError(
            f"--baseline {text}: is not one of the sides", f"one of {', '.join(dict.fromkeys(names))}"
        )

    def compared(self, baseline: int = 0, *, with_energy: bool = False) -> Answer:
        """Every other side against the baseline, in their order.

        `with_energy`: read what the GPUs drew too. Launches of pooled runs have no energy.
        Raises GputuiError if nothing was measured on any side, or a file can no longer be read.
        """
        first = self.sides[baseline]
        others = [side for place, side in enumerate(self.sides) if place != baseline]
        judged = [judge_sides(first, side, ignore=self.ignore) for side in others]
        self.evidence.read_conditions(run for one in judged for run in one.runs_with_conditions())
        if with_energy and not self.pool:
            self.evidence.read_powers(run for one in judged for run in one.runs_with_power())
        known: dict[int, Cell] = {}
        comparisons = tuple(
            compared(
                one,
                conditions=self.evidence.conditions,
                powers=self._powers if with_energy else None,
                known=known,
            )
            for one in judged
        )
        if not any(comparison.rows for comparison in comparisons):
            raise GputuiError(
                "nothing was measured on any side", "gputui show RUN FILE tells why each case was not run"
            )
        return Answer(comparisons, tuple(explain(comparison, self.evidence) for comparison in comparisons))

    def _powers(self, run_id: str, case_id: int) -> Sequence[LaunchPower] | Missing:
        if self.pool:
            return Missing("launches of several runs were taken together")
        return self.evidence.powers(run_id, case_id)


def ask(files: Sequence[str], *, by: str | None = None, pool: bool = False, trust: bool = False) -> Asked:
    """Read what is to be compared: several `F[@RUN]`, or the variants within one.

    Raises GputuiError if a file cannot be read, or there is nothing to compare in it.
    """
    selections = select_all(files, trust=trust, pool=pool, with_passes=True)
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
    return Asked(tuple(sides), ignore, Evidence(selections, trust=trust), warnings, pool)
