"""Runs side by side: which rows pair, what each row says, and how the sides differ.

A side is a set of cases: of one file, of one run, or, within one file, all cases of one device class,
precision, number of threads, mode, machine or runtime. The first side is the baseline.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace

from gputui.analysis.attribution import Attribution
from gputui.analysis.cost import Cost, Energy
from gputui.analysis.findings import Finding
from gputui.analysis.judgement import (
    COST,
    ENERGY,
    FIGURE,
    RATE,
    TIME,
    Judgement,
    figure_ratio,
    judgements,
    work_per_dollar,
    work_per_joule,
)
from gputui.analysis.peak_tests import NO_REFERENCE, PerformanceCheck
from gputui.analysis.spread import CONTENTION, band_between_models, instance_prior_sd
from gputui.analysis.verdict import (
    BAND,
    GeometricMean,
    RatioEstimate,
    SpeedEstimate,
    Verdict,
    geometric_mean,
    is_explained_by_clock,
    judge,
)
from gputui.errors import GputuiError, NoResult
from gputui.model.absent import Missing
from gputui.model.machine import Machine
from gputui.model.plan import Case
from gputui.model.result import CaseResult, Measurement, Run, RunSummary
from gputui.model.units import format_percent, listed
from gputui.services.results.expected import Use, performance_checks, uses_of
from gputui.services.results.headline import case_order
from gputui.services.results.labels import had_no_time, plain_case_name
from gputui.services.results.metrics import (
    AS_OFFERED,
    CaseMetric,
    LaunchValues,
    is_as_offered,
    late_share,
    launch_values_of,
    load_name,
    times_of,
)
from gputui.services.results.throughput import (
    HOST_BOUND,
    LAUNCH_IDS_OF_A_RUN,
    STEP_KEYS,
    PowerOf,
    busy_share,
    contention_of,
    cost_of,
    energy_of,
    is_host_bound,
    is_undecidable,
    own_ratio_sd,
    speed_of,
    speed_ratio,
    typical_pair_sd,
    undecidable_reason,
)
from gputui.services.results.variation import BoxVariation, variation_by_machine, with_spreads
from gputui.store.reading import CaseConditions
from gputui.worker import PRECISIONS

GROUPS = {"ceiling": "ceilings", "training": "training", "inference": "inference", "host": "host"}
"""Classes of workloads in the order of the table, with the name of their geometric mean."""
MEANS = {"ceilings": "peak tests", "training": "training", "inference": "inference", "host": "host"}
"""How people read the name of a mean."""


def _gpu_value(run: RunSummary, case: CaseResult) -> str:
    is_one = case.case.variant.device_class == "gpu" and case.device_index is not None
    return f"GPU {case.device_index} of machine {run.machine.machine_id}" if is_one else ""


DIMENSIONS: dict[str, Callable[[RunSummary, CaseResult], str]] = {
    "device": lambda run, case: case.case.variant.device_class,
    "precision": lambda run, case: case.case.variant.precision,
    "threads": lambda run, case: case.case.variant.threads if case.case.variant.device_class == "cpu" else "",
    "mode": lambda run, case: "" if case.case.is_program else case.case.variant.mode,
    "machine": lambda run, case: f"machine {run.machine.machine_id}",
    "runtime": lambda run, case: runtime_name(run),
    "label": lambda run, case: run.label,
    "gpu": _gpu_value,
}
"""What `--by` may take out of the pairing: the value that tells the sides apart; empty if a case has none."""

SLOWED, CAPPED, COLD = "slowed by heat or a power brake", "power-capped", "still warming up"
CROWDED, SHARED = CONTENTION, "another process on its GPU"
FLAGGED_SHARE = 0.05
"""From which throttling is worth a flag: a cap that is touched now and then changes nothing."""
COLD_SHARE = 0.2
ConditionsOf = Callable[[str, int], CaseConditions | Missing]
"""By run and case."""

NOT_THERE = Missing("not in this run")
NO_ENERGY = Missing("the power was not read")
(_UNREAD,) = judgements(ENERGY, [NO_ENERGY])
_COMBINED = {"max": "a maximum", "min": "a minimum", "sum": "a sum"}
_ORDER = ("cpu", "gpu", "1", "all", *PRECISIONS, "eager", "compile", "graph")
_IN_ORDER_OF_RUNS = ("machine", "runtime", "label")
Pairing = tuple[str, str, str, str, str]


@dataclass(frozen=True, slots=True)
class SideCase:
    """A case of one side, and the run it comes from."""

    run: RunSummary
    result: CaseResult


@dataclass(frozen=True, slots=True)
class Side:
    """One column of the comparison."""

    name: str
    """What the user calls it: the file, or the value of `--by`."""
    run: RunSummary
    """The newest run that it holds."""
    cases: tuple[SideCase, ...]
    variations: Mapping[str, BoxVariation] = field(default_factory=dict)
    """By machine, what the runs at hand tell of it."""
    chosen_of: int = 1
    """Runs that measured something, if each case is from the newest of them; 1 if they were pooled."""

    def results_of(self, machine: Machine) -> list[CaseResult]:
        """Those of one of its machines."""
        return [one.result for one in self.cases if one.run.machine.machine_id == machine.machine_id]


@dataclass(frozen=True, slots=True)
class Cell:
    """One side of a row; without a result if the side lacks the case."""

    result: CaseResult | None = None
    run: RunSummary | None = None
    """Where `result` comes from."""
    cost: Cost | Missing = NOT_THERE
    uses: tuple[Use, ...] = ()
    """FLOPs and bytes per second beside the peaks of the device."""
    energy: Energy | Missing = NO_ENERGY
    """Of the GPU, for a unit of work."""

    @property
    def speed(self) -> SpeedEstimate | Missing:
        return NOT_THERE if self.result is None else speed_of(self.result)

    @property
    def outcome(self) -> str:
        return "absent" if self.result is None else self.result.outcome

    @property
    def precision_used(self) -> str:
        return "" if self.result is None else self.result.precision_used

    @property
    def is_of_gpu(self) -> bool:
        return self.result is not None and self.result.case.variant.device_class == "gpu"


@dataclass(frozen=True, slots=True)
class Flag:
    """A disturbance of one side of a row."""

    side: str
    """`a` or `b`."""
    word: str
    """SLOWED, CAPPED, COLD, CROWDED, SHARED or HOST_BOUND."""
    share: float
    """Of the time in which it was measured; 0 to 1."""


@dataclass(frozen=True, slots=True)
class FigureRow:
    """A result of one case other than its speed, on both sides."""

    key: str
    title: str
    unit: str
    a: CaseMetric | Missing
    b: CaseMetric | Missing
    judgement: Judgement


@dataclass(frozen=True, slots=True)
class Why:
    """What is known of the reasons of one row."""

    attribution: Attribution | Missing
    findings_a: tuple[Finding, ...] = ()
    """Empty where its pass is not believed, as the next."""
    findings_b: tuple[Finding, ...] = ()


@dataclass(frozen=True, slots=True)
class Row:
    """One case on the baseline and on one other side."""

    case: Case
    a: Cell
    b: Cell
    rate: Judgement
    cost: Judgement
    """Of what a unit of work costs."""
    energy: Judgement
    """Of the joules that the GPU takes for a unit of work."""
    note: str
    """What else a reader must know, such as another type behind `amp`; empty otherwise."""
    flags: tuple[Flag, ...] = ()
    figures: tuple[FigureRow, ...] = ()
    why: Why | None = None
    """Why it is faster or slower; None of any other row."""

    @property
    def results(self) -> list[tuple[str, CaseResult]]:
        """What either side has of the case, by its letter."""
        return [(letter, one.result) for letter, one in (("a", self.a), ("b", self.b)) if one.result]

    @property
    def estimate(self) -> RatioEstimate | Missing:
        """Of the rate of B against A; above 1 B is faster."""
        found = self.rate.estimate
        return found if isinstance(found, RatioEstimate | Missing) else Missing("not of one case")

    @property
    def verdict(self) -> Verdict:
        """Of the rate."""
        return self.rate.verdict

    @property
    def is_as_offered(self) -> bool:
        """Whether its rate is not judged, as it is the one that was asked for."""
        return self.estimate == AS_OFFERED

    @property
    def is_host_bound(self) -> bool:
        """Whether the host of a side holds its GPU back: the row does not compare GPUs."""
        return any(is_host_bound(result) for _, result in self.results)

    @property
    def is_of_one_device(self) -> bool:
        """Whether both sides measured it on devices of one name."""
        names = [result.device_name for _, result in self.results]
        return len(names) == 2 and names[0] == names[1] != ""

    @property
    def is_hidden_by_waiting(self) -> bool:
        """Whether only an idle box would tell more: not launches or runs, but waiting for CPUs hides it."""
        found, results = self.estimate, [result for _, result in self.results]
        if isinstance(found, Missing) or len(results) < 2:
            return False
        return own_ratio_sd(*results) ** 2 > found.runs.variance / 2

    @property
    def models_band(self) -> float | Missing:
        """How far two machines of one name may lie apart: the band for claims about more than these two."""
        a, b = self.a.run, self.b.run
        if a is None or b is None or a.machine.machine_id == b.machine.machine_id:
            return Missing("it is one machine")
        prior = instance_prior_sd(self.case.variant.device_class, self.case.workload_class)
        return band_between_models(BAND, prior)

    @property
    def holds_between_models(self) -> bool | Missing:
        """Whether what is faster or slower here would be so on any two machines of these names."""
        if self.verdict.word not in ("faster", "slower") or isinstance(self.estimate, Missing):
            return Missing("nothing is faster or slower")
        band = self.models_band
        return band if isinstance(band, Missing) else self.estimate.is_beyond(band)


@dataclass(frozen=True, slots=True)
class GroupMean:
    """The geometric mean of the common rows of one class of workloads on one class of devices."""

    group: str
    device_class: str
    """`gpu` or `cpu`; empty where the sides are what tells devices apart."""
    rate: Judgement
    """Of the mean by its own interval, judged together with the rows."""
    common: int
    rows: int

    @property
    def mean(self) -> GeometricMean | Missing:
        found = self.rate.estimate
        return found if isinstance(found, GeometricMean | Missing) else Missing("not a mean")


@dataclass(frozen=True, slots=True)
class Comparison:
    """One side against the baseline."""

    a: Side
    b: Side
    differs: tuple[tuple[str, str, str], ...]
    """(what, on A, on B) for all that is recorded and differs."""
    rows: tuple[Row, ...]
    one_sided: tuple[Row, ...]
    """Cases that only one value of `--by` has: nobody expects a pair, so the table leaves them out."""
    groups: tuple[GroupMean, ...]
    unmeasured: tuple[tuple[str, tuple[str, ...]], ...]
    """Reasons for which cases were run on neither side, with their names."""


def side_of_runs(name: str, runs: Sequence[Run], *, pool: bool = False, history: Sequence[Run] = ()) -> Side:
    """For each case the latest run that measured it, or with `pool` the launches of all that did.

    `history`: more runs of its boxes, which tell how much they vary.

    Raises GputuiError if the runs are of several machines or runtimes, with the list.
    """
    check_one_box(name, [run.summary for run in runs])
    whole, variations = _with_variation(runs, history)
    return joined(name, whole, pool, variations)


def _with_variation(
    runs: Sequence[Run], history: Sequence[Run]
) -> tuple[list[Run], Mapping[str, BoxVariation]]:
    """What boxes vary by, and whole runs with it, before they are divided: a case knows those that it was
    interleaved with."""
    variations = variation_by_machine([*runs, *history])
    return [with_spreads(run, variations[run.summary.machine.machine_id]) for run in runs], variations


def check_one_box(name: str, runs: Sequence[RunSummary]) -> None:
    """Raises GputuiError if runs are of several machines or runtimes, with the list.

    A recording, whose runtime is unknown, matches any of its machine.
    """
    kinds = {(run.machine.machine_id, runtime_name(run)) for run in runs if run.runtime.python_version}
    kinds |= {(run.machine.machine_id, "") for run in runs} - {(machine, "") for machine, _ in kinds}
    if len(kinds) > 1:
        listed = "; ".join(
            f"{run.short_id} machine {run.machine.machine_id}, {runtime_name(run)}" for run in runs[:8]
        )
        raise GputuiError(
            f"{name}: runs of {len(kinds)} machines or runtimes: {listed}",
            "choose one as F@RUN, or compare them with --by machine or --by runtime",
        )


def joined(name: str, runs: Sequence[Run], pool: bool, variations: Mapping[str, BoxVariation]) -> Side:
    """One side of runs whose cases carry their spreads, as `side_of_runs` makes it.

    Each case is from the newest run that measured it, or else from the newest that lists it; with `pool` with
    the launches of all runs. Of a run that measured several GPUs, from the first.
    """
    chosen: dict[Pairing, SideCase] = {}
    ordered = sorted(runs, key=lambda run: run.summary.started_utc_us)
    for run in ordered:
        for result in run.cases:
            key = pairing(result.case)
            known = chosen.get(key)
            is_there = known is not None and known.result.outcome == "ok"
            is_first = known is None or known.run.run_id != run.summary.run_id  # of several GPUs
            if not is_there or (result.outcome == "ok" and is_first):
                chosen[key] = SideCase(run.summary, result)
    measuring = [run for run in ordered if any(case.outcome == "ok" for case in run.cases)]
    return Side(
        name,
        max((run.summary for run in measuring or runs), key=lambda run: run.started_utc_us),
        tuple(_pooled(case, ordered) if pool else case for case in chosen.values()),
        variations,
        1 if pool else max(len(measuring), 1),
    )


def sides_by(
    dimension: str, runs: Sequence[Run], *, pool: bool = False, history: Sequence[Run] = ()
) -> tuple[Side, ...]:
    """One side for each value of a dimension among the cases of these runs; in a fixed, plain order,
    machines, runtimes and labels in that of the runs.

    `history` as in `side_of_runs`.

    Raises GputuiError if there are not two values.
    """
    whole, variations = _with_variation(runs, history)
    values = runs_by(dimension, whole)
    if len(values) < 2:
        only = ", ".join(values) or "none"
        raise GputuiError(
            f"--by {dimension}: two values are needed, and the measured cases have {only}",
            "give a second file, or another dimension",
        )
    is_short = dimension == "gpu" and len({run.summary.machine.machine_id for run in runs}) == 1
    return tuple(
        joined(value.partition(" of ")[0] if is_short else value, values[value], pool, variations)
        for value in (values if dimension in _IN_ORDER_OF_RUNS else in_order(values))
    )


def runs_by(dimension: str, runs: Sequence[Run]) -> dict[str, list[Run]]:
    """The runs with the cases of each value of a dimension that any of them measured."""
    value_of = DIMENSIONS[dimension]
    values: dict[str, list[Run]] = {}
    for run in runs:
        for value in measured_values(dimension, [run]):
            kept = tuple(case for case in run.cases if value_of(run.summary, case) == value)
            values.setdefault(value, []).append(Run(run.summary, kept))
    return values


def in_order(values: Iterable[str]) -> list[str]:
    """Values of a dimension in a fixed order, the usual baseline first, and GPU 2 before GPU 10."""

    def key(value: str) -> tuple[int, tuple[str | int, ...]]:
        return _ORDER.index(value) if value in _ORDER else len(_ORDER), _natural(value)

    return sorted(values, key=key)


def _natural(text: str) -> tuple[str | int, ...]:
    """Sorts numbers within a text by their value."""
    return tuple(int(part) if at % 2 else part for at, part in enumerate(re.split(r"([0-9]+)", text)))


def telling_dimension(runs: Sequence[Run]) -> str:
    """The dimension to compare within a single file: the first in which measured cases of one work differ.

    Raises NoResult if there is none.
    """
    cases = {case.case for run in runs for case in run.cases if case.outcome == "ok"}
    for dimension in ("device", "precision", "threads", "mode"):
        if len({pairing(case, dimension) for case in cases}) < len(cases):
            return dimension
    raise NoResult(
        "nothing to compare: all cases of this file have the same device, precision, mode and threads",
        "give a second file: gputui compare a.db b.db",
    )


def gains_of(run: Run) -> dict[int, Judgement]:
    """By case, what its precision brings beside fp32; of those that both were measured in."""
    by_precision: dict[str, list[SideCase]] = {"fp32": []}
    for case in run.cases:
        by_precision.setdefault(case.case.variant.precision, []).append(SideCase(run.summary, case))
    single, *others = (Side(name, run.summary, tuple(cases)) for name, cases in by_precision.items())
    rows = (row for other in others for row in compare_sides(single, other, ignore="precision").rows)
    return {row.b.result.case_id: row.rate for row in rows if row.b.result and row.rate.ratio is not None}


def compare_sides(a: Side, b: Side, *, ignore: str = "") -> Comparison:
    """Pair the rows of two sides and judge each; `ignore` is the dimension the sides differ in."""
    cases_a, cases_b = ({pairing(c.result.case, ignore): c for c in side.cases} for side in (a, b))
    pairs, unmeasured = list[list[tuple[SideCase | None, SideCase | None]]](), dict[str, tuple[str, ...]]()
    for key in dict.fromkeys((*cases_a, *cases_b)):
        of_a, of_b = cases_a.get(key), cases_b.get(key)
        known = [side.result for side in (of_a, of_b) if side is not None]
        if any(result.outcome == "ok" for result in known):
            times = [(_time(key, of_a, a), _time(key, of_b, b)) for key in _shared_times(of_a, of_b)]
            pairs.append([(of_a, of_b), *times])
        else:
            reason = known[0].reason or known[0].outcome
            unmeasured[reason] = (*unmeasured.get(reason, ()), plain_case_name(known[0].case))
    both = [(x, y) for of_case in pairs for x, y in of_case if x and y and x.run.seed == y.run.seed]
    pair_sd = typical_pair_sd((x.result, y.result) for x, y in both)
    rows = [[_row(*pair, a, b, pair_sd) for pair in of_case] for of_case in pairs]
    rows.sort(key=lambda of_case: table_order(of_case[0].case))
    judged, groups = _judged([row for of_case in rows for row in of_case], ignore)
    shared = [row for row in judged if not ignore or len(row.results) == 2]
    one_sided = [row for row in judged if ignore and len(row.results) < 2]
    comparison = Comparison(
        a=a,
        b=b,
        differs=differences(a.run, b.run) if a.run.run_id != b.run.run_id else (),
        rows=tuple(shared),
        one_sided=tuple(one_sided),
        groups=groups,
        unmeasured=tuple(unmeasured.items()),
    )
    return with_telemetry(comparison)


def _row(of_a: SideCase | None, of_b: SideCase | None, a: Side, b: Side, pair_sd: float) -> Row:
    """A row that no verdict was found of yet."""
    cell_a, cell_b = (
        Cell()
        if one is None
        else Cell(
            one.result,
            one.run,
            cost_of(one.result, one.run.price),
            uses_of(one.result, side.results_of(one.run.machine), one.run.machine),
        )
        for one, side in ((of_a, a), (of_b, b))
    )
    case = next(one.result.case for one in (of_a, of_b) if one is not None)
    estimate = estimate_pair(of_a, of_b, pair_sd)
    rate = Judgement(TIME if case.is_time else RATE, estimate, _UNREAD.verdict)
    return Row(case, cell_a, cell_b, rate, _UNREAD, _UNREAD, "")


def _judged(rows: Sequence[Row], ignore: str) -> tuple[list[Row], tuple[GroupMean, ...]]:
    """All rows and means of a table together, without what telemetry says."""
    groups, asked = [*_group_means(rows, ignore)], asked_place(rows)
    verdicts = judge([row.estimate for row in rows] + [group.mean for group in groups], asked=asked)
    paid = [work_per_dollar(row.estimate, row.a.cost, row.b.cost) for row in rows]
    judged = [
        replace(
            row,
            rate=replace(row.rate, verdict=_explained(row, verdict)),
            cost=cost,
            note="; ".join(_differences_of_launches(row)),
            figures=figures,
        )
        for row, verdict, cost, figures in zip(
            rows, verdicts, judgements(COST, paid, asked), _figures(rows), strict=False
        )
    ]
    means = zip(groups, verdicts[len(rows) :], strict=True)
    return judged, tuple(replace(one, rate=replace(one.rate, verdict=verdict)) for one, verdict in means)


def main_row(rows: Iterable[Row]) -> Row | None:
    """The case people come for: training, then inference, then peak tests; on the GPU, with amp, the largest.

    Only of those that both sides measured; one that is host-bound only if all are.
    """
    known = [row for row in rows if not isinstance(row.estimate, Missing)]
    return min(known, key=lambda row: (row.is_host_bound, case_order(row.case)), default=None)


def asked_place(rows: Sequence[Row]) -> int | None:
    """The place of `main_row`, which the headline is about, whatever came out."""
    main = main_row(rows)
    return next((place for place, row in enumerate(rows) if row is main), None)


def _shared_times(a: SideCase | Cell | None, b: SideCase | Cell | None) -> list[str]:
    """The times of a load that both sides have; none of any other case."""
    on_a, on_b = (times_of(side.result) if side and side.result else {} for side in (a, b))
    return [key for key in on_a if key in on_b]


def _time(key: str, load: SideCase | None, side: Side) -> SideCase | None:
    """A time of a load, with what its box tells of how much this time varies."""
    return load and replace(
        load, result=side.variations[load.run.machine.machine_id].judged(times_of(load.result)[key])
    )


def with_telemetry(
    comparison: Comparison, *, conditions: ConditionsOf | None = None, powers: PowerOf | None = None
) -> Comparison:
    """Add what disturbed each side, whether clocks explain a difference, and energy.

    `conditions` looks up telemetry of a timed case; without it rows have no flags from telemetry.
    `powers` looks up GPU power; without it rows have no energy.
    """
    rows = [
        replace(row, a=_with_energy(row.a, powers), b=_with_energy(row.b, powers))
        for row in (*comparison.rows, *comparison.one_sided)
    ]
    joules = [work_per_joule(row.rate.estimate, row.a.energy, row.b.energy) for row in rows]
    found = [
        replace(
            row,
            energy=energy,
            note="; ".join(filter(None, (row.note, _explained_by_clock(row, conditions)))),
            flags=(*flags_of(row.a, "a", conditions), *flags_of(row.b, "b", conditions)),
        )
        for row, energy in zip(rows, judgements(ENERGY, joules, asked_place(rows)), strict=True)
    ]
    count = len(comparison.rows)
    return replace(comparison, rows=tuple(found[:count]), one_sided=tuple(found[count:]))


def runs_of_gpus(comparison: Comparison) -> Iterator[str]:
    """Runs whose power `with_telemetry` will read; some come up several times."""
    for row in (*comparison.rows, *comparison.one_sided):
        yield from (cell.run.run_id for cell in (row.a, row.b) if cell.run and cell.is_of_gpu)


def runs_with_conditions(comparison: Comparison) -> Iterator[str]:
    """Those whose conditions it will read: also of a difference that clocks may explain."""
    yield from runs_of_gpus(comparison)
    for row in comparison.rows:
        if row.rate.differs and row.is_of_one_device:
            yield from (cell.run.run_id for cell in (row.a, row.b) if cell.run)


def pairing(case: Case, ignore: str = "") -> Pairing:
    """The key by which rows pair: work and variant without the ignored dimension."""
    variant = case.variant
    parts = {
        "device": variant.device_class,
        "precision": variant.precision,
        "threads": variant.threads,
        "mode": variant.mode,
    }
    if ignore == "device" and variant.threads == "host":
        parts["threads"] = "all"
    if ignore in parts:
        parts[ignore] = ""
    return case.work.key, parts["device"], parts["precision"], parts["mode"], parts["threads"]


def runtime_name(run: RunSummary) -> str:
    """The runtime in a few words: `runpod · torch 2.11.0+cu130 · Python 3.12.3`."""
    layers = [layer.name for layer in run.machine.layers if layer.layer in ("platform", "scheduler")]
    runtime = run.runtime
    if not runtime.python_version:
        return " · ".join((*layers, "runtime unknown"))
    torch = "no torch" if isinstance(runtime.torch_version, Missing) else f"torch {runtime.torch_version}"
    return " · ".join((*layers, torch, f"Python {runtime.python_version}"))


def measured_values(dimension: str, runs: Sequence[Run]) -> set[str]:
    """The values of a dimension that measured cases of these runs have."""
    value_of = DIMENSIONS[dimension]
    return {value_of(run.summary, case) for run in runs for case in run.cases if case.outcome == "ok"} - {""}


def _pooled(case: SideCase, runs: Sequence[Run]) -> SideCase:
    """The case with the launches of all runs on its GPU, oldest run first.

    Launch ids stay the same across cases, since they identify pairs.
    """
    key = pairing(case.result.case)
    numbered = tuple(
        replace(measurement, launch_id=place * LAUNCH_IDS_OF_A_RUN + measurement.launch_id)
        for place, run in enumerate(runs)
        for result in run.cases
        if pairing(result.case) == key and result.device_index == case.result.device_index
        for measurement in result.measurements
        if measurement.outcome == "ok"
    )
    return replace(case, result=replace(case.result, measurements=numbered)) if numbered else case


def table_order(case: Case) -> tuple[int, tuple[str | int, ...], str, str, int, int]:
    """Sort key of rows: class, workload (4 users before 16), device, size, threads, precision.

    It is one for a load and its times, which stay behind it.
    """
    variant = case.variant
    precision = _ORDER.index(variant.precision) if variant.precision in _ORDER else len(_ORDER)
    threads = _ORDER.index(variant.threads) if variant.threads in _ORDER else len(_ORDER)
    group = list(GROUPS).index(case.workload_class) if case.workload_class in GROUPS else len(GROUPS)
    return group, _natural(load_name(case)), variant.device_class, case.work.size, threads, precision


def estimate_pair(a: SideCase | None, b: SideCase | None, pair_sd: float = 0.0) -> RatioEstimate | Missing:
    """The speed ratio of two cases of the same work; Missing with the reason if it is unknown.

    CPU contention widens the interval, except of paired blocks, which share it. Launches of a load pair
    if both runs have one seed, and so the same arrivals; `pair_sd` as in `speed_ratio`.
    """
    if a is None or b is None:
        return Missing(f"{'a' if a is None else 'b'} does not have this case")
    for letter, side in (("a", a), ("b", b)):
        outcome, reason = side.result.outcome, side.result.reason
        if outcome != "ok":
            said = "out of memory" if outcome == "oom" else outcome
            return Missing(f"{letter} {said}{f': {reason}' if reason else ''}")
    if a.result.case.unit != b.result.case.unit:
        return Missing(f"a counts {a.result.case.unit}, b {b.result.case.unit}")
    if is_as_offered(a.result.case):
        return AS_OFFERED
    is_one_run = a.run.run_id == b.run.run_id and a.result.case_id != b.result.case_id
    paired_sd = pair_sd if a.run.seed == b.run.seed else 0.0
    estimate = speed_ratio(a.result, b.result, is_one_run=is_one_run, pair_sd=paired_sd)
    return estimate if isinstance(estimate, Missing) else replace(estimate, doubt=_doubt(a, b))


def _explained(row: Row, verdict: Verdict) -> Verdict:
    """The verdict, with the reason that a reader can do most about; what is in doubt keeps its own."""
    estimate = row.estimate
    if verdict.word != "inconclusive" or isinstance(estimate, Missing) or estimate.doubt:
        return verdict
    if row.is_hidden_by_waiting:
        shares = [(letter, contention_of(result)) for letter, result in row.results]
        times = listed([f"{format_percent(share)} of {letter}'s" for letter, share in shares if share])
        return replace(verdict, reason=f"{CROWDED} for {times} time: run again when it is idle")
    if cut := [letter for letter, result in row.results if had_no_time(result)]:
        why = f"the budget left no time for all launches of {' and '.join(cut)}: raise --budget"
        return replace(verdict, reason=why)
    return verdict


def _doubt(a: SideCase, b: SideCase) -> str:
    """Why nothing may be decided of two sides that were measured; empty for most."""
    sides = (("a", a), ("b", b))
    impossible = [
        letter
        for letter, side in sides
        if any(use.is_impossible for use in uses_of(side.result, (), side.run.machine))
    ]
    if impossible:
        which = f"{' and '.join(impossible)} {'is' if len(impossible) == 1 else 'are'}"
        return f"{which} above the physical peak: a measurement error"
    return "; ".join(
        f"{letter}: {undecidable_reason(side.result)}"
        for letter, side in sides
        if is_undecidable(side.result)
    )


def _differences_of_launches(row: Row) -> Iterator[str]:
    """Another type behind `amp`; workers forked on one side only; images in another order in memory, since
    that is faster there. Nothing where one side does not say."""
    ways: tuple[tuple[str, Callable[[Measurement], str]], ...] = (
        ("", lambda one: one.precision_used),
        ("layout ", lambda one: one.layout),
        ("workers ", lambda one: "forked" if one.is_fork else "started anew"),
    )
    for what, word_of in ways:
        words = [{word_of(m) for m in one.measurements if m.outcome == "ok"} - {""} for _, one in row.results]
        if len(words) == 2 and words[0] != words[1] and all(words):
            on_a, on_b = (" and ".join(sorted(of_one)) for of_one in words)
            yield f"{what}{on_a} on a, {on_b} on b"


def _figures(rows: Sequence[Row]) -> list[tuple[FigureRow, ...]]:
    """Those of each row, in the order of A, then those that only B has; judged as one table.

    Those that are rows themselves are left out, and a row that is a time has none. Device and host time of a
    step are there where the row itself compares no GPUs.
    """
    found: list[list[tuple[CaseMetric, LaunchValues | None, LaunchValues | None]]] = []
    for row in rows:
        a, b = (
            {} if cell.result is None or row.case.is_time else launch_values_of(cell.result)
            for cell in (row.a, row.b)
        )
        unsaid = () if row.is_host_bound else STEP_KEYS  # else its rate compares the devices
        keys = [k for k in {**a, **b} if k not in (*_shared_times(row.a, row.b), *unsaid)]
        found.append([((a.get(key) or b[key])[0], a.get(key), b.get(key)) for key in keys])
    ratios = [_figure_ratio(one.key, *sides) for of_row in found for one, *sides in of_row]
    judged = iter(judgements(FIGURE, ratios))
    absent = Missing("this side lacks it")
    return [
        tuple(
            FigureRow(
                one.key, one.title, one.unit, a[0] if a else absent, b[0] if b else absent, next(judged)
            )
            for one, a, b in of_row
        )
        for of_row in found
    ]


def _figure_ratio(key: str, a: LaunchValues | None, b: LaunchValues | None) -> RatioEstimate | Missing:
    """Missing also of an extreme, unless all launches agree, and of a sum: these have no interval; and of the
    tokens at a limit, which are its requests under another unit: alone they would seem more certain."""
    if a is None or b is None:
        return Missing(f"not on {'a' if a is None else 'b'}")
    if key == "output_tokens_per_s":
        return Missing("as the rate")
    for letter, (metric, values) in (("a", a), ("b", b)):
        if isinstance(metric.value, Missing):
            return Missing(f"{letter}: {metric.value.reason}")
        if metric.combine == "sum" or (metric.combine != "median" and len(set(values)) > 1):
            return Missing(f"{_COMBINED[metric.combine]} has no interval")
    return figure_ratio(a[1], b[1])


def _explained_by_clock(row: Row, conditions: ConditionsOf | None) -> str:
    """That the difference is one of clocks, between two of one chip; empty if it is not, or unknown."""
    if not row.rate.differs or not row.is_of_one_device:
        return ""
    seen = [_conditions(cell, conditions) for cell in (row.a, row.b)]
    clocks = [s.clock_median_mhz for s in seen if not isinstance(s, Missing)]
    known = [mhz for mhz in clocks if not isinstance(mhz, Missing)]
    estimate = row.rate.estimate
    if (
        len(known) != 2
        or not isinstance(estimate, RatioEstimate)
        or not is_explained_by_clock(estimate, *known)
    ):
        return ""
    return f"explained by clock: {known[1] / 1000:.2f} GHz on b, {known[0] / 1000:.2f} GHz on a"


def flags_of(cell: Cell, side: str, conditions: ConditionsOf | None) -> Iterable[Flag]:
    """What disturbed a case while it was measured."""
    if cell.result is None:
        return
    busy = busy_share(cell.result)
    if is_host_bound(cell.result) and not isinstance(busy, Missing):
        yield Flag(side, HOST_BOUND, 1 - busy)
    waited = contention_of(cell.result) or late_share(cell.result)
    if waited:
        yield Flag(side, CROWDED, waited)
    seen = _conditions(cell, conditions) if cell.is_of_gpu else Missing("not a GPU")
    if isinstance(seen, Missing):
        return
    is_program = cell.result.case.is_program
    for word, share, least in (
        (SLOWED, seen.slowed_share, FLAGGED_SHARE),
        (CAPPED, seen.power_capped_share, FLAGGED_SHARE),
        (COLD, seen.cold_share, COLD_SHARE),
        (SHARED, Missing("it may be several processes") if is_program else seen.shared_share, FLAGGED_SHARE),
    ):
        if not isinstance(share, Missing) and share >= least:
            yield Flag(side, word, share)


def _conditions(cell: Cell, conditions: ConditionsOf | None) -> CaseConditions | Missing:
    if conditions is None or cell.run is None or cell.result is None:
        return Missing("not read")
    return conditions(cell.run.run_id, cell.result.case_id)


def _with_energy(cell: Cell, powers: PowerOf | None) -> Cell:
    if cell.result is None or cell.run is None:
        return cell
    watts = powers(cell.run.run_id, cell.result.case_id) if powers and cell.is_of_gpu else NO_ENERGY
    return replace(cell, energy=energy_of(cell.result, watts))


def _group_means(rows: Sequence[Row], ignore: str) -> Iterable[GroupMean]:
    """Of each class that has any rows, GPUs first, not yet judged."""
    members: dict[tuple[str, str], list[RatioEstimate | Missing]] = {
        (workload_class, device): []
        for device in ([""] if ignore == "device" else ["gpu", "cpu"])
        for workload_class in GROUPS
    }
    for row in rows:
        device = "" if ignore == "device" else row.case.variant.device_class
        is_alone = ignore and None in (row.a.result, row.b.result)
        if (row.case.workload_class, device) in members and not row.case.is_time and not is_alone:
            estimate = row.estimate
            if row.is_host_bound and not isinstance(estimate, Missing):
                estimate = replace(estimate, doubt=HOST_BOUND)
            members[row.case.workload_class, device].append(estimate)
    for (workload_class, device), estimates in members.items():
        common = [e for e in estimates if not isinstance(e, Missing)]
        if estimates:
            rate = Judgement(RATE, geometric_mean(common), _UNREAD.verdict)
            shared = sum(not e.doubt for e in common)
            yield GroupMean(GROUPS[workload_class], device, rate, shared, len(estimates))


def differences(a: RunSummary, b: RunSummary) -> tuple[tuple[str, str, str], ...]:
    """Recorded properties that differ between the sides, the most interesting first."""
    found = []
    for name, value in _COMPARED:
        on_a, on_b = (_UNKNOWN if isinstance(of := value(run), Missing) else str(of) for run in (a, b))
        if on_a != on_b and (name not in _ASKED_LATER or _UNKNOWN not in (on_a, on_b)):
            found.append((name, on_a, on_b))
    return tuple(found)


def _gpu_names(run: RunSummary) -> str:
    names = Counter(gpu.name for gpu in run.machine.gpus)
    return ", ".join(f"{count}x {name}" if count > 1 else name for name, count in names.items()) or "none"


def _power_limits(run: RunSummary) -> str | Missing:
    """Of all its GPUs: `500 W`, `500 W, 700 W`; Missing where one is not known."""
    limits = [gpu.power_limit_w for gpu in run.machine.gpus]
    known = [watts for watts in limits if not isinstance(watts, Missing)]
    if not known or len(known) < len(limits):
        return Missing("not known")
    return ", ".join(f"{watts:.0f} W" for watts in dict.fromkeys(known))


_UNKNOWN, _POWER_LIMIT, _VARIABLES = "—", "power limit", "variables"
_ASKED_LATER = (_POWER_LIMIT, _VARIABLES)
"""Not every run says them, which is no difference."""
_COMPARED: tuple[tuple[str, Callable[[RunSummary], object]], ...] = (
    ("machine", lambda r: r.machine.machine_id),
    ("platform", lambda r: " ".join(layer.name for layer in r.machine.layers) or "none"),
    ("instance", lambda r: r.machine.instance_type),
    ("GPU", _gpu_names),
    (_POWER_LIMIT, _power_limits),
    ("driver", lambda r: r.machine.driver_version),
    ("CPU", lambda r: r.machine.cpu.model),
    ("cores", lambda r: f"{r.machine.cpu.usable_cores}"),
    ("memory", lambda r: f"{r.machine.memory.usable_bytes / 2**30:.0f} GiB"),
    ("torch", lambda r: r.runtime.torch_version),
    ("CUDA", lambda r: r.runtime.torch_cuda),
    ("ROCm", lambda r: r.runtime.torch_hip),
    ("cuDNN", lambda r: r.runtime.cudnn_version),
    ("Python", lambda r: r.runtime.python_version),
    (_VARIABLES, lambda r: r.runtime.variables or "none set"),
    ("OS", lambda r: r.machine.os_name),
    ("kernel", lambda r: r.machine.kernel),
    ("gputui", lambda r: r.gputui_version),
)


def performance_checks_of_side(side: Side) -> tuple[PerformanceCheck, ...]:
    """As `performance_checks` for the cases of one side of a comparison, only where figures are known."""
    run = Run(side.run, tuple(case.result for case in side.cases))
    return tuple(one for one in performance_checks(run) if one.word != NO_REFERENCE)
