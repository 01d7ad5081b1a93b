"""What a worker asks of the device it measures: the one module that names kinds of accelerators.

`device` is torch's word for a kind: `cpu`, `cuda` (ROCm too), `xpu`, `mps`, or a backend that registered
itself with torch. What kinds can do is asked of their module of torch; the tables below say what it cannot
tell.
"""

from __future__ import annotations

import contextlib
import re
import sys
from collections.abc import Callable, Mapping, MutableMapping
from types import SimpleNamespace
from typing import Any  # Any: torch's types, which may not be installed

_KINDS = ("cuda", "xpu", "mps")  # in the order in which one is chosen
ADAMW_FUSED = ("cpu", "cuda")  # one kernel a step: others make the scaler of fp16 wait for the device
SGD_FUSED = ("cuda",)
PINNED = ("cuda", "xpu")  # have memory of their own, and copy from pinned memory of the host by themselves
TRITON = ("cuda", "xpu")  # torch.compile writes their kernels in it
ACTIVITIES = {"cpu": "", "mps": "", "cuda": "CUDA", "xpu": "XPU"}  # the profiler's; "" watches the host alone
GRAPHS = ("cuda",)  # torch captures their launches
COLLECTIVES = {"cpu": "gloo", "cuda": "nccl"}  # backends of torch.distributed
_HIDING = ("CUDA_VISIBLE_DEVICES", "HIP_VISIBLE_DEVICES", "ROCR_VISIBLE_DEVICES")
_LEVEL_ZERO, _SYCL = "ZE_AFFINITY_MASK", "ONEAPI_DEVICE_SELECTOR"
VISIBILITY = (*_HIDING, _LEVEL_ZERO, _SYCL, "ZE_FLAT_DEVICE_HIERARCHY", "CUDA_DEVICE_ORDER")
"""Variables that decide which devices torch sees, and how it numbers them."""
_WARM_CALLS = 3
"""Before a graph is captured: libraries set themselves up in their first calls."""


class Unsupported(Exception):
    """This interpreter, device or precision cannot do the work: an outcome, not an error."""


def module_of(device: str) -> Any:
    """What torch has for this kind: `torch.cpu`, `torch.cuda` and so on."""
    import torch

    return getattr(torch, device)


def _modules() -> dict[str, Any]:
    """What this torch has for accelerators, by kind; asking for it opens none."""
    import torch

    registered = getattr(getattr(torch, "_C", None), "_get_privateuse1_backend_name", str)()
    return {kind: getattr(torch, kind) for kind in (*_KINDS, registered) if hasattr(torch, kind)}


def kinds() -> list[str]:
    """Accelerators of which this torch sees one here."""
    return [
        kind
        for kind, module in _modules().items()
        if (getattr(module, "is_available", None) or module.device_count)()
    ]


def is_any_open() -> bool:
    """Whether this process has opened an accelerator, which a fork would lose."""
    modules = _modules().values()
    return any(module.is_initialized() for module in modules if hasattr(module, "is_initialized"))


def built_for() -> dict[str, Any]:
    """The toolkit that this torch was built for, its GPU architectures, and its version of NCCL."""
    import torch

    hip, nccl_version = getattr(torch.version, "hip", None), None
    if torch.cuda.is_available() and not hip:
        with contextlib.suppress(RuntimeError, AttributeError, ImportError):
            nccl_version = ".".join(map(str, torch.cuda.nccl.version()))
    return {
        "torch_cuda": torch.version.cuda,
        "torch_hip": hip,
        "arch_list": torch.cuda.get_arch_list(),
        "nccl_version": nccl_version,
    }


def properties_of(kind: str, index: int = 0) -> Any:
    """`name` and `total_memory`, and what else torch knows of a device."""
    module = module_of(kind)
    if hasattr(module, "get_device_properties"):
        return module.get_device_properties(index)
    return SimpleNamespace(name="Apple GPU" if kind == "mps" else kind, total_memory=None)


def opened(kind: str, index: int) -> tuple[int | None, bool]:
    """Free memory of a device in bytes, if torch knows it, and whether it computes in bf16."""
    free_bytes, has_bf16 = None, False
    with contextlib.suppress(RuntimeError):  # a device busy in exclusive mode still has a name
        if kind == "cuda":
            module_of(kind).set_device(index)
            free_bytes = module_of(kind).mem_get_info(index)[0]
        has_bf16 = amp_of(kind) == "amp-bf16"
    return free_bytes, has_bf16


