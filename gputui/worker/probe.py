"""What this interpreter can measure: versions, devices, and whether torch has kernels for them."""

from __future__ import annotations

import contextlib
import os
import platform
import re
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any  # Any: torch's types, and JSON

from . import accelerator

OLDEST_TORCH = (2, 4)
NEEDED_TORCH = "gputui measures with torch 2.4 or newer"
LEAST_VRAM_BYTES = 3.5 * 2**30
"""What has less is the graphics unit of a processor; a card of 4 GiB reports a little less than that."""
_CPU = {
    "torch_device": "cpu",
    "index": 0,
    "uuid": "",
    "pci_address": "",
    "memory_bytes": None,
    "free_bytes": None,
    "compute_capability": "",
    "bf16": True,
    "runs_here": True,
    "why_not": "",
}


def is_too_old(torch_version: str) -> bool:
    """Whether this torch is too old to measure with; a pre-release counts as its release."""
    found = re.match(r"(\d+)\.(\d+)", torch_version)
    return found is not None and (int(found[1]), int(found[2])) < OLDEST_TORCH


def probe() -> dict[str, Any]:
    """One JSON object. `torch_missing` says why torch is missing or cannot be imported.

    A torch that is too old is only asked for its version, `old_torch_version`.
    """
    found: dict[str, Any] = {
        "kind": "probe",
        "executable": sys.executable,
        "python_version": platform.python_version(),
        "python_implementation": platform.python_implementation(),
        "torch_missing": "",
        "devices": [],
        "hidden_by": accelerator.hidden_by(os.environ),
        "amd_gpus": amd_gpus(Path("/")),
        "first_gpu": accelerator.first_gpu(os.environ),
    }
    try:
        import torch

        torch_version = str(torch.__version__)  # an empty folder left by an old torch can still be imported
    except ModuleNotFoundError as error:
        name = str(error.name)
        is_name = re.fullmatch(r"[A-Za-z0-9_.]{1,60}", name)
        missing = f"needs module {name}" if is_name else "needs another module"
        return {**found, "torch_missing": "not installed" if name == "torch" else missing}
    except (ImportError, OSError, RuntimeError, AttributeError) as error:
        library = re.search(r"\blib[\w+-]+\.so[\d.]*\d|\blib[\w+-]+\.so", str(error))
        what = f"{type(error).__name__}, {library[0]}" if library else type(error).__name__
        why = f"cannot be imported ({what}): python -c 'import torch' shows why"
        return {**found, "torch_missing": why}
    if is_too_old(torch_version):
        old = {"old_torch_version": torch_version, "torch_file": torch.__file__}
        return {**found, **old, "torch_missing": f"{torch_version} is too old: {NEEDED_TORCH}"}
    built = accelerator.built_for()
    has_cudnn = torch.backends.cudnn.is_available() and not built["torch_hip"]  # ROCm's number is MIOpen's
    cudnn = torch.backends.cudnn.version() if has_cudnn else None
    from importlib import metadata

    triton_version = None
    with contextlib.suppress(metadata.PackageNotFoundError):
        triton_version = metadata.version("triton")
    return {
        **found,
        "torch_version": torch_version,
        "torch_file": torch.__file__,
        **built,
        "cudnn_version": _cudnn_text(cudnn),
        "triton_version": triton_version,
        "cpu_capability": torch.backends.cpu.get_cpu_capability(),
        "blas": "mkl" if torch.backends.mkl.is_available() else "other",
        "devices": [
            {**_CPU, "name": platform.processor() or platform.machine()},
            *_gpus(built),
        ],
    }


def amd_gpus(root: Path) -> int:
    """AMD GPUs for which torch has a build, as it counts them: where the compute driver may be opened."""
    return sum(map(len, kfd_gpus(root).values())) if (root / "dev/kfd").exists() else 0


