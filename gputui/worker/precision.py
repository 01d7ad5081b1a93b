"""What `fp32`, `tf32` and `amp` mean on one device, and how torch is told."""

from __future__ import annotations

import contextlib
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import Any  # torch's own types, where torch may be absent

from .contract import Unsupported


@dataclass(frozen=True)
class Precision:
    """A requested precision and what it became on this device."""

    requested: str
    used: str
    """`fp32`, `tf32`, `amp-bf16` or `amp-fp16`."""
    device: str

    def product_dtype(self) -> Any:
        """The type in which matrices are multiplied: float32, bfloat16 or float16."""
        import torch

        return {"amp-bf16": torch.bfloat16, "amp-fp16": torch.float16}.get(self.used, torch.float32)

    def autocast(self) -> AbstractContextManager[object]:
        """The context of a forward pass."""
        if not self.used.startswith("amp"):
            return contextlib.nullcontext()
        import torch

        context: AbstractContextManager[object] = torch.autocast(self.device, dtype=self.product_dtype())
        return context

    def needs_scaler(self) -> bool:
        """fp16 gradients underflow without a scale; bf16's do not."""
        return self.used == "amp-fp16"

    def apply(self) -> None:
        """Switch TF32 on or off for products, convolutions and RNNs; called before every block.

        From torch 2.9 there is one setting per kind of operation, and mixing it with the older flags is
        an error, so only one of the two is ever touched.
        """
        if self.device != "cuda":
            return
        import torch

        on = self.used == "tf32"
        if hasattr(torch.backends.cudnn, "conv"):
            word = "tf32" if on else "ieee"
            torch.backends.cuda.matmul.fp32_precision = word
            torch.backends.cudnn.conv.fp32_precision = word
            torch.backends.cudnn.rnn.fp32_precision = word
        else:
            torch.backends.cuda.matmul.allow_tf32 = on
            torch.backends.cudnn.allow_tf32 = on


def resolve(requested: str, device: str) -> Precision:
    """What a request becomes here. Raises Unsupported if the device has no such mode."""
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
