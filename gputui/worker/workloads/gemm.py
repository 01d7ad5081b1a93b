"""Square matrix product: the peak arithmetic rate of a machine."""

from __future__ import annotations

from ..contract import Request, Size, Step, Workload
from ..steps import POOL_NUMBERS, NumberPool


def _size(n: int) -> Size:
    return Size(
        parameters={"m": n, "n": n, "k": n, "data": "normal"},
        units_per_step=2.0 * n**3,
        flops_per_step=2 * n**3,
        bytes_per_step=None,
        memory_bytes=3 * 4 * n * n,
        operators=1,
    )


def build(request: Request) -> Step:
    """Random normal operands, already in the dtype of the product; the output buffer is reused.

    `amp` is the peak that AMP can reach: a product in autocast's dtype, without the casts.
    """
    import torch

    m, n, k = (request.integer(name) for name in "mnk")
    generator = torch.Generator().manual_seed(request.seed)
    kind = {"device": request.device, "dtype": request.precision.product_dtype()}
    numbers = NumberPool(torch.randn(POOL_NUMBERS, generator=generator).to(**kind))
    a, b = numbers.tensor(m, k), numbers.tensor(k, n)
    product = torch.empty(m, n, **kind)

    def run() -> object:
        return torch.mm(a, b, out=product)

    return Step(run)


WORKLOAD = Workload(
    name="gemm",
    version=1,
    title="matmul",
    question="How many FLOP/s can this box reach at all?",
    workload_class="ceiling",
    unit="flop",
    sizes={"mini": _size(2048), "base": _size(4096), "large": _size(8192)},
    precisions=("fp32", "tf32", "amp"),
    device_classes=("cpu", "gpu"),
    needs_torch=True,
    build=build,
)
