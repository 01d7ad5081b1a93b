"""A reference as one side of a comparison: a run of the typical box, with how far another may lie from it."""

from __future__ import annotations

import math
from dataclasses import replace
from datetime import datetime, timezone

from gputui.analysis.box_rates import BoxRates
from gputui.analysis.fleet import FEWEST
from gputui.analysis.priors import instance_prior_sd
from gputui.analysis.quantiles import normal_quantile
from gputui.analysis.spread import ASSUMED, together
from gputui.errors import GputuiError
from gputui.model.absent import Missing
from gputui.model.case import Case
from gputui.model.journal import Block
from gputui.model.machine import Machine, Runtime
from gputui.model.plan import MIN_BLOCKS, REFERENCE_PROFILE
from gputui.model.result import CaseResult, Measurement, Run, RunSummary, Spread
from gputui.services.results.references import PREFIX, DeviceModel, Reference

_UNKNOWN = Missing("a reference does not say")
_BLOCK_S = 0.2


def run_of_reference(reference: Reference) -> Run:
    """One launch at the typical rate for each case.

    Raises GputuiError if this gputui measures none of them.
    """
    cases = reference.known_cases()
    if not cases:
        raise GputuiError(
            f"{PREFIX}{reference.name}: its cases are of another version of gputui",
            f"it was measured with gputui {_range_of(reference, 'gputui') or 'of unknown version'}",
        )
    year, month = map(int, reference.last_month.split("-"))
    started_us = round(datetime(year, month, 1, tzinfo=timezone.utc).timestamp() * 1e6)
    summary = RunSummary(
        run_id=f"{PREFIX}{reference.name}",
        started_utc_us=started_us,
        ended_utc_us=None,
        utc_offset_min=0,
        status="finished",
        status_reason="",
        profile=REFERENCE_PROFILE,
        profile_version=reference.profile_version,
        seed=0,
        replicates=reference.boxes,
        budget_s=0.0,
        label="",
        gputui_version=_range_of(reference, "gputui") or "",
        machine=_machine(reference),
        runtime=_runtime(reference),
        price=_UNKNOWN,
    )
    results = (
        _result(place, case, rates, reference.model) for place, (case, rates) in enumerate(cases.values())
    )
    return Run(summary, tuple(results))


def _result(case_id: int, case: Case, rates: BoxRates, model: DeviceModel) -> CaseResult:
    """Blocks that are all alike: what is uncertain is in the spreads."""
    steps = max(1, round(_BLOCK_S * rates.typical_per_s / case.units_per_step))
    block_ns = round(steps * case.units_per_step / rates.typical_per_s * 1e9)
    on_gpu = model.device_class == "gpu"
    blocks = tuple(
        Block(0, case_id, index, steps, index * block_ns, block_ns, None, None, None)
        for index in range(MIN_BLOCKS)
    )
    measured = Measurement(0, 0, "ok", "", "", False, None, None, None, None, blocks)
    known_sd = math.log(rates.high_per_s / rates.low_per_s) / 2 / normal_quantile(0.975)
    spread = Spread(known_sd**2, math.inf)
    if rates.boxes > 1:
        spread = Spread(rates.log_sd**2 / rates.boxes, rates.boxes - 1.0)
    return CaseResult(
        case_id=case_id,
        case=case,
        device_index=0 if on_gpu else None,
        device_name=model.name,
        outcome="ok",
        reason="",
        measurements=(measured,),
        launch_spread=spread,
        between_boxes=_between_boxes(case, rates, known_sd),
    )


def _between_boxes(case: Case, rates: BoxRates, known_sd: float) -> Spread:
    """As `BoxRates.p_healthy` has it; below FEWEST boxes, what is assumed pooled with what they show."""
    of_mean = 1 + 1 / rates.boxes
    if rates.boxes >= FEWEST:
        return Spread(rates.log_sd**2 * of_mean, rates.boxes - 1.0)
    own = Spread(rates.log_sd**2, rates.boxes - 1.0) if rates.boxes > 1 else None
    boxes = ASSUMED.of_row(own, instance_prior_sd(case.variant.device_class, case.workload_class))
    return together(
        (replace(boxes, variance=boxes.variance * of_mean), Spread(0.0 if own else known_sd**2, math.inf))
    )


def _machine(reference: Reference) -> Machine:
    model = reference.model
    gpu = model.words if model.device_class == "gpu" else ""
    machine = Machine.unknown(
        _UNKNOWN,
        machine_id=f"{PREFIX}{reference.name}",
        gpu=gpu,
        no_gpus="" if gpu else "the reference is of a CPU",
    )
    name = _UNKNOWN if gpu else model.name
    cpu = replace(machine.cpu, model=name, usable_cores=model.cores, features=model.features)
    return replace(machine, cpu=cpu, driver_version=_range_of(reference, "driver") or _UNKNOWN)


def _runtime(reference: Reference) -> Runtime:
    return replace(
        Runtime.without_torch(_UNKNOWN, _range_of(reference, "python") or ""),
        torch_version=_range_of(reference, "torch") or _UNKNOWN,
        torch_cuda=_range_of(reference, "cuda") or _UNKNOWN,
    )


def _range_of(reference: Reference, key: str) -> str:
    """`2.13.0`, `2.8.0 to 2.13.0`; empty if it is not known."""
    low, high = reference.versions.get(key, ("", ""))
    return low if low == high else f"{low} to {high}"
