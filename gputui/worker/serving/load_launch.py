"""One launch of a load: finds the server, warms it up, offers the load, and reports what came of it.

A search for the highest rate that holds offers one rate after the other.
"""

from __future__ import annotations

import asyncio
import json
import math
import os
import time
from collections.abc import Callable, Generator, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any  # Any: the JSON of a launch

from ..channel import Channel
from ..foreign_json import read_json_file
from . import MOST_IN_FLIGHT, PlannedLoad
from .answer import OK
from .client import Client, event_loop
from .load import (
    OPEN,
    SEARCH,
    Ended,
    LoadOutcome,
    LoadReport,
    TriedRate,
    bracket_of,
    check_answers,
    check_client,
    client_bottleneck,
    mean,
    queue_text,
    times_text,
)
from .offering import LoadGenerator
from .request import address_of, is_own
from .server import ServerError, find_server, read_metrics

END_SHARE = 0.08
"""Of a launch, for reading the answers and for its exit."""
LEAST_REQUESTS = 3
"""That began and ended within the window; with fewer there is nothing to report."""
FIRST_IN_FLIGHT = 2.0
"""About as many are in flight at the first rate of a search that knows nothing."""
KNOWN_FACTOR = 1.08
"""Of the first two rates of a search, where an earlier launch found the limit."""
OF_USERS_SHARE, OF_USERS_FACTOR = 0.8, 1.5
"""Of the requests per second that users got who sent within the limits: arrivals at random hold fewer."""
CLOSE_ENOUGH = 1.12
"""Ratio of the lowest rate that failed to the highest that held, below which the limit is interpolated."""
SHORT_REQUESTS, SHORT_ANSWERS, SHORT_WAITS = 16, 2.0, 2.0
"""Of a trial far from the limit, at least: requests, and how many times one answer and the longest wait it
takes: at twice the capacity, the queue is as long after once."""
LONG_REQUESTS, LONG_ANSWERS, LONG_WAITS = 40, 3.0, 10.0
"""Likewise close to the limit: the 90th percentile has an upper end from 36 requests on, and a tenth beyond
the capacity the queue is as long after ten."""
NEAR_RATIO = 2.2
"""Of what failed to what held, from which trials are long."""
LEAST_FOR_LIMIT = 24
"""Requests at the highest rate that held; of fewer, 90 % being good says little."""
MOST_FACTOR = 2.0
MOST_INTERPOLATED = 1.3
"""Ratio of what failed to what held, above which a search that had to end says only these two."""


