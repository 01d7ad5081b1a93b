"""Boxes with a price and chosen speeds, so that every cost can be worked out on paper."""

from __future__ import annotations

from hand_made import NO_PRICE, make_run, measured, steady
from journals import CPU_MACHINE, GPU_MACHINE

from gputui.model.absent import Missing
from gputui.model.journal import Price
from gputui.model.plan import Case, Variant, Work
from gputui.model.result import CaseResult
from gputui.services.advise.rent import PricedSide
from gputui.services.compare.pairing import side_of_runs

TOKENS_PER_STEP = 1000.0
UNITS = {"decode": "tok", "gpt_train": "tok", "bert_ft": "seq", "infer_rps": "req", "infer_lat": "req"}


def case_named(
    workload: str,
    device_class: str = "cpu",
    *,
    size: str = "mini",
    precision: str = "fp32",
    context: int = 128,
) -> Case:
    """A case of 1000 units per step; a text classifier serves requests."""
    parameters: tuple[tuple[str, int | str], ...] = (("batch", 8), ("context", context), ("layers", 4))
    if workload.startswith("infer"):
        parameters = (*parameters, ("task", "text"))
    return Case(
        work=Work(workload, 1, size, "same", parameters),
        variant=Variant(device_class, precision, "eager", "all" if device_class == "cpu" else "host"),
        workload_class="inference" if workload.startswith("infer") else "training",
        unit=UNITS[workload],
        units_per_step=TOKENS_PER_STEP,
        flops_per_step=10**9 if size == "mini" else 10**11,
        bytes_per_step=None,
    )


def quick(case: Case, units_per_s: float, launches: int = 3) -> CaseResult:
    """The case at this speed, the same in every launch."""
    return measured(case, *[steady(case.units_per_step / units_per_s)] * launches)


def price(usd_per_hour: float, gpus: float = 0) -> Price:
    return Price(usd_per_hour, gpus, "stated", "", "", "", "")


def box(
    name: str, *cases: CaseResult, usd: float | None = None, gpus: int = 0, cpu: float | None = None
) -> PricedSide:
    """A box with this price and this many GPUs."""
    side = side_of_runs(name, [make_run(*cases, machine=GPU_MACHINE if gpus else CPU_MACHINE)])
    cpu_price = Missing("not stated") if cpu is None else price(cpu)
    return PricedSide(side, NO_PRICE if usd is None else price(usd, gpus), cpu_price)


def training_boxes(cpu_tok_per_s: float, gpu_tok_per_s: float) -> tuple[PricedSide, PricedSide]:
    """A CPU box of $0.36 and a GPU box of $3.60 per hour."""
    return (
        box("cpu.db", quick(case_named("gpt_train"), cpu_tok_per_s), usd=0.36),
        box("gpu.db", quick(case_named("gpt_train", "gpu"), gpu_tok_per_s), usd=3.60, gpus=1),
    )
