"""What one load is, what came of it, whether that can be judged, and the messages that say so."""

from __future__ import annotations

import hashlib
import math
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from ..channel import CaseReport, Channel
from ..steps import percentile
from . import PlannedLoad
from .answer import EMPTY, OK, UNFINISHED, UNREACHABLE, ServerAnswer
from .client import Exchange
from .server import ServerIdentity, share_of

CLOSED, OPEN, SEARCH = KINDS = ("closed", "open", "search")
"""A fixed number of users, each with one request at a time; arrivals at a fixed rate; the highest rate that
holds."""
GROWING_T = 3.0
"""Of the slopes of requests in flight and of TTFT over time, from which both count as rising."""
KEEPS_UP_SHARE = 0.97
"""Of the offered rate: a server that completes fewer in the second half is behind."""
LEAST_FOR_GROWTH = 20
LAG_SHARE, LEAST_LAG_S = 0.05, 0.002
"""The client is in the way if its median lag exceeds both this share of the median TTFT and this time, or if
it needs a whole CPU. Others that use its CPU for a moment lengthen the tail, which is shown."""
MOST_CPU_SHARE = 0.9


@dataclass(frozen=True)
class Sample:
    """One request that was read. Instants are monotonic nanoseconds."""

    exchange: Exchange
    answer: ServerAnswer
    counts: bool
    """Whether it belongs to the window."""

    @property
    def ttft_s(self) -> float | None:
        first = self.answer.first_ns
        return None if first is None else (first - self.exchange.due_ns) * 1e-9

    @property
    def answer_s(self) -> float | None:
        """To the first token of the answer; None if the model did not think before it."""
        first, answer = self.answer.first_ns, self.answer.answer_ns
        return None if answer is None or answer == first else (answer - self.exchange.due_ns) * 1e-9

    @property
    def e2e_s(self) -> float | None:
        last = self.answer.last_ns
        return None if last is None or self.answer.outcome != OK else (last - self.exchange.due_ns) * 1e-9

    @property
    def tpot_s(self) -> float | None:
        first, last, tokens = self.answer.first_ns, self.answer.last_ns, self.answer.usage.output
        if self.answer.outcome != OK or first is None or last is None or tokens is None or tokens < 2:
            return None
        return (last - first) * 1e-9 / (tokens - 1)

    def is_good(self, load: PlannedLoad) -> bool:
        """Whether the answer stayed within every limit; one token has no TPOT, so only the others count."""
        if self.answer.outcome != OK:
            return False
        pairs = [(load.ttft_s, self.ttft_s), (load.e2e_s, self.e2e_s)]
        tokens = self.answer.usage.output
        if tokens is None or tokens > 1:
            pairs.append((load.tpot_s, self.tpot_s))
        return all(limit is None or (value is not None and value <= limit) for limit, value in pairs)


@dataclass(frozen=True)
class TriedRate:
    rate_per_s: float
    good_share: float
    """Of the requests that count, those within every limit; 0 to 1."""
    is_held: bool
    requests: int
    """That count; at least one."""
    is_long: bool = True
    """Offered for as long as a rate near the limit needs."""


@dataclass(frozen=True)
class LoadOutcome:
    """What came of one load: a number of users, or a rate."""

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
    metrics: Mapping[str, float]
    """Of the server when the window ended; its counters since the load began. Empty if it offers none."""

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

    def as_tried(self, load: PlannedLoad) -> TriedRate:
        """The step as one of a search for the highest rate that holds."""
        share = self.good_share or 0.0
        is_held = share >= load.attained_share and not self.is_overloaded
        return TriedRate(self.offered_per_s, share, is_held, max(len(self.counted), 1))

    @property
    def counted(self) -> list[Sample]:
        return [sample for sample in self.samples if sample.counts]

    def values(self, of: Callable[[Sample], float | None]) -> list[float]:
        """A time of every answered request that counts, ascending; those without it left out."""
        found = [of(sample) for sample in self.counted if sample.answer.outcome == OK]
        return sorted(value for value in found if value is not None)


def bracket_of(tried: Sequence[TriedRate]) -> tuple[TriedRate | None, TriedRate | None]:
    """The highest rate that held below all failures, and the lowest that failed."""
    failed = min((t for t in tried if not t.is_held), key=lambda t: t.rate_per_s, default=None)
    held = [t for t in tried if t.is_held and (failed is None or t.rate_per_s < failed.rate_per_s)]
    return max(held, key=lambda t: t.rate_per_s, default=None), failed


class Ended(Exception):
    """The case ended before it was measured."""

    def __init__(self, outcome: str, reason: str) -> None:
        super().__init__(reason)
        self.outcome = outcome
        self.reason = reason


