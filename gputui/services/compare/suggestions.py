"""Commands that would let an undecided row be judged; and a comparison as a gate for CI, which passes,
fails, or cannot tell and names them."""

from __future__ import annotations

import math
import shlex
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from gputui.analysis.judgement import TIME, Judgement, surely_slower
from gputui.analysis.verdict import BAND, RatioEstimate, launches_needed, nearest_edge, runs_needed
from gputui.model.absent import Missing
from gputui.model.plan import Case
from gputui.model.result import Measurement, RunSummary
from gputui.model.units import counted, format_change, format_minutes, format_usd, listed
from gputui.services.compare.pairing import CROWDED, Cell, Comparison, Row
from gputui.services.compare.row_text import change_text, mean_devices, mean_name
from gputui.services.results.conditions import Evidence
from gputui.services.results.labels import had_no_time, needs_budget, short_case_name
from gputui.services.results.metrics import is_limit
from gputui.services.results.selectors import from_here
from gputui.services.serving.profiles import parameter_of
from gputui.worker.workloads import WORKLOADS


@dataclass(frozen=True, slots=True)
class SettlingStep:
    """A measurement that would settle a row."""

    box: str
    """`a` or `b`."""
    command: str
    seconds: float
    """About how long it takes, from how long a launch took before."""
    usd: float | None
    """What the box costs in that time; None where no price is known."""
    was_busy: bool = False
    """There was CPU contention before: it pays to wait until the box is idle."""


def settling_steps(row: Row, evidence: Evidence) -> tuple[SettlingStep, ...]:
    """One for each box that has to measure an undecided row again; none where that hardly pays."""
    if not isinstance(row.estimate, RatioEstimate) or _cannot_be_repeated(row):
        return ()
    limit, rate = nearest_edge(row.estimate), row.verdict.error_rate
    found = _repeated(row, row.estimate, limit, rate, evidence, is_alone=True)
    return () if isinstance(found, Missing) else tuple(found)


def _crowded(row: Row) -> set[str]:
    """The sides with CPU contention."""
    return {flag.side for flag in row.flags if flag.word == CROWDED}


def _repeated(
    row: Row,
    estimate: RatioEstimate,
    limit: float,
    error_rate: float,
    evidence: Evidence,
    *,
    is_alone: bool = False,
) -> list[SettlingStep] | Missing:
    """Each run that has to measure a row again, with all else that it measured or with this row alone;
    Missing where no launches would tell on which side of a limit the row lies."""
    wanted = launches_needed(estimate, limit, error_rate)
    if estimate.doubt or row.is_hidden_by_waiting:
        wanted = 0  # as many as before, where it was busy
    if isinstance(wanted, Missing):
        return wanted
    crowded = _crowded(row)
    found = dict[str, SettlingStep]()
    for letter, cell, before in (("a", row.a, estimate.launches_a), ("b", row.b, estimate.launches_b)):
        run, launches = cell.run, max(wanted, before)
        if run and cell.result and run.run_id not in found and (before < wanted or letter in crowded):
            again = _again(cell, evidence, only=only_text(row, cell) if is_alone else "")
            longest_s = max(_taken_s(one) for one in cell.result.measurements)
            seconds = launches * (_START_S + longest_s) if row.case.has_steps else run.budget_s
            found[run.run_id] = _step(
                letter, run, f"{again} --launches {launches}", seconds, was_busy=letter in crowded
            )
    return list(found.values())


def steps_to_pair(comparison: Comparison, evidence: Evidence) -> tuple[SettlingStep, ...]:
    """The cases of a on the box of b, where both sides have measured no case in common; none of programs."""
    a, b = comparison.a.run, comparison.b.run
    if a.run_id == b.run_id or not any(
        row.a.result is not None and not row.case.is_program for row in comparison.rows
    ):
        return ()
    seconds = a.budget_s if a.ended_utc_us is None else (a.ended_utc_us - a.started_utc_us) / 1e6
    files = [from_here(str(evidence.file(run.run_id))) for run in (a, b)]
    like = shlex.quote(f"{files[0]}@{a.short_id}")
    return (_step("b", b, f"gputui run --like {like} --db {shlex.quote(files[1])}", seconds),)


