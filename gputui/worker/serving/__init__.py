"""Load on an LLM server: a request's bytes with the time of each read, loads, and what the answers say.

In: a launch with the server's address and a load. Out: messages of the channel. From the bottom:
`PlannedLoad` is what a plan asks for, `answer` reads a recorded answer, `request` says what is asked where
and sends one request alone, `client` sends many and records them, `server` says who answers, `load` what came
of it and how that is reported, `offering` offers a load, `load_launch` does a launch, with its search.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

MOST_IN_FLIGHT = 4000


@dataclass(frozen=True, slots=True)
class PlannedLoad:
    """The load of one case on an LLM server. It stays in the plan: no result file has the URL."""

    url: str
    api: str
    """`chat` or `completions`."""
    model: str
    """As requests name it."""
    output_tokens: int
    case_id: int = 0
    key_name: str = ""
    """Environment variable with the API key; empty for none. The key itself is never written."""
    kind: str = "closed"
    """`closed`: so many users, each with one request at a time; `open`: Poisson arrivals at a rate; `search`:
    the highest rate that meets the limits."""
    users: int = 0
    """Of `closed`; else 0."""
    rate_per_s: float = 0.0
    """Of `open`; else 0."""
    prompt_tokens: int = 1
    shared_tokens: int = 0
    """At the start of all prompts; 0 if no two begin alike."""
    limit_name: str = "max_tokens"
    """Or `max_completion_tokens`."""
    ignores_eos: bool = True
    """Whether to ask for exactly `output_tokens`."""
    asks_usage: bool = True
    ttft_s: float | None = None
    """Limit of a good request; None for none, as the next two."""
    tpot_s: float | None = None
    e2e_s: float | None = None
    attained_share: float = 0.9
    """Of the requests that must be good for a rate to hold; 0 to 1."""
    extra: str = "{}"
    """A JSON object that is merged into each request."""
    prompts_path: str = ""
    """A file of prompts; empty for random words."""

    @property
    def has_limits(self) -> bool:
        return any(limit is not None for limit in (self.ttft_s, self.tpot_s, self.e2e_s))

    @property
    def longest_wait_s(self) -> float:
        """A request that waits longer misses its limits; 0 if no limit says so."""
        return min((limit for limit in (self.ttft_s, self.e2e_s) if limit is not None), default=0.0)

    def most_in_flight(self, rate: float, alone_s: float) -> int:
        """Beyond, requests surely miss their limits: twice what is in flight if each just meets them."""
        longest_s = self.e2e_s or math.inf
        if self.tpot_s is not None:
            first_s = self.ttft_s if self.ttft_s is not None else alone_s
            longest_s = min(longest_s, first_s + self.tpot_s * self.output_tokens)
        if math.isinf(longest_s):
            longest_s = (self.ttft_s or 0.0) + 4 * alone_s
        return min(MOST_IN_FLIGHT, math.ceil(2 * rate * longest_s + 8 * math.sqrt(rate * longest_s) + 16))
