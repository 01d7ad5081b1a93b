"""What is known of a GPU model without measuring it: `gputui gpu`, and its parts `facts` and `prices`."""

from __future__ import annotations

import datetime
import itertools
import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path

import click

from gputui.analysis.health import why_not_free
from gputui.analysis.peak_tests import NO_VERDICT, PeakTest
from gputui.cli.options import FILE, json_option, trust_option
from gputui.cli.output import print_json, printed
from gputui.document.page import Page
from gputui.document.spans import Line, Span
from gputui.document.table import Cell, Table, table_of
from gputui.errors import EXIT_CASE_FAILED, GputuiError
from gputui.facts.tables import (
    DistributionRow,
    GpuRow,
    InstanceRow,
    PlausibleRow,
    closest_gpus,
    distribution_rows,
    find_gpu,
    plausible_rows,
    rows_named,
    source_rows,
)
from gputui.model.absent import Missing, known
from gputui.model.machine import Gpu
from gputui.model.result import Run
from gputui.model.units import counted, format_percent, format_rate, three_digits
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
from gputui.services.results.expected import CHECK_WORDS, expectation_of, peak_tests_of
from gputui.services.results.references import Reference, known_references
from gputui.services.support.paths import default_result_file, price_list_file

COMMON = ("--add", "--free", "--prices", "--verbose", "--json")
_MEASURES = {
    "matmul": "matmul",
    "copy": "copy",
    "lbm": "fluid simulation traffic",
    "h2d_pinned": "pinned copy to the GPU",
    "d2h_pinned": "pinned copy from the GPU",
    "h2d_pageable": "pageable copy to the GPU",
    "all_reduce_busbw": "all-reduce, bus bandwidth",
    "p2p_nvlink_one_way": "NVLink, one way",
    "p2p_pcie_one_way": "PCIe between GPUs, one way",
}
"""In the order in which they are shown."""
_DTYPES = ("bf16", "fp16", "fp8", "tf32", "fp32", "")
_MOST_NAMED = 8
_ROWS = 9
"""Of figures on a terminal, so that everything about a GPU fits 24 lines."""
_STRIP = 10

provider_option = click.option(
    "--provider", default="", metavar="NAME", help="Of a price list, if no column names it."
)
date_option = click.option(
    "--date", default="", metavar="DAY", help="Of the prices of a list without dates, such as 2026-11-22."
)
verbose_option = click.option(
    "-v", "--verbose", is_flag=True, help="Show every figure, and its sources in full."
)

Here = Mapping[tuple[str, str], PeakTest]
"""What was measured, by measure and type."""


@click.command()
@click.argument("words", nargs=-1, metavar="[NAME] [F[@RUN]]...")
@click.option(
    "--add", "adds", is_flag=True, help="Add the results F[@RUN]... to your reference of their model."
)
@click.option(
    "--free", is_flag=True, help="Print which GPUs are free and healthy now, as 0,3; exit 1 if none."
)
@click.option(
    "--prices", "lists", is_flag=True, help="Use these price lists: of SkyPilot, gpuhunt, or your own."
)
@provider_option
@date_option
@verbose_option
@trust_option
@json_option
def command(
    words: tuple[str, ...],
    adds: bool,
    free: bool,
    lists: bool,
    provider: str,
    date: str,
    verbose: bool,
    trust: bool,
    as_json: bool,
) -> None:
    """Show what is known of a GPU: peaks, what others measured, prices, references.

    NAME is as people or drivers have it: H100 SXM, "NVIDIA A100-SXM4-80GB"; without one, this box's GPUs.
    What you measured on such a GPU stands beside the figures, of F or of your own results.
    """
    from gputui.cli.reference import add_results

    if sum((adds, free, lists)) > 1:
        raise GputuiError("--add, --free and --prices are three answers", "ask for one")
    if (provider or date) and not lists:
        raise GputuiError("--provider and --date describe price lists", "add --prices FILE")
    named = next((word for word in words if not Path(word).suffix and "@" not in word), "")
    if (lists or adds) and named and not Path(named).exists():
        option = "--prices" if lists else "--add"
        raise GputuiError(f"{named}: {option} takes files", f"leave {named} out: they say which GPU is meant")
    if lists:
        _take([Path(word) for word in words], provider, date)
    elif adds:
        add_results(words, name="", note="", trust=trust, as_json=as_json)
    elif free:
        _print_free(as_json=as_json)
    else:
        files = [word for word in words if "@" in word or Path(word).suffix]
        _print_gpus([word for word in words if word not in files], files, trust, verbose, as_json)


