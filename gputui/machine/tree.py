"""Reads small system files below a root that tests can replace, and control groups from them."""

from __future__ import annotations

import posixpath
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

from gputui.model.absent import Missing
from gputui.model.machine import Confinement
from gputui.sources.base import integer

_MAX_BYTES = 2 * 2**20
"""/proc/cpuinfo of 512 threads is below 1 MiB, and Linux refuses to read 4 MiB of a file in /proc/sys."""


@dataclass(frozen=True, slots=True)
class Mount:
    """One line of the mount table."""

    point: str
    root: str
    """Which part of the file system is mounted; `/` for all of it."""
    kind: str
    """File system type, such as `tmpfs`."""
    options: tuple[str, ...]
    """Of the file system; for cgroup v1 the controllers are among them."""


@dataclass(frozen=True, slots=True)
class Tree:
    """The files and the environment that a description is made from."""

    root: Path
    environ: Mapping[str, str]

    def at(self, path: str) -> Path:
        """The path below the root."""
        return self.root / path.lstrip("/")

    def text(self, path: str) -> str | Missing:
        """Content of a small file, stripped; undecodable bytes are replaced."""
        try:
            with self.at(path).open("rb") as file:
                raw = file.read(_MAX_BYTES)
        except FileNotFoundError:
            return Missing(f"{path} is not there")
        except PermissionError:
            return Missing(f"no permission to read {path}")
        except (OSError, ValueError):
            return Missing(f"{path} cannot be read")
        return raw.decode(errors="replace").strip("\0 \t\r\n")

    def found_text(self, path: str) -> str:
        """Content of a small file; empty if there is none."""
        text = self.text(path)
        return "" if isinstance(text, Missing) else text

    def exists(self, path: str) -> bool:
        """Whether something exists at this path; False if permission is denied."""
        try:
            return self.at(path).exists()
        except OSError:
            return False

    def changed_s(self, path: str) -> float | Missing:
        """When a file's content was last changed, in UTC epoch seconds."""
        try:
            return self.at(path).stat().st_mtime
        except OSError:
            return Missing(f"{path} is not there")

    def mounts(self) -> tuple[Mount, ...]:
        """The mount table of this process, in order; empty if it cannot be read."""
        return tuple(
            mount
            for line in self.found_text("/proc/self/mountinfo").splitlines()
            if (mount := _parse_mount(line)) is not None
        )


def _parse_mount(line: str) -> Mount | None:
    # proc(5): id parent major:minor root point options [optional...] - type source super-options
    head, separator, tail = line.partition(" - ")
    fields, rest = head.split(), tail.split()
    if not separator or len(fields) < 6 or not rest:
        return None
    options = rest[2].split(",") if len(rest) > 2 else []
    return Mount(_unescape(fields[4]), _unescape(fields[3]), rest[0], tuple(options))


def _unescape(text: str) -> str:
    for escaped, plain in (("\\040", " "), ("\\011", "\t"), ("\\012", "\n"), ("\\134", "\\")):
        text = text.replace(escaped, plain)
    return text


_NO_LIMIT_BYTES = 2**62  # v1 writes "no limit" as the largest page-aligned number, about 2^63


def _groups(tree: Tree, controller: str) -> Iterator[tuple[str, int]]:
    """Directory and version of this process's group and of all its parents up to the mount root, innermost
    first.

    Of both versions, if both are mounted: a missing file limits nothing. If the path in `/proc/self/cgroup`
    belongs to another namespace, only the mount root remains.
    """
    mounts = tree.mounts()
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
            for directory in _upwards(mount, path):
                yield directory, version


def _upwards(mount: Mount, path: str) -> Iterator[str]:
    inside = path
    if mount.root != "/" and (path == mount.root or path.startswith(mount.root + "/")):
        inside = path[len(mount.root) :]
    parts = [part for part in inside.split("/") if part]
    if ".." in parts:
        parts = []
    for length in range(len(parts), -1, -1):
        yield posixpath.join(mount.point, *parts[:length])


def _quota(tree: Tree, directory: str, version: int) -> float | None:
    names = ("cpu.max",) if version == 2 else ("cpu.cfs_quota_us", "cpu.cfs_period_us")
    fields = " ".join(tree.found_text(f"{directory}/{name}") for name in names).split()
    try:
        quota_us, period_us = (int(field) for field in fields)
    except ValueError:  # "max", empty or missing
        return None
    return quota_us / period_us if quota_us > 0 and period_us > 0 else None


def _cpuset(tree: Tree) -> frozenset[int]:
    """Logical CPUs of the innermost cpuset that names any; empty if none does."""
    for directory, version in _groups(tree, "cpuset"):
        name = "cpuset.cpus.effective" if version == 2 else "cpuset.cpus"
        if cpus := parse_cpu_list(tree.found_text(f"{directory}/{name}")):
            return cpus
    return frozenset()


def _memory_limit(tree: Tree, directory: str, version: int) -> int | None:
    names = ("memory.max", "memory.high") if version == 2 else ("memory.limit_in_bytes",)
    limits = [integer(tree.found_text(f"{directory}/{name}")) for name in names]
    return min((limit for limit in limits if limit is not None and 0 < limit < _NO_LIMIT_BYTES), default=None)


def confinement(tree: Tree) -> Confinement:
    """What limits this process group, and the files that count its use.

    Use is read at the level with the least limit: everything that runs below it counts against it.
    """
    cpu_limit, usage_file = None, ""
    for directory, version in _groups(tree, "cpu"):
        quota = _quota(tree, directory, version)
        if quota is not None and (cpu_limit is None or quota < cpu_limit):
            path = f"{directory}/{'cpu.stat' if version == 2 else 'cpuacct.usage'}"
            cpu_limit, usage_file = quota, path if tree.exists(path) else ""
    memory_bytes, memory_directory, memory_version = None, "", 2
    for directory, version in _groups(tree, "memory"):
        limit = _memory_limit(tree, directory, version)
        if limit is not None and (memory_bytes is None or limit < memory_bytes):
            memory_bytes, memory_directory, memory_version = limit, directory, version
    return Confinement(cpu_limit, usage_file, _cpuset(tree), memory_bytes, memory_directory, memory_version)


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
