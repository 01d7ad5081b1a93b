"""Is this box normal: a run beside its data sheets and peak tests, and beside what its devices reach
elsewhere, by references or as published."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

from gputui.analysis.fleet import (
    FEWEST,
    BoxRates,
    below_normal_at,
    level_of,
    lowest_normal_rate,
    rates_of_boxes,
    standing_out,
)
from gputui.analysis.peak_tests import (
    ABOVE_LIMIT,
    BELOW_NORMAL,
    CANNOT_TELL,
    HALF,
    NO_VERDICT,
    NORMAL,
    Expectation,
    PeakTest,
    PerformanceCheck,
    Standing,
    check_performance,
)
from gputui.analysis.verdict import SpeedEstimate
from gputui.document.spans import Span
from gputui.facts.tables import (
    GpuFacts,
    PlausibleRow,
    distribution_rows,
    expected,
    find_gpu,
    memory_gib_of,
    peak_bandwidth,
    peak_for,
)
from gputui.model.absent import Missing
from gputui.model.machine import Gpu, Machine
from gputui.model.result import CaseResult, Run, worked_out_once
from gputui.model.units import format_percent, format_rate
from gputui.services.results.labels import plain_name, shared_case_words, short_case_name
from gputui.services.results.references import Reference, key_of, known_references, model_of, version_of
from gputui.services.results.throughput import (
    contention_of,
    devices_of,
    is_host_bound,
    is_undecidable,
    speed_of,
)

IMPOSSIBLE = 1.1
"""Times the data sheet's peak: clocks may go beyond the sheet's by a few percent, but not so far.

Where `plausible.csv` knows healthy GPUs of this kind that boost further, their limit takes its place.
"""
BOOST = " (boost)"
"""Follows a share above the whole: cards with power to spare clock higher than their data sheet."""
_BEYOND = 1.005
PEAK_WORKLOADS = {"flop": "gemm", "B": "membw"}


@dataclass(frozen=True, slots=True)
class Use:
    """FLOPs or bytes of memory traffic per second, as the workload counts them."""

    unit: str
    """`flop` or `B`."""
    per_s: float
    of_sheet: float | Missing
    """Share of the data sheet's peak for the type it computed in: MFU, or MBU for bytes."""
    of_measured: float | Missing
    """Share of what `gemm` in that type, or `membw`, reached on the same device in the same runs."""
    impossible_above: float = IMPOSSIBLE
    """Times the data sheet's peak: more must be an error of measurement."""

    @property
    def is_impossible(self) -> bool:
        """Whether it exceeds the physical peak so far that the measurement must be wrong."""
        return not isinstance(self.of_sheet, Missing) and self.of_sheet > self.impossible_above


def peak_name(workload: str) -> str:
    """What a peak test measures: `matmul`, or the `memory` that it copies."""
    return plain_name(workload).removesuffix(" copy")


def share_of_sheet(uses: Sequence[Use]) -> float | None:
    """Of the data sheet's peaks of compute and memory, the larger share that was used; None if unknown."""
    return max((use.of_sheet for use in uses if not isinstance(use.of_sheet, Missing)), default=None)


def share_text(share: float | None) -> str:
    """`76 %`, or `121 % (boost)` where the clock went beyond the data sheet's; empty if unknown."""
    if share is None:
        return ""
    return format_percent(share) + (BOOST if share >= _BEYOND else "")


def uses_of(case: CaseResult, beside: Sequence[CaseResult], machine: Machine) -> tuple[Use, ...]:
    """FLOPs first, then bytes; none of what the workload does not count, or of a case without a speed.

    `beside` are the cases among which this box's own ceilings are looked for. A ceiling is not graded by
    itself.
    """
    speed = speed_of(case)
    if not isinstance(speed, SpeedEstimate):
        return ()
    steps_per_s = speed.units_per_s / case.case.units_per_step
    counted = (("flop", case.case.flops_per_step), ("B", case.case.bytes_per_step))
    return tuple(
        Use(
            unit,
            steps_per_s * per_step,
            _share(steps_per_s * per_step, sheet_peak(unit, case, machine)),
            _share(steps_per_s * per_step, measured_peak(unit, case, beside)),
            _impossible_above(unit, case, machine),
        )
        for unit, per_step in counted
        if per_step and case.case.work.workload != "xfer"  # whose bytes cross a bus
    )


def _share(per_s: float, peak: float | Missing) -> float | Missing:
    return peak if isinstance(peak, Missing) else per_s / peak


def sheet_peak(unit: str, case: CaseResult, machine: Machine) -> float | Missing:
    """The data sheet's operations or bytes per second of the devices of a case, in its type."""
    gpu_facts = facts_of(case, machine)
    if isinstance(gpu_facts, Missing):
        return gpu_facts
    peak = peak_for(gpu_facts, case.precision_used) if unit == "flop" else peak_bandwidth(gpu_facts)
    return peak if isinstance(peak, Missing) else devices_of(case.case) * peak