def _print_gpus(
    words: Sequence[str], files: Sequence[str], trust: bool, is_verbose: bool, as_json: bool
) -> None:
    runs = _measured_runs(files, trust)
    rows = _meant(words) if words else _models(gpu for run in runs for gpu in run.summary.machine.gpus)
    if not words and not files:
        rows = _gpus_here()
    elif not rows:
        raise GputuiError(f"no known GPU in {', '.join(files)}", "name one: gputui gpu H100")
    pages = [(row, _reached(row, runs)) for row in rows]
    if len(pages) > 1 and files:
        pages = [(row, here) for row, here in pages if here] or pages
    if len(pages) > 1 and (words or as_json):
        _refuse_several(" ".join(words) or "this box", rows, as_json=as_json)
    elif as_json:
        if not pages:
            raise GputuiError("no known GPU is here", "name one: gputui gpu H100")
        print_json(_plain_gpu(*pages[0]))
    elif not pages:
        click.echo("No known GPU is here.")
        today = datetime.date.today()
        _print_offers(_offers(None, today), None, False, today)
    else:
        for row, here in pages:
            with printed() as page:
                _write(page, row, here, is_verbose=is_verbose)
                page.hint("next", f"gputui prices '{row.name}'" if here else "gputui run quick")


def _gpus_here() -> list[GpuRow]:
    """The models of this box, each once."""
    from gputui.machine.gpus import describe_gpus

    return _models(describe_gpus().gpus)


def _models(gpus: Iterable[Gpu]) -> list[GpuRow]:
    sizes = {gpu.name: gpu.memory_bytes for gpu in gpus}
    found = [
        find_gpu(name, None if isinstance(size, Missing) else size / 2**30) for name, size in sizes.items()
    ]
    return list({one.name: one.row for one in found if not isinstance(one, Missing)}.values())


def _measured_runs(files: Sequence[str], trust: bool) -> list[Run]:
    """Of these results or, without any, the newest of the user's own; the newest first."""
    from gputui.services.results.selectors import select_all
    from gputui.store.reading import open_result

    texts, mine = list(files), default_result_file()
    if not texts and mine.exists():
        with open_result(mine, trust) as file:
            texts = [f"{mine}@latest"] if file.summaries() else []
    runs = [run for selection in select_all(texts, trust=trust) for run in selection.runs]
    return sorted(runs, key=lambda run: -run.summary.started_utc_us)


def _reached(row: GpuRow, runs: Sequence[Run]) -> Here:
    """By the newest of these runs with such a GPU."""
    return next(filter(None, (peak_tests_of(run, row.name) for run in runs)), {})


def _print_free(*, as_json: bool) -> None:
    from gputui.services.snapshot import take_snapshot

    sample = take_snapshot(processes=True)
    parents = {gpu.parent for gpu in sample.gpus}
    why = {
        gpu.device: "divided by MIG"
        if gpu.device in parents
        else why_not_free(sample.t_ns, gpu, sample.processes)
        for gpu in sample.gpus
        if gpu.parent is None
    }
    free = [device for device, reason in why.items() if not reason]
    others = {device: reason for device, reason in why.items() if reason}
    if as_json:
        print_json({"free": free, "others": [{"gpu": gpu, "why": reason} for gpu, reason in others.items()]})
    elif free:
        click.echo(",".join(map(str, free)))
    if not free:
        reasons = "; ".join(f"GPU {gpu}: {reason}" for gpu, reason in others.items())
        raise GputuiError("no GPU is free here", reasons or "none was found", EXIT_CASE_FAILED)


