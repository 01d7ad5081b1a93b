"""The host, live and for runs: read from trees made after proc(5), within its resource limits."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from pathlib import Path

import pytest

from gputui.machine.tree import Tree, confinement
from gputui.metrics import STORED
from gputui.model.absent import Missing
from gputui.model.machine import FREE, Confinement
from gputui.model.telemetry import AT_SECOND_READING, HOST, Value
from gputui.sources.host import HostSource

GIB = 2**30
MEMINFO = f"""MemTotal:       {64 * 2**20} kB
MemFree:        {8 * 2**20} kB
MemAvailable:   {48 * 2**20} kB
SwapTotal:      {4 * 2**20} kB
SwapFree:       {3 * 2**20} kB
"""
NETWORK = """Inter-|   Receive                                                |  Transmit
 face |bytes    packets errs drop fifo frame compressed multicast|bytes    packets errs drop fifo
    lo: 900000    1    0    0    0     0          0         0 900000    1    0    0    0     0  0 0
  eth0:{:>7}    1    0    0    0     0          0         0 {:>6}    1    0    0    0     0  0 0
"""
DISKS = """   7       0 loop0 9 0 900 0 0 0 0 0 0 0 0
 259       0 nvme0n1 9 0 {} 0 9 0 {} 0 0 0 0
 259       1 nvme0n1p1 9 0 {} 0 9 0 {} 0 0 0 0
 253       0 dm-0 9 0 {} 0 9 0 {} 0 0 0 0
