"""Host memory, and how much of it this process may use."""

from __future__ import annotations

import os
import re
from collections.abc import Mapping

from gputui.machine import cgroup
from gputui.machine.tree import Tree
from gputui.model.absent import Missing
from gputui.model.machine import Memory


def describe_memory(tree: Tree) -> Memory:
    """The least of the host's memory, the cgroup limits and what the platform says was rented."""
    host = _host_bytes(tree)
    usable, limited_by = host, "host"
    limit = cgroup.memory_limit(tree)
    if limit is not None and (limit < usable or not host):
        usable, limited_by = limit, "cgroup"
    for name, hint in _hints(tree.environ):
        if hint < usable or not usable:
            usable, limited_by = hint, name
    return Memory(host or usable, usable, limited_by, _shm_bytes(tree))


def _host_bytes(tree: Tree) -> int:
    found = re.search(r"^MemTotal:\s+(\d+) kB", tree.found_text("/proc/meminfo"), re.MULTILINE)
    if found:
        return int(found[1]) * 1024
    try:
        return os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    except (AttributeError, ValueError, OSError):
        return 0


def _hints(environ: Mapping[str, str]) -> list[tuple[str, int]]:
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
