"""List prices of cloud instances."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator

from gputui.facts.tables import InstanceRow, instance_rows
from gputui.model.absent import Missing
from gputui.model.journal import Price

_NOT_ON_DEMAND = re.compile(
    "commit|reserv|contract|month|year|spot|interrupt|preempt|flex|communit|market|lowest|auction|bid", re.I
)
"""In the kind of a price that takes a commitment, may end at any time, or is only some host's."""


def is_on_demand(kind: str) -> bool:
    """Whether anybody gets a price of this kind by the hour, for as long as they like."""
    return not _NOT_ON_DEMAND.search(kind)


def find_instance(instance_type: str, rows: Iterable[InstanceRow] | None = None) -> tuple[InstanceRow, ...]:
    """Every row of an instance type, of all providers and regions, ignoring case.

    A provider may precede it, as in `aws/g5.xlarge`. Empty if there is none. `rows` None are those that ship.
    """
    wanted = instance_type.strip().casefold()
    return tuple(row for row in _rows(rows) if wanted in _names(row))


def most_rented() -> tuple[str, ...]:
    """Names of the GPUs that people can rent in most places, the most common first.

    The rule: the number of providers that offer it for money, then the number of their instance types.
    Shares of a GPU, free quotas and offers without a known price are not counted.
    """
    offers: dict[str, list[str]] = {}
    for row in _priced():
        offers.setdefault(row.gpu, []).append(row.provider)
    return tuple(sorted(offers, key=lambda gpu: (-len(set(offers[gpu])), -len(offers[gpu]), gpu)))


def _priced() -> Iterator[InstanceRow]:
    for row in instance_rows():
        price = row.usd_per_hour
        if row.gpu_count >= 1 and not isinstance(price, Missing) and price > 0:
            yield row


def _rows(rows: Iterable[InstanceRow] | None) -> Iterable[InstanceRow]:
    return instance_rows() if rows is None else rows


def closest_instances(
    text: str, count: int = 5, rows: Iterable[InstanceRow] | None = None
) -> tuple[str, ...]:
    """Instance types that the user may have meant, likeliest first, as `provider/type`."""
    from difflib import get_close_matches  # only needed for a mistyped name

    wanted = text.strip().casefold()
    by_name = {name: _full_name(row) for row in _rows(rows) for name in _names(row)}
    begun = [full for name, full in by_name.items() if wanted and name.startswith(wanted)]
    alike = [by_name[name] for name in get_close_matches(wanted, by_name, n=2 * count, cutoff=0.6)]
    return tuple(dict.fromkeys(begun + alike))[:count]


def list_price(row: InstanceRow, *, is_spot: bool = False) -> Price | Missing:
    """The row as a price; Missing if the table knows the instance but not its price."""
    if is_spot:
        if isinstance(row.spot_usd_per_hour, Missing):
            return Missing(f"no spot price known for {_full_name(row)}: state it with --price")
        return Price(
            usd_per_hour=row.spot_usd_per_hour,
            gpu_count=row.gpu_count,
            kind="spot",
            provider=row.provider,
            instance_type=row.instance_type,
            region=row.region,
            date=row.spot_date,
        )
    if isinstance(row.usd_per_hour, Missing):
        return Missing(f"no list price known for {_full_name(row)}: state it with --price")
    return Price(
        usd_per_hour=row.usd_per_hour,
        gpu_count=row.gpu_count,
        kind=row.price_kind,
        provider=row.provider,
        instance_type=row.instance_type,
        region=row.region,
        date=row.price_date,
    )


def _full_name(row: InstanceRow) -> str:
    return f"{row.provider}/{row.instance_type}"


def _names(row: InstanceRow) -> tuple[str, str]:
    return row.instance_type.casefold(), _full_name(row).casefold()