def uuid_of(properties: Any) -> str:
    """An NVIDIA GPU's UUID as its driver spells it, which makes it visible; torch prints it bare."""
    bare = str(getattr(properties, "uuid", ""))
    if not bare or bare.startswith(("GPU-", "MIG-")):
        return bare
    return f"{'MIG' if ' MIG ' in properties.name else 'GPU'}-{bare}"


def hidden_by(environ: Mapping[str, str]) -> str:
    """The variable with which the user hides every GPU from torch; empty if none does.

    A wrong number or name hides them too, but that is a mistake, not a wish.
    """
    for name in _HIDING:
        first = environ.get(name, "0").partition(",")[0].strip().lower()
        if first in ("", "-1", "none", "nodevfiles", "void"):  # Slurm writes NoDevFiles
            return name
    return ""


def first_gpu(environ: Mapping[str, str]) -> int | None:
    """The number that CUDA_VISIBLE_DEVICES begins with; if no GPU has it, torch sees none at all."""
    first = environ.get("CUDA_VISIBLE_DEVICES", "").partition(",")[0].strip()
    return int(first) if re.fullmatch("[0-9]{1,6}", first) else None


def narrow(environment: MutableMapping[str, str], device: str, visible: str) -> None:
    """Make only the devices `visible` seen, among those that the user allowed; no GPU for `cpu`."""
    if device == "xpu" and visible != "0":  # the first of those it sees is measured in any case
        environment[_LEVEL_ZERO] = _narrowed(visible, environment.get(_LEVEL_ZERO, ""))
    if device not in ("cpu", "cuda"):
        return
    hip = environment.get("HIP_VISIBLE_DEVICES")  # torch on ROCm prefers it
    allowed = environment.get("CUDA_VISIBLE_DEVICES", "") if hip is None else hip
    environment["CUDA_VISIBLE_DEVICES"] = _narrowed(visible, allowed)
    if hip is not None:
        environment["HIP_VISIBLE_DEVICES"] = environment["CUDA_VISIBLE_DEVICES"] or "-1"


def why_not_alone(environ: Mapping[str, str], device: str, index: int) -> str:
    """Why no process can be made to see this device as its first; empty if one can."""
    if device == "cuda" or index == 0:
        return ""
    if device != "xpu":
        return "of several only the first can be measured"
    if re.search(r"\d", environ.get(_SYCL, "")) or "." in environ.get(_LEVEL_ZERO, ""):
        return f"{_SYCL}, or a {_LEVEL_ZERO} with tiles, numbers them in another way"
    return ""


def require_named(device: str, name: str) -> None:
    """Raises Unsupported where the first device that this process sees has another name; "" is any."""
    if name and properties_of(device).name != name:
        raise Unsupported("torch sees another device than the one to measure")


def _narrowed(visible: str, allowed_names: str) -> str:
    """One device among those that the user allowed: torch counts numbers from the first of them."""
    allowed = [name.strip() for name in allowed_names.split(",")]
    if visible.isdigit() and allowed != [""] and int(visible) < len(allowed):
        return allowed[int(visible)]
    return visible


def require_ranks(device: str, per_host: int) -> None:
    """Raises Unsupported where so many ranks cannot have a device each; a CPU has room for any number."""
    if device not in COLLECTIVES:
        raise Unsupported("ranks talk through gloo on CPUs and NCCL on NVIDIA GPUs")
    seen = per_host if device == "cpu" else int(module_of(device).device_count())
    if seen < per_host:
        raise Unsupported(f"{per_host} GPUs are needed on each host, {seen} can be seen on one of them")


def synchronize(device: str) -> None:
    """Wait until the device has done all that was asked of it; a CPU has."""
    module_of(device).synchronize()


def timing_event(device: str) -> Any:
    """An event to `record()`; `first.elapsed_time(last)` is the device's time between two, in ms."""
    return module_of(device).Event(enable_timing=True)


