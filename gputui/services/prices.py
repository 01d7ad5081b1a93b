"""What a machine costs per hour: stated by the user, or from the lists of prices of cloud instances.

The user's own dated list goes before those that ship. In: options and a machine. Out: a `Price` or the reason
why there is none.
"""

from __future__ import annotations

import csv
import datetime
import functools
import io
import itertools
import math
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path

from gputui.errors import GputuiError, clean_text
from gputui.facts.tables import (
    InstanceRow,
    find_gpu,
    gpu_rows,
    instance_rows,
    memory_gib_of,
    memory_of,
    rows_named,
    rows_of,
)
from gputui.model.absent import Missing
from gputui.model.journal import Price
from gputui.model.machine import Machine
from gputui.model.result import RunSummary
from gputui.model.units import counted, format_hourly
from gputui.services.support.output_files import write_output
from gputui.services.support.paths import make_directory, price_list_file

OLD_DAYS = 90
"""A price older than this is shown with its age, and a recent one goes before it."""
MOST_BYTES = 256 * 2**20
MAX_USD_PER_HOUR = 100_000.0
USERS_SOURCE = "your list"
_FIELDS = (
    "provider", "instance_type", "gpu", "gpu_count", "usd_per_hour", "price_kind", "region", "price_date",
    "spot_usd_per_hour", "spot_date",
)  # fmt: skip
_DATE = re.compile(r"\d{4}-\d{2}-\d{2}")
_SIZE = re.compile(r"[-_ ](\d+)\s?GB\b", re.IGNORECASE)


_LAYOUTS = {
    "gputui": {name: name for name in (*_FIELDS, "gpu_memory_gb_each")},
    "SkyPilot catalog": {  # github.com/skypilot-org/skypilot-catalog, schema v5
        "InstanceType": "instance_type",
        "AcceleratorName": "gpu",
        "AcceleratorCount": "gpu_count",
        "Price": "usd_per_hour",
        "SpotPrice": "spot_usd_per_hour",
        "Region": "region",
    },
    "gpuhunt catalog": {  # github.com/dstackai/gpuhunt
        "provider": "provider",
        "instance_name": "instance_type",
        "location": "region",
        "price": "usd_per_hour",
        "gpu_count": "gpu_count",
        "gpu_name": "gpu",
        "gpu_memory": "gpu_memory_gb_each",
        "spot": "is_spot",
    },
}
"""Public layouts of price lists: our columns by theirs. `is_spot` says which kind the price is."""
_MOST_NAMED = 8
_REQUIRED = ("instance_type", "gpu", "gpu_count", "usd_per_hour")


def known_instances() -> tuple[InstanceRow, ...]:
    """The user's prices, then those that ship of other instance types of the same provider."""
    path = price_list_file()
    try:
        own = _read_own(path, path.stat().st_mtime_ns)
    except FileNotFoundError:
        return instance_rows()
    replaced = {(row.provider, row.instance_type) for row in own}
    return (
        *own,
        *(row for row in instance_rows() if (row.provider, row.instance_type) not in replaced),
    )


def age_words(date: str, today: datetime.date) -> str:
    """`124 days old` where that matters, `date unsure`; empty for a price of the last OLD_DAYS days.

    One that is older, or of an unknown day, is never called the cheapest.
    """
    days = days_old(date, today)
    if days is None:
        return "" if re.fullmatch(r"\d{4}-\d{2}", date) and date >= f"{today:%Y-%m}" else "date unsure"
    return f"{days} days old" if days > OLD_DAYS else ""


def days_old(date: str, today: datetime.date) -> int | None:
    """Days since a price was read; None for one whose date is unknown or not a day."""
    return (today - datetime.date.fromisoformat(date)).days if _DATE.fullmatch(date) else None


def date_words(date: str, today: datetime.date) -> str:
    """The day of a price, and its age where that matters: `2025-11-22`, `2025-2026, date unsure`."""
    return ", ".join(filter(None, (date[:10].rstrip(" ("), age_words(date, today))))


