"""What limits the step of a case, from its profiled pass and telemetry."""

from __future__ import annotations

from dataclasses import dataclass

from gputui.analysis.attribution import ProfiledSide, doubtful
from gputui.analysis.findings import Finding, StepFacts, findings_of
from gputui.analysis.verdict import SpeedEstimate
from gputui.model.absent import Missing
from gputui.model.profiled import ProfiledPass
from gputui.model.result import CaseResult, RunSummary
from gputui.services.results.conditions import Evidence
from gputui.services.results.roofline import measured_peak
from gputui.services.results.throughput import speed_of


@dataclass(frozen=True, slots=True)
class SeenStep:
    """A side of a row whose step was timed and profiled."""

    result: CaseResult
    run: RunSummary
    found: ProfiledPass
    step_ns: int


def findings_of_case(case: CaseResult, run: RunSummary, evidence: Evidence) -> tuple[Finding, ...]:
    """What limits the step of one case; nothing if its profiled pass is absent or unreliable.

    Raises GputuiError if the file can no longer be read.
    """
    seen = seen_step(case, run, evidence)
    return () if isinstance(seen, Missing) else step_findings(seen, evidence)


def seen_step(case: CaseResult, run: RunSummary, evidence: Evidence) -> SeenStep | Missing:
    """The timed step and profiled pass of a case; Missing with the reason if either is absent."""
    speed = speed_of(case)
    if not isinstance(speed, SpeedEstimate):
        return Missing("not measured")
    found = evidence.profiled(run.run_id, case.case_id)
    if isinstance(found, Missing):
        return found
    step_ns = round(case.case.units_per_step / speed.units_per_s * 1e9)
    return SeenStep(case, run, found, step_ns)


def profiled_side(seen: SeenStep, peak: float | Missing) -> ProfiledSide:
    """The side as `attribution` expects it."""
    return ProfiledSide(seen.found, seen.step_ns, seen.result.case.variant.device_class == "gpu", peak)


def own_peak(seen: SeenStep, evidence: Evidence, precision_used: str = "") -> float | Missing:
    """FLOP/s of the largest matrix product measured in the same run."""
    return measured_peak("flop", seen.result, evidence.cases(seen.run.run_id), precision_used)


def step_findings(seen: SeenStep, evidence: Evidence) -> tuple[Finding, ...]:
    """What limits the step; nothing if its pass is unreliable."""
    side = profiled_side(seen, own_peak(seen, evidence))
    if doubtful(side):
        return ()
    cases = evidence.cases(seen.run.run_id)
    half = [own_peak(seen, evidence, used) for used in ("amp-bf16", "amp-fp16")]
    known = [peak for peak in half if not isinstance(peak, Missing)]
    conditions = evidence.conditions(seen.run.run_id, seen.result.case_id)
    facts = StepFacts(
        side=side,
        precision_used=seen.result.precision_used,
        flops_per_step=seen.result.case.flops_per_step,
        bytes_per_step=seen.result.case.bytes_per_step,
        single_peak=own_peak(seen, evidence, "fp32"),
        half_peak=max(known) if known else half[0],
        copy_bytes_per_s=measured_peak("B", seen.result, cases),
        capped_share=conditions if isinstance(conditions, Missing) else conditions.power_capped_share,
        clock_mhz=conditions if isinstance(conditions, Missing) else conditions.clock_median_mhz,
        clock_most_mhz=conditions if isinstance(conditions, Missing) else conditions.clock_most_mhz,
    )
    return findings_of(facts)
