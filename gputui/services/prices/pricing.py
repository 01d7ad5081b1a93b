"""The price of a machine: stated, or looked up by instance type."""

from __future__ import annotations

import datetime
import math

from gputui.errors import GputuiError
from gputui.facts.instances import closest_instances, find_instance, list_price
from gputui.model.absent import Missing
from gputui.model.journal import Price
from gputui.model.machine import Machine
from gputui.model.result import RunSummary
from gputui.model.units import format_hourly
from gputui.services.prices.price_list import age_words, known_instances

MAX_USD_PER_HOUR = 100_000.0
SPOT = ":spot"
"""Ends an instance type whose spot price is meant."""


def price_of(usd_per_hour: float | None, instance: str | None, machine: Machine) -> Price | None:
    """The price to store with a run: `--price` wins over `--instance`; None if neither was given.

    Raises GputuiError for an invalid price, and for an instance that is unknown, has no list price, or has
    several, with what would distinguish them.
    """
    if usd_per_hour is not None:
        if not math.isfinite(usd_per_hour) or not 0 <= usd_per_hour <= MAX_USD_PER_HOUR:
            raise GputuiError(
                f"--price {usd_per_hour:.15g}: is not a price of a box",
                f"USD per hour for the whole box, from 0 to {MAX_USD_PER_HOUR:.0f}",
            )
        return Price(usd_per_hour, float(len(machine.gpus)), "stated", "", instance or "", "", "")
    return None if instance is None else _listed(instance)


def _listed(instance: str) -> Price:
    name, is_spot = instance.removesuffix(SPOT), instance.endswith(SPOT)
    known = known_instances()
    rows = find_instance(name, known)
    if not rows:
        close = ", ".join(closest_instances(name, rows=known))
        raise GputuiError(
            f"--instance {instance}: no such instance type in the price list",
            f"did you mean {close}? or state it with --price" if close else "state it with --price USD_PER_H",
        )
    prices = [price for row in rows if isinstance(price := list_price(row, is_spot=is_spot), Price)]
    if not prices:
        why = list_price(rows[0], is_spot=is_spot)
        raise GputuiError(f"--instance {instance}: {why.reason if isinstance(why, Missing) else ''}")
    if len(prices) > 1:
        offers = "; ".join(
            f"{p.provider} {p.region} {p.kind} {format_hourly(p.usd_per_hour)}" for p in prices[:6]
        )
        raise GputuiError(
            f"--instance {instance}: {len(prices)} prices are listed: {offers}",
            "name it as PROVIDER/TYPE, or state the price with --price USD_PER_H",
        )
    return prices[0]


def price_of_run(run: RunSummary) -> Price | Missing:
    """The price stored with a run, else the list price of the instance that was detected."""
    if isinstance(run.price, Price):
        return run.price
    instance = run.machine.instance_type
    if isinstance(instance, Missing):
        return Missing("no price: state one")
    rows = find_instance(instance, known_instances())
    if not rows:
        return Missing(f"no list price of {instance} is known: state one")
    prices = [price for price in map(list_price, rows) if isinstance(price, Price)]
    if not prices:
        return Missing(f"no list price of {instance} is known: state one")
    here = [price for price in prices if price.region == run.machine.region] or prices
    if len(here) > 1:
        return Missing(f"{instance} has {len(here)} list prices: state the one you pay")
    return here[0]


def price_source(price: Price, today: datetime.date | None = None) -> str:
    """Where a price comes from: `stated`, or provider, instance, region, kind and date of a list price.

    With its age, where that is over OLD_DAYS on the day `today`.
    """
    words = (price.provider, price.instance_type, price.region, price.kind, price.date)
    age = age_words(price.date, today) if today and price.date else ""
    return " ".join(filter(None, words)) + (f", {age}" if age else "")
