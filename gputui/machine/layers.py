"""The platform, scheduler, container, virtual machine and operating system this process runs on.

`signals.csv` holds one signal per row, in the order in which names are tried. A platform, a scheduler or a
named cloud needs one `certain` signal or two `strong` ones; a `hint` never decides, and neither do
credentials alone: people have those on laptops too.
"""

from __future__ import annotations

import csv
import io
import pkgutil
import re
from collections.abc import Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import cache
from itertools import groupby
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
