"""What is recorded of both sides beside their rows: what their boxes did meanwhile, on one axis of time, and
the loads that they offered to servers."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from gputui.metrics import charted
from gputui.model.absent import Missing
from gputui.model.plan import Case
from gputui.model.result import TimeSeries
from gputui.model.telemetry import HOST
from gputui.model.units import listed
from gputui.services.compare.pairing import Cell, Comparison, Row, Side
from gputui.services.results.conditions import Evidence
from gputui.services.results.metrics import is_limit
from gputui.services.serving.curve import ServingRun, serving_of
from gputui.services.serving.profiles import parameter_of
from gputui.store.reading import LaunchSeries

MOST_LAUNCHES = 6
"""Of a side: more would be too narrow to read."""
PIECES = 200
"""Of a launch."""
MOST_METRICS = 3
"""The first of a device: more would hide what matters."""


@dataclass(frozen=True, slots=True)
class SideCurves:
    """All that is known of one side."""

    seconds: float
    """Of all launches, from the first block to the last of each."""
    starts_s: tuple[float, ...]
    """Where launches begin."""
    device: int
    """HOST for a CPU."""
    curves: Mapping[str, TimeSeries]
    """By metric key, over the time in which its blocks were timed, launches end to end."""


def curves_of(row: Row, evidence: Evidence, *, pool: bool = False) -> tuple[SideCurves | Missing, ...]:
    """Of both sides of a row; Missing with the reason where nothing was sampled.

    Raises GputuiError if a file can no longer be read.
    """
    if pool:
        absent = Missing("launches of several runs were pooled")
        return absent, absent
    return tuple(_curves(cell, evidence) for cell in (row.a, row.b))


def _curves(cell: Cell, evidence: Evidence) -> SideCurves | Missing:
    if cell.result is None or cell.run is None or cell.result.outcome != "ok":
        return Missing("it was not measured")
    on_gpu = cell.result.case.variant.device_class == "gpu"
    device = cell.result.device_index if on_gpu and cell.result.device_index is not None else HOST
    timed = [m.launch_id for m in cell.result.measurements if m.outcome == "ok" and m.blocks]
    launches = evidence.launches(cell.run.run_id, cell.result.case_id, timed[:MOST_LAUNCHES], PIECES)
    starts, seconds = [], 0.0
    for launch in launches:
        starts.append(seconds)
        seconds += (launch.span.last_utc_us - launch.span.first_utc_us) * 1e-6
    wanted = charted(device)[:MOST_METRICS]
    made = {metric.key: _joined(launches, starts, device, metric.key) for metric in wanted}
    curves = {key: series for key, series in made.items() if series.known}
    if not curves:
        return Missing("nothing was sampled while it was timed")
    return SideCurves(seconds, tuple(starts), device, curves)


def _joined(launches: Sequence[LaunchSeries], starts: Sequence[float], device: int, key: str) -> TimeSeries:
    t_s: list[float] = []
    values: list[float] = []
    for launch, start_s in zip(launches, starts, strict=True):
        t_s.append(start_s)  # of a launch without a reading nothing is known, whatever came before
        values.append(math.nan)
        for series in launch.series:
            if series.device_index == device and key in series.columns:
                # the first reading stands for the time before it
                for number, (t_us, value) in enumerate(zip(series.t_us, series.columns[key], strict=True)):
                    t_s.append(start_s + (number > 0) * (t_us - launch.span.first_utc_us) * 1e-6)
                    values.append(value)
    return TimeSeries(t_s, values)


_TERMS = {
    "model": "model",
    "api": "API",
    "prompt_tokens": "tokens in",
    "shared_tokens": "tokens that all prompts begin with",
    "output_tokens": "tokens out",
    "prompts": "prompts",
    "body": "--body",
}
"""Parameters of loads, and what people call them."""


def serving_of_side(side: Side, evidence: Evidence) -> ServingRun | Missing:
    """All that its newest run offered to a server. Raises GputuiError if that can no longer be read."""
    if not _loads(side):
        return Missing("it offered no load to a server")
    return serving_of(evidence.run(side.run.run_id), evidence.loads(side.run.run_id))


def load_terms(comparison: Comparison) -> str:
    """Why loads do not pair, in a sentence or two; empty if they do, or if neither side has any."""
    a, b = _loads(comparison.a), _loads(comparison.b)
    if not a and not b:
        return ""
    if not a or not b:
        return (
            f"only {'a' if a else 'b'} offered loads to an LLM server (gputui serve-bench),"
            " and their rates say nothing of other work."
        )
    steady = [[case for case in side if not is_limit(case)] or side for side in (a, b)]
    if {case.work.key for case in steady[0]} & {case.work.key for case in steady[1]}:
        return ""
    of_sides = {words: (_values(a, name), _values(b, name)) for name, words in _TERMS.items()}
    apart = [
        f"{words} ({on_a} in a, {on_b} in b)" for words, (on_a, on_b) in of_sides.items() if on_a != on_b
    ]
    if apart:
        same = "offer both the same --profile, prompts and body, under one --name"
        return f"The loads differ in {listed(apart)}: {same}."
    return "No load was offered to both: name the same --concurrency or --rate, and the same --slo."


def _loads(side: Side) -> list[Case]:
    return [one.result.case for one in side.cases if one.result.case.is_load]


def _values(cases: Sequence[Case], name: str) -> str:
    values = {parameter_of(case, name) for case in cases} - {None}
    return listed([f"{value}" for value in sorted(values, key=str)]) if values else "of an older gputui"
