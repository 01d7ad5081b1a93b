"""A run of loads in words, tables and JSON, and how to offer its loads again."""

from __future__ import annotations

import shlex
from collections.abc import Iterator, Mapping, Sequence
from typing import Any  # Any: JSON

from gputui.analysis.statistics import Percentile, sample_needed
from gputui.document.drawings import bars
from gputui.document.spans import Span
from gputui.document.table import Column, Drawing, Table, table_of
from gputui.errors import GputuiError
from gputui.model.absent import Missing, fields_of, known
from gputui.model.journal import Price, ProfiledPass
from gputui.model.plan import Case
from gputui.model.result import Run, RunSummary
from gputui.model.serving import ANSWERED
from gputui.model.units import (
    counted,
    format_energy,
    format_percent,
    format_seconds,
    format_spread,
    format_usd,
    listed,
    with_prefix,
)
from gputui.services.results.headline import as_sentence, run_headline
from gputui.services.results.metrics import AS_OFFERED, LATE_S, metrics_of
from gputui.services.results.step_answer import why_sentence
from gputui.services.serving.curve import CLOSED, OPEN, SEARCH, Level, ServingRun
from gputui.services.serving.profiles import (
    DEFAULT_ATTAINED_SHARE,
    RANDOM_WORDS,
    SCHEMA,
    limits_of,
    parameter_of,
    shipped_request_profiles,
)
from gputui.worker.serving.load import ACCEPTED, ANSWER_TIME

HEADINGS = ("load", "tok/s", "95 %", "/user", "TTFT p50", "p99", "TPOT p50", "p99", "n")
"""Of `curve_table`; tokens are output tokens, `n` are requests."""
_FULL_HEADINGS = (*HEADINGS, "failed", "lag p99")
"""`lag` is the client's, which sends requests that much late."""
_PRIORITIES = {"n": 6, "95 %": 5, "/user": 4, "lag p99": 3, "p99": 2}
API_PRICE_HELP = (
    "A hosted API's price in USD per million tokens: show the load from which the box is cheaper."
)
_NOTEWORTHY_SHARE = 0.02
_VAGUE = 10.0
"""A limit whose interval spans so many times is not named."""
_NOTHING = "—"


def load_words(level: Level) -> str:
    """`8 users`, `12/s`, `limit 21.3/s`."""
    if level.kind == CLOSED:
        return counted(level.users or 0, "user")
    if level.kind == SEARCH:
        return "limit" if isinstance(level.speed, Missing) else f"limit {_number(level.speed.units_per_s)}/s"
    return f"{level.rate_per_s or 0.0:g}/s"


def curve_table(levels: Sequence[Level], *, is_full: bool = False, styles: str | Sequence[str] = "") -> Table:
    """A row for each load; with styles its output also as a bar. The counts go first where there is no room,
    then intervals."""
    rows = [_row(level) for level in levels]
    columns: list[Column | Drawing] = [
        Column(heading, [row[place] for row in rows], place > 0, _PRIORITIES.get(heading, 0))
        for place, heading in enumerate(_FULL_HEADINGS if is_full else HEADINGS)
    ]
    if styles:
        output = [known(level.output_tokens_per_s) or 0.0 for level in levels]
        columns.insert(2, bars(output, max(output, default=0.0) or 1.0, styles))
    return Table(tuple(columns))


def measured_levels(serving: ServingRun) -> list[Level]:
    return [level for level in serving.levels if not isinstance(level.speed, Missing)]


def _row(level: Level) -> tuple[str | Span, ...]:
    """The cells below _FULL_HEADINGS of one load, `—` for what was not measured."""
    failed = level.outcomes.total() - level.outcomes[ANSWERED]
    speed, spread = level.speed, _NOTHING
    if level.is_as_offered:
        spread = AS_OFFERED.reason
    elif not isinstance(speed, Missing):
        spread = format_spread(speed.units_per_s, speed.low, speed.high)
    return (
        load_words(level),
        _number(level.output_tokens_per_s),
        spread,
        _number(level.tokens_per_s_and_user),
        _time(level.ttft.p50_s),
        _time(level.ttft.p99_s),
        _time(level.tpot.p50_s),
        _time(level.tpot.p99_s),
        str(level.ttft.n),
        Span(str(failed), "warn" if failed else ""),
        format_seconds(level.client_lag_p99_s),
    )


def _time(found: Percentile | Missing) -> str:
    return _NOTHING if isinstance(found, Missing) else format_seconds(found.value)


