"""What is known of a GPU model without measuring it: `gputui gpu`."""

from __future__ import annotations

import datetime
import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import click

from gputui.analysis.health import why_not_free
from gputui.analysis.peak_tests import NO_VERDICT, PeakTest
from gputui.cli.options import json_option, trust_option
from gputui.cli.output import print_json, printed
from gputui.document.page import Page
from gputui.document.spans import Span
from gputui.document.table import Cell, Table, table_of
from gputui.errors import EXIT_CASE_FAILED, GputuiError
from gputui.facts.tables import (
    GpuRow,
    InstanceRow,
    PlausibleRow,
    closest_gpus,
    distribution_rows,
    find_gpu,
    gpu_rows,
    plausible_rows,
    rows_named,
    source_rows,
)
from gputui.model.absent import Missing, fields_of, to_plain
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
from gputui.services.support.paths import default_result_file

if TYPE_CHECKING:
    from gputui.services.results.reference_making import Candidate

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
_ROWS = 9
"""Of figures on a terminal, so that everything about a GPU fits 24 lines."""
_OFFERS = 15
"""GPUs whose price is listed where none is here."""

Here = Mapping[tuple[str, str], PeakTest]
"""What was measured, by measure and type."""


@click.command()
@click.argument("words", nargs=-1, metavar="[NAME] [F[@RUN]]...")
@click.option(
    "--add", "adds", is_flag=True, help="Add the results F[@RUN]... to your reference of their model."
)
@click.option("--name", default="", help="Of the reference to add to.  [the model]")
@click.option("--note", default="", help="A sentence to keep in it, readable by anyone who gets it.")
@click.option(
    "--free", is_flag=True, help="Print which GPUs are free and healthy now, as 0,3; exit 1 if none."
)
@click.option(
    "--prices", "lists", is_flag=True, help="Use these price lists: of SkyPilot, gpuhunt, or your own."
)
@click.option("--provider", default="", metavar="NAME", help="Of a price list, if no column names it.")
@click.option(
    "--date", default="", metavar="DAY", help="Of the prices of a list without dates, such as 2026-11-22."
)
@click.option("-v", "--verbose", is_flag=True, help="Show every figure and offer, and sources in full.")
@trust_option
@json_option
def command(
    words: tuple[str, ...],
    adds: bool,
    name: str,
    note: str,
    free: bool,
    lists: bool,
    verbose: bool,
    trust: bool,
    as_json: bool,
    **of_lists: str,
) -> None:
    """Show what is known of a GPU: peaks, what others measured, prices, references.

    NAME is as people or drivers have it: H100 SXM, "NVIDIA A100-SXM4-80GB", or an instance type; without one,
    this box's GPUs. What you measured on such a GPU stands beside the figures, of F or of your own results.
    """
    if sum((adds, free, lists)) > 1:
        raise GputuiError("--add, --free and --prices are three answers", "ask for one")
    if any(of_lists.values()) and not lists:
        raise GputuiError("--provider and --date describe price lists", "add --prices FILE")
    if (name or note) and not adds:
        raise GputuiError("--name and --note describe a reference", "add --add F@RUN")
    if lists:
        click.echo("\n".join(import_prices([Path(word) for word in words], **of_lists)))
    elif adds:
        _add(words, name, note, trust=trust, as_json=as_json)
    elif free:
        _print_free(as_json=as_json)
    else:
        files = [word for word in words if "@" in word or word.endswith(".db") or Path(word).is_file()]
        _print_gpus([word for word in words if word not in files], files, trust, verbose, as_json)


def _add(texts: Sequence[str], name: str, note: str, *, trust: bool, as_json: bool) -> None:
    """Add these results to a reference, and print what became of each; it holds aggregates only."""
    from gputui.services.results.reference_making import MOST_NOTE, add_to_reference, problems_of_reference

    if not texts:
        raise GputuiError("no results are named", "gputui gpu --add a.db")
    if len(note) > MOST_NOTE:
        raise GputuiError(f"--note: {len(note)} letters", f"at most {MOST_NOTE}")
    if not all(letter.isalnum() or letter in "-_." for letter in name):
        raise GputuiError(f"--name {name}: not a name", "letters, digits, - and _")
    candidates = [one for text in texts for one in _candidates(text, trust)]
    added = add_to_reference(candidates, name=name, note=note)
    made, problems = added.reference, problems_of_reference(added.reference)
    if as_json:
        plain = {**to_plain(made), "boxes": made.boxes, "case_count": len(made.cases)}
        del plain["cases"]
        counts = {"added": added.boxes, "left_out": added.left_out, "problems": problems}
        print_json({**plain, "file": str(added.path), **counts})
        return
    cases, boxes = counted(len(made.cases), "case"), counted(added.boxes, "box")
    lines = [
        f"{made.name}: {made.model.counted(made.boxes)}, {cases} of {made.profile}; {boxes} added",
        *(f"left out: {line}" for line in added.left_out),
        f"written to {added.path}",
    ]
    unfit = [f"not fit to send: {problem}" for problem in problems]
    with printed() as page:
        page.part((*lines, *(unfit or ["it may be sent as it is: gputui help references.md says how"])))


