"""What a server is, how a request must be written for it, and what its `/metrics` say of it.

That text is Prometheus' exposition format 0.0.4. Names: vLLM, "Production metrics"; SGLang, "Production
metrics"; llama.cpp, tools/server/README.md; TGI, "Metrics".
"""

from __future__ import annotations

import re
import socket
import ssl
import time
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any  # Any: a server's JSON
from urllib.parse import urljoin

from . import PlannedLoad
from .answer import FAILED, OK, ServerAnswer, read_answer
from .request import Address, NoTlsError, Reply, address_of, around_prompt, request

TIMEOUT_S = 10.0
ANSWER_TIMEOUT_S = 120.0
"""For one short answer: a server may load the model first."""
_PLAIN_TIMEOUT_S = 2.0
"""For what a port says to HTTP where it does not speak TLS."""
_REDIRECTS = (301, 302, 303, 307, 308)
_URL = re.compile(r"https?://[A-Za-z0-9._:\[\]-]{1,100}(/[A-Za-z0-9._~/-]{0,100})?")
_MOST_TOKENS = 2**31
_NAME = re.compile(r"[A-Za-z0-9._+:@/ -]{1,120}")
_METRIC = re.compile(r"^([a-z_]+)[:_][a-z_]+(?:\{| )", re.MULTILINE)


class ServerError(Exception):
    """Why nothing can be measured there: a sentence, and what to do."""

    def __init__(self, message: str, hint: str) -> None:
        super().__init__(message)
        self.message = message
        self.hint = hint


@dataclass(frozen=True)
class ServerIdentity:
    """What a server tells of itself; empty or None for what it does not."""

    engine: str
    """`vLLM`, `SGLang`, `llama.cpp`, `Ollama`, `TGI`; empty if none was recognized."""
    version: str
    models: tuple[str, ...]
    """Names as requests must give them."""
    context_tokens: int | None
    slots: int | None
    """Requests it decodes at once, where it says so."""


def find_server(address: Address, key: str, deadline_s: float) -> ServerIdentity:
    """Ask a server what it is, up to a monotonic time. Raises ServerError if it is none, or refuses."""
    models = _get(address, f"{address.base}/models", key, deadline_s)
    if models.status in (401, 403):
        raise _refused(models.status, key)
    if models.status in _REDIRECTS:
        raise _redirected(address, models)
    if models.status in (429, 502, 503, 504):
        raise ServerError(
            f"{address.base}/models answers HTTP {models.status}: the server is loading, overloaded or down",
            "wait, look into its log, then try again",
        )
    if models.status == 400 and b"HTTPS" in models.data:
        raise ServerError(f"{_where(address)}: this port wants https", f"try https://{address.host_header}")
    listed = models.json() if models.status == 200 else None
    entries = listed.get("data") if isinstance(listed, dict) else None
    if not isinstance(entries, list):
        raise ServerError(
            f"{address.base}/models answers HTTP {models.status} and no list of models:"
            " not an OpenAI-compatible server",
            f"give the URL up to /v1, such as http://{address.host_header}/v1",
        )
    entries = [entry for entry in entries if isinstance(entry, dict)]
    names = tuple(entry["id"] for entry in entries if isinstance(entry.get("id"), str))
    first = entries[0] if entries else {}
    version = _optional(address, f"{address.root}/version", key, deadline_s)
    properties = _optional(address, f"{address.root}/props", key, deadline_s)
    engine, number = _engine(address, key, deadline_s, first, models.headers, version, properties)
    context = first.get("max_model_len")
    slots = None
    if isinstance(properties, dict):
        slots = properties.get("total_slots")
        defaults = properties.get("default_generation_settings")
        context = context or (defaults.get("n_ctx") if isinstance(defaults, dict) else None)
    return ServerIdentity(engine, number, names, _positive(context), _positive(slots))


