"""Launches of loads in pairs: how often is a server called different from itself, and a slower one slower?

    python tests/benchmarks/serving_pairs.py [PAIRS]            simulated, 200 pairs
    python tests/benchmarks/serving_pairs.py --real [PAIRS]     a server in a process on this box, 15 pairs

Three launches a side. The other server is the same one, has TTFT +20 %, or TPOT +10 %; with `--real` both at
once, and runs follow each other. Simulated launches draw requests anew, with waits that arrivals give both
sides alike, and differ by a factor: of a quiet box, of one that varies, or of a busy one.
"""

from __future__ import annotations

import math
import os
import random
import subprocess
import sys
import tempfile
from collections import Counter
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1] / "makers"))

from model_server import Behaviour, serving_process
from simulated_loads import comparison_of, template

from gputui.model.result import Measurement, Run
from gputui.services.compare.pairing import Comparison
from gputui.services.results.metrics import time_of
from gputui.store.reading import open_result

_BOXES = {"quiet": 0.005, "varies": 0.015, "busy": 0.04}
"""The standard deviation of the log of a launch's own factor."""
_REQUESTS = 150
_LOADS = ("--rate", "20", "--concurrency", "8", "--slo", "none", "--budget", "30")
_TIMES = ("ttft_p50_s", "ttft_p95_s", "tpot_p50_s", "tpot_p95_s")
_TTFT, _TPOT = 1.2, 1.1
_SERVERS = (("itself", 1.0, 1.0), ("TTFT +20 %", _TTFT, 1.0), ("TPOT +10 %", 1.0, _TPOT))


def simulated(pairs: int) -> None:
    for box, launch_sd in _BOXES.items():
        for words, ttft, tpot in (
            ("itself", 1.0, 1.0),
            ("TTFT +20 %", _TTFT, 1.0),
            ("TPOT +10 %", 1.0, _TPOT),
        ):
            draw = random.Random(f"{box} {words}")
            found = (_simulated_pair(ttft, tpot, launch_sd, draw, number) for number in range(pairs))
            _print(f"{box:7} against {words:11}", found)


def _simulated_pair(
    ttft: float, tpot: float, launch_sd: float, draw: random.Random, number: int
) -> Comparison:
    waits = [random.Random(f"{number} {launch}") for launch in range(3)]
    waits_s = [[0.05 * max(one.gauss(0, 1), 0) for _ in range(_REQUESTS)] for one in waits]
    a, b = (
        _simulated_run(waits_s, *factors, launch_sd, draw, 2 * number + side)
        for side, factors in enumerate(((1.0, 1.0), (ttft, tpot)))
    )
    return comparison_of(a, b)


def _simulated_run(
    waits_s: list[list[float]], ttft: float, tpot: float, launch_sd: float, draw: random.Random, number: int
) -> Run:
    of = template((8,), 3)
    cases = (
        replace(
            case,
            measurements=tuple(
                _launch(m, waits_s[m.replicate], ttft, tpot, launch_sd, draw) for m in case.measurements
            ),
        )
        for case in of.cases
        if not case.case.work.workload.endswith("limit")
    )
    return Run(replace(of.summary, run_id=f"{number:032x}"), tuple(cases))


def _launch(
    m: Measurement, waits_s: list[float], ttft: float, tpot: float, launch_sd: float, draw: random.Random
) -> Measurement:
    factors = [math.exp(draw.gauss(0, launch_sd)) for _ in range(2)]
    firsts = [(0.05 + wait) * ttft * factors[0] * math.exp(draw.gauss(0, 0.03)) for wait in waits_s]
    tokens = [0.01 * tpot * factors[1] * math.exp(draw.gauss(0, 0.02)) for _ in waits_s]
    ends = [first + 199 * token for first, token in zip(firsts, tokens, strict=True)]
    values = {"client_lag_p99_s": 0.0008}
    for key, times in (("ttft", firsts), ("tpot", tokens), ("e2e", ends)):
        times.sort()
        values |= {f"{key}_p{part}_s": times[math.ceil(part / 100 * len(times)) - 1] for part in (50, 95)}
    figures = (replace(one, value=values[one.key]) for one in m.figures if one.key in values)
    (block,) = m.blocks
    wall_ns = round(block.steps * sum(ends) / len(ends) / 200 / 8 * 1e9)
    return replace(m, blocks=(replace(block, wall_ns=wall_ns),), figures=tuple(figures))


def real(pairs: int) -> None:
    does = Behaviour(slots=8, prefill_s=0.05, decode_s=0.005)
    slower = replace(does, prefill_s=_TTFT * does.prefill_s, decode_s=_TPOT * does.decode_s)
    with tempfile.TemporaryDirectory() as place:
        runs = [[_measured(one, Path(place)) for one in (does, does, slower)] for _ in range(pairs)]
    _print("itself", (comparison_of(a, b) for a, b, _ in runs))
    _print("TTFT +20 %, TPOT +10 %", (comparison_of(a, other) for a, _, other in runs))


def _measured(does: Behaviour, place: Path) -> Run:
    profile, db = place / "short.toml", place / "one.db"
    profile.write_text("schema = 1\nversion = 1\nprompt_tokens = 64\noutput_tokens = 40\n")
    db.unlink(missing_ok=True)
    env = os.environ | {"GPUTUI_STATE": str(place / "state")}
    loads = (
        "--profile",
        str(profile),
        "--rate",
        "20",
        "--concurrency",
        "8",
        "--slo",
        "none",
        "--budget",
        "30",
    )
    with serving_process(does) as url:
        command = (sys.executable, "-m", "gputui", "serve-bench", url, *loads, "--db", str(db))
        subprocess.run(command, env=env, check=True, capture_output=True)
    with open_result(db) as file:
        (summary,) = file.summaries()
        print(f"measured at load {os.getloadavg()[0]:.1f}", flush=True)
        return file.run(summary.run_id)


def _print(words: str, comparisons: Iterator[Comparison]) -> None:
    claimed, judged = Counter[str](), Counter[str]()
    count = any_claim = 0
    for one in comparisons:
        count += 1
        any_claim += any(row.rate.differs for row in one.rows)
        for row in one.rows:
            if time_of(row.case) in _TIMES and getattr(row.estimate, "paired", False):
                judged[time_of(row.case)] += 1
                claimed[time_of(row.case)] += row.rate.differs
    rows = "  ".join(f"{key[:-2]} {100 * claimed[key] / max(judged[key], 1):3.0f} %" for key in _TIMES)
    print(f"{words}: {any_claim} of {count} pairs claim a difference; rows {rows}", flush=True)


def main() -> None:
    numbers = [int(word) for word in sys.argv[1:] if word.isdecimal()]
    if "--real" in sys.argv:
        real(*numbers or [15])
    else:
        simulated(*numbers or [200])


if __name__ == "__main__":
    main()
