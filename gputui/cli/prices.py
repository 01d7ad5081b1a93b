"""`gputui prices`: what GPUs cost to rent, and a list of the user's."""

from __future__ import annotations

import datetime
import json
from pathlib import Path
from typing import TYPE_CHECKING

import click

from gputui.errors import EXIT_DONE, GputuiError
from gputui.model.absent import Missing

if TYPE_CHECKING:
    from gputui.facts.tables import InstanceRow

_SHOWN = 15
"""Lines without --all, so that they fit a terminal."""


@click.command()
@click.argument("name", metavar="[GPU|INSTANCE]", required=False)
@click.option("--all", "every", is_flag=True, help="List every offer.")
@click.option(
    "--import",
    "imported",
    type=click.Path(path_type=Path, readable=False),
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
@click.option("--json", "as_json", is_flag=True, help="Print as JSON.")
def command(
    name: str | None,
    every: bool,
    imported: Path | None,
    provider: str,
    date: str,
    forget: bool,
    as_json: bool,
) -> int:
    """Show what renting a GPU costs, the cheapest first; or take over a list of prices.

    FILE has the columns instance_type, gpu, gpu_count and usd_per_hour, and may have provider, region,
    price_kind, price_date, spot_usd_per_hour and spot_date; or it is a SkyPilot or gpuhunt catalog.
    Nothing is downloaded.
    """
    if (provider or date) and imported is None:
        raise GputuiError("--provider and --date describe a list to import", "add --import FILE")
    if imported is not None:
        return _import(imported, provider, date)
    from gputui.services.support.paths import price_list_file

    if forget:
        path = price_list_file()
        found = path.exists()
        path.unlink(missing_ok=True)
        click.echo(f"removed {path}" if found else "there is no imported list")
        return EXIT_DONE
    offers = _offers(name)
    if as_json:
        click.echo(json.dumps({"schema": 1, "offers": [_plain(row) for row in offers]}, indent=1))
        return EXIT_DONE
    _print(offers, name, every)
    return EXIT_DONE


def _import(path: Path, provider: str, date: str) -> int:
    from gputui.services.prices.price_list import import_prices
    from gputui.services.support.paths import price_list_file

    done = import_prices(path, provider, date)
    click.echo(f"{done.prices} prices from a {done.layout} list, kept in {price_list_file()}")
    if done.skipped:
        click.echo(f"{done.skipped} lines without a GPU or a price left out")
    if done.unknown_gpus:
        names = ", ".join(done.unknown_gpus[:8]) + (" ..." if len(done.unknown_gpus) > 8 else "")
        click.echo(f"GPUs that gputui does not know, found by instance type only: {names}")
    return EXIT_DONE


def _offers(name: str | None) -> list[InstanceRow]:
    from gputui.facts.gpus import closest_gpus, rows_named
    from gputui.facts.instances import closest_instances, find_instance, most_rented
    from gputui.services.prices.price_list import cheapest_first, known_instances, offers_of

    if name is None:
        best = (cheapest_first(gpu) for gpu in most_rented())
        return [row for row in best if row is not None]
    found = offers_of(row.name for row in rows_named(name)) or list(find_instance(name, known_instances()))
    if not found:
        priced = (gpu for gpu in closest_gpus(name) if offers_of([gpu]))
        close = ", ".join(priced) or ", ".join(closest_instances(name, rows=known_instances()))
        raise GputuiError(
            f"no price of '{name}' is listed",
            f"did you mean {close}?" if close else "gputui prices lists the GPUs that are",
        )
    return found


def _print(offers: list[InstanceRow], name: str | None, every: bool) -> None:
    from gputui.cli.output import console
    from gputui.services.prices.price_list import date_words, per_gpu
    from gputui.services.support.text_tables import add_row, table

    today = datetime.date.today()
    shown = offers if every else offers[:_SHOWN]
    count = len({row.gpu for row in offers})
    out = console()
    if name is None:
        out.print(f"Cheapest list price of {count} GPUs, those that most providers rent first:")
    else:
        kinds = f" of {count} GPUs" if count > 1 else ""
        out.print(f"{len(offers)} offer{'s' if len(offers) > 1 else ''}{kinds}, the cheapest first:")
    has_spot = any(not isinstance(row.spot_usd_per_hour, Missing) for row in shown)
    spot = ["spot"] if has_spot else []
    made = table(
        ["GPU", "$/GPU h", *spot, "whole box", "provider and type", "price of"],
        right=range(1, 3 + len(spot)),
        breaks=(0, 3 + len(spot)),
    )
    for row in shown:
        spot_price = (
            row.spot_usd_per_hour
            if isinstance(row.spot_usd_per_hour, Missing)
            else per_gpu(row.spot_usd_per_hour, row)
        )
        is_counted = row.gpu_count > 1 and not row.instance_type.startswith(f"{row.gpu_count:g}x ")
        price = row.usd_per_hour
        date = row.spot_date if isinstance(price, Missing) else row.price_date
        add_row(
            made,
            row.gpu,
            _usd(price if isinstance(price, Missing) else per_gpu(price, row)),
            *([_usd(spot_price)] if has_spot else []),
            _usd(price),
            f"{row.provider} {row.instance_type}" + (f" ({row.gpu_count:g} GPUs)" if is_counted else ""),
            date_words(date, today),
        )
    out.print(made)
    if len(offers) > len(shown):
        out.print(f"{len(offers) - len(shown)} more: --all")
    if name is None:
        out.print("next: gputui prices H100")


def _usd(price: float | Missing) -> str:
    return "—" if isinstance(price, Missing) else f"${price:.2f}"


def _plain(row: InstanceRow) -> dict[str, object]:
    def figure(value: float | Missing) -> float | None:
        return None if isinstance(value, Missing) else value

    return {
        "provider": row.provider,
        "instance_type": row.instance_type,
        "gpu": row.gpu,
        "gpu_count": row.gpu_count,
        "usd_per_hour": figure(row.usd_per_hour),
        "price_kind": row.price_kind,
        "region": row.region,
        "price_date": row.price_date,
        "spot_usd_per_hour": figure(row.spot_usd_per_hour),
        "spot_date": row.spot_date,
        "source": list(dict.fromkeys((*row.source, *row.spot_source))),
        "confidence": row.confidence,
        "notes": row.notes,
    }
