"""What a card shows beside the answer and the rates of a run: a few figures, and where a step goes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from gputui.analysis.verdict import SpeedEstimate
from gputui.document.drawings import BarPart
from gputui.document.spans import Span
from gputui.document.table import Column, Table
from gputui.model.absent import Missing
from gputui.model.journal import ProfiledPass
from gputui.model.result import CaseResult, Run
from gputui.model.units import format_rate, format_seconds
from gputui.services.compare.pairing import gains_of
from gputui.services.compare.row_text import style_of, verdict_parts
from gputui.services.results.expected import CHECK_WORDS, performance_checks
from gputui.services.results.headline import case_order, index_in
from gputui.services.results.labels import interval_words, plain_name
from gputui.services.results.step_breakdown import is_believed
from gputui.services.results.step_tables import main_step, step_parts
from gputui.services.results.throughput import gave_text, speeds_of

_WORKLOADS = ("gemm", "membw", "gpt_train", "decode")
"""What people ask for first."""
_MOST_RATES = 4


def main_cases(run: Run) -> list[tuple[CaseResult, SpeedEstimate]]:
    """Of each workload the case that people come for, of peak tests in each precision; in their order."""
    measured, chosen = speeds_of(run), dict[tuple[str, str], int]()
    for case, _ in sorted(measured, key=lambda pair: case_order(pair[0].case)):
        precision = case.case.variant.precision if case.case.workload_class == "ceiling" else ""
        chosen.setdefault((case.case.work.workload, precision), case.case_id)
    return [pair for pair in measured if pair[0].case_id in chosen.values()]


def key_figures(run: Run) -> Table | None:
    """Of each workload its main case, then what its precision brings to the main one of all.

    A column for each: what it is, its value, what to think of it. None if nothing was measured.
    """
    judged = {
        (one.unit, one.units_per_s): CHECK_WORDS.get(one.word)
        for check in performance_checks(run)
        for one in check.peak_tests
    }
    known = [pair for pair in main_cases(run) if not pair[0].case.is_program]
    known.sort(key=lambda pair: case_order(pair[0].case), reverse=True)
    chosen = {pair[0].case.work.workload: pair for pair in known}  # the last one counts
    first = sorted(chosen, key=lambda workload: index_in(_WORKLOADS, workload))[:_MOST_RATES]
    columns: list[Column] = []
    for case, speed in map(chosen.__getitem__, first):
        number, _, unit = format_rate(speed.units_per_s, case.case.unit).partition(" ")
        word = (
            Span(f"gave {gave_text(case)}", "warn")
            if gave_text(case)
            else judged.get((case.case.unit, speed.units_per_s))
        ) or Span(interval_words(speed), "dim")
        style = "title" if word.style in ("dim", "good") else f"title {word.style}"
        rate = (Span(number, style), Span(f" {unit}", "dim"))
        columns.append(Column(_name(case, run), ([rate], word), priority=len(columns)))
    if known and (gain := gains_of(run).get(known[-1][0].case_id)) is not None:
        words, ends = verdict_parts(gain)
        ends += ("x" if words.endswith("as fast") else " %") if gain.differs else ""
        cells = (Span(words, f"title {style_of(gain)}"), Span(ends, "dim"))
        name = f"{known[-1][0].case.variant.precision} vs fp32"
        columns.append(Column(name, cells, priority=len(columns)))
    return Table(tuple(columns)) if columns else None


def step_of(run: Run, passes: Mapping[int, ProfiledPass]) -> tuple[str, Sequence[BarPart]]:
    """`a step of GPT training amp, 85.3 ms` and its parts; why they are not known, and none.

    `passes` are the profiled ones of the run, by case.
    """
    found = main_step(run, passes)
    if isinstance(found, Missing):
        return f"where the time of a step goes is not known: {found.reason}", ()
    case, breakdown = found
    rough = "" if is_believed(breakdown) else " when it was profiled, so shares are rough"
    took = format_seconds(breakdown.step_ns / 1e9)
    return f"a step of {_name(case, run)}, {took}{rough}", step_parts(breakdown)


def _name(case: CaseResult, run: Run) -> str:
    """`GPT training amp`; of what was measured in one precision only the first word."""
    workload, precision = case.case.work.workload, case.case.variant.precision
    others = {one.case.variant.precision for one in run.cases if one.case.work.workload == workload}
    return f"{plain_name(workload)} {precision}" if len(others) > 1 else plain_name(workload)