def import_prices(paths: Sequence[Path], provider: str, date: str) -> list[str]:
    """Replace the user's list by CSV or Parquet files of the known layouts; what became of each.

    `provider` and `date` (YYYY-MM-DD) stand in for columns that a file lacks; else its name does, as of
    `aws/vms.csv` or `aws.csv` in a catalog, and the day of the file. Of a type that is listed for several
    zones of one region the lowest price is kept. Raises GputuiError for what cannot be read, and then the old
    list stays.
    """
    if not paths:
        raise GputuiError("no price list is named", "gputui gpu --prices catalogs/v8/*/vms.csv")
    if date and not _is_day(date):
        raise GputuiError(f"--date {date}: must be a day", "as in 2026-11-22")
    found: dict[tuple[str, str, str], dict[str, str]] = {}
    lines = [line for path in paths for line in _read_list(path, provider, date, found)]
    page = io.StringIO()
    writer = csv.DictWriter(page, _FIELDS, lineterminator="\n")
    writer.writeheader()
    writer.writerows(found.values())
    target = price_list_file()
    try:
        make_directory(target.parent)
    except OSError as error:
        raise GputuiError(
            f"{target.parent}: cannot be created ({error.strerror})",
            "set XDG_CONFIG_HOME to a directory you can write to",
        ) from error
    write_output(target, page.getvalue())
    unknown = sorted({row["gpu"] for row in found.values()} - _gpu_names())
    if unknown:
        names = ", ".join(unknown[:_MOST_NAMED]) + (" ..." if len(unknown) > _MOST_NAMED else "")
        lines.append(f"GPUs that gputui does not know, found by instance type only: {names}")
    return [f"{counted(len(found), 'price')}, kept in {target}", *lines]


def _read_list(
    path: Path, provider: str, date: str, found: dict[tuple[str, str, str], dict[str, str]]
) -> Iterator[str]:
    """Add the rows of one file to those found, and say how many and of which day. Raises GputuiError."""
    rows = _rows_of(path)
    header = tuple(rows[0]) if rows else ()
    layouts = [
        name
        for name, columns in _LAYOUTS.items()
        if all(theirs in header for theirs, ours in columns.items() if ours in _REQUIRED)
    ]
    layout = layouts[0] if layouts else ""
    if not layout:
        raise GputuiError(
            f"{path}: not a price list: its columns are {', '.join(header)[:200] or 'none'}",
            f"it needs {', '.join(_REQUIRED)}, or the columns of a SkyPilot or gpuhunt catalog",
        )
    of = ""
    if layout != "gputui":
        provider = provider or (path.parent.name if path.stem == "vms" else path.stem)
        date = date or f"{datetime.date.fromtimestamp(path.stat().st_mtime)}"
        of = f" of {provider}, dated {date}"
    read = 0
    for number, theirs in enumerate(rows, 2):
        ours = {name: clean_text(theirs.get(column, "")).strip() for column, name in _LAYOUTS[layout].items()}
        row = _plain_row(ours, provider, date, f"{path} line {number}")
        if row is not None:
            read += 1
            key = (row["provider"], row["instance_type"], row["region"])
            found[key] = _cheaper(found[key], row) if key in found else row
    if not read:
        raise GputuiError(f"{path}: has no price of an instance with a GPU", "the list is unchanged")
    yield f"from a {layout} list{of}: {path}"
    if read < len(rows):
        yield f"left out: {counted(len(rows) - read, 'line')} without a GPU or a price"