def _step(box: str, run: RunSummary, command: str, seconds: float, *, was_busy: bool = False) -> SettlingStep:
    """At the price of the box in this run."""
    usd = None if isinstance(run.price, Missing) else run.price.usd_per_hour * seconds / 3600
    return SettlingStep(box, command, seconds, usd, was_busy)


def effort_words(steps: Sequence[SettlingStep]) -> str:
    """What settling takes: `about 2 min on each box, $0.12`; the money only where all boxes have a price.

    A box that was busy is to be idle then.
    """
    about = format_minutes(max(step.seconds for step in steps))
    usd = [step.usd for step in steps]
    money = "" if None in usd else f", {format_usd(math.fsum(u for u in usd if u is not None))}"
    where = "on each box" if len(steps) > 1 else f"on the box of {steps[0].box}"
    idle = " when it is idle" if any(step.was_busy for step in steps) else ""
    return f"about {about} {where}{idle}{money}"


def only_text(row: Row, side: Cell) -> str:
    """What that side's run measured of the row, for `--only`: `gpt_train:mini:amp`, `gemm:mini` of both."""
    work = row.case.work
    if row.case.is_program:
        return work.workload
    precisions = {
        cell.result.case.variant.precision
        for cell in (row.a, row.b)
        if cell.result and cell.run and side.run and cell.run.run_id == side.run.run_id
    }
    return ":".join((work.workload, work.size, *(precisions if len(precisions) == 1 else ())))


_START_S = 8.0
"""A worker that imports torch, and the probe before it."""


def _taken_s(launch: Measurement) -> float:
    taken_ns = (
        (launch.first_step_ns or 0) + (launch.warmup_ns or 0) + sum(one.wall_ns for one in launch.blocks)
    )
    return taken_ns * 1e-9 if launch.outcome == "ok" else 0.0


def next_steps(row: Row, evidence: Evidence) -> tuple[str, ...]:
    """A command per line; none for rows that were judged or cannot be helped."""
    if isinstance(row.estimate, Missing):
        return tuple(steps_for_absent(row, evidence))
    if row.verdict.word != "inconclusive":
        return ()
    return tuple(steps_for_limit(row, None, evidence, row.verdict.error_rate))


def steps_for_limit(
    row: Row, limit: float | None, evidence: Evidence, error_rate: float = 0.05
) -> Iterable[str]:
    """Commands that would tell on which side of a limit a row lies; None: of the nearest edge of the band."""
    if not isinstance(row.estimate, RatioEstimate) or _cannot_be_repeated(row):
        return
    if _crowded(row):
        yield "other programs used the CPUs: measure when it is idle"
    limit = nearest_edge(row.estimate) if limit is None else limit
    found = _repeated(row, row.estimate, limit, error_rate, evidence)
    if isinstance(found, Missing):
        times = runs_needed(row.estimate, limit, error_rate)
        if isinstance(times, Missing):
            yield f"too close to call; measuring again will hardly help: {times.reason}"
        else:
            more = counted(times - 1, "more run")
            yield f"{more} of each box, then compare with --pool: {found.reason}"
        return
    yield from (f"on the box of {step.box}: {step.command}" for step in found)


def steps_for_absent(row: Row, evidence: Evidence) -> Iterable[str]:
    """Commands that would measure the missing side of a row."""
    if _cannot_be_repeated(row):
        return
    for mine, other, letter in ((row.a, row.b, "a"), (row.b, row.a, "b")):
        if mine.result is None and other.run is not None:
            again = _again(other, evidence, same_side=False, only=row.case.work.workload)
            yield f"on the box of {letter}: {again}"
        elif mine.result is not None and mine.result.outcome == "oom":
            yield f"{letter} needs more memory for this size; smaller sizes of the workload may fit"
        elif mine.result is not None and needs_budget(mine.result):
            more = f"the same profile with --only {row.case.work.workload} gives it more time"
            yield f"on the box of {letter}: {more if row.case.has_steps else _again(mine, evidence)}"


