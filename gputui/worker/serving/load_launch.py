"""One launch of a load: finds the server, warms it up, offers the load, and reports what came of it."""

from __future__ import annotations

import asyncio
import hashlib
import json
import math
import os
import random
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any  # Any: the JSON of a launch

from ..channel import Channel
from .address import address_of, is_own
from .answer import EMPTY, OK, UNFINISHED, UNREACHABLE, ServerAnswer
from .client import Client, Exchange, LagProbe, event_loop, without_collections
from .now import NowReport
from .prompts import TOKENS_PER_WORD, Body, Prompts
from .search import KEEPS_UP_SHARE, TriedRate, is_growing, limit_of, next_rate
from .server import ServerError, find_server, path_of

CLOSED, OPEN, SEARCH = KINDS = ("closed", "open", "search")
"""A fixed number of users, each with one request at a time; arrivals at a fixed rate; the highest rate that
holds."""
MOST_IN_FLIGHT = 4000
END_SHARE = 0.08
"""Of a launch, for reading the answers and for its exit."""
RETRY_S = 0.25
"""After a failure a user waits this long."""
FAILURES_IN_A_ROW = 20
LEAST_REQUESTS = 3
"""That began and ended within the window; with fewer there is nothing to report."""
RAMP_REQUESTS = 16
"""Of a rate that is far from the limit."""
QUEUED_LIMITS = 2.0
"""How many times the longest wait a rate is offered at first: at twice the capacity, the queue is as long
after once."""
FINE_LIMITS = 10.0
"""Likewise close to the limit: a tenth beyond the capacity, the queue is as long after ten."""
FINE_REQUESTS = 40
"""At least, of a rate close to it: the 90th percentile has an upper end from 36 on."""
FIRST_IN_FLIGHT = 2.0
"""About as many are in flight at the first rate of a search."""
NEEDED = {"p95": (0.95, 72), "p99": (0.99, 368)}
"""Requests: with fewer, the order-statistic interval (95 %) of that percentile has no upper end."""
LAG_SHARE, LEAST_LAG_S = 0.05, 0.002
"""The client is in the way if its median lag exceeds both this share of the median TTFT and this time, or if
it needs a whole CPU. Others that use its CPU for a moment lengthen the tail, which is shown."""
FIRST_FACTOR = 1.08
"""Between the first two rates close to where the limit is thought to be."""
SHORT_SHARE, LONG_SHARE = 0.12, 0.3
"""Of a launch, for one rate, before and after the limit is known to lie between two."""
MOST_CPU_SHARE = 0.9
BATCH = 200
"""Requests per message."""


@dataclass(frozen=True)
class Load:
    """A load on one server; `model.plan.PlannedLoad` has the same fields, and explains them."""

    case_id: int
    url: str
    api: str
    model: str
    key_name: str
    kind: str
    users: int
    rate_per_s: float
    prompt_tokens: int
    shared_tokens: int
    output_tokens: int
    limit_name: str
    ignores_eos: bool
    asks_usage: bool
    ttft_s: float | None
    tpot_s: float | None
    e2e_s: float | None
    attained_share: float


@dataclass(frozen=True)
class Sample:
    """One request that was read. Instants are monotonic nanoseconds."""

    exchange: Exchange
    answer: ServerAnswer
    counts: bool
    """Whether it belongs to the window."""

    @property
    def from_ns(self) -> int:
        return self.exchange.due_ns

    @property
    def ttft_s(self) -> float | None:
        first = self.answer.first_ns
        return None if first is None else (first - self.from_ns) * 1e-9

    @property
    def e2e_s(self) -> float | None:
        last = self.answer.last_ns
        return None if last is None or self.answer.outcome != OK else (last - self.from_ns) * 1e-9

    @property
    def tpot_s(self) -> float | None:
        first, last, tokens = self.answer.first_ns, self.answer.last_ns, self.answer.usage.output
        if self.answer.outcome != OK or first is None or last is None or tokens is None or tokens < 2:
            return None
        return (last - first) * 1e-9 / (tokens - 1)


