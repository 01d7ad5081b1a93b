"""Offers loads to a server: users who wait for their answers, or arrivals that wait for nothing.

It says once a second what a load looks like, at next to no cost to the load.
"""

from __future__ import annotations

import asyncio
import math
import os
import random
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import replace
from itertools import accumulate, takewhile
from pathlib import Path
from statistics import median

from . import PlannedLoad
from .answer import OK, UNFINISHED, read_answer
from .client import Client, Exchange, LagProbe, without_collections
from .load import Ended, LoadOutcome, Sample, is_behind, tokens_within
from .request import TOKENS_PER_WORD, FilePrompts, Prompts, prompts_in
from .server import during

_PERIOD_S = 1.0
_READ_BYTES = 8192
"""Of an answer, in which its first output should be; all of a long one takes milliseconds to read."""

_WITHOUT_OUTPUT = 3
"""Events of most streams: how it finished, the usage, and the end."""


def glance(exchange: Exchange) -> tuple[float | None, float | None]:
    """Seconds to the first output of an answer, and between two of its events; None for what is not seen."""
    before = accumulate((len(read) for read in exchange.reads), initial=0)
    count = sum(1 for _ in takewhile(lambda taken: taken < _READ_BYTES, before))
    beginning, stamps = exchange.reads[:count], exchange.stamps_ns[:count]
    first_ns = read_answer(beginning, stamps, was_closed=False, was_stopped=True).first_ns
    if first_ns is None:
        return None, None
    events = sum(read.count(b"data:") for read in exchange.reads) - _WITHOUT_OUTPUT
    gap_s = (exchange.stamps_ns[-1] - first_ns) * 1e-9 / (events - 1) if events > 1 else None
    return (first_ns - exchange.due_ns) * 1e-9, gap_s


RETRY_S = 0.25
"""After a failure a user waits this long."""
FAILURES_IN_A_ROW = 20


