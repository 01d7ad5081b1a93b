"""Runs of loads on a made-up server, drawn at random: how often are two of them called different?"""

from __future__ import annotations

import functools
import math
import random
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path

from stored_loads import PROFILE, Server, store_loads

from gputui.model.result import CaseResult, Measurement, Run
from gputui.services.compare.pairing import Comparison, compare_sides, side_of_runs
from gputui.services.serving.profiles import parameter_of
from gputui.store.reading import open_result


@dataclass(frozen=True)
class Box:
    """How much loads vary on it; standard deviations of logarithms."""

    launch_sd: float = 0.04
    """Common to all times of a launch. That of each load is up to twice as large or small."""
    own_sd: float = 0.02
    """Of each time of a launch beside the others."""
    run_sd: float = 0.01
    has_tails: bool = False
    """Launches vary as Student's t with 3 degrees of freedom does."""
    lag_s: float = 0.0008
    """Of the client, p99."""


@functools.cache
def template(users: tuple[int, ...], launches: int) -> Run:
    """A stored run whose figures `drawn` replaces."""
    with tempfile.TemporaryDirectory() as place:
        db = Path(place) / "a.db"
        run_id = store_loads(db, users=users, launches=launches, requests=80)
        with open_result(db) as file:
            return file.run(run_id)


def drawn(of: Run, server: Server, box: Box, draw: random.Random, number: int) -> Run:
    """One run of these loads."""
    of_run = draw.gauss(0, box.run_sd)
    cases = tuple(_case(result, server, box, draw, of_run) for result in of.cases)
    summary = replace(
        of.summary,
        run_id=f"{number:032x}",
        started_utc_us=of.summary.started_utc_us + number * 3_600_000_000,
    )
    return Run(summary, cases)


def comparison_of(a: Run, b: Run) -> Comparison:
    return compare_sides(side_of_runs("a", [a]), side_of_runs("b", [b]))


def comparisons(
    server: Server, other: Server, box: Box, users: tuple[int, ...], launches: int, count: int, seed: int = 0
) -> Iterator[Comparison]:
    """So many comparisons of two new runs each, of two servers on boxes that vary alike."""
    draw, of = random.Random(seed), template(users, launches)
    for number in range(count):
        a, b = (drawn(of, one, box, draw, 2 * number + place) for place, one in enumerate((server, other)))
        yield comparison_of(a, b)


def _case(result: CaseResult, server: Server, box: Box, draw: random.Random, of_run: float) -> CaseResult:
    launch_sd = box.launch_sd * 2 ** draw.uniform(-1, 1)
    users = parameter_of(result.case, "users")
    n = users if isinstance(users, int) else 0
    return replace(
        result,
        measurements=tuple(
            _launch(m, n, server, box, draw, of_run + launch_sd * _deviate(draw, box.has_tails))
            for m in result.measurements
        ),
    )


def _deviate(draw: random.Random, has_tails: bool) -> float:
    normal = draw.gauss(0, 1)
    return normal / math.sqrt(draw.gammavariate(1.5, 2 / 3)) if has_tails else normal


def _launch(
    m: Measurement, users: int, server: Server, box: Box, draw: random.Random, factor: float
) -> Measurement:
    """Its rate and its times: all slower by one factor, and each by one of its own."""

    def slower() -> float:
        return math.exp(factor + draw.gauss(0, box.own_sd))

    wait_s = max(users / server.slots - 1, 0.0) * server.service_s
    ttft_s, tpot_s = (server.prefill_s + wait_s) * slower(), server.decode_s * slower()
    e2e_s = (server.service_s + wait_s) * slower()
    values = {"client_lag_p99_s": box.lag_s, "tpot": tpot_s, "e2e": e2e_s, "ttft": ttft_s}
    rate = (min(users, server.slots) * PROFILE.output_tokens if users else server.slots) / server.service_s
    (block,) = m.blocks
    block = replace(block, wall_ns=round(block.steps / rate * slower() * 1e9))
    figures = tuple(
        replace(one, value=values.get(one.key, values.get(one.key.partition("_p")[0], one.value)))
        for one in m.figures
    )
    return replace(m, blocks=(block,), figures=figures)
