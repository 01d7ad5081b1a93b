"""Resource limits of a process, from trees like those of containers and schedulers."""

from __future__ import annotations

from pathlib import Path

import pytest

from gputui.machine.describing import describe_cpu, describe_memory
from gputui.machine.tree import Tree, confinement, parse_cpu_list
from gputui.model.absent import Missing

HOST_MIB = 262144
V2_MOUNT = "30 23 0:26 / /sys/fs/cgroup rw,nosuid shared:9 - cgroup2 cgroup rw\n"


def write(root: Path, files: dict[str, str]) -> None:
    for path, text in files.items():
        target = root / path.lstrip("/")
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_text(text)


def cpuinfo(threads: int, *, cores: int, model: str = "AMD EPYC 9554 64-Core Processor") -> str:
    paragraphs = [
        f"processor\t: {n}\nmodel name\t: {model}\nphysical id\t: 0\ncore id\t\t: {n % cores}\n"
        "flags\t\t: fpu avx2 fma avx512f avx512_bf16 sse4_2\n"
        for n in range(threads)
    ]
    return "\n".join(paragraphs) + "\n"


@pytest.fixture
def box(tmp_path: Path) -> Path:
    write(
        tmp_path,
        {
            "/proc/cpuinfo": cpuinfo(64, cores=32),
            "/proc/meminfo": f"MemTotal:       {HOST_MIB * 1024} kB\nMemFree: 1 kB\n",
            "/proc/self/mountinfo": V2_MOUNT,
            "/proc/self/cgroup": "0::/\n",
        },
    )
    return tmp_path


def tree(root: Path, **environ: str) -> Tree:
    return Tree(root, environ)


ALL = frozenset(range(64))


CG = "/sys/fs/cgroup"
V1_CPU = "32 31 0:29 / /sys/fs/cgroup/cpu rw - cgroup cgroup rw,cpu\n"


@pytest.mark.parametrize(
    ("files", "expected"),
    [
        pytest.param({f"{CG}/cpu.max": "max 100000\n"}, (64.0, 32, "host"), id="no limit"),
        pytest.param(
            {
                "/proc/self/cgroup": "0::/kubepods.slice/pod1/container2\n",
                f"{CG}/kubepods.slice/pod1/container2/cpu.max": "3200000 100000\n",
                f"{CG}/kubepods.slice/pod1/cpu.max": "400000 100000\n",
                f"{CG}/kubepods.slice/cpu.max": "max 100000\n",
            },
            (4.0, 4, "cgroup"),
            id="a tighter quota of a parent",
        ),
        pytest.param({f"{CG}/cpu.max": "350000 100000\n"}, (3.5, 3, "cgroup"), id="half a CPU more"),
        pytest.param({f"{CG}/cpu.max": "50000 100000\n"}, (0.5, 1, "cgroup"), id="less than one"),
        pytest.param(
            {
                "/proc/self/mountinfo": "32 31 0:29 / /cg/cpu,cpuacct rw - cgroup cgroup rw,cpu,cpuacct\n",
                "/proc/self/cgroup": "4:memory:/docker/abc\n1:cpu,cpuacct:/docker/abc\n",
                "/cg/cpu,cpuacct/docker/abc/cpu.cfs_quota_us": "800000\n",
                "/cg/cpu,cpuacct/docker/abc/cpu.cfs_period_us": "100000\n",
                "/cg/cpu,cpuacct/cpu.cfs_quota_us": "-1\n",
                "/cg/cpu,cpuacct/cpu.cfs_period_us": "100000\n",
            },
            (8.0, 8, "cgroup"),
            id="version 1, where the controller is mounted",
        ),
        pytest.param(
            {
                "/proc/self/mountinfo": V1_CPU.replace(" / ", " /docker/abc ", 1),
                "/proc/self/cgroup": "1:cpu:/docker/abc\n",
                f"{CG}/cpu/cpu.cfs_quota_us": "200000\n",
                f"{CG}/cpu/cpu.cfs_period_us": "100000\n",
            },
            (2.0, 2, "cgroup"),
            id="a part of the hierarchy is mounted",
        ),
        pytest.param(
            {
                "/proc/self/mountinfo": V1_CPU,
                "/proc/self/cgroup": "1:cpu:/../../elsewhere\n",
                f"{CG}/cpu/cpu.cfs_quota_us": "200000\n",
                f"{CG}/cpu/cpu.cfs_period_us": "100000\n",
            },
            (2.0, 2, "cgroup"),
            id="a path of another namespace",
        ),
        pytest.param(
            {
                "/proc/self/mountinfo": V1_CPU + "41 31 0:38 / /cg/unified rw - cgroup2 cgroup2 rw\n",
                "/proc/self/cgroup": "1:cpu:/a\n0::/a\n",
                f"{CG}/cpu/a/cpu.cfs_quota_us": "600000\n",
                f"{CG}/cpu/a/cpu.cfs_period_us": "100000\n",
            },
            (6.0, 6, "cgroup"),
            id="a hybrid of both versions",
        ),
        pytest.param({f"{CG}/cpuset.cpus.effective": "0-3,32\n"}, (5.0, 4, "cpuset"), id="a cpuset"),
    ],
)
def test_the_tightest_limit_of_the_processor_counts(
    box: Path, files: dict[str, str], expected: tuple[float, int, str]
) -> None:
    write(box, files)
    cpu = describe_cpu(tree(box), ALL)
    assert (cpu.usable_threads, cpu.usable_cores, cpu.limited_by) == expected
    assert cpu.host_threads == 64


