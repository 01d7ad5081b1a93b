"""The pictures of the Monitor screen, on made-up GPUs: the same bytes each time."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace

from terminal_svg import svg_of

from gputui.model.absent import Missing
from gputui.model.telemetry import DeviceSample, LiveSample
from gputui.services.playback.demo_gpus import CAUTION, USD_PER_HOUR_AND_GPU, USER, DemoBox
from gputui.tui.monitor.model import MonitorModel
from gputui.tui.monitor.settings import MonitorSettings
from gputui.tui.shell.registry import screens_line

_HANGS_AFTER_S = 20.0
SECONDS = 330
"""Long enough to fill the charts of five minutes, the longest shown."""


@dataclass(frozen=True, slots=True)
class _Picture:
    """One picture: its name without the ending, its size, and what was typed before."""

    name: str
    size: tuple[int, int]
    gpus: int = 8
    keys: tuple[str, ...] = ()
    """Ids of actions."""
    is_ascii: bool = False
    is_bad_day: bool = False
    zoom_min: int = 5


_PICTURES: tuple[_Picture, ...] = (
    _Picture("monitor-1gpu-80x24", (80, 24), 1),
    _Picture("monitor-1gpu-120x40", (120, 40), 1),
    _Picture("monitor-8gpu-80x24", (80, 24)),
    _Picture("monitor-8gpu-120x40", (120, 40)),
    _Picture("monitor-8gpu-200x50", (200, 50)),
    _Picture("monitor-72gpu-200x50", (200, 50), 72),
    _Picture("monitor-details-120x40", (120, 40), keys=("next-gpu", "details")),
    _Picture("monitor-metrics-80x24", (80, 24), keys=("metrics", "down", "down")),
    _Picture("monitor-ascii-80x24", (80, 24), is_ascii=True),
    _Picture("monitor-no-gpu-80x24", (80, 24), 0),
    _Picture("monitor-bad-day-120x40", (120, 40), 4, keys=("next-gpu",), is_bad_day=True, zoom_min=10),
)


def pictures() -> Iterator[tuple[str, str]]:
    """Names of files, and what belongs into them."""
    for picture in _PICTURES:
        yield f"{picture.name}.svg", _drawn(picture)


class _BadDay(DemoBox):
    """Four GPUs with many problems: one is hot, one hangs, one is lost, one has memory errors."""

    capped, lost = None, 2

    def gpu(self, device: int, second: float, t_ns: int) -> DeviceSample:
        if device == 1 and second >= _HANGS_AFTER_S:
            silent_s = second - _HANGS_AFTER_S
            why = Missing(f"the NVIDIA driver has not answered for {silent_s:.0f} s")
            return replace(super().gpu(device, _HANGS_AFTER_S, t_ns - round(silent_s * 1e9)), problem=why)
        found = super().gpu(device, second, t_ns)
        heat = {
            "temperature_c": 88,
            "sm_clock_mhz": 1200 + round(second) % 7 * 8,
            "throttle_bits": 0x20,
            "throttled_thermal_ns": round(0.34 * second * 1e9),
        }
        errors = {"ecc_uncorrected_count": 3}
        return replace(found, values={**found.values, **({0: heat, 3: errors}.get(device, {}))})


def watched(box: DemoBox, seconds: int) -> Iterator[LiveSample]:
    """One sample per second, by a clock that starts at one hour; the last one at `seconds`."""
    for second in range(seconds + 1):
        yield box.at(second, (3600 + second) * 10**9)


def _drawn(picture: _Picture) -> str:
    box = (_BadDay if picture.is_bad_day else DemoBox)(picture.gpus)
    now_ns = 0
    model = MonitorModel(
        MonitorSettings(zoom_min=picture.zoom_min),
        usd_per_hour=picture.gpus * USD_PER_HOUR_AND_GPU or None,
        ascii_only=picture.is_ascii,
        title=f"{picture.gpus or 'no'} made-up GPU{'' if picture.gpus == 1 else 's'}",
        caution=CAUTION,
        user=USER,
        screens=screens_line("monitor"),
        now=lambda: now_ns,
    )
    for sample in watched(box, SECONDS):
        model.add(sample)
        now_ns = sample.t_ns
    for key in picture.keys:
        model.press(key)
    width, height = picture.size
    lines = model.lines(width, height, now_ns)
    return svg_of(lines, width, f"{CAUTION}: the monitor of gputui, {picture.name.removeprefix('monitor-')}")
