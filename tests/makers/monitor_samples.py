"""Simulated samples for the Monitor screen: a busy box with any number of GPUs."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import replace
from functools import partial

from gputui.document.spans import Line
from gputui.model.absent import Missing
from gputui.model.telemetry import DeviceSample, GpuUse, LiveSample, ProcessSample, Value, mig_device

SECOND = 1_000_000_000
GIB = 2**30
HOST = -1
START = 5_000_000 * SECOND
"""Monotonic, some weeks after the start of the machine."""
NOT_REPORTED = Missing("this GPU does not report it")
NOT_OF_MIG = Missing("the driver does not tell it of a MIG instance")
NOT_WITH_MIG = Missing("the driver does not tell it while MIG is on")


def gpu_values(device: int, second: float) -> dict[str, Value]:
    """A data-centre GPU; each has a different load."""
    wave = 0.5 + 0.5 * math.sin(second / 7 + device)
    busy = [98, 76, 0, 100, 34, 55, 87, 12][device % 8]
    busy = round(busy * (0.8 + 0.2 * wave))
    power = 90 + 6.0 * busy if device % 8 != 3 else 694 + 4 * wave
    return {
        "name": "H200 SXM",
        "uuid": f"GPU-{device:08x}",
        "driver": "580.65.06",
        "pci_address": f"00000000:{device:02X}:00.0",
        "pstate": 0 if busy else 8,
        "mig_mode": "off",
        "is_memory_shared": 0,
        "sm_busy_pct": busy,
        "memory_busy_pct": round(busy * 0.4),
        "encoder_pct": 0,
        "decoder_pct": 0,
        "power_w": power,
        "power_limit_w": 700.0,
        "power_limit_default_w": 700.0,
        "temperature_c": 40 + busy * 0.3,
        "temperature_limit_c": 87,
        "sm_clock_mhz": 1980 - 4 * busy,
        "sm_clock_max_mhz": 1980,
        "memory_clock_mhz": 3201,
        "memory_clock_max_mhz": 3201,
        "memory_used_bytes": int((8 + busy * 1.2 + wave) * GIB),
        "memory_reserved_bytes": 620 * 2**20,
        "memory_total_bytes": int(140.4 * GIB),
        "energy_mj": int((90 + 480 * (device % 3)) * 1000 * second),
        "throttle_bits": 0x4 if device % 8 == 3 else 0,
        "throttled_power_ns": int(second * 0.12 * SECOND) if device % 8 == 3 else 0,
        "throttled_thermal_ns": 0,
        "throttled_other_ns": 0,
        "fan_pct": Missing("this GPU does not report it"),
        "pcie_generation": 5,
        "pcie_generation_max": 5,
        "pcie_width": 4 if device % 8 == 5 else 16,
        "pcie_width_max": 16,
        "pcie_rx_bytes_per_s": 2.1e8 * wave,
        "pcie_tx_bytes_per_s": 4.0e7 * wave,
        "nvlink_rx_bytes_per_s": 1.1e10 * wave,
        "nvlink_tx_bytes_per_s": 1.2e10 * wave,
        "ecc_uncorrected_count": 2 if device % 8 == 6 else 0,
        "gpm_sm_active_pct": busy * 0.9,
        "gpm_occupancy_pct": busy * 0.5,
        "gpm_tensor_pct": busy * 0.6,
        "gpm_fp64_pct": 0.0,
        "gpm_fp32_pct": busy * 0.1,
        "gpm_fp16_pct": busy * 0.2,
        "gpm_dram_pct": busy * 0.45,
    }


def host_values(second: float) -> dict[str, Value]:
    """A host with 24 cores."""
    wave = 0.5 + 0.5 * math.sin(second / 11)
    return {
        "name": "AMD EPYC 9554",
        "cpu_busy_pct": 300 + 200 * wave,
        "cpu_limit_cores": 24.0,
        "cpu_core_pct": ",".join(str(round(100 * abs(math.sin(second / 9 + core)))) for core in range(24)),
        "memory_used_bytes": int((55 + 10 * wave) * GIB),
        "memory_total_bytes": 276 * GIB,
        "swap_used_bytes": 0,
        "swap_total_bytes": 0,
        "load_1min": 4.4,
        "network_rx_bytes_per_s": 1.5e6 * wave,
        "network_tx_bytes_per_s": 2e5,
        "disk_read_bytes_per_s": 2.1e8 * wave,
        "disk_write_bytes_per_s": 1e6,
    }


COMMANDS = (
    "python train.py --model llama --batch 16",
    "python -m torch.distributed.run --nproc-per-node 8 train.py",
    "/opt/conda/bin/python /work/eval.py --tasks all",
    "vllm serve meta/llama --tensor-parallel-size 2",
    "jupyter-lab --no-browser",
)


def process(number: int, gpus: int, second: float = 0.0) -> ProcessSample:
    """The first four are children of one process."""
    device = number % gpus
    return ProcessSample(
        pid=4000 + number,
        uses=(GpuUse(device, 4000 + number, "C", (1 + (number * 7) % 23) * GIB, float((number * 13) % 90)),),
        parent_pid=4000 if 0 < number < 4 else 1,
        user="ana" if number % 3 else "bela",
        command=COMMANDS[number % len(COMMANDS)],
        cpu_pct=float((number * 31) % 130),
        memory_bytes=(1 + number % 9) * GIB // 2,
        elapsed_s=30.0 + 400.0 * number + second,
        start_ticks=100 + number,
    )


def sample(
    gpus: int,
    second: float = 0.0,
    *,
    number: int | None = None,
    processes: int = 12,
    changes: Mapping[int, Mapping[str, Value]] | None = None,
    problems: Mapping[int, Missing] | None = None,
    absent: Mapping[str, Missing] | None = None,
) -> LiveSample:
    """A box some seconds after START; `changes` and `problems` by device."""
    t_ns = START + round(second * SECOND)
    devices = []
    for device in range(gpus):
        values = gpu_values(device, second) | dict((changes or {}).get(device, {}))
        devices.append(DeviceSample(device, "nvml", t_ns, values, None, (problems or {}).get(device)))
    return LiveSample(
        number=round(second * 10) if number is None else number,
        t_ns=t_ns,
        host=DeviceSample(HOST, "host", t_ns, host_values(second) | dict((changes or {}).get(HOST, {}))),
        gpus=tuple(devices),
        processes=tuple(process(n, max(gpus, 1), second) for n in range(processes)) if gpus else (),
        absent=absent or {},
    )


def with_instances(whole: LiveSample, parent: int, count: int) -> LiveSample:
    """The same with MIG instances of one GPU, listed after it."""
    devices: list[DeviceSample] = []
    for device in whole.gpus:
        devices.append(device)
        if device.device == parent:
            for number in range(count):
                values: dict[str, Value] = {
                    "name": "NVIDIA H200 MIG 1g.18gb",
                    "uuid": f"MIG-{parent:04}-{number:04}",
                    "gpu_instance_id": 7 + number,
                    "compute_instance_id": 0,
                    "mig_index": number,
                    "mig_profile": "1g.18gb",
                    "memory_used_bytes": (16 - 3 * number) * GIB,
                    "memory_total_bytes": 16 * GIB,
                    "sm_busy_pct": NOT_OF_MIG,
                    "gpm_sm_active_pct": 61.0 if number == 0 else 0.0,
                }
                devices.append(DeviceSample(mig_device(parent, number), "nvml", device.t_ns, values, parent))
    assert not isinstance(whole.processes, Missing)
    processes = [_moved(one, parent, place % count) for place, one in enumerate(whole.processes)]
    return replace(whole, gpus=tuple(map(partial(_divided, parent), devices)), processes=tuple(processes))


def _divided(parent: int, device: DeviceSample) -> DeviceSample:
    """What the driver does not report for a GPU with MIG."""
    untold = dict.fromkeys(("sm_busy_pct", "memory_busy_pct", "encoder_pct", "decoder_pct"), NOT_WITH_MIG)
    is_it = device.device == parent
    return replace(device, values={**device.values, **untold, "mig_mode": 1}) if is_it else device


def _moved(process: ProcessSample, parent: int, number: int) -> ProcessSample:
    """From a GPU to one of its instances."""
    uses = tuple(
        replace(use, device=mig_device(parent, number), sm_pct=NOT_OF_MIG, mig_profile="1g.18gb")
        if use.device == parent
        else use
        for use in process.uses
    )
    return replace(process, uses=uses)


def text_of(lines: tuple[Line, ...]) -> str:
    return "\n".join("".join(span.text for span in line) for line in lines) + "\n"
