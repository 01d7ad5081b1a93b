"""The control groups of this process, and their limits."""

from __future__ import annotations

import posixpath
from collections.abc import Iterator
from dataclasses import dataclass

from gputui.machine.tree import Mount, Tree
from gputui.model.absent import Missing
from gputui.model.machine import Confinement

_NO_LIMIT_BYTES = 2**62  # v1 writes "no limit" as the largest page-aligned number, about 2^63


@dataclass(frozen=True, slots=True)
class CgroupDirectory:
    """One directory of a cgroup hierarchy."""

    path: str
    version: int


def groups(tree: Tree, controller: str) -> tuple[CgroupDirectory, ...]:
    """This process's group and all its parents up to the mount root, innermost first.

    Of both versions, if both are mounted: a missing file limits nothing. If the path in `/proc/self/cgroup`
    belongs to another namespace, only the mount root remains.
    """
    mounts = tree.mounts()
    found: list[CgroupDirectory] = []
    for line in tree.found_text("/proc/self/cgroup").splitlines():
        number, _, rest = line.partition(":")
        controllers, _, path = rest.partition(":")
        if number == "0" and not controllers:
            version, matching = 2, [m for m in mounts if m.kind == "cgroup2"]
        elif controller in controllers.split(","):
            version = 1
            matching = [m for m in mounts if m.kind == "cgroup" and controller in m.options]
        else:
            continue
        for mount in matching[-1:]:  # a later mount hides an earlier one
            found.extend(CgroupDirectory(directory, version) for directory in _upwards(mount, path))
    return tuple(found)


def _upwards(mount: Mount, path: str) -> Iterator[str]:
    inside = path
    if mount.root != "/" and (path == mount.root or path.startswith(mount.root + "/")):
        inside = path[len(mount.root) :]
    parts = [part for part in inside.split("/") if part]
    if ".." in parts:
        parts = []
    for length in range(len(parts), -1, -1):
        yield posixpath.join(mount.point, *parts[:length])


def _quota(tree: Tree, group: CgroupDirectory) -> float | None:
    if group.version == 2:
        fields = tree.found_text(f"{group.path}/cpu.max").split()
    else:
        fields = [
            tree.found_text(f"{group.path}/cpu.cfs_quota_us"),
            tree.found_text(f"{group.path}/cpu.cfs_period_us"),
        ]
    try:
        quota_us, period_us = (int(field) for field in fields)
    except ValueError:  # "max", empty or missing
        return None
    return quota_us / period_us if quota_us > 0 and period_us > 0 else None


def cpuset(tree: Tree) -> frozenset[int]:
    """Logical CPUs of the innermost cpuset that names any; empty if none does."""
    for group in groups(tree, "cpuset"):
        name = "cpuset.cpus.effective" if group.version == 2 else "cpuset.cpus"
        cpus = parse_cpu_list(tree.found_text(f"{group.path}/{name}"))
        if cpus:
            return cpus
    return frozenset()


def _memory_limit(tree: Tree, group: CgroupDirectory) -> int | None:
    names = ("memory.max", "memory.high") if group.version == 2 else ("memory.limit_in_bytes",)
    limits = [tree.integer(f"{group.path}/{name}") for name in names]
    return min(
        (limit for limit in limits if not isinstance(limit, Missing) and 0 < limit < _NO_LIMIT_BYTES),
        default=None,
    )


def confinement(tree: Tree) -> Confinement:
    """What limits this process group, and the files that count its use.

    Use is read at the level with the least limit: everything that runs below it counts against it.
    """
    cpu_limit, usage_file = None, ""
    for group in groups(tree, "cpu"):
        quota = _quota(tree, group)
        if quota is not None and (cpu_limit is None or quota < cpu_limit):
            name = "cpu.stat" if group.version == 2 else "cpuacct.usage"
            path = f"{group.path}/{name}"
            cpu_limit, usage_file = quota, path if tree.exists(path) else ""
    memory_bytes, memory_directory, version = None, "", 2
    for group in groups(tree, "memory"):
        limit = _memory_limit(tree, group)
        if limit is not None and (memory_bytes is None or limit < memory_bytes):
            memory_bytes, memory_directory, version = limit, group.path, group.version
    return Confinement(
        cpu_limit_cores=cpu_limit,
        cpu_usage_file=usage_file,
        cpus=cpuset(tree),
        memory_limit_bytes=memory_bytes,
        memory_directory=memory_directory,
        version=version,
    )


def parse_cpu_list(text: str) -> frozenset[int]:
    """Numbers of a kernel list such as `0-3,8`; empty if it is malformed."""
    cpus: set[int] = set()
    try:
        for part in text.split(","):
            first, _, last = part.strip().partition("-")
            cpus.update(range(int(first), min(int(last or first), 65535) + 1))
    except ValueError:
        return frozenset()
    return frozenset(cpus)