def _cannot_be_repeated(row: Row) -> bool:
    """Whether it is a recorded program."""
    return row.case.work.workload.startswith("record:")


def _again(cell: Cell, evidence: Evidence, *, same_side: bool = True, only: str = "") -> str:
    """The command that repeats the cases of a run, or `only` these, into its own file if `same_side`."""
    if cell.run is None:
        return "gputui run"
    file = from_here(str(evidence.file(cell.run.run_id)))
    if cell.result is not None and cell.result.case.is_load:
        from gputui.services.serving.text import load_options  # takes long to import; most rows are no loads

        is_short = had_no_time(cell.result) or needs_budget(cell.result)
        budget = f"--budget {math.ceil(cell.run.budget_s) * (1 + is_short)}"
        load = f"gputui serve-bench URL {load_options(cell.result.case)} {budget}"
        return f"{load} --db {shlex.quote(file)}" if same_side else load
    defined = ""  # by a file of the user's, which a profile is called after
    if cell.result is not None:
        case = cell.result.case
        is_built_in = case.work.workload in {workload.name for workload in WORKLOADS}
        ending = "toml" if case.is_program else "" if is_built_in else "py"
        defined = f"{shlex.quote(f'{cell.run.profile}.{ending}')} " if ending else ""
    like = f"gputui run {defined}--like {shlex.quote(f'{file}@{cell.run.short_id}')}"
    if cell.result is not None and had_no_time(cell.result):
        like += f" --budget {math.ceil(2 * cell.run.budget_s)}"
    like += f" --db {shlex.quote(file)}" if same_side else ""
    return f"{like} --only {only}" if only else like


_TERMS = {
    "model": "model",
    "api": "API",
    "prompt_tokens": "tokens in",
    "shared_tokens": "tokens that all prompts begin with",
    "output_tokens": "tokens out",
    "prompts": "prompts",
    "body": "--body",
}
"""Parameters of loads, and what people call them."""


def load_terms(comparison: Comparison) -> str:
    """Why loads do not pair, in a sentence or two; empty if they do, or if neither side has any."""
    a, b = (
        [one.result.case for one in side.cases if one.result.case.is_load]
        for side in (comparison.a, comparison.b)
    )
    if not a and not b:
        return ""
    if not a or not b:
        return (
            f"only {'a' if a else 'b'} offered loads to an LLM server (gputui serve-bench),"
            " and their rates say nothing of other work."
        )
    steady = [[case for case in side if not is_limit(case)] or side for side in (a, b)]
    if {case.work.key for case in steady[0]} & {case.work.key for case in steady[1]}:
        return ""
    of_sides = {words: (_values(a, name), _values(b, name)) for name, words in _TERMS.items()}
    apart = [
        f"{words} ({on_a} in a, {on_b} in b)" for words, (on_a, on_b) in of_sides.items() if on_a != on_b
    ]
    if apart:
        same = "offer both the same --profile, prompts and body, under one --name"
        return f"The loads differ in {listed(apart)}: {same}."
    return "No load was offered to both: name the same --concurrency or --rate, and the same --slo."


def _values(cases: Sequence[Case], name: str) -> str:
    values = {parameter_of(case, name) for case in cases} - {None}
    return listed([f"{value}" for value in sorted(values, key=str)]) if values else "of an older gputui"


PASS, FAIL, CANNOT_TELL = "pass", "fail", "cannot tell"


@dataclass(frozen=True, slots=True)
class GateResult:
    """What the gate found."""

    end: str
    """PASS, FAIL or CANNOT_TELL."""
    rows: int
    """Rows of the baseline that were asked about."""
    slower: tuple[str, ...]
    """Rows and means that are surely slower than the limit; a line each."""
    undecided: tuple[str, ...]
    """Rows of which it cannot be told, with what could have been seen; a line each."""
    steps: tuple[str, ...]
    """What would settle those, as commands."""


