"""Whether a result file would be lost with the machine."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path, PurePosixPath

from gputui.machine.tree import Mount, Tree
from gputui.model.machine import Layer

_COPY = "copy it away with scp before the box ends"


def storage_warning(
    path: Path,
    layers: tuple[Layer, ...],
    *,
    root: Path = Path("/"),
    environ: Mapping[str, str] | None = None,
) -> str:
    """One sentence if the file at `path` would be lost with this machine and that is cheap to find out; else
    empty.

    `path` need not exist. The sentence names no path but a platform's own.
    """
    tree = Tree(root, os.environ if environ is None else environ)
    mounts = tree.mounts()
    place = PurePosixPath(path.expanduser().resolve())
    mount = _mount_of(place, mounts)
    if mount is not None and mount.kind in ("tmpfs", "ramfs"):
        return f"The result file lies in memory ({mount.kind}) and is lost at a restart: use --db on a disk."
    platform = next((layer.name for layer in layers if layer.layer == "platform"), "")
    if platform in ("colab", "colab-enterprise"):
        if place.is_relative_to("/content/drive"):
            return ""
        return (
            "The result file is lost when the Colab session ends: mount Drive and use "
            "--db /content/drive/MyDrive/results.db, or download the file."
        )
    if platform == "kaggle":
        if place.is_relative_to("/kaggle/working"):
            return ""
        return (
            "The result file is lost when the Kaggle session ends: use --db /kaggle/working/results.db, "
            "which is kept with a saved version."
        )
    if platform in ("runpod", "vast") and any(m.point == "/workspace" for m in mounts):
        if place.is_relative_to("/workspace"):
            return ""
        return (
            f"The result file lies on the container's own disk: use --db /workspace/results.db, or {_COPY}."
        )
    if platform and mount is not None and mount.point == "/" and mount.kind == "overlay":
        return f"The result file lies on the container's own disk: {_COPY}."
    return ""


def _mount_of(place: PurePosixPath, mounts: tuple[Mount, ...]) -> Mount | None:
    around = [mount for mount in mounts if place.is_relative_to(mount.point)]
    # Of equal mount points the later one hides the earlier.
    return max(reversed(around), key=lambda mount: len(mount.point), default=None)
