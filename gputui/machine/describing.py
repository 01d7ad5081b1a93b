"""Everything known about this machine, its CPUs first, in one value."""

from __future__ import annotations

import math
import os
import platform
import re
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path

from gputui.machine.gpus import describe_gpus
from gputui.machine.identity import identities_of
from gputui.machine.layers import find_layers, instance_type, region
from gputui.machine.tree import Tree, confinement, parse_cpu_list
from gputui.model.absent import Missing
from gputui.model.machine import Cpu, Machine, Memory
from gputui.sources.base import integer, meminfo

FEATURES = (
    "avx", "avx2", "f16c", "fma", "avx512f", "avx512bw", "avx512vl", "avx512_vnni", "avx512_bf16",
    "avx512_fp16", "avx_vnni", "amx_tile", "amx_bf16", "amx_int8", "amx_fp16",
    "neon", "asimdhp", "asimddp", "bf16", "i8mm", "sve", "sve2", "sme",
)  # fmt: skip
"""Instruction sets that matter for matrix work, as the kernel spells them."""

_ARM_PARTS = {
    ("0x41", "0xd0c"): "Arm Neoverse N1",
    ("0x41", "0xd40"): "Arm Neoverse V1",
    ("0x41", "0xd49"): "Arm Neoverse N2",
    ("0x41", "0xd4f"): "Arm Neoverse V2",
    ("0x41", "0xd83"): "Arm Neoverse V3AE",
    ("0x41", "0xd84"): "Arm Neoverse V3",
    ("0x41", "0xd8e"): "Arm Neoverse N3",
    ("0xc0", "0xac3"): "Ampere-1",
    ("0xc0", "0xac4"): "Ampere-1a",
}  # Linux arch/arm64/include/asm/cputype.h

Processor = Mapping[str, str]
"""One paragraph of /proc/cpuinfo."""


def describe_cpu(tree: Tree, affinity: frozenset[int] | None = None) -> Cpu:
    """The processor, as far as it is visible; `affinity` None asks the operating system."""
    processors, rest = _read_cpuinfo(tree)
    host_threads = len(processors) or os.cpu_count() or 1
    if affinity is None:
        affinity = frozenset(os.sched_getaffinity(0) if hasattr(os, "sched_getaffinity") else ())
    usable, usable_threads, limited_by = _usable(tree, host_threads, affinity)
    cores = _cores(tree, processors, range(host_threads))
    usable_cores = _cores(tree, processors, sorted(usable))
    most = len(usable) if isinstance(usable_cores, Missing) else usable_cores
    return Cpu(
        model=_model(tree, processors, rest),
        sockets=_sockets(tree, processors, host_threads),
        host_cores=cores,
        host_threads=host_threads,
        usable_threads=usable_threads,
        usable_cores=max(1, min(most, math.floor(usable_threads))),
        limited_by=limited_by,
        last_level_cache_bytes=_last_level_cache(tree, host_threads),
        features=_features(processors),
    )


def _usable(tree: Tree, host_threads: int, affinity: frozenset[int]) -> tuple[frozenset[int], float, str]:
    """The CPUs allowed, how many CPUs' worth of time they give, and what limits it most."""
    usable = affinity or frozenset(range(host_threads))
    threads, limited_by = float(host_threads), "host"
    if len(usable) < threads:
        threads, limited_by = float(len(usable)), "affinity"
    limits = confinement(tree)
    in_cpuset, quota = limits.cpus, limits.cpu_limit_cores
    if in_cpuset & usable:
        usable &= in_cpuset
    if in_cpuset and len(usable) <= threads and len(usable) < host_threads and len(in_cpuset) == len(usable):
        threads, limited_by = float(len(usable)), "cpuset"
    if quota is not None and quota < threads:
        threads, limited_by = quota, "cgroup"
    for name, hint in _hints(tree.environ):
        if hint < threads:
            threads, limited_by = hint, name
    return usable, threads, limited_by


def _hints(environ: Mapping[str, str]) -> list[tuple[str, float]]:
    names = ["RUNPOD_CPU_COUNT"]
    if "SPACE_ID" in environ or "ACCELERATOR" in environ:  # CPU_CORES alone could be anyone's variable
        names.append("CPU_CORES")
    if "SLURM_JOB_ID" in environ:
        names.append("SLURM_CPUS_PER_TASK" if "SLURM_CPUS_PER_TASK" in environ else "SLURM_CPUS_ON_NODE")
    hints: list[tuple[str, float]] = []
    for name in names:
        with suppress(ValueError):
            hints.append((name, float(environ.get(name, ""))))
    return [(name, count) for name, count in hints if 0 < count < math.inf]


