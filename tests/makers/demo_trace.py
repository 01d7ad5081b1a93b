"""Makes up the trace of `gputui demo`, as torch.profiler would write it: a training that waits for its data.

    python tests/makers/demo_trace.py

writes it anew. Its operators, kernels and shares are those of the tables of the demo.
"""

from __future__ import annotations

import gzip
import json
from pathlib import Path
from typing import Any

from gputui.services.playback import demo

PLACE = Path(demo.__file__).with_name("demo_trace.json.gz")
STEPS, WAIT_US, BUSY_US, CALL_US = 4, 1900.0, 36_400.0, 14.0
"""Of a step, and of the host for each operator."""
LOADER = "enumerate(DataLoader)#_MultiProcessingDataLoaderIter.__next__"
FRAMES = {
    "backward": ("cpu_op", "autograd::engine::evaluate_function: AddmmBackward0"),
    "optimizer": ("user_annotation", "Optimizer.step#AdamW.step"),
}
"""Around the operators of a phase."""
MEMORY = {"Device Type": 1, "Total Allocated": 44_560_285_696, "Total Reserved": 51_539_607_552}
SIZES = {"w": 768, "b": 8192}


def trace() -> bytes:
    events: list[dict[str, Any]] = [{"ph": "i", "name": "[memory]", "args": MEMORY}]
    begin_us, call = 0.0, 0
    for step in range(STEPS):
        host_us = begin_us + WAIT_US
        device_us = host_us + CALL_US
        events.append(event("user_annotation", LOADER, begin_us, host_us))
        for phase, category, operator, shapes, calls, share, _ in demo._DATA["operators"]["gpt_train"]:
            ends_us = host_us + calls * CALL_US
            if phase in FRAMES:
                events.append(event(*FRAMES[phase], host_us, ends_us))
            given = shapes.format(**SIZES).split(",") if shapes else []
            dims = [[int(n) for n in one.split("x")] for one in given]
            inputs: dict[str, Any] = {"Input Dims": dims, "Input type": ["c10::BFloat16"] * len(given)}
            for at_us in (host_us + index * CALL_US for index in range(calls)):
                call += 1
                kernel_us, device_us = device_us, device_us + share * BUSY_US / calls
                kernel = demo._DATA["kernels"][category]
                events += (
                    event("cpu_op", operator, at_us, at_us + 0.9 * CALL_US, **inputs),
                    event("cuda_runtime", "cudaLaunchKernel", at_us, at_us + CALL_US / 2, correlation=call),
                    event("kernel", kernel, kernel_us, device_us, correlation=call),
                )
            host_us = ends_us
        events.append(event("user_annotation", f"ProfilerStep#{step}", begin_us, device_us))
        begin_us = device_us
    started_us = demo._STORED_UTC_US - len(demo.BOXES) * demo._APART_US
    head = {
        "baseTimeNanoseconds": 1000 * started_us,
        "deviceProperties": [{"id": 0, "name": demo.BOXES[0].gpus[0].name}],
    }
    return json.dumps({**head, "traceEvents": events}, separators=(",", ":")).encode()


def event(category: str, name: str, start_us: float, end_us: float, **arguments: Any) -> dict[str, Any]:
    lane = {"pid": 0, "tid": 7 if category == "kernel" else 1, "args": arguments}
    times = {"ts": round(start_us, 3), "dur": round(end_us - start_us, 3)}
    return {"ph": "X", "cat": category, "name": name, **times, **lane}


if __name__ == "__main__":
    PLACE.write_bytes(gzip.compress(trace(), mtime=0))
