"""Searches for the limit of a queue of known service times, in virtual time: seconds of search take none."""

from __future__ import annotations

import math
import random
from dataclasses import dataclass, replace
from itertools import accumulate

from model_server import Behaviour
from offered_loads import LOAD, service_s
from queue_theory import waits_s

from gputui.worker.serving import PlannedLoad
from gputui.worker.serving.answer import OK, ServerAnswer, Usage
from gputui.worker.serving.client import Exchange
from gputui.worker.serving.load import LoadOutcome, Sample, TriedRate, bracket_of, is_behind
from gputui.worker.serving.load_launch import SearchStart, is_known, limit_of, limit_search

_S = 1e9


@dataclass(frozen=True)
class Searched:
    """How a search ended."""

    tried: list[TriedRate]
    trials: int
    taken_s: float
    limit_per_s: float | None


def search(
    does: Behaviour, load: PlannedLoad, allowance_s: float, seed: str, start: SearchStart | None
) -> Searched:
    """Search within `allowance_s` for the rate that a server holds; without a start, knowing nothing.

    Arrivals, windows and judgement are those of a real launch.
    """
    alone_s = service_s(does, load.output_tokens)
    now_s = 2 * alone_s
    trials = 0

    def left_for_arrivals_s() -> float:
        return 0.92 * allowance_s - now_s - 2 * alone_s

    steps = limit_search(start or SearchStart(2 / alone_s, 2.0), load, alone_s, left_for_arrivals_s)
    try:
        trial = next(steps)
        while True:
            trials += 1
            step, over_s = _offered(does, load, *trial, seed)
            one = step.as_tried(load)
            now_s += over_s + (0 if one.is_held else 2 * alone_s)
            trial = steps.send(one)
    except StopIteration as end:
        tried: list[TriedRate] = end.value
    limit = limit_of(tried, load.attained_share) if is_known(tried) else None
    return Searched(tried, trials, now_s, limit)


def searches_of_a_run(
    does: Behaviour, allowance_s: float, seed: int, start: SearchStart | None, launches: int = 3
) -> Searched:
    """The searches of one run, each of which begins where those before ended; the last with a limit."""
    found = None
    for replicate in range(launches):
        last = search(does, chat_load(), allowance_s, f"{seed} {replicate}", start)
        if last.limit_per_s is not None:
            start, found = SearchStart(last.limit_per_s / 1.04, 1.08), last
        elif found is None and (known := tuple(one for one in bracket_of(last.tried) if one is not None)):
            rates = [one.rate_per_s for one in known]
            start = SearchStart(math.sqrt(min(rates) * max(rates)), 2.0, known)
    return found or last


def limit_in_theory(does: Behaviour, load: PlannedLoad) -> float:
    """The rate at which a share of Poisson arrivals has its first token in time, by a long simulation."""
    draw = random.Random(1)
    gaps = [draw.expovariate(1.0) for _ in range(20_000)]
    service = service_s(does, load.output_tokens)
    low, high = 0.01 * does.slots / service, does.slots / service
    for _ in range(12):
        rate = math.sqrt(low * high)
        arrivals = list(accumulate(gap / rate for gap in gaps))
        waits = waits_s(arrivals, [service] * len(arrivals), does.slots)
        good = sum(wait + does.prefill_s <= (load.ttft_s or 0.0) for wait in waits) / len(waits)
        low, high = (rate, high) if good >= load.attained_share else (low, rate)
    return low


def _offered(
    does: Behaviour, load: PlannedLoad, rate: float, seconds: float, seed: str
) -> tuple[LoadOutcome, float]:
    """What a trial comes to, and when it is over, seconds after its begin."""
    gaps = random.Random(seed)
    service = service_s(does, load.output_tokens)
    most = load.most_in_flight(rate, service)
    arrivals: list[float] = []
    at_s = gaps.expovariate(1.0) / rate
    while at_s <= seconds:
        arrivals.append(at_s)
        at_s += gaps.expovariate(1.0) / rate
    ends: list[float] = []
    samples: list[Sample] = []
    begins_s = min(service, seconds / 4)
    waits = waits_s(arrivals, [service] * len(arrivals), does.slots) if arrivals else []
    is_too_many = False
    over_s = seconds
    for index, (arrival_s, wait_s) in enumerate(zip(arrivals, waits, strict=True)):
        in_flight = sum(end > arrival_s for end in ends)
        exchange = Exchange(index, b"", round(arrival_s * _S))
        exchange.in_flight = in_flight
        ends.append(arrival_s + wait_s + service)
        exchange.ended_ns = round(ends[-1] * _S)
        first_s = arrival_s + wait_s + does.prefill_s
        answer = ServerAnswer(
            OK,
            "",
            200,
            (round(first_s * _S), exchange.ended_ns),
            Usage(output=load.output_tokens),
            "length",
            b"",
        )
        samples.append(Sample(exchange, answer, arrival_s >= begins_s))
        if in_flight + 1 > most:
            is_too_many, over_s = True, arrival_s
            break
    last_s = min(over_s, seconds)
    counted = [sample for sample in samples if sample.counts]
    # Of a load that was cut short, whoever waits has no answer.
    good = sum(
        sample.is_good(load) and (not is_too_many or sample.exchange.ended_ns <= over_s * _S)
        for sample in counted
    )
    step = LoadOutcome(
        None,
        rate,
        (round(begins_s * _S), round(last_s * _S)),
        tuple(samples),
        0.0,
        (),
        0.0,
        False,
        good / len(counted) if counted else 0.0,
        0,
        0,
        {},
    )
    end_s = last_s if is_too_many else max([*ends, last_s])
    return replace(step, is_overloaded=is_too_many or is_behind(step, rate)), end_s


def chat_load() -> PlannedLoad:
    """The load that `--profile chat` searches with."""
    return replace(
        LOAD, kind="search", prompt_tokens=512, output_tokens=200, ttft_s=0.5, tpot_s=0.05, attained_share=0.9
    )