def test_two_threads_of_one_core_are_one_core(box: Path) -> None:
    cpu = describe_cpu(tree(box), frozenset({5, 37}))
    assert (cpu.usable_threads, cpu.usable_cores, cpu.limited_by) == (2.0, 1, "affinity")


@pytest.mark.parametrize(
    ("environ", "threads", "limited_by"),
    [
        ({"RUNPOD_CPU_COUNT": "12"}, 12.0, "RUNPOD_CPU_COUNT"),
        ({"SLURM_JOB_ID": "7", "SLURM_CPUS_PER_TASK": "6"}, 6.0, "SLURM_CPUS_PER_TASK"),
        ({"SLURM_JOB_ID": "7", "SLURM_CPUS_ON_NODE": "16"}, 16.0, "SLURM_CPUS_ON_NODE"),
        ({"SLURM_CPUS_PER_TASK": "6"}, 64.0, "host"),
        ({"CPU_CORES": "3.5", "ACCELERATOR": "t4-small"}, 3.5, "CPU_CORES"),
        ({"CPU_CORES": "3"}, 64.0, "host"),
        ({"RUNPOD_CPU_COUNT": "many"}, 64.0, "host"),
        ({"RUNPOD_CPU_COUNT": "nan"}, 64.0, "host"),
        ({"RUNPOD_CPU_COUNT": "256"}, 64.0, "host"),
    ],
)
def test_a_platforms_hint_caps_only_where_it_is_believable(
    box: Path, environ: dict[str, str], threads: float, limited_by: str
) -> None:
    cpu = describe_cpu(Tree(box, environ), ALL)
    assert (cpu.usable_threads, cpu.limited_by) == (threads, limited_by)


@pytest.mark.parametrize(
    ("files", "expected"),
    [
        ({f"{CG}/memory.max": "max\n"}, (HOST_MIB * 2**20, "host")),
        (
            {
                "/proc/self/cgroup": "0::/job/step\n",
                f"{CG}/job/step/memory.max": "max\n",
                f"{CG}/job/step/memory.high": f"{48 * 2**30}\n",
                f"{CG}/job/memory.max": f"{64 * 2**30}\n",
            },
            (48 * 2**30, "cgroup"),
        ),
        (
            {
                "/proc/self/mountinfo": "33 31 0:30 / /cg/memory rw - cgroup cgroup rw,memory\n",
                "/proc/self/cgroup": "4:memory:/docker/abc\n",
                "/cg/memory/docker/abc/memory.limit_in_bytes": "34359738368\n",
                "/cg/memory/memory.limit_in_bytes": "9223372036854771712\n",
            },
            (34359738368, "cgroup"),
        ),
    ],
    ids=["no limit", "a soft limit below a hard one", "version 1"],
)
def test_memory_is_the_least_of_host_hard_and_soft_limits(
    box: Path, files: dict[str, str], expected: tuple[int, str]
) -> None:
    write(box, files)
    memory = describe_memory(tree(box))
    assert (memory.usable_bytes, memory.limited_by) == expected
    assert memory.host_bytes == HOST_MIB * 2**20


