"""Whether a result file would be lost with the machine."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path, PurePosixPath

from gputui.machine.tree import Mount, Tree
from gputui.model.machine import Layer

_COPY = "copy it away with scp before the box ends"


@dataclass(frozen=True, slots=True)
class _Place:
    """What lasts on one platform."""

    lasting: tuple[str, ...]
    """Directories whose files outlive a session; `~` is the home, `./` the working directory."""
    advice: str
    """One sentence for a file elsewhere."""


_PLACES = {
    "colab": _Place(
        ("/content/drive",),
        "The result file is lost when the Colab session ends: mount Drive and use "
        "--db /content/drive/MyDrive/results.db, or download the file.",
    ),
    "kaggle": _Place(
        ("/kaggle/working",),
        "The result file is lost when the Kaggle session ends: use --db /kaggle/working/results.db, "
        "which is kept with a saved version.",
    ),
    "sagemaker": _Place(
        ("/home/sagemaker-user", "/home/ec2-user/SageMaker", "/opt/ml/checkpoints", "/opt/ml/model"),
        "SageMaker keeps the home of a Studio space, ~/SageMaker of a notebook instance, and /opt/ml/model "
        "and /opt/ml/checkpoints of a job: use --db there.",
    ),
    "azureml": _Place(
        ("/mnt/batch/tasks/shared/LS_root/mounts/clusters", "~/cloudfiles", "./outputs"),
        "Azure ML keeps ./outputs of a job and ~/cloudfiles of a compute instance: use --db "
        "outputs/results.db, or copy it there.",
    ),
    "databricks": _Place(
        ("/dbfs", "/Volumes", "/Workspace"),
        "The result file is lost when the Databricks cluster ends: copy it to /Volumes or /Workspace, "
        "where it cannot be written in place.",
    ),
    "lightning": _Place(
        ("/teamspace",),
        "The result file is lost when the Studio sleeps: use --db /teamspace/studios/this_studio/results.db.",
    ),
    "codespaces": _Place(
        ("/workspaces",),
        "A codespace keeps /workspaces alone when its container is rebuilt: use --db /workspaces/results.db.",
    ),
    "github-actions": _Place(
        (), "The result file is lost when the job ends: keep it with actions/upload-artifact."
    ),
    "gitlab-ci": _Place(
        (),
        "The result file is lost when the job ends: write it below the project, and list it as an artifact.",
    ),
}
_OWN_DISK = {
    "dstack": "dstack keeps volumes only: use --db on one, or copy the result file away before the run ends.",
    "skypilot": f"The result file is lost at `sky down`: use --db on a mounted bucket, or {_COPY}.",
    "kubernetes": "A pod keeps volumes only: use --db on one, or fetch the result file with kubectl cp.",
}
"""Where every mounted volume lasts, and the disk of the box does not."""


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
    names = [layer.name for kind in ("platform", "scheduler") for layer in layers if layer.layer == kind]
    is_own_disk = mount is not None and mount.point == "/"
    for name in names:
        if name.removesuffix("-enterprise") in _PLACES:
            kept = _PLACES[name.removesuffix("-enterprise")]
            is_kept = any(place.is_relative_to(_directory(one, tree.environ)) for one in kept.lasting)
            return "" if is_kept else kept.advice
        if name in ("runpod", "vast") and any(m.point == "/workspace" for m in mounts):
            if place.is_relative_to("/workspace"):
                return ""
            return (
                "The result file lies on the container's own disk: use --db /workspace/results.db, or "
                f"{_COPY}."
            )
        if is_own_disk and name in _OWN_DISK:
            return _OWN_DISK[name]
    is_platform = any(layer.layer == "platform" for layer in layers)
    if is_platform and mount is not None and is_own_disk and mount.kind == "overlay":
        return f"The result file lies on the container's own disk: {_COPY}."
    return ""


def _directory(text: str, environ: Mapping[str, str]) -> PurePosixPath:
    if text.startswith("~/"):
        return PurePosixPath(environ.get("HOME", "/"), text[2:])
    return PurePosixPath(Path.cwd(), text) if text.startswith("./") else PurePosixPath(text)


def _mount_of(place: PurePosixPath, mounts: tuple[Mount, ...]) -> Mount | None:
    around = [mount for mount in mounts if place.is_relative_to(mount.point)]
    # Of equal mount points the later one hides the earlier.
    return max(reversed(around), key=lambda mount: len(mount.point), default=None)
