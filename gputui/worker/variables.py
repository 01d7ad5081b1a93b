"""Environment variables that change what torch computes with, or how it launches its work.

In: an environment. Out: those that are set, and what they do. None of them holds a secret.
"""

from __future__ import annotations

import re
from collections.abc import Mapping

VARIABLES: Mapping[str, tuple[str, bool]] = {
    "CUDA_LAUNCH_BLOCKING": ("the host waits for each kernel", True),
    "HIP_LAUNCH_BLOCKING": ("the host waits for each kernel", True),
    "AMD_SERIALIZE_KERNEL": ("the host waits for each kernel", True),
    "AMD_SERIALIZE_COPY": ("the host waits for each copy", True),
    "NVIDIA_TF32_OVERRIDE": ("NVIDIA's libraries use TF32, or never do, whatever a program asks for", True),
    "TORCH_ALLOW_TF32_CUBLAS_OVERRIDE": ("fp32 products are TF32", True),
    "PYTORCH_NO_CUDA_MEMORY_CACHING": ("each allocation asks the driver", True),
    "TORCH_COMPILE_DISABLE": ("torch.compile does nothing", True),
    "TORCHDYNAMO_DISABLE": ("torch.compile does nothing", True),
    "ONEDNN_DEFAULT_FPMATH_MODE": ("fp32 on a CPU may be computed in a narrower type", True),
    "DNNL_DEFAULT_FPMATH_MODE": ("fp32 on a CPU may be computed in a narrower type", True),
    "PYTORCH_CUDA_ALLOC_CONF": ("how torch's allocator takes memory", False),
    "PYTORCH_HIP_ALLOC_CONF": ("how torch's allocator takes memory", False),
    "PYTORCH_ALLOC_CONF": ("how torch's allocator takes memory", False),
    "CUDA_DEVICE_MAX_CONNECTIONS": ("how many queues lead to the GPU", False),
    "CUBLAS_WORKSPACE_CONFIG": ("which algorithms cuBLAS has memory for", False),
    "TORCH_BLAS_PREFER_CUBLASLT": ("which library multiplies", False),
    "TORCH_BLAS_PREFER_HIPBLASLT": ("which library multiplies", False),
    "TORCH_CUDNN_SDPA_DEPRIORITIZED": ("cuDNN's attention comes last", False),
    "TORCH_CUDNN_V8_API_DISABLED": ("cuDNN's older interface is used", False),
    "TORCHINDUCTOR_MAX_AUTOTUNE": ("torch.compile tries more kernels", False),
    "PYTORCH_TUNABLEOP_ENABLED": ("torch tries several kernels for a product", False),
    "PYTORCH_MIOPEN_SUGGEST_NHWC": ("which layout MIOpen convolves in", False),
    "MIOPEN_FIND_MODE": ("how long MIOpen looks for a kernel", False),
    "HSA_OVERRIDE_GFX_VERSION": ("kernels of another AMD GPU are used", False),
    "PYTORCH_ENABLE_MPS_FALLBACK": ("operators that Metal lacks run on the CPU", False),
    "ATEN_CPU_CAPABILITY": ("which vector instructions torch uses", False),
    "ONEDNN_MAX_CPU_ISA": ("which instructions oneDNN uses", False),
    "NCCL_P2P_DISABLE": ("GPUs talk through host memory", False),
    "NCCL_IB_DISABLE": ("hosts talk without InfiniBand", False),
    "NCCL_ALGO": ("which algorithms NCCL uses", False),
    "NCCL_PROTO": ("which protocols NCCL uses", False),
}
"""What each does, and whether a row that was measured under it is not what it is called."""
_ZERO_ACTS = ("NVIDIA_TF32_OVERRIDE", "PYTORCH_MIOPEN_SUGGEST_NHWC")
"""0 turns all others off."""
_PLAIN = re.compile(r"[\w.:,;+-]{1,100}", re.ASCII)


def set_in(environ: Mapping[str, str]) -> dict[str, str]:
    """Name and value of each that is set; a value that is none of its usual ones becomes `…`."""
    found = {name: environ[name] for name in VARIABLES if environ.get(name)}
    acting = {name: value for name, value in found.items() if value != "0" or name in _ZERO_ACTS}
    return {name: value if _PLAIN.fullmatch(value) else "…" for name, value in acting.items()}


def falsifies(name: str) -> bool:
    """Whether gputui's own workloads are measured without it."""
    return VARIABLES[name][1]


def without_falsifying(environ: Mapping[str, str]) -> dict[str, str]:
    """The environment of gputui's own workloads."""
    return {name: value for name, value in environ.items() if name not in VARIABLES or not falsifies(name)}


def as_recorded(environ: Mapping[str, str], *, is_cleared: bool) -> str:
    """`CUDA_LAUNCH_BLOCKING=1 (cleared) NCCL_ALGO=Ring`; empty if none is set."""
    words = [
        f"{name}={value}{' (cleared)' if is_cleared and falsifies(name) else ''}"
        for name, value in set_in(environ).items()
    ]
    return " ".join(words)


def warnings_of(environ: Mapping[str, str], *, is_cleared: bool) -> list[str]:
    """What a run says at its start of each that makes its rows something else than they are called."""
    done = "cleared for gputui's own workloads" if is_cleared else "left as it is"
    return [
        f"{name}={value} is {done}: {VARIABLES[name][0]}"
        for name, value in set_in(environ).items()
        if falsifies(name)
    ]
