"""Text for runs and cases, shared by all tables and screens."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from datetime import datetime, timedelta, timezone

from gputui.analysis.spread import ASSUMED_DF
from gputui.analysis.verdict import LAUNCHES_MEASURED, SpeedEstimate
from gputui.model.absent import Missing
from gputui.model.journal import NOTHING_MEASURED
from gputui.model.machine import Gpu, Machine, Runtime
from gputui.model.plan import FOUND_BY_TRYING, RECORD_PROFILE, WHOLE_BOX, Case
from gputui.model.result import CaseResult, Measurement, Run, RunSummary
from gputui.model.units import (
    UNKNOWN,
    counted,
    format_bytes,
    format_change,
    format_change_interval,
    format_hourly,
    format_metric,
    format_percent,
    format_seconds,
    format_spread,
)
from gputui.services.prices import price_source
from gputui.services.results.metrics import CaseMetric
from gputui.services.results.throughput import (
    BY_CLOCK,
    LIFTS,
    NOT_OF_GPU,
    busy_words,
    is_by_clock,
    is_crowded,
    is_host_bound,
    is_undecidable,
    speed_of,
    waited_share,
)
from gputui.worker.failures import IN_LOG
from gputui.worker.workloads import WORKLOADS

_MONTHS = ("Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec")
_NAMES = {workload.name: workload.title for workload in WORKLOADS}


def day(run: RunSummary) -> str:
    """The day and time of a run in its own time zone: `20 Nov 14:02`; the year where it is another."""
    zone = timezone(timedelta(minutes=run.utc_offset_min))
    moment = datetime.fromtimestamp(run.started_utc_us / 1e6, zone)
    year = "" if moment.year == datetime.now(zone).year else f" {moment.year}"
    return f"{moment.day} {_MONTHS[moment.month - 1]}{year} {moment:%H:%M}"


def device_words(run: RunSummary) -> str:
    """The box of a run in a few words."""
    return machine_words(run.machine)


def machine_words(machine: Machine) -> str:
    """A box in a few words: its GPUs, or its CPU and usable cores."""
    if machine.gpus:
        return gpu_words(machine)
    model, cores = cpu_words(machine), machine.cpu.usable_cores
    return f"{model}, {counted(cores, 'core')}" if cores else model  # a trace does not say how many


def gpu_words(machine: Machine) -> str:
    """Its GPUs: `2x H200`."""
    names = [gpu.name.removeprefix("NVIDIA ") for gpu in machine.gpus]
    return ", ".join(f"{names.count(name)}x {name}" for name in dict.fromkeys(names))


def cpu_words(machine: Machine) -> str:
    """The model of its CPU without what all of them are called."""
    model = "CPU" if isinstance(machine.cpu.model, Missing) else machine.cpu.model
    return model.replace("(R)", "").replace("(TM)", "").replace(" Processor", "")


def torch_words(run: RunSummary) -> str:
    """The torch of a run, as `torch_in`."""
    return torch_in(run.runtime)


def torch_in(runtime: Runtime) -> str:
    """`torch 2.13.0+cpu`, or that there is none; empty for a recording, which asks no interpreter."""
    version = runtime.torch_version
    if not runtime.python_version:
        return ""
    return "no torch" if isinstance(version, Missing) else f"torch {version}"


OTHERS_HAD = "other programs had the CPUs of"
NOT_RUN = ("skipped", "unsupported")
"""Outcomes of cases that this box was not to run."""


def measured_first(cases: Iterable[CaseResult]) -> list[CaseResult]:
    """Cases in their order, those that could not run here last."""
    return sorted(cases, key=lambda case: case.outcome in NOT_RUN)


def plain_name(workload: str) -> str:
    """What people call a workload: `matmul` for `gemm`. One that gputui does not ship keeps its name."""
    return _NAMES.get(workload, workload)


def plain_case_name(case: Case) -> str:
    """The whole name of a case as people say it: `matmul mini cpu fp32 1 thread`."""
    return plain_name(case.work.workload) + case.name.removeprefix(case.work.workload)


def case_name(case: CaseResult, *, in_files: bool = False) -> str:
    """The name of a case, with the type that `amp` resolved to, and the number of a GPU but the first.

    Files name the workload as options do.
    """
    used = {m.precision_used for m in case.measurements if m.precision_used}
    name = case.case.name if in_files else plain_case_name(case.case)
    name = name.replace(" gpu", f" gpu{gpu_number(case.case, case.device_index)}")
    types = sorted(u.removeprefix("amp-") for u in used if u.startswith("amp-"))
    is_chosen = types and case.case.variant.precision == "amp"
    return name.replace(" amp", f" amp({'/'.join(types)})") if is_chosen else name


def case_words(case: Case) -> dict[str, str]:
    """The words that distinguish a case from others of its workload; empty for defaults."""
    variant = case.variant
    if case.is_program:
        device = "" if variant.device_class == WHOLE_BOX else variant.device_class
        return {"size": "", "device": device, "precision": "", "mode": "", "threads": ""}
    threads = {"1": "1t", "all": "all", "host": ""}.get(variant.threads, variant.threads)
    words = {"size": case.work.size, "device": variant.device_class, "precision": variant.precision}
    return {**words, "mode": "" if variant.mode == "eager" else variant.mode, "threads": threads}


def shared_case_words(cases: Iterable[Case], ignore: str = "") -> list[str]:
    """The words that all these cases have, but for the ignored dimension."""
    words = [case_words(case) for case in cases]
    keys = [key for key in ("size", "device", "precision", "mode", "threads") if key != ignore]
    values = [{case[key] for case in words} for key in keys]
    return [next(iter(value)) for value in values if len(value) == 1 and "" not in value]


def short_case_name(
    case: Case, common: Sequence[str] = (), ignore: str = "", *, is_short: bool = False
) -> str:
    """The name without the words that are common and without the ignored dimension."""
    unsaid = ("", "all", *common) if is_short else ("", *common)
    words = [word for key, word in case_words(case).items() if key != ignore and word not in unsaid]
    return " ".join((plain_name(case.work.workload), *words))


def short_result_name(case: CaseResult, common: Sequence[str] = (), *, is_short: bool = False) -> str:
    """As `short_case_name`, with the number of a GPU that is not the first."""
    number = gpu_number(case.case, case.device_index)
    return short_case_name(case.case, common, is_short=is_short) + (f" gpu{number}" if number else "")


def gpu_number(case: Case, device_index: int | None) -> str:
    """`:3` of a GPU that is not the first; else empty."""
    return f":{device_index}" if case.variant.device_class == "gpu" and device_index else ""


def interval_words(speed: SpeedEstimate) -> str:
    """The 95 % interval of the rate around it, as `±2 %` or `-18 to +22 %`."""
    return format_spread(speed.units_per_s, speed.low, speed.high)


def format_ends(low: float, high: float, ratio: float) -> str:
    """`format_change_interval` with its unit: `-38 to -34 %`, `39.8 to 42.1x`."""
    ends = format_change_interval(low, high, ratio)
    return ends if ends == UNKNOWN else f"{ends}{'x' if format_change(ratio).endswith('x') else ' %'}"


def metric_text(metric: CaseMetric) -> str:
    """The value with its unit, or that there is none."""
    return "—" if isinstance(metric.value, Missing) else format_metric(metric.value, metric.unit)


def run_heading(run: Run) -> Iterator[str]:
    """Run, box and runtime, a line each."""
    summary, machine = run.summary, run.summary.machine
    label = f" ({summary.label})" if summary.label else ""
    ended_us = summary.ended_utc_us
    took = "" if ended_us is None else f", {format_seconds((ended_us - summary.started_utc_us) / 1e6)}"
    reason = f": {summary.status_reason}" if summary.status_reason else ""
    yield (
        f"run {summary.short_id}{label}: {summary.profile}, {summary.status}{reason}, {day(summary)}{took}"
    )
    for name, text in box_lines(summary):
        why = f": {machine.gpus_absent}" if name == "GPUs" and not machine.gpus else ""
        yield f"{name:9}{text}{why}"
    price = summary.price
    if not isinstance(price, Missing):
        measured = datetime.fromtimestamp(summary.started_utc_us / 1e6, timezone.utc).date()
        yield f"price    {format_hourly(price.usd_per_hour)} ({price_source(price, measured)})"


def box_lines(run: RunSummary) -> Iterator[tuple[str, str]]:
    """Names and words of what a run was made on and with."""
    machine, runtime, cpu = run.machine, run.runtime, run.machine.cpu
    gpus = Counter(map(_gpu_words, machine.gpus))
    yield "GPUs", ", ".join(f"{count}x {words}" for words, count in gpus.items()) or "none"
    limit = "" if cpu.limited_by == "host" else f", limited by {cpu.limited_by}"
    threads = f"{cpu.usable_threads:g} of {cpu.host_threads} threads{limit}"
    yield "CPU", f"{_known(cpu.model)}, {counted(cpu.usable_cores, 'core')}, {threads}"
    limit = "" if machine.memory.limited_by == "host" else f", limited by {machine.memory.limited_by}"
    yield "memory", f"{format_bytes(machine.memory.usable_bytes)}{limit}"
    layers = [f"{layer.name} ({layer.layer})" for layer in machine.layers]
    where = [text for text in (machine.instance_type, machine.region) if not isinstance(text, Missing)]
    yield "platform", ", ".join((*layers, *where)) or "unknown"
    yield "system", f"{_known(machine.os_name)}, kernel {_known(machine.kernel)}, {_known(machine.libc)}"
    if not isinstance(machine.driver_version, Missing):
        of_amd = any(gpu.vendor == "amd" for gpu in machine.gpus)
        more = "" if of_amd else f", CUDA up to {_known(machine.cuda_driver_version)}"
        yield "driver", f"{machine.driver_version}{more}"
    if runtime.python_version:
        found = {"CUDA": runtime.torch_cuda, "cuDNN": runtime.cudnn_version}
        more = "".join(f", {name} {text}" for name, text in found.items() if not isinstance(text, Missing))
        yield "runtime", f"Python {runtime.python_version}, torch {_known(runtime.torch_version)}{more}"
    if not isinstance(runtime.variables, Missing) and runtime.variables:
        yield "env vars", runtime.variables


def _gpu_words(gpu: Gpu) -> str:
    size = "" if isinstance(gpu.memory_bytes, Missing) else f", {format_bytes(gpu.memory_bytes)}"
    power = "" if isinstance(gpu.power_limit_w, Missing) else f", limit {gpu.power_limit_w:.0f} W"
    return f"{gpu.name}{size}{power}"


def _known(value: object) -> str:
    return "unknown" if isinstance(value, Missing) else str(value)


def run_heading_in_one(run: Run) -> tuple[str]:
    """`run 8e2aad19 (label): quick, 2x H200, torch 2.13.0, 22 Nov 10:30`."""
    summary = run.summary
    label = f" ({summary.label})" if summary.label else ""
    parts = (summary.profile, device_words(summary), torch_words(summary), day(summary))
    return (f"run {summary.short_id}{label}: {', '.join(filter(None, parts))}",)


def metric_range(metric: CaseMetric) -> str:
    """The range over launches and the number of observations, or why there is none."""
    if isinstance(metric.value, Missing):
        return metric.value.reason
    if metric.launches == 1 or metric.low is None or metric.high is None:
        return f"n {metric.observations}"
    low, high = (format_metric(value, metric.unit) for value in (metric.low, metric.high))
    span = low if low == high else f"{low} to {high}"
    return f"{span}, n {metric.observations} in {metric.launches} launches"


_ENDS = {
    "oom": "ran out of memory",
    "unsupported": "cannot run",
    "skipped": "did not run",
    "interrupted": "did not finish",
}


def ending_words(case: CaseResult) -> tuple[str, str]:
    """How a case that was not measured ended, as a verb, and why, without where to read more.

    The amounts of memory differ from case to case, so the reason of one that ran out of it is empty.
    """
    reason = "" if case.outcome == "oom" else case.reason.removesuffix(IN_LOG)
    return _ENDS.get(case.outcome, case.outcome), reason


def not_measured_line(endings: Sequence[tuple[str, str]], of: int) -> str:
    """`23 of 35 cases not measured: 20 need a GPU, 3 had too little time`, of outcomes with reasons."""
    if not endings:
        return ""
    counts = Counter(_lack(outcome, reason) for outcome, reason in endings)
    kinds = [
        f"{n} {lack if n > 1 else lack.replace('need ', 'needs ', 1)}" for lack, n in counts.most_common()
    ]
    return f"{len(endings)} of {counted(of, 'case')} not measured: {', '.join(kinds)}"


def not_measured_lines(run: Run) -> Iterator[str]:
    """`did not run (no GPU): GPT training mini gpu amp, ... and 7 more`, a line for each ending."""
    found: dict[tuple[str, str], list[str]] = {}
    for case in measured_first(run.cases):
        if isinstance(speed_of(case), Missing):
            found.setdefault(ending_words(case), []).append(plain_case_name(case.case))
    for (how, why), names in found.items():
        yield f"{how}{f' ({why})' if why else ''}: {some_of(names)}"


def _lack(outcome: str, reason: str) -> str:
    """What cases of this ending lack, in words that follow their number."""
    if outcome not in NOT_RUN:
        return _ENDS.get(outcome, outcome)
    return next((words for word, words in _LACKS if word in reason), f"{_ENDS[outcome]}: {reason}")


_LITTLE_TIME = ("budget", "no time was left", "first step took", "do not fit", "too little was left")
_LACKS = (
    ("no GPU", "need a GPU"),
    ("capability 8.0", "on a GPU without TF32"),
    ("TF32", "on the CPU, which has no TF32"),
    *((words, "had too little time") for words in _LITTLE_TIME),
)
"""What a reason has in it, and what cases then lack."""


def some_of(names: Sequence[str]) -> str:
    """The first three, and how many more there are."""
    return ", ".join(names[:3]) + (f" and {len(names) - 3} more" if len(names) > 3 else "")


def mostly_assumed(run: Run) -> str:
    """That few launches do not tell how much launches vary, and what would; empty where enough of them do."""
    few = [(case, n) for case, n in _with_assumed_spread(run) if n < LAUNCHES_MEASURED]
    if not few:
        return ""
    how = "three recordings measure it" if is_recording(run) else "--launches 3 measures it"
    if any(had_no_time(case) for case in run.cases):
        how = "there was no time for more: raise --budget"
    elif all(launches + len(lost_launches(case)) >= LAUNCHES_MEASURED for case, launches in few):
        how = "a launch failed: run again"
    elif run.summary.status == "finished" and run.summary.replicates >= LAUNCHES_MEASURED:
        how = "more need a longer --budget"
    return f"the spread is assumed; {how}"


def _with_assumed_spread(run: Run) -> list[tuple[CaseResult, int]]:
    """Measured cases of which launches tell little of how much they vary, and how many launches each has."""
    enough = ASSUMED_DF + LAUNCHES_MEASURED - 1
    assumed = [c for c in run.cases if c.launch_spread is None or c.launch_spread.df < enough]
    speeds = [(case, speed_of(case)) for case in assumed]
    return [(case, speed.launches) for case, speed in speeds if isinstance(speed, SpeedEstimate)]


def launch_number(case: CaseResult, launch_id: int) -> int:
    """Which launch of the case it is, from 1; launches of a run are numbered through in its file alone."""
    return next((one.replicate + 1 for one in case.measurements if one.launch_id == launch_id), 1)


def lost_launches(case: CaseResult) -> tuple[Measurement, ...]:
    """Launches that failed or ran out of memory, unless the case ended so too or another made up for them."""
    measured = {measurement.replicate for measurement in case.measurements if measurement.outcome == "ok"}
    lost = {  # a case that runs out of memory among others is run once more alone, in the same replicate
        measurement.replicate: measurement
        for measurement in case.measurements
        if measurement.outcome in {"failed", "oom"} - {case.outcome} and measurement.replicate not in measured
    }
    return tuple(lost.values())


def has_failed(run: Run) -> bool:
    """Whether a case failed, in all its launches or in some."""
    return any(
        case.outcome == "failed" or any(lost.outcome == "failed" for lost in lost_launches(case))
        for case in run.cases
    )


def has_measured(run: Run) -> bool:
    """Whether a launch found out what its device can do, if only that it ran out of memory."""
    return any(one.outcome in FOUND_BY_TRYING for case in run.cases for one in case.measurements)


def lacking(run: Run) -> str:
    """What a run without a rate lacks: everything, or only a rate if it found something else out."""
    return "no rate was measured" if has_measured(run) else NOTHING_MEASURED


def lost_words(cases: Iterable[tuple[str, CaseResult]]) -> list[str]:
    """How many launches of cases, with their names, failed though the case ended otherwise, and why.

    As `1 of 3 launches of matmul mini cpu fp32 failed: the worker died of SIGKILL`, a line for each reason.
    """
    found: dict[tuple[str, str], list[str]] = {}
    for name, case in cases:
        lost = lost_launches(case)
        launches = len({measurement.replicate for measurement in case.measurements})
        for outcome in dict.fromkeys(measurement.outcome for measurement in lost):
            reasons = [one.reason.removesuffix(IN_LOG) for one in lost if one.outcome == outcome]
            share = f"{len(reasons)} of {counted(launches, 'launch')}"
            why = "" if outcome == "oom" else "; ".join(dict.fromkeys(reasons))
            words = ": ".join(filter(None, (_ENDS.get(outcome, outcome), why)))
            found.setdefault((share, words), []).append(name)
    return [f"{share} of {some_of(names)} {words}" for (share, words), names in found.items()]


def run_notes(run: Run, *, is_brief: bool = False) -> list[str]:
    """Caveats of a run with what helps; `is_brief`: cases are counted instead of named."""

    def which(cases: Sequence[CaseResult], words: Callable[[CaseResult], str] = case_name) -> str:
        return counted(len(cases), "case") if is_brief else some_of([words(case) for case in cases])

    notes = lost_words((case_name(case), case) for case in run.cases)
    if assumed := mostly_assumed(run):
        few = min(launches for _, launches in _with_assumed_spread(run))
        notes.append(f"measured {'once' if few == 1 else f'in {few} launches'}: {assumed}")
    skipped = [c for c in run.cases if {m.outcome for m in c.measurements} == {"skipped"}]
    starved = [c for c in skipped if run.summary.status != "interrupted" and not c.case.is_program]
    if starved and not is_brief:  # they are among those that were not measured
        notes.append(f"too little time for {which(starved)}: raise --budget, or choose fewer with --only")
    unsettled = [c for c in run.cases if any(m.outcome == "ok" and m.stable is False for m in c.measurements)]
    if unsettled:
        notes.append(f"kept speeding up or slowing down while measured: {which(unsettled)}")
    crowded = [c for c in run.cases if is_crowded(c)]
    if crowded:
        by_clock = f"; {BY_CLOCK}" if is_brief and any(map(is_undecidable, crowded)) else ""
        notes.append(f"{OTHERS_HAD} {which(crowded, _waited)}{by_clock}")
    if bound := [c for c in run.cases if is_host_bound(c)]:
        named = which(bound, lambda case: f"{case_name(case)} ({busy_words(case)})")
        rates = f"{NOT_OF_GPU} in {named}"
        notes.append(rates if is_brief else f"{rates}. {LIFTS}")
    return notes


def needs_budget(case: CaseResult) -> bool:
    """Whether the reason of a case without a result is that it had too little time."""
    return any(words in case.reason for words in _LITTLE_TIME)


def had_no_time(case: CaseResult) -> bool:
    """Whether a case was planned for three or more launches and measured by fewer."""
    outcomes = [measurement.outcome for measurement in case.measurements]
    return outcomes.count("skipped") > 0 and 0 < outcomes.count("ok") < 3 <= len(outcomes)


def is_recording(run: Run) -> bool:
    """Whether it was made by `gputui record`, and not by a profile of that name."""
    return run.summary.profile == RECORD_PROFILE and all(
        case.case.variant.device_class == WHOLE_BOX for case in run.cases
    )


def _waited(case: CaseResult) -> str:
    """`GPT training mini cpu fp32 80 % of the time`, and whether its rate has that in it."""
    share = waited_share(case)
    waited = "" if isinstance(share, Missing) else format_percent(share)
    whose = " (its rate is the clock's)" if is_by_clock(case) else ""
    return f"{case_name(case)} {waited} of the time{whose}"
