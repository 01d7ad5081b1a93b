"""`gputui prices`: what GPUs cost to rent, and a list of the user's."""

from __future__ import annotations

import datetime
from pathlib import Path

import click

from gputui.cli.options import FILE, json_option
from gputui.cli.output import print_json, printed
from gputui.document.spans import Span
from gputui.document.table import Cell, Table, table_of
from gputui.errors import GputuiError
from gputui.facts.tables import InstanceRow, closest_gpus, rows_named
from gputui.model.absent import Missing, known
from gputui.model.units import counted
from gputui.services.prices.price_list import (
    OLD_DAYS,
    best_offer,
    closest_instances,
    date_of,
    date_words,
    find_instance,
    import_prices,
    is_on_demand,
    is_recent,
    most_rented,
    offers_of,
    per_gpu,
)
from gputui.services.support.paths import price_list_file

_SHOWN = 15
"""Lines without --all, so that they fit a terminal."""
_KIND_WIDTH = 11


@click.command()
@click.argument("name", metavar="[GPU|INSTANCE]", required=False)
@click.option("--all", "every", is_flag=True, help="List every offer.")
@click.option(
    "--import",
    "imported",
    type=FILE,
    metavar="FILE",
    help="Use this price list (CSV or Parquet) before the built-in one.",
)
@click.option(
    "--provider", default="", metavar="NAME", help="With --import: the provider, if no column names it."
)
@click.option(
    "--date", default="", metavar="DAY", help="With --import: the day of the prices, such as 2026-11-22."
)
@click.option("--forget", is_flag=True, help="Remove the imported list.")
@json_option
def command(
    name: str | None,
    every: bool,
    imported: Path | None,
    provider: str,
    date: str,
    forget: bool,
    as_json: bool,
) -> None:
    """Show what renting a GPU costs, the cheapest first; or take over a list of prices.

    Prices of the last 90 days go before older ones.

    FILE has the columns instance_type, gpu, gpu_count and usd_per_hour, and may have provider, region,
    price_kind, price_date, spot_usd_per_hour and spot_date; or it is a SkyPilot or gpuhunt catalog.
    Nothing is downloaded.
    """
    if (provider or date) and imported is None:
        raise GputuiError("--provider and --date describe a list to import", "add --import FILE")
    today = datetime.date.today()
    if imported is not None:
        _import(imported, provider, date)
    elif forget:
        path = price_list_file()
        found = path.exists()
        path.unlink(missing_ok=True)
        click.echo(f"removed {path}" if found else "there is no imported list")
    elif as_json:
        print_json({"offers": [_plain(row, today) for row in _offers(name, today)]})
    else:
        _print(_offers(name, today), name, every, today)


def _import(path: Path, provider: str, date: str) -> None:
    done = import_prices(path, provider, date)
    click.echo(f"{counted(done.prices, 'price')} from a {done.layout} list, kept in {price_list_file()}")
    if done.skipped:
        click.echo(f"left out: {counted(done.skipped, 'line')} without a GPU or a price")
    if done.unknown_gpus:
        names = ", ".join(done.unknown_gpus[:8]) + (" ..." if len(done.unknown_gpus) > 8 else "")
        click.echo(f"GPUs that gputui does not know, found by instance type only: {names}")


def _offers(name: str | None, today: datetime.date) -> list[InstanceRow]:
    if name is None:
        best = (best_offer(gpu, today) for gpu in most_rented())
        return [row for row in best if row is not None]
    meant = (row.name for row in rows_named(name))
    found = offers_of(meant, today) or list(find_instance(name))
    if not found:
        priced = (gpu for gpu in closest_gpus(name) if offers_of([gpu], today))
        close = ", ".join(priced) or ", ".join(closest_instances(name))
        raise GputuiError(
            f"no price of '{name}' is listed",
            f"did you mean {close}?" if close else "gputui prices lists the GPUs that are",
        )
    return found


