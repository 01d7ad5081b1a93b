"""Each workload's smallest size on this CPU: figure, spread over launches, autocorrelation, share of warm-up.

Run from the repository root:

    python tests/benchmarks/workload_table.py [--launches 5] [--budget-s 2400] [--only gemm,membw]

The launches are those of an ordinary run of an ordinary profile, which is written and measured here.
"""

from __future__ import annotations

import argparse
import math
import statistics
import subprocess
import sys
import tempfile
from pathlib import Path

from gputui.analysis.statistics import lag1_autocorrelation
from gputui.analysis.verdict import SpeedEstimate
from gputui.model.result import CaseResult
from gputui.model.units import format_percent, format_rate
from gputui.services.results.throughput import launches_of, speed_of
from gputui.store.reading import open_result
from gputui.worker.workloads import WORKLOADS

HEAVY = {"bs_sweep": 6.0, "infer_best": 6.0, "ddp": 4.0, "infer_rps": 2.0}
"""Workloads that search for a batch size, start ranks, or serve requests after their blocks."""


def profile_text(only: str, budget_s: float, launches: int) -> str:
    """One fp32 case for each workload that runs on a CPU, at its first smallest size."""
    text = f"""schema = 1
version = 1
title = "all workloads"
question = "What do they cost here?"
budget_s = {budget_s:g}
replicates = {launches}
"""
    for workload in WORKLOADS:
        if "cpu" in workload.device_classes and (not only or workload.name in only.split(",")):
            size = next(name for name in workload.sizes if name.startswith("mini"))
            text += f"""[[case]]
workload = "{workload.name}"
sizes = ["{size}"]
devices = ["cpu"]
precisions = ["fp32"]
weight = {HEAVY.get(workload.name, 1.0)}
"""
    return text


def row(case: CaseResult) -> str:
    """The case as a row of a Markdown table."""
    speed = speed_of(case)
    if not isinstance(speed, SpeedEstimate):
        return f"| {case.case.work.workload} {case.case.work.size} | {case.outcome}: {case.reason} | | | |"
    launches = launches_of(case)
    centres = [math.log(statistics.median(launch)) for launch in launches]
    spread = statistics.stdev(centres) if len(centres) > 1 else math.nan
    alike = statistics.median(
        lag1_autocorrelation([math.log(block) for block in launch]) for launch in launches
    )
    shares = []
    for measurement in case.measurements:
        before = (measurement.first_step_ns or 0) + (measurement.warmup_ns or 0)
        timed = sum(block.wall_ns for block in measurement.blocks)
        if before + timed:
            shares.append(before / (before + timed))
    return " | ".join(
        (
            f"| {case.case.work.workload} {case.case.work.size}",
            format_rate(speed.units_per_s, case.case.unit),
            f"{100 * spread:.1f} % of {len(launches)}",
            f"{alike:+.2f}",
            format_percent(statistics.median(shares)) + " |",
        )
    )


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--launches", type=int, default=5)
    parser.add_argument("--budget-s", type=float, default=2400.0)
    parser.add_argument("--only", default="")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as place:
        profile, file = Path(place) / "all.toml", Path(place) / "all.db"
        profile.write_text(profile_text(options.only, options.budget_s, options.launches))
        subprocess.run(
            [sys.executable, "-m", "gputui", "run", str(profile), "--db", str(file)],
            check=True,
            stdout=subprocess.DEVNULL,
        )
        with open_result(file) as result:
            (summary,) = result.summaries()
            cases = result.run(summary.run_id).cases
    print("| workload | figure | sd of launches | lag-1 | first step and warm-up |\n|---|---|---|---|---|")
    for case in cases:
        print(row(case))


if __name__ == "__main__":
    main()
