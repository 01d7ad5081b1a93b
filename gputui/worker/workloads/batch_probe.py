"""Tries one batch size in a separate process: whether it fits, how long a step takes, how much memory."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict
from pathlib import Path
from statistics import median
from typing import Any  # JSON

from ..contract import Request
from ..profiling.allocations import AllocationsUnavailable, highest_allocated
from ..ranks import RankLink
from ..steps import resolve
from ..timing import stopwatch_for
from . import workload_named

TIMED_STEPS = 3


def serve(link: RankLink) -> None:
    """Answer questions until the worker is gone."""
    probe = _Probe()
    link.serve({"try": probe.try_batch, "time": probe.time})


class _Probe:
    def try_batch(
        self,
        workload: str,
        smallest: dict[str, Any],
        parameters: dict[str, Any],
        batch: int,
        device: str,
        precision: str,
        threads: int,
        seed: int,
        limit_bytes: int | None,
    ) -> Mapping[str, object]:
        """Build it, take two steps, then time three. If it does not fit, torch's exception passes through."""
        import torch

        torch.set_num_threads(threads)
        build = workload_named(workload).build
        resolved = resolve(precision, device)
        resolved.apply()
        if limit_bytes is not None:
            small = Request({**parameters, **smallest, "batch": 1}, device, resolved, threads, seed)
            highest_allocated(device, build(small).run)  # loads what torch loads lazily
            limit_data(limit_bytes)
        request = Request({**parameters, "batch": batch}, device, resolved, threads, seed)

        def begin() -> None:
            self._step = build(request)
            for _ in range(2):  # the optimizer creates its state in the first
                self._step.run()

        try:
            peak_bytes: int | None = highest_allocated(device, begin)
        except AllocationsUnavailable:
            peak_bytes = None
        self._batch, self._stopwatch = batch, stopwatch_for(device)
        taken = [self._stopwatch(self._step.run, 1).block_ns for _ in range(TIMED_STEPS)]
        return {"peak_bytes": peak_bytes, "step_s": median(taken) / 1e9, "layout": self._step.layout}

    def time(self, samples: int) -> Mapping[str, object]:
        return asdict(self._stopwatch(self._step.run, samples // self._batch))


def limit_data(more_bytes: int) -> None:
    """Limit how many more bytes of memory this process may allocate; Linux counts them as VmData."""
    import resource

    lines = Path("/proc/self/status").read_text().splitlines()
    (has_kib,) = (int(line.split()[1]) for line in lines if line.startswith("VmData:"))
    limit = has_kib * 1024 + more_bytes
    resource.setrlimit(resource.RLIMIT_DATA, (limit, limit))
