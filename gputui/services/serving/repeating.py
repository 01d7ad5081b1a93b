"""How to offer the loads of a stored run again."""

from __future__ import annotations

import shlex

from gputui.model.absent import Missing
from gputui.model.result import RunSummary
from gputui.services.serving.curve import CLOSED, OPEN, ServingRun
from gputui.services.serving.plan import DEFAULT_ATTAINED_SHARE
from gputui.services.serving.profiles import SCHEMA, limits_of, parameter_of, shipped_request_profiles

_PORTS = {"vLLM": 8000, "SGLang": 30000, "llama.cpp": 8080, "Ollama": 11434, "TGI": 8080}


def engine_words(serving: ServingRun) -> str:
    """`vLLM 0.11.0`."""
    server = serving.server
    found = "" if isinstance(server, Missing) else f"{server.engine} {server.version}".strip()
    return found or "an unknown engine"


def usual_address(serving: ServingRun) -> str:
    """Where an engine listens unless told otherwise."""
    engine = "" if isinstance(serving.server, Missing) else serving.server.engine
    return f"http://127.0.0.1:{_PORTS.get(engine, 8000)}"


def commands_of(serving: ServingRun, run: RunSummary, db: str) -> tuple[str, ...]:
    """Lines for a shell that offer the same loads and store cases that pair with those of the run.

    Where its profile of requests does not ship, they write it first.
    """
    shipped = {profile.name: profile for profile in shipped_request_profiles()}
    known = shipped.get(serving.profile)
    lines: list[str] = []
    profile = serving.profile
    if known is None or (known.prompt_tokens, known.output_tokens) != (
        serving.prompt_tokens,
        serving.output_tokens,
    ):
        profile = f"{serving.profile}.toml"
        lines = [
            f"cat > {shlex.quote(profile)} <<END",
            f"schema = {SCHEMA}",
            "version = 1",
            f"prompt_tokens = {serving.prompt_tokens}",
            f"output_tokens = {serving.output_tokens}",
            "END",
        ]
    words = ["gputui", "serve-bench", usual_address(serving), "--profile", profile]
    words += ["--name", serving.model, *load_options(serving)]
    words += ["--launches", str(run.replicates), "--budget", f"{run.budget_s:g}", "--db", db]
    return (*lines, shlex.join(words))


def load_options(serving: ServingRun) -> tuple[str, ...]:
    """The options of `gputui serve-bench` that say which loads are offered."""
    users = [str(level.users) for level in serving.levels if level.kind == CLOSED]
    rates = [f"{level.rate_per_s or 0.0:.10g}" for level in serving.levels if level.kind == OPEN]
    limit = serving.limit
    share = None if limit is None else parameter_of(limit.case, "attained_share")
    return (
        *("--api", serving.api, "--concurrency", ",".join(users) or "none"),
        *(("--rate", ",".join(rates)) if rates else ()),
        *("--slo", "none" if limit is None else limits_of(limit.case).option),
        *(("--attain", f"{share:g}") if isinstance(share, float) and share != DEFAULT_ATTAINED_SHARE else ()),
        *("--shared-prefix", str(serving.shared_tokens)),
    )
