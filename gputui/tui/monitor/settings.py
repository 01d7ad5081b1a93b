"""How the monitor is to look, and its file."""

from __future__ import annotations

from dataclasses import dataclass

from gputui.tui.monitor.metrics import DEFAULT_METRICS

INTERVALS_S: tuple[float, ...] = (0.2, 0.5, 1.0, 2.0, 5.0, 10.0)
ZOOMS_MIN: tuple[int, ...] = (1, 2, 5, 10, 30, 60)
MEMORY_UNITS: tuple[str, ...] = ("GiB", "GB")
TEMPERATURE_UNITS: tuple[str, ...] = ("C", "F")


@dataclass(frozen=True, slots=True)
class MonitorSettings:
    """What is remembered from one day to the next."""

    interval_s: float = 1.0
    """0.2 to 10."""
    zoom_min: int = 1
    """One of ZOOMS_MIN."""
    metrics: tuple[str, ...] = DEFAULT_METRICS
    """Ids of METRICS, most important first."""
    memory_unit: str = "GiB"
    temperature_unit: str = "C"
    show_processes: bool = True
    sort: str = "gpu-mem"
    """Id of a column of the processes."""
    descending: bool = True
    tree: bool = False
