"""Copies between host and device memory, each way and both at once."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor

from ..accelerator import PINNED, module_of
from ..contract import Parameter, Request, Size, Step, Unsupported, Workload

_BYTES = {"4k": 2**12, "64k": 2**16, "1m": 2**20, "16m": 2**24, "256m": 2**28}


def _size(name: str, direction: str, memory: str) -> Size:
    buffers = 2 if direction == "both" else 1
    moved_bytes = buffers * _BYTES[name]
    return Size(
        parameters={"direction": direction, "memory": memory, "bytes": _BYTES[name], "data": "random bytes"},
        units_per_step=float(moved_bytes),
        flops_per_step=None,
        bytes_per_step=moved_bytes,
        memory_bytes=moved_bytes,
    )


def _sizes() -> dict[str, Size]:
    """Named `4k-h2d` to `256m-both-pageable`; host memory is pinned unless the name says otherwise."""
    sizes = {}
    for memory, suffix in (("pinned", ""), ("pageable", "-pageable")):
        for name in _BYTES:
            # In both directions at once every step synchronizes, which only large copies hide.
            for direction in ("h2d", "d2h", "both") if name == "256m" else ("h2d", "d2h"):
                sizes[f"{name}-{direction}{suffix}"] = _size(name, direction, memory)
    return sizes


def build(request: Request) -> Step:
    """One copy of random bytes per step, or one each way. Raises Unsupported where there is no link."""
    if request.device not in PINNED:
        raise Unsupported("host and device share one memory: nothing to transfer")
    return Step(transfer(request.parameters, request.device, request.seed))


def transfer(parameters: Mapping[str, Parameter], device: str, seed: int) -> Callable[[], object]:
    """What a step does.

    Copies from and to pinned memory are queued back to back, as in a program that overlaps them with work;
    the host does not wait. Pageable memory cannot be handed to the device, so there a copy blocks its thread
    until it is done, and a copy the other way at the same time needs a second thread. Copies in both
    directions start and end together, so neither has the link to itself.
    """
    import torch

    direction, count = str(parameters["direction"]), int(parameters["bytes"])
    pinned = parameters["memory"] == "pinned"
    streams = module_of(device)
    generator = torch.Generator().manual_seed(seed)
    pattern = torch.randint(256, (min(count, 2**22),), dtype=torch.uint8, generator=generator)
    content = pattern.repeat(count // pattern.numel())

    host_out, host_in = (torch.empty(count, dtype=torch.uint8, pin_memory=pinned) for _ in range(2))
    host_out.copy_(content)
    host_in.zero_()  # touched, so that its pages exist before the first copy
    device_in = torch.empty(count, dtype=torch.uint8, device=device)
    device_out = content.to(device)

    def up() -> object:
        return device_in.copy_(host_out, non_blocking=pinned)

    def down() -> object:
        return host_in.copy_(device_out, non_blocking=pinned)

    if direction != "both":
        return up if direction == "h2d" else down

    back = streams.Stream()

    def down_on_its_stream() -> object:
        with streams.stream(back):
            return down()

    def both_queued() -> object:
        here = streams.current_stream()
        back.wait_stream(here)
        done = down_on_its_stream(), up()
        here.wait_stream(back)
        return done

    pool = ThreadPoolExecutor(1)

    def both_held() -> object:
        going_down = pool.submit(down_on_its_stream)
        return up(), going_down.result()

    return both_queued if pinned else both_held


WORKLOAD = Workload(
    name="xfer",
    version=1,
    title="transfer",
    question="How fast do host and device exchange data?",
    workload_class="host",
    unit="B",
    sizes=_sizes(),
    precisions=("fp32",),
    device_classes=("gpu",),
    needs_torch=True,
    build=build,
)