def _impossible_above(unit: str, case: CaseResult, machine: Machine) -> float:
    gpu_facts, peak = facts_of(case, machine), sheet_peak(unit, case, machine)
    if isinstance(gpu_facts, Missing) or isinstance(peak, Missing):
        return IMPOSSIBLE
    known = expected(gpu_facts, "matmul" if unit == "flop" else "copy", case.precision_used)
    if isinstance(known, Missing):
        return IMPOSSIBLE
    return max(IMPOSSIBLE, devices_of(case.case) * known.suspicious_above / peak)


def facts_of(case: CaseResult, machine: Machine) -> GpuFacts | Missing:
    """What is published of the GPU that a case ran on."""
    if case.case.variant.device_class != "gpu":
        return Missing("gputui has no peak figures for CPUs")
    return find_gpu(case.device_name, memory_gib_of(machine, case.device_index))


def measured_peak(
    unit: str, case: CaseResult, beside: Sequence[CaseResult], precision_used: str = ""
) -> float | Missing:
    """What `gemm` (unit `flop`) or `membw` (`B`) reached per second on the devices of a case.

    `gemm` in the type the case computed in, or in another one, such as `amp-bf16`; not while others had the
    CPUs for so long that it is unknown.
    """
    workload = PEAK_WORKLOADS[unit]
    wanted = precision_used or case.precision_used
    if case.case.work.workload in PEAK_WORKLOADS.values():
        return Missing("it is a peak test itself")
    found = [
        speed.units_per_s
        for other in beside
        if other.case.work.workload == workload
        and other.case.variant.device_class == case.case.variant.device_class
        and other.case.variant.threads == case.case.variant.threads
        and other.device_index == case.device_index
        and (unit == "B" or other.precision_used == wanted)
        and not is_undecidable(other)
        and not is_host_bound(other)
        and isinstance(speed := speed_of(other), SpeedEstimate)
    ]
    if not found:
        return Missing(f"{workload} was not measured in the same run")
    return devices_of(case.case) * max(found)


CHECK_WORDS = {
    NORMAL: Span("normal", "good"),
    CANNOT_TELL: Span("can't tell", "dim"),
    NO_VERDICT: Span("no verdict", "dim"),
    BELOW_NORMAL: Span("BELOW NORMAL", "warn"),
    ABOVE_LIMIT: Span("ABOVE THE LIMIT", "alarm"),
}
"""Of a judged test, for tables."""
CAPPED_W = 1.0
"""Drivers report limits with a rounding error."""
PEAK_TESTS = {"gemm": "matmul", "membw": "copy"}
"""Workloads, by what published figures call what they measure."""
_LINKS = {"256m-h2d": "h2d_pinned", "256m-d2h": "d2h_pinned"}
"""Sizes of `xfer` that are what the figures of links were measured with: large copies, pinned memory."""
_PUBLIC_LEVEL = 0.01
"""The chance that one healthy box is called low beside boxes of public reports."""
SMALL = {("gemm", "mini"), ("gemm", "base"), ("membw", "mini")}
"""Sizes that do not fill a large GPU: the figures known from elsewhere are not of these."""


@dataclass(frozen=True, slots=True)
class _Beside:
    """A reference beside the cases of one device."""

    reference: Reference
    cases: tuple[tuple[CaseResult, SpeedEstimate, BoxRates], ...]
    """Those that both have measured, and that nothing disturbed here."""
    judges: bool


@worked_out_once
def performance_checks(run: Run) -> tuple[PerformanceCheck, ...]:
    """One judgement per device that has a measured ceiling, GPUs first.

    Of each ceiling and precision only the largest size counts, and it is judged only if it is not small: the
    figures known from elsewhere are of large products and copies. A link to the host counts where a figure is
    known of that very GPU. Of trainings nothing is published.

    Where a reference of the model holds enough boxes, these judge all its cases, and published figures what
    is left. It has to be of the torch of this run, or of an older and a newer one.
    """
    largest = _largest(run)
    by_device: dict[tuple[str, int | None, str], list[PeakTest]] = {}
    for (device_class, index, name, _, _), case in largest.items():
        peak_test = _peak_test(case, run.summary.machine)
        if peak_test is not None:
            by_device.setdefault((device_class, index, name), []).append(peak_test)
    devices = dict.fromkeys(
        (case.case.variant.device_class, case.device_index, case.device_name)
        for case in run.cases
        if case.outcome == "ok"
    )
    beside = {device: found for device in devices if (found := _beside(run, *device)) is not None}
    ordered = sorted({**by_device, **beside}, key=lambda device: (device[0] != "gpu", device[1] or 0))
    level = level_of(
        [
            (speed.units_per_s, rates)
            for found in beside.values()
            for _, speed, rates in (found.cases if found.judges else ())
        ]
    )
    return tuple(
        _check(run, device, by_device.get(device, ()), beside.get(device), level) for device in ordered
    )