def _candidates(text: str, trust: bool) -> list[Candidate]:
    """A run, or all of a file."""
    from gputui.services.results.reference_making import Candidate
    from gputui.services.results.selectors import judged_runs, split_selector
    from gputui.store.reading import open_result
    from gputui.store.selecting import find_run

    path, selector = split_selector(text)
    with open_result(path, trust) as file:
        summaries = file.summaries()
        runs = judged_runs(file, [find_run(summaries, selector)] if selector else summaries)
        return [
            Candidate(
                text if selector else f"{text}@{run.summary.short_id}",
                run,
                file.conditions(run.summary.run_id),
            )
            for run in runs
        ]


def _print_gpus(
    words: Sequence[str], files: Sequence[str], trust: bool, is_verbose: bool, as_json: bool
) -> None:
    runs = _measured_runs(files, trust)
    if words:
        rows = _meant(words)
    elif files:
        rows = _models(gpu for run in runs for gpu in run.summary.machine.gpus)
    else:
        from gputui.machine.gpus import describe_gpus

        rows = _models(describe_gpus().gpus)
    if not rows and (files or as_json):
        raise GputuiError(f"no known GPU in {', '.join(files) or 'this box'}", "name one: gputui gpu H100")
    # by the newest of these runs with such a GPU
    reached = {
        row.name: next(filter(None, (peak_tests_of(run, row.name) for run in runs)), {}) for row in rows
    }
    if files:
        rows = [row for row in rows if reached[row.name]] or rows
    if len(rows) > 1 and (words or as_json):
        _tell_apart(" ".join(words) or "this box", rows, as_json=as_json)
    elif as_json:
        print_json(_plain_gpu(rows[0], reached[rows[0].name]))
    elif not rows:
        _print_market()
    for row in rows if len(rows) == 1 or not words else ():
        if not as_json:
            with printed() as page:
                _write(page, row, reached[row.name], is_verbose=is_verbose)


def _models(gpus: Iterable[Gpu]) -> list[GpuRow]:
    """The models of these GPUs, each once."""
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
    sold = {row.gpu for row in find_instance(text)}
    rows = list(rows_named(text)) or [row for row in gpu_rows() if row.name in sold]
    if not rows:
        close = closest_gpus(text) or closest_instances(text)
        raise GputuiError(
            f"unknown GPU '{text}'",
            f"did you mean {', '.join(close)}?" if close else "gputui pick 7B --all lists every GPU",
        )
    is_of_a_driver = text.upper().startswith(("NVIDIA ", "TESLA ", "AMD ", "QUADRO "))
    if len(rows) == 1 and not is_of_a_driver:
        for others in map(rows_named, words):
            if others and rows[0] not in others:
                raise GputuiError(f"'{text}' is more than {rows[0].name}", "name one GPU at a time")
    parts = {row.name: set(row.name.split()) for row in rows}
    plain = [row for row in rows if all(parts[row.name] <= other for other in parts.values())]
    rank = {name: place for place, name in enumerate(most_rented())}
    return plain or sorted(rows, key=lambda row: rank.get(row.name, len(rank)))


def _tell_apart(text: str, rows: Sequence[GpuRow], *, as_json: bool) -> None:
    """What distinguishes GPUs of one name. Raises GputuiError for a program."""
    if as_json:
        named = ", ".join(row.name for row in rows)
        raise GputuiError(f"'{text}' matches {len(rows)} GPUs", f"name one: {named}")
    today = datetime.date.today()
    offers = {row.name: best_offer(row.name, today) for row in rows}
    cells = [
        (
            row.name,
            _listed((row.memory_gib, "{:g} GiB")) or "—",
            _listed((row.memory_bandwidth_gbs, "{:g} GB/s")) or "—",
            f"{three_digits(row.bf16_tensor_tflops)} TFLOP/s" if row.bf16_tensor_tflops else "—",
            _listed((row.tdp_w, "{:g} W")) or "—",
            "—" if offer is None else _usd_per_gpu(offer.usd_per_hour, offer),
        )
        for row in rows
        for offer in (offers[row.name],)
    ]
    headings = ("GPU", "memory", "bandwidth", "bf16, dense", "board", "$/GPU h")
    with printed() as page:
        page.line(f"'{text}' matches {len(rows)} GPUs:", "title")
        page.table(table_of(headings, cells, right=range(1, 6)))
        page.hint("next", f"gputui gpu '{rows[0].name}'")


