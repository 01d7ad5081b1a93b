"""The made-up box of `gputui demo` as `doctor` would find it: some of its GPUs are not as they should be."""

from __future__ import annotations

import time
from dataclasses import replace

from gputui.services.doctor.checks import SystemState, Terminal
from gputui.services.live.demo import EARLIER_S, USER, DemoBox
from gputui.services.playback.demo import Demo
from gputui.services.playback.demo_runs import BOXES

_FREE_BYTES = 812 * 2**30


def made_up_box(demo: Demo, terminal: Terminal) -> SystemState:
    """Everything that the checks look at; only the terminal is real."""
    cores = 96
    cpu = replace(BOXES[0].cpu, sockets=2, host_cores=cores, host_threads=cores, usable_threads=cores)
    box = replace(BOXES[0], name="8x H200", cpu=replace(cpu, usable_cores=cores), memory_gib=1008)
    box = replace(box, gpus=demo.gpus)
    return SystemState(
        machine=box.machine,
        sample=DemoBox(demo.gpus).at(EARLIER_S, time.monotonic_ns()),
        user=USER,
        interpreter=box.interpreter,
        found_as="made up",
        passed_over=(),
        clock_source="tsc",
        governor="performance",
        terminal=terminal,
        result_file=demo.db,
        state_directory=demo.db.parent,
        free_bytes={demo.db.parent: _FREE_BYTES},
        file_error=None,
        unwritable={},
        missing_home="",
        measuring=0,
    )
