"""Runs of `quick` on made-up boxes: blocks, launches and runs vary as a named world says."""

from __future__ import annotations

import math
import random
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import groupby
from pathlib import Path

from hand_made import make_run
from journals import CPU_MACHINE, GPU_MACHINE, PRICE, STARTED_NS, STARTED_US, write_lines
from quick_runs import box, quick_cases

from gputui.model.absent import Missing
from gputui.model.journal import (
    JOURNAL_SCHEMA,
    Block,
    CaseEnd,
    CasePlanned,
    CaseWarm,
    LaunchEnd,
    LaunchStart,
    Line,
    MachineFound,
    RunEnd,
    RunStart,
    RuntimeFound,
    WorkerReady,
)
from gputui.model.machine import Machine
from gputui.model.plan import Case, PlannedCase, Variant
from gputui.model.result import CaseResult, Measurement, Run
from gputui.services.profiles.planner import case_of
from gputui.store.journal_reader import read_journal
from gputui.store.writing import store_run
from gputui.worker.workloads import workload_named

STEP_S, STEPS, BLOCKS = 0.02, 10, 6
"""Every case of every box takes as long for a step, so that whatever differs is chance or planted."""
SHARED = 0.8
"""Of the variance of a launch: what precisions that it interleaves have in common, so that their ratio
varies by 0.63 of the sd of one (`analysis/spread.py`: 6 of 10 % on a CPU)."""
SLOW = 1.3
"""What a slow launch takes of the time of another."""
ASSUMED_RUN_SD = {"cpu": 0.04, "gpu": 0.01}
"""Between runs of one box, by device class."""
PRICES = {"cpu": PRICE, "gpu": replace(PRICE, gpu_count=1)}
GAP_NS = 50_000


@dataclass(frozen=True)
class World:
    """How much blocks and launches vary on its boxes; all normal on the log scale."""

    name: str
    device_class: str
    block_sd: float
    launch_sds: tuple[tuple[str, float], ...]
    """By words of a case, such as `gemm amp`; of several that fit, the last."""
    slow_share: float = 0.0
    """Of launches: those that take `SLOW` times as long."""

    def launch_sd(self, case: Case) -> float:
        words = {case.work.workload, case.work.size, case.variant.precision}
        return [sd for of, sd in self.launch_sds if words.issuperset(of.split())][-1]

    @property
    def mean_log(self) -> float:
        """Of the time of a launch over that of one that is not slow."""
        return self.slow_share * math.log(SLOW)

    @property
    def words(self) -> str:
        """All that it assumes, in a line."""
        sds = ", ".join(f"{of or 'all'} {100 * sd:.3g} %" for of, sd in self.launch_sds)
        slow = f"; {self.slow_share:.0%} of launches {SLOW:g}x as long" if self.slow_share else ""
        return f"launches {sds}{slow}; blocks {100 * self.block_sd:.2g} %"


def _cpu(name: str, *launch_sds: tuple[str, float], slow_share: float = 0.0) -> World:
    return World(name, "cpu", 0.05, launch_sds, slow_share)


WORLDS = (
    _cpu("CPU 3 %", ("", 0.03)),
    _cpu("CPU 10 %", ("", 0.10)),
    _cpu("CPU 14 %", ("", 0.14)),
    _cpu(
        "CPU as measured",  # on a shared 2-core VM; training is a guess
        ("gemm", 0.046),
        ("gemm amp", 0.068),
        ("membw", 0.15),
        ("conv_train", 0.06),
        ("gpt_train", 0.05),
        ("decode", 0.126),
        ("decode amp", 0.111),
    ),
    _cpu("CPU 3 %, one in five slow", ("", 0.03), slow_share=0.2),
    World(
        "GPU by work",  # analysis/spread.py: small models are bound by kernel launches
        "gpu",
        0.003,
        (
            ("gemm", 0.01),
            ("membw", 0.01),
            ("conv_train", 0.0006),
            ("gpt_train", 0.01),
            ("gpt_train mini", 0.026),
            ("decode", 0.026),
        ),
    ),
)
GPU_ALIKE = World("GPU 1 %", "gpu", 0.003, (("", 0.01),))
RUN_PARTS = {"none": 0.0, "half": 0.5, "as assumed": 1.0, "twice": 2.0}
"""Sd between runs over the assumed one."""

