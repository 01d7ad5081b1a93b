"""What a stored run says of a server: one row per load, with percentiles over all its requests."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from gputui.analysis.cost import Energy, PoweredLaunch, energy_per_unit
from gputui.analysis.statistics import Percentile, percentile
from gputui.analysis.verdict import SpeedEstimate
from gputui.model.absent import Missing, known
from gputui.model.plan import Case
from gputui.model.result import CaseResult, Measurement, Run
from gputui.model.serving import ANSWERED, LoadStep, RequestRow, ServerFound, ServingRecords
from gputui.services.results.throughput import speed_of
from gputui.services.serving.profiles import parameter_of
from gputui.worker.serving.load import TriedRate, bracket_of

CLOSED, OPEN, SEARCH = "closed", "open", "search"


@dataclass(frozen=True, slots=True)
class Times:
    """A time of all answered requests of a load."""

    p50_s: Percentile | Missing
    p99_s: Percentile | Missing
    n: int


@dataclass(frozen=True, slots=True)
class Level:
    """One load in all its launches."""

    result: CaseResult
    kind: str
    """`closed`, `open` or `search`."""
    users: int | None
    rate_per_s: float | None
    """Offered, of `open`."""
    speed: SpeedEstimate | Missing
    """Output tokens per second; of `search` requests per second at the limit."""
    tokens_per_s_and_user: float | Missing
    """Output tokens per second and user, waiting for the first included."""
    output_tokens_per_s: float | Missing
    """Output tokens per second; of `search` at the limit, the median of its launches."""
    ttft: Times
    tpot: Times
    e2e: Times
    outcomes: Counter[str]
    """Of the requests that count."""
    cached_share: float | Missing
    """Prompt tokens that came from a cache."""
    other_lengths: int
    """Answers whose length is not the one that was asked for."""
    in_one_piece: int
    """Answers all of whose output arrived at one instant."""
    client_lag_p99_s: float
    """The largest p99 of the client's lag among its steps."""
    energy: Energy | Missing
    """Joules per output token, of all GPUs of the box."""
    offered: tuple[LoadStep, ...]
    """All its steps; a search offers several rates."""
    server: Mapping[str, float | None]
    """What the server said of itself at the ends of its launches, None for what it does not offer: the
    longest queue, `waiting`; the most of its key-value cache in use and the mean share of prefixes that were
    there, each 0 to 1; all preemptions. Empty if it offers none of these."""
    held_requests_per_s: float | None
    """Of a search, the highest rate that held below all that failed; None if none did, as the next."""
    failed_requests_per_s: float | None
    """The lowest rate that failed."""

    @property
    def case(self) -> Case:
        return self.result.case

    @property
    def is_as_offered(self) -> bool:
        """Whether its tokens per second are those of the rate, which say nothing of the server."""
        return self.kind == OPEN and not isinstance(self.speed, Missing)

    @property
    def is_overloaded(self) -> bool:
        """The queue grew in every launch of a fixed rate."""
        return self.kind == OPEN and bool(self.offered) and all(step.is_overloaded for step in self.offered)


@dataclass(frozen=True, slots=True)
class ServingRun:
    server: ServerFound | Missing
    """As its last launch found it."""
    model: str
    api: str
    profile: str
    prompt_tokens: int
    shared_tokens: int
    output_tokens: int
    prompts: str
    """`random words`, or a file's hash; of an older gputui that they begin differently."""
    levels: tuple[Level, ...]
    """Users in ascending order, then rates, then the limit."""

    @property
    def limit(self) -> Level | None:
        """The search, if it was part of the run."""
        return next((level for level in self.levels if level.kind == SEARCH), None)