def _print_market() -> None:
    """What the most offered GPUs cost, and which references there are."""
    today = datetime.date.today()
    found = [best_offer(gpu, today) for gpu in most_rented()[:_OFFERS]]
    made = ", ".join(one.name for one in known_references())
    with printed() as page:
        page.line("No known GPU is here. The most offered GPUs, at their cheapest on-demand price:", "title")
        page.table(_offer_table([row for row in found if row is not None], today))
        if made:
            page.line(f"references: {made}")
        page.hint("next", "gputui gpu H100")


def _ranges(row: GpuRow) -> list[PlausibleRow]:
    measures = list(_MEASURES)

    def place(one: PlausibleRow) -> tuple[int, int]:
        measure = measures.index(one.measure) if one.measure in measures else len(measures)
        return measure, _DTYPES.index(one.dtype)

    return sorted((one for one in plausible_rows() if one.gpu == row.name), key=place)


def _write(page: Page, row: GpuRow, here: Here, *, is_verbose: bool) -> None:
    """Its data sheet, what renting it costs, and what was measured of it elsewhere and here."""
    capability = "compute capability {}" if row.vendor == "NVIDIA" else ""
    about = filter(None, (row.vendor, row.arch, _listed((row.compute_capability, capability))))
    page.line(f"{', '.join(about)}; confidence {row.confidence}", lead=f"{row.name}: ")
    is_short = page.out.is_terminal and not is_verbose
    lines = (*_sheet(row), ("note", "" if is_short else row.notes), *_market(row))
    page.table(
        table_of(("", ""), [(Span(f"{label:10}", "dim"), text) for label, text in lines if text], breaks=(1,))
    )
    ranges = _ranges(row)
    rows = [_judged(one, here) for one in ranges]
    shown = rows[:_ROWS] if is_short else rows
    if shown:
        page.line()
        headings = ("measured elsewhere", "", "reports", "low if below", *(("here", "") if here else ()))
        page.table(
            table_of(headings, [one[: len(headings)] for one in shown], (1, 2, 3, 4), priorities={3: 3})
        )
    else:
        page.line("nobody published what others reach", "dim")
    if any(one.measure == "matmul" and 0 < one.peak < (one.measured_max or 0) for one in ranges):
        page.line("More than the peak: cards with power to spare clock higher than their data sheet.")
    keys = list(dict.fromkeys((*row.source, *(key for one in ranges for key in one.source))))
    if is_short:
        page.hint(f"all {len(rows)} figures, {counted(len(keys), 'source')}, every offer", "--verbose")
    else:
        today = datetime.date.today()
        page.line()
        page.table(_offer_table(offers_of([row.name], today), today))
        page.line()
        for source in (source_rows()[key] for key in keys):
            words = filter(None, (source.title, source.version_or_date, source.link))
            page.line(f"[{source.key}] {', '.join(words)}")
    if not here:
        page.hint("next", "gputui run quick")


def _judged(one: PlausibleRow, here: Here) -> tuple[Cell, ...]:
    """What such a GPU reaches, below what it is low, and what was measured here."""
    expectation = expectation_of(one)
    low, high = expectation.measured_low, expectation.measured_high
    test = here.get(("copy" if one.measure == "lbm" else one.measure, one.dtype))
    measured: str = ""
    verdict: Cell = ""
    if test is not None:
        measured, share = _rate(test.units_per_s, one.unit).split()[0], format_percent(test.units_per_s / low)
        verdict = share if test.word == NO_VERDICT else CHECK_WORDS.get(test.word, share)
    rates = expectation.rates
    return (
        f"{_MEASURES.get(one.measure, one.measure.replace('_', ' '))} {one.dtype}".strip(),
        Span(_ends(low, high, one.unit), "title"),
        str(expectation.figures) if rates is None else counted(rates.boxes, "box"),
        "—" if expectation.is_unsure else _rate(expectation.warn_below, one.unit),
        measured,
        verdict,
    )


def _sheet(row: GpuRow) -> Iterator[tuple[str, str]]:
    """What its data sheet says; empty where that is not known."""
    peaks = [f"{name} {three_digits(value)}" for name, value in row.peaks_tflops.items() if value is not None]
    link = "NVLink" if row.vendor == "NVIDIA" else "link between GPUs"
    memory = _listed(
        (row.memory_gib, "{:g} GiB as sold"),
        (row.nvml_memory_mib, "{:,.0f} MiB by the driver"),
        (row.memory_bandwidth_gbs, "{:g} GB/s"),
    )
    board = _listed(
        (row.tdp_w, "{:g} W"),
        (row.sm_count, "{:g} SMs" if row.vendor == "NVIDIA" else "{:g} compute units"),
        (row.pcie_gen, "PCIe {:g}.0"),
        (row.nvlink_gbs, f"{link} {{:g}} GB/s"),
        (row.slowdown_temp_c, "slows down at {:g} °C"),
    )
    yield "peak", f"{', '.join(peaks)} TFLOP/s, dense" if peaks else "not known"
    yield "memory", memory or "not known"
    yield "board", board


