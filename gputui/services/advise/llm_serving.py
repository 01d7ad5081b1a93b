"""How many boxes answer so many requests to an LLM within limits, and what they cost: from runs of loads."""

from __future__ import annotations

import math
import re
from collections.abc import Sequence
from dataclasses import dataclass

from gputui.analysis.job import amount_of
from gputui.analysis.statistics import Estimated
from gputui.analysis.verdict import SpeedEstimate
from gputui.errors import GputuiError
from gputui.model.absent import Missing
from gputui.model.plan import Case
from gputui.model.units import counted, format_usd, listed, three_digits
from gputui.services.advise.rent import PricedSide
from gputui.services.results.metrics import is_limit
from gputui.services.results.throughput import speed_of
from gputui.services.serving.profiles import Limits, limits_from, limits_of, parameter_of

GRAMMAR = (
    "RATE requests/day (or /h, /min, /s) N in N out with limits: '2M requests/day 800 in 200 out ttft<500ms'"
)
LENGTH_RATIO = 1.25
"""Prompts and answers may be so much longer or shorter than those that were measured."""
_SECONDS = {"s": 1.0, "min": 60.0, "h": 3600.0, "hour": 3600.0, "d": 86400.0, "day": 86400.0}
_RATE = re.compile(
    r"([0-9]+(?:\.[0-9]+)?)\s*([kmb]?)\s*(?:(rps|qps)|req(?:uest)?s?\s*/\s*(s|min|h|hour|d|day))\b",
    re.IGNORECASE,
)
_LENGTHS = re.compile(r"\b([0-9]{1,7})\s+in\b[\s,]*([0-9]{1,7})\s+out\b", re.IGNORECASE)


@dataclass(frozen=True, slots=True)
class LlmJob:
    """Requests to an LLM that arrive at random, evenly over the day."""

    per_s: float
    prompt_tokens: int
    output_tokens: int
    limits: Limits

    @property
    def text(self) -> str:
        """The job as it is parsed."""
        rate = three_digits(self.per_s)
        lengths = f"{self.prompt_tokens} in {self.output_tokens} out"
        return f"{rate} requests/s {lengths}, {self.limits.text}"


@dataclass(frozen=True, slots=True)
class LlmOffer:
    """The job on boxes like one that was measured."""

    box: str
    run_id: str
    case: Case
    limit: SpeedEstimate
    """Requests per second of one box within the limits."""
    boxes: Estimated
    """Whole numbers."""
    usd_per_month: Estimated | Missing
    usd_per_million_requests: float | Missing


@dataclass(frozen=True, slots=True)
class LlmAdvice:
    """The answer to one job; the cheapest first."""

    job: LlmJob
    offers: tuple[LlmOffer, ...]
    left_out: tuple[tuple[str, str], ...]
    """Boxes without an answer, and why."""
    hours_per_month: float


def is_llm_job(text: str) -> bool:
    """Whether a job names lengths in and out, as only requests to an LLM have."""
    return _LENGTHS.search(text) is not None


def parse_llm_job(text: str) -> LlmJob:
    """Read one job. Raises GputuiError with what may stand there."""
    rate, lengths = _RATE.search(text), _LENGTHS.search(text)
    if rate is None or lengths is None:
        raise GputuiError(f"--job {text!r}: no request rate", GRAMMAR)
    first, last = sorted((rate.span(), lengths.span()))
    left = " ".join((text[: first[0]], text[first[1] : last[0]], text[last[1] :])).strip(" ,")
    if not left:
        raise GputuiError(f"--job {text!r}: no limits", GRAMMAR)
    number, scale, per_second, per = rate.groups()
    seconds = 1.0 if per_second else _SECONDS[per.lower()]
    per_s = amount_of(number + scale) / seconds
    if not 0 < per_s <= 1e9 or not int(lengths[1]) or not int(lengths[2]):
        raise GputuiError(f"--job {text!r}: the rate and the lengths must be above 0", GRAMMAR)
    return LlmJob(per_s, int(lengths[1]), int(lengths[2]), limits_from(left, f"--job {text!r}"))


def advise_llm(job: LlmJob, boxes: Sequence[PricedSide], hours_per_month: float) -> LlmAdvice:
    """Answer one job from the limits that these boxes showed.

    Raises GputuiError if none has measured such requests, with what would.
    """
    offers, left_out = [], []
    for box in boxes:
        found = _offer(job, box, hours_per_month)
        if isinstance(found, Missing):
            left_out.append((box.side.name, found.reason))
        else:
            offers.append(found)
    if not offers:
        raise GputuiError(
            f"no box has measured {job.text} ({left_out[0][1]})",
            f"gputui serve-bench URL --slo {job.limits.option} --profile FILE.toml,"
            f" with prompt_tokens = {job.prompt_tokens} and output_tokens = {job.output_tokens}",
        )
    offers.sort(key=lambda one: one.boxes.value)
    offers.sort(key=lambda one: math.inf if isinstance(usd := one.usd_per_month, Missing) else usd.value)
    return LlmAdvice(job, tuple(offers), tuple(left_out), hours_per_month)


