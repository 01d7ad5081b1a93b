"""Ids that distinguish machines in one user's files and reveal nothing to others."""

from __future__ import annotations

import os
import platform
from collections.abc import Sequence
from pathlib import Path

from gputui.machine.tree import Tree

ID_DIGITS = 12


def hashed_id(key: bytes, text: str) -> str:
    """12 hex digits: HMAC-SHA256 of a private name under the user's key."""
    import hashlib  # OpenSSL takes 4 MiB, and few callers need an id
    import hmac

    return hmac.new(key, text.encode(errors="replace"), hashlib.sha256).hexdigest()[:ID_DIGITS]


def machine_id(key: bytes, tree: Tree, gpu_uuids: Sequence[str]) -> str:
    """The machine's id: from its GPUs where they are known, else from its machine-id and host name."""
    if gpu_uuids:
        return hashed_id(key, "gpus " + " ".join(sorted(gpu_uuids)))
    return host_id(key, tree)


def host_id(key: bytes, tree: Tree | None = None) -> str:
    """The host's id, whatever GPUs it has: from its machine-id and host name."""
    tree = Tree(Path("/"), os.environ) if tree is None else tree
    host_name = tree.found_text("/proc/sys/kernel/hostname") or platform.node()
    # Containers of one image share a machine-id, or have none; host names distinguish them.
    return hashed_id(key, f"host {tree.found_text('/etc/machine-id')} {host_name}")