def _number(value: float | Missing) -> str:
    return _NOTHING if isinstance(value, Missing) else "".join(with_prefix(value))


def headline_of(run: Run, serving: ServingRun | Missing | None, passes: Mapping[int, ProfiledPass]) -> str:
    """The answer of a run, which of loads is that of its server; `passes` are the profiled ones, by case."""
    if isinstance(serving, ServingRun):
        return serving_headline(serving, run.summary.price)
    return run_headline(run, why_sentence(run, passes))


def serving_headline(serving: ServingRun, price: Price | Missing) -> str:
    """`Chat: 21.3 requests/s within TTFT 500 ms, TPOT 50 ms (95 %: 19.8 to 22.9); ...`."""
    limit = serving.limit
    speed = Missing("no limit was sought") if limit is None else limit.speed
    if limit is not None and not isinstance(speed, Missing) and speed.high < _VAGUE * speed.low:
        ends = f"{_number(speed.low)} to {_number(speed.high)}"
        sentence = (
            f"{as_sentence(serving.profile)}: {_number(speed.units_per_s)} requests/s"
            f" within {limits_of(limit.case).text}"
            f" for {share_words(limit)} of them (95 %: {ends})"
        )
        cost = usd_per_million_tokens(limit, price)
        if not isinstance(cost, Missing):
            sentence += f"; a million output tokens cost {format_usd(cost)}"
        return f"{sentence}."
    said = _most_output(serving)
    if limit is not None:
        said = f"{said} {_without_limit(limit)}.".strip()
    return said or f"{as_sentence(serving.profile)}: nothing was measured."


def _most_output(serving: ServingRun) -> str:
    """`Chat: at most 730 output tok/s, with 16 users.`, or of rates alone how long the largest waits."""
    found = [level for level in serving.levels if not isinstance(level.output_tokens_per_s, Missing)]
    users = [level for level in found if level.kind == CLOSED]
    profile = as_sentence(serving.profile)
    if users:
        most = max(users, key=lambda level: known(level.output_tokens_per_s) or 0.0)
        rate = _number(most.output_tokens_per_s)
        return f"{profile}: at most {rate} output tok/s, with {load_words(most)}."
    if rates := [level for level in found if level.kind == OPEN]:
        most = max(rates, key=lambda level: level.rate_per_s or 0.0)
        times = f"TTFT {_time(most.ttft.p50_s)}, TPOT {_time(most.tpot.p50_s)}"
        return f"{profile}: {times} (median) at {load_words(most)}."
    return ""


def _without_limit(limit: Level) -> str:
    """`12.0 requests/s hold TTFT 500 ms for 90 % of them, 24.0 do not; the limit was not found: ...`."""
    within, why = limits_of(limit.case).text, limit.result.reason or limit.result.outcome
    if not isinstance(limit.speed, Missing):
        why = f"the launches tell it from {_number(limit.speed.low)} to {_number(limit.speed.high)}/s only"
    held, failed = limit.held_requests_per_s, limit.failed_requests_per_s
    if held is None and failed is None:
        return f"No rate within {within} is known: {why}"
    share = share_words(limit)
    if held is None:
        tried = f"{_number(failed or 0.0)} requests/s do not stay within {within} for {share} of them"
    else:
        tried = f"{_number(held)} requests/s stay within {within} for {share} of them"
        tried += "" if failed is None else f", {_number(failed)} do not"
    return f"{tried}; the limit is not known: {why}"


def share_words(limit: Level) -> str:
    share = parameter_of(limit.case, "attained_share")
    return format_percent(float(share)) if isinstance(share, int | float) else "enough"


def usd_per_million_tokens(level: Level, price: Price | Missing) -> float | Missing:
    """USD for a million output tokens of a load, all of the box's price on them."""
    if isinstance(price, Missing):
        return price
    if isinstance(level.output_tokens_per_s, Missing):
        return level.output_tokens_per_s
    return (
        price.usd_per_hour / 3600 / level.output_tokens_per_s * 1e6
        if level.output_tokens_per_s
        else Missing("no output")
    )


def energy_line(serving: ServingRun) -> str:
    """`GPU energy per output token: 1.20 J with 1 user, 0.31 J with 16 users`; empty if none is known."""
    told = [(one, one.energy) for one in serving.levels if not isinstance(one.energy, Missing)]
    if not told:
        return ""
    ends = told if len(told) < 3 else [told[0], told[-1]]
    parts = [f"{format_energy(energy.joules_per_unit, 'tok')} with {load_words(one)}" for one, energy in ends]
    return f"energy of the GPUs: {', '.join(parts)}"


