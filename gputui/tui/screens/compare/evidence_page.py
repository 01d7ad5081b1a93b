"""All that the verdict of one row rests on: both distributions of blocks, intervals, the boxes, and why."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from gputui.errors import GputuiError
from gputui.model.absent import Missing
from gputui.services.compare.load_terms import serving_of_side
from gputui.services.compare.pairing import Row
from gputui.services.compare.rows_table import rows_of_sides
from gputui.services.compare.suggestions import next_steps
from gputui.services.compare.telemetry_overlay import SideCurves, curves_of
from gputui.services.compare.why import Why, finding_lines, part_table, sentence, trust_line
from gputui.services.results.conditions import NOT_PROFILED
from gputui.services.results.labels import short_case_name
from gputui.services.serving.curve import ServingRun
from gputui.services.support.background import Job
from gputui.tui.screens.compare.evidence_parts import (
    absent_lines,
    block_lines,
    blocks_heading,
    sure_lines,
    title_line,
    value_table,
)
from gputui.tui.screens.compare.load_tables import load_lines, load_notes, result_lines
from gputui.tui.screens.compare.loaded import Loaded, with_energy
from gputui.tui.screens.compare.pages import pair_lines
from gputui.tui.screens.compare.telemetry_lines import telemetry_lines
from gputui.tui.terminal.lines import Line, Span
from gputui.tui.widgets.sections import paragraph, table_lines

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


@dataclass(frozen=True, slots=True)
class OpenedRow:
    """One row with its evidence."""

    loaded: Loaded
    """What the row is of, with the power that was read for it."""
    place: int
    """Of the comparison."""
    row: Row
    curves: tuple[SideCurves | Missing, ...]
    steps: tuple[str, ...]
    loads: tuple[ServingRun | Missing, ...] = ()
    """All that the servers of both sides were offered; empty where the row is of something else."""

    @property
    def name(self) -> str:
        """What the row is called."""
        return short_case_name(self.row.case, (), self.loaded.ignore)

    def lines(self, width: int) -> tuple[Line, ...]:
        """The page of evidence."""
        why = self.loaded.why(self.place, self.row)
        page = evidence_page(self.row, self.name, why, self.curves, self.steps, width, self.loads)
        shown = self.loaded.answer.comparisons[self.place]
        return (*pair_lines(shown, self.place, self.loaded.ignore, width - 1), (), *page)


def open_row(loaded: Loaded, number: int, place: int, job: Job[OpenedRow]) -> OpenedRow:
    """Row `number` of the table, of the side at `place`, which has it.

    Raises GputuiError if the power of its GPU can no longer be read, Cancelled if nobody wants it any more.
    """
    found = rows_of_sides(loaded.answer.comparisons, loaded.ignore)[number][place]
    if found is not None and found.case.variant.device_class == "gpu" and not loaded.with_energy:
        loaded = with_energy(loaded, job)
        found = rows_of_sides(loaded.answer.comparisons, loaded.ignore)[number][place]
    if found is None:
        raise GputuiError("neither side has this case", "n shows the next side")
    job.say("reading what the boxes did meanwhile")
    evidence = loaded.asked.evidence
    shown = loaded.answer.comparisons[place]
    curves: tuple[SideCurves | Missing, ...]
    loads: tuple[ServingRun | Missing, ...] = ()
    try:
        curves = curves_of(found, evidence, pool=loaded.asked.pool)
        if not found.case.has_steps:
            loads = tuple(serving_of_side(side, evidence) for side in (shown.a, shown.b))
    except GputuiError as error:
        curves = loads = (Missing(error.message), Missing(error.message))
    return OpenedRow(loaded, place, found, curves, next_steps(found, evidence), loads)
