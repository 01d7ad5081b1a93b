"""Boxes and nodes of many GPUs that differ by a little, as one side each of a ranking."""

from __future__ import annotations

from dataclasses import replace

from hand_made import make_case, make_run, measured, selected, steady
from journals import CPU_MACHINE, GPU_MACHINE, H200

from gputui.model.journal import Price
from gputui.model.machine import Gpu, Machine
from gputui.model.result import Run
from gputui.services.compare.fleet import fleet_sides
from gputui.services.compare.pairing import Side

GEMM = make_case("gemm")
COPY = make_case("membw")
WOBBLE = (0.0, 0.01, -0.012, 0.004, -0.006, 0.009, -0.003, 0.002, -0.008, 0.011)


def box(
    name: str, gemm_s: float, copy_s: float = 0.02, machine: Machine = CPU_MACHINE, usd: float | None = None
) -> Side:
    price = {} if usd is None else {"price": Price(usd, 1.0, "stated", "", "", "", "")}
    run: Run = make_run(
        measured(GEMM, steady(gemm_s)),
        measured(COPY, steady(copy_s)),
        machine=replace(machine, machine_id=name.encode().hex().rjust(12, "0")[-12:]),
        **price,  # type: ignore[arg-type]
    )
    (side,) = fleet_sides([selected(name, run)])
    return replace(side, name=name.removesuffix(".db"))


def even(count: int, step_s: float = 0.01, **kind: object) -> list[Side]:
    return [
        box(f"{n}.db", step_s * (1 + WOBBLE[n % 10]), 0.02 * (1 + WOBBLE[-1 - n % 10]), **kind)  # type: ignore[arg-type]
        for n in range(count)
    ]


def node(name: str, slow: int | None = None, **different: object) -> Run:
    """A box of eight H200 that measured two cases on each; one GPU may be 12 % slower, and differ."""
    gpus: list[Gpu] = [replace(H200, index=n, gpu_id=f"{name:>8}{n:04x}") for n in range(8)]
    cases = []
    for gpu in gpus:
        own_s = (1 + WOBBLE[(gpu.index + len(name)) % 10] / 3) / (0.88 if gpu.index == slow else 1)
        for workload in ("gemm", "membw"):
            case = make_case(workload, device_class="gpu")
            cases.append(replace(measured(case, steady(0.01 * own_s)), device_index=gpu.index))
    if slow is not None:
        gpus[slow] = replace(gpus[slow], **different)  # type: ignore[arg-type]
    machine = replace(GPU_MACHINE, machine_id=name.encode().hex().rjust(12, "0")[-12:], gpus=tuple(gpus))
    return make_run(*cases, machine=machine)
