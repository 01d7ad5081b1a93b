"""Made-up runs of `quick` on three made-up boxes, for `gputui demo`: nothing here was measured."""

from __future__ import annotations

import random
import zlib
from bisect import bisect_right
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

from gputui.model.absent import Missing
from gputui.model.case import Case
from gputui.model.journal import (
    JOURNAL_SCHEMA,
    Block,
    CaseEnd,
    CasePlanned,
    CaseWarm,
    LaunchEnd,
    LaunchStart,
    Line,
    MachineFound,
    Price,
    RunEnd,
    RunStart,
    RuntimeFound,
    WorkerReady,
)
from gputui.model.machine import Cpu, Gpu, Identity, Interpreter, Layer, Machine, Memory, Runtime, TorchDevice
from gputui.model.plan import DEMO_PROFILE, Plan
from gputui.model.profiled import IDLE, Kernel, MemoryPoint, Operator, ProfiledPass, TimeSlice
from gputui.model.telemetry import HOST, Reading
from gputui.services.profiles.loader import find_profile
from gputui.services.profiles.planner import Choices, resolve_plan
from gputui.services.support.uuid7 import uuid7
from gputui.version import __version__

_GIB = 2**30
_S = 10**9
_NOT_HERE = Missing("NVIDIA's driver, not AMD's")
_MADE_UP = Missing("it is made up")
_LAUNCHES, _BLOCKS, _BLOCK_S, _BUDGET_S = 4, 10, 0.08, 200.0
_LAUNCH_SPREAD, _BLOCK_SPREAD = 0.004, 0.003
"""Of the times of a GPU; those of a CPU vary three times as much."""
_READ_EVERY_S = 0.1