def server_line(serving: ServingRun) -> str:
    """`vLLM 0.11.0, llama-8b, chat: 512 tokens in, 200 out, random words`."""
    server = serving.server
    if isinstance(server, Missing):
        engine = "an unknown server"
    else:
        engine = engine_words(server.engine, server.version) + ("" if server.is_here else " elsewhere")
    shared = f"the first {serving.shared_tokens} alike" if serving.shared_tokens else serving.prompts
    return (
        f"{engine}, {serving.model}, {serving.api}: {serving.prompt_tokens} tokens in,"
        f" {serving.output_tokens} out, {shared}"
    )


def serving_notes(serving: ServingRun) -> Iterator[str]:
    """What limits the meaning of the table, one sentence each; none for a clean run."""
    measured = measured_levels(serving)
    few = [level for level in measured if level.ttft.n and isinstance(level.ttft.p99_s, Missing)]
    if few:
        most = max(level.ttft.n for level in few)
        loads = listed([load_words(one) for one in few])
        where = "each load has" if len(few) == len(measured) else f"{loads} had"
        yield f"p99 needs {sample_needed(0.99)} requests, {where} at most {most}: raise --budget"
    cached = [(one, one.cached_share) for one in measured if not isinstance(one.cached_share, Missing)]
    yield from _shares(cached, measured, "of the prompt tokens came from a cache")
    other = [(one, one.other_lengths / max(one.outcomes[ANSWERED], 1)) for one in measured]
    yield from _shares(other, measured, f"of the answers do not have {serving.output_tokens} tokens", 0.0)
    in_one_piece = [(one, one.in_one_piece / max(one.outcomes[ANSWERED], 1)) for one in measured]
    yield from _shares(
        in_one_piece,
        measured,
        "of the answers arrived in one piece, so their TTFT is the time of all tokens and they have no TPOT:"
        " does a proxy buffer, or does the server lack a CPU?",
    )
    for level in measured:
        yield from _of_model(level, serving)
        if preemptions := level.server.get("preemptions"):
            share = level.server["kv_cache_share"]
            full = "" if share is None else f", {format_percent(share)} full at the end"
            count = counted(round(preemptions), "preemption")
            yield f"{load_words(level)}: {count}, as the server's KV cache was too small{full}"
    for level in serving.levels:
        bad = [(outcome, n) for outcome, n in level.outcomes.most_common() if outcome != ANSWERED]
        if bad:
            parts = listed([f"{n} {outcome}" for outcome, n in bad])
            yield f"{load_words(level)}: of {counted(level.outcomes.total(), 'request')} {parts}"
    laggards = [level for level in measured if level.client_lag_p99_s > LATE_S]
    if laggards:
        worst = max(laggards, key=lambda level: level.client_lag_p99_s)
        yield f"lag of the client: p99 {format_seconds(worst.client_lag_p99_s)} with {load_words(worst)}"
    if any(step.client == "asyncio" for level in serving.levels for step in level.offered):
        yield "the client ran without uvloop, which lags less: pip install uvloop"


def _of_model(level: Level, serving: ServingRun) -> Iterator[str]:
    """What only a model that thinks, or a server that guesses tokens beforehand, has."""
    values = {metric.key: metric.value for metric in metrics_of(level.result)}
    thinks, accepted = (values.get(key, Missing("not reported")) for key in (ANSWER_TIME, ACCEPTED))
    if not isinstance(thinks, Missing):
        yield f"{load_words(level)}: the model thinks, and its answer begins after {format_seconds(thinks)}"
    if not isinstance(accepted, Missing):
        unlike = ", which yours are not" if serving.prompts == RANDOM_WORDS else ""
        taken = f"{format_percent(accepted)} of what the server drafts is accepted"
        yield f"{load_words(level)}: {taken}, of {serving.prompts}{unlike}"


def _shares(
    shares: Sequence[tuple[Level, float]],
    measured: Sequence[Level],
    words: str,
    least: float = _NOTEWORTHY_SHARE,
) -> Iterator[str]:
    """`4 to 6 % of ...`, after the loads where it is more than `least`, unless it is all of them."""
    found = [(level, share) for level, share in shares if share > least]
    if not found:
        return
    low, high = (format_percent(end(share for _, share in found)) for end in (min, max))
    text = high if low == high else f"{low.removesuffix(' %')} to {high}"
    loads = listed([load_words(level) for level, _ in found])
    yield f"{text} {words}" if len(found) == len(measured) else f"{loads}: {text} {words}"


