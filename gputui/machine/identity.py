"""Names that tell machines apart in one user's files and tell a stranger nothing."""

from __future__ import annotations

import os
import platform
from collections.abc import Sequence
from pathlib import Path

from gputui.machine.tree import Tree

ID_DIGITS = 12


def hashed_id(key: bytes, text: str) -> str:
    """12 hex digits: HMAC-SHA256 of a private name under the user's own key."""
    import hashlib  # OpenSSL, 4 MiB: for who asks for an id
    import hmac

    return hmac.new(key, text.encode(errors="replace"), hashlib.sha256).hexdigest()[:ID_DIGITS]


def machine_id(key: bytes, tree: Tree, gpu_uuids: Sequence[str]) -> str:
    """The box's id: of its GPUs where they are known, else of its machine-id and host name."""
    if gpu_uuids:
        return hashed_id(key, "gpus " + " ".join(sorted(gpu_uuids)))
    return host_id(key, tree)


def host_id(key: bytes, tree: Tree | None = None) -> str:
    """The host's id, whatever GPUs it has: of its machine-id and host name."""
    tree = Tree(Path("/"), os.environ) if tree is None else tree
    host_name = tree.found_text("/proc/sys/kernel/hostname") or platform.node()
    # Containers of one image share a machine-id, or have none: the host name tells them apart.
    return hashed_id(key, f"host {tree.found_text('/etc/machine-id')} {host_name}")
