"""What is known of GPUs without measuring: `gputui facts`, with sources; `gputui prices`, what they cost."""

from __future__ import annotations

import datetime
from collections.abc import Iterable
from pathlib import Path

import click

from gputui.cli.options import FILE, json_option
from gputui.cli.output import print_json, printed
from gputui.document.spans import Span
from gputui.document.table import Cell, Table, table_of
from gputui.errors import GputuiError
from gputui.facts.tables import (
    GpuRow,
    InstanceRow,
    PlausibleRow,
    closest_gpus,
    find_gpu,
    plausible_rows,
    rows_named,
    source_rows,
)
from gputui.model.absent import Missing, known
from gputui.model.units import counted, format_rate, three_digits
from gputui.services.prices import (
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

_MEASURES = {
    "matmul": "matmul",
    "copy": "copy",
    "lbm": "fluid simulation traffic",
    "h2d_pinned": "pinned copy to the GPU",
    "d2h_pinned": "pinned copy from the GPU",
    "h2d_pageable": "pageable copy to the GPU",
    "all_reduce_busbw": "all-reduce, bus bandwidth",
    "p2p_nvlink_one_way": "GPU to GPU over NVLink, one way",
    "p2p_pcie_one_way": "GPU to GPU over PCIe, one way",
}
"""In the order in which they are shown."""
_DTYPES = ("bf16", "fp16", "fp8", "tf32", "fp32", "")
_MOST_NAMED = 8


@click.command()
@click.argument("gpu", nargs=-1, required=True, metavar="GPU")
@click.option("-v", "--verbose", is_flag=True, help="List the sources in full.")
@json_option
def command(gpu: tuple[str, ...], verbose: bool, as_json: bool) -> None:
    """Show peaks, memory, what healthy ones reach and where to rent them, each with its sources.

    GPU is a name as people or drivers have it: H100 SXM, "NVIDIA A100-SXM4-80GB".
    """
    text = " ".join(gpu)
    rows = _named(text)
    if len(rows) > 1 and not as_json:
        _print_choice(text, rows)
        return
    if len(rows) > 1:
        listed = ", ".join(row.name for row in rows[:_MOST_NAMED])
        raise GputuiError(f"'{text}' matches {len(rows)} GPUs", f"name one: {listed}")
    (row,) = rows
    for word in gpu if len(gpu) > 1 and not _is_of_a_driver(text) else ():
        if (meant := rows_named(word)) and row not in meant:
            raise GputuiError(f"'{word}' is not {row.name}", "name one GPU at a time")
    ranges = _ranges(row)
    if as_json:
        print_json(_plain_facts(row, ranges))
    else:
        _print_facts(row, ranges, is_verbose=verbose)


def _named(text: str) -> list[GpuRow]:
    """The GPUs that are meant: of an RTX 4090 and an RTX 4090 D the former. Raises GputuiError if none is."""
    rows = list(rows_named(text))
    driven = find_gpu(text, None)
    if len(rows) > 1 and not isinstance(driven, Missing) and _is_of_a_driver(text):
        return [driven.row]
    if rows:
        words = {row.name: set(row.name.split()) for row in rows}
        plain = [row for row in rows if all(words[row.name] <= other for other in words.values())]
        rank = {name: place for place, name in enumerate(most_rented())}
        return plain or sorted(rows, key=lambda row: rank.get(row.name, len(rank)))
    close = closest_gpus(text)
    raise GputuiError(
        f"unknown GPU '{text}'",
        f"did you mean {', '.join(close)}?" if close else "gputui pick 7B --all lists every GPU",
    )


def _print_choice(text: str, rows: list[GpuRow]) -> None:
    """What distinguishes GPUs of one name."""
    cells = [
        (
            row.name,
            _listed((row.memory_gib, "{:g} GiB")) or "—",
            _listed((row.memory_bandwidth_gbs, "{:g} GB/s")) or "—",
            f"{three_digits(row.bf16_tensor_tflops)} TFLOP/s" if row.bf16_tensor_tflops else "—",
            _listed((row.tdp_w, "{:g} W")) or "—",
        )
        for row in rows
    ]
    headings = ("GPU", "memory", "bandwidth", "bf16, dense", "board")
    with printed() as page:
        page.line(f"'{text}' matches {len(rows)} GPUs:", "title")
        page.table(table_of(headings, cells, right=(1, 2, 3, 4)))
        page.hint("next", f"gputui facts '{rows[0].name}'")


def _is_of_a_driver(text: str) -> bool:
    """Whether a text begins as the names do that drivers report."""
    return text.upper().startswith(("NVIDIA ", "TESLA ", "AMD ", "QUADRO "))


def _ranges(row: GpuRow) -> list[PlausibleRow]:
    def place(one: PlausibleRow) -> tuple[int, int]:
        known = list(_MEASURES)
        measure = known.index(one.measure) if one.measure in known else len(known)
        return measure, _DTYPES.index(one.dtype) if one.dtype in _DTYPES else len(_DTYPES)

    return sorted((one for one in plausible_rows() if one.gpu == row.name), key=place)


def _peaks(row: GpuRow) -> Iterable[tuple[str, float | None]]:
    yield "fp32", row.fp32_tflops
    yield "tf32", row.tf32_tensor_tflops
    yield "bf16", row.bf16_tensor_tflops
    yield "fp16", row.fp16_vector_tflops if row.fp16_tensor_tflops is None else row.fp16_tensor_tflops
    yield "fp8", row.fp8_tensor_tflops


def _print_facts(row: GpuRow, ranges: list[PlausibleRow], *, is_verbose: bool) -> None:
    with printed() as page:
        page.line(f"{_about(row)}; confidence {row.confidence}", lead=f"{row.name}: ")
        lines = [(Span(f"{label:10}", "dim"), text) for label, text in _known(row).items() if text]
        page.table(table_of(("", ""), lines, breaks=(1,)))
        if ranges:
            page.line()
            cells = [
                (
                    f"{_MEASURES.get(one.measure, one.measure.replace('_', ' '))} {one.dtype}".strip(),
                    Span(_range(one), "title"),
                    "—" if one.confidence == "low" else _rate(one.warn_below, one.unit),
                    Span(str(len(one.source)), "dim"),
                    Span(one.confidence, "dim"),
                )
                for one in ranges
            ]
            headings = ("healthy ones reach", "", "low if below", "reports", "confidence")
            page.table(table_of(headings, cells, right=(1, 2, 3)))
        else:
            page.line("nobody published what healthy ones reach", "dim")
        if any(one.measure == "matmul" and 0 < one.peak < (one.measured_max or 0) for one in ranges):
            page.line("More than the peak: cards with power to spare clock higher than their data sheet.")
        page.line()
        keys = dict.fromkeys((*row.source, *(key for one in ranges for key in one.source)))
        if page.out.is_terminal and not is_verbose:
            page.hint(counted(len(keys), "source"), "--verbose")
            keys = {}
        for key in keys:
            source = source_rows()[key]
            parts = filter(None, (source.title, source.version_or_date, source.link))
            page.line(f"[{key}] {', '.join(parts)}")
        page.hint("next", f"gputui prices '{row.name}'")


def _about(row: GpuRow) -> str:
    """`NVIDIA, Hopper, compute capability 9.0, 132 SMs`."""
    capability, units = "{}", "{:g} compute units"
    if row.vendor == "NVIDIA":
        capability, units = "compute capability {}", "{:g} SMs"
    numbers = _listed((row.compute_capability, capability), (row.sm_count, units))
    return ", ".join(filter(None, (row.vendor, row.arch, numbers)))


def _known(row: GpuRow) -> dict[str, str]:
    """What its data sheet says, and what renting it costs; empty where that is not known."""
    peaks = [f"{name} {three_digits(value)}" for name, value in _peaks(row) if value is not None]
    link = "NVLink" if row.vendor == "NVIDIA" else "link between GPUs"
    memory = _listed(
        (row.memory_gib, "{:g} GiB as sold"),
        (row.nvml_memory_mib, "{:,.0f} MiB by the driver"),
        (row.memory_bandwidth_gbs, "{:g} GB/s"),
    )
    board = _listed(
        (row.tdp_w, "{:g} W"),
        (row.pcie_gen, "PCIe {:g}.0"),
        (row.nvlink_gbs, f"{link} {{:g}} GB/s"),
        (row.slowdown_temp_c, "slows down at {:g} °C"),
    )
    return {
        "peak": f"{', '.join(peaks)} TFLOP/s, dense" if peaks else "not known",
        "memory": memory or "not known",
        "board": board,
        "note": row.notes,
        "to rent": _rent(row.name),
    }


def _listed(*figures: tuple[float | str | None, str]) -> str:
    """Those that are known, each in its words."""
    return ", ".join(words.format(value) for value, words in figures if value)


def _rent(name: str) -> str:
    """The cheapest price of the last 90 days, else the newest with its age; empty if none is known."""
    today = datetime.date.today()
    best = best_offer(name, today)
    if best is None:
        return ""
    kind = "" if is_on_demand(best.price_kind) else f", {best.price_kind}"
    price = f"${per_gpu(best.usd_per_hour, best):.2f} a GPU hour at {best.provider}{kind}"
    day = date_words(best.price_date, today)
    if is_recent(best.price_date, today):
        return f"from {price} ({day})"
    return f"no price of the last {OLD_DAYS} days; the newest is {price} ({day})"


def _rate(per_s: float, unit: str) -> str:
    """In TFLOP/s or GB/s as the peaks are, whatever the size, so that figures compare at a glance."""
    scale, name = {"flop": (1e12, "TFLOP/s"), "B": (1e9, "GB/s")}.get(unit, (0.0, ""))
    return f"{three_digits(per_s / scale)} {name}" if scale else format_rate(per_s, unit)


def _range(one: PlausibleRow) -> str:
    """`784 to 821 TFLOP/s`."""
    low = _rate(one.measured_min, one.unit)
    if one.measured_max is None:
        return f"at least {low}"
    high = _rate(one.measured_max, one.unit)
    return low if low == high else f"{low.split()[0]} to {high}"


def _plain_offer(name: str) -> dict[str, object] | None:
    today = datetime.date.today()
    best = best_offer(name, today)
    if best is None:
        return None
    return {
        "usd_per_gpu_hour": per_gpu(best.usd_per_hour, best),
        "provider": best.provider,
        "instance_type": best.instance_type,
        "price_kind": best.price_kind,
        "is_on_demand": is_on_demand(best.price_kind),
        "price_date": best.price_date,
        "is_recent": is_recent(best.price_date, today),
    }


def _plain_facts(row: GpuRow, ranges: list[PlausibleRow]) -> dict[str, object]:
    return {
        "name": row.name,
        "vendor": row.vendor,
        "arch": row.arch,
        "compute_capability": row.compute_capability,
        "peak_flops_per_s": {name: value and value * 1e12 for name, value in _peaks(row)},
        "memory_gib": row.memory_gib,
        "driver_memory_mib": row.nvml_memory_mib,
        "memory_bandwidth_bytes_per_s": row.memory_bandwidth_gbs and row.memory_bandwidth_gbs * 1e9,
        "power_limit_w": row.tdp_w,
        "confidence": row.confidence,
        "notes": row.notes,
        "source": list(row.source),
        "offer": _plain_offer(row.name),
        "measured": [
            {
                "measure": one.measure,
                "dtype": one.dtype,
                "unit": f"{one.unit}/s",
                "min": one.measured_min,
                "max": one.measured_max,
                "low_below": one.warn_below,
                "impossible_above": one.suspicious_above,
                "conditions": one.conditions,
                "confidence": one.confidence,
                "source": list(one.source),
            }
            for one in ranges
        ],
    }


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
def prices(
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
        for line in import_prices(imported, provider, date):
            click.echo(line)
    elif forget:
        path = price_list_file()
        found = path.exists()
        path.unlink(missing_ok=True)
        click.echo(f"removed {path}" if found else "there is no imported list")
    elif as_json:
        print_json({"offers": [_plain_price(row, today) for row in _offers(name, today)]})
    else:
        _print_offers(_offers(name, today), name, every, today)


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


def _print_offers(offers: list[InstanceRow], name: str | None, every: bool, today: datetime.date) -> None:
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
            page.table(_offer_table(shown, today))
        if older:
            newest = f"No price of the last {OLD_DAYS} days; the newest" + (" first" if name else "")
            page.line("Older prices, the newest first:" if shown and name else f"{newest}:", "title")
            page.table(_offer_table(older, today))
        hidden = {"more": len(recent) - len(shown), "older": len(old) - len(older)}
        if any(hidden.values()):
            page.hint(" and ".join(f"{count} {word}" for word, count in hidden.items() if count), "--all")
        if name is None:
            page.hint("next", "gputui prices H100")


def _offer_table(shown: list[InstanceRow], today: datetime.date) -> Table:
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


def _plain_price(row: InstanceRow, today: datetime.date) -> dict[str, object]:
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