class LoadLaunch:
    """Offers the load of one launch and reports on a channel. Used by the main thread."""

    def __init__(
        self, described: dict[str, Any], channel: Channel, started_ns: int, notes: Path | None = None
    ) -> None:
        """`notes`: a directory that the launches of a run share; each leaves there what helps the next."""
        self._load = PlannedLoad(**described["cases"][0]["load"])
        self._report = LoadReport(self._load, channel)
        self._allowance_s = float(described["allowance_s"])
        self._deadline_ns = started_ns + round(self._allowance_s * (1 - END_SHARE) * 1e9)
        self._arrivals_seed = f"{int(described['seed'])} {int(described['replicate'])}"
        self._notes = notes
        self._key = os.environ.get(self._load.key_name, "") if self._load.key_name else ""
        self._offers: LoadGenerator

    def run(self) -> None:
        outcome, reason = "ok", ""
        try:
            address = address_of(self._load.url)
            server = find_server(address, self._key, self._deadline_ns * 1e-9)
            self._report.server(server, is_here=is_own(address.host))
            loop, self._report.client = event_loop()
            try:
                measuring = loop.create_task(self._measured())

                def fail(loop: asyncio.AbstractEventLoop, context: dict[str, Any]) -> None:
                    loop.default_exception_handler(context)  # into the log
                    measuring.cancel()

                loop.set_exception_handler(fail)
                loop.run_until_complete(measuring)
            finally:
                loop.close()
        except Ended as end:
            outcome, reason = end.outcome, end.reason
        except ServerError as error:
            outcome, reason = "failed", error.message
        except OSError as error:
            outcome, reason = "failed", f"no connection to the server: {error.strerror or error}"
        self._report.end(outcome, reason)

    async def _measured(self) -> None:
        client = Client(self._load, self._key, lambda exchange: None)
        try:
            self._offers = offers = LoadGenerator(
                self._load,
                client,
                self._report.now,
                partial(read_metrics, address_of(self._load.url), self._key),
                self._arrivals_seed,
                self._deadline_ns,
                self._allowance_s,
            )
            begun_ns = time.monotonic_ns()
            await offers.warm_up()
            first_ns, second_ns = (sample.exchange.ended_ns for sample in offers.solo)
            self._report.warm(
                build_ns=0,
                first_step_ns=max(first_ns - begun_ns, 0),
                warmup_ns=max(second_ns - first_ns, 0),
                t_ns=time.monotonic_ns(),
            )
            if self._load.kind == SEARCH:
                await self._search()
            else:
                self._report_fixed(await self._fixed())
        finally:
            await client.close()

    async def _fixed(self) -> LoadOutcome:
        load, offers = self._load, self._offers
        if load.kind == OPEN:
            seconds, rate = offers.left_for_arrivals_s(), load.rate_per_s
            if seconds * rate < LEAST_REQUESTS:
                raise self._too_slow(f"{rate:g} requests a second are too few for {seconds:.3g} s")
            return await offers.offer_rate(rate, seconds, MOST_IN_FLIGHT)
        if offers.left_s() < LEAST_REQUESTS * offers.alone_s:
            raise self._too_slow(f"a request alone takes {offers.alone_s:.3g} s")
        return await offers.offer_users(load.users, offers.left_s())

    def _report_fixed(self, step: LoadOutcome) -> None:
        """Report a load that was not searched for. Raises Ended if it cannot be judged."""
        self._report.step(step)
        check_client(step)
        if step.is_overloaded:
            raise Ended("unsupported", f"overloaded at {step.rate_per_s:g} requests/s: {queue_text(step)}")
        answered, counted = len(step.values(lambda s: s.e2e_s)), len(step.counted)
        requests = "1 request" if counted == 1 else f"{counted} requests"
        if answered < LEAST_REQUESTS:
            check_answers(step, self._offers.client.failure)
            in_window = f"{requests} began and ended within its window"
            raise self._too_slow(f"only {requests} count" if step.users is None else in_window)
        self._report.figures(step)
        start_ns, end_ns = step.window_ns
        self._report.block(start_ns, end_ns - start_ns, max(round(step.output_tokens), 1))
        if step.users is not None and step.good_share is not None:
            is_good = step.good_share >= self._load.attained_share
            note = {"rate_per_s": answered / step.window_s, "is_good": is_good}
            self._write_note(f"users-{step.users}", note)

    def _too_slow(self, what: str) -> Ended:
        share = f"its {self._allowance_s:.3g} s share"
        return Ended("skipped", f"too slow for {share} ({what}): raise --budget")

    async def _search(self) -> None:
        """Find the highest rate at which enough requests stay within every limit, and say where it lies."""
        load, offers = self._load, self._offers
        if not any(sample.is_good(load) for sample in offers.solo):
            raise Ended("unsupported", f"one request alone misses the limits: {times_text(offers.solo[-1])}")
        start = self._known_start() or SearchStart(FIRST_IN_FLIGHT / offers.alone_s, 2.0)
        search = limit_search(start, load, offers.alone_s, offers.left_for_arrivals_s)
        held: dict[float, LoadOutcome] = {}
        try:
            rate, seconds = next(search)
            while True:
                step, one = await self._tried(rate, seconds)
                if one.is_held:
                    held[one.rate_per_s] = step
                else:
                    await offers.settle()
                rate, seconds = search.send(one)
        except StopIteration as end:
            tried: list[TriedRate] = end.value
        known = [one for one in bracket_of(tried) if one is not None]
        self._write_note(f"tried-{load.case_id}", [asdict(one) for one in known])
        steps = [held[one.rate_per_s] for one in tried if one.is_held and one.rate_per_s in held]
        limit = limit_of(tried, load.attained_share) if steps and is_known(tried) else None
        if limit is None:
            raise self._without_limit(known)
        self._write_note(f"limit-{load.case_id}", {"rate_per_s": limit})
        best = min(steps, key=lambda step: abs(math.log(step.offered_per_s / limit)))
        counted = len(best.counted)
        tokens = mean([float(s.answer.usage.output or 0) for s in best.counted if s.answer.outcome == OK])
        title = "output tokens at the limit"
        self._report.figure("output_tokens_per_s", title, "1/s", "more", limit * tokens, counted)
        self._report.figures(best)
        # The limit lies between two rates that were offered, so no window has it: the block says how long as
        # many requests as were counted take at the limit, from when they were.
        self._report.block(best.window_ns[0], round(counted / limit * 1e9), max(counted, 1))

    async def _tried(self, rate: float, seconds: float) -> tuple[LoadOutcome, TriedRate]:
        """Offer a rate; what came of it. Once more if the client was late, then raises Ended."""
        load, offers = self._load, self._offers
        most = load.most_in_flight(rate, offers.alone_s)
        step = await offers.offer_rate(rate, seconds, most)
        self._report.step(step)
        if client_bottleneck(step) and offers.left_for_arrivals_s() > seconds:
            await offers.settle()
            step = await offers.offer_rate(rate, seconds, most)
            self._report.step(step)
        check_client(step)
        check_answers(step, offers.client.failure)
        return step, step.as_tried(load)

    def _without_limit(self, known: list[TriedRate]) -> Ended:
        if not known:
            return self._too_slow("not one rate could be offered for long enough")
        which = "before these were close enough"
        if len(known) == 1:
            which = "before a rate failed" if known[0].is_held else "before a rate held"
        return Ended("skipped", f"its {self._allowance_s:.3g} s ended {which}: raise --budget")

    def _known_start(self) -> SearchStart | None:
        """Near the limit that another launch found, else between the rates it left, else as users say."""
        limit = self._read_note(f"limit-{self._load.case_id}")
        if limit:
            return SearchStart(limit["rate_per_s"] / math.sqrt(KNOWN_FACTOR), KNOWN_FACTOR)
        known = tuple(TriedRate(**one) for one in self._read_note(f"tried-{self._load.case_id}") or ())
        if known:
            rates = [one.rate_per_s for one in known]
            return SearchStart(math.sqrt(min(rates) * max(rates)), MOST_FACTOR, known)
        found = self._notes.glob("users-*.json") if self._notes else ()
        users = [note for path in sorted(found) if (note := self._read_note(path.stem))]
        good = [note["rate_per_s"] for note in users if note["is_good"]]
        if not good:
            return None
        share = 1.0 if len(good) == len(users) else OF_USERS_SHARE  # more users might get more
        return SearchStart(share * max(good), OF_USERS_FACTOR)

    def _read_note(self, name: str) -> Any:
        if self._notes is not None:
            with suppress(OSError, ValueError):
                return read_json_file(self._notes / f"{name}.json")
        return None

    def _write_note(self, name: str, note: object) -> None:
        if self._notes is not None:
            with suppress(OSError):
                (self._notes / f"{name}.json").write_text(json.dumps(note))


