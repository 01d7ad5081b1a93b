"""The platform, scheduler, container, virtual machine and operating system this process runs on.

`signals.csv` holds one signal per row, in the order in which names are tried. A platform, a scheduler or a
named cloud needs one `certain` signal or two `strong` ones; a `hint` never decides, and neither do
credentials alone: people have those on laptops too.
"""

from __future__ import annotations

import csv
import io
import os
import pkgutil
import re
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from itertools import groupby
from pathlib import Path, PurePosixPath
from typing import Any  # Any: rows of a CSV file

from gputui.machine.tree import Mount, Tree
from gputui.model.absent import Missing
from gputui.model.machine import Layer

_ONE_STRONG_DECIDES = frozenset({"podman", "apptainer", "docker", "container", "virtual-machine", "wsl2"})
"""Their strong signals are files and firmware names that nothing else has."""

_LAYER_ORDER = ("platform", "scheduler", "container", "vm", "os")

_REGION_NAMES = {"runpod": "RUNPOD_DC_ID", "modal": "MODAL_REGION", "sagemaker": "AWS_REGION"}
_INSTANCE_NAMES = {
    "hf-jobs": "ACCELERATOR",
    "hf-spaces": "ACCELERATOR",
    "sagemaker": "SM_CURRENT_INSTANCE_TYPE",
}
_HARMLESS = re.compile(r"[A-Za-z0-9][A-Za-z0-9.-]{1,39}")
_EC2_TYPE = re.compile(r"[a-z][a-z0-9-]*\.[a-z0-9-]+")


@dataclass(frozen=True, slots=True)
class Signal:
    """One signal that suggests one name."""

    name: str
    layer: str
    kind: str
    """`env`, `file`, `dir`, `mount`, `cgroup`, `osrelease`, `cpuinfo` or `dmi`."""
    key: str
    test: str
    value: str
    strength: str
    secret: bool
    """A live credential: its name is checked, its value never read."""

    @property
    def label(self) -> str:
        """What is stored of a signal that was found."""
        if self.kind in ("env", "file", "dir", "osrelease"):
            return self.key
        return f"{self.kind} {self.value if self.test == 'flag' else self.key}".strip()


@cache
def signals() -> tuple[Signal, ...]:
    """All signals, in the order of the file."""
    raw = pkgutil.get_data(__name__, "signals.csv")  # also works inside a zip
    rows: Iterable[dict[str, Any]] = csv.DictReader(io.StringIO((raw or b"").decode()))
    return tuple(Signal(**{**row, "secret": row["secret"] == "yes"}) for row in rows)


def find_layers(tree: Tree) -> tuple[Layer, ...]:
    """At most one name per layer, and the signals for it."""
    mounts = tree.mounts()
    # SSH shells of Vast and Kubernetes lack the container's environment; names suffice.
    first_process = tree.found_text("/proc/1/environ").split("\0")
    written = tree.found_text("/etc/environment").splitlines()
    names = {*tree.environ, *_assigned_names(first_process), *_assigned_names(written)}
    found: dict[str, Layer] = {}
    for (name, layer), group in groupby(signals(), key=lambda signal: (signal.name, signal.layer)):
        if layer in found:
            continue
        present = [signal for signal in group if _shows(signal, tree, names, mounts)]
        if _decides(name, present):
            found[layer] = Layer(layer, name, tuple(signal.label for signal in present))
    product = tree.found_text("/sys/class/dmi/id/product_name")
    if "vm" in found and found["vm"].name == "aws" and ".metal" in product:
        found["os"] = Layer("os", "bare-metal", ("dmi product_name",))
    elif not found and tree.found_text("/sys/class/dmi/id/sys_vendor"):
        found["os"] = Layer("os", "bare-metal", ("dmi sys_vendor",))
    return tuple(found[layer] for layer in _LAYER_ORDER if layer in found)


def _decides(name: str, present: Sequence[Signal]) -> bool:
    open_signs = [signal.strength for signal in present if not signal.secret]
    strong = sum(signal.strength == "strong" for signal in present)
    if not ("strong" in open_signs or "certain" in open_signs):
        return False
    return "certain" in open_signs or strong >= (1 if name in _ONE_STRONG_DECIDES else 2)


def _shows(signal: Signal, tree: Tree, names: Collection[str], mounts: Iterable[Mount]) -> bool:
    """Whether the machine shows a signal; `names` are those of variables."""
    key = signal.key
    if signal.test == "fstype":
        return any(mount.point == key and mount.kind == signal.value for mount in mounts)
    if signal.kind == "mount":
        return any(mount.point == key or mount.point.startswith(f"{key}/") for mount in mounts)
    if signal.kind != "env" and signal.test == "exists":
        return tree.exists(key)
    if signal.test in ("exists", "exists-with"):
        others = signal.value.split() if signal.test == "exists-with" else []
        return key in names and all(
            (name.lstrip("!") in names) is not name.startswith("!") for name in others
        )
    if signal.test == "prefix":
        return any(name.startswith(key.rstrip("*")) for name in names)
    if signal.kind == "env":
        return _text_shows(signal, tree.environ.get(key, ""))
    path = {"dmi": f"/sys/class/dmi/id/{key}", "cgroup": "/proc/self/cgroup"}.get(signal.kind, key)
    return _text_shows(signal, tree.found_text(path))


