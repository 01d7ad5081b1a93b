"""A comparison as a check: is anything slower, and is that sure."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from gputui.analysis.verdict import RatioEstimate
from gputui.model.units import three_digits
from gputui.services.comparison import Comparison, Row
from gputui.services.row_wording import row_name


@dataclass(frozen=True, slots=True)
class Checked:
    """What a check found; a line each."""

    failures: tuple[str, ...]
    """Rows that are surely slower by more than was allowed, and sides with nothing in common."""
    unsure: tuple[str, ...]
    """Rows of which it cannot be told, or that could not be compared."""


def check_verdicts(comparisons: Sequence[Comparison], ignore: str, slower_pct: float | None) -> Checked:
    """Whether any row of B takes more than `slower_pct` percent longer than on A; None allows any length.

    Surely slower is a row with the verdict `slower` whose whole interval lies beyond. Unsure are rows that
    are inconclusive or not comparable, and slower ones whose interval holds the limit.
    """
    failures: list[str] = []
    unsure: list[str] = []
    for comparison in comparisons:
        beside = f"{comparison.b.name} against {comparison.a.name}"
        if not any(isinstance(row.estimate, RatioEstimate) for row in comparison.rows):
            failures.append(f"check: {beside}: nothing was comparable")
        for row in comparison.rows:
            name = f"{beside}: {row_name(row, [], ignore)}"
            failures += (f"check: {name} {said}" for said in _slower(row, slower_pct))
            unsure += (f"unsure: {name} {said}" for said in _unsure(row, slower_pct))
    return Checked(tuple(failures), tuple(unsure))


def _slower(row: Row, slower_pct: float | None) -> Iterable[str]:
    estimate = row.estimate
    if slower_pct is None or row.verdict.word != "slower" or not isinstance(estimate, RatioEstimate):
        return
    if estimate.high < _edge(slower_pct):
        yield f"takes {_longer(estimate)} longer, more than {slower_pct:g} %"


def _unsure(row: Row, slower_pct: float | None) -> Iterable[str]:
    estimate = row.estimate
    if row.verdict.word in ("inconclusive", "not comparable"):
        yield f"is {row.verdict.word}: {row.verdict.reason}"
    elif (
        slower_pct is not None
        and row.verdict.word == "slower"
        and isinstance(estimate, RatioEstimate)
        and estimate.low < _edge(slower_pct) <= estimate.high
    ):
        yield f"takes {_longer(estimate)} longer: {slower_pct:g} % is within the interval"


def _edge(slower_pct: float) -> float:
    """Of the ratio of speeds."""
    return 1 / (1 + slower_pct / 100)


def _longer(estimate: RatioEstimate) -> str:
    middle, least, most = ((1 / ratio - 1) * 100 for ratio in (estimate.ratio, estimate.high, estimate.low))
    return f"{three_digits(middle)} % ({three_digits(least)} to {three_digits(most)} %)"
