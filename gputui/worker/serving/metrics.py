"""What a server's `/metrics` says of its queue and its caches; names of vLLM, SGLang, llama.cpp and TGI.

The text is Prometheus' exposition format 0.0.4. Names: vLLM, "Production metrics"; SGLang, "Production
metrics"; llama.cpp, tools/server/README.md; TGI, "Metrics".
"""

from __future__ import annotations

import re
from dataclasses import dataclass, replace

from .address import Address
from .request import PlainHttpError, request

TIMEOUT_S = 2.0
_LARGEST = 2.0**53
_SAMPLE = re.compile(r"^([A-Za-z_:][A-Za-z0-9_:]*)(?:\{.*\})? ([^ \n]+)(?: \d+)?$", re.MULTILINE)
_NAMES = {
    "running": (
        "vllm:num_requests_running",
        "sglang:num_running_reqs",
        "llamacpp:requests_processing",
        "tgi_batch_current_size",
    ),
    "waiting": (
        "vllm:num_requests_waiting",
        "sglang:num_queue_reqs",
        "llamacpp:requests_deferred",
        "tgi_queue_size",
    ),
    "kv_cache_share": (
        "vllm:kv_cache_usage_perc",
        "vllm:gpu_cache_usage_perc",  # before 0.12
        "sglang:token_usage",
        "llamacpp:kv_cache_usage_ratio",  # until 2025
    ),
    "prefix_hit_tokens": (
        "vllm:prefix_cache_hits_total",
        "vllm:gpu_prefix_cache_hits_total",
        "sglang:cached_tokens_total",
        "llamacpp:prompt_tokens_cached_total",
    ),
    "prefix_tokens": (
        "vllm:prefix_cache_queries_total",
        "vllm:gpu_prefix_cache_queries_total",
        "sglang:prompt_tokens_total",
    ),
    "preemptions": (
        "vllm:num_preemptions_total",
        "sglang:num_retracted_requests_total",
        "sglang:num_retracted_reqs_total",
    ),
}
"""Of each field of `ServerMetrics`; the first name that a server offers counts."""
_LLAMA_COMPUTED = "llamacpp:prompt_tokens_total"
"""Prompt tokens without those from the cache."""


@dataclass(frozen=True)
class ServerMetrics:
    """A server at one instant; None for what it does not offer. Counters are since its start."""

    running: float | None
    """Requests that it works on."""
    waiting: float | None
    """Requests in its queue."""
    kv_cache_share: float | None
    """Of the key-value cache in use, 0 to 1; of several engines behind one address the fullest."""
    prefix_hit_tokens: float | None
    """Prompt tokens that were found in the cache."""
    prefix_tokens: float | None
    """Prompt tokens that were looked for there."""
    preemptions: float | None
    """Requests that lost their place, and are computed anew, as the cache was full."""

    @property
    def prefix_hit_share(self) -> float | None:
        if self.prefix_hit_tokens is None or not self.prefix_tokens:
            return None
        return min(self.prefix_hit_tokens / self.prefix_tokens, 1.0)


def during(before: ServerMetrics | None, at_end: ServerMetrics | None) -> ServerMetrics | None:
    """The state at the end of a load, with counters of that load alone; a counter that fell is None."""
    if before is None or at_end is None:
        return None

    def gained(first: float | None, last: float | None) -> float | None:
        return None if first is None or last is None or last < first else last - first

    return replace(
        at_end,
        prefix_hit_tokens=gained(before.prefix_hit_tokens, at_end.prefix_hit_tokens),
        prefix_tokens=gained(before.prefix_tokens, at_end.prefix_tokens),
        preemptions=gained(before.preemptions, at_end.preemptions),
    )


def metrics_in(text: str) -> ServerMetrics | None:
    """What a `/metrics` text says; None if it has nothing of these. Engines behind one address are added."""
    sums: dict[str, float] = {}
    most: dict[str, float] = {}
    for name, written in _SAMPLE.findall(text):
        try:
            value = float(written)
        except ValueError:
            continue
        if not 0 <= value <= _LARGEST:  # NaN, too: Prometheus writes it for what is not known
            continue
        sums[name] = sums.get(name, 0.0) + value
        most[name] = max(most.get(name, 0.0), value)

    found: dict[str, float | None] = {}
    for field, names in _NAMES.items():
        values = most if field == "kv_cache_share" else sums
        found[field] = next((values[name] for name in names if name in values), None)
    hits, in_use = found["prefix_hit_tokens"], found["kv_cache_share"]
    if found["prefix_tokens"] is None and hits is not None and _LLAMA_COMPUTED in sums:
        found["prefix_tokens"] = hits + sums[_LLAMA_COMPUTED]
    if in_use is not None and in_use > 1:
        found["kv_cache_share"] = None
    return ServerMetrics(**found) if any(value is not None for value in found.values()) else None


def read_metrics(address: Address, key: str) -> ServerMetrics | None:
    """Ask a server for its metrics; blocks up to a few seconds. None if it offers none."""
    try:
        reply = request(address, "GET", f"{address.root}/metrics", key, b"", TIMEOUT_S)
    except (OSError, ValueError, PlainHttpError):
        return None
    text = reply.data.decode("utf-8", "replace") if reply.status == 200 else ""
    return metrics_in(text)
