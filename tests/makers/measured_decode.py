"""Run as a program: reads prompts with the model of `decode` on this CPU and prints its memory, as JSON.

Each argument is a JSON object: `parameters` of the workload, and `dtype`. Bytes of `weights` and `cache` are
of the tensors themselves; `temporary` is the most that one pass over the prompt holds beside them, and
`meta` the same two of a shape too large to be allocated.
"""

from __future__ import annotations

import json
import sys
from typing import Any  # JSON

import torch

from gputui.worker.flops import LlamaShape
from gputui.worker.models import Llama
from gputui.worker.profiling.allocations import highest_allocated

NAMES = ("layers", "heads", "width", "hidden", "vocabulary", "cache")


def tensors_of(asked: dict[str, Any], device: str) -> tuple[Any, dict[str, int]]:
    """The model, and bytes of its parameters and of the keys and values it keeps."""
    shape = LlamaShape(**{name: asked["parameters"][name] for name in NAMES})
    with torch.device(device):
        model = Llama(shape, asked["parameters"]["batch"], getattr(torch, asked["dtype"]))
    cached = [buffer for name, buffer in model.named_buffers() if name.endswith(("keys", "values"))]
    kept = {"weights": model.parameters(), "cache": cached}
    return model, {part: sum(t.numel() * t.element_size() for t in of) for part, of in kept.items()}


def measured(asked: dict[str, Any]) -> dict[str, int]:
    """What the model keeps, and what one pass over the prompts needs beside it."""
    if asked.get("device") == "meta":
        return tensors_of(asked, "meta")[1]
    model, kept = tensors_of(asked, "cpu")
    parameters = asked["parameters"]
    tokens = torch.randint(parameters["vocabulary"], (parameters["batch"], parameters["prompt"]))
    places = torch.arange(parameters["prompt"])
    with torch.inference_mode():
        return {**kept, "temporary": highest_allocated("cpu", lambda: model(tokens, places))}


if __name__ == "__main__":
    torch.set_num_threads(1)
    print(json.dumps([measured(json.loads(word)) for word in sys.argv[1:]]))
