"""The batch sweep: the search on simulated devices, the limit on a real process, and both together."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any  # JSON

import pytest

from gputui.worker.contract import Parameter, Request, Value
from gputui.worker.steps import resolve
from gputui.worker.workloads import batch_probe, bs_sweep, workload_named
from gputui.worker.workloads.bs_sweep import TriedBatch, figures_of_sweep, sweep, usable_memory_bytes

MIB = 2**20
TINY: dict[str, Parameter] = {"layers": 2, "heads": 2, "width": 64, "context": 256, "vocabulary": 4096}

TINY_IMAGE: dict[str, Parameter] = {"model": "resnet-basic-1-1-1-1", "image": 32, "classes": 10}


def device_of(most: int, step_s: Callable[[int], float] = lambda batch: 0.1) -> Callable[[int], TriedBatch]:
    """A device that fits `most` samples of 1 MiB each, on top of 10 MiB."""

    def probe(batch: int) -> TriedBatch:
        if batch > most:
            return TriedBatch(batch, fits=False)
        return TriedBatch(batch, True, step_s(batch), 10 * MIB + batch * MIB)

    return probe


def searched(
    probe: Callable[[int], TriedBatch],
    slowest_step_s: float = 100.0,
    is_time_up: Callable[[float], bool] = lambda s: False,
) -> tuple[list[TriedBatch], str]:
    return sweep(probe, slowest_step_s=slowest_step_s, is_time_up=is_time_up)


def test_the_batch_is_doubled_until_it_does_not_fit_and_then_the_distance_is_halved() -> None:
    tried, cut_short = searched(device_of(11))
    assert [t.batch for t in tried] == [1, 2, 4, 8, 16, 12, 10, 11]
    assert cut_short == ""


@pytest.mark.parametrize("most", [1, 2, 3, 7, 8, 9, 100, 1000, 4095])
def test_the_largest_batch_is_found_to_within_a_sixteenth(most: int) -> None:
    tried, _ = searched(device_of(most))
    largest = max(t.batch for t in tried if t.fits)
    assert largest <= most <= largest + max(largest // 16, 1)
    assert len(tried) == len({t.batch for t in tried}) <= 20


def test_if_not_one_sample_fits_the_case_is_out_of_memory() -> None:
    with pytest.raises(MemoryError, match="not even a batch of 1 fits"):
        searched(device_of(0))


def test_a_step_that_is_too_slow_ends_the_search_and_the_largest_batch_stays_unknown() -> None:
    found = searched(device_of(10**6, lambda batch: 0.3 * batch), slowest_step_s=2.0)
    assert [t.batch for t in found[0]] == [1, 2, 4, 8]
    values = figures_of_sweep(*found, None)
    assert values["largest_count"] == Value(None, 4, "a step of 8 took over 2 s")
    assert values["tried_count"].value == 8


def test_when_the_time_is_up_what_was_found_counts() -> None:
    times = iter([False, False, True])
    tried, cut_short = searched(device_of(100), is_time_up=lambda last_s: next(times))
    assert ([t.batch for t in tried], cut_short) == ([1, 2, 4], "time was up at a batch of 4")


def test_the_knee_is_the_smallest_batch_near_the_best_throughput() -> None:
    found = searched(device_of(40, lambda batch: 0.010 + 0.001 * batch))
    rates = {t.batch: t.samples_per_s for t in found[0] if t.fits}
    values = figures_of_sweep(*found, 4 * MIB)
    assert values["knee_count"].value == min(b for b, r in rates.items() if r >= 0.95 * max(rates.values()))
    assert values["per_sample_bytes"].value == MIB
    assert values["limit_bytes"].value == 4 * MIB
    assert (values["largest_count"].value or 0) >= 38


def test_without_two_known_peaks_the_memory_of_a_sample_is_not_made_up() -> None:
    tried = [TriedBatch(1, True, 0.1, None), TriedBatch(2, fits=False)]
    assert figures_of_sweep(tried, "", None)["per_sample_bytes"].value is None


def write(root: Path, **files: str) -> Path:
    for name, text in files.items():
        path = root / name.replace("__", "/")
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    return root


MEMINFO = "MemTotal: 1000 kB\nMemFree: 10 kB\nMemAvailable: 900 kB\n"


@pytest.mark.parametrize(
    ("own", "limits", "kib"),
    [
        ("", {}, 900),
        ("0::/job/step\n", {"job__step__memory.max": "max\n", "job__memory.max": str(300 * 1024)}, 300),
        ("0::/\n", {"memory.max": str(200 * 1024)}, 200),
        ("4:cpu,memory:/job\n", {"memory__job__memory.limit_in_bytes": str(100 * 1024)}, 100),
        ("4:memory:/\n", {"memory__memory.limit_in_bytes": "9223372036854771712\n"}, 900),
        ("4:cpuset:/job\n", {"memory__job__memory.limit_in_bytes": "1024"}, 900),
    ],
)
def test_memory_that_may_be_used_is_the_least_of_what_is_free_and_every_limit(
    tmp_path: Path, own: str, limits: dict[str, str], kib: int
) -> None:
    proc = write(tmp_path / "proc", meminfo=MEMINFO, self__cgroup=own)
    assert usable_memory_bytes(proc, write(tmp_path / "cgroup", **limits)) == kib * 1024


def test_a_process_is_refused_what_goes_beyond_its_limit() -> None:
    code = (
        "from gputui.worker.workloads.batch_probe import limit_data\nlimit_data(64 * 2**20)\n"
        "kept = bytearray(32 * 2**20)\n"
        "try:\n bytearray(96 * 2**20)\nexcept MemoryError:\n print('refused')"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout == "refused\n"


def request_of(time_s: float, **more: Parameter) -> Request:
    return Request(TINY | more, "cpu", resolve("fp32", "cpu"), 1, 1, time_s)


@pytest.mark.slow
def test_a_sweep_to_the_limit_tries_each_batch_in_a_process_and_times_the_largest_that_fits(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """One sample fits and a second does not: each batch is a process that imports torch."""
    tried = []

    def probe(question: dict[str, Any], batch: int) -> TriedBatch:
        tried.append(tried_in_a_process(question, batch))
        return tried[-1]

    tried_in_a_process = bs_sweep._probe
    monkeypatch.setattr(bs_sweep, "_probe", probe)
    monkeypatch.setattr(bs_sweep, "_limit_bytes", lambda device: 320 * MIB)
    monkeypatch.setattr(bs_sweep, "CPU_SLOWEST_STEP_S", 60.0)
    vocabulary = 57344
    step = bs_sweep.build(request_of(600.0, vocabulary=vocabulary))
    assert step.close is not None
    try:
        assert [(one.batch, one.fits) for one in tried] == [(1, True), (2, False)]
        weights = 4 * (vocabulary * 64 + 256 * 64 + 2 * (12 * 64 * 64 + 13 * 64) + 2 * 64)
        assert tried[0].step_s > 0
        assert tried[0].peak_bytes is not None
        assert max(4 * weights, 160 * MIB) < tried[0].peak_bytes < 320 * MIB
        assert step.timed is not None
        assert step.timed(2 * step.multiple).wall_ns > 0
        assert step.figures is not None
        values = step.figures([])
        assert values["largest_count"].value == values["best_count"].value == step.multiple == 1
    finally:
        step.close()


class RankHere:
    """A rank that is no process, and so has no limit."""

    def __init__(self, module: str, count: int) -> None:
        self._answers = batch_probe._Probe()

    def ask(self, rank: int, do: str, **question: Any) -> Mapping[str, object]:
        return self._answers.try_batch(**question) if do == "try" else self._answers.time(**question)

    def close(self) -> None:
        pass


@pytest.mark.slow
@pytest.mark.parametrize("size", ["mini-text", "mini-image"])
def test_inference_has_a_best_batch_too(size: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(bs_sweep, "CPU_SLOWEST_STEP_S", 0.02)
    monkeypatch.setattr(bs_sweep, "RankGroup", RankHere)
    monkeypatch.setattr(batch_probe, "limit_data", lambda more_bytes: None)
    workload = workload_named("infer_best")
    parameters = {**workload.sizes[size].parameters, **(TINY if size == "mini-text" else TINY_IMAGE)}
    step = workload.build(Request(parameters, "cpu", resolve("fp32", "cpu"), 1, 1, 60.0))
    assert step.timed is not None
    assert step.timed(step.multiple).wall_ns > 0
    assert step.figures is not None
    assert step.figures([])["best_count"].value == step.multiple
