"""A case that cannot fit is a result: it reports the size it requested, and later cases run."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from command_line import gputui

ASKED_BYTES = 2**50

STEP = f"""
from gputui_worker.contract import Request, Size, Step, Workload

def build(request):
    import torch
    numbers = torch.empty(request.integer("numbers"), dtype=torch.uint8)
    return Step(lambda: numbers.add_(1))

WORKLOAD = Workload(
    name="holding",
    version=1,
    title="holding memory",
    question="Does it fit?",
    workload_class="host",
    unit="B",
    sizes={{
        "a-huge": Size({{"numbers": {ASKED_BYTES}}}, 1.0, None, None, 2**20),
        "b-small": Size({{"numbers": 2**20}}, 2.0**20, None, None, 2**20),
    }},
    precisions=("fp32",),
    device_classes=("cpu",),
    needs_torch=True,
    build=build,
)
"""


@pytest.mark.slow
def test_out_of_memory_is_reported_in_bytes_and_the_next_case_is_measured(tmp_path: Path) -> None:
    step = tmp_path / "holding.py"
    step.write_text(STEP)
    brief = ("--budget", "600", "--blocks", "5", "--launches", "1")
    done = gputui("run", step, "--db", tmp_path / "a.db", *brief, "--json")
    assert done.returncode == 0, done.stdout
    (run,) = json.loads(done.stdout[done.stdout.index("{") :])["runs"]
    huge, small = run["cases"]
    assert (huge["size"], huge["outcome"]) == ("a-huge", "oom")
    assert str(ASKED_BYTES) in huge["reason"]
    assert (small["size"], small["outcome"]) == ("b-small", "ok")
    assert small["speed"]["units_per_s"] > 0
