"""Advice as plain JSON; documented in docs/json.md."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any  # Any: JSON

from gputui.analysis.job import Serving
from gputui.model.absent import Missing
from gputui.model.journal import to_plain
from gputui.services.advise.buy import Buying
from gputui.services.advise.rent import Advice, Pick, headline_of
from gputui.services.compare.data import judgement_as_json
from gputui.services.results.json import case_identity


def advice_as_json(advice: Advice, buyings: Sequence[Buying] = ()) -> dict[str, Any]:
    """The answer to one job, with rent against buy if requested."""
    plain: dict[str, Any] = to_plain(advice)
    kind = "serving" if isinstance(advice.job, Serving) else "batch"
    offers = [
        {**as_json, "case": case_identity(offer.case)}
        for as_json, offer in zip(plain["offers"], advice.offers, strict=True)
    ]
    return {
        "headline": headline_of(advice),
        **plain,
        "job": {"kind": kind, "text": advice.job.text, **plain["job"]},
        "work": {**plain["work"], "parameters": dict(advice.work.parameters), "key": advice.work.key},
        "offers": offers,
        "cheapest": _pick(advice.cheapest),
        "fastest": _pick(advice.fastest),
        "left_out": [{"what": what, "reason": reason} for what, reason in advice.left_out],
        "rent_or_buy": [to_plain(buying) for buying in buyings],
    }


def _pick(pick: Pick | Missing) -> dict[str, Any]:
    if isinstance(pick, Missing):
        plain: dict[str, Any] = to_plain(pick)
        return plain
    against = [{"what": what, **judgement_as_json(judgement)} for what, judgement in pick.against]
    return {
        "box": pick.offer.box,
        "device_class": pick.offer.device_class,
        "ties": list(pick.ties),
        "against": against,
    }