def _text_shows(signal: Signal, text: str) -> bool:
    if signal.test == "equals":
        return text == signal.value
    if signal.test == "regex":
        return re.search(signal.value, text) is not None
    if signal.test == "contains":
        return signal.value in text
    if signal.test == "contains-name":
        return signal.value in _assigned_names(text.splitlines())
    if signal.test == "flag":
        flags = re.search(r"^flags\s*:(.*)$", text, re.MULTILINE)
        return flags is not None and signal.value in flags[1].split()
    return False


def _assigned_names(lines: Iterable[str]) -> Iterator[str]:
    for line in lines:
        name, separator, _ = line.strip().removeprefix("export ").partition("=")
        if separator:
            yield name


def region(tree: Tree, layers: tuple[Layer, ...]) -> str | Missing:
    """The data center, if the platform names it in a harmless variable."""
    return _harmless(tree, layers, _REGION_NAMES, "the region")


def instance_type(tree: Tree, layers: tuple[Layer, ...]) -> str | Missing:
    """What was rented, by the provider's name."""
    platforms = [layer for layer in layers if layer.layer == "platform"]
    if not platforms and any(layer.name == "aws" for layer in layers):
        # On Nitro machines the firmware's product name is the instance type; inside a platform's
        # container it would be that of a host which the user did not rent.
        product = tree.found_text("/sys/class/dmi/id/product_name")
        if _EC2_TYPE.fullmatch(product):
            return product
    return _harmless(tree, layers, _INSTANCE_NAMES, "the instance type")


def _harmless(tree: Tree, layers: tuple[Layer, ...], names: dict[str, str], what: str) -> str | Missing:
    for layer in layers:
        value = tree.environ.get(names.get(layer.name, ""), "")
        if _HARMLESS.fullmatch(value):
            return value
    return Missing(f"this box does not tell {what} without asking over the network")


_COPY = "copy it away with scp before the box ends"


_PLACES: dict[str, tuple[tuple[str, ...], str]] = {
    "colab": (
        ("/content/drive",),
        (
            "The result file is lost when the Colab session ends: mount Drive and use "
            "--db /content/drive/MyDrive/results.db, or download the file."
        ),
    ),
    "kaggle": (
        ("/kaggle/working",),
        (
            "The result file is lost when the Kaggle session ends: use --db /kaggle/working/results.db, "
            "which is kept with a saved version."
        ),
    ),
    "sagemaker": (
        ("/home/sagemaker-user", "/home/ec2-user/SageMaker", "/opt/ml/checkpoints", "/opt/ml/model"),
        (
            "SageMaker keeps the home of a Studio space, ~/SageMaker of a notebook instance, and"
            " /opt/ml/model and /opt/ml/checkpoints of a job: use --db there."
        ),
    ),
    "azureml": (
        ("/mnt/batch/tasks/shared/LS_root/mounts/clusters", "~/cloudfiles", "./outputs"),
        (
            "Azure ML keeps ./outputs of a job and ~/cloudfiles of a compute instance: use --db "
            "outputs/results.db, or copy it there."
        ),
    ),
    "databricks": (
        ("/dbfs", "/Volumes", "/Workspace"),
        (
            "The result file is lost when the Databricks cluster ends: copy it to /Volumes or /Workspace, "
            "where it cannot be written in place."
        ),
    ),
    "lightning": (
        ("/teamspace",),
        "The result file is lost when the Studio sleeps: use --db /teamspace/studios/this_studio/results.db.",
    ),
    "codespaces": (
        ("/workspaces",),
        "A codespace keeps /workspaces alone when its container is rebuilt: use --db /workspaces/results.db.",
    ),
    "github-actions": (
        (),
        "The result file is lost when the job ends: keep it with actions/upload-artifact.",
    ),
    "gitlab-ci": (
        (),
        "The result file is lost when the job ends: write it below the project, and list it as an artifact.",
    ),
}
"""Directories whose files outlive a session, where `~` is the home and `./` the working directory; and a
sentence for a file elsewhere."""
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
            lasting, advice = _PLACES[name.removesuffix("-enterprise")]
            is_kept = any(place.is_relative_to(_directory(one, tree.environ)) for one in lasting)
            return "" if is_kept else advice
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