def _meant(words: Sequence[str]) -> list[GpuRow]:
    """The GPUs that are meant: of an RTX 4090 and an RTX 4090 D the former. Raises GputuiError if none is."""
    text = " ".join(words)
    rows = list(rows_named(text))
    driven = find_gpu(text, None)
    if len(rows) > 1 and not isinstance(driven, Missing) and _is_of_a_driver(text):
        return [driven.row]
    if len(rows) == 1 and len(words) > 1 and not _is_of_a_driver(text):
        for word in words:
            if (others := rows_named(word)) and rows[0] not in others:
                raise GputuiError(f"'{word}' is not {rows[0].name}", "name one GPU at a time")
    if rows:
        parts = {row.name: set(row.name.split()) for row in rows}
        plain = [row for row in rows if all(parts[row.name] <= other for other in parts.values())]
        rank = {name: place for place, name in enumerate(most_rented())}
        return plain or sorted(rows, key=lambda row: rank.get(row.name, len(rank)))
    close = closest_gpus(text)
    raise GputuiError(
        f"unknown GPU '{text}'",
        f"did you mean {', '.join(close)}?" if close else "gputui pick 7B --all lists every GPU",
    )


def _refuse_several(text: str, rows: Sequence[GpuRow], *, as_json: bool) -> None:
    """What distinguishes GPUs of one name. Raises GputuiError for a program."""
    if as_json:
        named = ", ".join(row.name for row in rows[:_MOST_NAMED])
        raise GputuiError(f"'{text}' matches {len(rows)} GPUs", f"name one: {named}")
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
        page.hint("next", f"gputui gpu '{rows[0].name}'")


def _is_of_a_driver(text: str) -> bool:
    """Whether a text begins as the names do that drivers report."""
    return text.upper().startswith(("NVIDIA ", "TESLA ", "AMD ", "QUADRO "))


def _ranges(row: GpuRow) -> list[PlausibleRow]:
    def place(one: PlausibleRow) -> tuple[int, int]:
        known = list(_MEASURES)
        measure = known.index(one.measure) if one.measure in known else len(known)
        return measure, _DTYPES.index(one.dtype) if one.dtype in _DTYPES else len(_DTYPES)

    return sorted((one for one in plausible_rows() if one.gpu == row.name), key=place)


def _distributions(row: GpuRow) -> list[DistributionRow]:
    return [one for one in distribution_rows() if one.gpu == row.name]


def _peaks(row: GpuRow) -> Iterable[tuple[str, float | None]]:
    yield "fp32", row.fp32_tflops
    yield "tf32", row.tf32_tensor_tflops
    yield "bf16", row.bf16_tensor_tflops
    yield "fp16", row.fp16_vector_tflops if row.fp16_tensor_tflops is None else row.fp16_tensor_tflops
    yield "fp8", row.fp8_tensor_tflops


def _write(page: Page, row: GpuRow, here: Here, *, is_verbose: bool) -> None:
    """Its data sheet, what renting it costs, and what was measured of it elsewhere and here."""
    page.line(f"{_about(row)}; confidence {row.confidence}", lead=f"{row.name}: ")
    is_short = page.out.is_terminal and not is_verbose
    about = (*_sheet(row), ("note", "" if is_short else row.notes), *_market(row))
    page.table(
        table_of(("", ""), [(Span(f"{label:10}", "dim"), text) for label, text in about if text], breaks=(1,))
    )
    ranges = _ranges(row)
    links = [one for one in ranges if one.unit == "B" and one.measure not in ("copy", "lbm")]
    work = [one for one in ranges if one not in links]
    rows = [*_judging(work, here), *_spreads(row), *_judging(links, here)]
    shown = rows[:_ROWS] if is_short else rows
    if shown:
        page.line()
        headings = ("measured elsewhere", "", "reports", "low if below", *(("here", "", "") if here else ()))
        page.table(
            table_of(headings, [one[: len(headings)] for one in shown], (1, 2, 3, 4), priorities={3: 3})
        )
    else:
        page.line("nobody published what others reach", "dim")
    if any(one.measure == "matmul" and 0 < one.peak < (one.measured_max or 0) for one in work):
        page.line("More than the peak: cards with power to spare clock higher than their data sheet.")
    sourced = (*(one.source for one in ranges), *(one.source for one in _distributions(row)))
    keys = list(dict.fromkeys((*row.source, *itertools.chain.from_iterable(sourced))))
    if is_short:
        left = f"{counted(len(rows) - len(shown), 'more figure')}, " if len(rows) > len(shown) else ""
        page.hint(f"{left}{counted(len(keys), 'source')}", "--verbose")
        return
    page.line()
    for key in keys:
        source = source_rows()[key]
        page.line(f"[{key}] {', '.join(filter(None, (source.title, source.version_or_date, source.link)))}")