def _read_cpuinfo(tree: Tree) -> tuple[tuple[Processor, ...], Processor]:
    """Paragraphs that describe a logical CPU, and the keys of all others together."""
    processors: list[Processor] = []
    rest: dict[str, str] = {}
    for paragraph in tree.found_text("/proc/cpuinfo").split("\n\n"):
        fields: dict[str, str] = {}
        for line in paragraph.splitlines():
            name, separator, value = line.partition(":")
            if separator:
                fields[name.strip()] = value.strip()
        if fields.get("processor", "").isdigit():
            processors.append(fields)
        else:
            rest.update(fields)
    return tuple(processors), rest


def _model(tree: Tree, processors: Sequence[Processor], rest: Processor) -> str | Missing:
    first = processors[0] if processors else {}
    for name in (first.get("model name"), rest.get("Model"), rest.get("Hardware")):
        if name:
            return " ".join(name.split())[:100]
    implementer, part = first.get("CPU implementer"), first.get("CPU part")
    if implementer and part:
        return _ARM_PARTS.get((implementer, part), f"Arm, implementer {implementer} part {part}")[:100]
    board = tree.found_text("/proc/device-tree/model")
    if board:
        return board[:100]
    if not tree.exists("/proc") and platform.system() != "Linux":
        return platform.processor() or Missing("this system does not tell the processor's name")
    return Missing("/proc/cpuinfo does not name the processor")


def _core_of(tree: Tree, processors: Mapping[int, Processor], cpu: int) -> str | None:
    processor = processors.get(cpu, {})
    if "core id" in processor:
        return f"{processor.get('physical id', '0')}:{processor['core id']}"
    topology = f"/sys/devices/system/cpu/cpu{cpu}/topology"
    return tree.found_text(f"{topology}/core_cpus_list") or tree.found_text(
        f"{topology}/thread_siblings_list"
    )


def _cores(tree: Tree, processors: Sequence[Processor], cpus: Sequence[int]) -> int | Missing:
    """Number of physical cores that these logical CPUs belong to."""
    by_number = {int(processor["processor"]): processor for processor in processors}
    cores = {core for cpu in cpus if (core := _core_of(tree, by_number, cpu))}
    return len(cores) if cores else Missing("the system does not tell cores from threads")


def _sockets(tree: Tree, processors: Sequence[Processor], host_threads: int) -> int | Missing:
    packages = {processor["physical id"] for processor in processors if "physical id" in processor}
    if not packages:
        base = "/sys/devices/system/cpu/cpu"
        packages = {tree.found_text(f"{base}{n}/topology/physical_package_id") for n in range(host_threads)}
        packages -= {"", "-1"}
    return len(packages) if packages else Missing("the system does not tell sockets")


def _last_level_cache(tree: Tree, host_threads: int) -> int | Missing:
    """Total size of all instances of the outermost cache."""
    best: tuple[int, int] | None = None
    for index in range(8):
        base = f"/sys/devices/system/cpu/cpu0/cache/index{index}"
        level = integer(tree.found_text(f"{base}/level"))
        size = _parse_size(tree.found_text(f"{base}/size"))
        if level is None or size is None or tree.found_text(f"{base}/type") == "Instruction":
            continue
        sharers = len(parse_cpu_list(tree.found_text(f"{base}/shared_cpu_list"))) or 1
        best = max(best or (0, 0), (level, size * max(1, round(host_threads / sharers))))
    return best[1] if best else Missing("the system does not tell cache sizes")


def _parse_size(text: str) -> int | None:
    scale = {"K": 2**10, "M": 2**20, "G": 2**30}.get(text[-1:], 1)
    digits = text.rstrip("KMG")
    return int(digits) * scale if digits.isdigit() and int(digits) > 0 else None


def _features(processors: Sequence[Processor]) -> tuple[str, ...]:
    if not processors:
        return ()
    flags = set((processors[0].get("flags") or processors[0].get("Features") or "").split())
    if "asimd" in flags:
        flags.add("neon")
    return tuple(feature for feature in FEATURES if feature in flags)


