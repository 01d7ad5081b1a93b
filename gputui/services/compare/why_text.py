"""Why sides differ, as tables and lines of words."""

from __future__ import annotations

from collections.abc import Iterable

from gputui.analysis.attribution import Attribution, Part
from gputui.document.bars import bars
from gputui.document.table import Column, Table, table_of
from gputui.model.absent import Missing
from gputui.model.units import format_percent, format_ratio, format_seconds
from gputui.services.compare.why import Why, part_name, signed

_WIDEST_BAR = 40
_LEAST_NS = 500
"""A cell that would say less than half a microsecond stays empty."""


def part_table(found: Attribution, most: int | None = None, *, is_drawn: bool = False) -> Table:
    """Parts with a relevant difference, the rest in one row, and the sum, at most so many rows; what moved
    each goes first where there is no room. Drawn, with its share of the difference, also as a bar in the
    colour of its sign."""
    shown = found.shown()[:most]
    has_peak = any(not isinstance(part.peak_ns, Missing) for part in shown)
    headings = ["part of a step", "a", "b", "b - a", "more calls", "per call"]
    headings += ["of it peak", "efficiency"] if has_peak else []
    rows = [[*_cells(part), *(_peak(part) if has_peak else ())] for part in shown]
    changes_ns = [part.difference_ns for part in shown]
    others = [part for part in found.parts if part not in shown]
    if others:
        a, b = (sum(ns) for ns in zip(*((p.time_a_ns, p.time_b_ns) for p in others), strict=True))
        rows.append([f"{len(others)} others", time_text(a), time_text(b), signed(b - a)])
        changes_ns.append(b - a)
    rows.append(
        ["the step", time_text(found.step_a_ns), time_text(found.step_b_ns), signed(found.difference_ns)]
    )
    rows = [[*row, *[""] * (len(headings) - len(row))] for row in rows[:most]]
    priorities = {1: 3, 2: 3, 4: 4, 5: 4, 6: 5, 7: 5} if is_drawn else {4: 2, 5: 2, 6: 3, 7: 3}
    table = table_of(headings, rows, range(1, len(headings)), priorities=priorities)
    if not is_drawn:
        return table
    sizes = [*map(abs, changes_ns), None][: len(rows)]
    styles = [*("good" if ns < 0 else "warn" for ns in changes_ns), ""][: len(rows)]
    shares = [ns / found.difference_ns if found.difference_ns else 0.0 for ns in changes_ns]
    percents = [*(format_percent(share) if 0.005 <= share <= 1 else "" for share in shares), ""]
    drawn = bars(sizes, max(map(abs, changes_ns), default=0), styles, most=_WIDEST_BAR)
    return Table((*table.columns, drawn, Column("share", percents[: len(rows)], True, 2)))


def trust_line(found: Attribution) -> str:
    """How far an attribution can be believed."""
    rough = f": {'; '.join(found.doubts)}" if found.doubts else ""
    return (
        f"{format_percent(found.coverage)} of the change is in parts that both sides have; profiled"
        f" steps took {format_ratio(found.inflation_a)} and {format_ratio(found.inflation_b)}"
        f" as long as timed ones; confidence {found.confidence}{rough}"
    )


def finding_lines(why: Why) -> Iterable[str]:
    """What holds each side's step back."""
    for letter, findings in (("a", why.findings_a), ("b", why.findings_b)):
        for finding in findings:
            yield f"{letter} {finding.text}{' (rough)' if finding.confidence == 'low' else ''}"


def time_text(ns: int) -> str:
    """A time with its sign; empty for none."""
    return "" if ns == 0 else f"-{format_seconds(-ns * 1e-9)}" if ns < 0 else format_seconds(ns * 1e-9)


def _cells(part: Part) -> list[str]:
    split = part.split
    return [
        part_name(part),
        time_text(part.time_a_ns),
        time_text(part.time_b_ns),
        signed(part.difference_ns),
        *_moved((split.more_work_ns, split.per_call_ns)),
    ]


def _peak(part: Part) -> list[str]:
    if isinstance(part.peak_ns, Missing) or isinstance(part.efficiency_ns, Missing):
        return ["", ""]
    return list(_moved((part.peak_ns, part.efficiency_ns)))


def _moved(times_ns: Iterable[int]) -> Iterable[str]:
    return (signed(ns) if abs(ns) >= _LEAST_NS else "" for ns in times_ns)