@dataclass(frozen=True)
class LoadOutcome:
    """What came of one load: a number of users, or a rate."""

    kind: str
    users: int | None
    rate_per_s: float | None
    window_ns: tuple[int, int]
    samples: tuple[Sample, ...]
    output_tokens: float
    """Within the window."""
    lags_s: tuple[float, ...]
    cpu_share: float
    is_overloaded: bool
    good_share: float | None
    """Of the requests that count; None without limits."""
    resent: int
    opened: int

    @property
    def window_s(self) -> float:
        return (self.window_ns[1] - self.window_ns[0]) * 1e-9

    @property
    def offered_per_s(self) -> float:
        """Arrivals in the window over its length: chance makes it differ from the rate that was meant."""
        return (
            len(self.counted) / self.window_s
            if self.counted and self.window_s > 0
            else self.rate_per_s or 0.0
        )

    @property
    def counted(self) -> list[Sample]:
        return [sample for sample in self.samples if sample.counts]

    def values(self, of: Callable[[Sample], float | None]) -> list[float]:
        """A time of every answered request that counts, ascending; those without it left out."""
        found = [of(sample) for sample in self.counted if sample.answer.outcome == OK]
        return sorted(value for value in found if value is not None)


class _Ended(Exception):
    """The case ended before it was measured."""

    def __init__(self, outcome: str, reason: str) -> None:
        super().__init__(reason)
        self.outcome = outcome
        self.reason = reason