def unmeasured_lines(serving: ServingRun) -> Iterator[str]:
    for level in serving.levels:
        if isinstance(level.speed, Missing):
            why = level.result.reason
            outcome = "" if level.is_overloaded else f"{level.result.outcome}: "
            yield f"{load_words(level)}: {outcome}{why}"


def server_table(serving: ServingRun) -> Table | None:
    """What the server said of itself during each load; None if it offers nothing."""
    rows: list[tuple[str, ...]] = []
    for level in serving.levels:
        if server := level.server:
            shares = (server["kv_cache_share"], server["prefix_hit_share"])
            kv_cache, hits = (_NOTHING if share is None else format_percent(share) for share in shares)
            counts = (server["waiting"], server["preemptions"])
            waiting, preemptions = (_NOTHING if count is None else f"{count:.0f}" for count in counts)
            rows.append((load_words(level), waiting, kv_cache, hits, preemptions))
    headings = ("load", "queue", "KV cache", "prefix cache hits", "preemptions")
    return table_of(headings, rows, right=(1, 2, 3, 4)) if rows else None


def times_table(serving: ServingRun) -> Table | None:
    """Every percentile with its interval; None if no request was answered."""
    rows = [
        (load_words(level), name, *_with_interval(times.p50_s), *_with_interval(times.p99_s), str(times.n))
        for level in serving.levels
        for name, times in (("TTFT", level.ttft), ("TPOT", level.tpot), ("E2E", level.e2e))
        if times.n
    ]
    headings = ("load", "time", "median", "95 %", "p99", "95 %", "n")
    return table_of(headings, rows, right=(2, 4, 6)) if rows else None


def _with_interval(found: Percentile | Missing) -> tuple[str, str]:
    if isinstance(found, Missing):
        return _NOTHING, found.reason.partition(" requests")[0]
    return format_seconds(found.value), f"{format_seconds(found.low)} to {format_seconds(found.high)}"


def load_options(case: Case) -> str:
    """The options of `serve-bench` for this load alone: `--profile chat --concurrency 8 --slo none`."""
    name = case.work.workload.removeprefix("serve:").split(" ")[0]
    is_shipped = any(profile.name == name for profile in shipped_request_profiles())
    options = ["--profile", name if is_shipped else f"{name}.toml"]
    if str(parameter_of(case, "prompts")).startswith("file"):
        options += ["--prompts", "FILE"]
    if parameter_of(case, "body") not in (None, "none"):
        options += ["--body", "JSON"]
    return shlex.join([*options, *_options_of_loads([case])])


def _options_of_loads(cases: Sequence[Case]) -> list[str]:
    users, rates = (
        [f"{value:.10g}" for case in cases if isinstance(value := parameter_of(case, name), int | float)]
        for name in ("users", "rate_per_s")
    )
    options = ["--concurrency", ",".join(users) or "none"]
    options += ["--rate", ",".join(rates)] if rates else []
    search = next((case for case in cases if parameter_of(case, "load") == SEARCH), None)
    options += ["--slo", "none" if search is None else limits_of(search).option]
    share = None if search is None else parameter_of(search, "attained_share")
    if isinstance(share, float) and share != DEFAULT_ATTAINED_SHARE:
        options += ["--attain", f"{share:g}"]
    shared = parameter_of(cases[0], "shared_tokens")
    return [*options, "--shared-prefix", f"{shared}"] if shared else options


def break_even_line(serving: ServingRun, price: Price | Missing, api: tuple[float, float]) -> str:
    """From which load on the box is cheaper than a hosted API; USD per million tokens in and out."""
    limit, (usd_in, usd_out) = serving.limit, api
    stated = f"{format_usd(usd_in)} in and {format_usd(usd_out)} out per million tokens"
    if isinstance(price, Missing):
        return f"break-even against {stated} is unknown: {price.reason}"
    usd_per_request = (serving.prompt_tokens * usd_in + serving.output_tokens * usd_out) / 1e6
    if usd_per_request <= 0:
        return f"against {stated} no box pays"
    needed_per_s = price.usd_per_hour / 3600 / usd_per_request
    line = f"against {stated} the box pays from {_number(needed_per_s)} requests/s on"
    if limit is None or isinstance(limit.speed, Missing):
        return f"{line}; its limit is not known"
    share = needed_per_s / limit.speed.units_per_s
    return f"{line}, {format_percent(share)} of its limit" + (": never" if share > 1 else "")


