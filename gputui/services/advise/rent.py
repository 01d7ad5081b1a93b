"""What a job takes and costs on each measured machine: cheapest, fastest, and whether a GPU or buying pays.

Every number comes from a measured row: units of its work at its speed. A machine without a row that answers
is listed with the reason. None is called cheaper or faster where `compare` would not: picks are judged by its
judgements, and by 95 % intervals only where speed alone does not decide.
"""

from __future__ import annotations

import math
import shlex
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple

from gputui.analysis.cost import share_of_price
from gputui.analysis.job import VERBS, Batch
from gputui.analysis.judgement import COST, RATE, Judgement, judgements
from gputui.analysis.statistics import Estimated
from gputui.analysis.verdict import RatioEstimate, SpeedEstimate, Verdict
from gputui.errors import GputuiError
from gputui.model.absent import Missing
from gputui.model.journal import Price
from gputui.model.plan import Case, Work
from gputui.model.result import CaseResult
from gputui.model.units import counted, format_percent, format_seconds, format_usd, listed
from gputui.services.compare.pairing import (
    CROWDED,
    SHARED,
    SLOWED,
    Cell,
    ConditionsOf,
    Side,
    SideCase,
    asked_place,
    compare_sides,
    estimate_pair,
    flags_of,
)
from gputui.services.results.expected import uses_of
from gputui.services.results.selectors import split_selector
from gputui.services.results.throughput import NOT_OF_GPU, devices_of, is_host_bound, speed_of

START_S = 600.0
"""Assumed: a rented machine is paid for 10 minutes besides the work, for starting, fetching data and
ending."""
HOURS_PER_MONTH = 730.0
"""8760 hours a year / 12."""

ANSWERS: dict[tuple[str, str], tuple[str, ...]] = {
    ("tok", "train"): ("gpt_train", "lstm_train", "bert_ft"),
    ("tok", "write"): ("decode",),
    ("img", "train"): ("conv_train",),
    ("seq", "train"): ("bert_ft",),
    ("req", "answer"): ("infer_rps", "infer_best"),
}
"""Workloads whose rows answer a job of this unit and verb, likeliest first."""
_EXAMPLES = {"tok": "50M tokens", "img": "1M img", "seq": "100k texts", "req": "1M requests"}
_ONE_BOX_HAS = "one box has"
"""Begins the doubt about work that returns before one box has done it."""


@dataclass(frozen=True, slots=True)
class PricedSide:
    side: Side
    price: Price | Missing
    cpu_price: Price | Missing
    """Of a CPU machine like this one's CPU: the CPU of a machine with GPUs has no separate price."""


@dataclass(frozen=True, slots=True)
class Offer:
    """The job on one device of one machine."""

    box: str
    """The user's name for it."""
    run_id: str
    device_class: str
    device_name: str
    case: Case
    """The row that answers: the device's fastest variant."""
    speed: SpeedEstimate
    price: Price | Missing
    share: float | Missing
    """The part of the price that the job pays."""
    time_s: Estimated
    """Of the work and its start."""
    usd: Estimated | Missing
    """Of that time."""
    meets: bool
    """Whether it meets the deadline, also at the worse end of the interval; True without one."""
    is_told: bool
    """False if `meets` is unknown: the deadline lies in the interval."""
    doubts: tuple[str, ...]
    """Reasons to trust the row less."""


@dataclass(frozen=True, slots=True)
class Pick:
    """The best offer by one criterion."""

    offer: Offer
    against: tuple[tuple[str, Judgement], ...]
    """Each other candidate as A, and this one as B."""

    @property
    def ties(self) -> tuple[str, ...]:
        """Others that cannot be distinguished from it."""
        return tuple(name for name, judgement in self.against if judgement.verdict.word != "faster")


