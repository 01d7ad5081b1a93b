"""Advice as plain JSON; documented in docs/json.md."""

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
from gputui.services.advise.rent import Advice
from gputui.services.results.step_breakdown import timed_step_ns
from gputui.services.advise.buy import Buying
from gputui.services.compare.pairing import Cell, Comparison, Row, Side
from gputui.services.compare.why import Why, sentence
from gputui.services.results.metrics import figures_of
from gputui.services.results.expected import (normality_of)
from gputui.services.compare.pairing import (normality_of_side)
from gputui.services.results.throughput import cost_of, speed_of, waited_share
from gputui.services.results.roofline import uses_of


from gputui.services.results.json import case_identity


def advice_as_json(advice: Advice, buyings: Sequence[Buying] = ()) -> dict[str, Any]:
    """The answer to one job, with rent against buy where it was asked for."""
    plain: dict[str, Any] = to_plain(advice)
    kind = "serving" if isinstance(advice.job, Serving) else "batch"
    offers = [
        {**told, "case": case_identity(offer.case)}
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