def client_bottleneck(step: LoadOutcome) -> str:
    """Why this process may have been slower than the server; empty if it was not."""
    lag_s = quantile(step.lags_s, 0.5)
    ttft_s = quantile(step.values(lambda s: s.ttft_s), 0.5)
    if step.cpu_share > MOST_CPU_SHARE:
        return f"it used {100 * step.cpu_share:.0f} % of a CPU"
    if lag_s is not None and ttft_s is not None and lag_s > max(LAG_SHARE * ttft_s, LEAST_LAG_S):
        late = f"half of its wake-ups were {1e3 * lag_s:.1f} ms late"
        return f"{late}, beside a median TTFT of {1e3 * ttft_s:.1f} ms"
    return ""


def check_client(step: LoadOutcome) -> None:
    """Raise Ended if this process may have been slower than the server."""
    why = client_bottleneck(step)
    if why:
        raise Ended("skipped", f"the client was the bottleneck: {why}; not judged")


def check_answers(step: LoadOutcome, failure: str) -> None:
    """Raise Ended if no request was answered; `failure`: why the last connection could not be opened."""
    ended = [sample for sample in step.samples if sample.answer.outcome != UNFINISHED]
    if ended and not any(sample.answer.outcome == OK for sample in ended):
        outcome, reason = ended[-1].answer.outcome, ended[-1].answer.reason
        if outcome == UNREACHABLE and failure:
            reason = failure
        raise Ended("failed", f"no request of {len(ended)} was answered: {outcome}, {reason}")


def tokens_within(samples: Sequence[Sample], window: tuple[int, int]) -> float:
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


def is_behind(step: LoadOutcome, rate: float) -> bool:
    """Whether the queue grew: requests in flight and TTFT rise, and fewer are completed than arrive.

    Rises alone also happen by chance in a queue that holds, by the square root of the arrivals; then it
    completes more than arrive at last.
    """
    counted = step.counted
    in_flight = [(s.exchange.due_ns * 1e-9, float(s.exchange.in_flight)) for s in counted]
    first_tokens = [(s.exchange.due_ns * 1e-9, s.ttft_s) for s in counted if s.ttft_s is not None]
    first, last = _in_flight_at_ends(counted, 4)
    is_longer = last - first >= math.sqrt(len(counted))
    if not (is_longer and is_growing(in_flight) and is_growing(first_tokens)):
        return False
    middle_ns = sum(step.window_ns) // 2
    done = sum(
        middle_ns <= s.exchange.ended_ns < step.window_ns[1]
        for s in step.samples
        if s.answer.outcome != UNFINISHED  # these ended because the load did
    )
    half_s = (step.window_ns[1] - middle_ns) * 1e-9
    return done / half_s < KEEPS_UP_SHARE * rate


def is_growing(points: Sequence[tuple[float, float]]) -> bool:
    """Whether values rise over time by more than chance: the slope of a line over its standard error."""
    n = len(points)
    if n < LEAST_FOR_GROWTH:
        return False
    mean_x, mean_y = (mean([point[axis] for point in points]) for axis in (0, 1))
    sxx = math.fsum((x - mean_x) ** 2 for x, _ in points)
    if sxx == 0:
        return False
    slope = math.fsum((x - mean_x) * (y - mean_y) for x, y in points) / sxx
    rest = math.fsum((y - mean_y - slope * (x - mean_x)) ** 2 for x, y in points)
    return slope > GROWING_T * math.sqrt(rest / (n - 2) / sxx)


