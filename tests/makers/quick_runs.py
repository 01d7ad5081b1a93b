"""Runs of all cases of the profile quick at chosen speeds, each of another box, and references of them."""

from __future__ import annotations

import random
from collections.abc import Iterator
from dataclasses import replace
from itertools import product
from math import exp
from pathlib import Path

from hand_made import make_run, measured, steady
from journals import CPU_MACHINE, GPU_MACHINE, journal_lines, write_lines

from gputui.model.journal import RunStart
from gputui.model.machine import Identity, Machine
from gputui.model.plan import Case, Variant
from gputui.model.result import CaseResult, Run
from gputui.services.profiles.loader import shipped_profiles
from gputui.services.profiles.planner import case_of
from gputui.services.results.reference_making import Added, Candidate, add_to_reference
from gputui.store.journal_reader import read_journal
from gputui.store.writing import store_run
from gputui.worker.workloads import workload_named

QUICK = shipped_profiles()[0]


def quick_cases(device_class: str) -> Iterator[Case]:
    """What quick measures on a CPU or GPU that has every precision."""
    for entry in QUICK.cases:
        threads = entry.threads if device_class == "cpu" else ("host",)
        sizes = entry.sizes if device_class in entry.devices else ()
        for size, precision, of_threads in product(sizes, entry.precisions, threads):
            if device_class == "gpu" or precision != "tf32":
                variant = Variant(device_class, precision, "eager", of_threads)
                yield case_of(workload_named(entry.workload), size, variant)


def box(number: int, machine: Machine = CPU_MACHINE) -> Machine:
    """A machine like this that is surely another one."""
    id = f"{number:012x}"
    gpus = tuple(replace(gpu, gpu_id=f"{number:08x}{gpu.index:04x}") for gpu in machine.gpus[:1])
    return replace(machine, machine_id=id, identities=(Identity("machine-id", id),), gpus=gpus)


def quick_run(
    number: int,
    *,
    on_gpu: bool = False,
    factor: float = 1.0,
    factors: dict[str, float] | None = None,
    machine: Machine | None = None,
    waited_share: float = 0.0,
    started_utc_us: int = 1_793_000_000_000_000 - 30 * 86_400_000_000,
) -> Run:
    """All cases of quick in three launches; a case takes 20 ms a step, over `factor` and that of its name.

    No two boxes take the same nanoseconds.
    """
    of_box = machine or box(number, GPU_MACHINE if on_gpu else CPU_MACHINE)
    results: list[CaseResult] = []
    for case in quick_cases("gpu" if on_gpu else "cpu"):
        faster = factor * (factors or {}).get(case.name, 1.0)
        seconds = case.units_per_step / (_per_s(case) * faster) * (1 + number % 997 * 1e-7)
        launches = [steady(seconds)] * 3
        used = "amp-bf16" if case.variant.precision == "amp" else ""
        results.append(measured(case, *launches, precision_used=used, waited_share=waited_share))
    run = make_run(*results, machine=of_box, started_utc_us=started_utc_us)
    return replace(run, summary=replace(run.summary, profile_version=QUICK.version))


def _per_s(case: Case) -> float:
    """What an H200 reaches where that is published, else a step in 20 ms, or 1 s of a size for GPUs."""
    of_gemm = {"fp32": 51.5e12, "tf32": 420e12, "amp": 780e12}
    if case.variant.device_class == "gpu" and (case.work.workload, case.work.size) == ("gemm", "large"):
        return of_gemm[case.variant.precision]
    if case.variant.device_class == "gpu" and (case.work.workload, case.work.size) == ("membw", "base"):
        return 4.29e12
    return case.units_per_step / (1.0 if case.work.size == "common" else 0.02)


def store_quick(
    db: Path, number: int, *, scale: float = 1.0, label: str = "box a", on_gpu: bool = False
) -> str:
    """Store all cases of quick on a device of box `number` as three launches; returns the run's short id."""
    run_id = f"0194b5a0-0000-7000-8000-0000dddd{number:04d}"
    lines = [
        replace(line, profile_version=QUICK.version) if isinstance(line, RunStart) else line
        for line in journal_lines(
            run_id=run_id,
            label=label,
            cases=list(quick_cases("gpu" if on_gpu else "cpu")),
            skipped=(),
            launches=3,
            machine=box(number, GPU_MACHINE if on_gpu else CPU_MACHINE),
            scale=scale,
            seed=number,
        )
    ]
    store_run(db, read_journal(write_lines(db.parent / f"{db.stem}-{number}", lines)), ())
    return run_id[-8:]


def candidate(run: Run) -> Candidate:
    """A run whose telemetry shows nothing."""
    return Candidate(f"a.db@{run.summary.short_id}", run, {})


def like_boxes(count: int, *, on_gpu: bool = False, sd: float = 0.02, seed: int = 1) -> list[Run]:
    """Runs of so many boxes of one model, whose speeds spread by this much in every case."""
    chance = random.Random(seed)
    names = [case.name for case in quick_cases("gpu" if on_gpu else "cpu")]
    return [
        quick_run(100 + n, on_gpu=on_gpu, factors={name: exp(chance.gauss(0, sd)) for name in names})
        for n in range(count)
    ]


def add_boxes(count: int, *, on_gpu: bool = False, name: str = "", sd: float = 0.02) -> Added:
    """A reference of the user's, of so many boxes."""
    return add_to_reference([candidate(run) for run in like_boxes(count, on_gpu=on_gpu, sd=sd)], name=name)
