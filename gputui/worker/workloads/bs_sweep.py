"""Doubles the batch until it does not fit; finds the largest, and the smallest that is nearly as fast."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any  # JSON

from ..accelerator import properties_of
from ..contract import Figure, Parameter, Request, Size, Step, Unsupported, Value, Workload
from ..failures import OutOfMemory, is_out_of_memory
from ..flops import TextShape
from ..ranks import RankGroup, RankLost
from ..timing import BlockTime
from .text_training import BASE, MINI, described

SMALLEST: dict[str, Parameter] = {"layers": 1, "heads": 1, "width": 8, "context": 8, "vocabulary": 8}
"""A model whose step takes almost nothing."""

CPU_MEMORY_SHARE = 0.25
"""Of the memory this process may use: filling a host's memory would end other programs."""
CPU_SLOWEST_STEP_S = 2.0
"""On a CPU no larger batch is tried from here on: it stopped paying off long before."""
FINENESS = 16
"""The largest batch is found to within one part in this many."""
KNEE_SHARE = 0.95
"""Of the best throughput: the knee is the smallest batch that reaches it."""
TIME_SHARE = 0.6
"""Of the case's time that the search may take; the rest is for timing the best batch."""


@dataclass(frozen=True)
class TriedBatch:
    """The result of one batch size."""

    batch: int
    fits: bool
    step_s: float = 0.0
    peak_bytes: int | None = None

    @property
    def samples_per_s(self) -> float:
        return self.batch / self.step_s


def _size(shape: TextShape, memory_mib: int) -> Size:
    return Size(
        parameters=described(shape),
        units_per_step=1.0,
        flops_per_step=None,
        bytes_per_step=None,
        memory_bytes=memory_mib * 2**20,
    )


