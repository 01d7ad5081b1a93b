"""Where the difference of a row lies: its parts with bars, and what holds each side back."""

from __future__ import annotations

from gputui.analysis.attribution import Attribution
from gputui.document.bars import bars
from gputui.document.table import Table
from gputui.model.absent import Missing
from gputui.services.compare.why import Why, sentence
from gputui.services.compare.why_text import finding_lines, part_table, trust_line
from gputui.services.results.conditions import NOT_PROFILED
from gputui.tui.terminal.lines import Line, Span
from gputui.tui.widgets.paragraphs import paragraph
from gputui.tui.widgets.table_lines import table_lines

_WIDEST_BAR = 40


def why_lines(why: Why | None, width: int) -> tuple[Line, ...]:
    """A sentence, a row for each part, and findings; nothing of a row that says no difference."""
    if why is None:
        return ()
    lines: list[Line] = [(), (Span("why", "title"),)]
    if isinstance(why.attribution, Missing):
        lines += paragraph(f"unknown: {why.attribution.reason}", width, "dim")
        if NOT_PROFILED in why.attribution.reason:
            lines += paragraph("gputui run --trace makes a profiled pass of every case", width, "dim")
    else:
        lines += _attributed(why, why.attribution, width)
    for text in finding_lines(why):
        lines += paragraph(text, width, indent=2)
    return tuple(lines)


def _attributed(why: Why, found: Attribution, width: int) -> tuple[Line, ...]:
    parts = part_table(found)
    shown_ns = [part.difference_ns for part in found.shown()]
    rest_ns = found.difference_ns - sum(shown_ns)
    changes_ns = [*shown_ns, *([rest_ns] if len(found.parts) > len(shown_ns) else [])]
    largest = max((abs(ns) for ns in changes_ns), default=0)
    drawn = bars(
        [*map(abs, changes_ns), None],
        largest,
        [*("good" if ns < 0 else "warn" for ns in changes_ns), ""],
        most=_WIDEST_BAR,
    )
    return (
        *paragraph(sentence(why.row, found), width),
        *table_lines(Table((*parts.columns, drawn)), width),
        *paragraph(trust_line(found), width, "dim"),
    )
