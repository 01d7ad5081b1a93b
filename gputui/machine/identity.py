"""Ids that tell boxes apart in anybody's files and reveal nothing else about them.

They are keyed hashes under a key that is the same everywhere, as `sd_id128_get_machine_app_specific` makes
them, so that all accounts and containers of a box find the same ones. Only names that nobody can guess are
hashed: 128 random bits, or what the user chose to name the box.
"""

from __future__ import annotations

import os
import platform
import re
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path

from gputui.machine.tree import Tree
from gputui.model.absent import Missing
from gputui.model.machine import Identity, Layer

APPLICATION_KEY = b"gputui: ids of boxes and of GPUs"
ID_DIGITS = 12

_UUID = re.compile(r"[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}")
_PLACEHOLDERS = ("03000200-0400-0500-0006-000700080009", "12345678-1234-5678-90ab-cddeefaabbcc")
"""Product UUIDs that many boards share, besides those that repeat one digit."""
_MACHINE_ID = "/etc/machine-id"
_IMAGE_PACKAGE = "/var/lib/dpkg/info/base-passwd.list"
"""Written when the system was installed, and hardly ever again."""
_IMAGE_BUILD_S = 3600.0
"""An id that was made within this time of the first packages was made with them."""
_INITS = ("/run/systemd/system", "/run/openrc")
"""There where an init system runs, which makes a machine-id at the first boot."""


def hashed_id(key: bytes, text: str) -> str:
    """12 hex digits: HMAC-SHA256 of a private name under a key."""
    import hashlib  # OpenSSL takes 4 MiB, and few callers need an id
    import hmac

    return hmac.new(key, text.encode(errors="replace"), hashlib.sha256).hexdigest()[:ID_DIGITS]


def identities_of(
    tree: Tree, layers: Sequence[Layer], gpu_uuids: Sequence[str], name: str = "", hash_key: bytes = b""
) -> tuple[Identity, ...]:
    """Everything that this box is known by, the surest first; at least one that only this run has.

    A `name` that the user gave stands alone. `hash_key` holds random bytes of this user.
    """
    if name:
        return (_identity("stated", name),)
    found = tuple(_found(tree, layers, gpu_uuids, hash_key))
    return found or (Identity("run", os.urandom(ID_DIGITS // 2).hex()),)


def _found(
    tree: Tree, layers: Sequence[Layer], gpu_uuids: Sequence[str], hash_key: bytes
) -> Iterator[Identity]:
    product = tree.found_text("/sys/class/dmi/id/product_uuid").lower()
    if _UUID.fullmatch(product) and product not in _PLACEHOLDERS and len(set(product)) > 2:
        yield _identity("product-uuid", product)
    machine = tree.found_text(_MACHINE_ID)
    if re.fullmatch(r"[0-9a-f]{32}", machine) and _is_of_this_box(tree, layers):
        yield _identity("machine-id", machine)
    if gpu_uuids:
        yield _identity("gpus", " ".join(sorted(gpu_uuids)))
    host = _apple_host(tree)
    if host:
        yield _identity("product-uuid", host)
    if hash_key:  # as earlier versions made all ids
        if gpu_uuids:
            yield Identity("account", hashed_id(hash_key, "gpus " + " ".join(sorted(gpu_uuids))))
        yield Identity("account", host_id(hash_key, tree))
    boot = tree.found_text("/proc/sys/kernel/random/boot_id")
    if boot:
        yield _identity("boot", boot)


def _apple_host(tree: Tree) -> str:
    """The hardware's UUID on macOS; empty elsewhere. Never tried on real hardware."""
    if sys.platform != "darwin" or tree.root != Path("/"):
        return ""
    import ctypes

    uuid, wait = (ctypes.c_ubyte * 16)(), (ctypes.c_long * 2)(1, 0)
    try:
        failed = ctypes.CDLL(None).gethostuuid(uuid, wait)
    except (OSError, AttributeError):
        return ""
    return "" if failed else bytes(uuid).hex()


def _identity(kind: str, text: str) -> Identity:
    return Identity(kind, hashed_id(APPLICATION_KEY, f"{kind} {text}"))


def _is_of_this_box(tree: Tree, layers: Sequence[Layer]) -> bool:
    """Whether /etc/machine-id was made for this box; one that came with an image is on many."""
    if any(mount.point == _MACHINE_ID for mount in tree.mounts()):
        return True  # the host's, mounted into a container
    if any(layer.layer == "container" for layer in layers) or not any(map(tree.exists, _INITS)):
        return False
    made, installed = tree.changed_s(_MACHINE_ID), tree.changed_s(_IMAGE_PACKAGE)
    is_rented = any(layer.layer in ("platform", "vm") for layer in layers)
    if not is_rented or isinstance(made, Missing) or isinstance(installed, Missing):
        return True
    return made > installed + _IMAGE_BUILD_S


def host_id(key: bytes = APPLICATION_KEY, tree: Tree | None = None) -> str:
    """Of the host that a run directory lies on, from its machine-id and host name; stays on this host."""
    tree = Tree(Path("/"), os.environ) if tree is None else tree
    host_name = tree.found_text("/proc/sys/kernel/hostname") or platform.node()
    # Containers of one image share a machine-id, or have none; host names distinguish them.
    return hashed_id(key, f"host {tree.found_text(_MACHINE_ID)} {host_name}")