class LoadGenerator:
    """Sends the requests of one launch, one load after the other. Used in the event loop's thread."""

    def __init__(
        self,
        load: PlannedLoad,
        client: Client,
        send_now: Callable[..., None],
        read_metrics: Callable[[], Mapping[str, float]],
        arrivals_seed: str,
        deadline_ns: int,
        allowance_s: float,
    ) -> None:
        """`send_now` gets the fields of a report once a second; `deadline_ns`, monotonic: when the last load
        must be over; `allowance_s`: the whole launch's time; `read_metrics` may block, in a thread.

        Raises Ended if its file of prompts has none.
        """
        self.client = client
        self.solo: list[Sample] = []
        """Requests that were answered with nothing else in flight."""
        self._load = load
        self._send_now = send_now
        self._read_metrics = read_metrics
        self._has_metrics = True
        self._seed = arrivals_seed
        self._deadline_ns = deadline_ns
        self._allowance_s = allowance_s
        self._prompts: Prompts | FilePrompts = self._random_prompts(TOKENS_PER_WORD)
        if load.prompts_path:
            try:
                self._prompts = FilePrompts(prompts_in(Path(load.prompts_path), load.api)[0], self._seed)
            except (OSError, ValueError) as error:
                why = getattr(error, "strerror", None) or error
                raise Ended("failed", f"the file of prompts: {why}") from None

    def _random_prompts(self, tokens_per_word: float) -> Prompts:
        load, of_launch = self._load, os.urandom(16)
        return Prompts(load.prompt_tokens, load.shared_tokens, of_launch, tokens_per_word, self._seed)

    async def warm_up(self) -> None:
        """Two requests alone: the first shows how many tokens a word has, the second how long one takes.

        Raises Ended if one is not answered, or without counts of tokens.
        """
        first = await self.alone()
        counted = first.answer.usage.prompt
        if counted is not None and not self._load.prompts_path:
            self._prompts = self._random_prompts(max(counted / self._prompts.words, 0.1))
        sample = await self.alone()
        self.solo = [first, sample]
        if sample.answer.usage.output is None:
            raise Ended(
                "unsupported", "the server reports no token counts (usage), and a client cannot know them"
            )

    async def alone(self) -> Sample:
        """One request with nothing else in flight. Raises Ended if it is not answered."""
        done: asyncio.Future[Exchange] = asyncio.get_running_loop().create_future()
        self.client.on_end = lambda exchange: None if done.done() else done.set_result(exchange)
        await self.client.open(1)
        self.client.send(0, self._prompts.usual(), time.monotonic_ns())
        self.client.exchanges[-1].due_ns = self.client.exchanges[-1].sent_ns or time.monotonic_ns()
        try:
            exchange = await asyncio.wait_for(done, max(self.left_s(), 0.01))
        except asyncio.TimeoutError:
            raise Ended(
                "skipped",
                f"one request alone takes longer than its {self._allowance_s:.3g} s share: raise --budget",
            ) from None
        finally:
            self.client.clear()
        answer = exchange.answer()
        if answer.outcome != OK:
            raise Ended("failed", f"a request alone was not answered: {answer.outcome}, {answer.reason}")
        return Sample(exchange, answer, False)

    async def settle(self) -> None:
        """Wait until the server answers one request about as soon as it did at first."""
        ttft_s = self.solo[-1].ttft_s or 0.0
        for _ in range(5):
            if self.left_s() < 4 * self.alone_s:
                return
            try:
                sample = await self.alone()
            except Ended:
                raise Ended(
                    "skipped", "the server stayed busy with a rate that was too high: raise --budget"
                ) from None
            if (sample.ttft_s or 0.0) <= 2 * ttft_s + 0.05:
                return

    @property
    def alone_s(self) -> float:
        return self.solo[-1].e2e_s or 0.001

    def left_s(self) -> float:
        return (self._deadline_ns - time.monotonic_ns()) * 1e-9

    def left_for_arrivals_s(self) -> float:
        """Until arrivals must end, so that the last ones are answered in time."""
        return self.left_s() - 2 * self.alone_s

    async def offer_users(self, users: int, seconds: float) -> LoadOutcome:
        """So many users for so long; the window begins when each has had an answer.

        They start spread over the time of one request: with equal lengths, those who start together stay so.
        """
        loop = asyncio.get_running_loop()
        client, prompts = self.client, self._prompts
        end_ns = time.monotonic_ns() + round(seconds * 1e9)
        over = loop.create_future()
        answered: set[int] = set()
        begins_ns = 0
        failures = 0

        def begin(user: int) -> None:
            if not over.done():
                client.send(user, prompts.next(), time.monotonic_ns())

        def on_end(exchange: Exchange) -> None:
            nonlocal begins_ns, failures
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
                if len(answered) == users:
                    begins_ns = time.monotonic_ns()
            begin(exchange.index)

        before = await self._metrics()
        client.on_end = on_end
        await client.open(users if client.has_idle else 0)
        with self._watched(users, None) as lag:
            spread_s = min(self.alone_s, seconds / 4)
            for user in range(users):
                loop.call_later(spread_s * user / users, begin, user)
            with suppress(asyncio.TimeoutError):
                await asyncio.wait_for(over, max((end_ns - time.monotonic_ns()) * 1e-9, 0.01))
            window = (begins_ns or time.monotonic_ns(), time.monotonic_ns())
            metrics = during(before, await self._metrics())
            if not over.done():
                over.set_result(None)
        for exchange in client.exchanges:  # a user is not late: it sends when it is ready
            exchange.due_ns = exchange.sent_ns or exchange.queued_ns
        return self._read(users, None, window, lag, metrics)

    async def offer_rate(self, rate: float, seconds: float, most_in_flight: int) -> LoadOutcome:
        """Poisson arrivals at a rate for so long, whatever the server does; then wait for the answers.

        The seed fixes the gaps in units of their mean, so every box gets the same arrivals. Ends early once
        more than `most_in_flight` wait.
        """
        client, prompts = self.client, self._prompts
        gaps = random.Random(self._seed)
        in_flight = math.ceil(rate * self.alone_s)
        await client.open(min(in_flight + 4, 256) if client.has_idle else 0)
        before = await self._metrics()
        idle = asyncio.Event()
        is_too_many = False

        def on_end(exchange: Exchange) -> None:
            if not client.waiting:
                idle.set()

        client.on_end = on_end
        with self._watched(None, rate) as lag:
            begun_ns = time.monotonic_ns() + 20_000_000
            at_s = 0.0
            index = 0
            while not is_too_many:
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
                is_too_many = len(client.waiting) > most_in_flight
            metrics = during(before, await self._metrics())
            idle.clear()
            if client.waiting and not is_too_many:
                wait_s = min(max(self.left_s(), 0.0), 4 * self.alone_s + 2)
                with suppress(asyncio.TimeoutError):
                    await asyncio.wait_for(idle.wait(), wait_s)
            last_ns = min(begun_ns + round(min(at_s, seconds) * 1e9), time.monotonic_ns())
        window = (begun_ns + round(min(self.alone_s, seconds / 4) * 1e9), last_ns)
        step = self._read(None, rate, window, lag, metrics)
        return replace(step, is_overloaded=is_too_many or is_behind(step, rate))

    async def _metrics(self) -> Mapping[str, float]:
        """What the server says of itself now; a server without metrics is asked once."""
        found: Mapping[str, float] = {}
        if self._has_metrics:
            found = await asyncio.get_running_loop().run_in_executor(None, self._read_metrics)
            self._has_metrics = bool(found)
        return found

    @contextmanager
    def _watched(self, users: int | None, rate: float | None) -> Iterator[LagProbe]:
        """Report on a load once a second, note how late this client is, and cut off what has not ended."""
        lag = LagProbe()
        with without_collections():
            lag.start()
            reports = asyncio.get_running_loop().create_task(self._report(users, rate))
            try:
                yield lag
            finally:
                self.client.stop()
                reports.cancel()
                lag.stop()

    async def _report(self, users: int | None, rate: float | None) -> None:
        """Say once a second what the load looks like, at next to no cost to it."""
        client, ended, at_ns = self.client, self.client.ended_count, time.monotonic_ns()
        while True:
            await asyncio.sleep(_PERIOD_S)
            now_ns = time.monotonic_ns()
            glances = [glance(exchange) for exchange in client.newest]
            firsts = [first_s for first_s, _ in glances if first_s is not None]
            gaps = [gap_s for _, gap_s in glances if gap_s is not None]
            self._send_now(
                users=users,
                rate_per_s=rate,
                in_flight=len(client.waiting),
                ended=client.ended_count - ended,
                over_ns=now_ns - at_ns,
                ttft_s=median(firsts) if firsts else None,
                event_gap_s=median(gaps) if gaps else None,
                t_ns=now_ns,
            )
            ended, at_ns = client.ended_count, now_ns
            client.newest.clear()

    def _read(
        self,
        users: int | None,
        rate: float | None,
        window: tuple[int, int],
        lag: LagProbe,
        metrics: Mapping[str, float],
    ) -> LoadOutcome:
        """Read all recordings: slow, and the load is over."""
        resent, opened = self.client.resent, self.client.opened
        samples = []
        for exchange in self.client.clear():
            answer = exchange.answer()
            begins_in = window[0] <= exchange.due_ns < window[1]
            ends_in = bool(exchange.ended_ns) and exchange.ended_ns <= window[1]
            counts = begins_in and (users is None or (ends_in and answer.outcome != UNFINISHED))
            samples.append(Sample(exchange, answer, counts))
        counted = [sample for sample in samples if sample.counts]
        good = sum(sample.is_good(self._load) for sample in counted)
        good_share = good / len(counted) if counted else 0.0
        return LoadOutcome(
            users,
            rate,
            window,
            tuple(samples),
            tokens_within(samples, window),
            tuple(sorted(lag.lags_s)),
            lag.cpu_share,
            False,
            good_share if self._load.has_limits else None,
            resent,
            opened,
            metrics,
        )


def _went_well(exchange: Exchange) -> bool:
    """Whether an answer looks like one, without reading it."""
    return bool(exchange.reads) and exchange.reads[0][9:12] == b"200" and not exchange.is_closed