def serving_of(run: Run, records: ServingRecords) -> ServingRun | Missing:
    """Everything that is shown of a run of loads; Missing for any other run."""
    cases = [result for result in run.cases if result.case.is_load]
    if not cases:
        return Missing("it offered no load to a server")
    first = cases[0].case
    levels = [_level(result, records) for result in cases]
    levels.sort(key=lambda one: ((CLOSED, OPEN, SEARCH).index(one.kind), one.users or one.rate_per_s or 0.0))
    return ServingRun(
        server=records.servers[-1] if records.servers else Missing("no launch found it"),
        model=str(parameter_of(first, "model") or ""),
        api=str(parameter_of(first, "api") or ""),
        profile=first.work.workload.removeprefix("serve:").split(" ")[0],
        prompt_tokens=_whole(first, "prompt_tokens"),
        shared_tokens=_whole(first, "shared_tokens"),
        output_tokens=_whole(first, "output_tokens"),
        prompts=str(parameter_of(first, "prompts") or "prompts begin differently"),
        levels=tuple(levels),
    )


def _whole(case: Case, name: str) -> int:
    value = parameter_of(case, name)
    return value if isinstance(value, int) else 0


def _level(result: CaseResult, records: ServingRecords) -> Level:
    case_id, kind = result.case_id, str(parameter_of(result.case, "load") or CLOSED)
    kind = kind if kind in (CLOSED, OPEN, SEARCH) else CLOSED
    offered = tuple(step for step in records.steps if step.case_id == case_id)
    ended_well = {m.launch_id for m in result.measurements if m.outcome == "ok"}
    chosen = _chosen(kind, [step for step in offered if step.launch_id in ended_well])
    keys = {(step.launch_id, step.step_index) for step in chosen}
    rows = [
        row
        for some in records.requests
        if some.case_id == case_id and (some.launch_id, some.step_index) in keys
        for row in some.rows
        if row.counts
    ]
    answered = [row for row in rows if row.outcome == ANSWERED]
    speed = speed_of(result)
    users, rate = parameter_of(result.case, "users"), parameter_of(result.case, "rate_per_s")
    per_user: float | Missing = Missing("it has no users")
    if isinstance(speed, Missing):
        per_user = speed
    elif isinstance(users, int) and users:
        per_user = speed.units_per_s / users
    asked = _whole(result.case, "output_tokens")
    held, failed = _bracket(result, offered) if kind == SEARCH else (None, None)
    return Level(
        result=result,
        kind=kind,
        users=users if isinstance(users, int) else None,
        rate_per_s=float(rate) if isinstance(rate, int | float) else None,
        speed=speed,
        tokens_per_s_and_user=per_user,
        output_tokens_per_s=_output(result, speed, kind),
        ttft=_times(answered, lambda row: row.ttft_s),
        tpot=_times(answered, lambda row: row.tpot_s),
        e2e=_times(answered, lambda row: row.e2e_s),
        outcomes=Counter(row.outcome for row in rows),
        cached_share=_cached(answered),
        other_lengths=sum(row.output_tokens != asked for row in answered),
        in_one_piece=sum(row.is_in_one_piece for row in answered),
        client_lag_p99_s=max((step.client_lag_p99_s or 0.0 for step in offered), default=0.0),
        energy=_energy(result, records, kind),
        offered=offered,
        server=_server_during(chosen),
        held_requests_per_s=held,
        failed_requests_per_s=failed,
    )


def _server_during(steps: Sequence[LoadStep]) -> dict[str, float | None]:
    def values(of: Callable[[LoadStep], float | None]) -> list[float]:
        return [value for step in steps if (value := of(step)) is not None]

    hits = values(lambda step: step.prefix_hit_share)
    preemptions = values(lambda step: step.preemptions)
    found = {
        "waiting": max(values(lambda step: step.server_waiting), default=None),
        "kv_cache_share": max(values(lambda step: step.kv_cache_share), default=None),
        "prefix_hit_share": sum(hits) / len(hits) if hits else None,
        "preemptions": sum(preemptions) if preemptions else None,
    }
    return found if any(value is not None for value in found.values()) else {}


