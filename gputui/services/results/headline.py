"""The answer of one run in a few sentences: how fast is the main case, what AMP brings, is the box normal."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

from gputui.analysis.peak_tests import (
    ABOVE_LIMIT,
    BELOW_NORMAL,
    CANNOT_TELL,
    NO_REFERENCE,
    NO_VERDICT,
    NORMAL,
    PeakTest,
    PerformanceCheck,
)
from gputui.analysis.verdict import SpeedEstimate, judge
from gputui.facts.tables import with_article
from gputui.model.absent import Missing
from gputui.model.journal import NOTHING_MEASURED
from gputui.model.plan import TRACE_PROFILE, Case
from gputui.model.result import CaseResult, Run, RunSummary
from gputui.model.units import (
    counted,
    format_percent,
    format_rate,
    format_seconds,
    format_size_of_change,
    listed,
)
from gputui.services.results.expected import performance_checks
from gputui.services.results.labels import (
    case_words,
    ending_words,
    format_ends,
    is_recording,
    lacking,
    needs_budget,
    plain_name,
)
from gputui.services.results.metrics import LOAD_TIMES, is_limit
from gputui.services.results.throughput import (
    BY_CLOCK,
    GAVE,
    LIFTS,
    NOT_OF_GPU,
    Speeds,
    busy_words,
    contention_of,
    gave_text,
    is_by_clock,
    is_host_bound,
    is_undecidable,
    speed_ratio,
    speeds_of,
)
from gputui.store.reading import ResultFile
from gputui.store.selecting import find_run

HAD_THE_CPU = "Other programs had the CPU"
_OF_USER = {"step": "your step {}", "command": "your program {}", "record": "your recording {}"}
_CLASSES = ("training", "inference", "ceiling", "host")
_WORKLOADS = ("gpt_train", "decode", "gemm")
_PRECISIONS = ("amp", "amp-bf16", "amp-fp16", "tf32", "fp32")
_SIZES = ("common", "xl", "large", "base", "mini")
_MODES = ("graph", "eager")
_MEASURED = {
    "matmul": "matmul",
    "copy": "memory",
    "h2d_pinned": "copies to the GPU",
    "d2h_pinned": "copies from the GPU",
}


def case_order(case: Case) -> tuple[int, ...]:
    """Sorts the case people come for first: training, then inference, then peak tests; on the GPU, with amp,
    of the size that GPUs share, else the largest, or the load of most users."""
    variant, users = case.variant, dict(case.work.parameters).get("users")
    return (
        index_in(_CLASSES, case.workload_class),
        not is_limit(case),
        -users if isinstance(users, int) and case.is_program else 0,
        variant.device_class != "gpu",
        index_in(_WORKLOADS, case.work.workload),
        index_in(_MODES, variant.mode),
        size_order(case),
        index_in(_PRECISIONS, variant.precision),
        variant.threads != "all",
    )


def size_order(case: Case) -> int:
    """Sorts the size that GPUs share first, then the largest."""
    return index_in(_SIZES, case.work.size.partition("-")[0])


def index_in(order: Sequence[str], value: str) -> int:
    """Its place; after all others if it has none."""
    return order.index(value) if value in order else len(order)


def title_of(workload: str) -> str:
    """As within a sentence: `GPT training`, `matmul`, `your step hashing`."""
    kind, _, name = workload.partition(":")
    if kind == "serve" and name:
        profile, _, load = name.partition(" ")
        time = next((title for title in LOAD_TIMES.values() if load.endswith(f" {title}")), "")
        if time:
            load = load.removesuffix(f" {time}")
            load = f"{time} {'with' if 'user' in load else 'at'} {load}"
        return f"{profile} serving at its limit" if load == "limit" else f"{profile} serving, {load}"
    return _OF_USER[kind].format(name) if kind in _OF_USER and name else plain_name(workload)


def as_sentence(text: str) -> str:
    """With a capital at its beginning."""
    return text[:1].upper() + text[1:]


def case_subject(
    case: Case, among: Sequence[Case], *, with_precision: bool = True, with_id: bool = False
) -> str:
    """What was measured, with as many words as tell it from the other cases: `GPT training with amp`.

    `with_id`: a peak test also by the name that options take, `matmul (gemm)`.
    """
    words = case_words(case)
    others = [case_words(other) for other in among]
    same_work = [case_words(other) for other in among if other.work.workload == case.work.workload]

    def varies(key: str, among: Sequence[dict[str, str]]) -> bool:
        return len({other[key] for other in among}) > 1

    parts = [title_of(case.work.workload)]
    if with_id and case.workload_class == "ceiling":
        parts.append(f"({case.work.workload})")
    if varies("size", same_work):
        parts.append(f"({words['size']})")
    if with_precision and words["precision"] and varies("precision", same_work):
        parts.append(f"with {words['precision']}")
    if words["mode"]:
        parts.append(f"with torch.{words['mode']}")
    if words["device"] and varies("device", others):
        parts.append(f"on the {words['device'].upper()}")
    if words["threads"] == "1t" or varies("threads", same_work):
        parts.append({"1t": "on one thread", "all": "on all cores"}.get(words["threads"], ""))
    return " ".join(filter(None, parts))


def main_case(run: Run) -> CaseResult | None:
    """The measured case of a run that people come for."""
    return min((case for case, _ in speeds_of(run)), key=main_first, default=None)


def main_first(case: CaseResult) -> tuple[bool, tuple[int, ...]]:
    """Sorts the main case first: one that is host-bound only if all are."""
    return is_host_bound(case), case_order(case.case)


def run_headline(run: Run, why: str = "") -> str:
    """All of `headline_sentences`."""
    return " ".join(headline_sentences(run, why))


def headline_sentences(run: Run, why: str = "") -> tuple[str, ...]:
    """At most a few, the answer first: that the box is below normal, else how fast its main case is, and why.

    Before them stands that a run is made up.
    """
    if run.summary.profile == TRACE_PROFILE:
        return ("An imported trace: where its steps spend their time, without rates.",)
    speeds = speeds_of(run)
    if is_recording(run) and not speeds:
        return (_recorded(run),)
    checks = performance_checks(run)
    if any(case.case.variant.device_class == "gpu" for case, _ in speeds):
        checks = tuple(check for check in checks if check.device_index is not None)
    main = min(speeds, key=lambda pair: main_first(pair[0]), default=None)
    box, answer = _box(checks), ["" if main is None else _main(*main, speeds), why]
    answer = [*box, *answer] if is_bad_news(checks) else [*answer, *box]
    made_up = "DEMO DATA, nothing was measured." if run.summary.is_made_up else ""
    doubts = () if main is None else (_busy(main[0], speeds), _held_back(main[0]))
    return tuple(filter(None, (made_up, *answer, *doubts, _ended(run, has_some=bool(speeds)))))


def is_bad_news(checks: Sequence[PerformanceCheck]) -> bool:
    """Whether a device is below what its kind does, or its measurement impossible."""
    return any(check.word in (BELOW_NORMAL, ABOVE_LIMIT) for check in checks)


def _recorded(run: Run) -> str:
    """How long telemetry was recorded, or how a recording without a rate ended."""
    summary = run.summary
    if run.cases and summary.status != "interrupted":  # whose time is less than the run's
        ends = (": ".join(filter(None, ending_words(case))) for case in run.cases)
        return f"{'; '.join(f'Its program {end}' for end in ends)}."
    took_us = None if summary.ended_utc_us is None else summary.ended_utc_us - summary.started_utc_us
    text = "Recorded" if took_us is None else f"Recorded {format_seconds(took_us / 1e6)}"
    if summary.status == "interrupted":
        reason = summary.status_reason
        how = reason if reason.startswith("stopped ") else f"interrupted: {reason}"
        return f"{text} until it was {how}."
    return f"{text}."


_GPUS_TOLD = 2
"""Of a box: of more, not each is judged in a sentence."""


def _box(checks: Sequence[PerformanceCheck]) -> list[str]:
    """Whether these devices do what others of their kind do, where that is known; of many normal ones, one
    stands for all."""
    odd = [check for check in checks if check.word in (BELOW_NORMAL, ABOVE_LIMIT)]
    rest = [check for check in checks if check not in odd]
    told = checks if len(checks) <= _GPUS_TOLD else [*odd, *rest[:1]]
    sentences = [sentence for check in told for sentence in _device(check, many=len(checks) > 1)]
    if sentences and len(told) < len(checks):
        sentences.append(f"The same holds for {counted(len(checks) - len(told), 'other GPU')}.")
    return sentences


def _device(check: PerformanceCheck, *, many: bool) -> list[str]:
    standing = check.standing
    where = f"GPU {check.device_index}: " if many else ""
    if check.word == NO_REFERENCE:
        return []
    below = [one for one in check.peak_tests if one.word == BELOW_NORMAL and one.is_of_reference]
    if standing is not None and check.word == BELOW_NORMAL and below:
        remarks = "".join(f", {remark}" for remark in standing.remarks)
        which = f"in {len(below)} of {counted(standing.cases, 'case')}" if standing.cases > 1 else ""
        than = " ".join(filter(None, ("slower than", standing.model, which)))
        source = f"reference of {standing.months}"
        return [f"{BELOW_NORMAL}: {where}{than} ({source}): {standing.lowest}{remarks}."]
    published = _published(check, many=many)
    return published if standing is None or many or not standing.judges else [*published, standing.text]


_NAMED_TESTS = 2
"""The lowest, where none is judged."""


def _published(check: PerformanceCheck, *, many: bool) -> list[str]:
    name = check.device_name.removeprefix("NVIDIA ")
    which = f"GPU {check.device_index} ({name})" if many else f"this {name}"
    left_out = (NO_REFERENCE,) if check.word == NO_VERDICT else (NO_REFERENCE, NO_VERDICT)
    judged = [one for one in check.peak_tests if one.word not in left_out]
    hits = [one for one in judged if one.word == check.word]
    rest = sum(one.word == NORMAL for one in judged if check.word != NORMAL)
    others = (
        [f"The {f'{rest} other peak tests are' if rest > 1 else 'other peak test is'} normal."]
        if rest
        else []
    )
    where = f"on GPU {check.device_index} " if many else ""
    if check.word == ABOVE_LIMIT:
        tests = listed([f"{one.label} {format_rate(one.units_per_s, one.unit)}" for one in hits])
        return [f"{ABOVE_LIMIT}: {where}{tests}, more than {with_article(name)} can do: a measurement error."]
    if check.word in (BELOW_NORMAL, NO_VERDICT):
        if check.word == NO_VERDICT:
            hits = sorted(hits, key=lambda one: one.share or 0.0)[:_NAMED_TESTS]
        shares = [format_percent(one.share or 0.0) for one in hits]
        parts = [f"{_named(one)} at {share}" for one, share in zip(hits, shares, strict=True)]
        run = "runs" if hits[0].measure in ("copy", "matmul") else "run"
        parts[0] = f"{_named(hits[0])} {run} at {shares[0]}"
        is_one = all(one.expectation is not None and one.expectation.figures == 1 for one in hits)
        of = f"{'the one public figure' if is_one else 'the lowest public figure'} for {with_article(name)}"
        if check.word == NO_VERDICT:
            return [as_sentence(f"{where}{listed(parts)} of {of}, too few to judge by."), *others]
        if any(one.expectation is not None and one.expectation.rates is not None for one in hits):
            of = f"what {with_article(name)} does elsewhere"
        return [f"{BELOW_NORMAL}: {where}{listed(parts)} of {of}.", *others]
    noun = "case" if any(one.is_of_reference for one in judged) else "peak test"
    if check.word == CANNOT_TELL:
        why = "it was measured too roughly, which more launches settle"
        if all(one.is_far_from_typical for one in hits):
            why = "it is slower than is typical, though not more than others differ"
        where = f"in {len(hits)} of {counted(len(judged), noun)}"
        return [f"Can't tell whether {which} is normal: {where} {why}."]
    sure = [one for one in judged if one.word == NORMAL]
    tests = f"all {len(judged)} {noun}s" if len(judged) > 1 else f"its one {noun}"
    if len(sure) < len(judged):
        rough = counted(len(judged) - len(sure), f"other {noun}")
        tests = f"{len(sure)} of {counted(len(judged), noun)}; {rough} would need more launches"
    return [as_sentence(f"{which} is normal in {tests}.")]


def _named(test: PeakTest) -> str:
    """`memory`, `matmul with amp`."""
    precision = test.label.rpartition(" ")[2]
    return _MEASURED.get(test.measure, test.label) + (
        f" with {precision}" if test.measure == "matmul" else ""
    )


def _main(main: CaseResult, speed: SpeedEstimate, speeds: Speeds) -> str:
    """`GPT training: 5.10k tok/s with amp, 130 % faster than fp32 (110 to 150).`"""
    case = main.case
    subject = as_sentence(case_subject(case, [other.case for other, _ in speeds], with_precision=False))
    if case.is_whole and case.unit == "run":
        return f"{subject}: {format_seconds(1 / speed.units_per_s)} a run."
    alike = [
        other
        for other, _ in speeds
        if other.case.work == case.work and _but_precision(other.case) == _but_precision(case)
    ]
    with_precision = f" with {case.variant.precision}" if len(alike) > 1 else ""
    single = next((other for other in alike if other.case.variant.precision == "fp32"), None)
    gain = "" if single is None or single is main else _gain(single, main)
    return f"{subject}: {format_rate(speed.units_per_s, case.unit)}{with_precision}{gain}."


def _busy(main: CaseResult, speeds: Speeds) -> str:
    """The doubt about the main case, if others had its CPUs."""
    share, gave = contention_of(main), gave_text(main)
    without = f": {GAVE} {gave}" if gave else "" if is_by_clock(main) else "; rates are without it"
    by_clock = f"; {BY_CLOCK}" if any(is_undecidable(case) for case, _ in speeds) else ""
    return f"{HAD_THE_CPU} {format_percent(share)} of the time{without}{by_clock}." if share else ""


def _held_back(main: CaseResult) -> str:
    """That its rate is not that of the GPU, if the host holds that back."""
    busy = busy_words(main)
    return f"{as_sentence(NOT_OF_GPU)} ({busy}). {LIFTS}." if busy else ""


def _but_precision(case: Case) -> tuple[str, str, str]:
    return case.variant.device_class, case.variant.mode, case.variant.threads


def _gain(single: CaseResult, main: CaseResult) -> str:
    ratio = speed_ratio(single, main, is_one_run=True)
    if isinstance(ratio, Missing):
        return ""
    if is_undecidable(single) or is_undecidable(main):
        return ", can't tell if faster than fp32: the box was too busy"
    word = judge([ratio], asked=0)[0].word
    if word not in ("faster", "slower"):
        how = "as fast as fp32" if word == "same" else "can't tell if faster than fp32"
        return f", {how} ({format_ends(ratio.low, ratio.high, ratio.ratio)})"
    size, ends = format_size_of_change(ratio.ratio, ratio.low, ratio.high)
    than = "as fast as" if size.endswith("x") else f"{word} than"
    return f", {size} {than} fp32 ({ends})"


def answering_run(file: ResultFile, selector: str) -> tuple[RunSummary, tuple[str, ...]]:
    """The run that answers for a selector, and what to say of it.

    For `latest` that is the newest with a result. Raises GputuiError as `find_run` does.
    """
    summaries = file.summaries()
    named = find_run(summaries, selector)
    if selector != "latest":
        return named, ()
    measured = file.has_measured()

    def answers(run: RunSummary) -> bool:
        return measured.get(run.run_id, True) or any(x.is_valid for x in file.profiled(run.run_id).values())

    found = next(filter(answers, summaries), named)
    if found is named:
        return named, ()
    run = file.run(named.run_id)
    why = _commonest_end(run.cases) if named.status_reason in ("", NOTHING_MEASURED) else named.status_reason
    return found, (f"the newest, {named.short_id}, measured nothing: {why}",)


def _commonest_end(cases: Sequence[CaseResult]) -> str:
    """`3 cases failed: exited with status 1`."""
    ((verb, reason), count), *_ = Counter(map(ending_words, cases)).most_common(1)
    return f"{counted(count, 'case')} {verb}{f': {reason}' if reason else ''}"


def _ended(run: Run, *, has_some: bool) -> str:
    """What went wrong; why nothing was measured, if nothing was."""
    failed = sum(case.outcome == "failed" for case in run.cases)
    parts = []
    if run.summary.status != "finished" and run.summary.status_reason != NOTHING_MEASURED:
        reason = f" ({run.summary.status_reason})" if run.summary.status_reason else ""
        parts.append(f"the run was {run.summary.status}{reason}")
    if not has_some and run.cases:
        tried = [case for case in run.cases if case.measurements or needs_budget(case)] or run.cases
        was_stopped = bool(parts) and any(case.outcome == "interrupted" for case in run.cases)
        which = "" if was_stopped else f": {_commonest_end(tried)}"
        parts.append(f"{lacking(run)}{which}")
    elif failed:
        parts.append(f"{counted(failed, 'case')} failed")
    return as_sentence(f"{'; '.join(parts)}.") if parts else ""
