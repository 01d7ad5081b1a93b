"""An LLM server under load: what it is, what was offered, and each request.

Instants are monotonic nanoseconds of the box that sent the requests. `docs/serving.md` defines TTFT, TPOT and
the others.
"""

from __future__ import annotations

from dataclasses import dataclass

from gputui.model.plan import OfCase
from gputui.model.telemetry import LaunchPower

SERVE_PROFILE = "serve-bench"
"""In place of a profile: the cases of the run are loads on a server."""
LOADS = ("closed", "open")
"""A number of users with one request at a time each; arrivals at a rate, whatever the server does."""
ANSWERED = "ok"
REQUEST_OUTCOMES = (
    ANSWERED,
    "refused",
    "rejected",
    "failed",
    "cut",
    "empty",
    "unfinished",
    "unreachable",
)
"""How a request ended: answered; refused for overload (429, 503); rejected as wrong (other 4xx); failed in
the server (5xx, or an error inside the stream); cut off before its end; answered without output; not ended
when the load was; no connection."""


@dataclass(frozen=True, slots=True)
class ServerFound(OfCase):
    """What a server told one launch of itself."""

    engine: str
    """`vLLM`, `SGLang`, `llama.cpp`, `Ollama`, `TGI`; empty if none was recognized."""
    version: str
    """Empty if it does not say."""
    context_tokens: int | None
    slots: int | None
    """Requests it decodes at once, where it says so."""
    is_here: bool
    """Its address is one of the box that sent the requests, whose telemetry is then that of the server."""
    t_ns: int


@dataclass(frozen=True, slots=True)
class LoadStep(OfCase):
    """One load that was offered: a number of users, or a rate."""

    step_index: int
    load: str
    """One of LOADS."""
    users: int | None
    rate_per_s: float | None
    window_start_ns: int
    """Requests before the window found an emptier server; they are stored, but do not count."""
    window_end_ns: int
    is_overloaded: bool
    """The queue grew until the end, so no percentile of it means anything."""
    good_share: float | None
    """Of the requests that count, those within every limit; None without limits."""
    requests: int
    requests_counted: int
    output_tokens: float
    """Within the window."""
    in_flight_max: int
    client_lag_p50_s: float | None
    """How late the client's own event loop was."""
    client_lag_p99_s: float | None
    client_lag_max_s: float | None
    client_cpu_share: float
    """Of one CPU; 0 to 1."""
    client: str
    """Its event loop, such as `uvloop 0.22.1`."""
    connections_late: int
    """Requests that waited for a connection."""
    resent: int
    """Requests sent again, as the server had closed their connection before it answered."""
    server_running: float | None = None
    """Requests that the server worked on when the window ended, by its `/metrics`; None if it has none, as
    the next four."""
    server_waiting: float | None = None
    """Likewise in its queue."""
    kv_cache_share: float | None = None
    """Of its key-value cache, in use then; 0 to 1."""
    prefix_hit_share: float | None = None
    """Of the prompt tokens that its prefix cache was asked for during the load, those it had; 0 to 1."""
    preemptions: float | None = None
    """Requests that it threw out of its full cache during the load, to compute them anew."""


@dataclass(frozen=True, slots=True)
class LoadNow(OfCase):
    """A load while it is offered, about once a second: for who watches, and not stored."""

    step_index: int
    users: int | None
    rate_per_s: float | None
    """Offered; None for a number of users."""
    in_flight: int
    ended: int
    """Requests that ended since the report before."""
    over_ns: int
    """How long that is."""
    ttft_s: float | None
    """Of the last few that ended, the median; None if none did, or has no output."""
    event_gap_s: float | None
    """Between two events of a stream, of the same; an event may be several tokens."""
    t_ns: int

    @property
    def ended_per_s(self) -> float:
        return self.ended / (self.over_ns * 1e-9) if self.over_ns > 0 else 0.0


@dataclass(frozen=True, slots=True)
class RequestRow:
    """One request: lengths and hashes, no text."""

    request_index: int
    counts: bool
    """Whether it belongs to the window."""
    due_ns: int
    """When it was to be sent; of a user, when it was."""
    sent_ns: int | None
    first_ns: int | None
    """Arrival of the first event that carries output, of reasoning too."""
    last_ns: int | None
    ended_ns: int | None
    in_flight: int
    """Others in flight when it was sent."""
    outcome: str
    """One of REQUEST_OUTCOMES."""
    reason: str
    http_status: int | None
    retry_after: str
    """The header's value, if it was refused."""
    prompt_tokens: int | None
    cached_tokens: int | None
    output_tokens: int | None
    """As the server counts, reasoning included."""
    reasoning_tokens: int | None
    output_events: int
    longest_gap_ns: int | None
    """Between two events."""
    finish_reason: str
    prompt_bytes: int
    prompt_hash: str
    answer_bytes: int
    answer_hash: str

    @property
    def is_in_one_piece(self) -> bool:
        """All its output arrived at one instant, although it is several tokens: something held it back."""
        return self.first_ns is not None and self.first_ns == self.last_ns and (self.output_tokens or 0) > 1

    @property
    def ttft_s(self) -> float | None:
        """Time to first token; None without any output."""
        return None if self.first_ns is None else (self.first_ns - self.due_ns) * 1e-9

    @property
    def e2e_s(self) -> float | None:
        """Until the last output; None if it was not answered in full."""
        if self.last_ns is None or self.outcome != ANSWERED:
            return None
        return (self.last_ns - self.due_ns) * 1e-9

    @property
    def tpot_s(self) -> float | None:
        """Time per output token after the first; None if there is only one, no count, or no time between."""
        if self.outcome != ANSWERED or self.first_ns is None or self.last_ns is None or self.is_in_one_piece:
            return None
        if self.output_tokens is None or self.output_tokens < 2:
            return None
        return (self.last_ns - self.first_ns) * 1e-9 / (self.output_tokens - 1)


@dataclass(frozen=True, slots=True)
class Requests(OfCase):
    """Some requests of a step, in the order in which they were sent."""

    step_index: int
    rows: tuple[RequestRow, ...]


@dataclass(frozen=True, slots=True)
class ServingRecords:
    """What a stored run holds of its loads, beside its cases."""

    servers: tuple[ServerFound, ...]
    """One per launch that found it."""
    steps: tuple[LoadStep, ...]
    requests: tuple[Requests, ...]
    """One for each step that has any."""
    powers: tuple[LaunchPower, ...] = ()
    """Of all GPUs of the box together, for launches during which they were sampled; `samples` of the GPU that
    has the fewest."""
