"""Names and versions of the operating system."""

from __future__ import annotations

import os
import platform
import re

from gputui.machine.tree import Tree
from gputui.model.absent import Missing


def os_name(tree: Tree) -> str | Missing:
    """The name the system gives itself, such as `Ubuntu 24.04.3 LTS`."""
    for path in ("/etc/os-release", "/usr/lib/os-release"):
        found = re.search(r'^PRETTY_NAME=(["\']?)(.*)\1\s*$', tree.found_text(path), re.MULTILINE)
        if found and found[2]:
            return found[2][:80]
    if platform.system() == "Darwin":
        return f"macOS {platform.mac_ver()[0]}".strip()
    return Missing("there is no /etc/os-release")


def kernel(tree: Tree) -> str | Missing:
    """Release number without the builder's suffix, which can name a person or a company."""
    release = tree.found_text("/proc/sys/kernel/osrelease") or platform.release()
    found = re.match(r"\d+(?:\.\d+)+(?:-\d+(?:\.\d+)*)?(?![\w])", release) or re.match(
        r"\d+(?:\.\d+)+", release
    )
    return found[0] if found else Missing("the kernel's release has no number")


def libc(tree: Tree) -> str | Missing:
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


def driver_version(tree: Tree) -> str | Missing:
    """Version of the NVIDIA kernel module, read without its library."""
    text = tree.text("/proc/driver/nvidia/version")
    if isinstance(text, Missing):
        return Missing("no NVIDIA driver is loaded")
    found = re.search(r"Kernel Module(?: for \S+)?\s+(\d+(?:\.\d+)+)", text)
    return found[1] if found else Missing("/proc/driver/nvidia/version names no version")