def _plain_row(ours: Mapping[str, str], provider: str, date: str, where: str) -> dict[str, str] | None:
    """One row in our columns; None without GPU or price. Raises GputuiError."""
    count = _figure(ours.get("gpu_count", ""), f"{where}: gpu_count")
    price = _figure(ours.get("usd_per_hour", ""), f"{where}: price")
    spot = _figure(ours.get("spot_usd_per_hour", ""), f"{where}: spot price")
    if ours.get("is_spot", "").lower() in ("true", "1"):
        price, spot = None, price
    if not ours.get("gpu") or not count or not (price or spot):
        return None
    if not (ours.get("provider") or provider):
        raise GputuiError(f"{where}: has no provider", "name it with --provider")
    day = ours.get("price_date") or date
    if not _is_day(day):
        raise GputuiError(f"{where}: has no date: {day or 'nothing'}", "give the day: --date 2026-11-22")
    memory = _figure(ours.get("gpu_memory_gb_each", ""), f"{where}: gpu_memory")
    return {
        "provider": (ours.get("provider") or provider).lower(),
        "instance_type": ours["instance_type"],
        "gpu": gpu_named(ours["gpu"], memory),
        "gpu_count": f"{count:g}",
        "usd_per_hour": "" if not price else f"{price:g}",
        "price_kind": (ours.get("price_kind") or "on-demand") if price else "",
        "region": ours.get("region") or "any",
        "price_date": day if price else "",
        "spot_usd_per_hour": "" if not spot else f"{spot:g}",
        "spot_date": (ours.get("spot_date") or day) if spot else "",
    }


def gpu_named(text: str, memory_gb: float | None) -> str:
    """The GPU of `gpus.csv` that a price list means, such as `H100`, `A100-80GB`; else the text itself."""
    if text in _gpu_names():
        return text
    size = _SIZE.search(text)
    gib = memory_gb or (float(size.group(1)) if size else None)
    words = re.sub(r"(?<=RTX)(?=\d)|[-_]", " ", text)
    driven = find_gpu(f"NVIDIA {words}", gib)
    meant = [] if isinstance(driven, Missing) or "other" in driven.name else [driven.row]
    for row in (*meant, *rows_named(words), *rows_named(text)):
        usable = memory_of(row)
        if gib is None or isinstance(usable, Missing) or 0.85 * gib <= usable / 2**30 <= 1.05 * gib:
            return row.name
    return text


def _gpu_names() -> frozenset[str]:
    return frozenset(row.name for row in gpu_rows())


def _cheaper(known: Mapping[str, str], other: Mapping[str, str]) -> dict[str, str]:
    merged = dict(known)
    for price, *along in (("usd_per_hour", "price_kind", "price_date"), ("spot_usd_per_hour", "spot_date")):
        if other[price] and (not known[price] or float(other[price]) < float(known[price])):
            merged.update({name: other[name] for name in (price, *along)})
    return merged


def _figure(cell: str, what: str) -> float | None:
    if not cell or cell.lower() in ("nan", "none", "null"):
        return None
    try:
        value = float(cell)
    except ValueError:
        value = -1.0
    if not 0 <= value <= MAX_USD_PER_HOUR:
        raise GputuiError(f"{what}: must be a number from 0 to {MAX_USD_PER_HOUR:.0f}, got {cell[:40]!r}")
    return value


def _is_day(text: str) -> bool:
    try:
        datetime.date.fromisoformat(text)
    except ValueError:
        return False
    return bool(_DATE.fullmatch(text))


def _rows_of(path: Path) -> list[dict[str, str]]:
    try:
        if path.stat().st_size > MOST_BYTES:
            raise GputuiError(
                f"{path}: is larger than {MOST_BYTES >> 20} MiB", "leave out instances without a GPU"
            )
        with path.open("rb") as file:
            if file.read(4) == b"PAR1":
                return _parquet(path)
        with path.open(encoding="utf-8-sig", newline="") as text:
            return [
                {k: v for k, v in row.items() if isinstance(k, str) and isinstance(v, str)}
                for row in csv.DictReader(text)
            ]
    except OSError as error:
        raise GputuiError(f"{path}: cannot be read ({error.strerror})") from error
    except (UnicodeDecodeError, csv.Error) as error:
        raise GputuiError(f"{path}: not a CSV or Parquet file ({error})") from error