def sweep(
    probe: Callable[[int], TriedBatch], *, slowest_step_s: float, is_time_up: Callable[[float], bool]
) -> tuple[list[TriedBatch], str]:
    """Double the batch until one does not fit, then bisect. Pure but for `probe`.

    Returns all that was tried, and why the search ended before a batch did not fit; empty if one did not.
    `is_time_up` gets the duration of the last probe in seconds. Raises MemoryError if not even one sample
    fits.
    """
    tried: list[TriedBatch] = []
    fits, too_large, batch = 0, 0, 1
    while not too_large or too_large - fits > max(fits // FINENESS, 1):
        begun_s = time.monotonic()
        tried.append(probe(batch))
        if tried[-1].fits:
            fits = batch
            if tried[-1].step_s > slowest_step_s:
                return tried, f"a step of {batch} took over {slowest_step_s:g} s"
        elif batch == 1:
            raise OutOfMemory("not even a batch of 1 fits: out of memory")
        else:
            too_large = batch
        if is_time_up(time.monotonic() - begun_s):
            return tried, "" if too_large - fits == 1 else f"time was up at a batch of {batch}"
        batch = (fits + too_large) // 2 if too_large else 2 * fits
    return tried, ""


def figures_of_sweep(
    tried: Sequence[TriedBatch], cut_short: str, limit_bytes: int | None
) -> dict[str, Value]:
    """Largest batch, knee and memory per sample; unknown ones are absent with the reason."""
    fitting = sorted((t for t in tried if t.fits), key=lambda t: t.batch)
    best = max(fitting, key=lambda t: t.samples_per_s)
    knee = min(t.batch for t in fitting if t.samples_per_s >= KNEE_SHARE * best.samples_per_s)
    largest, count = Value(float(fitting[-1].batch), len(tried)), len(tried)
    known = [(t.batch, t.peak_bytes) for t in fitting if t.peak_bytes is not None]
    one_more = Value(None, len(known), "two batches with known memory are needed")
    if len(known) > 1:
        (small, small_bytes), (large, large_bytes) = known[-2:]
        one_more = Value(max((large_bytes - small_bytes) / (large - small), 0.0), len(known))
    limit = (
        Value(None, 0, "this device does not tell") if limit_bytes is None else Value(float(limit_bytes), 1)
    )
    return {
        "largest_count": Value(None, count, cut_short) if cut_short else largest,
        "tried_count": largest,
        "knee_count": Value(float(knee), count),
        "best_count": Value(float(best.batch), count),
        "limit_bytes": limit,
        "per_sample_bytes": one_more,
    }


def build(request: Request) -> Step:
    """A training step of a GPT at the batch that is fastest here."""
    return at_best_batch(request, "gpt_train", SMALLEST)


def at_best_batch(request: Request, workload: str, smallest: dict[str, Parameter]) -> Step:
    """Try each batch in a separate process, then keep one process with the best of them.

    `smallest` are parameters of the workload with which a step takes almost nothing. On a CPU a probe is
    limited to CPU_MEMORY_SHARE of the memory that may be used here: the system refuses more, as a GPU does.
    """
    limit_bytes = _limit_bytes(request.device)
    refused_bytes = limit_bytes if request.device == "cpu" else None
    question = _question(request, workload, smallest, refused_bytes)
    begun_s = time.monotonic()
    tried, cut_short = sweep(
        partial(_probe, question),
        slowest_step_s=CPU_SLOWEST_STEP_S if request.device == "cpu" else float("inf"),
        is_time_up=lambda last_s: time.monotonic() - begun_s + 1.5 * last_s > TIME_SHARE * request.time_s,
    )
    figures = figures_of_sweep(tried, cut_short, limit_bytes)
    batch = int(figures["best_count"].value or 0)
    group = RankGroup("workloads.batch_probe", 1)
    try:
        answer = group.ask(0, **question, batch=batch)
    except BaseException:
        group.close()
        raise

    def timed(samples: int) -> BlockTime:
        return BlockTime(**group.ask(0, do="time", samples=samples))

    return Step(
        run=lambda: timed(batch),
        timed=timed,
        multiple=batch,
        figures=lambda step_ns: figures,
        close=group.close,
        layout=str(answer["layout"]),
    )


def _question(
    request: Request, workload: str, smallest: dict[str, Parameter], limit_bytes: int | None
) -> dict[str, Any]:
    return {
        "do": "try",
        "workload": workload,
        "smallest": smallest,
        "parameters": request.parameters,
        "device": request.device,
        "precision": request.precision.requested,
        "threads": request.threads,
        "seed": request.seed,
        "limit_bytes": limit_bytes,
    }


def _probe(question: dict[str, Any], batch: int) -> TriedBatch:
    """Try one batch in a separate process, which releases all its memory when it exits."""
    group = RankGroup("workloads.batch_probe", 1)
    try:
        answer = group.ask(0, **question, batch=batch)
    except RankLost:
        if question["limit_bytes"] is None:
            raise
        return TriedBatch(batch, fits=False)  # a library that is denied memory may end the process
    except (RuntimeError, MemoryError) as error:
        if not is_out_of_memory(error):
            raise
        return TriedBatch(batch, fits=False)
    finally:
        group.close()
    return TriedBatch(batch, True, float(answer["step_s"]), answer["peak_bytes"])


def _limit_bytes(device: str) -> int | None:
    """What a batch may use here: a share of the host's memory, or all of a GPU's."""
    if device != "cpu":
        total_bytes: int | None = properties_of(device).total_memory
        return total_bytes
    if sys.platform != "linux":
        raise Unsupported("only Linux can be asked to refuse a process memory beyond a limit")
    return round(CPU_MEMORY_SHARE * usable_memory_bytes())


def usable_memory_bytes(proc: Path = Path("/proc"), cgroup: Path = Path("/sys/fs/cgroup")) -> int:
    """The least of the host's memory, its free memory, and every limit of this process's cgroups."""
    lines = (line.split() for line in (proc / "meminfo").read_text().splitlines())
    known = {words[0]: int(words[1]) * 1024 for words in lines if len(words) > 1}
    limits = [known[name] for name in ("MemTotal:", "MemAvailable:") if name in known]
    own = proc / "self" / "cgroup"
    for line in own.read_text().splitlines() if own.exists() else ():
        _, controllers, path = line.split(":", 2)
        if controllers == "":
            root, name = cgroup, "memory.max"
        elif "memory" in controllers.split(","):
            root, name = cgroup / "memory", "memory.limit_in_bytes"
        else:
            continue
        here = root / path.lstrip("/")
        for folder in (here, *here.parents):
            if (folder / name).is_file() and (text := (folder / name).read_text().strip()).isdigit():
                limits.append(int(text))
            if folder == root:
                break
    return min(limits)


FIGURES = (
    Figure("largest_count", "largest batch that fits", "count", "more", "min"),
    Figure("tried_count", "largest batch that was measured", "count", "neither", "min"),
    Figure("knee_count", "knee: 95 % of the best throughput", "count", "neither", "median"),
    Figure("best_count", "batch that is timed above", "count", "neither", "median"),
    Figure("per_sample_bytes", "memory of one more sample", "B", "less", "median"),
    Figure("limit_bytes", "memory it may take", "B", "neither", "min"),
)

WORKLOAD = Workload(
    name="bs_sweep",
    version=1,
    title="batch sweep",
    question="Which batch is the largest that fits, and from which on does a larger one gain nothing?",
    workload_class="training",
    unit="seq",
    sizes={"mini": _size(MINI, 6000), "base": _size(BASE, 80000)},
    precisions=("fp32", "tf32", "amp"),
    device_classes=("cpu", "gpu"),
    needs_torch=True,
    build=build,
    figures=FIGURES,
    is_alone=True,
    is_traceable=False,
    form="best",
)