def _largest(run: Run) -> Mapping[_Peak, CaseResult]:
    """Of each peak test of each device, the case of the largest size."""
    largest: dict[_Peak, CaseResult] = {}
    for case in run.cases:
        variant = case.case.variant
        if not _measure(case) or case.outcome != "ok" or variant.threads == "1" or is_host_bound(case):
            continue
        key = (variant.device_class, case.device_index, case.device_name, _measure(case), variant.precision)
        known = largest.get(key)
        if known is None or known.case.units_per_step < case.case.units_per_step:
            largest[key] = case
    return largest


_Peak = tuple[str, int | None, str, str, str]
"""Class, index and name of the device, what is measured, and the precision."""


def peak_tests_of(run: Run, gpu: str) -> dict[tuple[str, str], PeakTest]:
    """The peak tests of one model of `gpus.csv` in a run, by measure and type as in the tables of facts."""
    found = {}
    for case in _largest(run).values():
        facts, test = facts_of(case, run.summary.machine), _peak_test(case, run.summary.machine)
        if not isinstance(facts, Missing) and facts.name == gpu and test is not None and not test.is_small:
            dtype = case.precision_used.removeprefix("amp-") if test.measure == "matmul" else ""
            found[test.measure, dtype] = test
    return found


_Device = tuple[str, int | None, str]
"""Class, index and name."""


def _check(
    run: Run, device: _Device, published: Sequence[PeakTest], beside: _Beside | None, level: float
) -> PerformanceCheck:
    """`level`: of each case of a reference, such that it holds for the whole run."""
    _, index, name = device
    standing = None if beside is None else _standing(run, beside, index, level)
    if beside is None or not beside.judges:
        return check_performance(name, published, index, standing)
    limits = {test.label: test.expectation for test in published}
    among = [case.case for case, _, _ in beside.cases]
    tests = []
    for case, speed, rates in beside.cases:
        label = _label(case, is_small=False) if _measure(case) else ""
        limit = limits.pop(label, None)
        low, high = rates.usual_range
        above = math.inf if limit is None else limit.suspicious_above
        tests.append(
            PeakTest(
                short_case_name(case.case, shared_case_words(among), is_short=True),
                _measure(case),
                speed.units_per_s,
                case.case.unit,
                Expectation(low, high, lowest_normal_rate(rates, level), above, rates=rates),
                low_per_s=speed.low,
                high_per_s=speed.high,
            )
        )
    left = [test for test in published if test.label in limits and not test.is_small]
    return check_performance(name, [*tests, *left], index, standing)


def _beside(run: Run, device_class: str, index: int | None, name: str) -> _Beside | None:
    """The reference that says most of a device: one that judges before one that does not, then by cases."""
    machine, torch = run.summary.machine, run.summary.runtime.torch_version
    model = model_of(machine, device_class, index, name) if device_class in ("gpu", "cpu") else None
    found = []
    for reference in known_references() if model is not None else ():
        if reference.model != model:
            continue
        known = reference.known_cases()
        cases = tuple(
            (case, speed, known[key_of(case.case)][1])
            for case in run.cases
            if (case.case.variant.device_class, case.device_index, case.device_name)
            == (device_class, index, name)
            and key_of(case.case) in known
            and not contention_of(case)
            and not is_host_bound(case)
            and isinstance(speed := speed_of(case), SpeedEstimate)
        )
        judges = reference.boxes >= FEWEST and reference.holds_torch(torch)
        enough = tuple(one for one in cases if one[2].boxes >= FEWEST) if judges else cases
        if enough:
            found.append(_Beside(reference, enough, judges))
    return max(found, key=lambda one: (one.judges, len(one.cases), one.reference.boxes), default=None)


def _standing(run: Run, beside: _Beside, index: int | None, level: float) -> Standing:
    reference, cases = beside.reference, beside.cases
    shares = [rates.share_slower(speed.units_per_s) for _, speed, rates in cases]
    logs = [math.log(speed.units_per_s / rates.typical_per_s) for _, speed, rates in cases]

    def how_low(place: int) -> tuple[bool, float, float]:
        """Cases that are below normal first, then by chance."""
        _, speed, rates = cases[place]
        is_healthy = not below_normal_at(level, speed.units_per_s, speed.high, rates)
        return is_healthy, rates.p_healthy(speed.units_per_s), logs[place]

    case, speed, rates = cases[min(range(len(cases)), key=how_low)]
    name = short_case_name(case.case, shared_case_words(one.case for one, _, _ in cases), is_short=True)
    here = format_rate(speed.units_per_s, case.case.unit)
    low, high = (format_rate(rate, case.case.unit) for rate in rates.usual_range)
    is_one_unit = len({text.partition(" ")[2] for text in (here, low, high)}) == 1
    figures = (
        f"{here.partition(' ')[0]} of {low.partition(' ')[0]}–{high}"
        if is_one_unit
        else f"{here} of {low} to {high}"
    )
    return Standing(
        reference.name,
        reference.model.counted(reference.boxes),
        reference.boxes,
        reference.months,
        len(cases),
        math.fsum(shares) / len(shares),
        math.exp(math.fsum(logs) / len(logs)),
        f"{name} {figures}",
        tuple(_remarks(run, beside, index)),
        beside.judges,
    )


