"""The host, or the part of it that a container may use: for the live view, and what of it runs store.

From /proc; through psutil where there is none.
"""

from __future__ import annotations

import os
import re
import time
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import NamedTuple

from gputui.model.absent import Missing
from gputui.model.machine import FREE, Confinement
from gputui.model.telemetry import AT_SECOND_READING, HOST, DeviceSample, Value
from gputui.sources.base import integer, load_1min, meminfo, text_of

_NAME = "host"
_LIMITS_KEPT_NS = 10 * 10**9
"""How long limits, network interfaces and disks are cached: they seldom change."""
_SECTOR_BYTES = 512  # in /proc/diskstats, whatever the disk uses
_NO_DISK = re.compile(r"loop|ram|zram|dm-|md|sr|fd|nbd")
_PARTITION = re.compile(r"(?:nvme\d+n\d+|mmcblk\d+)p\d+|(?:[shv]|xv)d[a-z]+\d+")
_RATE_KEYS = (
    "network_rx_bytes_per_s",
    "network_tx_bytes_per_s",
    "disk_read_bytes_per_s",
    "disk_write_bytes_per_s",
)

_OF_RUNS = ("cpu_busy_pct", "memory_used_bytes", "load_1min")
"""What runs store of a live reading."""

Pair = tuple[int, int]
"""Bytes in and out since boot."""


class _Ticks(NamedTuple):
    """Time of one CPU since boot."""

    busy: int
    stolen: int
    """By the hypervisor, for others: we could not use the CPU."""
    total: int


class _Counters(NamedTuple):
    """Counters at one instant."""

    t_ns: int
    cpu_used_ns: int | None
    """Of the control group with the quota."""
    cpus: Mapping[int, _Ticks]
    """By logical CPU."""
    network: Mapping[str, Pair] | Missing
    disks: Mapping[str, Pair] | Missing