Group = tuple[Case, ...]
"""Cases that one launch interleaves."""


def quick_groups(device_class: str) -> tuple[Group, ...]:
    """The launches of `quick` on a box that has every precision: 7 of 12 CPU rows, or 5 of 12 GPU rows.

    Neither operations nor bytes of a step are counted, so that no made-up speed is beyond a peak.
    """
    return _grouped(list(quick_cases(device_class)))


def more_groups(device_class: str, count: int) -> tuple[Group, ...]:
    """The first launches of `quick`, then of more cases of the same workloads."""
    known = quick_groups(device_class)
    precisions, threads = ("fp32", "amp"), "1" if device_class == "cpu" else "host"
    more = [
        case_of(workload_named(workload), size, Variant(device_class, precision, "eager", threads))
        for workload, size in (
            ("conv_train", "base"),
            ("gpt_train", "large"),
            ("decode", "base"),
            ("gemm", "base"),
            ("decode", "large"),
        )
        for precision in precisions
    ]
    return (*known, *_grouped(more))[:count]


def _grouped(cases: Sequence[Case]) -> tuple[Group, ...]:
    def launched(case: Case) -> tuple[str, str, str]:
        return case.work.workload, case.work.size, case.variant.threads

    uncounted = [replace(case, flops_per_step=None, bytes_per_step=None) for case in cases]
    return tuple(tuple(found) for _, found in groupby(sorted(uncounted, key=launched), launched))


Times = list[list[list[float]]]
"""Logarithms of seconds per step, by row, launch and block."""


@dataclass(frozen=True)
class Setting:
    """What is measured in a world, and how much its runs vary."""

    world: World
    groups: tuple[Group, ...]
    run_sd: float
    """Common to the rows of a run."""
    row_sd: float = 0.0
    """Of what each row of a run has by itself beside that."""

    @cached_property
    def cases(self) -> tuple[Case, ...]:
        return tuple(case for group in self.groups for case in group)

    @cached_property
    def _launch_sds(self) -> tuple[float, ...]:
        return tuple(self.world.launch_sd(case) for case in self.cases)

    def drawn(self, chance: random.Random, launches: int) -> Times:
        """One run of so many launches of each case."""
        gauss = chance.gauss
        in_common, apart = math.sqrt(SHARED), math.sqrt(1 - SHARED)
        of_run = math.log(STEP_S) + gauss(0, self.run_sd)
        times: Times = []
        for group in self.groups:
            moved = [
                (gauss(0, 1), math.log(SLOW) if chance.random() < self.world.slow_share else 0.0)
                for _ in range(launches)
            ]
            for _ in group:
                sd = self._launch_sds[len(times)]
                of_row = of_run + gauss(0, self.row_sd)
                centres = [
                    of_row + slow + sd * (in_common * together + apart * gauss(0, 1))
                    for together, slow in moved
                ]
                times.append([[c + gauss(0, self.world.block_sd) for _ in range(BLOCKS)] for c in centres])
        return times

    def run(
        self,
        times: Times,
        machine: Machine,
        *,
        factors: Mapping[int, float] | None = None,
        launches: Sequence[int] | None = None,
        started_utc_us: int = STARTED_US,
    ) -> Run:
        """A stored run of these times; `factors`: how many times as long rows take; `launches`: the first
        so many of each row."""
        results = []
        row, start_ns = 0, STARTED_NS + 10**9
        for place, group in enumerate(self.groups):
            rows = range(row, row + len(group))
            row += len(group)
            found: list[list[Measurement]] = [[] for _ in group]
            for number in range(max(len(times[r]) for r in rows)):
                kept = [r for r in rows if launches is None or number < launches[r]]
                blocks: dict[int, list[Block]] = {r: [] for r in kept}
                for index in range(BLOCKS):
                    for r in kept:
                        factor = (factors or {}).get(r, 1.0)
                        wall_ns = round(STEPS * 1e9 * factor * math.exp(times[r][number][index]))
                        blocks[r].append(
                            _block(
                                number * len(self.groups) + place,
                                r,
                                index,
                                start_ns,
                                wall_ns,
                                self.world.device_class == "gpu",
                            )
                        )
                        start_ns += wall_ns + GAP_NS
                start_ns += 10**9
                for r in kept:
                    found[r - rows[0]].append(_measurement(number, self.cases[r], blocks[r]))
            results += [_result(case, of) for case, of in zip(group, found, strict=True)]
        price = PRICES[self.world.device_class]
        return make_run(*results, machine=machine, price=price, started_utc_us=started_utc_us)


