"""Everything known about this machine, in one value."""

from __future__ import annotations

import os
import platform
import re
from collections.abc import Mapping
from pathlib import Path

from gputui.machine import cgroup
from gputui.machine.cpu import describe_cpu
from gputui.machine.gpus import describe_gpus
from gputui.machine.identity import identities_of
from gputui.machine.layers import find_layers, instance_type, region
from gputui.machine.tree import Tree
from gputui.model.absent import Missing
from gputui.model.machine import Machine, Memory
from gputui.sources.base import meminfo


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
    system's. GPUs always come from the driver, whose library stays open.
    """
    tree = Tree(root, os.environ if environ is None else environ)
    driver = describe_gpus()
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
    limit = cgroup.confinement(tree).memory_limit_bytes
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
