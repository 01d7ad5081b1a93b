"""What the NVML library's return codes mean to a person."""

from __future__ import annotations

NOT_SUPPORTED = 3
LIBRARY_NOT_FOUND = 12
FUNCTION_NOT_FOUND = 13
GPU_IS_LOST = 15
ARGUMENT_VERSION_MISMATCH = 25

_MEANINGS: dict[int, str] = {
    NOT_SUPPORTED: "this GPU does not report it",
    4: "no permission to ask the NVIDIA driver",
    6: "the NVIDIA driver did not find it",
    8: "the GPU's external power cables are not all connected",
    9: "the NVIDIA driver is not loaded: no NVIDIA GPU here, or `modprobe nvidia` is needed",
    10: "the NVIDIA driver did not answer in time",
    LIBRARY_NOT_FOUND: (
        "libnvidia-ml.so.1 was not found: no NVIDIA driver here, or a container started without its GPUs"
    ),
    FUNCTION_NOT_FOUND: "this NVIDIA driver is too old to tell",
    GPU_IS_LOST: "the GPU is lost: it fell off the bus; restart the box or take another",
    16: "the GPU needs a reset",
    17: "the operating system blocks the NVIDIA driver",
    18: "NVIDIA driver and library have different versions: reboot, or reload the kernel module",
    19: "the GPU is in use by another program",
    24: "this GPU does not report the clock",
    ARGUMENT_VERSION_MISMATCH: "this NVIDIA driver is too old to tell",
    28: "the NVIDIA driver sees no GPU",
}


def nvml_reason(code: int) -> str:
    """Why a call that returned `code` gave nothing, in the user's words."""
    return _MEANINGS.get(code, f"the NVIDIA driver answered with error {code}")
