"""The CUDA branch of every workload without a device: built, and one step of it, on fake tensors.

Nothing is computed, so that sizes do not matter. `fake_cuda.py` says what a step cannot do without a device.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from fake_cuda import NOT_HERE, NOT_THESE, planned

from gputui.worker.workloads import WORKLOADS, workload_named

HERE = Path(__file__).parent
CASES = [" ".join((workload.name, size, used)) for workload, size, _, used in planned([])]
WAITS = {
    "infer_lat": "the answer reaches the host",
    "style_fps": "the picture reaches the host",
    "xfer": "pageable memory cannot be copied to in the background",
}
MOST_GB = {"common": 15, "base": 8, "large": 24, "xl": 80}
"""Of a device that a size is for."""
pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(shutil.which("g++") is None, reason="no g++, which compiles the device that is none"),
]


@pytest.fixture(scope="module")
def steps(tmp_path_factory: pytest.TempPathFactory) -> dict[str, dict[str, Any]]:
    """What each case showed, all from one process."""
    torch = Path(pytest.importorskip("torch").__file__).parent
    library = tmp_path_factory.mktemp("device") / "none.so"
    words: list[str | Path] = [
        "g++",
        "-O0",
        "-std=c++20",
        "-shared",
        "-fPIC",
        f"-I{torch}/include",
    ]
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


@pytest.mark.parametrize("case", CASES)
def test_a_step_on_cuda_is_built_counted_and_waits_only_for_what_reaches_the_host(
    case: str, steps: dict[str, dict[str, Any]]
) -> None:
    found = steps[case]
    name, size, _ = case.split()
    workload = workload_named(name)
    assert "error" not in found, found
    waits = name in WAITS and (name != "xfer" or size.endswith("d2h-pageable"))
    assert bool(found["waits"]) == waits, found["waits"]
    assert found["left"] == {}
    if found["declared_flops"] is not None:
        assert found["flops"] == pytest.approx(found["declared_flops"], rel=0.02)
    most = MOST_GB.get(size.partition("-")[0])
    if most is not None:
        assert found["peak_bytes"] <= most * 1e9
    if workload.name == "conv_train" and size != "mini":  # the others use kernels that keep less than this
        assert found["peak_bytes"] <= 1.05 * workload.sizes[size].memory_bytes


def test_what_needs_a_device_is_named() -> None:
    assert set(NOT_HERE) <= {workload.name for workload in WORKLOADS}
    assert all(size in workload_named(name).sizes for name, size in NOT_THESE)
    left_out = {w.name for w in WORKLOADS if "gpu" in w.device_classes} - {case.split()[0] for case in CASES}
    assert left_out == set(NOT_HERE)
