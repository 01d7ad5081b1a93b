"""The made-up box of `gputui demo` as `doctor` would find it: some of its GPUs are not as they should be."""

from __future__ import annotations

import time
from dataclasses import replace

from gputui.services.doctor.checks import SystemState, Terminal
from gputui.services.live.demo import EARLIER_S, USER, DemoBox
from gputui.services.playback.demo import BOXES, Demo, interpreter_of


def made_up_box(demo: Demo, terminal: Terminal) -> SystemState:
    """Everything that the checks look at; only the terminal is real."""
    box = replace(
        BOXES[0],
        cpu=replace(BOXES[0].cpu, host_cores=96, host_threads=96, usable_threads=96.0, usable_cores=96),
        memory=replace(BOXES[0].memory, host_bytes=1008 * 2**30, usable_bytes=1008 * 2**30),
        gpus=tuple(replace(BOXES[0].gpus[0], index=index) for index in range(demo.gpus)),
    )
    return SystemState(
        machine=box,
        sample=DemoBox(demo.gpus).at(EARLIER_S, time.monotonic_ns()),
        user=USER,
        interpreter=interpreter_of(box),
        found_as="made up",
        passed_over=(),
        clock_source="tsc",
        governor="performance",
        terminal=terminal,
        result_file=demo.db,
        state_directory=demo.db.parent,
        free_bytes={demo.db.parent: 812 * 2**30},
        file_error=None,
        unwritable={},
        missing_home="",
        other_runs=(),
    )