class LoadLaunch:
    """Offers the load of one launch and reports on a channel. Used by the main thread."""

    def __init__(
        self, described: dict[str, Any], channel: Channel, started_ns: int, notes: Path | None = None
    ) -> None:
        """`notes`: a directory that the launches of a run share; each leaves there what helps the next."""
        self._load = Load(**described["cases"][0]["load"])
        self._channel = channel
        self._allowance_s = float(described["allowance_s"])
        usable_s = self._allowance_s * (1 - END_SHARE)
        self._deadline_ns = started_ns + round(usable_s * 1e9)
        self._replicate = int(described["replicate"])
        self._seed = int(described["seed"])
        self._notes = None if notes is None else notes / f"limit-{self._load.case_id}.json"
        self._key = os.environ.get(self._load.key_name, "") if self._load.key_name else ""
        self._blocks = 0
        self._steps = 0
        self._client: Client
        self._prompts: Prompts
        self._on_end: Callable[[Exchange], None] = lambda exchange: None
        self._solo: list[Sample] = []
        self._loop_name = ""

    def run(self) -> None:
        """Measure until the launch's time is up."""
        outcome, reason = "ok", ""
        try:
            address = address_of(self._load.url)
            found = find_server(address, self._key)
            self._send(
                "server",
                engine=found.engine,
                version=found.version,
                context_tokens=found.context_tokens,
                slots=found.slots,
                is_here=is_own(address.host),
                t_ns=time.monotonic_ns(),
            )
            loop, self._loop_name = event_loop()
            try:
                measuring = loop.create_task(self._measured())

                def fail(loop: asyncio.AbstractEventLoop, context: dict[str, Any]) -> None:
                    loop.default_exception_handler(context)  # into the log
                    measuring.cancel()

                loop.set_exception_handler(fail)
                loop.run_until_complete(measuring)
            finally:
                loop.close()
        except _Ended as end:
            outcome, reason = end.outcome, end.reason
        except ServerError as error:
            outcome, reason = "failed", error.message
        except OSError as error:
            outcome, reason = "failed", f"no connection to the server: {error.strerror or error}"
        self._send("case_end", outcome=outcome, reason=reason, blocks=self._blocks, t_ns=time.monotonic_ns())

    async def _measured(self) -> None:
        load = self._load
        body = Body(
            load.api, load.model, load.output_tokens, load.limit_name, load.ignores_eos, load.asks_usage
        )
        address = address_of(load.url)
        self._client = Client(
            address, path_of(address, load.api), body.around(), self._key, lambda e: self._on_end(e)
        )
        try:
            await self._warm_up()
            if load.kind == SEARCH:
                await self._search()
            elif load.kind == OPEN:
                await self._fixed_rate()
            else:
                await self._fixed_users()
        finally:
            await self._client.close()

    # --- before the load

    def _new_prompts(self, tokens_per_word: float) -> Prompts:
        load = self._load
        return Prompts(load.prompt_tokens, load.shared_tokens, os.urandom(16), tokens_per_word)

    async def _warm_up(self) -> None:
        """Two requests alone: the first shows how many tokens a word has, the second how long one takes."""
        begun_ns = time.monotonic_ns()
        self._prompts = self._new_prompts(TOKENS_PER_WORD)
        first = await self._alone()
        counted = first.answer.usage.prompt
        if counted is not None:
            self._prompts = self._new_prompts(max(counted / self._prompts.words, 0.1))
        sample = await self._alone()
        self._solo = [first, sample]
        if sample.answer.usage.output is None:
            raise _Ended(
                "unsupported", "the server reports no token counts (usage), and a client cannot know them"
            )
        self._send(
            "warm",
            precision_used="own",
            build_ns=0,
            first_step_ns=max(first.exchange.ended_ns - begun_ns, 0),
            warmup_ns=max(sample.exchange.ended_ns - first.exchange.ended_ns, 0),
            warmup_blocks=0,
            stable=None,
            steps_per_block=1,
            t_ns=time.monotonic_ns(),
        )

    async def _alone(self) -> Sample:
        """One request with nothing else in flight. Raises _Ended if it is not answered."""
        done: asyncio.Future[Exchange] = asyncio.get_running_loop().create_future()
        self._on_end = lambda exchange: None if done.done() else done.set_result(exchange)
        await self._client.open(1)
        self._client.send(0, self._prompts.next(), time.monotonic_ns())
        self._client.exchanges[-1].due_ns = self._client.exchanges[-1].sent_ns or time.monotonic_ns()
        try:
            exchange = await asyncio.wait_for(done, max(self._left_s(), 0.01))
        except asyncio.TimeoutError:
            raise _Ended(
                "skipped",
                f"one request alone takes longer than its {self._allowance_s:.3g} s share: raise --budget",
            ) from None
        finally:
            self._client.clear()
        answer = exchange.answer()
        if answer.outcome != OK:
            raise _Ended("failed", f"a request alone was not answered: {answer.outcome}, {answer.reason}")
        return Sample(exchange, answer, False)

    async def _settle(self) -> None:
        """Wait until the server answers one request about as soon as it did at first."""
        ttft_s = self._solo[-1].ttft_s or 0.0
        for _ in range(5):
            if self._left_s() < 4 * self._alone_s:
                return
            try:
                sample = await self._alone()
            except _Ended:
                raise _Ended(
                    "skipped", "the server stayed busy with a rate that was too high: raise --budget"
                ) from None
            if (sample.ttft_s or 0.0) <= 2 * ttft_s + 0.05:
                return

    @property
    def _alone_s(self) -> float:
        return self._solo[-1].e2e_s or 0.001

    def _left_s(self) -> float:
        return (self._deadline_ns - time.monotonic_ns()) * 1e-9

    # --- the loads

    async def _fixed_users(self) -> None:
        users = self._load.users
        seconds = self._left_s()
        if seconds < LEAST_REQUESTS * self._alone_s:
            raise self._too_slow(f"a request alone takes {self._alone_s:.3g} s")
        step = await self._closed(users, seconds)
        self._report(step)
        self._check_client(step)
        if len(step.values(lambda s: s.e2e_s)) < LEAST_REQUESTS:
            self._check_answers(step)
            counted = len(step.counted)
            requests = "1 request" if counted == 1 else f"{counted} requests"
            raise self._too_slow(f"{requests} began and ended within its window")
        self._send_figures(step)
        self._send_block(step.window_ns[0], step.window_ns[1] - step.window_ns[0], step.output_tokens)

    async def _fixed_rate(self) -> None:
        rate = self._load.rate_per_s
        seconds = self._left_s() - 2 * self._alone_s
        if seconds * rate < LEAST_REQUESTS:
            raise self._too_slow(f"{rate:g} requests a second are too few for {seconds:.3g} s")
        step = await self._open(rate, seconds, MOST_IN_FLIGHT)
        self._report(step)
        self._check_client(step)
        if step.is_overloaded:
            raise _Ended("unsupported", f"overloaded at {rate:g} requests/s: {_queue_text(step)}")
        if len(step.values(lambda s: s.e2e_s)) < LEAST_REQUESTS:
            self._check_answers(step)
            raise self._too_slow(f"only {len(step.counted)} requests count")
        self._send_figures(step)
        self._send_block(step.window_ns[0], step.window_ns[1] - step.window_ns[0], step.output_tokens)

    async def _search(self) -> None:
        """Find the highest rate at which enough requests stay within every limit, and say where it lies."""
        load = self._load
        if not any(self._is_good(sample) for sample in self._solo):
            raise _Ended("unsupported", f"one request alone misses the limits: {_times_text(self._solo[-1])}")
        about = self._known_limit() or await self._about_the_limit()
        tried: list[TriedRate] = []
        steps: list[LoadOutcome] = []
        rate: float | None = about / math.sqrt(FIRST_FACTOR)
        factor = FIRST_FACTOR
        is_checked = False
        while rate is not None:
            least_s = max(FINE_REQUESTS / rate, 4 * self._alone_s, FINE_LIMITS * self._longest_wait_s)
            share = LONG_SHARE if _has_bracket(tried) else SHORT_SHARE
            seconds = max(least_s, min(self._left_for_arrivals_s(), self._allowance_s * share))
            if self._left_for_arrivals_s() < least_s:
                if not tried:
                    raise self._too_slow(f"the first rate to try takes {least_s:.3g} s, more than was left")
                break
            step, is_held = await self._tried(rate, seconds)
            steps.append(step)
            tried.append(
                TriedRate(step.offered_per_s, step.good_share or 0.0, is_held, max(len(step.counted), 1))
            )
            if _has_bracket(tried):
                rate = next_rate(tried)
                if rate is None and not is_checked:  # both ends may have been short
                    rate, is_checked = limit_of(tried, load.attained_share), True
            else:
                rate, factor = rate * (factor if is_held else 1 / factor), factor**2
            if not is_held and rate is not None:
                await self._settle()
        limit = limit_of(tried, load.attained_share)
        if limit is None:
            self._raise_without_limit(tried)
            return
        self._note_limit(limit)
        best = min(
            (step for step, one in zip(steps, tried, strict=True) if one.is_held),
            key=lambda step: abs(math.log(step.offered_per_s / limit)),
        )
        tokens = _mean([float(s.answer.usage.output or 0) for s in best.counted if s.answer.outcome == OK])
        self._figure(
            "output_tokens_per_s",
            "output tokens at the limit",
            "1/s",
            "more",
            limit * tokens,
            len(best.counted),
        )
        self._send_figures(best)
        # The limit lies between two rates that were offered, so no window has it: the block says how long as
        # many requests as were counted take at the limit, from when they were.
        self._send_block(best.window_ns[0], round(len(best.counted) / limit * 1e9), float(len(best.counted)))

    async def _about_the_limit(self) -> float:
        """The highest rate that held for a moment, where twice as many did not."""
        rate = FIRST_IN_FLIGHT / self._alone_s
        held: float | None = None
        while True:
            seconds = max(RAMP_REQUESTS / rate, 4 * self._alone_s, QUEUED_LIMITS * self._longest_wait_s)
            if self._left_for_arrivals_s() < seconds:
                raise self._too_slow(f"{rate:.3g} requests a second must be offered for {seconds:.3g} s")
            _, is_held = await self._tried(rate, seconds)
            if is_held:
                if held is None or rate > held:
                    held = rate
                if rate < FIRST_IN_FLIGHT / self._alone_s:
                    return held
                rate *= 2
            else:
                await self._settle()
                if held is not None:
                    return held
                rate /= 2

    async def _tried(self, rate: float, seconds: float) -> tuple[LoadOutcome, bool]:
        """Offer a rate; whether it held. Once more if the client was late, then raises _Ended."""
        step = await self._open(rate, seconds, self._most_in_flight(rate))
        self._report(step)
        if self._why_client(step) and self._left_for_arrivals_s() > seconds:
            await self._settle()
            step = await self._open(rate, seconds, self._most_in_flight(rate))
            self._report(step)
        self._check_client(step)
        self._check_answers(step)
        is_held = (step.good_share or 0.0) >= self._load.attained_share and not step.is_overloaded
        return step, is_held

    @property
    def _longest_wait_s(self) -> float:
        """A request that waits longer misses its limits."""
        limits = [limit for limit in (self._load.ttft_s, self._load.e2e_s) if limit is not None]
        return min(limits, default=0.0)

    def _left_for_arrivals_s(self) -> float:
        """Until arrivals must end, so that the last ones are answered in time."""
        return self._left_s() - 2 * self._alone_s

    def _most_in_flight(self, rate: float) -> int:
        """Beyond, requests surely miss their limits: twice what is in flight if each just meets them."""
        load = self._load
        longest_s = load.e2e_s or math.inf
        if load.tpot_s is not None:
            first_s = load.ttft_s if load.ttft_s is not None else self._alone_s
            longest_s = min(longest_s, first_s + load.tpot_s * load.output_tokens)
        if math.isinf(longest_s):
            longest_s = (load.ttft_s or 0.0) + 4 * self._alone_s
        return min(MOST_IN_FLIGHT, math.ceil(2 * rate * longest_s + 8 * math.sqrt(rate * longest_s) + 16))

    def _raise_without_limit(self, tried: Sequence[TriedRate]) -> None:
        highest = max((t.rate_per_s for t in tried if t.is_held), default=None)
        if highest is None:
            lowest = min(t.rate_per_s for t in tried)
            raise _Ended(
                "skipped",
                f"the limits were missed at every rate down to {lowest:.3g} requests/s: raise --budget",
            )
        raise _Ended(
            "skipped",
            f"{highest:.3g} requests/s hold, and its {self._allowance_s:.3g} s end before any rate fails:"
            " raise --budget",
        )

    def _known_limit(self) -> float | None:
        """Where an earlier launch of this run found the limit."""
        if self._notes is None:
            return None
        with suppress(OSError, ValueError, KeyError, TypeError):
            return float(json.loads(self._notes.read_text())["rate_per_s"])
        return None

    def _note_limit(self, limit: float) -> None:
        if self._notes is not None:
            with suppress(OSError):
                self._notes.write_text(json.dumps({"rate_per_s": limit}))

    async def _closed(self, users: int, seconds: float) -> LoadOutcome:
        """So many users for so long; the window begins when each has had an answer.

        They start spread over the time of one request: with equal lengths, those who start together stay so.
        """
        loop = asyncio.get_running_loop()
        client, prompts = self._client, self._prompts
        end_ns = time.monotonic_ns() + round(seconds * 1e9)
        over = loop.create_future()
        unanswered = users
        begins_ns = 0
        failures = 0

        def begin(user: int) -> None:
            if not over.done():
                client.send(user, prompts.next(), time.monotonic_ns())

        def on_end(exchange: Exchange) -> None:
            nonlocal unanswered, begins_ns, failures
            if over.done():
                return
            if not _went_well(exchange):
                failures += 1
                if failures >= FAILURES_IN_A_ROW:
                    over.set_result(None)
                    return
                loop.call_later(RETRY_S, begin, exchange.index)
                return
            failures = 0
            if exchange.index not in answered:
                answered.add(exchange.index)
                unanswered -= 1
                if not unanswered:
                    begins_ns = time.monotonic_ns()
            begin(exchange.index)

        answered: set[int] = set()
        self._on_end = on_end
        await client.open(users if self._reuses() else 0)
        lag = LagProbe()
        with without_collections():
            lag.start()
            now = self._now(users, None)
            spread_s = min(self._alone_s, seconds / 4)
            for user in range(users):
                loop.call_later(spread_s * user / users, begin, user)
            with suppress(asyncio.TimeoutError):
                await asyncio.wait_for(over, max((end_ns - time.monotonic_ns()) * 1e-9, 0.01))
            if not over.done():
                over.set_result(None)
            window = (begins_ns or time.monotonic_ns(), time.monotonic_ns())
            client.stop()
            now.stop()
            cpu_share = lag.stop()
        for exchange in client.exchanges:  # a user is not late: it sends when it is ready
            exchange.due_ns = exchange.sent_ns or exchange.queued_ns
        return self._read(CLOSED, users, None, window, lag, cpu_share, is_closed_loop=True)

    async def _open(self, rate: float, seconds: float, most_in_flight: int) -> LoadOutcome:
        """Poisson arrivals at a rate for so long, whatever the server does; then wait for the answers.

        The seed fixes the gaps in units of their mean, so every box gets the same arrivals. Ends early once
        more than `most_in_flight` wait.
        """
        client, prompts = self._client, self._prompts
        gaps = random.Random(f"{self._seed} {self._replicate}")
        in_flight = math.ceil(rate * self._alone_s)
        await client.open(min(in_flight + 4, 256) if self._reuses() else 0)
        idle = asyncio.Event()
        is_open = True
        is_too_many = False

        def on_end(exchange: Exchange) -> None:
            if not client.waiting:
                idle.set()

        self._on_end = on_end
        lag = LagProbe()
        with without_collections():
            lag.start()
            now = self._now(None, rate)
            begun_ns = time.monotonic_ns() + 20_000_000
            at_s = 0.0
            index = 0
            while is_open:
                at_s += gaps.expovariate(1.0) / rate
                if at_s > seconds:
                    break
                due_ns = begun_ns + round(at_s * 1e9)
                wait_s = (due_ns - time.monotonic_ns()) * 1e-9
                if wait_s > 0:
                    await asyncio.sleep(wait_s)
                elif index % 8 == 7:
                    await asyncio.sleep(0)  # late: reads come first
                client.send(index, prompts.next(), due_ns)
                index += 1
                if len(client.waiting) > most_in_flight:
                    is_too_many, is_open = True, False
            idle.clear()
            if client.waiting and not is_too_many:
                wait_s = min(max(self._left_s(), 0.0), 4 * self._alone_s + 2)
                with suppress(asyncio.TimeoutError):
                    await asyncio.wait_for(idle.wait(), wait_s)
            last_ns = min(begun_ns + round(min(at_s, seconds) * 1e9), time.monotonic_ns())
            client.stop()
            now.stop()
            cpu_share = lag.stop()
        window = (begun_ns + round(min(self._alone_s, seconds / 4) * 1e9), last_ns)
        step = self._read(OPEN, None, rate, window, lag, cpu_share, is_closed_loop=False)
        return replace(step, is_overloaded=is_too_many or _is_behind(step, rate))

    def _now(self, users: int | None, rate: float | None) -> NowReport:
        """Report on the load that begins now, once a second until it is stopped."""

        def send(**fields: object) -> None:
            self._send("load_now", step_index=self._steps, users=users, rate_per_s=rate, **fields)

        report = NowReport(self._client, send)
        report.start()
        return report

    def _reuses(self) -> bool:
        """Whether the server keeps connections open: those of llama.cpp occupy a thread each meanwhile."""
        return self._client.has_idle

    def _read(
        self,
        kind: str,
        users: int | None,
        rate: float | None,
        window: tuple[int, int],
        lag: LagProbe,
        cpu_share: float,
        *,
        is_closed_loop: bool,
    ) -> LoadOutcome:
        """Read all recordings: slow, and the load is over."""
        resent, opened = self._client.resent, self._client.opened
        samples = []
        for exchange in self._client.clear():
            answer = exchange.answer()
            begins_in = window[0] <= exchange.due_ns < window[1]
            ends_in = bool(exchange.ended_ns) and exchange.ended_ns <= window[1]
            counts = begins_in and (not is_closed_loop or (ends_in and answer.outcome != UNFINISHED))
            samples.append(Sample(exchange, answer, counts))
        step = LoadOutcome(
            kind,
            users,
            rate,
            window,
            tuple(samples),
            _tokens_within(samples, window),
            tuple(sorted(lag.lags_s)),
            cpu_share,
            False,
            None,
            resent,
            opened,
        )
        if not self._has_limits():
            return step
        counted = step.counted
        good = sum(self._is_good(sample) for sample in counted)
        return replace(step, good_share=good / len(counted) if counted else 0.0)

    # --- judging

    def _has_limits(self) -> bool:
        return any(limit is not None for limit in (self._load.ttft_s, self._load.tpot_s, self._load.e2e_s))

    def _is_good(self, sample: Sample) -> bool:
        """Whether an answer stayed within every limit; one token has no TPOT, so only the others count."""
        if sample.answer.outcome != OK:
            return False
        pairs = [(self._load.ttft_s, sample.ttft_s), (self._load.e2e_s, sample.e2e_s)]
        tokens = sample.answer.usage.output
        if tokens is None or tokens > 1:
            pairs.append((self._load.tpot_s, sample.tpot_s))
        return all(limit is None or (value is not None and value <= limit) for limit, value in pairs)

    def _check_client(self, step: LoadOutcome) -> None:
        """Raise _Ended if this process may have been slower than the server."""
        why = self._why_client(step)
        if why:
            raise _Ended("skipped", f"the client was the bottleneck: {why}; not judged")

    def _why_client(self, step: LoadOutcome) -> str:
        """Why this process may have been slower than the server; empty if it was not."""
        lag_s = _quantile(step.lags_s, 0.5)
        ttft_s = _quantile(step.values(lambda s: s.ttft_s), 0.5)
        if step.cpu_share > MOST_CPU_SHARE:
            return f"it used {100 * step.cpu_share:.0f} % of a CPU"
        if lag_s is not None and ttft_s is not None and lag_s > max(LAG_SHARE * ttft_s, LEAST_LAG_S):
            late = f"half of its wake-ups were {1e3 * lag_s:.1f} ms late"
            return f"{late}, beside a median TTFT of {1e3 * ttft_s:.1f} ms"
        return ""

    def _check_answers(self, step: LoadOutcome) -> None:
        """Raise _Ended if no request was answered."""
        ended = [sample for sample in step.samples if sample.answer.outcome != UNFINISHED]
        if ended and not any(sample.answer.outcome == OK for sample in ended):
            outcome, reason = ended[-1].answer.outcome, ended[-1].answer.reason
            if outcome == UNREACHABLE and self._client.failure:
                reason = self._client.failure
            raise _Ended("failed", f"no request of {len(ended)} was answered: {outcome}, {reason}")

    def _too_slow(self, what: str) -> _Ended:
        return _Ended("skipped", f"too slow for its {self._allowance_s:.3g} s share ({what}): raise --budget")

    # --- reporting

    def _send(self, kind: str, **fields: object) -> None:
        self._channel.send(kind, case_id=self._load.case_id, **fields)

    def _send_block(self, start_ns: int, wall_ns: int, units: float) -> None:
        self._send(
            "block",
            index=self._blocks,
            steps=max(round(units), 1),
            start_ns=start_ns,
            wall_ns=max(wall_ns, 1),
            device_ns=None,
            cpu_ns=None,
            waited_ns=None,
        )
        self._blocks += 1

    def _figure(
        self, key: str, title: str, unit: str, better: str, value: float | None, count: int, reason: str = ""
    ) -> None:
        self._send(
            "figure",
            key=key,
            title=title,
            unit=unit,
            better=better,
            combine="median",
            value=value,
            reason=reason,
            observations=count,
        )

    def _send_figures(self, step: LoadOutcome) -> None:
        for key, title, of in (
            ("ttft", "TTFT", lambda s: s.ttft_s),
            ("tpot", "TPOT", lambda s: s.tpot_s or None),  # 0: all in one piece, which tells no rate
            ("e2e", "E2E", lambda s: s.e2e_s),
        ):
            values = step.values(of)
            n = len(values)
            self._figure(
                f"{key}_p50_s", f"{title} median", "s", "less", _quantile(values, 0.5), n, "no answer has it"
            )
            for which, (quantile, needed) in NEEDED.items():
                self._figure(
                    f"{key}_{which}_s",
                    f"{title} {which}",
                    "s",
                    "less",
                    _quantile(values, quantile) if n >= needed else None,
                    n,
                    f"{n} requests: it needs {needed}",
                )
        counted = step.counted
        ok = [sample for sample in counted if sample.answer.outcome == OK]
        start_ns, end_ns = step.window_ns
        ended = sum(
            start_ns <= sample.exchange.ended_ns < end_ns and sample.answer.outcome == OK
            for sample in step.samples
        )
        rate = ended / step.window_s if step.window_s > 0 else 0.0
        self._figure("requests_per_s", "requests answered", "1/s", "more", rate, ended)
        prompt = [sample.answer.usage.prompt for sample in ok]
        prompts = sum(tokens for tokens in prompt if tokens is not None)
        if None not in prompt and ok:
            total = rate * prompts / len(ok) + step.output_tokens / step.window_s
            self._figure("total_tokens_per_s", "input and output tokens", "1/s", "more", total, len(ok))
        cached = [sample.answer.usage.cached for sample in ok]
        share = None
        if prompts and any(tokens is not None for tokens in cached):
            share = sum(tokens or 0 for tokens in cached) / prompts
        self._figure(
            "cached_share",
            "prompt tokens from a cache",
            "share",
            "neither",
            share,
            len(ok),
            "the server does not say",
        )
        asked = self._load.output_tokens
        short = sum((sample.answer.usage.output or 0) != asked for sample in ok)
        self._figure(
            "other_length_share",
            f"answers not of {asked} tokens",
            "share",
            "neither",
            short / len(ok) if ok else None,
            len(ok),
            "no answer",
        )
        failed = len(counted) - len(ok)
        self._figure(
            "failed_share",
            "requests without an answer",
            "share",
            "less",
            failed / len(counted) if counted else None,
            len(counted),
            "no request",
        )
        if step.good_share is not None:
            self._figure(
                "good_share", "requests within the limits", "share", "more", step.good_share, len(counted)
            )
        self._figure(
            "client_lag_p99_s",
            "lag of the client, p99",
            "s",
            "neither",
            _quantile(step.lags_s, 0.99),
            len(step.lags_s),
            "too short",
        )

    def _report(self, step: LoadOutcome) -> None:
        """Send a step and its requests."""
        index = self._steps
        self._steps += 1
        self._send(
            "load_step",
            step_index=index,
            load=step.kind,
            users=step.users,
            rate_per_s=step.rate_per_s,
            window_start_ns=step.window_ns[0],
            window_end_ns=max(step.window_ns[1], step.window_ns[0]),
            is_overloaded=step.is_overloaded,
            good_share=step.good_share,
            requests=len(step.samples),
            requests_counted=len(step.counted),
            output_tokens=step.output_tokens,
            in_flight_max=max((s.exchange.in_flight + 1 for s in step.samples), default=0),
            client_lag_p50_s=_quantile(step.lags_s, 0.5),
            client_lag_p99_s=_quantile(step.lags_s, 0.99),
            client_lag_max_s=step.lags_s[-1] if step.lags_s else None,
            client_cpu_share=step.cpu_share,
            client=self._loop_name,
            connections_late=step.opened,
            resent=step.resent,
        )
        rows = [_row(place, sample) for place, sample in enumerate(step.samples)]
        for start in range(0, len(rows), BATCH):
            self._send("requests", step_index=index, rows=rows[start : start + BATCH])


