"""Pictures of the Monitor screen, kept as text in tests/tui/golden and reviewed when they change.

    python tests/makers/monitor_golden.py

regenerates them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path

from monitor_samples import NOT_REPORTED, SECOND, START, process, sample, text_of, with_instances

from gputui.model.absent import Missing
from gputui.model.telemetry import GpuUse, LiveSample, ProcessSample
from gputui.sources.nvml_calls import LIBRARY_NOT_FOUND, nvml_reason
from gputui.tui.monitor.model import MonitorModel
from gputui.tui.monitor.settings import MonitorSettings

FOLDER = Path(__file__).parents[1] / "tui" / "golden"
SIZES = ((80, 24), (120, 40), (200, 50), (40, 10))
COUNTS = (1, 2, 4, 8, 16, 72)
SECONDS = 90
LOST = Missing("the GPU is lost: it fell off the bus; restart the box or take another")
HANGS = Missing("the NVIDIA driver has not answered for 7 s")
NOT_HERE = Missing("it is a number of the host, which a container does not see")


def model(
    make: Callable[[float], LiveSample], *, seconds: int = SECONDS, ascii_only: bool = False
) -> MonitorModel:
    """A monitor that has been open for a while."""
    made = MonitorModel(
        MonitorSettings(),
        usd_per_hour=36.72,
        ascii_only=ascii_only,
        title="runpod · 8x H200 SXM · torch 2.11+cu130",
        user="ana",
        now=lambda: START + seconds * SECOND,
    )
    for second in range(seconds + 1):
        made.add(make(float(second)))
    return made


def picture(made: MonitorModel, width: int, height: int, seconds: float = SECONDS) -> str:
    """Its picture at the end of that while."""
    return text_of(made.lines(width, height, START + round(seconds * SECOND)))


def foreign(pid: int, device: int) -> ProcessSample:
    """A process of the host, seen from a container."""
    return ProcessSample(
        pid=pid,
        uses=(GpuUse(device, pid, "C", 30 * 2**30, NOT_REPORTED),),
        parent_pid=NOT_HERE,
        user=NOT_HERE,
        command=NOT_HERE,
        cpu_pct=NOT_HERE,
        memory_bytes=NOT_HERE,
        elapsed_s=NOT_HERE,
        start_ticks=NOT_HERE,
    )


def faulty(second: float) -> LiveSample:
    """Four GPUs: one hot, one lost, one whose driver hangs, one that reports next to nothing."""
    nothing = dict.fromkeys(
        ("power_w", "energy_mj", "temperature_c", "throttle_bits", "gpm_sm_active_pct", "gpm_tensor_pct"),
        NOT_REPORTED,
    )
    nothing |= dict.fromkeys(
        ("gpm_dram_pct", "sm_clock_mhz", "pcie_generation", "ecc_uncorrected_count"), NOT_REPORTED
    )
    hot = {"throttle_bits": 0x20, "temperature_c": 88, "throttled_thermal_ns": int(second * 0.4 * SECOND)}
    made = sample(
        4,
        second,
        processes=3,
        changes={0: hot, 3: nothing},
        problems={1: LOST, 2: HANGS} if second > 60 else {},
    )
    stale = [
        replace(gpu, t_ns=gpu.t_ns - 7 * SECOND) if gpu.device == 2 and second > 60 else gpu
        for gpu in made.gpus
    ]
    assert not isinstance(made.processes, Missing)
    return replace(made, gpus=tuple(stale), processes=(*made.processes, foreign(31337, 3)))


def no_gpu(second: float) -> LiveSample:
    """A box without a driver."""
    reason = nvml_reason(LIBRARY_NOT_FOUND)
    absent = {"nvml": Missing(reason), "amd": Missing("no amdgpu device in /sys")}
    of_host = tuple(replace(process(number, 1, second), uses=()) for number in range(12))
    return replace(sample(0, second, absent=absent), processes=of_host)


def pictures() -> Iterator[tuple[str, str]]:
    """File names and contents."""
    for count in COUNTS:
        made = model(lambda second, count=count: sample(count, second, processes=40 if count > 2 else 12))  # type: ignore[misc]
        for width, height in SIZES:
            yield f"monitor_{count}gpus_{width}x{height}.txt", picture(made, width, height)
    made = model(faulty)
    for width, height in SIZES:
        yield f"monitor_faults_{width}x{height}.txt", picture(made, width, height)
    made.press("next-gpu")
    made.press("next-gpu")
    made.press("details")
    yield "monitor_details_lost_80x24.txt", picture(made, 80, 24)
    made.press("next-gpu")
    made.press("next-gpu")
    yield "monitor_details_120x40.txt", picture(made, 120, 40)
    made.press("details")
    made.press("metrics")
    yield "monitor_metrics_80x24.txt", picture(made, 80, 24)
    made = model(no_gpu)
    for width, height in SIZES:
        yield f"monitor_no_gpu_{width}x{height}.txt", picture(made, width, height)
    made = model(lambda second: with_instances(sample(2, second), 1, 3))
    yield "monitor_mig_80x24.txt", picture(made, 80, 24)
    yield "monitor_mig_120x40.txt", picture(made, 120, 40)
    made = model(lambda second: with_instances(sample(8, second), 0, 5))
    yield "monitor_mig_8gpus_80x24.txt", picture(made, 80, 24)
    made = model(lambda second: sample(8, second, processes=6), ascii_only=True)
    for key in ("next-gpu", "next-gpu", "next-gpu", "next-gpu", "down", "down"):
        made.press(key)
    yield "monitor_ascii_selected_80x24.txt", picture(made, 80, 24)


def main() -> None:
    """Write all of them, and remove obsolete ones."""
    FOLDER.mkdir(exist_ok=True)
    drawn = dict(pictures())
    for old in FOLDER.glob("monitor_*.txt"):
        old.unlink()
    for name, text in drawn.items():
        (FOLDER / name).write_text(text, encoding="utf-8")


if __name__ == "__main__":
    main()