def _offer(job: LlmJob, box: PricedSide, hours_per_month: float) -> LlmOffer | Missing:
    searched = [one for one in box.side.cases if is_limit(one.result.case)]
    if not searched:
        return Missing("has no limit of serve-bench")
    wanted_tokens = {"prompt_tokens": job.prompt_tokens, "output_tokens": job.output_tokens}
    alike = [
        one
        for one in searched
        if all(
            isinstance(measured := parameter_of(one.result.case, name), int)
            and 1 / LENGTH_RATIO <= wanted / max(measured, 1) <= LENGTH_RATIO
            for name, wanted in wanted_tokens.items()
        )
    ]
    if not alike:
        lengths = {
            f"{parameter_of(one.result.case, 'prompt_tokens')} in"
            f" {parameter_of(one.result.case, 'output_tokens')} out"
            for one in searched
        }
        return Missing(f"measured {listed(sorted(lengths))}")
    strict = [one for one in alike if limits_of(one.result.case).imply(job.limits)]
    if not strict:
        return Missing(f"measured other limits: {limits_of(alike[0].result.case).text}")
    known = [(one, speed) for one in strict if isinstance(speed := speed_of(one.result), SpeedEstimate)]
    if not known:
        return Missing(strict[0].result.reason or strict[0].result.outcome)
    found, speed = max(known, key=lambda pair: pair[1].units_per_s)
    boxes = Estimated(
        *(float(math.ceil(job.per_s / rate)) for rate in (speed.units_per_s, speed.high, speed.low))
    )
    price = box.price
    return LlmOffer(
        box.side.name,
        found.run.run_id,
        found.result.case,
        speed,
        boxes,
        price if isinstance(price, Missing) else boxes.scaled(price.usd_per_hour * hours_per_month),
        price if isinstance(price, Missing) else boxes.value * price.usd_per_hour / 3600 / job.per_s * 1e6,
    )


def llm_headline(advice: LlmAdvice) -> str:
    """`Cheapest: b, 2 boxes, $4380.00 a month (can't tell it from a); next a, $5840.00.`"""
    best, *others = advice.offers
    usd = best.usd_per_month
    terms = counted(round(best.boxes.value), "box")
    if isinstance(usd, Missing):
        return f"{best.box}: {terms}. No price is known: --price gives the cost."
    terms = f"{best.box}, {terms}, {format_usd(usd.value)} a month"
    if not others:
        return f"{terms}: the only one measured."
    ties = [
        other.box
        for other in others
        if not isinstance(other.usd_per_month, Missing) and other.usd_per_month.low <= usd.high
    ]
    doubt = f" (can't tell it from {listed(ties)})" if ties else ""
    second = others[0].usd_per_month
    following = "" if isinstance(second, Missing) else f"; next {others[0].box}, {format_usd(second.value)}"
    return f"Cheapest: {terms}{doubt}{following}."


def llm_rows(advice: LlmAdvice) -> list[tuple[str, ...]]:
    """Box, requests per second of one, boxes needed, USD a month, USD per million requests."""
    rows: list[tuple[str, ...]] = []
    for offer in advice.offers:
        usd, million = offer.usd_per_month, offer.usd_per_million_requests
        ends = f"{three_digits(offer.limit.low)} to {three_digits(offer.limit.high)}"
        counts = sorted({round(offer.boxes.low), round(offer.boxes.high)})
        boxes = f"{offer.boxes.value:.0f}" + (f" ({counts[0]} to {counts[-1]})" if len(counts) > 1 else "")
        rows.append(
            (
                offer.box,
                f"{three_digits(offer.limit.units_per_s)} ({ends})",
                boxes,
                "—" if isinstance(usd, Missing) else format_usd(usd.value),
                "—" if isinstance(million, Missing) else format_usd(million),
            )
        )
    return rows


LLM_HEADINGS = ("box", "requests/s (95 %)", "boxes", "USD a month", "USD per 1M requests")


def llm_assumptions(advice: LlmAdvice) -> list[str]:
    case = advice.offers[0].case
    lengths = f"{parameter_of(case, 'prompt_tokens')} in {parameter_of(case, 'output_tokens')} out"
    return [
        f"measured with {lengths}, {limits_of(case).text}, model {parameter_of(case, 'model')}",
        "requests arrive at random but evenly over the day: three times the mean needs three times the boxes",
        f"boxes run {advice.hours_per_month:g} h a month",
    ]
