"""Profiled passes as `show` prints them: breakdown of a step, its operators, and its memory."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from gputui.document.page import Page
from gputui.document.spans import cut
from gputui.model.absent import Missing
from gputui.model.profiled import ProfiledPass
from gputui.model.result import Run
from gputui.model.units import format_percent
from gputui.services.results.headline import case_order
from gputui.services.results.labels import case_name
from gputui.services.results.step_breakdown import StepBreakdown, breakdown_of
from gputui.services.results.step_tables import memory_table, operator_table, step_words

_LEAST_SHARE = 0.005
_NAME = 28


def write_breakdowns(page: Page, run: Run, passes: Mapping[int, ProfiledPass], top: int) -> None:
    """Each profiled case, the main one first; nothing if none was profiled."""
    for case in sorted(run.cases, key=lambda case: case_order(case.case)):
        found = passes.get(case.case_id)
        if found is None:
            continue
        page.line()
        breakdown = breakdown_of(found, case)
        if isinstance(breakdown, Missing):
            page.line(f"{case_name(case)}: not profiled: {breakdown.reason}")
            continue
        page.line(f"a step of {case_name(case)}: {step_words(breakdown, found)}", "title")
        for line in _breakdown(breakdown):
            page.line(f"  {line}")
        if operators := breakdown.operators[:top]:
            names = [cut(row.operator.removeprefix("aten::"), _NAME) for row in operators]
            page.table(operator_table(found, operators, names), margin=2)
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
