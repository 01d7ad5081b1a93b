"""Generation of tokens by a language model, one by one, with a static key-value cache."""

from __future__ import annotations

from dataclasses import asdict
from typing import Any  # Any: torch's types, which may not be installed

from ..contract import Request, Size, Step, Workload
from ..flops import LlamaShape, decode_bytes, decode_flops
from ..steps import compiled, recorded, served

MINI = LlamaShape(layers=12, heads=12, width=768, hidden=2048, vocabulary=32000, cache=256)
"""0.1B multiplied weights."""
BASE = LlamaShape(layers=22, heads=16, width=2048, hidden=5632, vocabulary=32000, cache=512)
"""1.2B."""
LARGE = LlamaShape(layers=28, heads=24, width=3072, hidden=8192, vocabulary=32000, cache=512)
"""3.3B."""
XL = LlamaShape(layers=32, heads=32, width=4096, hidden=11008, vocabulary=32000, cache=512)
"""6.6B: Llama-2-7B."""


def _size(shape: LlamaShape, batch: int) -> Size:
    fp32_bytes = decode_bytes(shape, batch, 4)
    return Size(
        parameters={
            **asdict(shape),
            "prompt": shape.cache // 4,
            "batch": batch,
            "sampling": "greedy",
            "amp": "weights and cache converted once",
            "data": "uniform tokens",
        },
        units_per_step=float(batch),
        flops_per_step=decode_flops(shape, batch),
        bytes_per_step=fp32_bytes,
        amp_bytes_per_step=decode_bytes(shape, batch, 2),
        memory_bytes=fp32_bytes + 4 * shape.vocabulary * shape.width,
        operators=59 * shape.layers + 18,
    )


def build(request: Request) -> Step:
    """Reads the prompt here; a step is one more token per sequence, chosen and fed back on the device.

    When the cache is full, the text starts over after the prompt, with the same first token.
    """
    import torch

    from ..models import Llama

    shape = LlamaShape(**{name: request.integer(name) for name in LlamaShape.__dataclass_fields__})
    batch, prompt = request.integer("batch"), request.integer("prompt")
    model = served(lambda: Llama(shape, batch, request.precision.product_dtype()), request)
    generator = torch.Generator().manual_seed(request.seed)
    tokens = torch.randint(shape.vocabulary, (batch, prompt), generator=generator).to(request.device)
    next_scores = compiled(model, request)
    scores: Any = None
    written = 0
    with torch.inference_mode():
        first = model(tokens, torch.arange(prompt, device=request.device)).argmax(dim=-1, keepdim=True)
        token, place = first.clone(), torch.empty(1, dtype=torch.int64, device=request.device)

    def one_more() -> None:
        nonlocal scores
        scores = next_scores(token, place)
        token.copy_(scores.argmax(dim=-1, keepdim=True))
        place.add_(1)

    def start_over() -> None:
        nonlocal written
        written = prompt
        token.copy_(first)
        place.fill_(prompt)

    with torch.inference_mode():
        start_over()
        replay = recorded(one_more, request)
        start_over()

    def run() -> object:
        nonlocal written
        with torch.inference_mode():
            if written == shape.cache:
                start_over()
            replay()
        written += 1
        return scores

    return Step(run, result=lambda: float(scores.float().abs().mean()))


WORKLOAD = Workload(
    name="decode",
    version=1,
    title="text generation",
    question="How many tokens per second does a language model write here?",
    workload_class="inference",
    unit="tok",
    sizes={
        "mini": _size(MINI, 1),
        "mini-b8": _size(MINI, 8),
        "base": _size(BASE, 1),
        "base-b8": _size(BASE, 8),
        "large": _size(LARGE, 1),
        "large-b8": _size(LARGE, 8),
        "xl": _size(XL, 1),
        "xl-b8": _size(XL, 8),
    },
    precisions=("fp32", "tf32", "amp"),
    device_classes=("cpu", "gpu"),
    modes=("eager", "compile", "graph"),
    needs_torch=True,
    build=build,
)
