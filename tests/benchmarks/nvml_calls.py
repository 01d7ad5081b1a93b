"""The cost of the live view's NVML calls: each call, and a whole sample of a GPU.

Without `--real` it uses eight GPUs of the stand-in library and so shows the cost of Python, of pynvml and of
gputui itself. With `--real` it uses the driver of this box: run it once as root and once as a normal user.
CPU time is that of this process, including the kernel's.
"""

from __future__ import annotations

import argparse
import os
import statistics
import subprocess
import sys
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any  # pynvml has no types

ROUNDS = 50
SLOW_ROUNDS = 5
SLOW_NS = 10_000_000
IS_CHILD = "GPUTUI_NVML_BENCHMARK"

Call = Callable[[Any, Any], object]
CALLS: dict[str, Call] = {
    "nvmlDeviceGetUtilizationRates": lambda n, h: n.nvmlDeviceGetUtilizationRates(h),
    "nvmlDeviceGetMemoryInfo_v2": lambda n, h: n.nvmlDeviceGetMemoryInfo(h, version=n.nvmlMemory_v2),
    "nvmlDeviceGetTemperatureV": lambda n, h: n.nvmlDeviceGetTemperatureV(h, 0),
    "nvmlDeviceGetClockInfo": lambda n, h: n.nvmlDeviceGetClockInfo(h, 1),
    "nvmlDeviceGetCurrentClocksEventReasons": lambda n, h: n.nvmlDeviceGetCurrentClocksEventReasons(h),
    "nvmlDeviceGetPerformanceState": lambda n, h: n.nvmlDeviceGetPerformanceState(h),
    "nvmlDeviceGetEncoderUtilization": lambda n, h: n.nvmlDeviceGetEncoderUtilization(h),
    "nvmlDeviceGetPowerUsage": lambda n, h: n.nvmlDeviceGetPowerUsage(h),
    "nvmlDeviceGetTotalEnergyConsumption": lambda n, h: n.nvmlDeviceGetTotalEnergyConsumption(h),
    "nvmlDeviceGetEnforcedPowerLimit": lambda n, h: n.nvmlDeviceGetEnforcedPowerLimit(h),
    "nvmlDeviceGetTemperatureThreshold": lambda n, h: n.nvmlDeviceGetTemperatureThreshold(h, 1),
    "nvmlDeviceGetMaxClockInfo": lambda n, h: n.nvmlDeviceGetMaxClockInfo(h, 1),
    "nvmlDeviceGetFanSpeed": lambda n, h: n.nvmlDeviceGetFanSpeed(h),
    "nvmlDeviceGetCurrPcieLinkGeneration": lambda n, h: n.nvmlDeviceGetCurrPcieLinkGeneration(h),
    "nvmlDeviceGetCurrPcieLinkWidth": lambda n, h: n.nvmlDeviceGetCurrPcieLinkWidth(h),
    "nvmlDeviceGetTotalEccErrors": lambda n, h: n.nvmlDeviceGetTotalEccErrors(h, 1, 0),
    "nvmlDeviceGetMigMode": lambda n, h: n.nvmlDeviceGetMigMode(h),
    "nvmlDeviceGetName": lambda n, h: n.nvmlDeviceGetName(h),
    "nvmlDeviceGetUUID": lambda n, h: n.nvmlDeviceGetUUID(h),
    "nvmlDeviceGetCount": lambda n, h: n.nvmlDeviceGetCount(),
    "nvmlDeviceGetComputeRunningProcesses": lambda n, h: n.nvmlDeviceGetComputeRunningProcesses(h),
    "nvmlDeviceGetGraphicsRunningProcesses": lambda n, h: n.nvmlDeviceGetGraphicsRunningProcesses(h),
    "nvmlDeviceGetProcessesUtilizationInfo": lambda n, h: n.nvmlDeviceGetProcessesUtilizationInfo(h, 0),
    "nvmlDeviceGetProcessUtilization": lambda n, h: n.nvmlDeviceGetProcessUtilization(h, 0),
    "nvmlDeviceGetPcieThroughput": lambda n, h: n.nvmlDeviceGetPcieThroughput(h, 0),
}
FIELDS = {
    "power, instant": (186, 0),
    "NVLink sent, all links": (138, 0xFFFFFFFF),
    "NVLink received, all links": (139, 0xFFFFFFFF),
    "PCIe sent": (197, 0),
    "PCIe received": (198, 0),
    "time held down by power": (74, 0),
    "time held down by heat": (75, 0),
    "… by heat, software": (269, 0),
    "… by heat, hardware": (270, 0),
    "… by the power brake": (271, 0),
}


