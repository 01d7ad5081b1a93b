"""One launch of a load: finds the server, warms it up, offers the load, and reports what came of it."""

from __future__ import annotations

import asyncio
import json
import math
import os
import time
from contextlib import suppress
from dataclasses import asdict
from functools import partial
from pathlib import Path
from typing import Any  # Any: the JSON of a launch

from ..channel import Channel
from ..foreign_json import read_json_file
from .answer import OK
from .client import Client, event_loop
from .load import (
    MOST_IN_FLIGHT,
    OPEN,
    SEARCH,
    Ended,
    Load,
    LoadOutcome,
    LoadReport,
    check_answers,
    check_client,
    client_bottleneck,
    mean,
    queue_text,
    times_text,
)
from .offering import LoadGenerator
from .request import Body, address_of, is_own
from .search import (
    MOST_FACTOR,
    SearchStart,
    SearchTerms,
    Trial,
    TriedRate,
    bracket_of,
    is_known,
    limit_of,
    limit_search,
)
from .server import ServerError, find_server, path_of, read_metrics

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


class LoadLaunch:
    """Offers the load of one launch and reports on a channel. Used by the main thread."""

    def __init__(
        self, described: dict[str, Any], channel: Channel, started_ns: int, notes: Path | None = None
    ) -> None:
        """`notes`: a directory that the launches of a run share; each leaves there what helps the next."""
        self._load = Load(**described["cases"][0]["load"])
        self._report = LoadReport(self._load, channel)
        self._allowance_s = float(described["allowance_s"])
        self._deadline_ns = started_ns + round(self._allowance_s * (1 - END_SHARE) * 1e9)
        self._arrivals_seed = f"{int(described['seed'])} {int(described['replicate'])}"
        self._notes = SearchNotes(notes, self._load)
        self._key = os.environ.get(self._load.key_name, "") if self._load.key_name else ""
        self._offers: LoadGenerator

    def run(self) -> None:
        """Measure until the launch's time is up."""
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
        load = self._load
        body = Body(
            load.api,
            load.model,
            load.output_tokens,
            load.limit_name,
            load.ignores_eos,
            load.asks_usage,
            load.extra,
            bool(load.prompts_path) and load.api == "chat",
        )
        address = address_of(load.url)
        client = Client(address, path_of(address, load.api), body.around(), self._key, lambda exchange: None)
        self._offers = LoadGenerator(
            load,
            client,
            self._report.now,
            partial(read_metrics, address, self._key),
            self._arrivals_seed,
            self._deadline_ns,
            self._allowance_s,
        )
        try:
            begun_ns = time.monotonic_ns()
            await self._offers.warm_up()
            first_ns, second_ns = (sample.exchange.ended_ns for sample in self._offers.solo)
            self._report.warm(
                build_ns=0,
                first_step_ns=max(first_ns - begun_ns, 0),
                warmup_ns=max(second_ns - first_ns, 0),
                t_ns=time.monotonic_ns(),
            )
            if load.kind == SEARCH:
                await self._search()
            elif load.kind == OPEN:
                self._report_fixed(await self._fixed_rate())
            else:
                self._report_fixed(await self._fixed_users())
        finally:
            await client.close()

    async def _fixed_users(self) -> LoadOutcome:
        seconds, alone_s = self._offers.left_s(), self._offers.alone_s
        if seconds < LEAST_REQUESTS * alone_s:
            raise self._too_slow(f"a request alone takes {alone_s:.3g} s")
        return await self._offers.offer_users(self._load.users, seconds)

    async def _fixed_rate(self) -> LoadOutcome:
        seconds, rate = self._offers.left_for_arrivals_s(), self._load.rate_per_s
        if seconds * rate < LEAST_REQUESTS:
            raise self._too_slow(f"{rate:g} requests a second are too few for {seconds:.3g} s")
        return await self._offers.offer_rate(rate, seconds, MOST_IN_FLIGHT)

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
        if step.users is not None:
            self._notes.write_users(answered / step.window_s, step.good_share)

    def _too_slow(self, what: str) -> Ended:
        share = f"its {self._allowance_s:.3g} s share"
        return Ended("skipped", f"too slow for {share} ({what}): raise --budget")

    # --- the search

    async def _search(self) -> None:
        """Find the highest rate at which enough requests stay within every limit, and say where it lies."""
        load, offers = self._load, self._offers
        if not any(load.is_good(sample) for sample in offers.solo):
            raise Ended("unsupported", f"one request alone misses the limits: {times_text(offers.solo[-1])}")
        terms = SearchTerms(offers.alone_s, load.longest_wait_s, load.attained_share)
        start = self._notes.start() or SearchStart(FIRST_IN_FLIGHT / offers.alone_s, 2.0)
        search = limit_search(start, terms, offers.left_for_arrivals_s)
        offered: list[tuple[TriedRate, LoadOutcome]] = []
        try:
            trial = next(search)
            while True:
                step, is_held = await self._tried(trial)
                one = TriedRate(
                    step.offered_per_s,
                    step.good_share or 0.0,
                    is_held,
                    max(len(step.counted), 1),
                    trial.is_long,
                )
                offered.append((one, step))
                if not is_held:
                    await offers.settle()
                trial = search.send(one)
        except StopIteration as end:
            tried: list[TriedRate] = end.value
        self._notes.write_tried(tried)
        held = [step for one, step in offered if one.is_held and one in tried]
        limit = limit_of(tried, load.attained_share) if held and is_known(tried) else None
        if limit is None:
            raise self._without_limit(tried)
        self._notes.write_limit(limit)
        best = min(held, key=lambda step: abs(math.log(step.offered_per_s / limit)))
        counted = len(best.counted)
        tokens = mean([float(s.answer.usage.output or 0) for s in best.counted if s.answer.outcome == OK])
        title = "output tokens at the limit"
        self._report.figure("output_tokens_per_s", title, "1/s", "more", limit * tokens, counted)
        self._report.figures(best)
        # The limit lies between two rates that were offered, so no window has it: the block says how long as
        # many requests as were counted take at the limit, from when they were.
        self._report.block(best.window_ns[0], round(counted / limit * 1e9), max(counted, 1))

    async def _tried(self, trial: Trial) -> tuple[LoadOutcome, bool]:
        """Offer a rate; whether it held. Once more if the client was late, then raises Ended."""
        load, offers = self._load, self._offers
        most = load.most_in_flight(trial.rate_per_s, offers.alone_s)
        step = await offers.offer_rate(trial.rate_per_s, trial.seconds, most)
        self._report.step(step)
        if client_bottleneck(step) and offers.left_for_arrivals_s() > trial.seconds:
            await offers.settle()
            step = await offers.offer_rate(trial.rate_per_s, trial.seconds, most)
            self._report.step(step)
        check_client(step)
        check_answers(step, offers.client.failure)
        is_held = (step.good_share or 0.0) >= load.attained_share and not step.is_overloaded
        return step, is_held

    def _without_limit(self, tried: list[TriedRate]) -> Ended:
        held, failed = bracket_of(tried)
        if held is None and failed is None:
            return self._too_slow("not one rate could be offered for long enough")
        if held is None or failed is None:
            which = "before a rate failed" if held else "before a rate held"
        else:
            which = "before these were close enough"
        return Ended("skipped", f"its {self._allowance_s:.3g} s ended {which}: raise --budget")


