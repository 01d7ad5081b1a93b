"""What a recorded program got of its box."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from gputui.model.absent import Missing
from gputui.model.result import Run
from gputui.model.units import counted, format_percent, format_seconds
from gputui.services.results.labels import is_recording
from gputui.services.results.throughput import waited_share
from gputui.store.reading import TelemetrySummary


@dataclass(frozen=True, slots=True)
class RecordedUse:
    """A program from its start to its end."""

    cpu_s: float
    """User and system, of all its threads and the processes that it started."""
    waited_share: float | Missing
    """Of the time of its threads, what they waited for a core that others had; 0 to 1."""
    others_cores: float | Missing
    """What all other programs used, on average."""
    cores: int
    gpu_busy_pct: Mapping[int, float | Missing]
    """Mean share of the time with a kernel running, whosever, by the GPU's number."""

    @property
    def text(self) -> str:
        """`15.0 s of CPU, waited 53 % of the time for a core, other programs took 1.6 of 2 cores`."""
        parts = [f"{format_seconds(self.cpu_s)} of CPU"]
        if not isinstance(self.waited_share, Missing):
            parts.append(f"waited {format_percent(self.waited_share)} of the time for a core")
        if not isinstance(self.others_cores, Missing):
            parts.append(f"other programs took {self.others_cores:.1f} of {counted(self.cores, 'core')}")
        known = {gpu: pct for gpu, pct in self.gpu_busy_pct.items() if not isinstance(pct, Missing)}
        return ", ".join((*parts, *(f"GPU {gpu} busy {pct:.0f} % of it" for gpu, pct in known.items())))


def recorded_use(run: Run, telemetry: TelemetrySummary) -> RecordedUse | Missing:
    """What the program of a recording got; Missing of any other run, and where no program ran to an end."""
    blocks = [block for case in run.cases for one in case.measurements for block in one.blocks]
    if not is_recording(run) or len(blocks) != 1 or blocks[0].cpu_ns is None:
        return Missing("it is no recording of a program")
    used_cores, host = blocks[0].cpu_ns / blocks[0].wall_ns, telemetry.host
    busy_pct = host if isinstance(host, Missing) else host.cpu_busy_mean_pct
    return RecordedUse(
        cpu_s=blocks[0].cpu_ns * 1e-9,
        waited_share=waited_share(run.cases[0]),
        others_cores=busy_pct if isinstance(busy_pct, Missing) else max(busy_pct / 100 - used_cores, 0.0),
        cores=run.summary.machine.cpu.usable_cores,
        gpu_busy_pct={gpu.device_index: gpu.busy_mean_pct for gpu in telemetry.devices},
    )
