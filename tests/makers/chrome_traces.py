"""Made-up Chrome traces, as Kineto writes them."""

from __future__ import annotations

import gzip
import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

HOST, BACKWARD = 100, 101


def event(category: str, name: str, start_us: float, end_us: float, **arguments: object) -> dict[str, Any]:
    """One complete event of the host, on thread HOST; `tid` among the arguments names another one."""
    thread = arguments.pop("tid", HOST)
    return {
        "ph": "X",
        "cat": category,
        "name": name,
        "pid": 1,
        "tid": thread,
        "ts": start_us,
        "dur": round(end_us - start_us, 3),
        "args": arguments,
    }


def op(name: str, start_us: float, end_us: float, number: int = 0, **arguments: object) -> dict[str, Any]:
    return event("cpu_op", name, start_us, end_us, **{"External id": number}, **arguments)


def span(name: str, start_us: float, end_us: float, **arguments: object) -> dict[str, Any]:
    return event("user_annotation", name, start_us, end_us, **arguments)


def call(name: str, start_us: float, end_us: float, correlation: int, number: int = 0) -> dict[str, Any]:
    return event("cuda_runtime", name, start_us, end_us, correlation=correlation, **{"External id": number})


def kernel(
    name: str, start_us: float, end_us: float, correlation: int, number: int = 0, device: int = 0
) -> dict[str, Any]:
    made = event(
        "kernel",
        name,
        start_us,
        end_us,
        correlation=correlation,
        device=device,
        stream=7,
        **{"External id": number},
    )
    return {**made, "pid": device, "tid": 7}


def training_step(
    start_us: float, number: int, gemm_us: float = 100.0, wait_us: float = 0.0
) -> list[dict[str, Any]]:
    """A step that waits for its data, multiplies, and updates; it lasts 60 us longer than its parts."""
    begin = start_us + wait_us
    end = begin + gemm_us + 60
    n = number * 10
    data = [span("enumerate(DataLoader)#_Iter.__next__", start_us, begin)] if wait_us else []
    return [
        span(f"ProfilerStep#{number}", start_us, end),
        *data,
        op(
            "aten::linear",
            begin,
            begin + 20,
            n + 1,
            **{"Input Dims": [[8, 64], [64, 64]], "Input type": ["float", "float"]},
        ),
        call("cudaLaunchKernel", begin + 10, begin + 20, n + 1, n + 1),
        kernel("ampere_sgemm_128x64_tn", begin + 20, begin + 20 + gemm_us, n + 1, n + 1),
        op("Optimizer.step#SGD.step", begin + 30, begin + 50, n + 2),
        op("aten::_foreach_add_", begin + 30, begin + 40, n + 3),
        call("cudaLaunchKernel", begin + 32, begin + 38, n + 3, n + 3),
        kernel("multi_tensor_apply_kernel", begin + 20 + gemm_us, begin + 40 + gemm_us, n + 3, n + 3),
    ]


def document(events: Sequence[object], **head: object) -> dict[str, object]:
    described = {
        "id": 0,
        "name": "NVIDIA A100",
        "totalGlobalMem": 2**35,
        "computeMajor": 8,
        "computeMinor": 0,
    }
    return {"schemaVersion": 1, "deviceProperties": [described], **head, "traceEvents": list(events)}


def write_trace(path: Path, events: Sequence[object], **head: object) -> Path:
    """A trace file; compressed if its name ends in `.gz`."""
    text = json.dumps(document(events, **head), indent=1)
    if path.suffix == ".gz":
        path.write_bytes(gzip.compress(text.encode()))
    else:
        path.write_text(text, encoding="utf-8")
    return path


def write_training(
    path: Path, steps: int = 3, gemm_us: float = 100.0, wait_us: float = 0.0, **head: object
) -> Path:
    """A trace of equal steps without pauses between them."""
    length_us = wait_us + gemm_us + 60
    events = [e for k in range(steps) for e in training_step(1000 + k * length_us, k + 1, gemm_us, wait_us)]
    return write_trace(path, events, **head)
