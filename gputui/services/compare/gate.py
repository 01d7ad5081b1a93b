"""A comparison as a gate for CI: pass, fail, or cannot tell."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from gputui.analysis.judgement import TIME, Judgement, surely_slower
from gputui.analysis.verdict import BAND, RatioEstimate
from gputui.model.absent import Missing
from gputui.model.units import counted, format_change
from gputui.services.compare.pairing import Comparison, Row
from gputui.services.compare.row_text import change_text, mean_devices, mean_name
from gputui.services.compare.suggestions import steps_for_absent, steps_for_limit
from gputui.services.results.conditions import Evidence
from gputui.services.results.labels import short_case_name

PASS, FAIL, CANNOT_TELL = "pass", "fail", "cannot tell"


@dataclass(frozen=True, slots=True)
class GateResult:
    """What the gate found."""

    end: str
    """PASS, FAIL or CANNOT_TELL."""
    rows: int
    """Rows of the baseline that were asked about."""
    slower: tuple[str, ...]
    """Rows and means that are surely slower than the limit; a line each."""
    undecided: tuple[str, ...]
    """Rows of which it cannot be told, with what could have been seen; a line each."""
    steps: tuple[str, ...]
    """What would settle those, as commands."""


def check_gate(
    comparisons: Sequence[Comparison], ignore: str, slower_pct: float | None, evidence: Evidence
) -> GateResult:
    """Whether any side is more than `slower_pct` percent slower than the baseline.

    The limit is a change of rate: 5 asks for b/a of at least 0.95. It fails by a row or a mean whose whole
    interval lies beyond it (Holm over all of them); it passes if the slow end of every row lies within it
    and every row that the baseline measured has a partner, and cannot tell otherwise. Without a
    limit, every row must be decided.
    """
    limit = None if slower_pct is None else 1 - slower_pct / 100
    asked: list[tuple[str, Row | None, Judgement]] = []
    undecided: list[str] = []
    steps: list[str] = []
    rows = 0
    for comparison in comparisons:
        beside = f"{comparison.b.name} " if len(comparisons) > 1 else ""
        for row in comparison.rows:
            if isinstance(row.a.speed, Missing):
                continue
            rows += 1
            name = beside + short_case_name(row.case, (), ignore)
            if isinstance(row.estimate, Missing) or row.estimate.doubt:
                undecided.append(f"{name}: {row.rate.reason}")
                is_absent = isinstance(row.estimate, Missing)
                steps += (
                    steps_for_absent(row, evidence) if is_absent else steps_for_limit(row, limit, evidence)
                )
            else:
                asked.append((name, row, row.rate))
        devices = mean_devices([comparison])
        for group in comparison.groups:
            if group.rate.ratio is not None and group.common > 1:
                name = mean_name(group, devices[group.device_class])
                asked.append((f"{beside}{name}", None, group.rate))
    slower: list[str] = []
    are_beyond = (
        [False] * len(asked) if limit is None else surely_slower([rate for _, _, rate in asked], limit)
    )
    for (name, judged, rate), is_beyond in zip(asked, are_beyond, strict=True):
        text = f"{name}: {change_text(rate)}"
        if is_beyond:
            slower.append(text)
        elif judged is not None:
            for doubt in _doubts(judged, limit):
                undecided.append(f"{text}{doubt}")
                steps += steps_for_limit(judged, limit, evidence)
    if not rows:
        undecided.append("the baseline measured nothing that could be compared")
    end = FAIL if slower else CANNOT_TELL if undecided else PASS
    return GateResult(end, rows, tuple(slower), tuple(undecided), tuple(dict.fromkeys(steps)))


def _doubts(row: Row, limit: float | None) -> Iterable[str]:
    """Why a row that is not surely slower does not pass either, with the smallest change it could show."""
    if limit is None:
        if not row.rate.is_decided:
            yield f", {row.rate.reason}"
        return
    estimate = row.rate.estimate
    if isinstance(estimate, RatioEstimate) and estimate.low < limit:
        shown = limit * (1 + BAND) / estimate.resolvable  # the smallest change that this could tell from it
        yield f", would have shown {format_change(1 / shown if row.rate.respect == TIME else shown)}"


def gate_lines(result: GateResult, slower_pct: float | None, names: Sequence[str], a: str) -> Iterable[str]:
    """The result in words, the answer first."""
    who = f"{', '.join(names)} vs {a}"
    rows, undecided = counted(result.rows, "row"), len(result.undecided)
    if not result.rows:
        passed = open_rows = "no row to judge"
    elif slower_pct is None:
        passed, open_rows = f"all of {rows} decided", f"{undecided} of {rows} undecided"
    else:
        passed = f"no rate more than {slower_pct:g} % lower, in {rows}"
        open_rows = f"{undecided} of {rows} undecided at {slower_pct:g} %"
    yield {
        PASS: f"gate: pass: {who}: {passed}",
        FAIL: f"gate: fail: {who}: more than {slower_pct or 0:g} % slower:",
        CANNOT_TELL: f"gate: cannot tell: {who}: {open_rows}:",
    }[result.end]
    yield from (f"  {line}" for line in result.slower)
    if result.end == FAIL and result.undecided:
        yield f"and {open_rows}:"
    yield from (f"  {line}" for line in result.undecided)
    if result.end == CANNOT_TELL and result.steps:
        yield "what would settle it:"
        yield from (f"  {step}" for step in result.steps)
