"""The host's processor and memory, from /proc; through psutil where there is none."""

from __future__ import annotations

import os
import re
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar  # psutil may be absent

from gputui.model.absent import Missing
from gputui.model.telemetry import HOST, Reading

_QUICK_CLOCK_MAX_CPUS = 16
"""The clock is read per CPU; on larger hosts that is too expensive ten times a second."""


@dataclass(frozen=True, slots=True)
class _Ticks:
    """Processor time since boot, all CPUs together."""

    busy: int
    steal: int
    total: int


class HostSource:
    """Processor time, memory, load and clock of the host, or of the container if it is confined."""

    NAME: ClassVar[str] = "host"

    def __init__(self, root: Path = Path("/")) -> None:
        self._root = root
        self._psutil: Any = None
        self._cpus = os.cpu_count() or 1
        self._last: _Ticks | None = None
        self._psutil_started = False
        self._clock_files: tuple[Path, ...] = ()
        self._problem: Missing | None = None

    def probe(self) -> Missing | None:
        """Find out how the host can be read."""
        stat = self._text("proc/stat")
        if stat:
            self._cpus = len(re.findall(r"^cpu\d+ ", stat, re.MULTILINE)) or self._cpus
            if "cpu MHz" not in self._text("proc/cpuinfo"):
                pattern = "sys/devices/system/cpu/cpu[0-9]*/cpufreq/scaling_cur_freq"
                self._clock_files = tuple(self._root.glob(pattern))
            return None
        try:
            import psutil
        except ImportError:
            return Missing("this system has no /proc, and this Python no psutil")
        self._psutil = psutil
        return None

    def devices(self) -> tuple[int, ...]:
        return (HOST,)

    def read(self, device: int, *, full: bool) -> Reading:
        """The host's metrics; processor time needs an earlier full reading."""
        if self._psutil is not None:
            values = self._with_psutil(full)
        else:
            values = self._clock() if full or self._cpus <= _QUICK_CLOCK_MAX_CPUS else {}
            if full:
                values |= self._processor_time() | self._memory() | self._load()
        self._problem = Missing("/proc cannot be read") if full and not values else None
        return Reading(device, time.monotonic_ns(), values)

    def problem(self, device: int) -> Missing | None:
        """Why nothing of the host could be read, if so."""
        return self._problem

    def _text(self, path: str) -> str:
        try:
            return (self._root / path).read_text(errors="replace")
        except OSError:
            return ""

    def _processor_time(self) -> dict[str, float | int]:
        ticks = _parse_ticks(self._text("proc/stat"))
        last, self._last = self._last, ticks
        if ticks is None or last is None or ticks.total <= last.total:
            return {}
        scale = 100 * self._cpus / (ticks.total - last.total)
        # The kernel may take back a tick of idle or stolen time.
        return {
            "cpu_busy_pct": max(0, ticks.busy - last.busy) * scale,
            "cpu_steal_pct": max(0, ticks.steal - last.steal) * scale,
        }

    def _memory(self) -> dict[str, float | int]:
        meminfo = self._text("proc/meminfo")
        total, available = (_kib(meminfo, name) for name in ("MemTotal", "MemAvailable"))
        confined = self._confined_memory(total)
        if confined is not None:
            return {"memory_used_bytes": confined}
        if total is None or available is None:
            return {}
        return {"memory_used_bytes": max(0, total - available)}

    def _confined_memory(self, host_bytes: int | None) -> int | None:
        """Memory used by the container, without page cache; None outside a container.

        At the mount root these files exist, or limit something, only inside a container.
        """
        version_2 = "sys/fs/cgroup"
        used = _integer(self._text(f"{version_2}/memory.current"))
        cache = re.search(r"^inactive_file (\d+)", self._text(f"{version_2}/memory.stat"), re.MULTILINE)
        if used is None:
            version_1 = "sys/fs/cgroup/memory"
            limit = _integer(self._text(f"{version_1}/memory.limit_in_bytes"))
            if limit is None or host_bytes is None or limit >= host_bytes:
                return None
            used = _integer(self._text(f"{version_1}/memory.usage_in_bytes"))
            stat = self._text(f"{version_1}/memory.stat")
            cache = re.search(r"^total_inactive_file (\d+)", stat, re.MULTILINE)
        return None if used is None else max(0, used - (int(cache[1]) if cache else 0))

    def _load(self) -> dict[str, float | int]:
        try:
            return {"load_1min": float(self._text("proc/loadavg").split()[0])}
        except (IndexError, ValueError):
            return {}

    def _clock(self) -> dict[str, float | int]:
        if self._clock_files:
            kilohertz = [
                _integer(self._text(str(path.relative_to(self._root)))) for path in self._clock_files
            ]
            megahertz = [value / 1000 for value in kilohertz if value is not None]
        else:
            lines = re.findall(r"^cpu MHz\s*:\s*([0-9.]+)", self._text("proc/cpuinfo"), re.MULTILINE)
            megahertz = [float(value) for value in lines]
        return {"cpu_clock_mhz": sum(megahertz) / len(megahertz)} if megahertz else {}

    def _with_psutil(self, full: bool) -> dict[str, float | int]:
        if not full:
            return {}
        memory = self._psutil.virtual_memory()
        values: dict[str, float | int] = {"memory_used_bytes": memory.total - memory.available}
        busy = self._psutil.cpu_percent(interval=None) * self._cpus
        if self._psutil_started:  # psutil's first answer covers no interval
            values["cpu_busy_pct"] = busy
        self._psutil_started = True
        if hasattr(os, "getloadavg"):
            values["load_1min"] = os.getloadavg()[0]
        return values


def _parse_ticks(stat: str) -> _Ticks | None:
    # proc_stat(5): user nice system idle iowait irq softirq steal; guest time is part of user.
    fields = stat.partition("\n")[0].split()
    if len(fields) < 5 or fields[0] != "cpu":
        return None
    try:
        times = [int(field) for field in fields[1:9]]
    except ValueError:
        return None
    times += [0] * (8 - len(times))
    idle, steal = times[3] + times[4], times[7]
    return _Ticks(sum(times) - idle - steal, steal, sum(times))


def _kib(meminfo: str, name: str) -> int | None:
    found = re.search(rf"^{name}:\s+(\d+) kB", meminfo, re.MULTILINE)
    return int(found[1]) * 1024 if found else None


def _integer(text: str) -> int | None:
    stripped = text.strip()
    return int(stripped) if stripped.isascii() and stripped.isdigit() else None
