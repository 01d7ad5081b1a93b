"""Load on an LLM server: a request's bytes with the time of each read, loads, and what the answers say.

In: a launch with the server's address and a load. Out: messages of the channel. The parts, from the bottom:
`PlannedLoad` is what a plan asks for, `answer` reads a recorded answer, `client` sends requests and records,
`request` writes requests and sends one alone, `prompts` says what they ask, `server` to whom, `load` what is
offered, what came of it and what is reported, `offering` offers it, `search` says which rate to try next,
`load_launch` does a launch.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class PlannedLoad:
    """The load of one case on an LLM server. It stays in the plan: no result file has the URL."""

    case_id: int
    url: str
    api: str
    """`chat` or `completions`."""
    model: str
    """As requests name it."""
    key_name: str
    """Environment variable with the API key; empty for none. The key itself is never written."""
    kind: str
    """`closed`: so many users, each with one request at a time; `open`: Poisson arrivals at a rate; `search`:
    the highest rate that meets the limits."""
    users: int
    """Of `closed`; else 0."""
    rate_per_s: float
    """Of `open`; else 0."""
    prompt_tokens: int
    shared_tokens: int
    """At the start of all prompts; 0 if no two begin alike."""
    output_tokens: int
    limit_name: str
    """`max_tokens`, or `max_completion_tokens`."""
    ignores_eos: bool
    asks_usage: bool
    ttft_s: float | None
    """Limit of a good request; None for none, as the next two."""
    tpot_s: float | None
    e2e_s: float | None
    attained_share: float
    """Of the requests that must be good for a rate to hold; 0 to 1."""
    extra: str = "{}"
    """A JSON object that is merged into each request."""
    prompts_path: str = ""
    """A file of prompts; empty for random words."""
