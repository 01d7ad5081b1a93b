"""Real-time style transfer: frames that come from the host and return to it, one by one."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

from ..contract import Figure, Request, Size, Step, Value, Workload
from ..flops import style_flops
from ..layouts import NCHW, SEARCHED, in_a_layout, memory_format
from ..steps import Stopwatched, compiled, percentile_value, request_step, served

SMOOTH_FPS = 30.0
SHARES = (0.5, 0.99)


def _size(height: int, width: int, batch: int, memory_mib: int, layout: str = SEARCHED) -> Size:
    """Height and width are multiples of 4."""
    return Size(
        parameters={
            "height": height,
            "width": width,
            "batch": batch,
            "layout": layout,
            "amp": "weights converted once",
            "data": "random bytes",
            "path": "host to device to host",
        },
        units_per_step=float(batch),
        flops_per_step=batch * style_flops(height, width),
        bytes_per_step=None,
        memory_bytes=memory_mib * 2**20,
        operators=500,  # 80; each of 16 convolutions, with its padding, takes as long as many others
    )


def build(request: Request) -> Step:
    """A step is one frame (or a few) of bytes from the host, styled, and back as bytes; it waits."""
    return in_a_layout(request, _built, on_cpu=NCHW)


def _built(request: Request, layout: str) -> Step:
    import torch

    from ..models import Style, shown

    batch, height, width = (request.integer(name) for name in ("batch", "height", "width"))
    generator = torch.Generator().manual_seed(request.seed)
    frames = torch.randint(256, (batch, height, width, 3), dtype=torch.uint8, generator=generator)
    model = compiled(served(lambda: Style(memory_format(layout)), request), request)
    step = request_step(model, frames, torch.zeros_like(frames), request, finish=shown)
    taken = Stopwatched(step.run)

    def figures(step_ns: Sequence[float]) -> Mapping[str, Value]:
        frames = len(taken.taken_s)
        smooth = sum(seconds * SMOOTH_FPS <= batch for seconds in taken.taken_s)
        percentiles = {
            f"p{share * 100:.0f}_frame_s": percentile_value(taken.taken_s, share) for share in SHARES
        }
        return {**percentiles, "smooth_share": Value(smooth / frames, frames)}

    return replace(step, run=taken, settled=taken.taken_s.clear, figures=figures)


WORKLOAD = Workload(
    name="style_fps",
    version=1,
    title="style transfer",
    question="How many frames per second does a video filter reach?",
    workload_class="inference",
    unit="frame",
    sizes={
        "mini": _size(256, 256, 1, 100, NCHW),
        "base": _size(720, 1280, 1, 1000),
        "base-b4": _size(720, 1280, 4, 4000),
        "large": _size(1080, 1920, 1, 2200),
        "large-b4": _size(1080, 1920, 4, 8800),
    },
    precisions=("fp32", "tf32", "amp"),
    device_classes=("cpu", "gpu"),
    modes=("eager", "compile"),
    needs_torch=True,
    build=build,
    figures=(
        *(
            Figure(
                f"p{share * 100:.0f}_frame_s", f"p{share * 100:.0f} time of a frame", "s", "less", "median"
            )
            for share in SHARES
        ),
        Figure("smooth_share", "frames at 30 per second or more", "share", "more", "median"),
    ),
)
