"""Builds each workload on fake `cuda` tensors, does a step of it, and prints what that showed as JSON lines.

    python fake_cuda.py LIBRARY [NAME...]

`LIBRARY` is `no_cuda_device.cpp`, compiled. It must be there before torch is imported, hence this process.
"""

from __future__ import annotations

import contextlib
import ctypes
import importlib.util
import json
import sys
import time
import traceback
import weakref
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from unittest import mock

USED = {"fp32": ("fp32",), "tf32": ("tf32",), "amp": ("amp-bf16", "amp-fp16")}
"""What each precision becomes on GPUs: fp16 on those without bf16."""
NOT_HERE = {
    "bs_sweep": "finds its batch by running out of memory, which fake tensors never do",
    "infer_best": "finds its batch by running out of memory, which fake tensors never do",
    "ddp": "its steps are done in other processes, which talk through NCCL",
    "loader": "its batches come from processes, as real tensors",
}
"""Workloads that need a device, and why. `tests/gpu/day.sh` runs them."""
NOT_THESE = {
    ("xfer", "256m-both"): "uses a second stream, which Python makes with the driver",
    ("xfer", "256m-both-pageable"): "uses a second stream, which Python makes with the driver",
    **{
        ("lstm_train", size): "as mini: without cuDNN each time step is an operator, which takes seconds"
        for size in ("base", "large", "xl")
    },
    **{
        ("decode", size): "as with 8 sequences, which take more memory: takes seconds"
        for size in ("base", "large", "xl")
    },
    **{
        ("memory_tricks", size): "as base, with more layers: takes seconds"
        for size in ("large", "large-checkpoint", "large-offload", "large-accumulate")
    },
    **{
        (name, "large"): "as base and xl, between which it is: takes seconds"
        for name in ("conv_train", "gpt_train", "bert_ft", "style_fps")
    },
    ("decode", "large-b8"): "as base-b8 and xl-b8, between which it is: takes seconds",
    ("memory_tricks", "base-accumulate"): "as mini-accumulate, and in less memory than base: takes seconds",
    ("memory_tricks", "base-checkpoint"): "as mini-checkpoint, and in less memory than base: takes seconds",
}
"""Sizes, likewise. Of the modes, `compile` is left out: inductor's kernels are compiled for a device."""
TRAINED_IN = ("fp32", "amp-fp16")
"""Of a training: fp16 does what bf16 does, and scales its loss; TF32 is a setting, which others have too."""
READS_BACK = ("_local_scalar_dense", "nonzero", "equal", "item")


def one_device(library: str) -> None:
    """Load the device that is none into this process, and torch after it."""
    found = importlib.util.find_spec("torch")
    assert found is not None
    assert found.origin is not None
    for name in ("libc10.so", "libtorch_cpu.so"):
        ctypes.CDLL(str(Path(found.origin).parent / "lib" / name), mode=ctypes.RTLD_GLOBAL)
    ctypes.CDLL(library)
    import torch
    from torch._subclasses.fake_tensor import FakeTensorMode

    torch.cuda._lazy_init = lambda: None
    torch.cuda.is_available = lambda: True
    torch.cuda.synchronize = lambda *_: None
    torch.cuda.device_count = lambda: 1
    torch.cuda.current_device = lambda: 0
    torch.cuda.get_device_capability = lambda *_: (9, 0)
    torch.cuda.is_bf16_supported = lambda *_, **__: True
    torch.cuda.get_rng_state = lambda *_: torch.empty(16, dtype=torch.uint8)
    torch.cuda.set_rng_state = lambda *_: None
    torch.Tensor.pin_memory = lambda tensor, *_: tensor
    torch.nn.Module.to = moved
    torch.cuda.reset_peak_memory_stats = lambda *_: None
    fused = torch.library.Library("aten", "IMPL", "Meta")
    fused.impl(
        "_fused_sgd_", lambda *_, **__: None
    )  # it has no shape function of its own, and returns nothing
    one_device.__dict__["kept"] = fused
    # As where CUDA is absent, though it seems to be there: torch.tensor(0, device="cuda") stays fake.
    FakeTensorMode.avoid_device_init = property(lambda _: True)


def moved(module: Any, *places: Any, **where: Any) -> Any:
    """As `Module.to`, which swaps tensors in place: fake ones cannot be."""
    import torch

    without = {name: value for name, value in where.items() if name != "memory_format"}
    for part in module.modules():
        for name, value in part._parameters.items():
            if value is not None:
                new = value.detach().to(*places, **(where if value.dim() == 4 else without))
                part._parameters[name] = torch.nn.Parameter(new, value.requires_grad)
        for name, buffer in part._buffers.items():
            if buffer is not None:
                part._buffers[name] = buffer.to(*places, **without)
    return module


def flags() -> dict[str, object]:
    """What a workload may not leave behind."""
    import torch

    return {
        "grad": torch.is_grad_enabled(),
        "inference": torch.is_inference_mode_enabled(),
        "autocast": torch.is_autocast_enabled("cuda"),
        "deterministic": torch.are_deterministic_algorithms_enabled(),
        "cudnn.deterministic": torch.backends.cudnn.deterministic,
        "dtype": str(torch.get_default_dtype()),
        "device": str(torch.get_default_device()),
        "matmul": torch.get_float32_matmul_precision(),
        "cudnn.allow_tf32": torch.backends.cudnn.allow_tf32,
    }


