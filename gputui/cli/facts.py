"""`gputui facts`: what is known of a GPU without measuring it, with sources."""

from __future__ import annotations

import datetime
import json
from collections.abc import Iterable
from typing import TYPE_CHECKING

import click

from gputui.errors import EXIT_DONE, GputuiError

if TYPE_CHECKING:
    from gputui.facts.tables import GpuRow, PlausibleRow

_MEASURES = {
    "lbm": "traffic of a fluid simulation",
    "h2d_pinned": "pinned copy to the GPU",
    "d2h_pinned": "pinned copy from the GPU",
    "all_reduce_busbw": "all-reduce, bus bandwidth",
    "p2p_pcie_one_way": "GPU to GPU over PCIe, one way",
}


@click.command()
@click.argument("gpu", nargs=-1, required=True, metavar="GPU")
@click.option("-v", "--verbose", is_flag=True, help="List the sources in full.")
@click.option("--json", "as_json", is_flag=True, help="Print as JSON.")
def command(gpu: tuple[str, ...], verbose: bool, as_json: bool) -> int:
    """Show peaks, memory, what healthy ones reach and where to rent them, each with its sources.

    GPU is a name as people or drivers have it: H100 SXM, "NVIDIA A100-SXM4-80GB".
    """
    text = " ".join(gpu)
    row = _named(text)
    for word in gpu if len(gpu) > 1 and not _is_of_a_driver(text) else ():
        _check_is_of(word, row)
    ranges = _ranges(row)
    if as_json:
        click.echo(json.dumps(_plain(row, ranges), indent=1))
    else:
        _print(row, ranges, is_verbose=verbose)
    return EXIT_DONE


def _named(text: str) -> GpuRow:
    from gputui.facts.gpus import closest_gpus, find_gpu, rows_named
    from gputui.model.absent import Missing

    rows = rows_named(text)
    exact = [row for row in rows if row.name.lower() == text.strip().lower()]
    driven = find_gpu(text, None)
    if exact:
        return exact[0]
    if not isinstance(driven, Missing) and _is_of_a_driver(text):
        return driven.row
    if len(rows) == 1:
        return rows[0]
    if rows:
        raise GputuiError(
            f"'{text}' is {len(rows)} GPUs", f"name one: {', '.join(row.name for row in rows[:8])}"
        )
    close = closest_gpus(text)
    raise GputuiError(
        f"unknown GPU '{text}'",
        f"did you mean {', '.join(close)}?" if close else "gputui fit --all lists every GPU",
    )


def _is_of_a_driver(text: str) -> bool:
    """Whether a text begins as the names do that drivers report."""
    return text.upper().startswith(("NVIDIA ", "TESLA ", "AMD ", "QUADRO "))


def _check_is_of(word: str, row: GpuRow) -> None:
    """Raises GputuiError if a word is the name of another GPU: one is shown at a time."""
    from gputui.facts.gpus import rows_named

    meant = rows_named(word)
    if meant and row not in meant:
        raise GputuiError(f"'{word}' is not {row.name}", "name one GPU at a time")


def _ranges(row: GpuRow) -> list[PlausibleRow]:
    from gputui.facts.tables import plausible_rows

    return [one for one in plausible_rows() if one.gpu == row.name]


def _peaks(row: GpuRow) -> Iterable[tuple[str, float | None]]:
    yield "fp32", row.fp32_tflops
    yield "tf32", row.tf32_tensor_tflops
    yield "bf16", row.bf16_tensor_tflops
    yield "fp16", row.fp16_vector_tflops if row.fp16_tensor_tflops is None else row.fp16_tensor_tflops
    yield "fp8", row.fp8_tensor_tflops