def _row(place: int, sample: Sample) -> dict[str, object]:
    """A request as it is stored: no text, only lengths and hashes."""
    exchange, answer = sample.exchange, sample.answer
    gaps = [b - a for a, b in zip(answer.output_ns, answer.output_ns[1:], strict=False)]
    return {
        "request_index": place,
        "counts": sample.counts,
        "due_ns": exchange.due_ns,
        "sent_ns": exchange.sent_ns or None,
        "first_ns": answer.first_ns,
        "last_ns": answer.last_ns,
        "ended_ns": exchange.ended_ns or None,
        "in_flight": exchange.in_flight,
        "outcome": answer.outcome,
        "reason": answer.reason,
        "http_status": answer.status,
        "retry_after": answer.retry_after,
        "prompt_tokens": answer.usage.prompt,
        "cached_tokens": answer.usage.cached,
        "output_tokens": answer.usage.output,
        "reasoning_tokens": answer.usage.reasoning,
        "output_events": len(answer.output_ns),
        "longest_gap_ns": max(gaps, default=None),
        "finish_reason": answer.finish_reason,
        "prompt_bytes": len(exchange.body),
        "prompt_hash": hashlib.sha256(exchange.body).hexdigest()[:16],
        "answer_bytes": len(answer.text),
        "answer_hash": hashlib.sha256(answer.text).hexdigest()[:16] if answer.text else "",
    }