def kfd_gpus(root: Path) -> dict[str, list[str]]:
    """Numbers in the kernel's compute driver of AMD GPUs with memory on board, by PCI address.

    A GPU has one for each of its partitions, which torch counts as devices. What shares the host's memory is
    the graphics unit of a processor, for most of which ROCm has no kernels.
    """
    found: dict[str, list[str]] = {}
    for node in sorted(root.glob("sys/class/kfd/kfd/topology/nodes/*"), key=lambda one: one.name.zfill(4)):
        with contextlib.suppress(OSError, ValueError):
            number = (node / "gpu_id").read_text().strip()
            lines = (node / "properties").read_text().splitlines()
            properties = {name: int(value) for name, _, value in (line.partition(" ") for line in lines)}
            place = properties.get("location_id", 0)  # its lowest and highest bits may number the partition
            address = f"{properties.get('domain', 0):04x}:{place >> 8 & 0xFF:02x}:{place >> 3 & 0x1F:02x}.0"
            memory = root / f"sys/bus/pci/devices/{address}/mem_info_vram_total"
            if number != "0" and int(memory.read_text()) > LEAST_VRAM_BYTES:
                found.setdefault(address, []).append(number)
    return found


def _gpus(built: Mapping[str, Any]) -> Iterator[dict[str, Any]]:
    of_kernel = kfd_gpus(Path("/")) if built.get("torch_hip") else {}
    for kind in accelerator.kinds():
        for index in range(accelerator.module_of(kind).device_count()):
            properties = accelerator.properties_of(kind, index)
            capability = (properties.major, properties.minor) if hasattr(properties, "major") else ()
            is_nvidia = bool(capability and built["torch_cuda"])
            why_not = missing_kernels(capability, built["arch_list"]) if is_nvidia else ""
            free_bytes, bf16 = (None, False) if why_not else accelerator.opened(kind, index)
            yield {
                "torch_device": kind,
                "index": index,
                "name": _name(properties, of_kernel),
                "uuid": accelerator.uuid_of(properties) if is_nvidia else "",  # ROCm's names no device to HIP
                "pci_address": _pci_address(properties),
                "memory_bytes": properties.total_memory,
                "free_bytes": free_bytes,
                "compute_capability": ".".join(map(str, capability)),
                "bf16": bf16,
                "runs_here": not why_not,
                "why_not": why_not,
            }


def _name(properties: Any, of_kernel: Mapping[str, list[str]]) -> str:
    """What torch calls a device, and which part of an AMD GPU it is: the driver tells that of NVIDIA's."""
    partitions = len(of_kernel.get(_pci_address(properties)[-12:], ()))
    return f"{properties.name} partition 1/{partitions}" if partitions > 1 else str(properties.name)


def missing_kernels(capability: tuple[int, ...], arch_list: list[str]) -> str:
    """Why a torch built for `arch_list` cannot run on this compute capability; empty if it can.

    Kernels (`sm_XY`) run on the same major version with an equal or higher minor; an entry ending in `a`
    only on exactly its own; intermediate code (`compute_XY`) on anything not older.
    """
    if not arch_list:
        return "this torch has no GPU kernels"
    major, minor = capability
    for kind, digits, suffix in re.findall(r"^(\w+)_(\d{2,})([af]*)$", "\n".join(arch_list), re.MULTILINE):
        built = (int(digits[:-1]), int(digits[-1]))
        is_intermediate = kind == "compute" and suffix != "a"
        is_of_its_major = kind != "compute" and suffix != "a" and built[0] == major
        if built == capability or (is_intermediate and built <= capability):
            return ""
        if is_of_its_major and built[1] <= minor:
            return ""
    return f"this torch has no kernels for compute capability {major}.{minor} (it has {' '.join(arch_list)})"


def _pci_address(properties: Any) -> str:
    if not hasattr(properties, "pci_bus_id"):
        return ""
    return f"{properties.pci_domain_id:08x}:{properties.pci_bus_id:02x}:{properties.pci_device_id:02x}.0"


def _cudnn_text(number: int | None) -> str | None:
    """The version as text: 91002 is 9.10.2; before version 9, 8902 was 8.9.2."""
    if number is None:
        return None
    scale = 10000 if number >= 90000 else 1000
    return f"{number // scale}.{number % scale // 100}.{number % 100}"
