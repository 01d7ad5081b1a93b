"""The host's metrics from /proc."""

from __future__ import annotations

from pathlib import Path

import pytest

from gputui.metrics import STORED
from gputui.model.absent import Missing
from gputui.model.machine import Confinement
from gputui.sources.host import HostSource


def write(root: Path, files: dict[str, str]) -> None:
    for path, text in files.items():
        target = root / path.lstrip("/")
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_text(text)


def stat(user: int, idle: int, steal: int) -> str:
    """Of two CPUs, of which only the first has work."""
    return f"cpu  9 0 0 9\ncpu0 {user} 0 0 {idle} 0 0 0 {steal} 5 0\ncpu1 1 0 0 {idle}\nintr 0\n"


@pytest.fixture
def host(tmp_path: Path) -> tuple[HostSource, Path]:
    write(
        tmp_path,
        {
            "/proc/stat": stat(1000, 1000, 0),
            "/proc/meminfo": "MemTotal: 1000 kB\nMemFree: 1 kB\nMemAvailable: 400 kB\n",
            "/proc/loadavg": "1.25 0.5 0.1 1/99 7\n",
            "/proc/cpuinfo": "processor : 0\ncpu MHz\t\t: 2000.0\n\nprocessor : 1\ncpu MHz\t\t: 3000.0\n",
        },
    )
    return HostSource(root=tmp_path), tmp_path


def read(source: HostSource) -> dict[str, float | int]:
    """What runs store of it."""
    values = source.read()
    assert not isinstance(values, Missing)
    return values


def test_processor_time_needs_two_readings(host: tuple[HostSource, Path]) -> None:
    source, root = host
    assert "cpu_busy_pct" not in read(source)
    write(root, {"/proc/stat": stat(1150, 1040, 10)})
    values = read(source)
    assert values["cpu_busy_pct"] == pytest.approx(75.0)
    assert values["cpu_steal_pct"] == pytest.approx(5.0)


def test_memory_load_and_clock_are_read(host: tuple[HostSource, Path]) -> None:
    values = read(host[0])
    assert values["memory_used_bytes"] == 600 * 1024
    assert values["load_1min"] == 1.25
    assert values["cpu_clock_mhz"] == 2500.0


def test_in_a_container_its_own_memory_is_counted_without_caches(host: tuple[HostSource, Path]) -> None:
    root = host[1]
    write(
        root,
        {
            "/cg/memory.current": "500000\n",
            "/cg/memory.stat": "anon 1\ninactive_file 200000\n",
        },
    )
    source = HostSource(lambda: Confinement(memory_limit_bytes=800_000, memory_directory="/cg"), root)
    assert read(source)["memory_used_bytes"] == 300000


def test_without_a_clock_in_cpuinfo_the_frequency_driver_is_read(tmp_path: Path) -> None:
    cpufreq = "/sys/devices/system/cpu/cpu{}/cpufreq/scaling_cur_freq"
    write(
        tmp_path,
        {
            "/proc/stat": "cpu  1 0 0 1\n",
            "/proc/cpuinfo": "",
            cpufreq.format(0): "3000000\n",
            cpufreq.format(1): "1000000\n",
        },
    )
    source = HostSource(root=tmp_path)
    assert read(source)["cpu_clock_mhz"] == 2000.0


def test_one_damaged_file_leaves_the_other_metrics(host: tuple[HostSource, Path]) -> None:
    source, root = host
    write(root, {"/proc/loadavg": "", "/proc/stat": "cpu x y z 1 2\n"})
    assert read(source).keys() == {"memory_used_bytes", "cpu_clock_mhz"}


def test_a_host_that_went_away_is_remembered_as_a_problem(host: tuple[HostSource, Path]) -> None:
    source, root = host
    for name in ("stat", "meminfo", "loadavg", "cpuinfo"):
        (root / "proc" / name).unlink()
    assert isinstance(source.read(), Missing)


def test_without_proc_psutil_answers(tmp_path: Path) -> None:
    pytest.importorskip("psutil")
    source = HostSource(root=tmp_path)
    values = read(source)
    assert values["memory_used_bytes"] > 0
    assert values.keys() <= {metric.key for metric in STORED if metric.scope == "host"}