def _parquet(path: Path) -> list[dict[str, str]]:
    import duckdb  # slow to import, and only needed here

    try:
        with duckdb.connect(config={"autoload_known_extensions": False}) as connection:
            found = connection.execute("SELECT COLUMNS(*)::VARCHAR FROM read_parquet(?)", [str(path)])
            names = [column[0] for column in found.description]
            return [
                {name: cell or "" for name, cell in zip(names, row, strict=True)} for row in found.fetchall()
            ]
    except duckdb.Error as error:
        raise GputuiError(f"{path}: cannot be read as Parquet ({str(error).splitlines()[0]})") from error


@functools.lru_cache(maxsize=1)
def _read_own(path: Path, changed_ns: int) -> tuple[InstanceRow, ...]:
    """The list as it was when it changed last; `changed_ns` tells one state of it from the next."""
    known = {"source": USERS_SOURCE, "spot_source": USERS_SOURCE, "confidence": "high", "notes": ""}
    rows = _rows_of(path)
    for row, name in itertools.product(rows, ("gpu_count", "usd_per_hour", "spot_usd_per_hour")):
        _figure(row.get(name, ""), f"{path}: {name}")
    try:
        return rows_of(InstanceRow, ({**row, **known} for row in rows))
    except (KeyError, ValueError) as error:
        raise GputuiError(
            f"{path}: not a price list ({error})", "import it again: gputui gpu --prices"
        ) from error


def offers_of(gpu_names: Iterable[str], today: datetime.date) -> list[InstanceRow]:
    """Instances with whole GPUs of these names: those whose price is of the last OLD_DAYS days by the price
    of a GPU, then older ones, the newest first, undated and unpriced ones last."""
    wanted = set(gpu_names)
    found = (row for row in known_instances() if row.gpu in wanted and row.gpu_count >= 1)
    return sorted(
        found,
        key=lambda row: (
            row.usd_per_hour is None and row.spot_usd_per_hour is None,
            *_staleness(row, today),
            per_gpu(row.usd_per_hour, row),
            per_gpu(row.spot_usd_per_hour, row),
            row.provider,
        ),
    )


def best_offer(gpu_name: str, today: datetime.date, count: int = 0) -> InstanceRow | None:
    """The cheapest on-demand offer of the last OLD_DAYS days, else the newest; None where none costs money.

    Where none is on demand, the same of the other kinds.

    Of a GPU hour; with a `count`, of a whole instance with at least as many GPUs.
    """
    enough = [row for row in known_instances() if row.gpu == gpu_name and row.gpu_count >= max(1, count)]
    return min(
        (row for row in enough if row.usd_per_hour),
        key=lambda row: (
            not is_on_demand(row.price_kind),
            *_staleness(row, today),
            (row.usd_per_hour or 0.0) if count else per_gpu(row.usd_per_hour, row),
        ),
        default=None,
    )


def date_of(row: InstanceRow) -> str:
    """The day of its price; of its spot price where it has no other."""
    return row.spot_date if row.usd_per_hour is None else row.price_date


def is_recent(date: str, today: datetime.date) -> bool:
    return not age_words(date, today)


def _staleness(row: InstanceRow, today: datetime.date) -> tuple[int, int]:
    """Sorts recent prices before old ones, these by age, and those of an unknown day last."""
    days = days_old(date_of(row), today)
    if is_recent(date_of(row), today):
        return 0, 0
    return (2, 0) if days is None else (1, days)


def per_gpu(usd_per_hour: float | None, row: InstanceRow) -> float:
    """USD per GPU and hour; infinite without a price."""
    return math.inf if usd_per_hour is None else usd_per_hour / row.gpu_count


_NOT_ON_DEMAND = re.compile(
    "commit|reserv|contract|month|year|spot|interrupt|preempt|flex|communit|market|lowest|auction|bid", re.I
)
"""In the kind of a price that takes a commitment, may end at any time, or is only some host's."""


