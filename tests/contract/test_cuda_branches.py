"""The CUDA branch of every workload without a device: built, and one step of it, on fake tensors.

Nothing is computed, so that sizes do not matter. `fake_cuda.py` says what a step cannot do without a device.
"""

from __future__ import annotations

import json
import math
import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from fake_cuda import NOT_HERE, NOT_THESE, planned

from gputui.worker.workloads import WORKLOADS, workload_named

HERE = Path(__file__).parent
WAITS = {
    "infer_lat": "the answer reaches the host",
    "style_fps": "the picture reaches the host",
    "xfer": "pageable memory cannot be copied to in the background",
}
MOST_GB = {"common": 15, "base": 8, "large": 24, "xl": 80}
"""Of a device that a size is for."""


@pytest.fixture
def steps(tmp_path: Path) -> dict[str, dict[str, Any]]:
    """What each case showed, all from one process."""
    torch = Path(pytest.importorskip("torch").__file__).parent
    library = tmp_path / "none.so"
    words: list[str | Path] = ["g++", "-O0", "-std=c++20", "-shared", "-fPIC", f"-I{torch}/include"]
    subprocess.run(
        [*words, HERE / "no_cuda_device.cpp", "-o", library, f"-L{torch}/lib", "-lc10", "-ltorch_cpu"],
        check=True,
    )
    environment = {**os.environ, "PYTHONPATH": str(HERE.parents[1])}
    done = subprocess.run(
        [sys.executable, HERE / "fake_cuda.py", library], env=environment, capture_output=True, text=True
    )
    assert done.returncode == 0, done.stderr[-2000:]
    found = [json.loads(line) for line in done.stdout.splitlines()]
    return {one["case"]: one for one in found}


@pytest.mark.slow
@pytest.mark.skipif(shutil.which("g++") is None, reason="no g++, which compiles the device that is none")
def test_every_step_on_cuda_is_built_counted_and_waits_only_for_what_reaches_the_host(
    steps: dict[str, dict[str, Any]],
) -> None:
    assert set(steps) == {" ".join((workload.name, size, used)) for workload, size, _, used in planned([])}
    wrong = {case: said for case, found in steps.items() if (said := list(faults_of(case, found)))}
    assert wrong == {}


def faults_of(case: str, found: dict[str, Any]) -> Iterator[str]:
    name, size, _ = case.split()
    workload = workload_named(name)
    if "error" in found:
        yield f"{found['error']} at {found['at']}"
        return
    waits = name in WAITS and (name != "xfer" or size.endswith("d2h-pageable"))
    if bool(found["waits"]) != waits:
        yield f"the host waits for {found['waits']}"
    if found["left"]:
        yield f"it leaves behind {found['left']}"
    declared = found["declared_flops"]
    if declared is not None and found["flops"] != pytest.approx(declared, rel=0.02):
        yield f"{found['flops']} FLOPs, {declared} declared"
    most_bytes = 1e9 * MOST_GB.get(size.partition("-")[0], math.inf)
    if name == "conv_train" and size != "mini":  # the others use kernels that keep less than this
        most_bytes = min(most_bytes, 1.05 * workload.sizes[size].memory_bytes)
    if found["peak_bytes"] > most_bytes:
        yield f"a peak of {found['peak_bytes']} bytes, of {most_bytes:.0f}"


def test_what_needs_a_device_is_named() -> None:
    assert set(NOT_HERE) <= {workload.name for workload in WORKLOADS}
    assert all(size in workload_named(name).sizes for name, size in NOT_THESE)
    tried = {workload.name for workload, *_ in planned([])}
    left_out = {workload.name for workload in WORKLOADS if "gpu" in workload.device_classes} - tried
    assert left_out == set(NOT_HERE)
