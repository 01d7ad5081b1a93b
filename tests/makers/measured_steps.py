"""A program that runs training steps on this CPU and prints where their memory was, as JSON.

Each argument is a JSON object: `precision`, `parameters`, and either `workload`, a built-in one, or
`optimizer`, for a plain step with that; a plain step with `hidden` among its parameters has LLaMA's blocks.
"""

from __future__ import annotations

import gc
import json
import sys
from typing import Any  # JSON, and torch's own types

import torch

from gputui.worker.contract import Request
from gputui.worker.flops import TextShape
from gputui.worker.models import Gpt
from gputui.worker.profiling.allocations import points_of_a_step
from gputui.worker.steps import resolve
from gputui.worker.workloads import WORKLOADS

SHAPE = ("layers", "heads", "width", "context", "vocabulary")
OPTIMIZERS = {
    "sgd": lambda weights: torch.optim.SGD(weights, lr=1e-3),
    "momentum": lambda weights: torch.optim.SGD(weights, lr=1e-3, momentum=0.9),
    "rmsprop": lambda weights: torch.optim.RMSprop(weights, lr=1e-3),
    "adagrad": lambda weights: torch.optim.Adagrad(weights, lr=1e-3),
    "adam": lambda weights: torch.optim.Adam(weights, lr=1e-3, fused=True),
    "adamw": lambda weights: torch.optim.AdamW(weights, lr=1e-3, fused=True),
}


def of_a_workload(request: dict[str, Any]) -> dict[str, dict[str, int]]:
    """Every part at every point of a step of a workload, as its profiled pass reports them."""
    gc.collect()  # a model with checkpoints holds itself, and all weights of the process count
    workload = next(w for w in WORKLOADS if w.name == request["workload"])
    precision = resolve(request["precision"], "cpu")
    step = workload.build(Request(request["parameters"], "cpu", precision, threads=1, seed=1))
    return points_of_a_step("cpu", step.run)


class GatedLayer(torch.nn.Module):  # type: ignore[misc]  # torch is not followed
    """LLaMA's block as it is usually written: norms of plain operations, three projections."""

    def __init__(self, width: int, heads: int, hidden: int) -> None:
        super().__init__()
        self.heads = heads
        self.scales = torch.nn.ParameterList(torch.ones(width) for _ in range(2))
        self.q, self.k, self.v, self.o = (torch.nn.Linear(width, width, bias=False) for _ in range(4))
        self.gate, self.up = (torch.nn.Linear(width, hidden, bias=False) for _ in range(2))
        self.down = torch.nn.Linear(hidden, width, bias=False)

    def norm(self, x: Any, scale: Any) -> Any:
        return scale * (x * torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + 1e-5))

    def turned(self, x: Any) -> Any:
        left, right = x.chunk(2, dim=-1)
        angle = torch.outer(torch.arange(x.shape[2]), torch.ones(x.shape[3])).to(x.dtype)
        return x * angle.cos() + torch.cat((-right, left), dim=-1) * angle.sin()

    def forward(self, x: Any) -> Any:
        seen = self.norm(x, self.scales[0])
        q, k, v = (p(seen).unflatten(2, (self.heads, -1)).transpose(1, 2) for p in (self.q, self.k, self.v))
        attended = torch.nn.functional.scaled_dot_product_attention(
            self.turned(q), self.turned(k), v, is_causal=True
        )
        x = x + self.o(attended.transpose(1, 2).flatten(2))
        seen = self.norm(x, self.scales[1])
        return x + self.down(torch.nn.functional.silu(self.gate(seen)) * self.up(seen))


class Gated(torch.nn.Module):  # type: ignore[misc]
    """Tokens to scores through gated blocks, with a separate head."""

    def __init__(self, shape: TextShape, hidden: int) -> None:
        super().__init__()
        self.tokens = torch.nn.Embedding(shape.vocabulary, shape.width)
        self.layers = torch.nn.Sequential(
            *(GatedLayer(shape.width, shape.heads, hidden) for _ in range(shape.layers))
        )
        self.norm = torch.nn.RMSNorm(shape.width)
        self.head = torch.nn.Linear(shape.width, shape.vocabulary, bias=False)

    def forward(self, tokens: Any) -> Any:
        return self.head(self.norm(self.layers(self.tokens(tokens))))


def of_a_model(request: dict[str, Any]) -> dict[str, dict[str, int]]:
    """The same for a plain step with any optimizer: persistent memory, and the peak."""
    parameters, precision = request["parameters"], request["precision"]
    shape = TextShape(**{name: parameters[name] for name in SHAPE})
    model = Gated(shape, parameters["hidden"]) if "hidden" in parameters else Gpt(shape)
    model = model.to(torch.bfloat16 if precision == "bf16" else torch.float32)
    weights = list(model.parameters())
    optimizer = OPTIMIZERS[request["optimizer"]](weights)
    tokens = torch.randint(shape.vocabulary, (parameters["batch"], shape.context + 1))

    def step() -> None:
        optimizer.zero_grad(set_to_none=True)
        with torch.autocast("cpu", torch.bfloat16, enabled=precision == "amp"):
            loss = torch.nn.functional.cross_entropy(
                model(tokens[:, :-1]).reshape(-1, shape.vocabulary), tokens[:, 1:].reshape(-1)
            )
        loss.backward()
        optimizer.step()

    points = points_of_a_step("cpu", step)
    kept = {part: points["after_optimizer"][part] for part in ("weights", "gradients")}
    state = [v for s in optimizer.state.values() for v in s.values() if torch.is_tensor(v) and v.dim() > 0]
    kept["optimizer"] = sum(v.untyped_storage().nbytes() for v in state)
    return {"kept": {"parameters": sum(w.numel() for w in weights), **kept}, "peak": points["peak"]}


if __name__ == "__main__":
    torch.set_num_threads(1)
    requests = map(json.loads, sys.argv[1:])
    print(json.dumps([of_a_model(a) if "optimizer" in a else of_a_workload(a) for a in requests]))
