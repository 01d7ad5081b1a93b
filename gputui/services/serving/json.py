"""A run of loads as JSON types."""

from __future__ import annotations

from dataclasses import asdict
from typing import Any  # Any: JSON

from gputui.analysis.order_statistics import Percentile
from gputui.model.absent import Missing
from gputui.model.journal import Price
from gputui.services.serving.curve import Level, ServingRun, Times
from gputui.services.serving.text import usd_per_million_tokens


def serving_as_json(serving: ServingRun, price: Price | Missing) -> dict[str, Any]:
    """Plain types; a value that is absent is null, and its reason stands beside it under `absent`."""
    server = None if isinstance(serving.server, Missing) else serving.server
    return {
        "engine": None if server is None else server.engine or None,
        "engine_version": None if server is None else server.version or None,
        "context_tokens": None if server is None else server.context_tokens,
        "server_is_here": None if server is None else server.is_here,
        "model": serving.model,
        "api": serving.api,
        "profile": serving.profile,
        "prompt_tokens": serving.prompt_tokens,
        "shared_tokens": serving.shared_tokens,
        "output_tokens": serving.output_tokens,
        "loads": [_level(level, price) for level in serving.levels],
    }


def _level(level: Level, price: Price | Missing) -> dict[str, Any]:
    absent: dict[str, str] = {}

    def known(name: str, value: float | Missing) -> float | None:
        if isinstance(value, Missing):
            absent[name] = value.reason
            return None
        return value

    is_search = level.kind == "search"
    speed = level.speed
    interval = None if isinstance(speed, Missing) else [speed.low, speed.high]
    found: dict[str, Any] = {
        "case_id": level.result.case_id,
        "load": level.kind,
        "users": level.users,
        "rate_per_s": level.rate_per_s,
        "outcome": level.result.outcome,
        "reason": level.result.reason,
        "is_overloaded": level.is_overloaded,
        "limit_requests_per_s": known("limit_requests_per_s", speed)
        if is_search and isinstance(speed, Missing)
        else speed.units_per_s
        if is_search and not isinstance(speed, Missing)
        else None,
        "output_tokens_per_s": known("output_tokens_per_s", level.output_per_s),
        "interval": interval,
        "tokens_per_s_and_user": known("tokens_per_s_and_user", level.tokens_per_user),
        "usd_per_million_output_tokens": known(
            "usd_per_million_output_tokens", usd_per_million_tokens(level, price)
        ),
        "joules_per_output_token": known(
            "joules_per_output_token",
            level.energy if isinstance(level.energy, Missing) else level.energy.joules_per_unit,
        ),
        "cached_share": known("cached_share", level.cached_share),
        "other_lengths": level.other_lengths,
        "held_requests_per_s": level.held_per_s,
        "failed_requests_per_s": level.failed_per_s,
        "server": None if isinstance(level.server, Missing) else asdict(level.server),
        "client_lag_p99_s": level.longest_lag_s,
        "outcomes": dict(level.outcomes),
        "requests": level.outcomes.total(),
    }
    for name, times in (("ttft", level.ttft), ("tpot", level.tpot), ("e2e", level.e2e)):
        found[name] = _times(times, name, absent)
    return {**found, "absent": absent}


def _times(times: Times, name: str, absent: dict[str, str]) -> dict[str, Any]:
    plain: dict[str, Any] = {"requests": times.n}
    for which, value in (("p50", times.p50_s), ("p99", times.p99_s)):
        if isinstance(value, Percentile):
            plain[f"{which}_s"], plain[f"{which}_low_s"], plain[f"{which}_high_s"] = (
                value.value,
                value.low,
                value.high,
            )
        else:
            plain[f"{which}_s"] = plain[f"{which}_low_s"] = plain[f"{which}_high_s"] = None
            absent[f"{name}.{which}_s"] = value.reason
    return plain