class SearchNotes:
    """What launches of one run leave for its searches, in files of a directory; without one, nothing."""

    def __init__(self, directory: Path | None, load: Load) -> None:
        self._directory = directory
        self._load = load

    def write_users(self, rate_per_s: float, good_share: float | None) -> None:
        """How many requests so many users got answered, and whether enough were good."""
        if good_share is not None:
            is_good = good_share >= self._load.attained_share
            self._write(f"users-{self._load.users}", {"rate_per_s": rate_per_s, "is_good": is_good})

    def write_tried(self, tried: list[TriedRate]) -> None:
        """Between which rates the limit lies, if the search ended before it was known."""
        ends = [one for one in bracket_of(tried) if one is not None]
        self._write(f"tried-{self._load.case_id}", [asdict(one) for one in ends])

    def write_limit(self, limit_per_s: float) -> None:
        self._write(f"limit-{self._load.case_id}", {"rate_per_s": limit_per_s})

    def start(self) -> SearchStart | None:
        """Near the limit that another launch found, else between the rates it left, else as users say."""
        limit = self._read(f"limit-{self._load.case_id}")
        if limit:
            return SearchStart(limit["rate_per_s"] / math.sqrt(KNOWN_FACTOR), KNOWN_FACTOR)
        known = tuple(TriedRate(**one) for one in self._read(f"tried-{self._load.case_id}") or ())
        if known:
            rates = [one.rate_per_s for one in known]
            return SearchStart(math.sqrt(min(rates) * max(rates)), MOST_FACTOR, known)
        found = self._directory.glob("users-*.json") if self._directory else ()
        users = [note for path in sorted(found) if (note := self._read(path.stem))]
        good = [note["rate_per_s"] for note in users if note["is_good"]]
        if not good:
            return None
        if len(good) == len(users):  # more users might get more
            return SearchStart(max(good), OF_USERS_FACTOR)
        return SearchStart(OF_USERS_SHARE * max(good), OF_USERS_FACTOR)

    def _read(self, name: str) -> Any:
        """A note; None if there is none."""
        if self._directory is None:
            return None
        with suppress(OSError, ValueError):
            return read_json_file(self._directory / f"{name}.json")
        return None

    def _write(self, name: str, note: object) -> None:
        if self._directory is not None:
            with suppress(OSError):
                (self._directory / f"{name}.json").write_text(json.dumps(note))
