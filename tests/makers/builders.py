"""Builds boxes, interpreters and plans by hand, for tests of code that decides over them."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from gputui.model.absent import Missing
from gputui.model.machine import Cpu, Gpu, Interpreter, Machine, Memory, Runtime, TorchDevice
from gputui.model.plan import Case, Plan, PlannedCase, PlannedDevice, PlannedLaunch, Variant
from gputui.recording.run_directory import Spec
from gputui.services.profiles.planner import case_of
from gputui.worker.workloads import workload_named

GIB = 2**30
NO_DRIVER = "libnvidia-ml.so.1 was not found"
NOT_INSTALLED = Missing("torch not installed")

CPU_DEVICE = TorchDevice("cpu", 0, "x86_64", "", "", None, None, "", True, True, "")
H200 = TorchDevice(
    torch_device="cuda",
    index=0,
    name="NVIDIA H200",
    uuid="GPU-6f1c8d0e-0000-4000-8000-00000000000a",
    pci_address="00000000:3b:00.0",
    memory_bytes=141 * GIB,
    free_bytes=140 * GIB,
    compute_capability="9.0",
    bf16=True,
    runs_here=True,
    why_not="",
)
T4 = replace(
    H200,
    name="Tesla T4",
    uuid="GPU-7a4e0000-0000-4000-8000-00000000000b",
    memory_bytes=15 * GIB,
    free_bytes=15 * GIB,
    compute_capability="7.5",
    bf16=False,
)


def _gpu(name: str, compute_capability: str, memory_gib: float) -> TorchDevice:
    memory_bytes = round(memory_gib * GIB)
    return replace(
        H200,
        name=name,
        memory_bytes=memory_bytes,
        free_bytes=memory_bytes,
        compute_capability=compute_capability,
    )


NINE_GPUS = {
    "T4": T4,
    "L4": _gpu("NVIDIA L4", "8.9", 22.5),
    "A10G": _gpu("NVIDIA A10G", "8.6", 22.5),
    "A100": _gpu("NVIDIA A100-SXM4-80GB", "8.0", 80),
    "4090": _gpu("NVIDIA GeForce RTX 4090", "8.9", 24),
    "H100": _gpu("NVIDIA H100 80GB HBM3", "9.0", 79.6),
    "H200": H200,
    "B200": _gpu("NVIDIA B200", "10.0", 179),
    "MI300X": _gpu("AMD Instinct MI300X", "9.4", 192),
}
"""Those that people rent, as torch describes them."""


def make_machine(*gpu_names: str, cores: int = 8, memory_gib: float = 64) -> Machine:
    """A box with these GPUs; without any, one that has no driver."""
    absent = Missing("not told" if gpu_names else NO_DRIVER)
    numbers = (absent,) * 9
    return Machine(
        machine_id="0123456789ab",
        cpu=Cpu("Test CPU", 1, cores, 2 * cores, 2.0 * cores, cores, "host", Missing("not told"), ()),
        memory=Memory(int(memory_gib * GIB), int(memory_gib * GIB), "host", 64 * 2**20),
        gpus=tuple(
            Gpu(index, f"{index:012x}", name, "nvidia", *numbers) for index, name in enumerate(gpu_names)
        ),
        gpus_absent="" if gpu_names else NO_DRIVER,
        layers=(),
        instance_type=Missing("not asked"),
        region=Missing("not asked"),
        os_name="Linux",
        kernel="6.1",
        libc="glibc 2.36",
        driver_version=absent,
        cuda_driver_version=absent,
    )


def make_interpreter(*gpus: TorchDevice, cuda: str | None = "13.0", hip: str | None = None) -> Interpreter:
    """A Python with torch that sees these GPUs; `cuda=None` is a torch built for the CPU."""
    build = f"cu{cuda.replace('.', '')}" if cuda else f"rocm{hip}" if hip else "cpu"
    runtime = Runtime(
        python_version="3.12.3",
        python_implementation="CPython",
        torch_version=f"2.13.0+{build}",
        torch_cuda=cuda or Missing("not in this torch"),
        torch_hip=hip or Missing("not in this torch"),
        cudnn_version=Missing("not in this torch"),
        nccl_version=Missing("not in this torch"),
        triton_version=Missing("not in this torch"),
        arch_list=("sm_80", "sm_90") if cuda else (),
        cpu_capability="AVX512",
        blas="mkl",
    )
    return Interpreter("/opt/torch/bin/python", runtime, (CPU_DEVICE, *gpus))


def make_torchless_interpreter(executable: str = sys.executable) -> Interpreter:
    """A Python without torch; by default that of the tests, as if it had none."""
    runtime = Runtime.without_torch(NOT_INSTALLED, "3.12.3", "CPython")
    return Interpreter(executable, runtime, ())


CPU_PLANNED = PlannedDevice("cpu", "cpu", "Test CPU", "", "")


def make_case(
    workload: str = "spin", size: str = "mini", precision: str = "fp32", threads: str = "1"
) -> Case:
    """One CPU case of a declared size."""
    return case_of(workload_named(workload), size, Variant("cpu", precision, "eager", threads))


def make_plan(
    *launches: Sequence[int],
    cases: Sequence[Case] = (make_case(),),
    budget_s: float = 3600.0,
    most_blocks: int = 5,
    interpreter: Sequence[str] = (sys.executable,),
    needs_torch: bool = False,
) -> Plan:
    """A plan whose launches, in this order, hold cases of these ids; each launch is a replicate.

    Its budget is more than any box needs: the number of blocks ends a launch.
    """
    return Plan(
        profile="test",
        profile_version=1,
        seed=7,
        replicates=len(launches),
        budget_s=budget_s,
        cases=tuple(PlannedCase(i, case, None, "") for i, case in enumerate(cases)),
        launches=tuple(
            PlannedLaunch(i, i, tuple(case_ids), CPU_PLANNED, 1, 1.0, needs_torch=needs_torch)
            for i, case_ids in enumerate(launches)
        ),
        interpreter=tuple(interpreter),
        most_blocks=most_blocks,
    )


def make_spec(plan: Plan, on_end: Sequence[str] = (), run_id: str = "") -> Spec:
    """The spec of a supervisor that executes this plan."""
    return Spec(
        run_id=run_id or "0194b5a0-0000-7000-8000-0000000000aa",
        plan=plan,
        runtime=make_torchless_interpreter().runtime,
        label="a label",
        price=None,
        machine_name="",
        hash_key=b"",
        target="results.db",
        on_end=tuple(on_end),
    )


def write_program(path: Path, text: str) -> Path:
    """An executable script."""
    path.write_text(text)
    path.chmod(0o755)
    return path