def _judging(ranges: Sequence[PlausibleRow], here: Here) -> Iterator[tuple[Cell, ...]]:
    """What such a GPU reaches, by whom it is judged, and where this one stands."""
    for one in ranges:
        expectation = expectation_of(one)
        low, high = expectation.measured_low, expectation.measured_high
        rates = expectation.rates
        test = here.get(("copy" if one.measure == "lbm" else one.measure, one.dtype))
        stands: tuple[Cell, ...] = ("", "", "")
        if test is not None:
            share = format_percent(test.units_per_s / low)
            strip = _strip(test.units_per_s, low, high)
            verdict = share if test.word == NO_VERDICT else CHECK_WORDS.get(test.word, share)
            stands = (_rate(test.units_per_s, one.unit).split()[0], [strip], verdict)
        yield (
            f"{_MEASURES.get(one.measure, one.measure.replace('_', ' '))} {one.dtype}".strip(),
            Span(_ends(low, high, one.unit), "title"),
            str(expectation.figures) if rates is None else counted(rates.boxes, "box"),
            "—" if expectation.is_unsure else _rate(expectation.warn_below, one.unit),
            *stands,
        )


def _spreads(row: GpuRow) -> Iterator[tuple[Cell, ...]]:
    """What was published of how such GPUs differ, in work that judges nothing here."""
    shown = {(one.measure, one.dtype) for one in _ranges(row)}
    for one in _distributions(row):
        if one.rates and (one.measure, one.dtype) in shown:
            continue
        text, units = f"{one.spread_pct or 0:g} % apart", f"{one.boxes} GPUs"
        if one.rates:
            text, units = _ends(min(one.rates), max(one.rates), one.unit), counted(one.boxes or 0, "box")
        name = f"{one.measure} {one.dtype}".strip()
        yield name, Span(text, "title"), "—" if one.boxes is None else units, "—", "", "", ""


def _strip(value: float, low: float, high: float | None) -> Line:
    """`────●━━━───`: a rate as a point, and the range of others, from half of the lowest rate on."""
    begin, end = min(value, low) / 2, max(value, high or low) * 1.05

    def place(rate: float) -> int:
        return min(int((rate - begin) / (end - begin) * _STRIP), _STRIP - 1)

    last = _STRIP - 1 if high is None else place(high)
    cells = ["━" if place(low) <= cell <= last else "─" for cell in range(_STRIP)]
    point = place(value)
    return (Span("".join(cells[:point]), "dim"), Span("●", "title"), Span("".join(cells[point + 1 :]), "dim"))


def _about(row: GpuRow) -> str:
    """`NVIDIA, Hopper, compute capability 9.0, 132 SMs`."""
    capability, units = "{}", "{:g} compute units"
    if row.vendor == "NVIDIA":
        capability, units = "compute capability {}", "{:g} SMs"
    numbers = _listed((row.compute_capability, capability), (row.sm_count, units))
    return ", ".join(filter(None, (row.vendor, row.arch, numbers)))


def _sheet(row: GpuRow) -> Iterator[tuple[str, str]]:
    """What its data sheet says; empty where that is not known."""
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
    yield "peak", f"{', '.join(peaks)} TFLOP/s, dense" if peaks else "not known"
    yield "memory", memory or "not known"
    yield "board", board


def _listed(*figures: tuple[float | str | None, str]) -> str:
    """Those that are known, each in its words."""
    return ", ".join(words.format(value) for value, words in figures if value)


def _references(row: GpuRow) -> list[Reference]:
    return [
        one for one in known_references() if (one.model.device_class, one.model.name) == ("gpu", row.name)
    ]