@dataclass(frozen=True, slots=True)
class Buying:
    """Rent or buy for one offer, without interest and resale, at constant prices."""

    box: str
    device_class: str
    hours: float
    """Of work per month."""
    buy_usd: float
    rent_usd_per_month: float | Missing
    own_usd_per_month: float
    months: float | Missing
    """After which buying has cost less; Missing if it never does, or the rent is not known."""


class _Measured(NamedTuple):
    offer: Offer
    case: SideCase
    side: Side


@dataclass(frozen=True, slots=True)
class Advice:
    job: Batch
    work: Work
    """What was measured in place of the job."""
    stands_for: str
    """How well it represents the job, in words."""
    offers: tuple[Offer, ...]
    """Those that meet the job first, then the cheapest, then the fastest."""
    left_out: tuple[tuple[str, str], ...]
    """Machines, or their devices, without an answer: what, and why."""
    cheapest: Pick | Missing
    fastest: Pick | Missing
    gpu: str
    """Whether a GPU pays, in a sentence."""
    assumptions: tuple[str, ...]


def advise(
    job: Batch,
    boxes: Sequence[PricedSide],
    *,
    workload: str = "",
    size: str = "",
    precision: str = "",
    start_s: float = START_S,
    hours_per_month: float = HOURS_PER_MONTH,
    conditions: ConditionsOf | None = None,
) -> Advice:
    """Answer one job from what these machines measured: the rows that most of them have, if none is named.

    `conditions` gives the state of a machine while a case was timed; without it no doubt comes from
    telemetry. Raises GputuiError if no machine has a row that answers it, with what would measure one.
    """
    if job.is_verb_assumed:  # then it is one that these workloads answer, of several the usual one
        known = {workload} if workload else _workloads_of(boxes)
        answered = [verb for verb in VERBS[job.unit] if not {*ANSWERS[job.unit, verb]}.isdisjoint(known)]
        job = replace(job, verb=(answered or [job.verb])[0], is_verb_assumed=len(answered) > 1)
    work = _chosen_work(job, boxes, workload, size, precision)
    made: list[_Measured] = []
    left_out: list[tuple[str, str]] = []
    for box in boxes:
        count = len(made) + len(left_out)
        for device_class in ("gpu", "cpu"):
            found = _measured_cases(box.side, work, device_class, precision)
            if isinstance(found, Missing):
                left_out += [(f"{box.side.name} {device_class}", found.reason)] * bool(found.reason)
                continue
            variants = [
                _Measured(_offer(job, box, case, speed, start_s, hours_per_month, conditions), case, box.side)
                for case, speed in found
            ]
            made.append(max(variants, key=lambda one: (one.offer.meets, one.offer.speed.units_per_s)))
        if count == len(made) + len(left_out):
            row = " ".join(filter(None, (work.workload, work.size, precision)))
            left_out.append((box.side.name, f"has no {row}"))
    made.sort(key=lambda one: _order(one.offer))
    offers = [one.offer for one in made]
    able = [one for one in made if one.offer.meets]
    cheapest = _pick(able, COST, start_s)
    fastest = _pick(able, RATE, start_s)
    return Advice(
        job=job,
        work=work,
        stands_for=_stands_for(work),
        offers=tuple(offers),
        left_out=tuple(left_out),
        cheapest=cheapest,
        fastest=fastest,
        gpu=_gpu_word(job, offers, cheapest, fastest),
        assumptions=tuple(_assumptions([one.offer for one in able] or offers, start_s)),
    )


def weigh(
    advice: Advice, buy_usd: Mapping[str, float], own_usd_per_month: float, hours: float
) -> tuple[Buying, ...]:
    """Rent or buy for each machine that is for sale, by its best offer that meets the job.

    Owning one costs so much a month, of which it works so many hours.
    """
    chosen: dict[str, Offer] = {}
    for offer in advice.offers:
        if offer.meets and offer.box in buy_usd:
            chosen.setdefault(offer.box, offer)
    found = []
    for name, offer in chosen.items():
        rent: float | Missing = Missing("its rent is not known: state it with --price")
        months: float | Missing = rent
        if isinstance(offer.price, Price):
            rent = offer.price.usd_per_hour * hours
            months = Missing("owning costs no less per month than renting: buying never pays")
            if rent > own_usd_per_month:
                months = buy_usd[name] / (rent - own_usd_per_month)
        found.append(Buying(name, offer.device_class, hours, buy_usd[name], rent, own_usd_per_month, months))
    return tuple(found)