def boxes_of(device_class: str) -> tuple[Machine, Machine]:
    """Two machines of one model."""
    like = CPU_MACHINE if device_class == "cpu" else GPU_MACHINE
    return box(1, like), box(2, like)


def _block(launch_id: int, case_id: int, index: int, start_ns: int, wall_ns: int, on_gpu: bool) -> Block:
    return Block(launch_id, case_id, index, STEPS, start_ns, wall_ns, wall_ns if on_gpu else None, wall_ns, 0)


def _measurement(replicate: int, case: Case, blocks: Sequence[Block]) -> Measurement:
    precision = case.variant.precision
    return Measurement(
        launch_id=blocks[0].launch_id,
        replicate=replicate,
        outcome="ok",
        reason="",
        precision_used="amp-bf16" if precision == "amp" else precision,
        is_fork=False,
        first_step_ns=1_000_000,
        warmup_ns=1_000_000_000,
        warmup_blocks=3,
        stable=True,
        blocks=tuple(blocks),
    )


def _result(case: Case, measurements: Sequence[Measurement]) -> CaseResult:
    on_gpu = case.variant.device_class == "gpu"
    name = "NVIDIA H200" if on_gpu else "Xeon 8481C"
    return CaseResult(0, case, 0 if on_gpu else None, name, "ok", "", tuple(measurements))


def store(run: Run, db: Path) -> None:
    """Store a run as `gputui run` does, from its journal."""
    run_dir = db.parent / f"{db.stem}-{run.summary.short_id}"
    store_run(db, read_journal(write_lines(run_dir, lines_of(run))), ())


def lines_of(run: Run) -> list[Line]:
    """The journal of a run of `Setting.run`."""
    of, t_ns = run.summary, STARTED_NS
    launched: dict[int, list[tuple[int, Measurement]]] = {}
    for result in run.cases:
        for measurement in result.measurements:
            launched.setdefault(measurement.launch_id, []).append((result.case_id, measurement))
    lines: list[Line] = [
        RunStart(
            JOURNAL_SCHEMA,
            of.run_id,
            of.started_utc_us,
            STARTED_NS,
            of.utc_offset_min,
            of.gputui_version,
            of.profile,
            of.profile_version,
            of.seed,
            of.replicates,
            of.budget_s,
            of.label,
            None if isinstance(of.price, Missing) else of.price,
        ),
        MachineFound(of.machine),
        RuntimeFound(of.runtime),
        *(
            CasePlanned(PlannedCase(r.case_id, r.case, None, ""), r.device_index, r.device_name)
            for r in run.cases
        ),
    ]
    for launch_id, found in launched.items():
        blocks = sorted((block for _, m in found for block in m.blocks), key=lambda block: block.start_ns)
        case_ids = tuple(case_id for case_id, _ in found)
        t_ns = blocks[0].start_ns
        lines.append(LaunchStart(launch_id, found[0][1].replicate, case_ids, 1, 20.0, t_ns))
        lines.append(WorkerReady(launch_id, 1_500_000_000, 1, t_ns))
        for case_id, m in found:
            warm = (
                m.precision_used,
                40_000_000,
                m.first_step_ns or 0,
                m.warmup_ns or 0,
                3,
                True,
                STEPS,
                t_ns,
            )
            lines.append(CaseWarm(launch_id, case_id, *warm))
        lines += blocks
        t_ns = blocks[-1].start_ns + blocks[-1].wall_ns
        lines += [CaseEnd(launch_id, case_id, "ok", "", BLOCKS, t_ns) for case_id in case_ids]
        lines.append(LaunchEnd(launch_id, "ok", "", 0, "", t_ns))
    lines.append(RunEnd("finished", "", of.started_utc_us + (t_ns - STARTED_NS) // 1000, t_ns))
    return lines