def _engine(
    address: Address,
    key: str,
    deadline_s: float,
    model: Mapping[str, Any],
    headers: Mapping[str, str],
    version: Any,
    properties: Any,
) -> tuple[str, str]:
    """Name and version of the engine, by what only it answers."""
    number = _name(version.get("version")) if isinstance(version, dict) else ""
    owner = model.get("owned_by")
    if isinstance(properties, dict) and (owner == "llamacpp" or "build_info" in properties):
        return "llama.cpp", _name(properties.get("build_info"))
    if owner == "vllm":
        return "vLLM", number
    if owner == "sglang":
        info = _optional(address, f"{address.root}/get_server_info", key, deadline_s)
        return "SGLang", number or (_name(info.get("version")) if isinstance(info, dict) else "")
    if owner == "library":
        ollama = _optional(address, f"{address.root}/api/version", key, deadline_s)
        return "Ollama", _name(ollama.get("version")) if isinstance(ollama, dict) else number
    info = _optional(address, f"{address.root}/info", key, deadline_s)
    if isinstance(info, dict) and "model_id" in info and "version" in info:
        return "TGI", _name(info.get("version"))
    try:
        metrics = _get(address, f"{address.root}/metrics", key, deadline_s)
    except ServerError:
        return "", number
    prefixes = set(_METRIC.findall(metrics.data.decode("utf-8", "replace"))) if metrics.status == 200 else ()
    for prefix, engine in (("vllm", "vLLM"), ("sglang", "SGLang"), ("llamacpp", "llama.cpp"), ("tgi", "TGI")):
        if prefix in prefixes:
            return engine, number
    return _name(headers.get("server", "")).partition("/")[0] if number else "", number


def accepted_load(
    load: PlannedLoad, key: str, prompt: bytes, deadline_s: float
) -> tuple[PlannedLoad, ServerAnswer]:
    """The load as the server accepts its requests, and the answer to one with this prompt.

    What a strict server does not know is left out: exact lengths, then the request for usage, then the older
    name of the limit. Blocks up to a monotonic time. Raises ServerError if no answer can be measured.
    """
    address = address_of(load.url)
    path = address.path_of(load.api)
    lenient = replace(load, ignores_eos=False)
    newer, brief = replace(lenient, limit_name="max_completion_tokens"), replace(lenient, asks_usage=False)
    for tried in dict.fromkeys((load, lenient, newer, brief)):
        before, after = around_prompt(tried)
        reply = _request(
            address, "POST", path, key, before + prompt + after, min(ANSWER_TIMEOUT_S, _left_s(deadline_s))
        )
        answer = read_answer([reply.raw], [0], was_closed=True, was_stopped=False)
        if reply.status not in (400, 422) or "context" in answer.reason:
            break
    if answer.outcome == OK:
        return tried, answer
    if reply.status in (401, 403):
        raise _refused(reply.status, key)
    if reply.status == 404:
        other = "completions" if load.api == "chat" else "chat"
        raise ServerError(
            f"{path} answers HTTP 404: model {load.model!r} or this API is not there",
            f"name a model that it lists with --model, or try --api {other}",
        )
    if answer.outcome == FAILED and not answer.is_streamed:
        raise ServerError(
            f"{path} answers in one piece though a stream was asked for: no first token can be timed",
            "enable streaming in the server, or in the proxy before it",
        )
    hint = "look into the server's log"
    if reply.status == 400:
        hint = "the prompt may be too long for its context: a smaller --profile, or --api completions"
    elif reply.status in (429, 503):
        hint = "it is overloaded or still loading: wait, then try again"
    raise ServerError(f"{path} gives no answer that can be measured: {answer.reason}", hint)


def _redirected(address: Address, reply: Reply) -> ServerError:
    """Not followed: every request would pay for the detour, and a key might go to another host."""
    path = f"{address.base}/models"
    target = urljoin(f"{_where(address)}{path}", reply.headers.get("location", ""))
    message = f"{_where(address)} redirects (HTTP {reply.status})"
    if not _URL.fullmatch(target) or target == f"{_where(address)}{path}":
        return ServerError(message, "give the address of the server itself")
    return ServerError(f"{message} to {target}", f"give that address: {target.removesuffix('/models')}")


def _refused(status: int, key: str) -> ServerError:
    if key:
        return ServerError(f"the server refuses the key (HTTP {status})", "check what --api-key-env names")
    return ServerError(
        f"the server wants a key (HTTP {status})",
        "put it into an environment variable and name that: --api-key-env OPENAI_API_KEY",
    )


def _optional(address: Address, path: str, key: str, deadline_s: float) -> Any:
    """The JSON at a path that servers may lack; None without it."""
    try:
        reply = _get(address, path, key, deadline_s)
    except ServerError:
        return None
    return reply.json() if reply.status == 200 else None


def _get(address: Address, path: str, key: str, deadline_s: float) -> Reply:
    return _request(address, "GET", path, key, b"", min(TIMEOUT_S, _left_s(deadline_s)))


def _left_s(deadline_s: float) -> float:
    return max(deadline_s - time.monotonic(), 0.0)