@dataclass(frozen=True, slots=True)
class RentedBox:
    """A made-up box, as a driver and torch would describe it."""

    name: str
    gpu: Gpu
    cpu: Cpu
    memory_gib: int
    usd_per_hour: float
    idle_w: float
    busy_clock_mhz: float
    """With nothing that holds it back, and at the power limit."""
    capped_clock_mhz: float
    gpus: int = 1

    @property
    def machine(self) -> Machine:
        """With all its GPUs."""
        machine_id = f"de{zlib.crc32(self.name.encode()):010x}"
        gpus = (replace(self.gpu, index=n, gpu_id=f"{machine_id[:8]}{n:04x}") for n in range(self.gpus))
        memory_bytes = self.memory_gib * _GIB
        return Machine(
            machine_id=machine_id,
            cpu=self.cpu,
            memory=Memory(memory_bytes, memory_bytes, "host", memory_bytes // 2),
            gpus=tuple(gpus),
            gpus_absent="",
            layers=(Layer("container", "docker", ("dockerenv",)),),
            instance_type=_MADE_UP,
            region=_MADE_UP,
            os_name="Ubuntu 24.04 LTS",
            kernel="6.8.0",
            libc="glibc 2.39",
            driver_version="580.95.05",
            cuda_driver_version="13.0",
            identities=(Identity("stated", machine_id),),
        )

    @property
    def interpreter(self) -> Interpreter:
        """With a torch that sees all its GPUs."""
        gpu, cpu = self.gpu, str(self.cpu.model)
        memory_bytes = gpu.memory_bytes if isinstance(gpu.memory_bytes, int) else None
        seen = (
            TorchDevice(
                "cuda",
                index,
                gpu.name,
                f"GPU-demo{index:04d}",
                f"00000000:{0x18 + index:02X}:00.0",
                memory_bytes,
                memory_bytes,
                str(gpu.compute_capability),
                True,
                True,
                "",
            )
            for index in range(self.gpus)
        )
        here = TorchDevice("cpu", 0, cpu, "", "", None, None, "", True, True, "")
        return Interpreter("python", _RUNTIME, (here, *seen))


_RUNTIME = Runtime(
    python_version="3.12.3",
    python_implementation="CPython",
    torch_version="2.13.0+cu130",
    torch_cuda="13.0",
    torch_hip=_NOT_HERE,
    cudnn_version="9.13.0",
    nccl_version="2.28.3",
    triton_version="3.5.0",
    arch_list=("sm_80", "sm_89", "sm_90"),
    cpu_capability="AVX512",
    blas="mkl",
)


def _gpu(name: str, gib: float, power_w: float, capability: str, pcie_generation: int, hot_c: float) -> Gpu:
    memory_bytes = round(gib * _GIB)
    return Gpu(
        0,
        "",
        name,
        "nvidia",
        memory_bytes,
        power_w,
        power_w,
        capability,
        pcie_generation,
        16,
        16,
        True,
        False,
        hot_c,
    )


def _cpu(model: str, cores: int, cache_mib: int, *features: str) -> Cpu:
    return Cpu(model, 1, cores, 2 * cores, 2.0 * cores, cores, "host", cache_mib * 2**20, features)


BOXES: tuple[RentedBox, ...] = (
    RentedBox(
        "H200",
        _gpu("NVIDIA H200", 140.4, 700.0, "9.0", 5, 87.0),
        _cpu("Intel(R) Xeon(R) Platinum 8480C", 24, 105, "avx512f", "amx_bf16"),
        276,
        3.50,
        78.0,
        1980.0,
        1830.0,
    ),
    RentedBox(
        "H100 PCIe",
        _gpu("NVIDIA H100 PCIe", 79.6, 350.0, "9.0", 5, 89.0),
        _cpu("AMD EPYC 9554 64-Core Processor", 26, 256, "avx512f", "avx512_bf16"),
        225,
        1.99,
        52.0,
        1755.0,
        1335.0,
    ),
    RentedBox(
        "L4",
        _gpu("NVIDIA L4", 22.5, 72.0, "8.9", 4, 88.0),
        _cpu("Intel(R) Xeon(R) CPU @ 2.20GHz", 4, 38, "avx512f"),
        16,
        0.71,
        17.0,
        2040.0,
        1110.0,
    ),
)
"""The price and the size of boxes that are for rent; the first is the baseline."""

_RATES: dict[str, tuple[float, float, float]] = {
    "gemm mini cpu fp32 1 thread": (98e9, 121e9, 94e9),
    "gemm mini cpu amp 1 thread": (1.14e12, 213e9, 187e9),
    "gemm mini cpu fp32 all cores": (2.04e12, 2.86e12, 348e9),
    "gemm mini cpu amp all cores": (13.9e12, 4.61e12, 662e9),
    "gemm mini gpu fp32": (41.0e12, 34.6e12, 12.4e12),
    "gemm mini gpu tf32": (262e12, 171e12, 38.6e12),
    "gemm mini gpu amp": (455e12, 312e12, 66.2e12),
    "gemm large gpu fp32": (51.2e12, 38.1e12, 14.6e12),
    "gemm large gpu tf32": (392e12, 241e12, 41.5e12),
    "gemm large gpu amp": (771e12, 496e12, 58.3e12),
    "membw mini cpu fp32 1 thread": (13.1e9, 28.4e9, 11.8e9),
    "membw mini cpu fp32 all cores": (182e9, 296e9, 38.2e9),
    "membw mini gpu fp32": (4.02e12, 1.71e12, 243e9),
    "membw base gpu fp32": (4.31e12, 1.82e12, 248e9),
    "conv_train mini cpu fp32 all cores": (640.0, 893.0, 118.0),
    "conv_train mini cpu amp all cores": (1910.0, 1240.0, 162.0),
    "conv_train mini gpu fp32": (6120.0, 5640.0, 3150.0),
    "conv_train mini gpu tf32": (6430.0, 5910.0, 3920.0),
    "conv_train mini gpu amp": (5460.0, 5020.0, 4330.0),
    "gpt_train mini cpu fp32 all cores": (14.9e3, 19.6e3, 2610.0),
    "gpt_train mini cpu amp all cores": (31.5e3, 27.4e3, 3730.0),
    "gpt_train mini gpu fp32": (148e3, 133e3, 92.1e3),
    "gpt_train mini gpu tf32": (163e3, 144e3, 121e3),
    "gpt_train mini gpu amp": (129e3, 113e3, 104e3),
    "gpt_train base gpu fp32": (35.1e3, 27.2e3, 9120.0),
    "gpt_train base gpu tf32": (148e3, 96.8e3, 26.5e3),
    "gpt_train base gpu amp": (215e3, 138e3, 33.4e3),
    "decode mini cpu fp32 all cores": (298.0, 431.0, 62.4),
    "decode mini cpu amp all cores": (521.0, 763.0, 108.0),
    "decode mini gpu fp32": (812.0, 731.0, 486.0),
    "decode mini gpu tf32": (815.0, 733.0, 487.0),
    "decode mini gpu amp": (724.0, 652.0, 561.0),
}
"""Units per second on each of BOXES, of the order that such boxes reach."""

_POWER_SHARES = {
    "gemm large": 1.05,
    "gemm mini": 0.82,
    "gpt_train base": 0.93,
    "membw base": 0.68,
    "membw mini": 0.61,
    "decode mini": 0.47,
}
"""Of the power limit, which what wants more is held to; other work takes _LOW_POWER_SHARE."""
_LOW_POWER_SHARE = 0.42
_IDLE_SHARES = {"gpu mini": ("launch", 0.38), "gpu base": ("launch", 0.03), "gpu large": ("launch", 0.01)}
"""Of a step on a GPU by size, with its cause; on a CPU it is Python's _PYTHON_SHARE."""
_PYTHON_SHARE = 0.02

_Row = tuple[str, str, str, str, int, float, bool]
_OPERATORS: dict[str, tuple[_Row, ...]] = {
    "gemm": (("forward", "gemm", "aten::mm", "{n}x{n},{n}x{n}", 1, 1.0, False),),
    "membw": (("forward", "cast_copy", "aten::copy_", "{n}", 1, 1.0, True),),
    "gpt_train": (
        ("forward", "embedding_index", "aten::embedding", "50304x{w},{b}", 2, 0.01, True),
        ("forward", "norm", "aten::layer_norm", "{b}x{w}", 25, 0.03, True),
        ("forward", "gemm", "aten::linear", "{b}x{w},{w}x{w}", 49, 0.19, False),
        ("forward", "attention", "aten::scaled_dot_product_attention", "{b}x{w}", 12, 0.06, False),
        ("forward", "elementwise", "aten::gelu", "{b}x{w}", 12, 0.03, True),
        ("forward", "softmax_loss", "aten::cross_entropy_loss", "{b}x50304", 1, 0.03, True),
        ("backward", "gemm", "aten::mm", "{w}x{b},{b}x{w}", 98, 0.37, False),
        (
            "backward",
            "attention",
            "aten::_scaled_dot_product_flash_attention_backward",
            "{b}x{w}",
            12,
            0.1,
            False,
        ),
        ("backward", "elementwise", "aten::gelu_backward", "{b}x{w}", 12, 0.05, True),
        ("backward", "norm", "aten::native_layer_norm_backward", "{b}x{w}", 25, 0.05, True),
        ("optimizer", "optimizer", "aten::_fused_adamw_", "", 1, 0.08, True),
    ),
    "conv_train": (
        ("forward", "conv", "aten::conv2d", "16x{w}x56x56,{w}x{w}x3x3", 20, 0.27, False),
        ("forward", "norm", "aten::batch_norm", "16x{w}x56x56", 20, 0.07, True),
        ("forward", "elementwise", "aten::relu_", "16x{w}x56x56", 17, 0.04, True),
        ("forward", "softmax_loss", "aten::cross_entropy_loss", "16x1000", 1, 0.01, True),
        ("backward", "conv", "aten::convolution_backward", "16x{w}x56x56,{w}x{w}x3x3", 20, 0.44, False),
        ("backward", "norm", "aten::native_batch_norm_backward", "16x{w}x56x56", 20, 0.09, True),
        ("backward", "elementwise", "aten::threshold_backward", "16x{w}x56x56", 17, 0.04, True),
        ("optimizer", "optimizer", "aten::_fused_sgd_", "", 1, 0.04, True),
    ),
    "decode": (
        ("forward", "gemm", "aten::linear", "1x{w},{w}x{w}", 85, 0.7, True),
        ("forward", "attention", "aten::scaled_dot_product_attention", "1x{w}", 12, 0.1, True),
        ("forward", "norm", "aten::rms_norm", "1x{w}", 25, 0.06, True),
        ("forward", "elementwise", "aten::mul", "1x{w}", 60, 0.09, True),
        ("forward", "cast_copy", "aten::copy_", "1x{w}", 24, 0.05, True),
    ),
}
"""Where a step of a workload goes on the first box: phase, category, operator, shapes, calls, share of its
busy time, and whether memory bounds it, so that it takes longer where memory is slower."""
_KERNELS = {
    "gemm": "nvjet_128x256_64x4_2x1_v_bz_TNT",
    "conv": "cudnn_fprop_implicit_gemm_128x128",
    "attention": "flash_fwd_kernel",
    "norm": "vectorized_layer_norm_kernel",
    "softmax_loss": "cunn_SoftMaxForward",
    "elementwise": "vectorized_elementwise_kernel",
    "cast_copy": "direct_copy_kernel",
    "embedding_index": "indexSelectLargeIndex",
    "optimizer": "multi_tensor_apply_kernel_FusedAdamMathFunctor",
}


def plan_of(box: RentedBox) -> Plan:
    """What `quick` measures on a box, with a profiled pass of every case."""
    choices = Choices(replicates=_LAUNCHES, budget_s=_BUDGET_S, most_blocks=_BLOCKS, keeps_traces=True)
    plan = resolve_plan(find_profile("quick"), box.interpreter, box.machine, choices)
    return replace(plan, profile=DEMO_PROFILE)


def run_id_of(box: RentedBox, started_utc_us: int) -> str:
    """The same for the same box and time."""
    return uuid7(started_utc_us // 1000, zlib.crc32(f"{box.name} {started_utc_us}".encode()))


def journal_of(
    box: RentedBox, plan: Plan, seed: int, started_utc_us: int, started_ns: int
) -> tuple[Line, ...]:
    """All lines of a run, the same for the same arguments."""
    chance = random.Random(f"{seed} {box.name}")
    price = Price(box.usd_per_hour, box.gpus, "stated", "", "", "", "")
    start = RunStart(
        JOURNAL_SCHEMA,
        run_id_of(box, started_utc_us),
        started_utc_us,
        started_ns,
        0,
        __version__,
        DEMO_PROFILE,
        plan.profile_version,
        seed,
        plan.replicates,
        plan.budget_s,
        f"demo {box.name}",
        price,
    )
    lines: list[Line] = [start, MachineFound(box.machine), RuntimeFound(box.interpreter.runtime)]
    for planned in plan.cases:
        on_gpu = planned.case.variant.device_class == "gpu"
        device = (0, box.gpu.name) if on_gpu else (None, str(box.cpu.model))
        lines.append(CasePlanned(planned, *device))
    t_ns = started_ns + _S
    for launch in plan.launches:
        lines.append(
            LaunchStart(
                launch.launch_id, launch.replicate, launch.case_ids, launch.threads, None, t_ns, is_fork=True
            )
        )
        t_ns += _S // 3
        lines.append(WorkerReady(launch.launch_id, _S // 3, launch.threads, t_ns))
        for case_id in launch.case_ids:
            lines += _timed(
                box, plan.cases[case_id].case, case_id, launch.launch_id, launch.threads, t_ns, chance
            )
            end = lines[-1]
            assert isinstance(end, CaseEnd)
            t_ns = end.t_ns
        for case_id in launch.profiled:
            t_ns += _S // 2
            lines.append(_profiled(box, plan.cases[case_id].case, case_id, launch.launch_id))
        lines.append(LaunchEnd(launch.launch_id, "ok", "", 0, "", t_ns))
    ended_us = started_utc_us + (t_ns - started_ns) // 1000
    return (*lines, RunEnd("finished", "", ended_us, t_ns))


def _timed(
    box: RentedBox, case: Case, case_id: int, launch_id: int, threads: int, t_ns: int, chance: random.Random
) -> Iterator[Line]:
    """One case in one launch: warm, its blocks, its end."""
    on_gpu = case.variant.device_class == "gpu"
    spread = 1.0 if on_gpu else 3.0
    step_ns = _step_s(box, case) * _S * chance.gauss(1, spread * _LAUNCH_SPREAD)
    steps = max(round(_BLOCK_S * _S / step_ns), 1)
    precision = "amp-bf16" if case.variant.precision == "amp" else case.variant.precision
    t_ns += _S // 4
    yield CaseWarm(launch_id, case_id, precision, _S // 10, 3 * round(step_ns), _S // 8, 4, True, steps, t_ns)
    for index in range(_BLOCKS):
        wall_ns = round(steps * step_ns * chance.gauss(1, spread * _BLOCK_SPREAD))
        device_ns = wall_ns - 9000 if on_gpu else None
        cpu_ns = wall_ns * (1 if on_gpu else threads)
        yield Block(launch_id, case_id, index, steps, t_ns, wall_ns, device_ns, cpu_ns, 0)
        t_ns += wall_ns + 200_000
    yield CaseEnd(launch_id, case_id, "ok", "", _BLOCKS, t_ns)


def _step_s(box: RentedBox, case: Case) -> float:
    return case.units_per_step / _RATES[case.name][BOXES.index(box)]


def _slowness(box: RentedBox, case: Case, *, is_of_memory: bool) -> float:
    """How much longer than on the first box the same arithmetic or the same copy takes."""
    variant = case.variant
    if variant.device_class == "gpu":
        name = "membw base gpu fp32" if is_of_memory else f"gemm large gpu {variant.precision}"
    else:
        name = (
            "membw mini cpu fp32 all cores"
            if is_of_memory
            else f"gemm mini cpu {variant.precision} all cores"
        )
    return _RATES[name][0] / _RATES[name][BOXES.index(box)]


def _profiled(box: RentedBox, case: Case, case_id: int, launch_id: int) -> ProfiledPass:
    """Ten steps by operator, with what was idle between them, and who holds the memory."""
    steps, on_gpu = 10, case.variant.device_class == "gpu"
    step_ns = _step_s(box, case) * _S
    cause, idle_share = _IDLE_SHARES[f"gpu {case.work.size}"] if on_gpu else ("python", _PYTHON_SHARE)
    rows = _OPERATORS[case.work.workload]
    weights = [share * _slowness(box, case, is_of_memory=is_of_memory) for *_, share, is_of_memory in rows]
    busy_ns = steps * step_ns * (1 - idle_share) / sum(weights)
    sizes = {"n": 8192 if case.work.size == "large" else 2048, "w": 768, "b": round(case.units_per_step)}
    dtype = "c10::BFloat16" if case.variant.precision == "amp" else "float"
    operators = tuple(
        Operator(
            phase,
            category,
            operator,
            shapes.format(**sizes),
            dtype,
            steps * calls,
            3 * steps * calls,
            round(busy_ns * weight),
            steps * calls * 12_000,
            steps * calls if on_gpu else 0,
        )
        for (phase, category, operator, shapes, calls, *_), weight in zip(rows, weights, strict=True)
    )
    idle = TimeSlice("forward", IDLE, cause, round(steps * step_ns * idle_share))
    slices = (*(TimeSlice(row.phase, "compute", "", row.time_ns) for row in operators), idle)
    kernels = tuple(
        Kernel(
            _KERNELS[row.category], "compute", row.operator, row.calls, row.time_ns, row.time_ns // row.calls
        )
        for row in (operators if on_gpu else ())
    )
    return ProfiledPass(
        launch_id=launch_id,
        case_id=case_id,
        is_valid=True,
        reason="",
        steps=steps,
        window_ns=sum(part.time_ns for part in slices),
        events=sum(row.events for row in operators),
        event_cost_ns=400,
        unmatched_ns=0,
        operators=operators,
        slices=slices,
        kernels=kernels,
        memory=tuple(_memory(case, on_gpu=on_gpu)),
        memory_reason="",
        trace_bytes=0,
    )


def _memory(case: Case, *, on_gpu: bool) -> Iterator[MemoryPoint]:
    """A training holds weights, gradients and two moments of each; what else runs holds its inputs."""
    trains = case.workload_class == "training"
    flops = case.flops_per_step or 0
    weights_bytes = round(4 * flops / 6 / case.units_per_step) if trains else case.bytes_per_step or 0
    inputs_bytes = 64 * 2**20 if trains or weights_bytes else 3 * 8192 * 8192 * 4
    for point, has_gradients, has_activations in (
        ("start", 0, 0),
        ("after_forward", 0, 1),
        ("after_backward", 1, 0),
        ("after_optimizer", 0, 0),
        ("peak", 1, 1),
    ):
        yield MemoryPoint(
            point,
            weights_bytes,
            trains * has_gradients * weights_bytes,
            trains * 2 * weights_bytes,
            trains * has_activations * 3 * weights_bytes,
            inputs_bytes,
            0,
            7 * weights_bytes * trains + weights_bytes + inputs_bytes if on_gpu else _MADE_UP,
        )


def readings_of(box: RentedBox, plan: Plan, lines: Sequence[Line]) -> Iterator[Reading]:
    """What a sampler would have read of the GPU, and once a second of the host, during these lines."""
    chance = random.Random(box.name)
    end_ns = lines[-1].t_ns if isinstance(lines[-1], RunEnd) else 0
    busy = [line for line in lines if isinstance(line, CaseWarm | CaseEnd | LaunchStart | LaunchEnd)]
    limit_w = float(box.gpu.power_limit_w) if isinstance(box.gpu.power_limit_w, float) else 0.0
    times_ns = [line.t_ns for line in busy]
    power_w, warm_c, energy_mj = box.idle_w, 34.0, 9 * 10**9
    every_ns = round(_READ_EVERY_S * _S)
    start = lines[0]
    assert isinstance(start, RunStart)
    for tick in range((end_ns - start.started_ns) // every_ns):
        t_ns = start.started_ns + tick * every_ns
        last = busy[place - 1] if (place := bisect_right(times_ns, t_ns)) else None
        case = plan.cases[last.case_id].case if isinstance(last, CaseWarm) else None
        is_busy = case is not None and case.variant.device_class == "gpu"
        wanted_w = box.idle_w
        if case is not None and is_busy:
            share = _POWER_SHARES.get(f"{case.work.workload} {case.work.size}", _LOW_POWER_SHARE)
            wanted_w = limit_w * share * chance.gauss(1, 0.01)
        power_w += 0.7 * (wanted_w - power_w)
        is_capped = power_w > 0.97 * limit_w
        power_w = min(power_w, limit_w)
        warm_c += 0.01 * (34.0 + 34.0 * power_w / limit_w - warm_c)
        energy_mj += round(power_w * 1000 * _READ_EVERY_S)
        yield Reading(
            0,
            t_ns,
            {
                "sm_busy_pct": 98.0 + round(chance.random()) if is_busy else 0.0,
                "memory_busy_pct": 46.0 if is_busy else 0.0,
                "memory_used_bytes": 7.4e9 if is_busy else 6.4e8,
                "power_w": power_w,
                "temperature_c": round(warm_c),
                "sm_clock_mhz": box.capped_clock_mhz if is_capped else box.busy_clock_mhz,
                "memory_clock_mhz": 3201.0,
                "throttle_bits": 0x4 if is_capped else 0,
                "energy_mj": energy_mj,
                "compute_process_count": 1.0,
            },
        )
        if tick % round(1 / _READ_EVERY_S) == 0:
            threads = 1.0 if case is None or is_busy or case.variant.threads == "1" else box.cpu.usable_cores
            values = {
                "cpu_busy_pct": 100.0 * threads + 3 * chance.random(),
                "cpu_steal_pct": 0.0,
                "memory_used_bytes": 11 * _GIB,
                "load_1min": 1.0 + 0.1 * chance.random(),
                "cpu_clock_mhz": 3100.0,
            }
            yield Reading(HOST, t_ns, values)