def _market(row: GpuRow) -> Iterator[tuple[str, str]]:
    """The cheapest recent prices of each kind, else the newest with its age; and its references."""
    today = datetime.date.today()
    offers = offers_of([row.name], today)
    priced = [one for one in offers if 0 < per_gpu(one.usd_per_hour, one) < math.inf]
    on_demand = [one for one in priced if is_on_demand(one.price_kind)]
    recent = [one for one in on_demand if is_recent(one.price_date, today)]
    others = [one for one in priced if one not in on_demand and is_recent(one.price_date, today)]
    spot = [one for one in offers if is_recent(one.spot_date, today)]
    older = "" if recent or not on_demand else f"no price of the last {OLD_DAYS} days; the newest: "
    yield "on demand", older + _cheapest(recent or on_demand, today) or "no price known"
    yield "other", _cheapest(others, today)
    yield (
        "spot",
        _cheapest(sorted(spot, key=lambda one: per_gpu(one.spot_usd_per_hour, one)), today, is_spot=True),
    )
    made = [f"{one.name}, {counted(one.boxes, 'box')} of {one.months}" for one in _references(row)]
    yield "reference", "; ".join(made) or "none yet: gputui gpu --add F@RUN"


def _cheapest(offers: Sequence[InstanceRow], today: datetime.date, *, is_spot: bool = False) -> str:
    """`$3.09 a GPU hour (paperspace, any region, 2026-09-20); 20 more`, of offers in order."""
    if not offers:
        return ""
    best = offers[0]
    usd, day = (best.spot_usd_per_hour, best.spot_date) if is_spot else (best.usd_per_hour, best.price_date)
    kind = "" if is_spot or is_on_demand(best.price_kind) else f"{best.price_kind}, "
    region = "any region" if best.region == "any" else best.region
    where = f"{kind}{best.provider}, {region}, {date_words(day, today)}"
    more = f"; {len(offers) - 1} more" if len(offers) > 1 else ""
    return f"${per_gpu(usd, best):.2f} a GPU hour ({where}){more}"


def _rate(per_s: float, unit: str) -> str:
    """In TFLOP/s or GB/s as the peaks are, whatever the size, so that figures compare at a glance."""
    scale, name = {"flop": (1e12, "TFLOP/s"), "B": (1e9, "GB/s")}.get(unit, (0.0, ""))
    return f"{three_digits(per_s / scale)} {name}" if scale else format_rate(per_s, unit)


def _ends(low_per_s: float, high_per_s: float | None, unit: str) -> str:
    """`784 to 821 TFLOP/s`."""
    low = _rate(low_per_s, unit)
    if high_per_s is None:
        return f"at least {low}"
    high = _rate(high_per_s, unit)
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


def _plain_gpu(row: GpuRow, here: Here) -> dict[str, object]:
    today = datetime.date.today()
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
                "low_below": expectation_of(one).warn_below,
                "impossible_above": one.suspicious_above,
                "conditions": one.conditions,
                "confidence": one.confidence,
                "source": list(one.source),
            }
            for one in _ranges(row)
        ],
        "distributions": [{**one._asdict(), "unit": f"{one.unit}/s"} for one in _distributions(row)],
        "here": [
            {"measure": measure, "dtype": dtype, "units_per_s": test.units_per_s, "word": test.word}
            for (measure, dtype), test in here.items()
        ],
        "offers": [_plain_price(one, today) for one in offers_of([row.name], today)],
        "references": [
            {"name": one.name, "boxes": one.boxes, "months": one.months} for one in _references(row)
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
@provider_option
@date_option
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
        _take([imported], provider, date)
    elif forget:
        path = price_list_file()
        found = path.exists()
        path.unlink(missing_ok=True)
        click.echo(f"removed {path}" if found else "there is no imported list")
    elif as_json:
        print_json({"offers": [_plain_price(row, today) for row in _offers(name, today)]})
    else:
        _print_offers(_offers(name, today), name, every, today)


def _take(lists: Sequence[Path], provider: str, date: str) -> None:
    for line in import_prices(lists, provider, date):
        click.echo(line)


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
            page.hint("next", "gputui gpu H100")


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
