"""Builds small journals that look like those of real runs, for tests of code that reads them."""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any  # options of `journal_lines`

from gputui.metrics import CURRENT
from gputui.model.absent import Missing
from gputui.model.journal import (
    JOURNAL_NAME,
    JOURNAL_SCHEMA,
    TELEMETRY_NAME,
    Block,
    CaseEnd,
    CasePlanned,
    CaseWarm,
    Event,
    LaunchEnd,
    LaunchStart,
    Line,
    MachineFound,
    Price,
    RunEnd,
    RunStart,
    RuntimeFound,
    WorkerReady,
    encode_line,
)
from gputui.model.machine import Cpu, Gpu, Layer, Machine, Memory, Runtime
from gputui.model.plan import Case, PlannedCase, Variant, Work
from gputui.model.telemetry import HOST, Reading, TelemetryFormat

RUN_ID = "0194b5a0-0000-7000-8000-00000000c0de"
STARTED_US = 1_795_000_000_000_000
STARTED_NS = 7_000_000_000
_NO_GPU = Missing("no NVIDIA driver is loaded")

CPU_MACHINE = Machine(
    machine_id="a1b2c3d4e5f6",
    cpu=Cpu(
        "Xeon 8481C",
        1,
        Missing("a virtual machine does not show it"),
        2,
        2.0,
        1,
        "host",
        110_100_480,
        ("avx512f",),
    ),
    memory=Memory(8 * 2**30, 8 * 2**30, "host", 64 * 2**20),
    gpus=(),
    gpus_absent="no NVIDIA driver is loaded",
    layers=(Layer("platform", "gcp", ("dmi",)), Layer("container", "docker", ("dockerenv", "cgroup"))),
    instance_type=Missing("the metadata service was not asked"),
    region=Missing("the metadata service was not asked"),
    os_name="Debian 12",
    kernel="6.1.0",
    libc="glibc 2.36",
    driver_version=_NO_GPU,
    cuda_driver_version=_NO_GPU,
)

H200 = Gpu(
    0,
    "0a1b2c3d4e5f",
    "NVIDIA H200",
    "nvidia",
    150_754_820_096,
    700.0,
    700.0,
    "9.0",
    5,
    16,
    16,
    True,
    False,
    87.0,
)

GPU_MACHINE = replace(
    CPU_MACHINE,
    machine_id="b1b2c3d4e5f6",
    gpus=(H200, replace(H200, index=1, gpu_id="1a1b2c3d4e5f", ecc_enabled=Missing("not supported"))),
    gpus_absent="",
    driver_version="570.86.15",
    cuda_driver_version="12.8",
)

RUNTIME = Runtime(
    python_version="3.11.9",
    python_implementation="CPython",
    torch_version="2.11.0+cpu",
    torch_cuda=Missing("torch was built without CUDA"),
    torch_hip=Missing("torch was built without ROCm"),
    cudnn_version=Missing("torch was built without CUDA"),
    nccl_version=Missing("torch was built without CUDA"),
    triton_version=Missing("not installed"),
    arch_list=(),
    cpu_capability="AVX512",
    blas="mkl",
)

PRICE = Price(0.42, 0, "stated", "gcp", "n2-standard-2", "europe-west4", "")


def make_case(
    workload: str = "gemm",
    threads: str = "all",
    precision: str = "fp32",
    device_class: str = "cpu",
    size: str = "mini",
) -> Case:
    """One case; with `host` as its threads for a GPU."""
    return Case(
        work=Work(workload, 1, size, "same", (("k", 1024), ("m", 1024), ("n", 1024))),
        variant=Variant(device_class, precision, "eager", threads if device_class == "cpu" else "host"),
        workload_class="ceiling",
        unit="flop",
        units_per_step=2.0 * 1024**3,
        flops_per_step=2 * 1024**3,
        bytes_per_step=None,
    )


CASES: tuple[Case, ...] = (make_case("gemm"), make_case("conv_train", threads="1"))
SKIPPED = make_case("gpt_train", device_class="gpu", precision="amp")