def main() -> None:
    """Print a table of calls, one of fields, and one of samples."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--real", action="store_true", help="ask the driver of this box")
    parser.add_argument("--gpus", type=int, default=8)
    parser.add_argument("--processes", type=int, default=40)
    wanted = parser.parse_args()
    if wanted.real or IS_CHILD in os.environ:
        measure()
        return
    here = Path(__file__)
    sys.path.insert(0, str(here.parents[1]))
    from nvml.standin import moving_gpus, standin_environment

    scenario = standin_environment(moving_gpus(wanted.gpus, wanted.processes))
    environment = {**os.environ, **scenario, IS_CHILD: "1", "PYTHONPATH": str(here.parents[2])}
    sys.exit(subprocess.run([sys.executable, str(here)], env=environment, check=False).returncode)


def measure() -> None:
    """Of the library that this process finds."""
    import pynvml

    from gputui.model.absent import Missing
    from gputui.sources.nvml import NvmlGpus

    gpus = NvmlGpus().open()
    if isinstance(gpus, Missing):
        sys.exit(f"no NVIDIA GPU can be asked: {gpus.reason}")
    print(f"{len(gpus)} GPUs, driver {pynvml.nvmlSystemGetDriverVersion()}, user {os.geteuid()}\n")
    handle = pynvml.nvmlDeviceGetHandleByIndex(0)
    print(f"{'call, of GPU 0':42}{'CPU us':>10}{'median us':>11}{'worst us':>10}")
    for name, call in CALLS.items():
        print_cost(name, partial(call, pynvml, handle), pynvml.NVMLError)
    print_cost(
        f"nvmlDeviceGetFieldValues of {len(FIELDS)}",
        lambda: pynvml.nvmlDeviceGetFieldValues(handle, list(FIELDS.values())),
        pynvml.NVMLError,
    )
    print(f"\n{'field, of GPU 0':42}{'driver us':>10}{'code':>11}")
    answers = pynvml.nvmlDeviceGetFieldValues(handle, list(FIELDS.values()))
    for name, answer in zip(FIELDS, answers, strict=True):
        print(f"{name:42}{answer.latencyUsec:>10}{answer.nvmlReturn:>11}")
    print(f"\n{'of gputui':42}{'CPU us':>10}{'median us':>11}{'worst us':>10}")
    print_costs("the first sample of a GPU", [cost(gpu.sample) for gpu in gpus])
    costs = []
    for _ in range(ROUNDS):
        time.sleep(0.11)  # the shortest interval between GPM samples
        costs += [cost(gpu.sample) for gpu in gpus]
    print_costs("a sample of a GPU", costs)
    print_cost("the processes of a GPU", gpus[0].processes, pynvml.NVMLError)


def cost(call: Callable[[], object]) -> tuple[int, int]:
    """Nanoseconds of CPU time, and of wall time."""
    begin_ns, cpu_begin_ns = time.perf_counter_ns(), time.process_time_ns()
    call()
    cpu_ns = time.process_time_ns() - cpu_begin_ns
    return cpu_ns, time.perf_counter_ns() - begin_ns


def print_cost(name: str, call: Callable[[], object], error: type[Exception]) -> None:
    """One line for a call, or why it cannot be made."""
    try:
        _, took_ns = cost(call)
    except error as refused:
        print(f"{name:42}  {refused}")
        return
    print_costs(name, [cost(call) for _ in range(SLOW_ROUNDS if took_ns > SLOW_NS else ROUNDS)])


def print_costs(name: str, costs: list[tuple[int, int]]) -> None:
    """One line: mean CPU time, and the median and maximum of wall time."""
    cpu_ns, took_ns = zip(*costs, strict=True)
    print(
        f"{name:42}{statistics.mean(cpu_ns) / 1e3:>10.1f}"
        f"{statistics.median(took_ns) / 1e3:>11.1f}{max(took_ns) / 1e3:>10.1f}"
    )


if __name__ == "__main__":
    main()
