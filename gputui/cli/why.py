"""What `compare` says of why sides differ: one block for each row that clearly does."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence

from rich.console import Console
from rich.text import Text

from gputui.analysis.attribution import Attribution, Part
from gputui.cli.tables import Sheet, add_row, first_that_fits, table
from gputui.model.absent import Missing
from gputui.model.units import format_percent, format_ratio, format_seconds
from gputui.services.comparison import Row
from gputui.services.evidence import NOT_PROFILED
from gputui.services.explaining import Why, part_name, sentence, signed

_LEAST_NS = 500
"""A cell that would say less than half a microsecond stays empty."""


def print_whys(out: Console, whys: Sequence[Why], name: Callable[[Row], str]) -> None:
    """The block of each row, then those that have none with the reason; nothing of what was not profiled."""
    for why in whys:
        if isinstance(why.attribution, Attribution):
            _print_one(out, why, why.attribution, name(why.row))
        elif why.findings_a or why.findings_b:
            out.print()
            out.print(Text(f"{name(why.row)}:", style="bold"))
            _print_findings(out, why)
    absent: dict[str, list[str]] = {}
    for why in whys:
        if isinstance(why.attribution, Missing) and why.attribution.reason != NOT_PROFILED:
            absent.setdefault(why.attribution.reason, []).append(name(why.row))
    if absent:
        out.print()
    for reason, names in absent.items():
        out.print(Text(f"why {', '.join(names)}: not attributed: {reason}"))


def _print_one(out: Console, why: Why, found: Attribution, name: str) -> None:
    out.print()
    out.print(Text.assemble((f"why {name}: ", "bold"), sentence(why.row, found)))
    sheet = first_that_fits(out.width, (_sheet(found, with_peak=True), _sheet(found, with_peak=False)))
    made = table(sheet.headings, right=range(1, len(sheet.headings)))
    for cells in sheet.rows:
        add_row(made, *cells)
    out.print(made)
    rough = f": {'; '.join(found.doubts)}" if found.doubts else ""
    out.print(
        Text(
            f"  {format_percent(found.coverage)} of what moved is in what both have; profiled steps took"
            f" {format_ratio(found.inflation_a)} and {format_ratio(found.inflation_b)} of the timed;"
            f" confidence {found.confidence}{rough}"
        )
    )
    _print_findings(out, why)


def _print_findings(out: Console, why: Why) -> None:
    for letter, findings in (("a", why.findings_a), ("b", why.findings_b)):
        for finding in findings:
            rough = " (rough)" if finding.confidence == "low" else ""
            out.print(Text(f"  {letter} {finding.text}{rough}"))


def _sheet(found: Attribution, *, with_peak: bool) -> Sheet:
    """All that moved by as much as counts, the rest in one row, and the sum."""
    shown = found.shown()
    has_peak = with_peak and any(not isinstance(part.peak_ns, Missing) for part in shown)
    headings = ["  part of a step", "a", "b", "b - a", "more calls", "per call"]
    headings += ["of it peak", "efficiency"] if has_peak else []
    rows = [[*_cells(part), *(_peak(part) if has_peak else ())] for part in shown]
    others = [part for part in found.parts if part not in shown]
    if others:
        a, b = (sum(ns) for ns in zip(*((p.time_a_ns, p.time_b_ns) for p in others), strict=True))
        rows.append(_padded([f"  {len(others)} others", _time(a), _time(b), signed(b - a)], len(headings)))
    total = ["  the step", _time(found.step_a_ns), _time(found.step_b_ns), signed(found.difference_ns)]
    rows.append(_padded(total, len(headings)))
    return Sheet(headings, rows)


def _padded(cells: list[str], length: int) -> list[str]:
    return cells + [""] * (length - len(cells))


def _cells(part: Part) -> list[str]:
    split = part.split
    return [
        f"  {part_name(part)}",
        _time(part.time_a_ns),
        _time(part.time_b_ns),
        signed(part.difference_ns),
        *_moved((split.more_work_ns, split.per_call_ns)),
    ]


def _peak(part: Part) -> list[str]:
    if isinstance(part.peak_ns, Missing) or isinstance(part.efficiency_ns, Missing):
        return ["", ""]
    return list(_moved((part.peak_ns, part.efficiency_ns)))


def _moved(times_ns: Iterable[int]) -> Iterable[str]:
    return (signed(ns) if abs(ns) >= _LEAST_NS else "" for ns in times_ns)


def _time(ns: int) -> str:
    return "" if ns == 0 else f"-{format_seconds(-ns * 1e-9)}" if ns < 0 else format_seconds(ns * 1e-9)
