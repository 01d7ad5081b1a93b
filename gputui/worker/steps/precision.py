"""What `fp32`, `tf32` and `amp` mean on a device."""

from __future__ import annotations

from ..contract import Precision, Unsupported


def resolve(requested: str, device: str) -> Precision:
    """What a requested precision becomes here. Raises Unsupported if the device has no such mode."""
    if requested == "fp32":
        return Precision(requested, "fp32", device)
    if requested == "tf32":
        if device != "cuda":
            raise Unsupported("TF32 exists on NVIDIA GPUs only")
        import torch

        if torch.version.hip or torch.cuda.get_device_capability()[0] < 8:
            raise Unsupported("TF32 needs compute capability 8.0")
        return Precision(requested, "tf32", device)
    if requested != "amp":
        raise Unsupported(f"no precision is called {requested}")
    return Precision(requested, "amp-fp16" if device == "mps" or _lacks_bf16(device) else "amp-bf16", device)


def _lacks_bf16(device: str) -> bool:
    if device != "cuda":
        return False
    import torch

    return not torch.cuda.is_bf16_supported(including_emulation=False)
