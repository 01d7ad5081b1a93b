"""The host's processor and memory, from /proc; through psutil where there is none."""

from __future__ import annotations

import os
import re
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar  # psutil may be absent

from gputui.model.absent import Missing
from gputui.model.confinement import FREE, Confinement
from gputui.model.telemetry import HOST, Reading
from gputui.sources.host_live import confined_memory, cpu_used_ns, integer
from gputui.sources.small_files import load_1min, meminfo, text_of

_QUICK_CLOCK_MAX_CPUS = 16
"""The clock is read per CPU; on larger hosts that is too expensive ten times a second."""


@dataclass(frozen=True, slots=True)
class _Ticks:
    """Processor time since boot, CPUs together."""

    busy: int
    steal: int
    total: int


class HostSource:
    """Processor time, memory, load and clock of the host, or of the part of it that a container may use."""

    NAME: ClassVar[str] = "host"

    def __init__(self, root: Path = Path("/"), confinement: Confinement = FREE) -> None:
        self._root = root
        self._confinement = confinement
        self._psutil: Any = None
        self._cpus = os.cpu_count() or 1
        self._last: tuple[_Ticks | None, tuple[int, int | None]] | None = None
        """Ticks, and at which instant how much time the control group had used."""
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
                values |= self._processor_time() | self._memory()
                load = load_1min(self._text("proc/loadavg"))
                values |= {} if load is None else {"load_1min": load}
        self._problem = Missing("/proc cannot be read") if full and not values else None
        return Reading(device, time.monotonic_ns(), values)

    def problem(self, device: int) -> Missing | None:
        """Why nothing of the host could be read, if so."""
        return self._problem

    def _text(self, path: str) -> str:
        return text_of(f"{self._root}/{path.lstrip('/')}")

    def _processor_time(self) -> dict[str, float | int]:
        cpus = self._confinement.cpus
        ticks = _parse_ticks(self._text("proc/stat"), cpus)
        now = time.monotonic_ns(), cpu_used_ns(self._confinement, self._text)
        last, self._last = self._last, (ticks, now)
        if ticks is None or last is None or last[0] is None or ticks.total <= last[0].total:
            return {}
        scale = 100 * (len(cpus) or self._cpus) / (ticks.total - last[0].total)
        # The kernel may take back a tick of idle or stolen time.
        busy_pct = max(0, ticks.busy - last[0].busy) * scale
        if now[1] is not None and last[1][1] is not None and now[0] > last[1][0]:
            busy_pct = 100 * max(0, now[1] - last[1][1]) / (now[0] - last[1][0])
        return {"cpu_busy_pct": busy_pct, "cpu_steal_pct": max(0, ticks.steal - last[0].steal) * scale}

    def _memory(self) -> dict[str, float | int]:
        found, limit = meminfo(self._text("proc/meminfo")), self._confinement.memory_limit_bytes
        total, available = found.get("MemTotal"), found.get("MemAvailable")
        used = None if total is None or available is None else max(0, total - available)
        if limit is not None and (total is None or limit < total):
            used = confined_memory(self._confinement, self._text)
        return {} if used is None else {"memory_used_bytes": used}

    def _clock(self) -> dict[str, float | int]:
        if self._clock_files:
            kilohertz = [integer(self._text(str(path.relative_to(self._root)))) for path in self._clock_files]
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


def _parse_ticks(stat: str, cpus: frozenset[int]) -> _Ticks | None:
    """Of these CPUs; without any of all."""
    # proc_stat(5): user nice system idle iowait irq softirq steal; guest time is part of user.
    names = {f"cpu{cpu}" for cpu in cpus} or {"cpu"}
    lines = [fields for line in stat.splitlines() if (fields := line.split()) and fields[0] in names]
    try:
        times = [sum(map(int, column)) for column in zip(*(line[1:9] for line in lines), strict=False)]
    except ValueError:
        return None
    if len(times) < 4:
        return None
    times += [0] * (8 - len(times))
    idle, steal = times[3] + times[4], times[7]
    return _Ticks(sum(times) - idle - steal, steal, sum(times))
