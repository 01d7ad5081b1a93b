"""What a machine can reach at all: the rate of a square matrix product, and the bandwidth of its memory."""

from __future__ import annotations

from ..contract import Request, Size, Step, Workload
from ..steps import POOL_NUMBERS, NumberPool


def _product_size(n: int) -> Size:
    return Size(
        parameters={"m": n, "n": n, "k": n, "data": "normal"},
        units_per_step=2.0 * n**3,
        flops_per_step=2 * n**3,
        bytes_per_step=None,
        memory_bytes=3 * 4 * n * n,
        operators=1,
    )


def build_product(request: Request) -> Step:
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


def _copy_size(mib: int) -> Size:
    array_bytes = mib * 2**20
    return Size(
        parameters={"operation": "copy", "elements": array_bytes // 4, "dtype": "float32", "data": "normal"},
        units_per_step=2.0 * array_bytes,
        flops_per_step=None,
        bytes_per_step=2 * array_bytes,
        memory_bytes=2 * array_bytes,
        operators=1,
    )


def build_copy(request: Request) -> Step:
    """Two float32 arrays on the device; bytes read and bytes written both count, as in STREAM.

    The numbers are random, since a GPU uses less power for constant ones; they repeat every 4 MiB.
    """
    import torch

    elements = request.integer("elements")
    generator = torch.Generator().manual_seed(request.seed)
    pattern = torch.randn(2**20, generator=generator).to(request.device)
    source = pattern.repeat(-(-elements // pattern.numel()))[:elements]
    target = torch.zeros_like(source)

    def run() -> object:
        return target.copy_(source)

    return Step(run)


MATMUL = Workload(
    name="gemm",
    version=1,
    title="matmul",
    question="How many FLOP/s can this box reach at all?",
    workload_class="ceiling",
    unit="flop",
    sizes={"mini": _product_size(2048), "base": _product_size(4096), "large": _product_size(8192)},
    precisions=("fp32", "tf32", "amp"),
    device_classes=("cpu", "gpu"),
    needs_torch=True,
    build=build_product,
)

MEMORY_COPY = Workload(
    name="membw",
    version=1,
    title="memory copy",
    question="How fast does memory move?",
    workload_class="ceiling",
    unit="B",
    # mini: 4 times the last-level cache of most CPUs; base: 4 times that of any GPU known (256 MiB).
    sizes={"mini": _copy_size(256), "base": _copy_size(1024)},
    precisions=("fp32",),
    device_classes=("cpu", "gpu"),
    needs_torch=True,
    build=build_copy,
)
