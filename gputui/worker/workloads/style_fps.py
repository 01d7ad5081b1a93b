"""Real-time style transfer: frames that come from the host and return to it, one by one."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, replace

from ..contract import Figure, Request, Size, Step, Value, Workload
from ..flops import StyleShape, style_flops
from ..layouts import NCHW, SEARCHED, in_a_layout, memory_format
from ..steps import Stopwatched, percentile_value

MINI = StyleShape(height=256, width=256)
BASE = StyleShape(height=720, width=1280)
LARGE = StyleShape(height=1080, width=1920)
SMOOTH_FPS = 30.0
SHARES = (0.5, 0.99)


def _size(shape: StyleShape, batch: int, memory_mib: int) -> Size:
    return Size(
        parameters={
            **asdict(shape),
            "batch": batch,
            "layout": NCHW if shape == MINI else SEARCHED,
            "amp": "weights converted once",
            "data": "random bytes",
            "path": "host to device to host",
        },
        units_per_step=float(batch),
        flops_per_step=batch * style_flops(shape),
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
    from ..steps import compiled, request_step, served

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
        "mini": _size(MINI, 1, 100),
        "base": _size(BASE, 1, 1000),
        "base-b4": _size(BASE, 4, 4000),
        "large": _size(LARGE, 1, 2200),
        "large-b4": _size(LARGE, 4, 8800),
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
