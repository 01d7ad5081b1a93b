"""Runs and comparisons as plain JSON; documented in docs/json.md."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any  # JSON

from gputui.analysis.cost import Cost
from gputui.analysis.energy import Energy
from gputui.analysis.job import Serving
from gputui.analysis.verdict import RatioEstimate, SpeedEstimate
from gputui.model.absent import Missing
from gputui.model.case import Case
from gputui.model.journal import to_plain
from gputui.model.profiled import ProfiledPass
from gputui.model.result import CaseResult, Run, RunSummary
from gputui.services.advising import Advice
from gputui.services.anatomy import timed_step_ns
from gputui.services.buying import Buying
from gputui.services.comparison import Cell, Comparison, Row, Side
from gputui.services.explaining import Why, sentence
from gputui.services.figures import figures_of
from gputui.services.normality import normality_of, normality_of_side
from gputui.services.speeds import cost_of, speed_of, waited_share
from gputui.services.utilisation import uses_of


def run_as_json(run: Run, passes: Mapping[int, ProfiledPass] | None = None) -> dict[str, Any]:
    """One run with its cases; a value that is absent is null with its reason beside it.

    `passes` are the profiled passes by case, where they were read.
    """
    return {
        **summary_as_json(run.summary),
        "cases": [
            {
                **_case(case.case),
                "device_name": case.device_name,
                "outcome": case.outcome,
                "reason": case.reason,
                "speed": _speed(speed_of(case)),
                "waited_share": _number(waited_share(case)),
                "cost": _cost(cost_of(case, run.summary.price), case.case.unit),
                "figures": _figures(case),
                "uses": [to_plain(use) for use in uses_of(case, run.cases, run.summary.machine)],
                **({} if passes is None else {"profiled": _profiled(case, passes)}),
            }
            for case in run.cases
        ],
        "normality": [{"word": n.word, "text": n.text} for n in normality_of(run)],
    }


def summary_as_json(run: RunSummary) -> dict[str, Any]:
    """One run without its cases."""
    plain: dict[str, Any] = to_plain(run)
    return {"short_id": run.short_id, **plain}


def comparison_as_json(comparison: Comparison, whys: Sequence[Why] = ()) -> dict[str, Any]:
    """One comparison: sides, differences, rows with their reasons, and group means."""
    reasons = {id(why.row): why for why in whys}
    return {
        "a": _side(comparison.a),
        "b": _side(comparison.b),
        "differs": [{"what": what, "a": on_a, "b": on_b} for what, on_a, on_b in comparison.differs],
        "rows": [
            {
                **_case(row.case),
                "a": _cell(row.a, row.case.unit),
                "b": _cell(row.b, row.case.unit),
                "ratio": _ratio(row.estimate),
                "verdict": row.verdict.word,
                "reason": row.verdict.reason,
                "note": row.note,
                "flags": [to_plain(flag) for flag in row.flags],
                "holds_between_models": None
                if isinstance(row.holds_between_models, Missing)
                else row.holds_between_models,
                **_why(row, reasons.get(id(row))),
            }
            for row in comparison.rows
        ],
        "one_sided": [
            {**_case(row.case), "a": _cell(row.a, row.case.unit), "b": _cell(row.b, row.case.unit)}
            for row in comparison.one_sided
        ],
        "groups": [
            {
                "group": group.group,
                "common_rows": group.common,
                "rows": group.rows,
                "mean": None
                if isinstance(group.mean, Missing)
                else {"ratio": group.mean.ratio, "low": group.mean.low, "high": group.mean.high},
                "verdict": group.verdict.word,
                "reason": group.verdict.reason,
            }
            for group in comparison.groups
        ],
        "unmeasured": [{"reason": reason, "cases": len(names)} for reason, names in comparison.unmeasured],
    }


def advice_as_json(advice: Advice, buyings: Sequence[Buying] = ()) -> dict[str, Any]:
    """The answer to one job, with rent against buy where it was asked for."""
    plain: dict[str, Any] = to_plain(advice)
    kind = "serving" if isinstance(advice.job, Serving) else "batch"
    offers = [
        {**told, "case": _case(offer.case)}
        for told, offer in zip(plain["offers"], advice.offers, strict=True)
    ]
    return {
        **plain,
        "job": {"kind": kind, "text": advice.job.text, **plain["job"]},
        "work": {**plain["work"], "parameters": dict(advice.work.parameters), "key": advice.work.key},
        "offers": offers,
        "left_out": [{"what": what, "reason": reason} for what, reason in advice.left_out],
        "rent_or_buy": [to_plain(buying) for buying in buyings],
    }


OPERATORS_TOLD = 20


def _why(row: Row, why: Why | None) -> dict[str, Any]:
    if why is None:
        absent = f"the verdict is {row.verdict.word}: there is no difference to explain"
        return {"why": {"missing": absent}, "findings": {"a": [], "b": []}}
    findings = {
        letter: [{**to_plain(f), "text": f.text} for f in found]
        for letter, found in (("a", why.findings_a), ("b", why.findings_b))
    }
    found = why.attribution
    if isinstance(found, Missing):
        return {"why": {"missing": found.reason}, "findings": findings}
    told: dict[str, Any] = to_plain(found)
    for plain in (*told["parts"], *told["operators"]):
        plain["difference_ns"] = plain["time_b_ns"] - plain["time_a_ns"]
    told["operators"] = told["operators"][:OPERATORS_TOLD]
    words = {"sentence": sentence(row, found), "difference_ns": found.difference_ns}
    return {"why": {**words, **told}, "findings": findings}


def _number(value: float | Missing) -> float | None:
    return None if isinstance(value, Missing) else value


def _side(side: Side) -> dict[str, Any]:
    normality = [{"word": n.word, "text": n.text} for n in normality_of_side(side)]
    return {
        "name": side.name,
        "run": summary_as_json(side.run),
        "chosen_of": side.chosen_of,
        "normality": normality,
    }


def _case(case: Case) -> dict[str, Any]:
    return {
        **case.identity(),
        "units_per_step": case.units_per_step,
    }


def _cell(cell: Cell, unit: str) -> dict[str, Any]:
    return {
        "outcome": "absent" if cell.result is None else cell.result.outcome,
        "precision_used": cell.precision_used,
        "speed": _speed(cell.speed),
        "cost": _cost(cell.cost, unit),
        "energy": _energy(cell.energy),
        "figures": [] if cell.result is None else _figures(cell.result),
        "uses": [to_plain(use) for use in cell.uses],
    }


def _figures(case: CaseResult) -> list[dict[str, Any]]:
    return [to_plain(figure) for figure in figures_of(case)]


def _profiled(case: CaseResult, passes: Mapping[int, ProfiledPass]) -> dict[str, Any] | None:
    found = passes.get(case.case_id)
    if found is None:
        return None
    plain: dict[str, Any] = to_plain(found)
    timed_ns = timed_step_ns(case)
    return {**plain, "timed_step_ns": _number(timed_ns)}


def _speed(speed: SpeedEstimate | Missing) -> dict[str, Any]:
    if isinstance(speed, Missing):
        return {"units_per_s": None, "missing": speed.reason}
    plain: dict[str, Any] = to_plain(speed)
    return plain


def _cost(cost: Cost | Missing, unit: str) -> dict[str, Any]:
    if isinstance(cost, Missing):
        return {"usd_per_million": None, "missing": cost.reason}
    plain: dict[str, Any] = to_plain(cost)
    bought = cost.units_per_usd(unit)
    if isinstance(bought, Missing):
        return {**plain, "units_per_usd": None}
    return {**plain, "units_per_usd": dict(zip(("value", "low", "high"), bought, strict=True))}


def _energy(energy: Energy | Missing) -> dict[str, Any]:
    if isinstance(energy, Missing):
        return {"joules_per_unit": None, "missing": energy.reason}
    plain: dict[str, Any] = to_plain(energy)
    return plain


def _ratio(estimate: RatioEstimate | Missing) -> dict[str, Any] | None:
    if isinstance(estimate, Missing):
        return None
    return {
        "b_against_a": estimate.ratio,
        "low": estimate.low,
        "high": estimate.high,
        "blocks_a": estimate.n_a,
        "blocks_b": estimate.n_b,
        "independent_blocks_a": estimate.independent_a,
        "independent_blocks_b": estimate.independent_b,
        "launches_a": estimate.launches_a,
        "launches_b": estimate.launches_b,
        "method": estimate.method,
        "resolvable": estimate.resolvable,
        "autocorrelation": estimate.autocorrelation,
        "paired": estimate.paired,
    }