def describe_machine(
    *,
    name: str = "",
    hash_key: bytes = b"",
    root: Path = Path("/"),
    environ: Mapping[str, str] | None = None,
    affinity: frozenset[int] | None = None,
) -> Machine:
    """Everything known about this machine without network or root, in well under a second.

    `name`: what the user calls it, instead of what it is known by. `hash_key`: random bytes of this user,
    for boxes that nothing else tells apart. `root`, `environ` and `affinity` (logical CPUs) replace the
    system's. NVIDIA GPUs always come from the driver, whose library stays open.
    """
    tree = Tree(root, os.environ if environ is None else environ)
    driver = describe_gpus(root)
    layers = find_layers(tree)
    driver_version = driver.driver_version
    if isinstance(driver_version, Missing):
        driver_version = _driver_version(tree)
    identities = identities_of(tree, layers, driver.uuids, name, hash_key)
    return Machine(
        machine_id=identities[0].id,
        cpu=describe_cpu(tree, affinity),
        memory=describe_memory(tree),
        gpus=driver.gpus,
        gpus_absent=driver.absent,
        layers=layers,
        instance_type=instance_type(tree, layers),
        region=region(tree, layers),
        os_name=_os_name(tree),
        kernel=_kernel(tree),
        libc=_libc(tree),
        driver_version=driver_version,
        cuda_driver_version=driver.cuda_driver_version,
        identities=identities,
    )


def describe_memory(tree: Tree) -> Memory:
    """The least of the host's memory, the cgroup limits and what the platform says was rented."""
    host = _host_bytes(tree)
    usable, limited_by = host, "host"
    limit = confinement(tree).memory_limit_bytes
    if limit is not None and (limit < usable or not host):
        usable, limited_by = limit, "cgroup"
    for name, hint in _memory_hints(tree.environ):
        if hint < usable or not usable:
            usable, limited_by = hint, name
    return Memory(host or usable, usable, limited_by, _shm_bytes(tree))


def _host_bytes(tree: Tree) -> int:
    if found := meminfo(tree.found_text("/proc/meminfo")).get("MemTotal"):
        return found
    try:
        return os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    except (AttributeError, ValueError, OSError):
        return 0


def _memory_hints(environ: Mapping[str, str]) -> list[tuple[str, int]]:
    hints: list[tuple[str, int]] = []
    if "SPACE_ID" in environ or "ACCELERATOR" in environ:  # MEMORY alone could be anyone's variable
        found = re.fullmatch(r"(\d+(?:\.\d+)?)Gi", environ.get("MEMORY", ""))
        if found:
            hints.append(("MEMORY", int(float(found[1]) * 2**30)))
    for name, scale in (("SLURM_MEM_PER_NODE", 2**20), ("RUNPOD_MEM_GB", 2**30)):
        text = environ.get(name, "")
        if text.isascii() and text.isdigit() and len(text) < 12:
            hints.append((name, int(text) * scale))
    return [(name, hint) for name, hint in hints if hint > 0]  # with Slurm, 0 means the whole node


def _shm_bytes(tree: Tree) -> int | Missing:
    try:
        found = os.statvfs(tree.at("/dev/shm"))
    except (OSError, AttributeError):
        return Missing("there is no /dev/shm")
    return found.f_blocks * found.f_frsize


def _os_name(tree: Tree) -> str | Missing:
    """The name the system gives itself, such as `Ubuntu 24.04.3 LTS`."""
    for path in ("/etc/os-release", "/usr/lib/os-release"):
        found = re.search(r'^PRETTY_NAME=(["\']?)(.*)\1\s*$', tree.found_text(path), re.MULTILINE)
        if found and found[2]:
            return found[2][:80]
    if platform.system() == "Darwin":
        return f"macOS {platform.mac_ver()[0]}".strip()
    return Missing("there is no /etc/os-release")


def _kernel(tree: Tree) -> str | Missing:
    """Release number without the builder's suffix, which can name a person or a company."""
    release = tree.found_text("/proc/sys/kernel/osrelease") or platform.release()
    found = re.match(r"\d+(?:\.\d+)+(?:-\d+(?:\.\d+)*)?(?![\w])", release) or re.match(
        r"\d+(?:\.\d+)+", release
    )
    return found[0] if found else Missing("the kernel's release has no number")


def _libc(tree: Tree) -> str | Missing:
    """Name and version of the C library: `glibc 2.39`."""
    try:
        version = os.confstr("CS_GNU_LIBC_VERSION")
    except (ValueError, OSError, AttributeError):
        version = None
    if version:
        return version
    if any(tree.exists(f"/lib/ld-musl-{arch}.so.1") for arch in ("x86_64", "aarch64")):
        return "musl"
    return Missing("the C library does not tell its version")


def _driver_version(tree: Tree) -> str | Missing:
    """Version of the NVIDIA kernel module, read without its library."""
    text = tree.text("/proc/driver/nvidia/version")
    if isinstance(text, Missing):
        return Missing("no NVIDIA driver is loaded")
    found = re.search(r"Kernel Module(?: for \S+)?\s+(\d+(?:\.\d+)+)", text)
    return found[1] if found else Missing("/proc/driver/nvidia/version names no version")