@pytest.mark.parametrize(
    ("environ", "usable_mib", "limited_by"),
    [
        ({"SPACE_ID": "a/b", "MEMORY": "15Gi"}, 15 * 1024, "MEMORY"),
        ({"MEMORY": "15Gi"}, HOST_MIB, "host"),
        ({"SLURM_MEM_PER_NODE": "4096"}, 4096, "SLURM_MEM_PER_NODE"),
        ({"SLURM_MEM_PER_NODE": "0"}, HOST_MIB, "host"),
        ({"SLURM_MEM_PER_NODE": "4G"}, HOST_MIB, "host"),
    ],
)
def test_a_memory_hint_caps_only_where_it_is_believable(
    box: Path, environ: dict[str, str], usable_mib: int, limited_by: str
) -> None:
    memory = describe_memory(Tree(box, environ))
    assert (memory.usable_bytes, memory.limited_by) == (usable_mib * 2**20, limited_by)


def test_the_processor_is_named_with_its_cores_cache_and_features(box: Path) -> None:
    base = "/sys/devices/system/cpu/cpu0/cache"
    write(
        box,
        {
            f"{base}/index0/level": "1\n",
            f"{base}/index0/type": "Data\n",
            f"{base}/index0/size": "32K\n",
            f"{base}/index0/shared_cpu_list": "0,32\n",
            f"{base}/index3/level": "3\n",
            f"{base}/index3/type": "Unified\n",
            f"{base}/index3/size": "32768K\n",
            f"{base}/index3/shared_cpu_list": "0-7,32-39\n",
        },
    )
    cpu = describe_cpu(tree(box), ALL)
    assert cpu.model == "AMD EPYC 9554 64-Core Processor"
    assert (cpu.sockets, cpu.host_cores) == (1, 32)
    assert cpu.last_level_cache_bytes == 4 * 32 * 2**20  # four groups of sixteen threads
    assert cpu.features == ("avx2", "fma", "avx512f", "avx512_bf16")


def test_an_arm_processor_is_named_by_its_part_and_its_cores_come_from_sysfs(tmp_path: Path) -> None:
    paragraph = "processor\t: {}\nFeatures\t: fp asimd sve bf16\nCPU implementer\t: 0x41\nCPU part\t: 0xd4f\n"
    files = {"/proc/cpuinfo": "\n".join(paragraph.format(n) for n in range(4))}
    for n in range(4):
        files[f"/sys/devices/system/cpu/cpu{n}/topology/core_cpus_list"] = f"{n}\n"
        files[f"/sys/devices/system/cpu/cpu{n}/topology/physical_package_id"] = "0\n"
    write(tmp_path, files)
    cpu = describe_cpu(tree(tmp_path), frozenset(range(4)))
    assert cpu.model == "Arm Neoverse V2"
    assert (cpu.sockets, cpu.host_cores, cpu.usable_cores) == (1, 4, 4)
    assert cpu.features == ("neon", "bf16", "sve")


@pytest.mark.parametrize(
    ("files", "model"),
    [
        (
            {"/proc/cpuinfo": "processor : 0\nCPU implementer : 0x99\nCPU part : 0x123\n\nRevision : 1\n"},
            "Arm, implementer 0x99 part 0x123",
        ),
        ({"/proc/cpuinfo": "processor : 0\n", "/proc/device-tree/model": "Jetson Orin\0"}, "Jetson Orin"),
    ],
)
def test_a_processor_without_a_name_is_known_by_its_numbers_or_its_board(
    tmp_path: Path, files: dict[str, str], model: str
) -> None:
    write(tmp_path, files)
    assert describe_cpu(tree(tmp_path), frozenset({0})).model == model


def test_an_empty_tree_gives_reasons_and_no_error(tmp_path: Path) -> None:
    (tmp_path / "proc").mkdir()
    cpu = describe_cpu(tree(tmp_path), frozenset({0}))
    for value in (cpu.model, cpu.sockets, cpu.host_cores, cpu.last_level_cache_bytes):
        assert isinstance(value, Missing)
        assert value.reason
    assert cpu.usable_cores == 1
    assert isinstance(describe_memory(tree(tmp_path)).shm_bytes, Missing)


@pytest.mark.parametrize("content", ["", "garbage", "1 2 3", "0 0", "-1 100000", "100000 0", "\udcff"])
def test_a_damaged_quota_limits_nothing(box: Path, content: str) -> None:
    target = box / "sys/fs/cgroup/cpu.max"
    target.parent.mkdir(parents=True, exist_ok=True)
    target.write_bytes(content.encode(errors="surrogateescape"))
    assert confinement(tree(box)).cpu_limit_cores is None


@pytest.mark.parametrize(
    ("text", "cpus"),
    [("0-3,8", {0, 1, 2, 3, 8}), ("5", {5}), ("", set()), ("x-y", set()), ("3-1", set())],
)
def test_kernel_cpu_lists_are_understood(text: str, cpus: set[int]) -> None:
    assert parse_cpu_list(text) == cpus
