"""All that the verdict of one row rests on: both distributions of blocks, intervals, the boxes, and why."""

from __future__ import annotations

from collections.abc import Sequence

from gputui.model.absent import Missing
from gputui.services.compare.pairing import Row
from gputui.services.compare.telemetry_overlay import SideCurves
from gputui.services.compare.why import Why
from gputui.services.serving.curve import ServingRun
from gputui.tui.screens.compare.evidence_parts import (
    absent_lines,
    block_lines,
    blocks_heading,
    sure_lines,
    title_line,
    value_table,
)
from gputui.tui.screens.compare.load_tables import load_lines, load_notes, result_lines
from gputui.tui.screens.compare.telemetry_lines import telemetry_lines
from gputui.tui.screens.compare.why_lines import why_lines
from gputui.tui.terminal.lines import Line, Span
from gputui.tui.widgets.paragraphs import paragraph

_ROWS = 3


def evidence_page(
    row: Row,
    name: str,
    why: Why | None,
    curves: Sequence[SideCurves | Missing],
    steps: Sequence[str],
    width: int,
    loads: Sequence[ServingRun | Missing] = (),
) -> tuple[Line, ...]:
    """All that is known of a row, from its blocks to its reasons.

    `curves` are what the boxes did meanwhile, `steps` what would let the row be judged, `loads` all that the
    servers of both sides were offered; empty where the row is of something else.
    """
    lines: list[Line] = [title_line(row, name, width - 1)]
    for text in (row.verdict.reason, row.note):
        if text:
            lines += paragraph(text, width, "warn")
    if steps:
        lines.append((Span("what would help", "title"),))
        lines += [line for step in steps for line in paragraph(f"  {step}", width, indent=4)]
    if blocks := block_lines(row, "ab", width - 1, _ROWS):
        lines += [(), blocks_heading(_ROWS), *blocks]
    lines.append(())
    if not row.case.has_steps:
        lines += [*result_lines(row, width), (), *load_lines(loads, row, width), ()]
    elif isinstance(row.estimate, Missing):
        lines += paragraph(row.estimate.reason, width)
    values = value_table(row, "b", width, in_full=True, has_rates=row.case.has_steps)
    values += absent_lines(row, width)
    lines += [*values, ()] if values else ()
    lines += sure_lines(row, width)
    if not row.case.has_steps:
        lines += [(), *load_notes(loads, width)]
    else:
        lines += [(), *result_lines(row, width)] if row.figures else []
        lines += why_lines(why, width)
    lines += [(), *telemetry_lines(curves, "ab", width)]
    return tuple(lines)
