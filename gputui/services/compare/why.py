"""Why the rows of a comparison differ: their steps divided, what holds each back; in words and tables."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from gputui.analysis.attribution import LEAST_SHOWN, Attribution, ProfiledSide, attribute
from gputui.analysis.attribution import Part as StepPart
from gputui.analysis.verdict import RatioEstimate
from gputui.document.drawings import bars
from gputui.document.table import Column, Part, Table, table_of
from gputui.model.absent import Missing
from gputui.model.units import (
    RATES,
    counted,
    format_percent,
    format_ratio,
    format_seconds,
    three_digits,
    with_prefix,
)
from gputui.services.compare.pairing import Comparison, Row, Why
from gputui.services.results.conditions import (
    Evidence,
    SeenStep,
    own_peak,
    profiled_side,
    seen_step,
    step_findings,
)
from gputui.services.results.expected import sheet_peak
from gputui.services.results.step_breakdown import CATEGORY_WORDS

_WIDEST_BAR = 40
_LEAST_NS = 500
"""A cell that would say less than half a microsecond stays empty."""


def explained(comparison: Comparison, evidence: Evidence) -> Comparison:
    """With why each row is `faster` or `slower`. Raises GputuiError if a file can no longer be read."""
    rows = (
        replace(row, why=_why(row, row.estimate, evidence))
        if row.verdict.word in ("faster", "slower") and isinstance(row.estimate, RatioEstimate)
        else row
        for row in comparison.rows
    )
    return replace(comparison, rows=tuple(rows))


def part_name(part: StepPart) -> str:
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


def _part_in_words(part: StepPart, difference_ns: int) -> str:
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
    a, b = (
        Missing("not measured")
        if cell.result is None or cell.run is None
        else seen_step(cell.result, cell.run, evidence)
        for cell in (row.a, row.b)
    )
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
    return Why(found, *findings)


def _sides(a: SeenStep, b: SeenStep, evidence: Evidence) -> tuple[ProfiledSide, ProfiledSide]:
    """Both with peaks of one kind: measured on both, else of both data sheets, else unknown."""
    measured = [own_peak(s, evidence) for s in (a, b)]
    peaks: Sequence[float | Missing] = measured
    if any(isinstance(peak, Missing) for peak in measured):
        sheets = [sheet_peak("flop", s.result, s.run.machine) for s in (a, b)]
        if not any(isinstance(peak, Missing) for peak in sheets):
            peaks = sheets
    return profiled_side(a, peaks[0]), profiled_side(b, peaks[1])


def part_table(found: Attribution, *, is_drawn: bool = False) -> Table:
    """Parts with a relevant difference, the rest in one row, and the sum; what moved each goes first where
    there is no room. Drawn, with its share of the difference, also as a bar in the
    colour of its sign."""
    shown = found.shown()
    has_peak = any(not isinstance(part.peak_ns, Missing) for part in shown)
    headings = ["part of a step", "a", "b", "b - a", "more calls", "per call"]
    headings += ["peak", "efficiency"] if has_peak else []
    rows = [_cells(part)[: len(headings)] for part in shown]
    changes_ns = [part.difference_ns for part in shown]
    others = [part for part in found.parts if part not in shown]
    if others:
        a, b = (sum(ns) for ns in zip(*((p.time_a_ns, p.time_b_ns) for p in others), strict=True))
        rows.append([f"{len(others)} others", time_text(a), time_text(b), signed(b - a)])
        changes_ns.append(b - a)
    rows.append(
        ["the step", time_text(found.step_a_ns), time_text(found.step_b_ns), signed(found.difference_ns)]
    )
    rows = [[*row, *[""] * (len(headings) - len(row))] for row in rows]
    filled = [place for place in range(len(headings)) if any(row[place] for row in rows)]
    priorities = (0, 3, 3, 0, 4, 4, 5, 5) if is_drawn else (0, 0, 0, 0, 2, 2, 3, 3)
    table = table_of(
        [headings[place] for place in filled],
        [[row[place] for place in filled] for row in rows],
        range(1, len(filled)),
        priorities={number: priorities[place] for number, place in enumerate(filled)},
    )
    if not is_drawn:
        return table
    sizes = [*map(abs, changes_ns), None]
    styles = [*("good" if ns < 0 else "warn" for ns in changes_ns), ""]
    shares = [ns / found.difference_ns if found.difference_ns else 0.0 for ns in changes_ns]
    percents = [*(format_percent(share) if 0.005 <= share <= 1 else "" for share in shares), ""]
    drawn = bars(sizes, max(map(abs, changes_ns), default=0), styles, most=_WIDEST_BAR)
    return Table((*table.columns, drawn, Column("share", percents, True, 2)))


def why_parts(row: Row, *, is_drawn: bool = False) -> tuple[Part, ...]:
    """A sentence, a line for each part of a step, how far both are believed, and what holds the sides back;
    of a row that is not explained only the last."""
    if row.why is None:
        return ()
    findings = tuple(
        f"{letter}: {finding.text}{' (rough)' if finding.confidence == 'low' else ''}"
        for letter, of_side in (("a", row.why.findings_a), ("b", row.why.findings_b))
        for finding in of_side
    )
    found = row.why.attribution
    if isinstance(found, Missing):
        return (findings,) if findings else ()
    rough = f": {'; '.join(found.doubts)}" if found.doubts else ""
    trust = (
        f"{format_percent(found.coverage)} of the change is in parts that both sides have; profiled"
        f" steps took {format_ratio(found.inflation_a)} and {format_ratio(found.inflation_b)}"
        f" as long as timed ones; confidence {found.confidence}{rough}"
    )
    return sentence(row, found), part_table(found, is_drawn=is_drawn), (trust, *findings)


def time_text(ns: int) -> str:
    """A time with its sign; empty for none."""
    return "" if ns == 0 else f"-{format_seconds(-ns * 1e-9)}" if ns < 0 else format_seconds(ns * 1e-9)


def _cells(part: StepPart) -> list[str]:
    moved_ns = part.split.more_work_ns, part.split.per_call_ns, part.peak_ns, part.efficiency_ns
    return [
        part_name(part),
        time_text(part.time_a_ns),
        time_text(part.time_b_ns),
        signed(part.difference_ns),
        *("" if isinstance(ns, Missing) or abs(ns) < _LEAST_NS else signed(ns) for ns in moved_ns),
    ]