def watcher() -> Any:
    """A mode that notes what makes the host wait, and the bytes that live on the device."""
    import torch
    from torch.utils._python_dispatch import TorchDispatchMode
    from torch.utils._pytree import tree_leaves

    class Watcher(TorchDispatchMode):  # type: ignore[misc]  # torch is not read by mypy
        def __init__(self) -> None:
            super().__init__()
            self.waits: list[str] = []
            self.live_bytes = self.peak_bytes = 0
            self._seen: set[int] = set()

        def __torch_dispatch__(self, function: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
            made = function(*args, **(kwargs or {}))
            name = function.name()
            if any(part in name for part in READS_BACK) or self._comes_back(name, args, made):
                self.waits.append(name)
            for tensor in tree_leaves(made):
                if isinstance(tensor, torch.Tensor) and tensor.device.type == "cuda":
                    self._add(tensor)
            return made

        def _comes_back(self, name: str, args: Any, made: Any) -> bool:
            if "_to_copy" in name:
                return bool(args[0].device.type == "cuda" and made.device.type == "cpu")
            if name == "aten::copy_" and len(args) == 2:  # a third argument: it does not block
                return bool(args[1].device.type == "cuda" and args[0].device.type == "cpu")
            return False

        def _add(self, tensor: Any) -> None:
            storage = tensor.untyped_storage()
            key = storage._cdata
            if key in self._seen:
                return
            self._seen.add(key)
            size = storage.nbytes()
            self.live_bytes += size
            self.peak_bytes = max(self.peak_bytes, self.live_bytes)
            weakref.finalize(storage, self._remove, key, size)

        def _remove(self, key: int, size: int) -> None:
            self._seen.discard(key)
            self.live_bytes -= size

    return Watcher()


def done(workload: Any, size: str, precision: str, used: str) -> dict[str, object]:
    """Build it and do one step."""
    from torch._subclasses.fake_tensor import FakeTensorMode
    from torch.utils.flop_counter import FlopCounterMode

    from gputui.worker import layouts
    from gputui.worker.contract import Precision, Request
    from gputui.worker.timing import cpu_stopwatch

    found = workload.sizes[size]
    chosen = Precision(precision, used, "cuda")
    chosen.apply()
    vars(layouts)["stopwatch_for"] = lambda device: cpu_stopwatch  # a trial is one step, of no time
    layouts.WARM_STEPS = layouts.TRIALS = 0
    # Layouts are tried at the smallest size: the others are built and done three times in the same way.
    trial = layouts._trial_ns if size.startswith("mini") else lambda *_: 0.0
    before = flags()
    request = Request(found.parameters, "cuda", chosen, 1, 1, 60.0)
    with FakeTensorMode(allow_non_fake_inputs=True), watcher() as watched:
        with mock.patch.object(layouts, "_trial_ns", trial):
            step = workload.build(request)
        try:
            watched.waits.clear()  # while building it may wait
            with FlopCounterMode(display=False) as counted:
                step.run()
        finally:
            if step.close:
                step.close()
        result: dict[str, object] = {
            "waits": sorted(set(watched.waits)),
            "flops": counted.get_total_flops(),
            "declared_flops": found.flops_per_step,
            "declared_bytes": found.memory_bytes,
            "peak_bytes": watched.peak_bytes,
        }
    after = flags()
    result["left"] = {name: [before[name], after[name]] for name in before if before[name] != after[name]}
    return result


def planned(names: list[str]) -> Iterator[tuple[Any, str, str, str]]:
    from gputui.worker.workloads import WORKLOADS

    for workload in WORKLOADS:
        if names and workload.name not in names:
            continue
        if workload.name in NOT_HERE or "gpu" not in workload.device_classes or not workload.needs_torch:
            continue
        for size in workload.sizes:
            if (workload.name, size) in NOT_THESE:
                continue
            for precision in workload.precisions:
                for used in USED[precision]:
                    if workload.workload_class == "training" and used not in TRAINED_IN:
                        continue
                    if used == "fp32" or size == next(iter(workload.sizes)):
                        yield workload, size, precision, used


def main() -> None:
    one_device(sys.argv[1])
    for workload, size, precision, used in planned(sys.argv[2:]):
        begun_s = time.perf_counter()
        try:
            with contextlib.redirect_stdout(sys.stderr):
                found = done(workload, size, precision, used)
        except Exception as error:
            frames = traceback.extract_tb(error.__traceback__)
            ours = [f"{Path(f.filename).name}:{f.lineno}" for f in frames if "gputui/worker" in f.filename]
            found = {"error": f"{type(error).__name__}: {error}"[:300], "at": ours[-2:]}
        found["seconds"] = round(time.perf_counter() - begun_s, 2)
        print(json.dumps({"case": f"{workload.name} {size} {used}", **found}), flush=True)


if __name__ == "__main__":
    main()