def _print(row: GpuRow, ranges: list[PlausibleRow], *, is_verbose: bool) -> None:
    from gputui.cli.output import console
    from gputui.facts.tables import source_rows
    from gputui.model.units import counted, format_rate, three_digits
    from gputui.services.prices.price_list import cheapest_first, date_words, per_gpu
    from gputui.services.support.text_tables import add_row, flowing, table

    out = console()
    about = [row.vendor, row.arch]
    about += [f"compute capability {row.compute_capability}"] if row.compute_capability else []
    about += [f"{row.sm_count:g} SMs"] if row.sm_count else []
    out.print(flowing(f"{row.name}: {', '.join(filter(None, about))}; confidence {row.confidence}"))
    peaks = [f"{name} {three_digits(value)}" for name, value in _peaks(row) if value is not None]
    out.print(flowing(f"peak       {', '.join(peaks)} TFLOP/s, dense" if peaks else "peak       not known"))
    memory = [f"{row.memory_gib:g} GiB as sold"] if row.memory_gib else []
    memory += [f"{row.nvml_memory_mib:,.0f} MiB by the driver"] if row.nvml_memory_mib else []
    memory += [f"{row.memory_bandwidth_gbs:g} GB/s"] if row.memory_bandwidth_gbs else []
    out.print(flowing(f"memory     {', '.join(memory) or 'not known'}"))
    box = [f"{row.tdp_w:g} W"] if row.tdp_w else []
    box += [f"PCIe {row.pcie_gen:g}.0"] if row.pcie_gen else []
    link = "NVLink" if row.vendor == "NVIDIA" else "link between GPUs"
    box += [f"{link} {row.nvlink_gbs:g} GB/s"] if row.nvlink_gbs else []
    box += [f"slows down at {row.slowdown_temp_c:g} °C"] if row.slowdown_temp_c else []
    if box:
        out.print(flowing(f"board      {', '.join(box)}"))
    if row.notes:
        out.print(flowing(f"note       {row.notes}"))
    if ranges:
        out.print()
        made = table(["healthy ones reach", "", "low if below", "reports", "confidence"], right=(1, 2, 3))
        for one in ranges:
            add_row(
                made,
                f"{_MEASURES.get(one.measure, one.measure.replace('_', ' '))} {one.dtype}".strip(),
                _range(one),
                "—" if one.confidence == "low" else format_rate(one.warn_below, one.unit),
                str(len(one.source)),
                one.confidence,
            )
        out.print(made)
        if _beats_its_peak(ranges):
            more = "More than the peak: cards with power to spare clock higher than their data sheet."
            out.print(flowing(more))
    else:
        out.print("nobody published what healthy ones reach")
    best = cheapest_first(row.name)
    if best is not None:
        day = date_words(best.price_date, datetime.date.today())
        cheapest = f"from ${per_gpu(best.usd_per_hour, best):.2f} a GPU hour at {best.provider}"
        out.print(flowing(f"to rent    {cheapest} ({day}); gputui prices '{row.name}' lists all"))
    out.print()
    known = source_rows()
    keys = dict.fromkeys((*row.source, *(key for one in ranges for key in one.source)))
    if out.is_terminal and not is_verbose:
        out.print(flowing(f"{counted(len(keys), 'source')}: {', '.join(keys)}; in full: --verbose"))
        return
    for key in keys:
        source = known[key]
        parts = filter(None, (source.title, source.version_or_date, source.link))
        out.print(flowing(f"[{key}] {', '.join(parts)}"))


def _range(one: PlausibleRow) -> str:
    """`784 to 821 TFLOP/s`; of different prefixes both with their unit."""
    from gputui.model.units import format_rate

    low = format_rate(one.measured_min, one.unit)
    if one.measured_max is None:
        return f"at least {low}"
    high = format_rate(one.measured_max, one.unit)
    if low == high:
        return low
    return f"{low.split()[0] if low.split()[1:] == high.split()[1:] else low} to {high}"


def _beats_its_peak(ranges: Iterable[PlausibleRow]) -> bool:
    return any(one.measure == "matmul" and 0 < one.peak < (one.measured_max or 0) for one in ranges)


def _plain(row: GpuRow, ranges: list[PlausibleRow]) -> dict[str, object]:
    return {
        "schema": 1,
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