def _print(offers: list[InstanceRow], name: str | None, every: bool, today: datetime.date) -> None:
    recent = [row for row in offers if is_recent(date_of(row), today)]
    old = [row for row in offers if row not in recent]
    room = len(offers) if every else _SHOWN
    shown, older = recent[:room], old[: max(room - len(recent), 0)]
    with printed() as page:
        if shown:
            if name is None:
                what = f"Cheapest on-demand prices of the last {OLD_DAYS} days, the most offered GPUs first"
            else:
                what = f"{counted(len(recent), 'price')} of the last {OLD_DAYS} days, the cheapest first"
            page.line(f"{what}:", "title")
            page.table(_table(shown, today))
        if older:
            newest = f"No price of the last {OLD_DAYS} days; the newest" + (" first" if name else "")
            page.line("Older prices, the newest first:" if shown and name else f"{newest}:", "title")
            page.table(_table(older, today))
        hidden = {"more": len(recent) - len(shown), "older": len(old) - len(older)}
        if any(hidden.values()):
            page.hint(" and ".join(f"{count} {word}" for word, count in hidden.items() if count), "--all")
        if name is None:
            page.hint("next", "gputui prices H100")


def _table(shown: list[InstanceRow], today: datetime.date) -> Table:
    has_spot = any(not isinstance(row.spot_usd_per_hour, Missing) for row in shown)
    spot = ["spot"] if has_spot else []
    kinds = [_kind(row) for row in shown]
    kind_title = [] if all(kind == "on-demand" for kind in kinds) else ["kind"]
    rows: list[tuple[Cell, ...]] = []
    for row, kind in zip(shown, kinds, strict=True):
        spot_price = (
            row.spot_usd_per_hour
            if isinstance(row.spot_usd_per_hour, Missing)
            else per_gpu(row.spot_usd_per_hour, row)
        )
        is_counted = row.gpu_count > 1 and f"{row.gpu_count:g}x" not in row.instance_type
        price = row.usd_per_hour
        rows.append(
            (
                row.gpu,
                Span(_usd(price if isinstance(price, Missing) else per_gpu(price, row)), "title"),
                *([_usd(spot_price)] if has_spot else []),
                _usd(price),
                *([Span(kind, "dim")] if kind_title else []),
                f"{row.provider} {row.instance_type}".removesuffix(f" ({kind})")
                + (f" ({row.gpu_count:g} GPUs)" if is_counted else ""),
                Span(date_words(date_of(row), today), "dim"),
            )
        )
    return table_of(
        ["GPU", "$/GPU h", *spot, "$/box h", *kind_title, "provider and type", "price of"],
        rows,
        right=range(1, 3 + len(spot)),
        breaks=(0, 3 + len(spot) + len(kind_title)),
    )


def _kind(row: InstanceRow) -> str:
    """What kind its price is, in a word or two; of its spot price where it has no other."""
    if isinstance(row.usd_per_hour, Missing):
        return "—" if isinstance(row.spot_usd_per_hour, Missing) else "spot"
    kind = row.price_kind
    return kind if len(kind) <= _KIND_WIDTH else kind.replace(",", " ").split()[0]


def _usd(price: float | Missing) -> str:
    return "—" if isinstance(price, Missing) else f"${price:.2f}"


def _plain(row: InstanceRow, today: datetime.date) -> dict[str, object]:
    return {
        "provider": row.provider,
        "instance_type": row.instance_type,
        "gpu": row.gpu,
        "gpu_count": row.gpu_count,
        "usd_per_hour": known(row.usd_per_hour),
        "price_kind": row.price_kind,
        "is_on_demand": not isinstance(row.usd_per_hour, Missing) and is_on_demand(row.price_kind),
        "region": row.region,
        "price_date": row.price_date,
        "is_recent": is_recent(date_of(row), today),
        "spot_usd_per_hour": known(row.spot_usd_per_hour),
        "spot_date": row.spot_date,
        "source": list(dict.fromkeys((*row.source, *row.spot_source))),
        "confidence": row.confidence,
        "notes": row.notes,
    }
