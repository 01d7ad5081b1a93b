"""Where the difference of a row lies: its parts with bars, and what holds each side back."""

from __future__ import annotations

from gputui.model.absent import Missing
from gputui.services.compare.why import Why, sentence
from gputui.services.compare.why_text import finding_lines, part_table, trust_line
from gputui.services.results.conditions import NOT_PROFILED
from gputui.tui.terminal.lines import Line, Span
from gputui.tui.widgets.paragraphs import paragraph
from gputui.tui.widgets.table_lines import table_lines


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
        lines += paragraph(sentence(why.row, why.attribution), width)
        lines += table_lines(part_table(why.attribution, is_drawn=True), width)
        lines += paragraph(trust_line(why.attribution), width, "dim")
    for text in finding_lines(why):
        lines += paragraph(text, width, indent=2)
    return tuple(lines)
