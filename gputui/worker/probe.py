"""What this interpreter can measure: versions, devices, and whether torch has kernels for them."""

from __future__ import annotations

import contextlib
import os
import platform
import re
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any  # Any: torch's types, and JSON

OLDEST_TORCH = (2, 4)
NEEDED_TORCH = "gputui measures with torch 2.4 or newer"
LEAST_VRAM_BYTES = 3.5 * 2**30
"""What has less is the graphics unit of a processor; a card of 4 GiB reports a little less than that."""


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
        "hidden_by": hidden_by(os.environ),
        "amd_gpus": amd_gpus(Path("/")),
        "first_gpu": first_gpu(os.environ),
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
    has_cudnn = (
        torch.backends.cudnn.is_available() and not torch.version.hip
    )  # with ROCm the number is MIOpen's
    cudnn = torch.backends.cudnn.version() if has_cudnn else None
    return {
        **found,
        "torch_version": torch_version,
        "torch_file": torch.__file__,
        "torch_cuda": torch.version.cuda,
        "torch_hip": getattr(torch.version, "hip", None),
        "cudnn_version": _cudnn_text(cudnn),
        "nccl_version": _nccl_text(torch),
        "triton_version": _triton_version(),
        "arch_list": torch.cuda.get_arch_list(),
        "cpu_capability": torch.backends.cpu.get_cpu_capability(),
        "blas": "mkl" if torch.backends.mkl.is_available() else "other",
        "devices": [
            _device("cpu", platform.processor() or platform.machine()),
            *_cuda_devices(torch),
            *_other_devices(torch),
        ],
    }


def hidden_by(environ: Mapping[str, str]) -> str:
    """The variable with which the user hides every GPU from torch; empty if none does.

    A wrong number or name hides them too, but that is a mistake, not a wish.
    """
    for name in ("CUDA_VISIBLE_DEVICES", "HIP_VISIBLE_DEVICES", "ROCR_VISIBLE_DEVICES"):
        first = environ.get(name, "0").partition(",")[0].strip().lower()
        if first in ("", "-1", "none", "nodevfiles", "void"):  # Slurm writes NoDevFiles
            return name
    return ""


def first_gpu(environ: Mapping[str, str]) -> int | None:
    """The number that CUDA_VISIBLE_DEVICES begins with; if no GPU has it, torch sees none at all."""
    first = environ.get("CUDA_VISIBLE_DEVICES", "").partition(",")[0].strip()
    return int(first) if re.fullmatch("[0-9]{1,6}", first) else None


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


def _device(torch_device: str, name: str, **more: object) -> dict[str, Any]:
    device: dict[str, Any] = {
        "torch_device": torch_device,
        "index": 0,
        "name": name,
        "uuid": "",
        "pci_address": "",
        "memory_bytes": None,
        "free_bytes": None,
        "compute_capability": "",
        "bf16": True,
        "runs_here": True,
        "why_not": "",
    }
    return {**device, **more}


def _cuda_devices(torch: Any) -> list[dict[str, Any]]:
    if not torch.cuda.is_available():
        return []
    devices = []
    of_kernel = kfd_gpus(Path("/")) if torch.version.hip else {}
    for index in range(torch.cuda.device_count()):
        properties = torch.cuda.get_device_properties(index)
        partitions = len(of_kernel.get(_pci_address(properties)[-12:], ()))
        capability = (properties.major, properties.minor)
        why_not = "" if torch.version.hip else missing_kernels(capability, torch.cuda.get_arch_list())
        free_bytes, bf16 = None, False
        if not why_not:
            with contextlib.suppress(RuntimeError):  # a device busy in exclusive mode still has a name
                torch.cuda.set_device(index)
                free_bytes = torch.cuda.mem_get_info(index)[0]
                bf16 = torch.cuda.is_bf16_supported(including_emulation=False)
        devices.append(
            _device(
                "cuda",
                f"{properties.name} partition 1/{partitions}" if partitions > 1 else properties.name,
                index=index,
                uuid=_uuid(properties, is_rocm=bool(torch.version.hip)),
                pci_address=_pci_address(properties),
                memory_bytes=properties.total_memory,
                free_bytes=free_bytes,
                compute_capability=".".join(map(str, capability)),
                bf16=bf16,
                runs_here=not why_not,
                why_not=why_not,
            )
        )
    return devices


def _uuid(properties: Any, *, is_rocm: bool) -> str:
    """A device's UUID as the driver spells it, which is what makes it visible; empty if its number must do.

    torch prints it bare. ROCm's holds the digits of a serial number as characters, and neither names a device
    to HIP as it stands.
    """
    bare = str(getattr(properties, "uuid", ""))
    if is_rocm or not bare:
        return ""
    if bare.startswith(("GPU-", "MIG-")):
        return bare
    return f"{'MIG' if ' MIG ' in properties.name else 'GPU'}-{bare}"


def _other_devices(torch: Any) -> list[dict[str, Any]]:
    devices = []
    if hasattr(torch, "xpu") and torch.xpu.is_available():
        for index in range(torch.xpu.device_count()):
            properties = torch.xpu.get_device_properties(index)
            devices.append(_device("xpu", properties.name, index=index, memory_bytes=properties.total_memory))
    if torch.backends.mps.is_available():
        devices.append(_device("mps", "Apple GPU"))
    return devices


def missing_kernels(capability: tuple[int, int], arch_list: list[str]) -> str:
    """Why a torch built for `arch_list` cannot run on this compute capability; empty if it can.

    Kernels (`sm_XY`) run on the same major version with an equal or higher minor; an entry ending in `a`
    only on exactly its own; intermediate code (`compute_XY`) on anything not older.
    """
    major, minor = capability
    for entry in arch_list:
        kind, _, digits = entry.partition("_")
        exact = digits.endswith("a")
        digits = digits.rstrip("af")
        if not digits.isdigit():
            continue
        built = (int(digits[:-1]), int(digits[-1]))
        if exact:
            if built == capability:
                return ""
        elif kind == "compute":
            if built <= capability:
                return ""
        elif built[0] == major and built[1] <= minor:
            return ""
    if not arch_list:
        return "this torch has no GPU kernels"
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


def _nccl_text(torch: Any) -> str | None:
    if not torch.cuda.is_available() or torch.version.hip:
        return None
    with contextlib.suppress(RuntimeError, AttributeError, ImportError):
        return ".".join(map(str, torch.cuda.nccl.version()))
    return None


def _triton_version() -> str | None:
    from importlib import metadata

    with contextlib.suppress(metadata.PackageNotFoundError):
        return metadata.version("triton")
    return None