"""


class Box:
    """A file tree like that of a host with four CPUs, and its reader."""

    def __init__(self, root: Path, confinement: Confinement = FREE) -> None:
        self.root = root
        self.now_ns = 10**12
        self.confinement = confinement
        self.write(
            {
                "/proc/cpuinfo": "processor : 0\nmodel name\t: Xeon  8481C\n",
                "/proc/stat": stat([(0, 0)] * 4),
                "/proc/meminfo": MEMINFO,
                "/proc/loadavg": "1.50 1.00 0.50 1/100 1\n",
                "/proc/net/dev": NETWORK.format(0, 0),
                "/proc/diskstats": DISKS.format(*[0] * 6),
            }
        )
        self.host = HostSource(lambda: self.confinement, root, lambda: self.now_ns)

    def write(self, files: Mapping[str, str]) -> None:
        for name, text in files.items():
            path = self.root / name.lstrip("/")
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text)

    def values(self) -> Mapping[str, Value]:
        return self.host.sample().values

    def values_after(self, seconds: float, files: Mapping[str, str]) -> Mapping[str, Value]:
        """After a first reading, this time, and these changes."""
        self.values()
        self.now_ns += round(seconds * 1e9)
        self.write(files)
        return self.values()


def stat(busy_and_idle: list[tuple[int, int]], steal: int = 0) -> str:
    lines = [f"cpu{n} {busy} 0 0 {idle} 0 0 0 {steal} 0 0" for n, (busy, idle) in enumerate(busy_and_idle)]
    return "cpu  1 2 3 4 5 6 7 8 0 0\n" + "\n".join(lines) + "\nintr 5 4 3\nctxt 9\n"


@pytest.fixture
def box(tmp_path: Path) -> Box:
    return Box(tmp_path)


def test_the_first_reading_has_all_but_the_rates(box: Box) -> None:
    sample = box.host.sample()
    assert (sample.device, sample.source, sample.problem) == (HOST, "host", None)
    assert {key for key, value in sample.values.items() if value == AT_SECOND_READING} == {
        "cpu_busy_pct",
        "cpu_core_pct",
        "network_rx_bytes_per_s",
        "network_tx_bytes_per_s",
        "disk_read_bytes_per_s",
        "disk_write_bytes_per_s",
    }
    known = {key: value for key, value in sample.values.items() if value != AT_SECOND_READING}
    assert known == {
        "name": "Xeon 8481C",
        "cpu_limit_cores": 4.0,
        "memory_used_bytes": 16 * GIB,
        "memory_total_bytes": 64 * GIB,
        "swap_used_bytes": GIB,
        "swap_total_bytes": 4 * GIB,
        "load_1min": 1.5,
    }


@pytest.mark.parametrize(
    ("before", "after", "each", "together"),
    [
        ([(0, 0)] * 4, stat([(100, 0), (50, 50), (0, 100), (25, 75)]), "100,50,0,25", 175),
        ([(0, 0)] * 4, stat([(25, 25)] * 4, steal=50), "25,25,25,25", 100),
        ([(50, 50)] * 4, stat([(49, 151)] * 4), "0,0,0,0", 0),
    ],
    ids=["each for itself", "time that the hypervisor took", "ticks that the kernel takes back"],
)
def test_cpus_are_reported_individually_and_together_by_what_they_did_for_this_host(
    box: Box, before: list[tuple[int, int]], after: str, each: str, together: float
) -> None:
    box.write({"/proc/stat": stat(before)})
    values = box.values_after(1, {"/proc/stat": after})
    assert values["cpu_core_pct"] == each
    assert values["cpu_busy_pct"] == pytest.approx(together)


def test_the_network_is_all_interfaces_but_the_loop_and_one_that_comes_later_counts_from_then(
    box: Box,
) -> None:
    late = NETWORK + "  wg0: 777777    1    0    0    0     0          0         0 0 1 0 0 0 0 0 0\n"
    values = box.values_after(2, {"/proc/net/dev": late.format(4_000_000, 2_000)})
    assert values["network_rx_bytes_per_s"] == pytest.approx(2_000_000)
    assert values["network_tx_bytes_per_s"] == pytest.approx(1_000)


def test_bridges_are_not_counted_beside_the_hardware_they_lead_to(box: Box) -> None:
    box.write({"/sys/class/net/eth0/device/vendor": "", "/sys/class/net/docker0/mtu": ""})
    both = NETWORK + "docker0:{:>7}    1    0    0    0     0          0         0 {:>6} 1 0 0 0 0 0 0\n"
    box.write({"/proc/net/dev": both.format(0, 0, 0, 0)})
    values = box.values_after(1, {"/proc/net/dev": both.format(500, 0, 500, 0)})
    assert values["network_rx_bytes_per_s"] == pytest.approx(500)


@pytest.mark.parametrize("in_sys", [(), ("/sys/block/nvme0n1/device/model", "/sys/block/dm-0/size")])
def test_disks_are_counted_once_whether_sys_is_there_or_not(box: Box, in_sys: tuple[str, ...]) -> None:
    box.write(dict.fromkeys(in_sys, ""))
    values = box.values_after(20, {"/proc/diskstats": DISKS.format(*[20_000, 40_000] * 3)})
    assert values["disk_read_bytes_per_s"] == pytest.approx(512_000)
    assert values["disk_write_bytes_per_s"] == pytest.approx(1_024_000)


@pytest.mark.parametrize(
    ("names", "is_disk"),
    [
        (("sda", "vda", "nvme1n1", "mmcblk0"), True),
        (("sda1", "xvdf3", "nvme1n1p14", "mmcblk0p2", "md127", "zram0", "sr0"), False),
    ],
)
def test_partitions_and_other_non_disks_are_recognized_by_their_names(
    tmp_path: Path, names: tuple[str, ...], is_disk: bool
) -> None:
    for name in names:
        box = Box(tmp_path / name)
        box.write({"/proc/diskstats": f"8 0 {name} 0 0 0 0 0 0 0 0\n"})
        values = box.values_after(1, {"/proc/diskstats": f"8 0 {name} 0 0 2 0 0 0 0 0\n"})
        expected = pytest.approx(1024) if is_disk else Missing("/proc/diskstats names no disk")
        assert values["disk_read_bytes_per_s"] == expected, name


def test_with_a_quota_the_control_groups_own_use_counts(tmp_path: Path) -> None:
    box = Box(tmp_path / "2", Confinement(cpu_limit_cores=1.5, cpu_usage_file="/sys/fs/cgroup/cpu.stat"))
    box.write({"/sys/fs/cgroup/cpu.stat": "usage_usec 1000000\nuser_usec 1\n"})
    used = {"/sys/fs/cgroup/cpu.stat": "usage_usec 3500000\n", "/proc/stat": stat([(200, 0)] * 4)}
    values = box.values_after(2, used)
    assert values["cpu_busy_pct"] == pytest.approx(125)
    assert values["cpu_limit_cores"] == 1.5
    older = Box(tmp_path / "1", Confinement(cpu_limit_cores=2, cpu_usage_file="/cg/cpuacct.usage"))
    older.write({"/cg/cpuacct.usage": "0\n"})
    values = older.values_after(1, {"/cg/cpuacct.usage": "750000000\n"})
    assert values["cpu_busy_pct"] == pytest.approx(75), "it counts nanoseconds"


def test_with_a_cpuset_only_its_cpus_are_shown(tmp_path: Path) -> None:
    box = Box(tmp_path, Confinement(cpus=frozenset({1, 3})))
    values = box.values_after(1, {"/proc/stat": stat([(100, 0), (50, 50), (100, 0), (0, 100)])})
    assert values["cpu_core_pct"] == "50,0"
    assert values["cpu_limit_cores"] == 2.0
    assert values["cpu_busy_pct"] == pytest.approx(50)


def test_memory_is_that_of_the_control_group_without_the_cache_that_can_go(tmp_path: Path) -> None:
    box = Box(tmp_path, Confinement(memory_limit_bytes=8 * GIB, memory_directory="/sys/fs/cgroup"))
    assert box.values()["memory_used_bytes"] == Missing("the control group does not tell what it uses")
    used = {"current": f"{5 * GIB}\n", "stat": f"anon 1\ninactive_file {2 * GIB}\n"}
    box.write({f"/sys/fs/cgroup/memory.{name}": text for name, text in used.items()})
    values = box.values()
    assert (values["memory_used_bytes"], values["memory_total_bytes"]) == (3 * GIB, 8 * GIB)
    box = Box(tmp_path, Confinement(memory_limit_bytes=100 * GIB, memory_directory="/sys/fs/cgroup"))
    assert box.values()["memory_total_bytes"] == 64 * GIB, "a limit above the host's memory"


def test_limits_that_are_changed_are_seen_after_a_while(box: Box) -> None:
    box.values()
    box.confinement = Confinement(cpu_limit_cores=1.0)
    assert box.values_after(11, {})["cpu_limit_cores"] == 1.0


def test_a_damaged_file_has_a_reason_and_leaves_the_others(box: Box) -> None:
    box.write({"/proc/meminfo": "nonsense\n", "/proc/loadavg": "\n"})
    values = box.values_after(1, {"/proc/net/dev": "", "/proc/diskstats": "", "/proc/stat": stat([(9, 1)])})
    assert {key for key, value in values.items() if not isinstance(value, Missing)} == {
        "name",
        "cpu_busy_pct",
        "cpu_core_pct",
        "cpu_limit_cores",
    }
    box.write({"/proc/meminfo": MEMINFO, "/proc/stat": "cpu x y z 1 2\n"})
    assert stored(box.host).keys() == {"memory_used_bytes"}, "in a run"


def test_a_host_that_cannot_be_read_has_a_problem(box: Box) -> None:
    for file in (box.root / "proc").glob("*"):
        if file.is_file():
            file.unlink()
    assert box.host.sample().problem == box.host.read() == Missing("/proc/stat cannot be read")


def test_without_proc_psutil_answers(tmp_path: Path) -> None:
    host = HostSource(root=tmp_path)
    host.sample()
    sample = host.sample()
    assert sample.problem is None
    assert not isinstance(sample.values["cpu_busy_pct"], Missing)
    values = stored(host)
    assert values["memory_used_bytes"] > 0
    assert isinstance(sample.values["memory_total_bytes"], int)
    assert values.keys() <= {metric.key for metric in STORED if metric.scope == "host"}


def stored(host: HostSource) -> dict[str, float | int]:
    """What runs store of it."""
    values = host.read()
    assert not isinstance(values, Missing)
    return values


def test_runs_store_processor_memory_load_and_clock(box: Box) -> None:
    assert stored(box.host) == {"memory_used_bytes": 16 * GIB, "load_1min": 1.5}
    box.now_ns += 10**9
    clocks = "processor : 0\ncpu MHz\t\t: 2000.0\n\nprocessor : 1\ncpu MHz\t\t: 3000.0\n"
    box.write({"/proc/cpuinfo": clocks, "/proc/stat": stat([(70, 20), (0, 100)], steal=10)})
    values = stored(box.host)
    assert values["cpu_clock_mhz"] == 2500.0
    assert values["cpu_busy_pct"] == pytest.approx(70.0)
    assert values["cpu_steal_pct"] == pytest.approx(10.0 + 100 * 10 / 110)


def test_without_a_clock_in_cpuinfo_the_frequency_driver_is_read(box: Box) -> None:
    cpufreq = "/sys/devices/system/cpu/cpu{}/cpufreq/scaling_cur_freq"
    box.write({cpufreq.format(0): "3000000\n", cpufreq.format(1): "1000000\n"})
    assert stored(box.host)["cpu_clock_mhz"] == 2000.0


def test_this_very_host_can_be_read() -> None:
    host = HostSource(lambda: confinement(Tree(Path("/"), {})))
    host.sample()
    values = host.sample().values
    if sys.platform == "linux":
        assert not isinstance(values["memory_used_bytes"], Missing)
    assert not isinstance(values["cpu_limit_cores"], Missing)


# Resource limits


def tree(root: Path, files: Mapping[str, str]) -> Tree:
    for name, text in files.items():
        path = root / name.lstrip("/")
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    return Tree(root, {})


V2_MOUNT = "30 1 0:26 / /sys/fs/cgroup rw - cgroup2 cgroup2 rw\n"


def test_use_is_read_where_the_least_limit_stands(tmp_path: Path) -> None:
    found = confinement(
        tree(
            tmp_path,
            {
                "/proc/self/cgroup": "0::/pod/session\n",
                "/proc/self/mountinfo": V2_MOUNT,
                "/sys/fs/cgroup/pod/cpu.max": "250000 100000\n",
                "/sys/fs/cgroup/pod/cpu.stat": "usage_usec 5\n",
                "/sys/fs/cgroup/pod/memory.max": f"{8 * GIB}\n",
                "/sys/fs/cgroup/pod/session/cpu.max": "max 100000\n",
                "/sys/fs/cgroup/pod/session/cpuset.cpus.effective": "0-3\n",
                "/sys/fs/cgroup/pod/session/memory.max": "max\n",
            },
        )
    )
    assert found == Confinement(
        cpu_limit_cores=2.5,
        cpu_usage_file="/sys/fs/cgroup/pod/cpu.stat",
        cpus=frozenset({0, 1, 2, 3}),
        memory_limit_bytes=8 * GIB,
        memory_directory="/sys/fs/cgroup/pod",
        version=2,
    )


def test_the_older_hierarchy_has_files_of_its_own(tmp_path: Path) -> None:
    found = confinement(
        tree(
            tmp_path,
            {
                "/proc/self/cgroup": "4:memory:/\n2:cpu,cpuacct:/\n",
                "/proc/self/mountinfo": (
                    "31 1 0:27 / /cg/cpu rw - cgroup cgroup rw,cpu,cpuacct\n"
                    "32 1 0:28 / /cg/memory rw - cgroup cgroup rw,memory\n"
                ),
                "/cg/cpu/cpu.cfs_quota_us": "100000\n",
                "/cg/cpu/cpu.cfs_period_us": "100000\n",
                "/cg/cpu/cpuacct.usage": "5\n",
                "/cg/memory/memory.limit_in_bytes": f"{GIB}\n",
            },
        )
    )
    assert (found.cpu_limit_cores, found.cpu_usage_file) == (1.0, "/cg/cpu/cpuacct.usage")
    assert (found.memory_limit_bytes, found.memory_directory, found.version) == (GIB, "/cg/memory", 1)


def test_without_limits_one_is_free(tmp_path: Path) -> None:
    assert confinement(tree(tmp_path, {})) == FREE
