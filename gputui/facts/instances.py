"""List prices of cloud instances."""

from __future__ import annotations

from gputui.facts.tables import InstanceRow, instance_rows
from gputui.model.absent import Missing
from gputui.model.journal import Price

InstancePrice = InstanceRow


def find_instance(instance_type: str) -> tuple[InstancePrice, ...]:
    """Every row of an instance type, of all providers and regions, ignoring case.

    A provider may precede it, as in `aws/g5.xlarge`. Empty if there is none.
    """
    wanted = instance_type.strip().casefold()
    return tuple(row for row in instance_rows() if wanted in _names(row))


def closest_instances(text: str, count: int = 5) -> tuple[str, ...]:
    """Instance types that the user may have meant, likeliest first, as `provider/type`."""
    from difflib import get_close_matches  # only needed for a mistyped name

    wanted = text.strip().casefold()
    by_name = {name: _full_name(row) for row in instance_rows() for name in _names(row)}
    begun = [full for name, full in by_name.items() if wanted and name.startswith(wanted)]
    alike = [by_name[name] for name in get_close_matches(wanted, by_name, n=2 * count, cutoff=0.6)]
    return tuple(dict.fromkeys(begun + alike))[:count]


def list_price(row: InstancePrice) -> Price | Missing:
    """The row as a price; Missing if the table knows the instance but not its price."""
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
