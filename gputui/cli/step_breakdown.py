"""Profiled passes as `show` prints them: breakdown of a step, its operators, and its memory."""

from __future__ import annotations

import shlex
from collections.abc import Iterator, Mapping, Sequence

from gputui.document.page import Page
from gputui.document.spans import Span, cut
from gputui.document.table import Table, table_of
from gputui.errors import GputuiError
from gputui.model.absent import Missing
from gputui.model.profiled import ProfiledPass
from gputui.model.result import CaseResult, Run
from gputui.model.units import format_percent, format_seconds
from gputui.services.results.labels import case_name, plain_case_name, some_of
from gputui.services.results.step_breakdown import StepBreakdown, breakdown_of, is_believed
from gputui.services.results.step_tables import (
    memory_table,
    operator_table,
    profiled_cases,
    step_parts,
    step_words,
)

_LEAST_SHARE = 0.005
_NAME = 28


def write_breakdowns(
    page: Page, run: Run, passes: Mapping[int, ProfiledPass], top: int, *, words: str = "", command: str = ""
) -> None:
    """The step of the main case in full, of the other profiled ones a line each, and how to see those.

    Nothing if none was profiled. With `words` only the steps of the cases that have them in their name, in
    full; raises GputuiError if none has. `command` shows this run.
    """
    found = profiled_cases(run, passes)
    chosen = [case for case in found if _has(case, words)] if words else found[:1]
    if words and not chosen:
        raise GputuiError(
            f"--case {words}: no profiled case of this run is called so",
            f"these were profiled: {some_of([plain_case_name(case.case) for case in found])}"
            if found
            else "it profiled none: gputui run --trace profiles every case that can be",
        )
    for case in chosen:
        page.line()
        _write_step(page, case, passes[case.case_id], top)
    others = [] if words else found[1:]
    if others:
        page.line()
        page.table(_others_table(others, passes))
        name = shlex.quote(plain_case_name(others[0].case))
        page.spans((Span("in full: ", "dim"), Span(f"{command} --case {name}", "accent")))


def _has(case: CaseResult, words: str) -> bool:
    """Whether its name has all these words, as people or options call it."""
    names = f"{plain_case_name(case.case)} {case.case.name}".lower().split()
    return set(words.lower().replace(":", " ").split()) <= set(names)


def _others_table(cases: Sequence[CaseResult], passes: Mapping[int, ProfiledPass]) -> Table:
    """How long a step takes, how much of it is idle, and its largest part, or why that is not known."""
    rows = []
    for case in cases:
        breakdown = breakdown_of(passes[case.case_id], case)
        if isinstance(breakdown, Missing):
            rows.append((plain_case_name(case.case), "", "", "", f"not profiled: {breakdown.reason}"))
            continue
        idle = sum(breakdown.idle.values())
        part, share, _ = step_parts(breakdown)[0]
        length = format_seconds(breakdown.step_ns * 1e-9)
        busy = format_percent(1 - idle), format_percent(idle)
        rough = "" if is_believed(breakdown) else " (rough)"
        rows.append((plain_case_name(case.case), length, *busy, f"{part} {format_percent(share)}{rough}"))
    headings = ("a step of each other profiled case", "per step", "busy", "idle", "largest part")
    return table_of(headings, rows, (1, 2, 3), breaks=(0, 4))


def _write_step(page: Page, case: CaseResult, found: ProfiledPass, top: int) -> None:
    breakdown = breakdown_of(found, case)
    if isinstance(breakdown, Missing):
        page.line(f"{case_name(case)}: not profiled: {breakdown.reason}")
        return
    page.line(f"a step of {case_name(case)}: {step_words(breakdown, found)}", "title")
    for line in _breakdown(breakdown):
        page.line(f"  {line}")
    if operators := breakdown.operators[:top]:
        names = [cut(row.operator.removeprefix("aten::"), _NAME) for row in operators]
        page.table(operator_table(found, operators, breakdown.step_ns, names), margin=2)
    if found.memory:
        page.table(memory_table(found), margin=2)
    else:
        page.line(f"  memory: not known: {found.memory_reason}")


def _breakdown(breakdown: StepBreakdown) -> Iterator[str]:
    """`compute 94 %: backward 66 %, forward 24 %, optimizer 4 %`."""
    for share in breakdown.shares:
        if share.share >= _LEAST_SHARE:
            parts = [
                f"{phase} {format_percent(part)}" for phase, part in share.phases if part >= _LEAST_SHARE
            ]
            where = f": {', '.join(parts)}" if len(share.phases) > 1 else f" ({share.phases[0][0]})"
            yield f"{share.name} {format_percent(share.share)}{where}"
    rest = sum(share.share for share in breakdown.shares if share.share < _LEAST_SHARE)
    if rest > 0:
        yield f"others {format_percent(rest)}"