def _in_flight_at_ends(counted: Sequence[Sample], parts: int) -> tuple[float, float]:
    """Mean number of requests in flight in the first of so many parts, and in the last."""
    some = max(len(counted) // parts, 1)
    first, last = ([float(s.exchange.in_flight) for s in part] for part in (counted[:some], counted[-some:]))
    return mean(first), mean(last)


def queue_text(step: LoadOutcome) -> str:
    first, last = _in_flight_at_ends(step.counted, 10)
    return f"the queue grew, from {first:.0f} requests in flight to {last:.0f}"


def times_text(sample: Sample) -> str:
    parts = [
        f"{name} {1e3 * value:.3g} ms"
        for name, value in (("TTFT", sample.ttft_s), ("TPOT", sample.tpot_s), ("E2E", sample.e2e_s))
        if value is not None
    ]
    return ", ".join(parts)


def mean(values: Sequence[float]) -> float:
    return math.fsum(values) / len(values) if values else 0.0


def quantile(ascending: Sequence[float], share: float) -> float | None:
    """The value below which a share lies: the order statistic of rank ceil(share * n); None of nothing."""
    return percentile(ascending, share) if ascending else None


NEEDED = {"p95": (0.95, 72), "p99": (0.99, 368)}
"""Requests: with fewer, the order-statistic interval (95 %) of that percentile has no upper end."""
ANSWER_TIME, ACCEPTED = "answer_p50_s", "draft_accepted_share"
"""Figures that only models that think and servers that speculate have."""
BATCH = 200
"""Requests per message."""


class LoadReport(CaseReport):
    """Sends what a launch measures on its channel."""

    def __init__(self, load: PlannedLoad, channel: Channel) -> None:
        super().__init__(channel, load.case_id)
        self.client = ""
        """The event loop of the client."""
        self._load = load
        self._steps = 0

    def server(self, found: ServerIdentity, *, is_here: bool) -> None:
        self.send(
            "server",
            engine=found.engine,
            version=found.version,
            context_tokens=found.context_tokens,
            slots=found.slots,
            is_here=is_here,
            t_ns=time.monotonic_ns(),
        )

    def now(self, **fields: object) -> None:
        """How the load is doing that will be the next step."""
        self.send("load_now", step_index=self._steps, **fields)

    def figure(
        self, key: str, title: str, unit: str, better: str, value: float | None, count: int, reason: str = ""
    ) -> None:
        self.send(
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

    def figures(self, step: LoadOutcome) -> None:
        for key, title, of in (
            ("ttft", "TTFT", lambda s: s.ttft_s),
            ("tpot", "TPOT", lambda s: s.tpot_s or None),  # 0: all in one piece, which tells no rate
            ("e2e", "E2E", lambda s: s.e2e_s),
        ):
            values = step.values(of)
            n, median_s, why = len(values), quantile(values, 0.5), "no answer has it"
            self.figure(f"{key}_p50_s", f"{title} median", "s", "less", median_s, n, why)
            for which, (below, needed) in NEEDED.items():
                tail_s = quantile(values, below) if n >= needed else None
                why = f"needs {needed} requests a launch"
                self.figure(f"{key}_{which}_s", f"{title} {which}", "s", "less", tail_s, n, why)
        if thinks := step.values(lambda s: s.answer_s):
            title = "first token of the answer"
            self.figure(ANSWER_TIME, title, "s", "less", quantile(thinks, 0.5), len(thinks))
        accepted = share_of(step.metrics, "accepted_tokens", "drafted_tokens")
        if accepted is not None:
            self.figure(ACCEPTED, "drafted tokens accepted", "share", "more", accepted, len(step.counted))
        counted = step.counted
        ok = [sample for sample in counted if sample.answer.outcome == OK]
        start_ns, end_ns = step.window_ns
        ended = sum(
            start_ns <= sample.exchange.ended_ns < end_ns and sample.answer.outcome == OK
            for sample in step.samples
        )
        rate = ended / step.window_s if step.window_s > 0 else 0.0
        self.figure("requests_per_s", "requests answered", "1/s", "more", rate, ended)
        prompt = [sample.answer.usage.prompt for sample in ok]
        prompts = sum(tokens for tokens in prompt if tokens is not None)
        if None not in prompt and ok:
            total = rate * prompts / len(ok) + step.output_tokens / step.window_s
            self.figure("total_tokens_per_s", "input and output tokens", "1/s", "more", total, len(ok))
        cached = [sample.answer.usage.cached for sample in ok]
        from_cache = None
        if prompts and any(tokens is not None for tokens in cached):
            from_cache = sum(tokens or 0 for tokens in cached) / prompts
        asked = self._load.output_tokens
        short = sum((sample.answer.usage.output or 0) != asked for sample in ok)
        other, failed = (
            part / len(whole) if whole else None
            for part, whole in ((short, ok), (len(counted) - len(ok), counted))
        )
        why = "the server does not say"
        for key, title, better, value, n, reason in (
            ("cached_share", "prompt tokens from a cache", "neither", from_cache, len(ok), why),
            ("other_length_share", f"answers not of {asked} tokens", "neither", other, len(ok), "no answer"),
            ("failed_share", "requests without an answer", "less", failed, len(counted), "no request"),
        ):
            self.figure(key, title, "share", better, value, n, reason)
        if step.good_share is not None:
            title = "requests within the limits"
            self.figure("good_share", title, "share", "more", step.good_share, len(counted))
        title, lag_s = "lag of the client, p99", quantile(step.lags_s, 0.99)
        self.figure("client_lag_p99_s", title, "s", "neither", lag_s, len(step.lags_s), "too short")

    def step(self, step: LoadOutcome) -> None:
        index, metrics = self._steps, step.metrics
        self._steps += 1
        self.send(
            "load_step",
            step_index=index,
            load=OPEN if step.users is None else CLOSED,
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
            client_lag_p50_s=quantile(step.lags_s, 0.5),
            client_lag_p99_s=quantile(step.lags_s, 0.99),
            client_lag_max_s=step.lags_s[-1] if step.lags_s else None,
            client_cpu_share=step.cpu_share,
            client=self.client,
            connections_late=step.opened,
            resent=step.resent,
            server_running=metrics.get("running"),
            server_waiting=metrics.get("waiting"),
            kv_cache_share=metrics.get("kv_cache_share"),
            prefix_hit_share=share_of(metrics, "prefix_hit_tokens", "prefix_tokens"),
            preemptions=metrics.get("preemptions"),
        )
        rows = [_row(place, sample) for place, sample in enumerate(step.samples)]
        for start in range(0, len(rows), BATCH):
            self.send("requests", step_index=index, rows=rows[start : start + BATCH])


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