# --- which rate to try next, and where the limit lies


@dataclass(frozen=True)
class SearchStart:
    rate_per_s: float
    factor: float
    """To the second rate; the one after that is its square away, up to MOST_FACTOR."""
    known: tuple[TriedRate, ...] = ()
    """What earlier launches tried; the limit lies between two of these, unless long trials say otherwise."""


def limit_search(
    start: SearchStart, load: PlannedLoad, alone_s: float, left_s: Callable[[], float]
) -> Generator[tuple[float, float], TriedRate, list[TriedRate]]:
    """Yield a rate and for how long to offer it, get what came of it; return what counts of all, in order.

    Rates rise until one fails, or fall until one holds. The one that held is then offered for long, and the
    interval of logarithms halved until its ends are close and both were offered for long, and so was the rate
    between them. `alone_s`: one request with nothing else in flight; `left_s`: until arrivals must end. The
    search is over when a short trial no longer fits.
    """
    tried = [replace(one, is_long=False) for one in start.known]
    rate, factor = start.rate_per_s, start.factor
    is_checked = False
    again: TriedRate | None = None  # an end that was offered for a short time only
    while True:
        held, failed = bracket_of(tried)
        ratio = failed.rate_per_s / held.rate_per_s if held and failed else factor**2
        wait_s = load.longest_wait_s
        short_s = max(SHORT_REQUESTS / rate, SHORT_ANSWERS * alone_s, SHORT_WAITS * wait_s)
        long_s = max(LONG_REQUESTS / rate, LONG_ANSWERS * alone_s, LONG_WAITS * wait_s)
        left = left_s()
        is_long = ratio <= NEAR_RATIO and left >= long_s
        if left < short_s or (again is not None and not is_long):
            return tried
        seconds = min(max(long_s, left / (trials_left(ratio) + 0.5)), left) if is_long else short_s
        one = replace((yield rate, seconds), is_long=is_long)
        tried = [other for other in tried if other is not again and not _is_refuted(other, one)] + [one]
        again = None
        held, failed = bracket_of(tried)
        if held is None or failed is None:
            rate = rate * factor if one.is_held else rate / factor
            factor = min(factor**2, MOST_FACTOR)
        elif not held.is_long and failed.rate_per_s <= held.rate_per_s * NEAR_RATIO:
            again = held  # a dozen requests often stay within limits above the rate that can hold
            rate = held.rate_per_s
        elif failed.rate_per_s > held.rate_per_s * CLOSE_ENOUGH:
            rate = math.sqrt(held.rate_per_s * failed.rate_per_s)
        elif not held.is_long or not failed.is_long:
            again = failed if held.is_long else held
            rate = again.rate_per_s
        elif not is_checked:  # by chance both may have been wrong
            rate, is_checked = limit_of(tried, load.attained_share) or rate, True
        else:
            return tried


