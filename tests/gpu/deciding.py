"""What decides how GPU rows are measured: each question's figures on one line.

python tests/gpu/deciding.py rows bakeoff.db      # device time against host time of every row
python tests/gpu/deciding.py graph layout collective mig start [--device cuda]
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from statistics import median

from gputui.model.absent import Missing
from gputui.model.result import Run
from gputui.services.results.throughput import STEP_KEYS, is_host_bound
from gputui.store.reading import open_result
from gputui.worker.accelerator import module_of
from gputui.worker.contract import Parameter, Request, Step
from gputui.worker.steps import resolve
from gputui.worker.timing import NotApart, device_times_apart, steps_for, stopwatch_for
from gputui.worker.workloads import workload_named
from gputui.worker.workloads.ddp import start_ranks

BLOCKS, BLOCK_S = 5, 0.3
ROW_TIMES = 20
SIZE_1M = 2**20
FIRST_TENSOR = "import torch; torch.zeros(1, device='{0}'); torch.{0}.synchronize()"
FORKING = """
import os, time, torch
begun_s = time.monotonic()
child = os.fork()
if not child:
    {0}
    os._exit(0)
os.waitpid(child, 0)
print(time.monotonic() - begun_s)
"""


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("what", nargs="+")
    parser.add_argument("--device", default="cuda")
    options = parser.parse_args()
    if options.what[0] == "rows":
        for db in map(Path, options.what[1:]):
            with open_result(db) as result:
                for summary in result.summaries():
                    print("\n".join(rows(result.run(summary.run_id))))
        return 0
    failed = 0
    for name in options.what:
        try:
            print("\n".join(f"{name}: {line}" for line in QUESTIONS[name](options.device)), flush=True)
        except Exception as error:  # the other questions are asked all the same
            print(f"{name}: {type(error).__name__}: {error}", flush=True)
            failed += 1
    return 1 if failed else 0


def rows(run: Run) -> Iterator[str]:
    """Device and host time of a step, and what the host leaves of the device."""
    for case in run.cases:
        for launch in case.measurements:
            found = {figure.key: figure.value for figure in launch.figures}
            device_s, host_s = (found.get(key, Missing("not measured")) for key in STEP_KEYS)
            if isinstance(device_s, Missing) or isinstance(host_s, Missing):
                yield f"{case.case.name}: {device_s}"
                continue
            bound = ", host-bound" if is_host_bound(case) else ""
            times = f"device {1e3 * device_s:.3f} ms, host {1e3 * host_s:.3f} ms"
            yield f"{case.case.name}: {times}, {device_s / host_s:.2f}x{bound}"


def graph(device: str) -> Iterator[str]:
    size = "mini" if device == "cpu" else "base"
    step_ns = {}
    for mode in ("eager", "graph"):
        step = built("decode", size, device, "amp", mode=mode)
        step_ns[mode] = step_time_ns(step, device)
        yield f"decode {size} amp {mode}: {1e9 / step_ns[mode]:.1f} tok/s{apart(step, device, step_ns[mode])}"
    yield f"graph over eager {step_ns['eager'] / step_ns['graph']:.2f}x"


def layout(device: str) -> Iterator[str]:
    size = "mini" if device == "cpu" else "common"
    for precision in ("fp32", "amp"):
        took = {}
        for name in ("nhwc", "nchw"):
            step = built("conv_train", size, device, precision, layout=name)
            took[name] = step_time_ns(step, device)
            del step
        times = ", ".join(f"{name} {ns / 1e6:.2f} ms" for name, ns in took.items())
        yield f"conv_train {size} {precision}: {times}; nchw over nhwc {took['nhwc'] / took['nchw']:.2f}x"


def collective(device: str) -> Iterator[str]:
    count = 2 if device == "cpu" else module_of(device).device_count()
    if count < 2:
        yield "one GPU: not measured"
        return
    parameters = workload_named("ddp").sizes["mini"].parameters | {"ranks": count}
    ranks = start_ranks(Request(parameters, device, resolve("fp32", device), count, 1))
    try:
        for size_bytes in (SIZE_1M, int(parameters["reduce_bytes"])):
            seconds = {
                times: max(
                    float(answer["seconds"])
                    for answer in ranks.ask_all(
                        do="collective", kind="all_reduce", size_bytes=size_bytes, times=times
                    )
                )
                for times in (1, ROW_TIMES)
            }
            one, many = (f"{1e6 * taken:.1f} us" for taken in seconds.values())
            yield f"all-reduce of {size_bytes} B, {count} ranks: once {one}, of {ROW_TIMES} in a row {many}"
    finally:
        ranks.close()


def mig(device: str) -> Iterator[str]:
    """What the driver and torch call each instance, and which name opens it."""
    listed = subprocess.run(["nvidia-smi", "-L"], capture_output=True, text=True, check=False).stdout
    names = [line.rpartition("UUID: ")[2].rstrip(")") for line in listed.splitlines() if "MIG" in line]
    if not names:
        yield "no MIG instance here"
    for name in names:
        environment = os.environ | {"CUDA_VISIBLE_DEVICES": name}
        code = "import torch; print(torch.cuda.get_device_properties(0).uuid)"
        told = subprocess.run(
            [sys.executable, "-c", code], env=environment, capture_output=True, text=True, check=False
        )
        yield f"{name}: torch says {told.stdout.strip() or told.stderr.strip().splitlines()[-1:]}"


def start(device: str) -> Iterator[str]:
    """From nothing to the first tensor on the device."""
    code = FIRST_TENSOR.format(device)
    begun_s = time.monotonic()
    subprocess.run([sys.executable, "-c", code], check=True)
    yield f"a new interpreter: {time.monotonic() - begun_s:.2f} s"
    forking = (
        f"import os, time, torch\nbegun_s = time.monotonic()\nchild = os.fork()\nif not child:\n    {code}\n"
    )
    forking += "    os._exit(0)\nos.waitpid(child, 0)\nprint(time.monotonic() - begun_s)"
    forked = subprocess.run([sys.executable, "-c", forking], check=True, capture_output=True, text=True)
    yield f"a fork of one that has imported torch: {float(forked.stdout):.2f} s"


def built(
    name: str, size: str, device: str, precision: str, mode: str = "eager", **changed: Parameter
) -> Step:
    workload = workload_named(name)
    chosen = resolve(precision, device)
    chosen.apply()
    return workload.build(
        Request(workload.sizes[size].parameters | changed, device, chosen, os.cpu_count() or 1, 1, 60.0, mode)
    )


def step_time_ns(step: Step, device: str) -> float:
    stopwatch = stopwatch_for(device)
    stopwatch(step.run, 3)
    steps = steps_for(BLOCK_S, float(stopwatch(step.run, 3).block_ns) / 3)
    return median(stopwatch(step.run, steps).block_ns / steps for _ in range(BLOCKS))


def apart(step: Step, device: str, step_ns: float) -> str:
    if device == "cpu":
        return ""
    try:
        host_ns, device_ns = device_times_apart(device, step.run, steps_for(0.001, step_ns), 2e9)
    except NotApart as error:
        return f" ({error})"
    return f" (device {device_ns / 1e6:.3f} ms, host {host_ns / 1e6:.3f} ms)"


QUESTIONS: dict[str, Callable[[str], Iterator[str]]] = {
    "graph": graph,
    "layout": layout,
    "collective": collective,
    "mig": mig,
    "start": start,
}

if __name__ == "__main__":
    sys.exit(main())
