"""What a launch says of its loads: steps, their requests, and the figures of the case."""

from __future__ import annotations

import hashlib
import time

from ..channel import CaseReport, Channel
from .answer import OK
from .load import Load, LoadOutcome, Sample, quantile
from .server import ServerIdentity

NEEDED = {"p95": (0.95, 72), "p99": (0.99, 368)}
"""Requests: with fewer, the order-statistic interval (95 %) of that percentile has no upper end."""
BATCH = 200
"""Requests per message."""


class LoadReport(CaseReport):
    """Sends what a launch measures on its channel."""

    def __init__(self, load: Load, channel: Channel) -> None:
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
            n = len(values)
            self.figure(
                f"{key}_p50_s", f"{title} median", "s", "less", quantile(values, 0.5), n, "no answer has it"
            )
            for which, (below, needed) in NEEDED.items():
                self.figure(
                    f"{key}_{which}_s",
                    f"{title} {which}",
                    "s",
                    "less",
                    quantile(values, below) if n >= needed else None,
                    n,
                    f"needs {needed} requests a launch",
                )
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
        share = None
        if prompts and any(tokens is not None for tokens in cached):
            share = sum(tokens or 0 for tokens in cached) / prompts
        self.figure(
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
        self.figure(
            "other_length_share",
            f"answers not of {asked} tokens",
            "share",
            "neither",
            short / len(ok) if ok else None,
            len(ok),
            "no answer",
        )
        failed = len(counted) - len(ok)
        self.figure(
            "failed_share",
            "requests without an answer",
            "share",
            "less",
            failed / len(counted) if counted else None,
            len(counted),
            "no request",
        )
        if step.good_share is not None:
            self.figure(
                "good_share", "requests within the limits", "share", "more", step.good_share, len(counted)
            )
        self.figure(
            "client_lag_p99_s",
            "lag of the client, p99",
            "s",
            "neither",
            quantile(step.lags_s, 0.99),
            len(step.lags_s),
            "too short",
        )

    def step(self, step: LoadOutcome) -> None:
        """Send a step and its requests."""
        index, metrics = self._steps, step.metrics
        self._steps += 1
        self.send(
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
            client_lag_p50_s=quantile(step.lags_s, 0.5),
            client_lag_p99_s=quantile(step.lags_s, 0.99),
            client_lag_max_s=step.lags_s[-1] if step.lags_s else None,
            client_cpu_share=step.cpu_share,
            client=self.client,
            connections_late=step.opened,
            resent=step.resent,
            server_running=None if metrics is None else metrics.running,
            server_waiting=None if metrics is None else metrics.waiting,
            kv_cache_share=None if metrics is None else metrics.kv_cache_share,
            prefix_hit_share=None if metrics is None else metrics.prefix_hit_share,
            preemptions=None if metrics is None else metrics.preemptions,
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