def is_on_demand(kind: str) -> bool:
    """Whether anybody gets a price of this kind by the hour, for as long as they like."""
    return not _NOT_ON_DEMAND.search(kind)


def find_instance(instance_type: str) -> tuple[InstanceRow, ...]:
    """Every known row of an instance type, of all providers and regions, ignoring case.

    A provider may precede it, as in `aws/g5.xlarge`. Empty if there is none.
    """
    wanted = instance_type.strip().casefold()
    return tuple(row for row in known_instances() if wanted in _names(row))


def most_rented() -> tuple[str, ...]:
    """Names of the GPUs that people can rent in most places, the most common first.

    The rule: the number of providers that offer it for money, then the number of their instance types.
    Shares of a GPU, free quotas and offers without a known price are not counted.
    """
    offers: dict[str, list[str]] = {}
    for row in instance_rows():
        if row.gpu_count >= 1 and row.usd_per_hour:
            offers.setdefault(row.gpu, []).append(row.provider)
    return tuple(sorted(offers, key=lambda gpu: (-len(set(offers[gpu])), -len(offers[gpu]), gpu)))


def closest_instances(text: str, count: int = 5) -> tuple[str, ...]:
    """Instance types that the user may have meant, likeliest first, as `provider/type`."""
    from difflib import get_close_matches  # only needed for a mistyped name

    wanted = text.strip().casefold()
    by_name = {name: _full_name(row) for row in known_instances() for name in _names(row)}
    begun = [full for name, full in by_name.items() if wanted and name.startswith(wanted)]
    alike = [by_name[name] for name in get_close_matches(wanted, by_name, n=2 * count, cutoff=0.6)]
    return tuple(dict.fromkeys(begun + alike))[:count]


def list_price(row: InstanceRow, *, is_spot: bool = False) -> Price | Missing:
    """The row as a price; Missing if the table knows the instance but not its price."""
    usd_per_hour = row.spot_usd_per_hour if is_spot else row.usd_per_hour
    if usd_per_hour is None:
        kind = "spot" if is_spot else "list"
        return Missing(f"no {kind} price known for {_full_name(row)}: state it with --price")
    return Price(
        usd_per_hour=usd_per_hour,
        gpu_count=row.gpu_count,
        kind="spot" if is_spot else row.price_kind,
        provider=row.provider,
        instance_type=row.instance_type,
        region=row.region,
        date=row.spot_date if is_spot else row.price_date,
    )


def _full_name(row: InstanceRow) -> str:
    return f"{row.provider}/{row.instance_type}"


def _names(row: InstanceRow) -> tuple[str, str]:
    return row.instance_type.casefold(), _full_name(row).casefold()


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
    """The price on demand of the instance type that the box tells, else of its platform with its GPUs."""
    if isinstance(machine.instance_type, Missing):
        return _of_platform(machine)
    instance = machine.instance_type
    prices = _prices(find_instance(instance))
    here = [price for price in prices if price.region == machine.region] or prices
    return _certain(here, instance) if here else Missing(f"no list price of {instance} is known: state one")


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
    return _certain(prices, prices[0].provider) if prices else Missing("no price: state one")


def _certain(prices: Sequence[Price], whose: str) -> Price | Missing:
    """The one price on demand, or why it is not known which."""
    certain = [price for price in prices if is_on_demand(price.kind)] or prices
    if len(certain) > 1:
        lowest, highest = (choose(price.usd_per_hour for price in certain) for choose in (min, max))
        return Missing(f"{whose} lists {format_hourly(lowest)} to {format_hourly(highest)}: state yours")
    (price,) = certain
    if is_on_demand(price.kind):
        return price
    usd = format_hourly(price.usd_per_hour)
    return Missing(f"{whose} lists {usd}, which is not on demand ({price.kind}): state yours")


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