def journal_lines(
    *,
    run_id: str = RUN_ID,
    label: str = "box a",
    scale: float = 1.0,
    launches: int = 1,
    blocks: int = 6,
    cases: Sequence[Case] = CASES,
    skipped: Sequence[Case] = (SKIPPED,),
    machine: Machine = CPU_MACHINE,
    runtime: Runtime = RUNTIME,
    price: Price | None = PRICE,
    started_utc_us: int = STARTED_US,
    status: str = "finished",
    profile: str = "quick",
    seed: int = 1,
) -> list[Line]:
    """The lines of a whole run; one launch per case and replicate, blocks of about 200 ms times `scale`.

    Block times differ by about 1 % and are the same for the same seed. A GPU case has device times.
    """
    rng = random.Random(seed)
    t_ns = STARTED_NS
    lines: list[Line] = [
        RunStart(
            JOURNAL_SCHEMA,
            run_id,
            started_utc_us,
            STARTED_NS,
            60,
            "0.1.0",
            profile,
            1,
            seed,
            launches,
            90.0,
            label,
            price,
        ),
        MachineFound(machine),
        RuntimeFound(runtime),
    ]
    for number, case in enumerate(cases):
        on_gpu = case.variant.device_class == "gpu"
        name = machine.gpus[0].name if on_gpu and machine.gpus else str(machine.cpu.model)
        lines.append(CasePlanned(PlannedCase(number, case, None, ""), 0 if on_gpu else None, name))
    for number, case in enumerate(skipped, len(cases)):
        reason = "no GPU in this machine"
        lines.append(CasePlanned(PlannedCase(number, case, "skipped", reason), None, ""))
    launch_id = 0
    for replicate in range(launches):
        for number, case in enumerate(cases):
            on_gpu = case.variant.device_class == "gpu"
            lines.append(LaunchStart(launch_id, replicate, (number,), 1, 20.0, t_ns))
            t_ns += 1_500_000_000
            lines.append(WorkerReady(launch_id, 1_500_000_000, 1, t_ns))
            t_ns += 900_000_000
            lines.append(
                CaseWarm(
                    launch_id,
                    number,
                    case.variant.precision,
                    40_000_000,
                    55_000_000,
                    800_000_000,
                    4,
                    True,
                    12,
                    t_ns,
                )
            )
            for index in range(blocks):
                wall_ns = round(200_000_000 * scale * (1 + number) * rng.gauss(1, 0.01))
                device_ns = wall_ns - 1_234_567 if on_gpu else None
                lines.append(Block(launch_id, number, index, 12, t_ns, wall_ns, device_ns, wall_ns - 3))
                t_ns += wall_ns + 17
            lines.append(CaseEnd(launch_id, number, "ok", "", blocks, t_ns))
            lines.append(LaunchEnd(launch_id, "ok", "", 0, "", t_ns + 5_000_000))
            t_ns += 6_000_000
            launch_id += 1
    lines.append(Event("info", "measured", t_ns))
    lines.append(RunEnd(status, "", started_utc_us + (t_ns - STARTED_NS) // 1000, t_ns))
    return lines


def write_lines(run_dir: Path, lines: Sequence[Line]) -> Path:
    """Write lines as a journal; returns the run directory, which is created if necessary."""
    run_dir.mkdir(parents=True, exist_ok=True)
    text = b"".join(encode_line(number, line) for number, line in enumerate(lines))
    (run_dir / JOURNAL_NAME).write_bytes(text)
    return run_dir


def make_telemetry(seconds: float = 4.0, hertz: float = 10.0, gpus: int = 0) -> list[Reading]:
    """Readings of the host and of GPUs that are power-capped half of the time and slowed a quarter of it."""
    readings = []
    for tick in range(int(seconds * hertz)):
        t_ns = STARTED_NS + round(tick * 1e9 / hertz)
        host = {
            "cpu_busy_pct": 150.0,
            "cpu_steal_pct": 2.0,
            "memory_used_bytes": 2**30 + tick,
            "load_1min": 1.5,
        }
        readings.append(Reading(HOST, t_ns, host))
        for gpu in range(gpus):
            bits = (0x4 if tick % 2 else 0) | (0x20 if tick % 4 == 0 else 0)
            values: dict[str, float | int] = {
                "sm_busy_pct": 98.0,
                "power_w": 600.0 + tick % 8,
                "temperature_c": 60.0 + tick % 4,
                "sm_clock_mhz": 1900.0 - 10 * (tick % 4),
                "throttle_bits": bits,
                "energy_mj": 10**12 + 60_000 * tick,
            }
            readings.append(Reading(gpu, t_ns + 1000 * gpu, values))
    return readings


def write_telemetry(
    run_dir: Path, readings: Sequence[Reading], written_by: TelemetryFormat = CURRENT
) -> None:
    """Write readings as a telemetry file, by this version of gputui or another."""
    rows = b"".join(written_by.encode(reading) for reading in readings)
    (run_dir / TELEMETRY_NAME).write_bytes(written_by.header() + rows)


def make_journal(run_dir: Path, *, telemetry: bool = True, **options: Any) -> Path:
    """A run directory with the telemetry and the journal of a whole run with these options of its lines.

    Returns the directory.
    """
    write_lines(run_dir, journal_lines(**options))
    if telemetry:
        machine: Machine = options.get("machine", CPU_MACHINE)
        write_telemetry(run_dir, make_telemetry(gpus=len(machine.gpus)))
    return run_dir
