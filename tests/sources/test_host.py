"""The host's metrics from /proc."""

from __future__ import annotations

from pathlib import Path

import pytest

from gputui.metrics import STORED
from gputui.model.absent import Missing
from gputui.model.machine import Confinement
from gputui.model.telemetry import HOST
from gputui.recording.sampler import sources_of_runs
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
    source = HostSource(root=tmp_path)
    assert source.open() is None
    return source, tmp_path


def test_processor_time_needs_two_readings(host: tuple[HostSource, Path]) -> None:
    source, root = host
    assert source.devices() == (HOST,)
    assert "cpu_busy_pct" not in source.read(HOST, full=True).values
    write(root, {"/proc/stat": stat(1150, 1040, 10)})
    values = source.read(HOST, full=True).values
    assert values["cpu_busy_pct"] == pytest.approx(75.0)
    assert values["cpu_steal_pct"] == pytest.approx(5.0)


def test_memory_load_and_clock_are_read(host: tuple[HostSource, Path]) -> None:
    values = host[0].read(HOST, full=True).values
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
    assert source.read(HOST, full=True).values["memory_used_bytes"] == 300000


def test_the_quick_reading_is_the_clock_alone(host: tuple[HostSource, Path]) -> None:
    assert host[0].read(HOST, full=False).values.keys() == {"cpu_clock_mhz"}


def test_the_quick_reading_asks_nothing_of_a_large_host(tmp_path: Path) -> None:
    cpus = "".join(f"cpu{n} 1 0 0 1\n" for n in range(128))
    write(tmp_path, {"/proc/stat": "cpu  1 0 0 1\n" + cpus, "/proc/cpuinfo": "cpu MHz : 2000\n"})
    source = HostSource(root=tmp_path)
    assert source.open() is None
    assert source.read(HOST, full=False).values == {}
    assert source.read(HOST, full=True).values["cpu_clock_mhz"] == 2000.0


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
    source.open()
    assert source.read(HOST, full=True).values["cpu_clock_mhz"] == 2000.0


def test_one_damaged_file_leaves_the_other_metrics(host: tuple[HostSource, Path]) -> None:
    source, root = host
    write(root, {"/proc/loadavg": "", "/proc/stat": "cpu x y z 1 2\n"})
    assert source.read(HOST, full=True).values.keys() == {"memory_used_bytes", "cpu_clock_mhz"}
    assert source.problem(HOST) is None


def test_a_host_that_went_away_is_remembered_as_a_problem(host: tuple[HostSource, Path]) -> None:
    source, root = host
    for name in ("stat", "meminfo", "loadavg", "cpuinfo"):
        (root / "proc" / name).unlink()
    assert source.read(HOST, full=True).values == {}
    assert isinstance(source.problem(HOST), Missing)


def test_without_proc_psutil_answers(tmp_path: Path) -> None:
    pytest.importorskip("psutil")
    source = HostSource(root=tmp_path)
    assert source.open() is None
    values = source.read(HOST, full=True).values
    assert values["memory_used_bytes"] > 0
    assert values.keys() <= {metric.key for metric in STORED if metric.scope == "host"}


def test_source_names_are_unique() -> None:
    names = [source.NAME for source in sources_of_runs()]
    assert len(set(names)) == len(names)
