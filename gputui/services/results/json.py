"""Runs as plain JSON; documented in docs/json.md."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any  # JSON

from gputui.analysis.cost import Cost
from gputui.analysis.energy import Energy
from gputui.analysis.peak_tests import PerformanceCheck
from gputui.analysis.verdict import SpeedEstimate
from gputui.model.absent import Missing, known
from gputui.model.journal import ProfiledPass, to_plain
from gputui.model.plan import Case
from gputui.model.result import CaseResult, Run, RunSummary
from gputui.services.results.expected import performance_checks, uses_of
from gputui.services.results.headline import run_headline
from gputui.services.results.labels import run_notes
from gputui.services.results.metrics import metrics_of
from gputui.services.results.step_answer import why_sentence
from gputui.services.results.step_breakdown import timed_step_ns
from gputui.services.results.throughput import cost_of, is_host_bound, rate_of, speed_of, waited_share


def run_as_json(run: Run, passes: Mapping[int, ProfiledPass] | None = None) -> dict[str, Any]:
    """One run with its cases; a value that is absent is null with its reason beside it.

    `passes` are the profiled passes by case, where they were read.
    """
    return {
        **summary_as_json(run.summary),
        "cases": [
            {
                **case_identity(case.case),
                "device_name": case.device_name,
                "outcome": case.outcome,
                "reason": case.reason,
                "speed": estimate_as_json(speed_of(case), "units_per_s"),
                "waited_share": known(waited_share(case)),
                "is_host_bound": is_host_bound(case),
                "clock_units_per_s": known(rate_of(case, by_clock=True)),
                "cost": cost_as_json(cost_of(case, run.summary.price), case.case.unit),
                "figures": metrics_as_json(case),
                "uses": [to_plain(use) for use in uses_of(case, run.cases, run.summary.machine)],
                **({} if passes is None else {"profiled": _profiled(case, passes)}),
            }
            for case in run.cases
        ],
        "headline": run_headline(run),
        "why": why_sentence(run, passes or {}),
        "notes": run_notes(run),
        "normality": [performance_as_json(check) for check in performance_checks(run)],
    }


def performance_as_json(check: PerformanceCheck) -> dict[str, Any]:
    """Whether a device performs as expected; `standing` is where it stands among the boxes of a reference.

    Without the name of the reference, which the user may have chosen: JSON is passed on.
    """
    standing: dict[str, Any] | None = None if check.standing is None else to_plain(check.standing)
    if standing is not None:
        del standing["reference"]
    return {"word": check.word, "text": check.text, "standing": standing}


def summary_as_json(run: RunSummary) -> dict[str, Any]:
    """One run without its cases."""
    return {"short_id": run.short_id, **to_plain(run)}


def case_identity(case: Case) -> dict[str, Any]:
    """What was measured, and in which variant."""
    return {
        **case.identity(),
        "units_per_step": case.units_per_step,
    }


def metrics_as_json(case: CaseResult) -> list[dict[str, Any]]:
    """Results other than speed."""
    return [to_plain(metric) for metric in metrics_of(case)]


def _profiled(case: CaseResult, passes: Mapping[int, ProfiledPass]) -> dict[str, Any] | None:
    found = passes.get(case.case_id)
    return None if found is None else {**to_plain(found), "timed_step_ns": known(timed_step_ns(case))}


def estimate_as_json(found: SpeedEstimate | Cost | Energy | Missing, name: str) -> dict[str, Any]:
    """An estimate, or under the name of its value null with the reason."""
    if isinstance(found, Missing):
        return {name: None, "missing": found.reason}
    plain: dict[str, Any] = to_plain(found)
    return plain


def cost_as_json(cost: Cost | Missing, unit: str) -> dict[str, Any]:
    """A cost, or null with its reason."""
    plain = estimate_as_json(cost, "usd_per_million")
    if isinstance(cost, Missing):
        return plain
    bought = cost.units_per_usd(unit)
    if isinstance(bought, Missing):
        return {**plain, "units_per_usd": None}
    return {**plain, "units_per_usd": dict(zip(("value", "low", "high"), bought, strict=True))}
