"""What is read when a row is opened: the power of GPUs, and what the boxes did while it was timed."""

from __future__ import annotations

from dataclasses import dataclass

from gputui.errors import GputuiError
from gputui.model.absent import Missing
from gputui.services.compare.load_terms import serving_of_side
from gputui.services.compare.pairing import Row
from gputui.services.compare.row_text import row_name
from gputui.services.compare.rows_table import rows_of_sides
from gputui.services.compare.suggestions import next_steps
from gputui.services.compare.telemetry_overlay import SideCurves, curves_of
from gputui.services.serving.curve import ServingRun
from gputui.services.support.background import Job
from gputui.tui.screens.compare.evidence_page import evidence_page
from gputui.tui.screens.compare.loaded import Loaded, with_energy
from gputui.tui.screens.compare.pages import pair_lines
from gputui.tui.terminal.lines import Line


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
        return row_name(self.row, [], self.loaded.ignore)

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
