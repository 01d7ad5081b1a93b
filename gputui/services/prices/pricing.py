"""The price of a machine: stated, or looked up by instance type."""

from __future__ import annotations

import datetime
import math
from collections.abc import Iterable
from dataclasses import replace

from gputui.errors import GputuiError
from gputui.facts.tables import InstanceRow, find_gpu, memory_gib_of
from gputui.model.absent import Missing
from gputui.model.journal import Price
from gputui.model.machine import Machine
from gputui.model.result import RunSummary
from gputui.model.units import format_hourly
from gputui.services.prices.price_list import (
    MAX_USD_PER_HOUR,
    age_words,
    closest_instances,
    find_instance,
    is_on_demand,
    known_instances,
    list_price,
)

STATED = "stated"
"""The kind of a price that the user gave."""
_BY_THE_GPU = ("modal", "runpod")
"""Where several GPUs cost several times as much as one."""
SPOT = ":spot"
"""Ends an instance type whose spot price is meant."""


def price_of(usd_per_hour: float | None, instance: str | None, machine: Machine) -> Price | None:
    """The price to store with a run: `--price` wins over `--instance`, and that over the list price of what
    was rented, as far as the box tells; None without any of them.

    Raises GputuiError for an invalid price, and for an instance that is unknown, has no list price, or has
    several, with what would distinguish them.
    """
    if usd_per_hour is not None:
        if not math.isfinite(usd_per_hour) or not 0 <= usd_per_hour <= MAX_USD_PER_HOUR:
            raise GputuiError(
                f"--price {usd_per_hour:.15g}: is not a price of a box",
                f"USD per hour for the whole box, from 0 to {MAX_USD_PER_HOUR:.0f}",
            )
        return Price(usd_per_hour, float(len(machine.gpus)), STATED, "", instance or "", "", "")
    if instance is not None:
        return _listed(instance)
    listed = listed_here(machine)
    return listed if isinstance(listed, Price) else None


def _listed(instance: str) -> Price:
    name, is_spot = instance.removesuffix(SPOT), instance.endswith(SPOT)
    rows = find_instance(name)
    if not rows:
        close = ", ".join(closest_instances(name))
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
    """The price stored with a run, else the list price of what was rented."""
    return run.price if isinstance(run.price, Price) else listed_here(run.machine)


def listed_here(machine: Machine) -> Price | Missing:
    """The list price of the instance type that the box tells, else of its platform with its GPUs."""
    if isinstance(machine.instance_type, Missing):
        return _of_platform(machine)
    instance = machine.instance_type
    prices = _prices(find_instance(instance))
    here = [price for price in prices if price.region == machine.region] or prices
    if not here:
        return Missing(f"no list price of {instance} is known: state one")
    if len(here) > 1:
        return Missing(f"{instance} has {len(here)} list prices: state the one you pay")
    return here[0]


def _of_platform(machine: Machine) -> Price | Missing:
    names = {layer.name for layer in machine.layers if layer.layer in ("platform", "vm")}
    kinds, count = _gpus_of(machine), len(machine.gpus)
    offers = [row for row in known_instances() if row.provider in names and {row.gpu} == kinds]
    prices = _prices(row for row in offers if row.gpu_count == count)
    if not prices:
        single = _prices(row for row in offers if row.gpu_count == 1 and row.provider in _BY_THE_GPU)
        prices = [
            replace(price, usd_per_hour=count * price.usd_per_hour, gpu_count=count) for price in single
        ]
    certain = [price for price in prices if is_on_demand(price.kind)] or prices
    if not certain:
        return Missing("no price: state one")
    if len(certain) > 1:
        lowest, highest = (choose(price.usd_per_hour for price in certain) for choose in (min, max))
        return Missing(
            f"{certain[0].provider} lists {format_hourly(lowest)} to {format_hourly(highest)}: state yours"
        )
    (price,) = certain
    if not is_on_demand(price.kind):
        usd = format_hourly(price.usd_per_hour)
        return Missing(f"{price.provider} lists {usd}, which is not on demand ({price.kind}): state yours")
    return price


def check_instance(instance: str, machine: Machine) -> None:
    """Check that a box has a GPU of this instance type. Raises GputuiError.

    An unknown type, and a GPU that is not known by its name, such as a virtual one, pass.
    """
    rows = find_instance(instance.removesuffix(SPOT))
    sold, seen = {row.gpu for row in rows}, _gpus_of(machine)
    if not rows or sold & seen or (machine.gpus and not seen):
        return
    names = ", ".join(dict.fromkeys(gpu.name for gpu in machine.gpus)) or "no GPU"
    raise GputuiError(
        f"--instance {instance}: has {rows[0].gpu_count:g}x {rows[0].gpu}, and this box has {names}",
        "name the type of this box, or state what it costs: --price USD_PER_H",
    )


def _gpus_of(machine: Machine) -> frozenset[str]:
    """Names of the GPUs of a box as the price list has them; empty if one of them is not known."""
    names = set()
    for gpu in machine.gpus:
        found = find_gpu(gpu.name, memory_gib_of(machine, gpu.index))
        if isinstance(found, Missing) or "(any)" in found.name:
            return frozenset()
        names.add(found.name)
    return frozenset(names)


def _prices(rows: Iterable[InstanceRow]) -> list[Price]:
    return [price for price in map(list_price, rows) if isinstance(price, Price)]


def age_at_run(run: RunSummary) -> str:
    """`list price 125 days old`, if the price of a run was that old when it was measured; else empty."""
    price = run.price
    if isinstance(price, Missing) or price.kind == STATED or not price.date:
        return ""
    measured = datetime.datetime.fromtimestamp(run.started_utc_us / 1e6, datetime.timezone.utc).date()
    age = age_words(price.date, measured)
    return f"list price {age}" if age else ""


def price_source(price: Price, today: datetime.date | None = None) -> str:
    """Where a price comes from: `stated`, or `list price of 2026-07-20: aws g5.xlarge us-east-1 on-demand`.

    With its age, where that is over OLD_DAYS on the day `today`.
    """
    sold = (price.provider, price.instance_type, price.region)
    if price.kind == STATED:
        return " ".join(filter(None, (STATED, *sold)))
    words = " ".join(filter(None, (*sold, price.kind)))
    age = age_words(price.date, today) if today and price.date else ""
    return f"list price of {price.date or 'an unknown date'}{f', {age}' if age else ''}: {words}"