def headline_of(advice: Advice) -> str:
    """`Cheapest: a gpu, 2 h 5 min for $12.30. Fastest: b gpu, ...`, and whether a GPU pays."""
    able = [offer for offer in advice.offers if offer.meets]
    both = (("Cheapest", advice.cheapest), ("Fastest", advice.fastest))
    picks = [(word, pick) for word, pick in both if isinstance(pick, Pick)]
    sentences = [f"{word}: {_picked(pick)}, {_terms(advice, pick.offer)}." for word, pick in picks]
    if not able:
        sentences = ["Nothing that was measured is known to meet the job."]
    elif len(able) == 1:
        few = "the only one that meets the job" if len(advice.offers) > 1 else "the only one measured"
        sentences = [f"{_named(able[0])}, {few}: {_terms(advice, able[0])}."]
    elif len({id(pick.offer) for _, pick in picks}) < len(picks):
        sentences = [f"Cheapest and fastest: {_picked(picks[0][1])}, {_terms(advice, picks[0][1].offer)}."]
    if advice.job.is_verb_assumed:
        written = replace(advice.job, verb="write").text
        sentences.append(f"Taken as training; for text generation: `{written}`.")
    if able and all(isinstance(offer.usd, Missing) for offer in able):
        sentences.append("No price is known: --price gives the cost.")
    if advice.gpu:
        sentences.append(f"{advice.gpu[0].upper()}{advice.gpu[1:]}.")
    disturbed = {
        f"{_named(offer)}: {doubt}."
        for offer in (able if len(able) == 1 else [pick.offer for _, pick in picks])
        for doubt in offer.doubts
        if doubt.startswith((CROWDED, SHARED, SLOWED, _ONE_BOX_HAS))
    }
    return " ".join((*sentences, *sorted(disturbed)))


def _named(offer: Offer) -> str:
    return f"{offer.box} {offer.device_class}"


def _picked(pick: Pick) -> str:
    ties = f" (can't tell it from {listed(pick.ties)})" if pick.ties else ""
    return f"{_named(pick.offer)}{ties}"


def _terms(advice: Advice, offer: Offer) -> str:
    """What it takes and costs: `2 h 5 min for $12.30`."""
    usd = "" if isinstance(offer.usd, Missing) else f" for {format_usd(offer.usd.value)}"
    each = f" a {advice.job.per}" if advice.job.per else ""
    return f"{format_seconds(offer.time_s.value)}{usd}{each}"


def _workloads_of(boxes: Sequence[PricedSide]) -> set[str]:
    cases = [case.result for box in boxes for case in box.side.cases]
    return {case.case.work.workload for case in cases if isinstance(speed_of(case), SpeedEstimate)}


def example_job(boxes: Sequence[PricedSide]) -> str:
    """A job that they can answer, as it is typed; empty if none."""
    workloads = _workloads_of(boxes)
    answered = (key for key, names in ANSWERS.items() if not workloads.isdisjoint(names))
    return next((f"{_EXAMPLES[unit]} {verb}" for unit, verb in answered), "")


