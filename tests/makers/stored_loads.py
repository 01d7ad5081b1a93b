"""Result files of loads on a server, made from journals whose times follow from rate and slots."""

from __future__ import annotations

import math
import random
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from journals import (
    STARTED_US,
    journal_lines,
    make_telemetry,
    write_lines,
    write_telemetry,
)
from stored_runs import run_id_of

from gputui.model.absent import Missing
from gputui.model.journal import Block, CaseWarm, Figure, Line
from gputui.model.plan import Case
from gputui.model.serving import SERVE_PROFILE, LoadStep, RequestRow, Requests, ServerFound
from gputui.services.serving.plan import serving_case
from gputui.services.serving.profiles import Limits, RequestProfile
from gputui.store.journal_reader import read_journal, read_telemetry
from gputui.store.writing import store_run

PROFILE = RequestProfile("chat", 1, "Chat", 512, 200, 0, Limits(0.5, 0.05))
USERS = (1, 4, 16)
_LIMIT_SHARE = 0.8
"""Of its capacity, where a made-up server just meets the limits."""


@dataclass(frozen=True)
class Server:
    """A made-up server: `slots` requests at once, each token in `decode_s`."""

    slots: int = 8
    prefill_s: float = 0.05
    decode_s: float = 0.01
    cached_tokens: int = 0
    failures: int = 0
    """Of a hundred requests, those that are refused."""
    preemptions: float | None = None
    """In each launch, of a server that offers metrics; None for one that does not."""

    @property
    def service_s(self) -> float:
        return self.prefill_s + (PROFILE.output_tokens - 1) * self.decode_s

    @property
    def capacity_per_s(self) -> float:
        return self.slots / self.service_s


def load_cases(users: tuple[int, ...] = USERS, model: str = "made-up-1b") -> tuple[Case, ...]:
    """Numbers of users, and the limit."""

    def case(words: str, unit: str, *of_load: tuple[str, float | str]) -> Case:
        return serving_case(PROFILE, words, unit, model, "chat", of_load)

    closed = [case(f"{n} user{'s' * (n > 1)}", "tok", ("load", "closed"), ("users", n)) for n in users]
    limits = (("limit_ttft_s", 0.5), ("limit_tpot_s", 0.05))
    return (*closed, case("limit", "req", ("load", "search"), ("attained_share", 0.9), *limits))


def load_lines(
    server: Server,
    *,
    number: int = 1,
    label: str = "",
    users: tuple[int, ...] = USERS,
    launches: int = 3,
    requests: int = 400,
) -> list[Line]:
    """The journal of a run of loads: each launch offers one, and differs from the others by about 1 %."""
    cases = load_cases(users)
    draw = random.Random(number)
    lines: list[Line] = []
    for line in journal_lines(
        run_id=run_id_of(number),
        label=label,
        cases=cases,
        skipped=(),
        launches=launches,
        blocks=1,
        profile=SERVE_PROFILE,
        started_utc_us=STARTED_US + number * 3_600_000_000,
    ):
        if not isinstance(line, Block):
            lines.append(line)
        if isinstance(line, CaseWarm):
            n = (*users, 0)[line.case_id]
            lines += _measured(server, line, n, requests, draw.gauss(1, 0.01))
    return lines


def _measured(server: Server, warm: CaseWarm, users: int, requests: int, factor: float) -> Iterator[Line]:
    """What a launch reports of its load; of the limit if there are no users."""
    launch, case, begun_ns = warm.launch_id, warm.case_id, warm.t_ns
    busy = min(users, server.slots) if users else _LIMIT_SHARE * server.slots
    rate = busy / server.service_s / factor
    waits_s = max(users / server.slots - 1, 0.0) * server.service_s if users else 0.0
    yield ServerFound(launch, case, "vLLM", "0.11.0", 32768, None, True, begun_ns)
    rows = tuple(_row(server, n, begun_ns, rate, waits_s, factor) for n in range(requests))
    window_ns = round(requests / rate * 1e9)
    tokens = float(sum(row.output_tokens or 0 for row in rows))
    load = ("closed", users, None) if users else ("open", None, rate)
    good = None if users else 0.9
    whole = (window_ns, requests, requests, tokens)
    yield LoadStep(
        launch_id=launch,
        case_id=case,
        step_index=0,
        load=load[0],
        users=load[1],
        rate_per_s=load[2],
        window_start_ns=begun_ns,
        window_end_ns=begun_ns + whole[0],
        is_overloaded=False,
        good_share=good,
        requests=requests,
        requests_counted=requests,
        output_tokens=tokens,
        in_flight_max=users or server.slots,
        client_lag_p50_s=0.0001,
        client_lag_p99_s=0.0008,
        client_lag_max_s=0.002,
        client_cpu_share=0.05,
        client="uvloop 0.22.1",
        connections_late=0,
        resent=0,
        **_metrics(server, users),
    )
    yield Requests(launch, case, 0, rows)
    if not users:
        value = rate * PROFILE.output_tokens
        title = "output tokens at the limit"
        yield Figure(launch, case, "output_tokens_per_s", title, "1/s", "more", "median", value, requests)
    yield from _figures(launch, case, rows)
    units = tokens if users else float(requests)
    yield Block(launch, case, 0, round(units), begun_ns, window_ns, None, None)