def allocator(device: str) -> Any:
    """The module of torch whose caching allocator counts this device's bytes; None where none does."""
    module = module_of(device)
    return module if hasattr(module, "max_memory_allocated") else None


def amp_of(device: str) -> str:
    """What `amp` is here: `amp-bf16`, else `amp-fp16`, and `fp32` where torch cannot train with that."""
    import torch

    if device == "cuda":
        is_native = torch.cuda.is_bf16_supported(including_emulation=False)
        return "amp-bf16" if is_native else "amp-fp16"
    if device == "mps":  # autocast to bf16 came with torch 2.6, bf16 with macOS 14; a scaler of fp16 fails
        has_bf16 = hasattr(torch, "accelerator") and torch.backends.mps.is_macos_or_newer(14, 0)
        return "amp-bf16" if has_bf16 else "fp32"
    return "amp-bf16"


def require_precision(device: str, precision: str) -> None:
    """Raises Unsupported on a device without `tf32`, and where torch would only imitate `amp-bf16` or
    `amp-fp16`, or cannot train with it."""
    import torch

    if precision == "tf32":
        if device != "cuda":
            raise Unsupported("TF32 exists on NVIDIA GPUs only")
        if torch.version.hip or torch.cuda.get_device_capability()[0] < 8:
            raise Unsupported("TF32 needs compute capability 8.0")
    elif precision == "amp-bf16":
        if amp_of(device) != precision:
            raise Unsupported("this GPU does not compute in bf16")
    elif device == "mps":
        raise Unsupported("torch cannot train in fp16 on an Apple GPU")
    elif device == "cpu":  # on most CPUs imitated, hundreds of times as slowly as fp32
        is_supported = getattr(torch.ops.mkldnn, "_is_mkldnn_fp16_supported", None)
        if is_supported is None or not is_supported():
            raise Unsupported("fp16 on a CPU needs AVX512-FP16 or its like")


def allow_tf32(device: str, is_on: bool) -> None:
    """Switch TF32 on or off for matrix products, convolutions and RNNs, where a device may have it.

    By the flags that every torch has. From torch 2.9 there is also one setting per kind of operation, in
    which a user's step may have asked for TF32, or for bf16 on a CPU: those are put back first, so that the
    flags decide, and can be read by either name (tried with 2.4, 2.9 and 2.13).
    """
    if device == "cpu" and "torch" not in sys.modules:
        return  # none was set, and what needs no torch shall not import it
    import torch

    kinds = torch.backends
    of_cpu = kinds.mkldnn
    if hasattr(of_cpu, "matmul"):  # older torch takes any name that a step writes, and heeds none
        for place in (kinds, kinds.cudnn, of_cpu, of_cpu.matmul, of_cpu.conv, of_cpu.rnn):
            place.fp32_precision = "none"
    torch.set_float32_matmul_precision("high" if is_on else "highest")
    kinds.cudnn.allow_tf32 = is_on


def let_convolutions_be_tried(device: str) -> None:
    """Let cuDNN try its algorithms for each new shape of a convolution; MIOpen would search for minutes."""
    import torch

    if device == "cuda":
        torch.backends.cudnn.benchmark = not torch.version.hip


def release(device: str) -> None:
    """Give the memory that torch keeps for later back to the device, and forget its peak."""
    module = module_of(device)
    for name in ("empty_cache", "reset_peak_memory_stats"):
        if hasattr(module, name):
            getattr(module, name)()


def captured(device: str, run: Callable[[], object]) -> Callable[[], object]:
    """`run` as one graph, which the device repeats without the host. Never seen on hardware.

    `run` is called a few times first. It must use the same memory in every call, and wait for nothing. Raises
    Unsupported where torch has no graphs.
    """
    module = module_of(device)
    if not hasattr(module, "CUDAGraph"):
        raise Unsupported(f"torch captures no graphs on {device}")
    stream, graph = module.Stream(), module.CUDAGraph()
    stream.wait_stream(module.current_stream())
    with module.stream(stream):  # the one of the capture, as hipBLASLt sets itself up per stream
        for _ in range(_WARM_CALLS):
            run()
    module.current_stream().wait_stream(stream)
    with module.graph(graph, stream=stream):
        run()
    replay: Callable[[], object] = graph.replay
    return replay