def _remarks(run: Run, beside: _Beside, index: int | None) -> Iterator[str]:
    """What makes this box another than those of the reference."""
    reference, torch = beside.reference, run.summary.runtime.torch_version
    gpu = run.summary.machine.gpu(index)
    if gpu is not None and (cap := power_cap_of(gpu)):
        yield cap
    if reference.boxes < FEWEST:
        yield "too few boxes to judge by"
    elif not reference.holds_torch(torch):
        known = reference.range_of("torch") or "unknown"
        yield f"measured with torch {version_of(str(torch)) or 'unknown'}, the reference with {known}"


def power_cap_of(gpu: Gpu) -> str:
    """`power-capped at 500 of 700 W`; empty if it is not, or unknown."""
    limit, default = gpu.power_limit_w, gpu.power_default_limit_w
    if isinstance(limit, Missing) or isinstance(default, Missing) or limit >= default - CAPPED_W:
        return ""
    return f"power-capped at {limit:.0f} of {default:.0f} W"


def _label(case: CaseResult, *, is_small: bool) -> str:
    work = case.case.work
    if work.workload == "xfer":
        return "pinned copy to the GPU" if _measure(case) == "h2d_pinned" else "pinned copy from the GPU"
    name = plain_name(work.workload)
    label = f"{name} {case.case.variant.precision}" if _measure(case) == "matmul" else name
    return f"{work.size} {label}" if is_small else label


def public_boxes(gpu: str, measure: str, dtype: str) -> BoxRates | Missing:
    """The healthy boxes of public reports that did the work of gputui's own test, at least FEWEST.

    Without those that stand out among them, scaled to gputui's shape. `gpu` is a name of `gpus.csv`.
    """
    for row in distribution_rows():
        if (row.gpu, row.measure, row.dtype) == (gpu, measure, dtype) and row.same_work and row.boxes:
            odd = standing_out([math.log(rate) for rate in row.rates])
            healthy = [row.same_work * rate for place, rate in enumerate(row.rates) if place not in odd]
            if min(row.boxes, len(healthy)) >= FEWEST:
                return rates_of_boxes(healthy)
    return Missing(f"fewer than {FEWEST} boxes of public reports did that work on {gpu}")


def expectation_of(found: PlausibleRow) -> Expectation:
    """What a public figure makes expect: of boxes where enough are known, else of a few figures."""
    rates = public_boxes(found.gpu, found.measure, found.dtype)
    if isinstance(rates, BoxRates):
        lowest = lowest_normal_rate(rates, _PUBLIC_LEVEL)
        return Expectation(*rates.usual_range, lowest, found.suspicious_above, rates=rates, is_public=True)
    return Expectation(
        found.measured_min,
        found.measured_max,
        HALF * found.measured_min,
        found.suspicious_above,
        figures=len(found.source),
        is_unsure=found.confidence == "low",
    )


def _peak_test(case: CaseResult, machine: Machine) -> PeakTest | None:
    """One figure of a device beside what is published of its model; None of a link that nobody knows."""
    speed = speed_of(case)
    if not isinstance(speed, SpeedEstimate):
        return None
    work, measure = case.case.work, _measure(case)
    is_small = case.case.variant.device_class == "gpu" and (work.workload, work.size) in SMALL
    label, gpu = _label(case, is_small=is_small), facts_of(case, machine)
    test = PeakTest(label, measure, speed.units_per_s, case.case.unit, None, is_small)
    if not isinstance(gpu, Missing) and not is_small:
        found = expected(gpu, measure, case.precision_used)
        known = None if isinstance(found, Missing) else expectation_of(found)
        test = replace(test, expectation=known, low_per_s=speed.low, high_per_s=speed.high)
    is_unknown = test.expectation is None or test.expectation.is_unsure
    return None if work.workload == "xfer" and is_unknown else test


def _measure(case: CaseResult) -> str:
    """Its name in the facts; empty if they have nothing comparable."""
    work = case.case.work
    return PEAK_TESTS.get(work.workload) or (_LINKS.get(work.size, "") if work.workload == "xfer" else "")