def trials_left(ratio: float) -> int:
    """How many more halve an interval of this ratio until its ends are close, and then check it."""
    halvings = math.ceil(math.log2(max(math.log(ratio) / math.log(CLOSE_ENOUGH), 1.0)))
    return halvings + 1


def _is_refuted(earlier: TriedRate, now: TriedRate) -> bool:
    """Whether a longer trial says otherwise."""
    if earlier.is_long or not now.is_long:
        return False
    if now.is_held:
        return not earlier.is_held and earlier.rate_per_s <= now.rate_per_s
    return earlier.is_held and earlier.rate_per_s >= now.rate_per_s


def is_known(tried: Sequence[TriedRate]) -> bool:
    """Whether the limit lies between two near rates, with enough requests at the lower."""
    held, failed = bracket_of(tried)
    if held is None or failed is None or held.requests < LEAST_FOR_LIMIT:
        return False
    return failed.rate_per_s <= held.rate_per_s * MOST_INTERPOLATED


def limit_of(tried: Sequence[TriedRate], attained_share: float) -> float | None:
    """The rate at which the share of good requests falls below the wanted one; None without a bracket.

    The share can only fall as the rate rises, so shares that rise are pooled, weighted by their requests
    (isotonic regression; Barlow et al. 1972). Between two pools it falls evenly with the logarithm of the
    rate.
    """
    if None in bracket_of(tried):
        return None
    pools: list[tuple[float, float, float]] = []  # requests, sum of shares, sum of logarithms of rates
    for one in sorted(tried, key=lambda t: t.rate_per_s):
        share = one.good_share if one.is_held else min(one.good_share, attained_share)
        pools.append((one.requests, one.requests * share, one.requests * math.log(one.rate_per_s)))
        while len(pools) > 1 and pools[-1][1] / pools[-1][0] > pools[-2][1] / pools[-2][0]:
            last, before = pools.pop(), pools.pop()
            pools.append((last[0] + before[0], last[1] + before[1], last[2] + before[2]))
    means = [(shares / n, logs / n) for n, shares, logs in pools]
    above = [pool for pool in means if pool[0] >= attained_share]
    below = [pool for pool in means if pool[0] < attained_share]
    if not above or not below:  # pooled into one
        return math.exp(means[-1 if above else 0][1])
    (high_share, low_log), (low_share, high_log) = above[-1], below[0]
    part = (high_share - attained_share) / (high_share - low_share)
    return math.exp(low_log + part * (high_log - low_log))