def _went_well(exchange: Exchange) -> bool:
    """Whether an answer looks like one, without reading it."""
    return bool(exchange.reads) and exchange.reads[0][9:12] == b"200" and not exchange.is_closed


def _tokens_within(samples: Sequence[Sample], window: tuple[int, int]) -> float:
    """Output tokens that arrived within a window: of each request its tokens by the share of its events.

    A request that was cut off has no count, so its events weigh as much as those of the others.
    """
    tokens = events = 0
    for sample in samples:
        if sample.answer.outcome == OK and sample.answer.usage.output is not None:
            tokens += sample.answer.usage.output
            events += len(sample.answer.output_ns)
    usual = tokens / events if events else 0.0
    total = 0.0
    for sample in samples:
        answer = sample.answer
        if answer.outcome in (UNREACHABLE, EMPTY) or not answer.output_ns:
            continue
        within = sum(window[0] <= at < window[1] for at in answer.output_ns)
        has_count = answer.outcome == OK and answer.usage.output is not None
        total += within * ((answer.usage.output or 0) / len(answer.output_ns) if has_count else usual)
    return total


def _is_behind(step: LoadOutcome, rate: float) -> bool:
    """Whether the queue grew: requests in flight and TTFT rise, and fewer are completed than arrive.

    Rises alone also happen by chance in a queue that holds, by the square root of the arrivals; then it
    completes more than arrive at last.
    """
    counted = step.counted
    timed = [(s.exchange.due_ns * 1e-9, s.ttft_s, s.exchange.in_flight) for s in counted]
    known = [(at, ttft) for at, ttft, _ in timed if ttft is not None]
    grows = is_growing([at for at, _, _ in timed], [float(n) for _, _, n in timed]) and is_growing(
        [at for at, _ in known], [ttft for _, ttft in known]
    )
    quarter = max(len(timed) // 4, 1)
    first, last = (_mean([float(n) for _, _, n in part]) for part in (timed[:quarter], timed[-quarter:]))
    if not grows or last - first < math.sqrt(len(timed)):
        return False
    middle_ns = sum(step.window_ns) // 2
    done = sum(
        middle_ns <= s.exchange.ended_ns < step.window_ns[1]
        for s in step.samples
        if s.answer.outcome != UNFINISHED  # these ended because the load did
    )
    half_s = (step.window_ns[1] - middle_ns) * 1e-9
    return done / half_s < KEEPS_UP_SHARE * rate


def _queue_text(step: LoadOutcome) -> str:
    counted = step.counted
    tenth = max(len(counted) // 10, 1)
    first, last = (
        _mean([float(s.exchange.in_flight) for s in part]) for part in (counted[:tenth], counted[-tenth:])
    )
    return f"the queue grew, from {first:.0f} requests in flight to {last:.0f}"


def _times_text(sample: Sample) -> str:
    parts = [
        f"{name} {1e3 * value:.3g} ms"
        for name, value in (("TTFT", sample.ttft_s), ("TPOT", sample.tpot_s), ("E2E", sample.e2e_s))
        if value is not None
    ]
    return ", ".join(parts)


def _has_bracket(tried: Sequence[TriedRate]) -> bool:
    return any(t.is_held for t in tried) and any(not t.is_held for t in tried)


def _mean(values: Sequence[float]) -> float:
    return math.fsum(values) / len(values) if values else 0.0


def _quantile(ascending: Sequence[float], share: float) -> float | None:
    """The value below which a share lies: the order statistic of rank ceil(share * n); None of nothing."""
    if not ascending:
        return None
    return ascending[max(math.ceil(share * len(ascending)) - 1, 0)]