def _bracket(result: CaseResult, offered: Sequence[LoadStep]) -> tuple[float | None, float | None]:
    """The highest rate that held in any launch, and the lowest that failed.

    The last step of a launch that failed says nothing of the rate: the server went away meanwhile.
    """
    broken = {m.launch_id for m in result.measurements if m.outcome == "failed"}
    last = {step.launch_id: step.step_index for step in sorted(offered, key=lambda one: one.step_index)}
    share = parameter_of(result.case, "attained_share")
    wanted = float(share) if isinstance(share, int | float) else 0.0
    tried = [
        TriedRate(
            step.rate_per_s,
            step.good_share,
            step.good_share >= wanted and not step.is_overloaded,
            step.requests_counted,
        )
        for step in offered
        if step.rate_per_s is not None and step.good_share is not None and step.requests_counted
        if step.launch_id not in broken or step.step_index < last[step.launch_id]
    ]
    held, failed = bracket_of(tried)
    return held.rate_per_s if held else None, failed.rate_per_s if failed else None


def _chosen(kind: str, steps: Sequence[LoadStep]) -> list[LoadStep]:
    """Those whose requests stand for the load: of a search, in each launch the highest rate that held."""
    if kind != SEARCH:
        return [step for step in steps if not step.is_overloaded]
    best: dict[int, LoadStep] = {}
    for step in steps:
        other = best.get(step.launch_id)
        is_held = not step.is_overloaded and (step.good_share or 0.0) > 0
        if is_held and (other is None or _merit(step) > _merit(other)):
            best[step.launch_id] = step
    return list(best.values())


def _merit(step: LoadStep) -> float:
    """Good requests per second, which rise with the rate until it is too high."""
    return (step.good_share or 0.0) * (step.rate_per_s or 0.0)


def _output(result: CaseResult, speed: SpeedEstimate | Missing, kind: str) -> float | Missing:
    if isinstance(speed, Missing) or kind != SEARCH:
        return speed if isinstance(speed, Missing) else speed.units_per_s
    found = sorted(
        per_s
        for measurement in result.measurements
        if measurement.outcome == "ok" and (per_s := _output_at_limit(measurement)) is not None
    )
    return found[len(found) // 2] if found else Missing("no launch reports it")


def _output_at_limit(measurement: Measurement) -> float | None:
    """Output tokens per second at the limit that a launch found."""
    values = [figure.value for figure in measurement.figures if figure.key == "output_tokens_per_s"]
    return known(values[0]) if values else None


def _energy(result: CaseResult, records: ServingRecords, kind: str) -> Energy | Missing:
    """Of all GPUs: which of them the server uses is not known."""
    if not all(server.is_here for server in records.servers):
        return Missing("the server is elsewhere")
    powers = {one.launch_id: one for one in records.powers if one.case_id == result.case_id}
    launches = []
    for measurement in result.measurements:
        power = powers.get(measurement.launch_id)
        if power is None or measurement.outcome != "ok" or not measurement.blocks:
            continue
        wall_s = sum(block.wall_ns for block in measurement.blocks) * 1e-9
        per_s = sum(block.steps for block in measurement.blocks) / wall_s
        if kind == SEARCH:
            per_s = _output_at_limit(measurement) or 0.0
        if per_s:
            launches.append(PoweredLaunch(power.mean_w, power.samples, 1 / per_s, wall_s))
    return energy_per_unit(launches)


def _times(answered: Sequence[RequestRow], of: Callable[[RequestRow], float | None]) -> Times:
    values = sorted(value for row in answered if (value := of(row)) is not None)
    return Times(percentile(values, 0.5), percentile(values, 0.99), len(values))


def _cached(answered: Sequence[RequestRow]) -> float | Missing:
    counted = [row for row in answered if row.prompt_tokens]
    if not any(row.cached_tokens is not None for row in counted):
        return Missing("the server does not say")
    return sum(row.cached_tokens or 0 for row in counted) / sum(row.prompt_tokens or 0 for row in counted)