def _chosen_work(job: Batch, boxes: Sequence[PricedSide], workload: str, size: str, precision: str) -> Work:
    """What most machines have measured; if several, the likeliest workload, then the largest model."""
    names = ANSWERS[job.unit, job.verb]
    if workload and workload not in names:
        raise GputuiError(
            f"--workload {workload}: does not answer {job.text!r}", f"one of {', '.join(names)}"
        )
    wanted = (workload,) if workload else names
    having: dict[Work, set[str]] = {}
    tried: list[CaseResult] = []
    weight: dict[Work, tuple[float, ...]] = {}
    for name, result in ((box.side.name, one.result) for box in boxes for one in box.side.cases):
        case, work = result.case, result.case.work
        is_meant = work.workload in wanted and size in ("", work.size)
        if not is_meant or precision not in ("", case.variant.precision):
            continue
        if case.unit != job.unit and (case.unit, job.unit) != ("seq", "tok"):
            continue  # a newer gputui may count the same work in another unit
        if isinstance(_speed(result), Missing):
            tried.append(result)
            continue
        having.setdefault(work, set()).add(name)
        flops = (case.flops_per_step or 0) / case.units_per_step
        weight[work] = (-wanted.index(work.workload), flops, case.units_per_step)
    if having:
        return max(having, key=lambda work: (len(having[work]), *weight[work], work.size, work.version))
    from gputui.services.profiles.loader import shipped_with  # only an error needs profiles

    request = " ".join(filter(None, (" or ".join(wanted), size, precision)))
    file = "" if len(boxes) > 1 else boxes[0].side.name
    into = f" --db {shlex.quote(str(split_selector(file)[0]))}" if file else ""
    raise GputuiError(
        f"no box has measured {request}, which would answer {job.text!r}"
        + (f" ({_why(tried[0])})" if tried else ""),
        f"measure it: gputui run {next(iter(shipped_with(wanted[0])), 'PROFILE')} --only {wanted[0]}{into}",
    )


def _measured_cases(
    side: Side, work: Work, device_class: str, precision: str
) -> list[tuple[SideCase, SpeedEstimate]] | Missing:
    """The measured variants of a device; Missing without a reason if it has no such case.

    A speed above the physical peak is an error of measurement, and is left out.
    """
    mine = [
        case
        for case in side.cases
        if case.result.case.work == work
        and case.result.case.variant.device_class == device_class
        and precision in ("", case.result.case.variant.precision)
    ]
    measured = [(case, speed) for case in mine if isinstance(speed := _speed(case.result), SpeedEstimate)]
    believed = [
        (case, speed)
        for case, speed in measured
        if not any(use.is_impossible for use in uses_of(case.result, (), case.run.machine))
    ]
    if believed:
        return believed
    if measured:
        return Missing(f"{work.workload} {work.size}: above the physical peak: a measurement error")
    return Missing("; ".join(dict.fromkeys(_why(case.result) for case in mine)))


def _why(result: CaseResult) -> str:
    speed = _speed(result)
    reason = speed.reason if isinstance(speed, Missing) else ""
    return f"{result.case.work.workload} {result.case.work.size}: {reason}"


def _speed(result: CaseResult) -> SpeedEstimate | Missing:
    """Its speed, where that says how long its device takes."""
    speed = speed_of(result)
    is_measured = isinstance(speed, SpeedEstimate)
    return Missing(NOT_OF_GPU) if is_measured and is_host_bound(result) else speed


def _offer(
    job: Batch,
    box: PricedSide,
    found: SideCase,
    speed: SpeedEstimate,
    start_s: float,
    hours: float,
    conditions: ConditionsOf | None,
) -> Offer:
    case = found.result.case
    device_class = case.variant.device_class
    price = box.price
    if device_class == "cpu" and isinstance(box.cpu_price, Price):
        price = box.cpu_price
    each = 1.0 if case.unit == job.unit else float(dict(case.work.parameters)["context"])
    units = job.amount / each  # a text of 128 tokens is 128 tokens
    time_s = Estimated(*(start_s + units / rate for rate in (speed.units_per_s, speed.high, speed.low)))
    share: float | Missing
    usd: Estimated | Missing
    if isinstance(price, Missing):
        share = usd = price
    else:
        share = share_of_price(price, device_class, devices_of(case))
        usd = share if isinstance(share, Missing) else time_s.scaled(share * price.usd_per_hour / 3600)
    meets = job.within_s is None or time_s.high <= job.within_s
    return Offer(
        box=box.side.name,
        run_id=found.run.run_id,
        device_class=device_class,
        device_name=found.result.device_name,
        case=case,
        speed=speed,
        price=price,
        share=share,
        time_s=time_s,
        usd=usd,
        meets=meets,
        is_told=meets or (job.within_s is not None and time_s.low > job.within_s),
        doubts=(*_doubts(found, speed, conditions), *_overlong(job, time_s, hours)),
    )