class HostSource:
    """The host, or the part of it that a container may use, live and for runs. For one thread."""

    def __init__(
        self,
        confinement: Callable[[], Confinement] = lambda: FREE,
        root: Path = Path("/"),
        clock: Callable[[], int] = time.monotonic_ns,
    ) -> None:
        self._ask_confinement = confinement
        self._root = str(root)
        self._clock = clock
        self._confinement = FREE
        self._limits_read_ns: int | None = None
        self._interfaces: frozenset[str] = frozenset()
        """Those with hardware behind them; empty if none is known to have any."""
        self._disks: frozenset[str] = frozenset()
        self._name: str | Missing | None = None
        self._last: _Counters | None = None
        self._has_proc = Path(root, "proc", "stat").exists()
        self._stolen_pct: float | None = None
        """Time taken by the hypervisor between the last two readings, 100 for each logical CPU."""
        self._clock_files: tuple[Path, ...] | None = None
        """Read where /proc/cpuinfo has no clock."""

    def read(self) -> dict[str, float | int] | Missing:
        """What runs store of it, or why nothing can be read; processor time needs an earlier reading."""
        sample = self.sample()
        told = ((key, sample.values.get(key)) for key in _OF_RUNS)
        values = {key: value for key, value in told if isinstance(value, int | float)} | self._clock_mhz()
        if self._stolen_pct is not None:
            values["cpu_steal_pct"] = self._stolen_pct
        return values or sample.problem or Missing("/proc cannot be read")

    def _clock_mhz(self) -> dict[str, float]:
        """The mean of all CPUs; where /proc/cpuinfo has none, as the frequency driver tells it."""
        text = "" if self._clock_files else self._text("/proc/cpuinfo")
        megahertz = [float(mhz) for mhz in re.findall(r"^cpu MHz\s*:\s*([0-9.]+)", text, re.MULTILINE)]
        if not megahertz:
            if self._clock_files is None:
                pattern = "sys/devices/system/cpu/cpu[0-9]*/cpufreq/scaling_cur_freq"
                self._clock_files = tuple(Path(self._root).glob(pattern))
            kilohertz = [integer(text_of(str(path))) for path in self._clock_files]
            megahertz = [value / 1000 for value in kilohertz if value is not None]
        return {"cpu_clock_mhz": sum(megahertz) / len(megahertz)} if megahertz else {}

    def sample(self) -> DeviceSample:
        """The host now; rates cover the time since the last call."""
        if not self._has_proc:
            return self._with_psutil()
        now_ns = self._clock()
        if self._limits_read_ns is None or now_ns - self._limits_read_ns >= _LIMITS_KEPT_NS:
            self._limits_read_ns = now_ns
            self._confinement = self._ask_confinement()
            self._interfaces = self._with_device("/sys/class/net")
            self._disks = self._with_device("/sys/block")
        stat = self._text("/proc/stat")
        counters = _Counters(
            now_ns,
            cpu_used_ns(self._confinement, self._text),
            ticks_of_cpus(stat, self._confinement.cpus),
            self._network(),
            self._disk_bytes(),
        )
        last, self._last = self._last, counters
        values: dict[str, Value] = {"name": self._cpu_name()}
        values |= self._processor(last, counters)
        values |= self._memory()
        values["load_1min"] = load_1min(self._text("/proc/loadavg"))
        values |= _rates(last, counters)
        problem = None if stat else Missing("/proc/stat cannot be read")
        return DeviceSample(HOST, _NAME, self._clock(), values, problem=problem)

    def _with_device(self, directory: str) -> frozenset[str]:
        found = Path(self._root + directory).glob("*/device")
        return frozenset(device.parent.name for device in found)

    def _text(self, path: str) -> str:
        return text_of(self._root + path)

    def _cpu_name(self) -> str | Missing:
        if self._name is None:
            found = re.search(r"^(?:model name|Model)\s*: (.+)", self._text("/proc/cpuinfo"), re.MULTILINE)
            self._name = " ".join(found[1].split()) if found else Missing("/proc/cpuinfo does not name it")
        return self._name

    # Processor

    def _processor(self, last: _Counters | None, now: _Counters) -> dict[str, Value]:
        quota, visible = self._confinement.cpu_limit_cores, float(len(now.cpus))
        limit: Value = min(quota or visible, visible) or Missing("/proc/stat cannot be read")
        if last is None:
            return {
                "cpu_busy_pct": AT_SECOND_READING,
                "cpu_limit_cores": limit,
                "cpu_core_pct": AT_SECOND_READING,
            }
        pairs = [(last.cpus.get(cpu, ticks), ticks) for cpu, ticks in now.cpus.items()]
        shares = [_share(b.busy, n.busy, n.total - b.total) for b, n in pairs]
        stolen = [_share(b.stolen, n.stolen, n.total - b.total) for b, n in pairs]
        self._stolen_pct = sum(stolen) if stolen else None
        passed_ns = now.t_ns - last.t_ns
        used: Value = sum(shares) if shares else Missing("/proc/stat cannot be read")
        if now.cpu_used_ns is not None and last.cpu_used_ns is not None and passed_ns > 0:
            used = 100 * max(now.cpu_used_ns - last.cpu_used_ns, 0) / passed_ns
        return {
            "cpu_busy_pct": used,
            "cpu_limit_cores": limit,
            "cpu_core_pct": ",".join(f"{share:.0f}" for share in shares),
        }

    # Memory

    def _memory(self) -> dict[str, Value]:
        found = meminfo(self._text("/proc/meminfo"))
        unread = Missing("/proc/meminfo cannot be read")
        total, available = found.get("MemTotal"), found.get("MemAvailable")
        values: dict[str, Value] = {
            "memory_used_bytes": unread if total is None or available is None else max(0, total - available),
            "memory_total_bytes": unread if total is None else total,
            "swap_used_bytes": max(0, found["SwapTotal"] - found["SwapFree"])
            if {"SwapTotal", "SwapFree"} <= found.keys()
            else unread,
            "swap_total_bytes": found.get("SwapTotal", unread),
        }
        limit = self._confinement.memory_limit_bytes
        if limit is not None and (total is None or limit < total):
            values["memory_total_bytes"] = limit
            used = confined_memory(self._confinement, self._text)
            if used is not None:
                values["memory_used_bytes"] = used
            else:
                values["memory_used_bytes"] = Missing("the control group does not tell what it uses")
        return values

    # Network and disks

    def _network(self) -> Mapping[str, Pair] | Missing:
        # proc_net(5): name: rx bytes, packets and six more; tx bytes, packets and six more.
        found: dict[str, Pair] = {}
        for line in self._text("/proc/net/dev").splitlines()[2:]:
            name, _, rest = line.rpartition(":")
            name, fields = name.strip(), rest.split()
            if name == "lo" or len(fields) < 9 or (self._interfaces and name not in self._interfaces):
                continue
            found[name] = (int(fields[0]), int(fields[8]))
        return found or Missing("/proc/net/dev names no network interface")

    def _disk_bytes(self) -> Mapping[str, Pair] | Missing:
        # iostats of the kernel: major minor name reads merged sectors ms writes merged sectors ms ...
        found: dict[str, Pair] = {}
        for line in self._text("/proc/diskstats").splitlines():
            fields = line.split()
            if len(fields) < 10 or not self._is_disk(fields[2]):
                continue
            found[fields[2]] = (int(fields[5]) * _SECTOR_BYTES, int(fields[9]) * _SECTOR_BYTES)
        return found or Missing("/proc/diskstats names no disk")

    def _is_disk(self, name: str) -> bool:
        if self._disks:
            return name in self._disks and not _NO_DISK.match(name)
        return not _NO_DISK.match(name) and not _PARTITION.fullmatch(name)

    # Without /proc

    def _with_psutil(self) -> DeviceSample:
        try:
            import psutil  # needed only without /proc, and its import takes 10 ms
        except ImportError:
            problem = Missing("this system has no /proc, and this Python no psutil")
            return DeviceSample(HOST, _NAME, self._clock(), {}, problem=problem)
        shares = psutil.cpu_percent(interval=None, percpu=True)
        network, disks = psutil.net_io_counters(pernic=True), psutil.disk_io_counters(perdisk=True) or {}
        counters = _Counters(
            self._clock(),
            None,
            {},
            {n: (c.bytes_recv, c.bytes_sent) for n, c in network.items() if not re.match(r"lo\d*$", n)},
            {n: (c.read_bytes, c.write_bytes) for n, c in disks.items()},
        )
        last, self._last = self._last, counters
        memory, swap = psutil.virtual_memory(), psutil.swap_memory()
        values: dict[str, Value] = {
            "name": os.uname().machine if hasattr(os, "uname") else "this computer",
            # psutil's first answer covers no interval.
            "cpu_busy_pct": AT_SECOND_READING if last is None else sum(shares),
            "cpu_limit_cores": float(len(shares)),
            "cpu_core_pct": AT_SECOND_READING
            if last is None
            else ",".join(f"{share:.0f}" for share in shares),
            "memory_used_bytes": memory.total - memory.available,
            "memory_total_bytes": memory.total,
            "swap_used_bytes": swap.used,
            "swap_total_bytes": swap.total,
            "load_1min": os.getloadavg()[0]
            if hasattr(os, "getloadavg")
            else Missing("this system does not tell its load"),
        }
        return DeviceSample(HOST, _NAME, counters.t_ns, values | _rates(last, counters))


