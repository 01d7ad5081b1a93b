"""Copy between two large arrays: the memory bandwidth of a machine."""

from __future__ import annotations

from ..contract import Request, Size, Step, Workload


def _size(mib: int) -> Size:
    array_bytes = mib * 2**20
    return Size(
        parameters={"operation": "copy", "elements": array_bytes // 4, "dtype": "float32", "data": "normal"},
        units_per_step=2.0 * array_bytes,
        flops_per_step=None,
        bytes_per_step=2 * array_bytes,
        memory_bytes=2 * array_bytes,
        operators=1,
    )


def build(request: Request) -> Step:
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


WORKLOAD = Workload(
    name="membw",
    version=1,
    title="memory copy",
    question="How fast does memory move?",
    workload_class="ceiling",
    unit="B",
    # mini: 4 times the last-level cache of most CPUs; base: 4 times that of any GPU known (256 MiB).
    sizes={"mini": _size(256), "base": _size(1024)},
    precisions=("fp32",),
    device_classes=("cpu", "gpu"),
    needs_torch=True,
    build=build,
)