def _doubts(found: SideCase, speed: SpeedEstimate, conditions: ConditionsOf | None) -> Iterable[str]:
    for flag in flags_of(Cell(found.result, found.run), "a", conditions):
        yield f"{flag.word} {format_percent(flag.share)} of the time"
    if any(m.stable is False for m in found.result.measurements if m.outcome == "ok"):
        yield "not stable after warm-up"
    if found.run.status != "finished":
        yield f"its run was {found.run.status}"
    if speed.launches < 3:
        yield f"{counted(speed.launches, 'launch')}: the interval is mostly assumed"


def _overlong(job: Batch, time_s: Estimated, hours_per_month: float) -> Iterable[str]:
    """How many boxes work that returns takes, if one is not done in time."""
    hours = 24.0 if job.per == "day" else hours_per_month
    if job.per and (boxes := math.ceil(time_s.value / 3600 / hours)) > 1:
        yield f"{_ONE_BOX_HAS} {hours:g} h a {job.per}: it takes {boxes} boxes"


def _order(offer: Offer) -> tuple[bool, bool, float, float]:
    usd = offer.usd.value if isinstance(offer.usd, Estimated) else math.inf
    return not offer.meets, isinstance(offer.usd, Missing), usd, -offer.speed.units_per_s


def _pick(able: Sequence[_Measured], respect: str, start_s: float) -> Pick | Missing:
    """The least, judged against every other; Missing if there is only one."""
    asked = [(one, one.offer.time_s if respect == RATE else one.offer.usd) for one in able]
    spans = [(one, span) for one, span in asked if isinstance(span, Estimated)]
    if not spans:
        return Missing("no offer has a price" if able else "nothing meets the deadline")
    best, *others = sorted(spans, key=lambda pair: pair[1].value)
    name = _named(best[0].offer)
    if not others:
        return Missing(f"only {name} {'meets the job' if len(able) == 1 else 'has a price'}")
    against = ((_named(other[0].offer), _judged(respect, other, best, start_s)) for other in others)
    return Pick(best[0].offer, tuple(against))


def _judged(
    respect: str, a: tuple[_Measured, Estimated], b: tuple[_Measured, Estimated], start_s: float
) -> Judgement:
    """B against A as `compare` judges their row among the others of these sides, prices included.

    By their intervals where one costs nothing, or no ratio is known. Each with its time or cost.
    """
    (of_a, a_span), (of_b, b_span) = a, b
    rows = compare_sides(of_a.side, of_b.side).rows
    pairs = [(row.a.result, row.b.result) for row in rows]
    mine, asked = 0, 0
    estimates = [estimate_pair(of_a.case, of_b.case)]
    if (of_a.case.result, of_b.case.result) in pairs:
        estimates = [row.estimate for row in rows]
        mine = pairs.index((of_a.case.result, of_b.case.result))
        asked = asked_place(rows) or 0
    estimate = estimates[mine]
    if not a_span.value or not b_span.value or isinstance(estimate, Missing):
        is_apart = a_span.low > b_span.high
        verdict = Verdict("faster", "") if is_apart else Verdict("inconclusive", "the intervals overlap")
        return Judgement(respect, Missing("speed alone does not decide"), verdict)
    factor = (a_span.value / of_a.offer.time_s.value) / (b_span.value / of_b.offer.time_s.value)
    weighed = [e if isinstance(e, Missing) else _scaled(e, lambda ratio: factor * ratio) for e in estimates]
    if respect == COST:
        # both sides pay for their start as well, so that it is part of the ratio of their costs
        work_s = of_b.offer.time_s.value - start_s

        def whole(ratio: float) -> float:
            return factor * (ratio * work_s + start_s) / (work_s + start_s)

        weighed[mine] = _scaled(estimate, whole)
    return judgements(respect, weighed, asked)[mine]