def cpu_used_ns(confinement: Confinement, text: Callable[[str], str]) -> int | None:
    """Processor time of the control group with the quota; None without one. `text` reads a file."""
    path = confinement.cpu_usage_file
    if not path.endswith("cpu.stat"):
        return integer(text(path)) if path else None
    found = re.search(r"^usage_usec (\d+)", text(path), re.MULTILINE)
    return int(found[1]) * 1000 if found else None


def confined_memory(confinement: Confinement, text: Callable[[str], str]) -> int | None:
    """Memory used by the control group with the limit, without the page cache that can be dropped."""
    directory, is_new = confinement.memory_directory, confinement.version == 2
    used = integer(text(f"{directory}/memory.{'current' if is_new else 'usage_in_bytes'}"))
    key = "inactive_file" if is_new else "total_inactive_file"
    cache = re.search(rf"^{key} (\d+)", text(f"{directory}/memory.stat"), re.MULTILINE)
    return None if used is None else max(0, used - (int(cache[1]) if cache else 0))


def _share(before: int, now: int, passed: int) -> float:
    """Per cent of the ticks that passed; the kernel may take back a tick of idle time."""
    return 100 * min(max(now - before, 0) / passed, 1) if passed > 0 else 0.0


def ticks_of_cpus(stat: str, wanted: frozenset[int]) -> dict[int, _Ticks]:
    # proc_stat(5): cpuN user nice system idle iowait irq softirq steal; guest time is part of user.
    found: dict[int, _Ticks] = {}
    for line in stat.splitlines()[1:]:
        if not line.startswith("cpu"):
            break
        name, *fields = line.split()[:9]
        number = int(name[3:])
        if wanted and number not in wanted:
            continue
        times = [int(field) for field in fields]
        total, stolen = sum(times), sum(times[7:8])
        found[number] = _Ticks(total - times[3] - sum(times[4:5]) - stolen, stolen, total)
    return found


def _rates(last: _Counters | None, now: _Counters) -> dict[str, Value]:
    if last is None:
        return dict.fromkeys(_RATE_KEYS, AT_SECOND_READING)
    seconds = (now.t_ns - last.t_ns) / 1e9
    network = _rate(last.network, now.network, seconds)
    disks = _rate(last.disks, now.disks, seconds)
    return dict(zip(_RATE_KEYS, (*network, *disks), strict=True))


def _rate(
    before: Mapping[str, Pair] | Missing, now: Mapping[str, Pair] | Missing, seconds: float
) -> tuple[Value, Value]:
    """Bytes per second in and out; counters that appeared or were reset in between count from the next
    reading."""
    if isinstance(now, Missing):
        return now, now
    if isinstance(before, Missing) or seconds <= 0:
        return AT_SECOND_READING, AT_SECOND_READING
    kept = [(before[name], pair) for name, pair in now.items() if name in before]

    def per_second(deltas: Iterable[int]) -> float:
        return sum(max(0, delta) for delta in deltas) / seconds

    return per_second(n[0] - b[0] for b, n in kept), per_second(n[1] - b[1] for b, n in kept)