def _listed(*figures: tuple[float | str | None, str]) -> str:
    """Those that are known, each in its words."""
    return ", ".join(words.format(value) for value, words in figures if value and words)


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
    spot.sort(key=lambda one: per_gpu(one.spot_usd_per_hour, one))
    older = "" if recent or not on_demand else f"no price of the last {OLD_DAYS} days; the newest: "
    yield "on demand", older + _cheapest(recent or on_demand, today) or "no price known"
    yield "other", _cheapest(others, today)
    yield "spot", _cheapest(spot, today, is_spot=True)
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
    more = f"; {len(offers) - 1} more" if len(offers) > 1 else ""
    where = f"{kind}{best.provider}, {region}, {date_words(day, today)}"
    return f"{_usd_per_gpu(usd, best)} a GPU hour ({where}){more}"


def _offer_table(offers: Sequence[InstanceRow], today: datetime.date) -> Table:
    headings = ("GPU", "$/GPU h", "spot", "$/box h", "kind", "provider and type", "price of")
    rows: list[tuple[Cell, ...]] = []
    for row in offers:
        price = row.usd_per_hour
        boxes = f"{row.gpu_count:g}x "
        sold = f"{row.provider} {row.instance_type}"
        rows.append(
            (
                row.gpu,
                Span(_usd_per_gpu(price, row), "title"),
                _usd_per_gpu(row.spot_usd_per_hour, row),
                "—" if price is None else f"${price:.2f}",
                row.price_kind.replace(",", " ").partition(" ")[0] or "—",
                sold if row.gpu_count == 1 or boxes in sold else f"{boxes}{sold}",
                Span(date_words(date_of(row), today), "dim"),
            )
        )
    return table_of(headings, rows, right=(1, 2, 3), breaks=(0, 5), priorities={2: 1, 3: 2})


def _usd_per_gpu(usd_per_hour: float | None, row: InstanceRow) -> str:
    return "—" if usd_per_hour is None else f"${per_gpu(usd_per_hour, row):.2f}"


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


def _plain_gpu(row: GpuRow, here: Here) -> dict[str, object]:
    today = datetime.date.today()
    best = best_offer(row.name, today)
    sold = {} if best is None else _plain_price(best, today)
    of_best = ("provider", "instance_type", "price_kind", "is_on_demand", "price_date", "is_recent")
    return {
        **fields_of(row, "name", "vendor", "arch", "compute_capability"),
        "peak_flops_per_s": {name: value and value * 1e12 for name, value in row.peaks_tflops.items()},
        "memory_gib": row.memory_gib,
        "driver_memory_mib": row.nvml_memory_mib,
        "memory_bandwidth_bytes_per_s": row.memory_bandwidth_gbs and row.memory_bandwidth_gbs * 1e9,
        "power_limit_w": row.tdp_w,
        **fields_of(row, "confidence", "notes", "source"),
        "offer": None
        if best is None
        else {
            "usd_per_gpu_hour": per_gpu(best.usd_per_hour, best),
            **{name: sold[name] for name in of_best},
        },
        "measured": [
            {
                **fields_of(one, "measure", "dtype"),
                "unit": f"{one.unit}/s",
                "min": one.measured_min,
                "max": one.measured_max,
                "low_below": expectation_of(one).warn_below,
                "impossible_above": one.suspicious_above,
                **fields_of(one, "conditions", "confidence", "source"),
            }
            for one in _ranges(row)
        ],
        "distributions": [
            {**one._asdict(), "unit": f"{one.unit}/s"} for one in distribution_rows() if one.gpu == row.name
        ],
        "here": [
            {"measure": measure, "dtype": dtype, **fields_of(test, "units_per_s", "word")}
            for (measure, dtype), test in here.items()
        ],
        "offers": [_plain_price(one, today) for one in offers_of([row.name], today)],
        "references": [fields_of(one, "name", "boxes", "months") for one in _references(row)],
    }


def _plain_price(row: InstanceRow, today: datetime.date) -> dict[str, object]:
    return {
        **fields_of(row, "provider", "instance_type", "gpu", "gpu_count", "usd_per_hour", "price_kind"),
        "is_on_demand": row.usd_per_hour is not None and is_on_demand(row.price_kind),
        **fields_of(row, "region", "price_date"),
        "is_recent": is_recent(date_of(row), today),
        **fields_of(row, "spot_usd_per_hour", "spot_date"),
        "source": list(dict.fromkeys((*row.source, *row.spot_source))),
        **fields_of(row, "confidence", "notes"),
    }