def _scaled(estimate: RatioEstimate, of: Callable[[float], float]) -> RatioEstimate:
    return replace(estimate, ratio=of(estimate.ratio), low=of(estimate.low), high=of(estimate.high))


def _gpu_word(job: Batch, offers: Sequence[Offer], cheapest: Pick | Missing, fastest: Pick | Missing) -> str:
    """Whether a GPU pays, by the judgements of the picks; empty if not both kinds were measured."""
    able = {offer.device_class for offer in offers if offer.meets}
    failing = [offer for offer in offers if offer.device_class not in able]
    if len({offer.device_class for offer in offers}) < 2:
        return ""
    is_sure = all(offer.is_told for offer in failing)
    if able == {"gpu"}:
        needed = "a GPU is needed: no CPU meets the target"
        return needed if is_sure else "a GPU meets the target; whether a CPU does is unknown"
    if able == {"cpu"}:
        does = "no GPU does" if is_sure else "whether a GPU does is unknown"
        return f"GPU not worth it: a CPU meets the target, {does}"
    if not able:
        return "neither CPU nor GPU meets the target" if is_sure else "whether a GPU is worth it is unknown"
    money, speed = _kind_of(cheapest), _kind_of(fastest)
    costs = "we can't tell which costs less"
    if len({offer.device_class for offer in offers if offer.meets and isinstance(offer.usd, Estimated)}) < 2:
        money, costs = "", "which costs less is unknown without both prices"
    if money == "gpu":
        faster = "" if speed == "gpu" else ", though we can't tell that it is faster than the CPU"
        return f"a GPU is worth it: it costs less{faster}"
    if money == "cpu" and job.within_s is not None:
        return "GPU not worth it: a CPU meets the target, for less"
    if speed == "gpu":
        return f"a GPU is faster than the CPU, {'but costs more' if money else f'and {costs}'}"
    return "GPU not worth it: a CPU costs less" if money else f"GPU or CPU: {costs}, or is faster"


def _kind_of(pick: Pick | Missing) -> str:
    """`cpu` or `gpu`, if the pick is better than all of the other kind; else empty."""
    if isinstance(pick, Missing):
        return ""
    kind = pick.offer.device_class
    return kind if all(name.endswith(f" {kind}") for name in pick.ties) else ""


def _stands_for(work: Work) -> str:
    """Which model was measured, with its shape as far as the parameters give it, and how well it represents
    others."""
    parameters = dict(work.parameters)
    keys = ("layers", "width", "context", "model", "image", "batch")
    shape = ", ".join(f"{key} {parameters[key]}" for key in keys if key in parameters)
    how = "your time only if your model has this shape"
    if work.size.startswith("mini"):
        how = "a ranking of boxes, not your time, unless your model is this small"
    return f"measured with {work.workload} {work.size}{f' ({shape})' if shape else ''}: {how}"


def _assumptions(offers: Sequence[Offer], start_s: float) -> Iterable[str]:
    yield f"time and cost include {format_seconds(start_s).removesuffix(' 0 s')} of setup on every box"
    if shares := {o.share for o in offers if isinstance(o.share, float) and o.share < 1}:
        shown = " and ".join(format_percent(share) for share in sorted(shares))
        yield f"the job carries only its share of a box's price ({shown}): its other GPUs do other work"