def _request(address: Address, method: str, path: str, key: str, body: bytes, timeout_s: float) -> Reply:
    """One request that must be answered in so long. Raises ServerError."""
    where = _where(address)
    try:
        return request(address, method, path, key, body, timeout_s)
    except ssl.SSLCertVerificationError as error:
        raise ServerError(
            f"{where}: its certificate is not trusted: {error.verify_message}",
            "name the file of a certificate that you trust in SSL_CERT_FILE",
        ) from error
    except socket.gaierror as error:
        raise ServerError(f"{where}: this name is unknown here", "check the URL") from error
    except NoTlsError as error:
        what = "this port speaks http, without TLS" if _speaks_http(address) else f"no TLS there ({error})"
        raise ServerError(f"{where}: {what}", f"try http://{address.host_header}") from error
    except TimeoutError as error:
        raise ServerError(
            f"{where}: no whole answer to {method} {path} within {timeout_s:.0f} s",
            "check that the server has finished loading"
            + (", and that it is https" if address.is_tls else ""),
        ) from error
    except ConnectionRefusedError as error:
        raise ServerError(
            f"{where}: nothing listens there (connection refused)",
            "start the server, or check host and port",
        ) from error
    except ValueError as error:
        raise ServerError(
            f"{where}: what answers there is not HTTP that can be read: {error}",
            "is this the port of an LLM server, and not of https:// alone?",
        ) from error
    except OSError as error:
        raise ServerError(f"{where}: no connection ({error.strerror or error})", "check the URL") from error


def _speaks_http(address: Address) -> bool:
    plain = replace(address, is_tls=False)
    try:
        return request(plain, "GET", f"{address.base}/models", "", b"", _PLAIN_TIMEOUT_S).status < 500
    except (OSError, ValueError):
        return False


def _where(address: Address) -> str:
    return f"{'https' if address.is_tls else 'http'}://{address.host_header}"


def _name(value: object) -> str:
    return value if isinstance(value, str) and _NAME.fullmatch(value) else ""


def _positive(value: object) -> int | None:
    return value if type(value) is int and 0 < value < _MOST_TOKENS else None


METRICS_TIMEOUT_S = 2.0
_LARGEST = 2.0**53
_SAMPLE = re.compile(r"^([A-Za-z_:][A-Za-z0-9_:]*)(?:\{.*\})? ([^ \n]+)(?: \d+)?$", re.MULTILINE)
METRIC_NAMES = {
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
    "drafted_tokens": ("vllm:spec_decode_num_draft_tokens_total",),
    "accepted_tokens": ("vllm:spec_decode_num_accepted_tokens_total",),
}
"""Names of what a server says of itself, in its own words; the first one that it offers counts.

Requests that it works on; requests in its queue; the part of the key-value cache in use, 0 to 1, of several
engines behind one address the fullest. Counters since its start: prompt tokens that were found in the cache,
and that were looked for there; requests that lost their place, and are computed anew, as the cache was full;
output tokens that a draft guessed, and those of them that the model took.
"""
_GAUGES = ("running", "waiting", "kv_cache_share")
_LLAMA_COMPUTED = "llamacpp:prompt_tokens_total"
"""Prompt tokens without those from the cache."""


def during(before: Mapping[str, float], at_end: Mapping[str, float]) -> dict[str, float]:
    """The state at the end of a load, with counters of that load alone; without a counter that fell."""
    if not before:
        return {}
    found = {name: at_end[name] for name in _GAUGES if name in at_end}
    for name in at_end.keys() & before.keys() - {*_GAUGES}:
        if at_end[name] >= before[name]:
            found[name] = at_end[name] - before[name]
    return found


def share_of(metrics: Mapping[str, float], part: str, whole: str) -> float | None:
    """One metric over another, at most 1; None if one is not known, or the whole is nothing."""
    if part not in metrics or not metrics.get(whole):
        return None
    return min(metrics[part] / metrics[whole], 1.0)


def metrics_in(text: str) -> dict[str, float]:
    """What a `/metrics` text says, by `METRIC_NAMES`. Engines behind one address are added."""
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

    found: dict[str, float] = {}
    for metric, names in METRIC_NAMES.items():
        values = most if metric == "kv_cache_share" else sums
        offered = [values[name] for name in names if name in values]
        if offered and (metric != "kv_cache_share" or offered[0] <= 1):
            found[metric] = offered[0]
    if "prefix_tokens" not in found and "prefix_hit_tokens" in found and _LLAMA_COMPUTED in sums:
        found["prefix_tokens"] = found["prefix_hit_tokens"] + sums[_LLAMA_COMPUTED]
    return found


def read_metrics(address: Address, key: str) -> dict[str, float]:
    """Ask a server for its metrics; blocks up to a few seconds. Empty if it offers none."""
    try:
        reply = request(address, "GET", f"{address.root}/metrics", key, b"", METRICS_TIMEOUT_S)
    except (OSError, ValueError):
        return {}
    return metrics_in(reply.data.decode("utf-8", "replace")) if reply.status == 200 else {}
