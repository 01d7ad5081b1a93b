"""Whether buying the machines for a job pays compared with renting them; and an advice with that as JSON."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any  # Any: JSON

from gputui.model.absent import Missing
from gputui.model.journal import Price, to_plain
from gputui.services.advise.rent import Advice, Offer, Pick, headline_of
from gputui.services.results.exports import case_identity


@dataclass(frozen=True, slots=True)
class RentOrBuy:
    """Both ways compared, without interest and resale, at constant prices."""

    buy_usd: float
    rent_usd_per_month: float
    own_usd_per_month: float
    months: float | Missing
    """After which buying has cost less; Missing if it never does."""


@dataclass(frozen=True, slots=True)
class Buying:
    """Rent or buy for one offer."""

    box: str
    device_class: str
    hours: float
    """Of work per month."""
    found: RentOrBuy | Missing


def weigh(
    advice: Advice, buy_usd: Mapping[str, float], own_usd_per_month: float, hours: float
) -> tuple[Buying, ...]:
    """Rent or buy for each machine that is for sale, by its best offer that meets the job.

    Owning one costs so much a month, of which it works so many hours.
    """
    chosen: dict[str, Offer] = {}
    for offer in advice.offers:
        if offer.meets and offer.box in buy_usd:
            chosen.setdefault(offer.box, offer)
    return tuple(_weighed(offer, buy_usd[name], own_usd_per_month, hours) for name, offer in chosen.items())


def _weighed(offer: Offer, usd: float, own: float, hours: float) -> Buying:
    found: RentOrBuy | Missing = Missing("its rent is not known: state it with --price")
    if isinstance(offer.price, Price):
        rent = offer.price.usd_per_hour * hours
        never = Missing("owning costs no less per month than renting: buying never pays")
        found = RentOrBuy(usd, rent, own, usd / (rent - own) if rent > own else never)
    return Buying(offer.box, offer.device_class, hours, found)


def advice_as_json(advice: Advice, buyings: Sequence[Buying] = ()) -> dict[str, Any]:
    """The answer to one job, with rent against buy if requested."""
    plain: dict[str, Any] = to_plain(advice)
    offers = [
        {**as_json, "case": case_identity(offer.case)}
        for as_json, offer in zip(plain["offers"], advice.offers, strict=True)
    ]
    return {
        "headline": headline_of(advice),
        **plain,
        "job": {"text": advice.job.text, **plain["job"]},
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
    from gputui.services.compare.formats import judgement_as_json  # no other form needs it

    against = [{"what": what, **judgement_as_json(judgement)} for what, judgement in pick.against]
    return {
        "box": pick.offer.box,
        "device_class": pick.offer.device_class,
        "ties": list(pick.ties),
        "against": against,
    }
