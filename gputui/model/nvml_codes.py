"""Explanations of the NVML library's return codes."""

from __future__ import annotations

SUCCESS = 0
UNINITIALIZED = 1
INVALID_ARGUMENT = 2
NOT_SUPPORTED = 3
NO_PERMISSION = 4
NOT_FOUND = 6
INSUFFICIENT_SIZE = 7
DRIVER_NOT_LOADED = 9
LIBRARY_NOT_FOUND = 12
FUNCTION_NOT_FOUND = 13
GPU_IS_LOST = 15
VERSIONS_DIFFER = 18
ARGUMENT_VERSION_MISMATCH = 25
NO_GPU = 28

_MEANINGS: dict[int, str] = {
    UNINITIALIZED: "the NVIDIA driver was unloaded",
    NOT_SUPPORTED: "this GPU does not report it",
    NO_PERMISSION: "no permission to ask the NVIDIA driver",
    NOT_FOUND: "the NVIDIA driver did not find it",
    8: "the GPU's external power cables are not all connected",
    DRIVER_NOT_LOADED: "the NVIDIA driver is not loaded: no NVIDIA GPU here, or `modprobe nvidia` is needed",
    10: "the NVIDIA driver did not answer in time",
    LIBRARY_NOT_FOUND: (
        "no NVIDIA driver here: libnvidia-ml.so.1 was not found (in a container: start it with its GPUs,"
        " docker run --gpus all)"
    ),
    FUNCTION_NOT_FOUND: "this NVIDIA driver is too old to tell",
    GPU_IS_LOST: "the GPU is lost: it fell off the bus; restart the box or take another",
    16: "the GPU needs a reset",
    17: "the operating system blocks the NVIDIA driver",
    VERSIONS_DIFFER: "NVIDIA driver and library have different versions: reboot, or reload the kernel module",
    19: "the GPU is in use by another program",
    24: "this GPU does not report the clock",
    ARGUMENT_VERSION_MISMATCH: "this NVIDIA driver is too old to tell",
    NO_GPU: "the NVIDIA driver sees no GPU",
}


def nvml_reason(code: int) -> str:
    """Why a call that returned `code` gave no value, in the user's words."""
    return _MEANINGS.get(code, f"the NVIDIA driver answered with error {code}")
