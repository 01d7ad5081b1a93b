"""Our block time of one matrix product against `torch.utils.benchmark`, on the same operands, interleaved.

Prints the ratio of minima and the median ratio of neighbouring blocks for every round, and how many of the
former lie within 1 %. The first rival is our own block once more: what it shows is the box, not the timing.
On a GPU also against `triton.testing.do_bench`, where triton is installed. Run it while nothing else does.
"""

from __future__ import annotations

import argparse
import inspect
import statistics
from collections.abc import Callable
from operator import truediv

import torch
from torch.utils.benchmark import Timer

from gputui.worker.contract import Request
from gputui.worker.steps import resolve
from gputui.worker.timing import steps_for, stopwatch_for
from gputui.worker.workloads import workload_named

Block = Callable[[], float]
"""Times one block; returns seconds per step."""
DEFAULTS: dict[str, dict[str, float]] = {
    # A shared CPU changes its clock all the time: many short blocks let both sides see its best, and a
    # product that fits into the core's own cache is least affected by neighbours.
    "cpu": {"n": 256, "block_s": 0.002, "blocks": 2500},
    "cuda": {"n": 4096, "block_s": 0.2, "blocks": 10},
}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--device", default="cpu", choices=list(DEFAULTS))
    parser.add_argument("--n", type=int, help="rows and columns of the matrices")
    parser.add_argument("--block-s", type=float, help="length of a block; 0 for single steps")
    parser.add_argument("--blocks", type=int, help="of each side in a round")
    chosen = parser.parse_args()
    options = argparse.Namespace(
        **DEFAULTS[chosen.device] | {k: v for k, v in vars(chosen).items() if v is not None}
    )
    torch.set_num_threads(options.threads)

    ours, rivals, steps = _sides(options.device, options.n, options.threads, options.block_s)
    print(f"gemm {options.n} fp32 on {options.device}, threads {torch.get_num_threads()},", end=" ")
    print(f"{options.blocks} blocks of {steps} steps a side and round, interleaved")
    for name, rival in rivals.items():
        print(f"gputui / {name}, minima:")
        ratios = []
        for number in range(options.rounds):
            our_times, their_times = _interleaved(ours, rival, options.blocks)
            ratios.append(min(our_times) / min(their_times))
            pairs = statistics.median(map(truediv, our_times, their_times))
            times = f"{min(our_times) * 1e3:.4f} / {min(their_times) * 1e3:.4f} ms"
            print(f"  round {number + 1}: {times} = {ratios[-1]:.4f}, median of pairs {pairs:.4f}")
        within = sum(abs(ratio - 1) <= 0.01 for ratio in ratios)
        print(f"  within 1 %: {within} of {options.rounds}")


def _sides(device: str, n: int, threads: int, block_s: float) -> tuple[Block, dict[str, Block], int]:
    """Our block, those of the rivals, and the steps of each."""
    workload = workload_named("gemm")
    precision = resolve("fp32", device)
    precision.apply()
    step = workload.build(Request({"m": n, "n": n, "k": n}, device, precision, threads, 1))
    operands = inspect.getclosurevars(step.run).nonlocals  # a, b and product: the same memory
    stopwatch = stopwatch_for(device)
    stopwatch(step.run, 3)
    steps = steps_for(block_s, stopwatch(step.run, 3).block_ns / 3)
    timer = Timer("torch.mm(a, b, out=product)", globals={"torch": torch, **operands}, num_threads=threads)

    def ours() -> float:
        stopwatch(step.run, 2)  # Timer takes two steps before it times, too
        return stopwatch(step.run, steps).block_ns / steps / 1e9

    rivals: dict[str, Block] = {
        "gputui itself": ours,  # the difference that this box shows between equals
        "torch.utils.benchmark": lambda: float(timer.timeit(steps).mean),
    }
    if device == "cuda":
        try:
            from triton.testing import do_bench  # type: ignore[import-not-found,unused-ignore]
        except ImportError:
            print("triton is not installed: do_bench is left out")
        else:
            rivals["triton do_bench"] = lambda: float(do_bench(step.run, rep=block_s * 1e3)) / 1e3
    return ours, rivals, steps


def _interleaved(ours: Block, theirs: Block, blocks: int) -> tuple[list[float], list[float]]:
    """Blocks of each, interleaved; who goes first alternates."""
    our_times: list[float] = []
    their_times: list[float] = []
    for index in range(blocks):
        order = [(ours, our_times), (theirs, their_times)]
        for block, times in order if index % 2 == 0 else reversed(order):
            times.append(block())
    return our_times, their_times


if __name__ == "__main__":
    main()