def check_gate(
    comparisons: Sequence[Comparison], ignore: str, slower_pct: float | None, evidence: Evidence
) -> GateResult:
    """Whether any side is more than `slower_pct` percent slower than the baseline.

    The limit is a change of rate: 5 asks for b/a of at least 0.95. It fails by a row or a mean whose whole
    interval lies beyond it (Holm over all of them); it passes if the slow end of every row lies within it
    and every row that the baseline measured has a partner, and cannot tell otherwise. Without a
    limit, every row must be decided.
    """
    limit = None if slower_pct is None else 1 - slower_pct / 100
    asked: list[tuple[str, Row | None, Judgement]] = []
    undecided: list[str] = []
    steps: list[str] = []
    rows = 0
    for comparison in comparisons:
        beside = f"{comparison.b.name} " if len(comparisons) > 1 else ""
        for row in comparison.rows:
            if isinstance(row.a.speed, Missing) or row.is_as_offered:
                continue
            rows += 1
            name = beside + short_case_name(row.case, (), ignore)
            if isinstance(row.estimate, Missing) or row.estimate.doubt:
                undecided.append(f"{name}: {row.rate.reason}")
                is_absent = isinstance(row.estimate, Missing)
                steps += (
                    steps_for_absent(row, evidence) if is_absent else steps_for_limit(row, limit, evidence)
                )
            else:
                asked.append((name, row, row.rate))
        devices = mean_devices([comparison])
        for group in comparison.groups:
            if group.rate.ratio is not None and group.common > 1:
                name = mean_name(group, devices[group.device_class])
                asked.append((f"{beside}{name}", None, group.rate))
    slower: list[str] = []
    are_beyond = (
        [False] * len(asked) if limit is None else surely_slower([rate for _, _, rate in asked], limit)
    )
    for (name, judged, rate), is_beyond in zip(asked, are_beyond, strict=True):
        text = f"{name}: {change_text(rate)}"
        if is_beyond:
            slower.append(text)
        elif judged is not None:
            for doubt in _doubts(judged, limit):
                undecided.append(f"{text}{doubt}")
                steps += steps_for_limit(judged, limit, evidence)
    if not rows:
        undecided.append("the baseline measured nothing that could be compared")
    end = FAIL if slower else CANNOT_TELL if undecided else PASS
    return GateResult(end, rows, tuple(slower), tuple(undecided), tuple(dict.fromkeys(steps)))


def _doubts(row: Row, limit: float | None) -> Iterable[str]:
    """Why a row that is not surely slower does not pass either, with the smallest change it could show."""
    if limit is None:
        if not row.rate.is_decided:
            yield f", {row.rate.reason}"
        return
    estimate = row.rate.estimate
    if isinstance(estimate, RatioEstimate) and estimate.low < limit:
        shown = limit * (1 + BAND) / estimate.resolvable  # the smallest change that this could tell from it
        yield f", would have shown {format_change(1 / shown if row.rate.respect == TIME else shown)}"


def gate_lines(result: GateResult, slower_pct: float | None, names: Sequence[str], a: str) -> Iterable[str]:
    """The result in words, the answer first."""
    who = f"{', '.join(names)} vs {a}"
    rows, undecided = counted(result.rows, "row"), len(result.undecided)
    if not result.rows:
        passed = open_rows = "no row to judge"
    elif slower_pct is None:
        passed, open_rows = f"all of {rows} decided", f"{undecided} of {rows} undecided"
    else:
        passed = f"no rate more than {slower_pct:g} % lower, in {rows}"
        open_rows = f"{undecided} of {rows} undecided at {slower_pct:g} %"
    yield {
        PASS: f"gate: pass: {who}: {passed}",
        FAIL: f"gate: fail: {who}: more than {slower_pct or 0:g} % slower:",
        CANNOT_TELL: f"gate: cannot tell: {who}: {open_rows}:",
    }[result.end]
    yield from (f"  {line}" for line in result.slower)
    if result.end == FAIL and result.undecided:
        yield f"and {open_rows}:"
    yield from (f"  {line}" for line in result.undecided)
    if result.end == CANNOT_TELL and result.steps:
        yield "what would settle it:"
        yield from (f"  {step}" for step in result.steps)
