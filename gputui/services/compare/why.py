"""Why the rows of a comparison differ: their steps divided, and what holds each back."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from gputui.analysis.attribution import (
    LEAST_SHOWN,
    Attribution,
    Part,
    ProfiledSide,
    attribute,
)
from gputui.analysis.findings import Finding
from gputui.analysis.verdict import RatioEstimate
from gputui.model.absent import Missing
from gputui.model.units import RATES, counted, format_percent, format_seconds, three_digits, with_prefix
from gputui.services.compare.pairing import Cell, Comparison, Row
from gputui.services.results.conditions import (
    Evidence,
    SeenStep,
    own_peak,
    profiled_side,
    seen_step,
    step_findings,
)
from gputui.services.results.roofline import sheet_peak
from gputui.services.results.step_tables import CATEGORY_WORDS


@dataclass(frozen=True, slots=True)
class Why:
    """What is known of the reasons of one row."""

    row: Row
    attribution: Attribution | Missing
    findings_a: tuple[Finding, ...]
    """Empty where its pass is not believed, as the next."""
    findings_b: tuple[Finding, ...]


def explain(comparison: Comparison, evidence: Evidence) -> tuple[Why, ...]:
    """One entry for each row whose verdict is `faster` or `slower`, in the order of the table.

    Raises GputuiError if a file can no longer be read.
    """
    return tuple(
        _why(row, row.estimate, evidence)
        for row in comparison.rows
        if row.verdict.word in ("faster", "slower") and isinstance(row.estimate, RatioEstimate)
    )


def part_name(part: Part) -> str:
    """How a person calls a part: `matmul`, `casts and copies`, `launch gaps`."""
    return CATEGORY_WORDS.get(part.category, part.category)


def sentence(row: Row, found: Attribution) -> str:
    """The difference in words, built from its parts.

    `b's step is 91.0 ms shorter (16.5 vs 107.5 ms, 4096 tok): matmul -71.0 ms, 78 % of the difference; ...`
    """
    difference_ns = found.difference_ns
    word = "shorter" if difference_ns < 0 else "longer"
    on_a, on_b = (format_seconds(ns * 1e-9) for ns in (found.step_a_ns, found.step_b_ns))
    steps = f"{on_b.removesuffix(on_a.partition(' ')[2]).strip()} vs {on_a}"
    head = f"b's step is {format_seconds(abs(difference_ns) * 1e-9)} {word} ({steps}, {_amount(row)})"
    said = [_part_in_words(part, difference_ns) for part in found.shown()]
    rest_ns = difference_ns - sum(part.difference_ns for part in found.shown())
    others = len(found.parts) - len(found.shown())
    if abs(rest_ns) >= LEAST_SHOWN * abs(difference_ns):
        said.append(f"{counted(others, 'other')} {signed(rest_ns)}")
    return f"{head}: {'; '.join(said)}"


def signed(ns: int) -> str:
    """A difference of times with its sign: `-71.0 ms`, `+312 µs`."""
    return f"{'-' if ns < 0 else '+'}{format_seconds(abs(ns) * 1e-9)}"


def _part_in_words(part: Part, difference_ns: int) -> str:
    ns = part.difference_ns
    where = ""
    strongest, most_ns = part.phases[0]
    if strongest and len(part.phases) > 1 and abs(most_ns) >= abs(ns):
        where = f" ({strongest} {signed(most_ns)})"
    elif strongest and part.category != strongest and len([p for p, n in part.phases if n]) == 1:
        where = f" ({strongest})"
    share = ns / difference_ns if difference_ns else 0.0
    of_lead = f", {format_percent(share)} of the difference" if 0.05 <= share <= 1 else ""
    return f"{part_name(part)} {signed(ns)}{where}{of_lead}"


def _amount(row: Row) -> str:
    """What a step amounts to: `4096 tok`, `2.15 Tflop`."""
    units = row.case.units_per_step
    if RATES[row.case.unit].scaled:
        digits, prefix = with_prefix(units)
        return f"{digits} {prefix}{row.case.unit}"
    return (
        f"{units:.0f} {row.case.unit}" if units == round(units) else f"{three_digits(units)} {row.case.unit}"
    )


def _why(row: Row, estimate: RatioEstimate, evidence: Evidence) -> Why:
    a, b = _of_cell(row.a, evidence), _of_cell(row.b, evidence)
    reasons = {letter: s.reason for letter, s in (("a", a), ("b", b)) if isinstance(s, Missing)}
    findings = [() if isinstance(s, Missing) else step_findings(s, evidence) for s in (a, b)]
    found: Attribution | Missing
    if isinstance(a, Missing) or isinstance(b, Missing):
        is_one = len(reasons) == 2 and len(set(reasons.values())) == 1
        told = [reason if is_one else f"{letter}: {reason}" for letter, reason in reasons.items()]
        found = Missing("; ".join(dict.fromkeys(told)))
    elif row.case.work.form != "same":
        found = Missing("batch sizes may differ, so steps may not be the same work")
    else:
        found = attribute(*_sides(a, b, evidence), estimate)
    return Why(row, found, *findings)


def _sides(a: SeenStep, b: SeenStep, evidence: Evidence) -> tuple[ProfiledSide, ProfiledSide]:
    """Both with peaks of one kind: measured on both, else of both data sheets, else unknown."""
    measured = [own_peak(s, evidence) for s in (a, b)]
    peaks: Sequence[float | Missing] = measured
    if any(isinstance(peak, Missing) for peak in measured):
        sheets = [sheet_peak("flop", s.result, s.run.machine) for s in (a, b)]
        if not any(isinstance(peak, Missing) for peak in sheets):
            peaks = sheets
    return profiled_side(a, peaks[0]), profiled_side(b, peaks[1])


def _of_cell(cell: Cell, evidence: Evidence) -> SeenStep | Missing:
    if cell.result is None or cell.run is None:
        return Missing("not measured")
    return seen_step(cell.result, cell.run, evidence)
