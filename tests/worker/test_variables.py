"""Which environment variables are noticed, what a file says of them, and which workloads never see them."""

from __future__ import annotations

from pathlib import Path

import pytest

from gputui.services.share.vocabulary import message, words
from gputui.worker.variables import (
    VARIABLES,
    as_recorded,
    falsifies,
    set_in,
    warnings_of,
    without_falsifying,
)

FALSIFYING = {
    "NVIDIA_TF32_OVERRIDE": "0",
    "TORCH_ALLOW_TF32_CUBLAS_OVERRIDE": "1",
    "CUDA_LAUNCH_BLOCKING": "1",
    "PYTORCH_NO_CUDA_MEMORY_CACHING": "1",
    "TORCHDYNAMO_DISABLE": "1",
}
CHOICES = {
    "PYTORCH_CUDA_ALLOC_CONF": "expandable_segments:True,max_split_size_mb:128",
    "PYTORCH_ALLOC_CONF": "backend:cudaMallocAsync",
    "TORCH_CUDNN_SDPA_DEPRIORITIZED": "1",
    "CUDA_DEVICE_MAX_CONNECTIONS": "1",
    "TORCH_BLAS_PREFER_CUBLASLT": "1",
    "CUBLAS_WORKSPACE_CONFIG": ":4096:8",
    "NCCL_ALGO": "Ring",
}
SET = {**FALSIFYING, **CHOICES}


@pytest.mark.parametrize("name", SET)
def test_each_variable_that_changes_arithmetic_or_launching_is_noticed(name: str) -> None:
    environ = {"PATH": "/usr/bin", name: SET[name]}
    assert set_in(environ) == {name: SET[name]}
    assert as_recorded(environ, is_cleared=False) == f"{name}={SET[name]}"
    assert as_recorded(environ, is_cleared=True).endswith("(cleared)") is (name in FALSIFYING)
    assert (name in without_falsifying(environ)) is (name in CHOICES)
    assert falsifies(name) is (name in FALSIFYING)


def test_a_run_warns_of_those_alone_that_falsify_its_rows() -> None:
    assert [warning.partition("=")[0] for warning in warnings_of(SET, is_cleared=True)] == [
        name for name in VARIABLES if name in FALSIFYING
    ]
    environ = {"CUDA_LAUNCH_BLOCKING": "1"}
    said = [*warnings_of(environ, is_cleared=True), *warnings_of(environ, is_cleared=False)]
    assert said == [
        "CUDA_LAUNCH_BLOCKING=1 is cleared for gputui's own workloads: the host waits for each kernel",
        "CUDA_LAUNCH_BLOCKING=1 is left as it is: the host waits for each kernel",
    ]


def test_a_variable_that_is_off_changes_nothing_but_where_0_acts() -> None:
    environ = {"CUDA_LAUNCH_BLOCKING": "0", "NCCL_P2P_DISABLE": "", "NVIDIA_TF32_OVERRIDE": "0"}
    assert set_in(environ) == {"NVIDIA_TF32_OVERRIDE": "0"}
    assert as_recorded({}, is_cleared=True) == ""


def test_no_file_gets_a_value_that_could_name_someone() -> None:
    environ = {"PYTORCH_CUDA_ALLOC_CONF": "/home/ann/conf", "NCCL_ALGO": "x" * 200, "HOME": "/home/ann"}
    assert as_recorded(environ, is_cleared=True) == "PYTORCH_CUDA_ALLOC_CONF=… NCCL_ALGO=…"


def test_a_shared_copy_keeps_the_usual_values_only() -> None:
    recorded = as_recorded(SET, is_cleared=True)
    assert words(recorded) == recorded
    for is_cleared in (True, False):
        for warning in warnings_of(SET, is_cleared=is_cleared):
            assert message(warning) == warning
    assert message("CUDA_LAUNCH_BLOCKING=ann is left as it is: the host waits for each kernel") is None
    odd = "NCCL_ALGO=ann PYTORCH_CUDA_ALLOC_CONF=backend:ann PATH=1 CUDA_LAUNCH_BLOCKING=1 NCCL_ALGO=…"
    assert words(odd) == "CUDA_LAUNCH_BLOCKING=1 NCCL_ALGO=…"


def test_the_documentation_names_each_variable_that_falsifies_rows() -> None:
    page = (Path(__file__).parents[2] / "docs" / "measuring.md").read_text()
    assert [name for name in VARIABLES if falsifies(name) and f"`{name}`" not in page] == []
