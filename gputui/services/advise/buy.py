"""Whether buying the machines for a job pays compared with renting them; and an advice with that as JSON."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any  # Any: JSON

from gputui.analysis.job import Serving
from gputui.model.absent import Missing
from gputui.model.journal import Price, to_plain
from gputui.services.advise.rent import HOURS_PER_MONTH, Advice, Offer, Pick, ServedLoad, headline_of
from gputui.services.results.exports import case_identity


@dataclass(frozen=True, slots=True)
class Terms:
    """What buying and owning one machine costs; costs that are not stated are 0 and reported as left out."""

    power_usd_per_kwh: float = 0.0
    cooling: float = 0.0
    """Extra power for cooling, as a share; 0.1 to 0.3 in data centers."""
    staff_usd_per_month: float = 0.0
    """For all machines together."""
    utilisation: float = 1.0
    """Share of a month's hours in which the machines work; rented ones are paid only for these."""
    hours_per_month: float = HOURS_PER_MONTH
    power_w: float | None = None
    """Of one machine at work; None for the measured power of its GPUs."""

    def owning_usd_per_month(self, power_w: float, hours: float) -> float:
        """Power with its cooling for this many hours of work, and staff; `power_w` is of all machines."""
        kwh = power_w / 1000 * hours * (1 + self.cooling)
        return kwh * self.power_usd_per_kwh + self.staff_usd_per_month

    @property
    def left_out(self) -> tuple[str, ...]:
        """Costs of owning that were not stated."""
        power = "power" if self.power_usd_per_kwh == 0 else "cooling" if self.cooling == 0 else ""
        staff = "staff" if self.staff_usd_per_month == 0 else ""
        return tuple(filter(None, (power, staff, "space, interest, repairs, resale")))


@dataclass(frozen=True, slots=True)
class RentOrBuy:
    """Both ways compared."""

    buy_usd: float
    """For all machines together."""
    rent_usd_per_month: float
    own_usd_per_month: float
    months: float | Missing
    """After which buying has cost less; Missing if it never does."""


@dataclass(frozen=True, slots=True)
class Buying:
    """Rent or buy for one offer."""

    box: str
    device_class: str
    boxes: int
    hours: float
    """Of work per month."""
    power_w: float | Missing
    """Of one machine, as used in the calculation."""
    power_from: str
    """`stated`, `GPUs as measured`, or empty if power costs nothing."""
    found: RentOrBuy | Missing
    left_out: tuple[str, ...]
    """Costs of owning that were not stated."""


def weigh(
    advice: Advice,
    buy_usd: Callable[[str], float | None],
    terms: Terms,
    measured_w: Callable[[str], float | Missing],
) -> tuple[Buying, ...]:
    """Rent or buy for each machine with an offer that meets the job; only the best offer of each.

    `buy_usd` is the price by the machine's name, None if it is not for sale. `measured_w` is the power of a
    run's GPUs, by run id.
    """
    chosen: dict[str, Offer] = {}
    for offer in advice.offers:
        if offer.meets:
            chosen.setdefault(offer.box, offer)
    return tuple(
        _weighed(offer, usd, terms, measured_w)
        for name, offer in chosen.items()
        if (usd := buy_usd(name)) is not None
    )


def _weighed(offer: Offer, usd: float, terms: Terms, measured_w: Callable[[str], float | Missing]) -> Buying:
    """Break-even: the price over what each month of owning saves; no interest, no resale, constant prices."""
    boxes = int(offer.load.boxes.value) if isinstance(offer.load, ServedLoad) else 1
    hours = terms.hours_per_month * terms.utilisation
    power_w: float | Missing = Missing("power is not paid for")
    if terms.power_usd_per_kwh > 0:
        power_w = measured_w(offer.run_id) if terms.power_w is None else terms.power_w
    found: RentOrBuy | Missing
    if not isinstance(offer.price, Price):
        found = Missing("its rent is not known: state it with --price")
    elif terms.power_usd_per_kwh > 0 and isinstance(power_w, Missing):
        found = Missing(f"its power is not known ({power_w.reason}): state it with --power")
    else:
        own = terms.owning_usd_per_month(0.0 if isinstance(power_w, Missing) else power_w * boxes, hours)
        rent = offer.price.usd_per_hour * hours * boxes
        never = Missing("owning costs no less per month than renting: buying never pays")
        found = RentOrBuy(usd * boxes, rent, own, usd * boxes / (rent - own) if rent > own else never)
    is_stated = terms.power_w is not None
    return Buying(
        box=offer.box,
        device_class=offer.device_class,
        boxes=boxes,
        hours=hours,
        power_w=power_w,
        power_from="" if isinstance(power_w, Missing) else "stated" if is_stated else "GPUs as measured",
        found=found,
        left_out=terms.left_out,
    )


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
    from gputui.services.compare.formats import judgement_as_json  # no other form needs it

    against = [{"what": what, **judgement_as_json(judgement)} for what, judgement in pick.against]
    return {
        "box": pick.offer.box,
        "device_class": pick.offer.device_class,
        "ties": list(pick.ties),
        "against": against,
    }