def api_price_from(text: str) -> tuple[float, float]:
    """Parse `0.15,0.60`, USD per million tokens in and out; one number is that of output.

    Raises GputuiError.
    """
    parts = text.split(",")
    try:
        numbers = [float(part) for part in parts]
    except ValueError:
        numbers = []
    if len(numbers) not in (1, 2) or any(not 0 <= number <= 10_000 for number in numbers):
        raise GputuiError(
            f"--api-price: {text[:40]!r} is not a price", "USD per million tokens, in and out: 0.15,0.60"
        )
    return (0.0, numbers[0]) if len(numbers) == 1 else (numbers[0], numbers[1])


def serving_as_json(serving: ServingRun, price: Price | Missing) -> dict[str, Any]:
    """Plain types; a value that is absent is null, and its reason stands beside it under `absent`."""
    server = known(serving.server)
    return {
        "engine": (server and server.engine) or None,
        "engine_version": (server and server.version) or None,
        "context_tokens": server and server.context_tokens,
        "server_is_here": server and server.is_here,
        **fields_of(serving, "model", "api", "profile", "prompt_tokens", "shared_tokens", "output_tokens"),
        "loads": [_level(level, price) for level in serving.levels],
    }


def _level(level: Level, price: Price | Missing) -> dict[str, Any]:
    speed, energy = level.speed, level.energy
    per_s = speed if isinstance(speed, Missing) else speed.units_per_s
    values: dict[str, Any] = {
        "case_id": level.result.case_id,
        "load": level.kind,
        **fields_of(level, "users", "rate_per_s"),
        **fields_of(level.result, "outcome", "reason"),
        "is_overloaded": level.is_overloaded,
        "limit_requests_per_s": per_s if level.kind == SEARCH else None,
        "output_tokens_per_s": level.output_tokens_per_s,
        "interval": None if isinstance(speed, Missing) or level.is_as_offered else [speed.low, speed.high],
        "tokens_per_s_and_user": level.tokens_per_s_and_user,
        "usd_per_million_output_tokens": usd_per_million_tokens(level, price),
        "joules_per_output_token": energy if isinstance(energy, Missing) else energy.joules_per_unit,
        "cached_share": level.cached_share,
        **fields_of(level, "other_lengths", "held_requests_per_s", "failed_requests_per_s"),
        "server": level.server or None,
        "client_lag_p99_s": level.client_lag_p99_s,
        "outcomes": level.outcomes,
        "requests": level.outcomes.total(),
    }
    absent = {name: value.reason for name, value in values.items() if isinstance(value, Missing)}
    if level.is_as_offered:
        absent["interval"] = AS_OFFERED.reason
    for name, times in (("ttft", level.ttft), ("tpot", level.tpot), ("e2e", level.e2e)):
        values[name] = {"requests": times.n}
        for which, found in (("p50", times.p50_s), ("p99", times.p99_s)):
            keys = (f"{which}_s", f"{which}_low_s", f"{which}_high_s")
            if isinstance(found, Missing):
                absent[f"{name}.{which}_s"] = found.reason
                values[name] |= dict.fromkeys(keys)
            else:
                values[name] |= zip(keys, (found.value, found.low, found.high), strict=True)
    return {**{name: known(value) for name, value in values.items()}, "absent": absent}


_PORTS = {"vLLM": 8000, "SGLang": 30000, "llama.cpp": 8080, "Ollama": 11434, "TGI": 8080}
"""Where engines listen unless told otherwise."""


def engine_words(engine: str, version: str) -> str:
    """`vLLM 0.11.0`."""
    return f"{engine or 'unknown engine'} {version}".rstrip()


def commands_of(serving: ServingRun, run: RunSummary, db: str) -> tuple[str, ...]:
    """Lines for a shell that offer the same loads and store cases that pair with those of the run.

    Where its profile of requests does not ship, they write it first.
    """
    shipped = {profile.name: profile for profile in shipped_request_profiles()}
    ours = shipped.get(serving.profile)
    lines: list[str] = []
    profile = serving.profile
    if ours is None or (ours.prompt_tokens, ours.output_tokens) != (
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
    engine = "" if isinstance(serving.server, Missing) else serving.server.engine
    address = f"http://127.0.0.1:{_PORTS.get(engine, 8000)}"
    words = ["gputui", "serve-bench", address, "--profile", profile]
    words += ["--name", serving.model, "--api", serving.api]
    words += _options_of_loads([level.case for level in serving.levels])
    words += ["--launches", str(run.replicates), "--budget", f"{run.budget_s:g}", "--db", db]
    return (*lines, shlex.join(words))