def _figures(launch: int, case: int, rows: tuple[RequestRow, ...]) -> Iterator[Figure]:
    """Percentiles of the launch, as the worker reports them."""
    for key, title in (("ttft", "TTFT"), ("tpot", "TPOT"), ("e2e", "E2E")):
        values = sorted(v for row in rows if (v := getattr(row, f"{key}_s")) is not None)
        for which, words, share, needed in (
            ("p50", "median", 0.5, 1),
            ("p95", "p95", 0.95, 72),
            ("p99", "p99", 0.99, 368),
        ):
            value: float | Missing = Missing(f"needs {needed} requests a launch")
            if len(values) >= needed:
                value = values[math.ceil(share * len(values)) - 1]
            names = (f"{key}_{which}_s", f"{title} {words}", "s", "less", "median")
            yield Figure(launch, case, *names, value, len(values))
    lag = ("client_lag_p99_s", "lag of the client, p99", "s", "neither", "median")
    yield Figure(launch, case, *lag, 0.0008, 1000)


def _metrics(server: Server, users: int) -> dict[str, float]:
    if server.preemptions is None:
        return {}
    return {
        "server_running": float(min(users, server.slots)),
        "server_waiting": float(max(users - server.slots, 0)),
        "kv_cache_share": min(users / server.slots, 1.0) if users else 0.9,
        "prefix_hit_share": 0.01,
        "preemptions": server.preemptions if users > server.slots else 0.0,
    }


def _row(server: Server, n: int, begun_ns: int, rate: float, waits_s: float, factor: float) -> RequestRow:
    """The request with this number: times spread by a tenth around the mean, the same at each call."""
    spread = factor * (0.95 + 0.1 * (n * 7 % 11) / 10)
    due_ns = begun_ns + round(n / rate * 1e9)
    is_refused = n % 100 < server.failures
    first_ns = due_ns + round((server.prefill_s + waits_s) * spread * 1e9)
    last_ns = first_ns + round((PROFILE.output_tokens - 1) * server.decode_s * spread * 1e9)
    return RequestRow(
        request_index=n,
        counts=True,
        due_ns=due_ns,
        sent_ns=due_ns + 50_000,
        first_ns=None if is_refused else first_ns,
        last_ns=None if is_refused else last_ns,
        ended_ns=due_ns + 1_000_000 if is_refused else last_ns,
        in_flight=0,
        outcome="refused" if is_refused else "ok",
        reason="HTTP 429" if is_refused else "",
        http_status=429 if is_refused else 200,
        retry_after="2" if is_refused else "",
        prompt_tokens=PROFILE.prompt_tokens,
        cached_tokens=server.cached_tokens,
        output_tokens=None if is_refused else PROFILE.output_tokens,
        reasoning_tokens=None,
        output_events=0 if is_refused else PROFILE.output_tokens,
        longest_gap_ns=None,
        finish_reason="" if is_refused else "length",
        prompt_bytes=2800,
        prompt_hash=f"{n:016x}",
        answer_bytes=800,
        answer_hash=f"{n:016x}",
    )


def store_loads(
    db: Path,
    server: Server = Server(),
    *,
    number: int = 1,
    label: str = "",
    users: tuple[int, ...] = USERS,
    launches: int = 3,
    requests: int = 400,
) -> str:
    """Store a run of loads; returns its id."""
    lines = load_lines(server, number=number, label=label, users=users, launches=launches, requests=requests)
    run_dir = write_lines(db.parent / f"{db.stem}-{number}", lines)
    write_telemetry(run_dir, make_telemetry())
    contents = read_journal(run_dir)
    store_run(db, contents, read_telemetry(run_dir))
    return contents.start.run_id
