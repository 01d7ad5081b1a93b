"""One trace in words: how long a step takes, how busy the device is; and which rank waits for which.

The k-th collective of a name is the same operation on every rank. The rank that enters it last waits least,
so what a rank spends in it beyond the shortest of all is waiting, and that shortest is the transfer itself.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from gputui.analysis.attribution import ProfiledSide
from gputui.analysis.findings import StepFacts, findings_of
from gputui.document.table import Table, table_of
from gputui.model.absent import Missing
from gputui.model.journal import IDLE, ProfiledPass
from gputui.model.units import counted, format_percent, format_seconds
from gputui.services.compare.why import time_text
from gputui.services.results.step_breakdown import StepBreakdown, breakdown_of
from gputui.services.results.step_tables import CATEGORY_WORDS, operator_table, step_sentence
from gputui.services.traces.difference import TraceDifference, short_kernel
from gputui.services.traces.imported import TraceRun

_LEAST_SHARE = 0.01
_FIGURES_WIDTH = 50


def sentence(found: ProfiledPass, device: str) -> str:
    """`A step takes 222 ms. The GPU waits 76 % of it, most of it for the dispatch of operators: ...`"""
    length = format_seconds(found.window_ns / found.steps * 1e-9)
    what = f"{'A step' if found.steps > 1 else 'The window'} takes {length}."
    breakdown = breakdown_of(found)
    return (
        f"{what} {step_sentence(breakdown, 'it', is_on_gpu=bool(device))}"
        if isinstance(breakdown, StepBreakdown)
        else what
    )


def finding_lines(found: ProfiledPass, device: str) -> list[str]:
    """What slows a step down, as far as a trace without peaks and telemetry tells."""
    step_ns = round(found.window_ns / found.steps)
    side = ProfiledSide(found, step_ns, bool(device))
    texts = [finding.text for finding in findings_of(StepFacts(side, "", None, None))]
    return texts if found.steps > 1 else [text.replace("the step", "the window") for text in texts]


def held_back(found: TraceDifference) -> list[str]:
    """What slows down the first trace of each side."""
    return [
        f"{letter}  {line}"
        for letter, side in (("a", found.a), ("b", found.b))
        for line in finding_lines(side[0].found, side[0].device)
    ]


def category_table(found: ProfiledPass) -> Table:
    """Device time by category, and idle time by cause; they sum to the step."""
    sums: Counter[str] = Counter()
    for operator in found.operators:
        sums[operator.category] += operator.time_ns
    for part in found.slices:
        if part.time_class == IDLE:
            sums[f"idle: {part.cause.replace('_', ' ')}"] += part.time_ns
    rows = [
        (CATEGORY_WORDS.get(name, name), time_text(ns // found.steps), format_percent(ns / found.window_ns))
        for name, ns in sums.most_common()
        if ns >= _LEAST_SHARE * found.window_ns
    ]
    rest = [ns for ns in sums.values() if ns < _LEAST_SHARE * found.window_ns]
    if sum(rest):
        rows.append(
            (
                counted(len(rest), "other"),
                time_text(sum(rest) // found.steps),
                format_percent(sum(rest) / found.window_ns),
            )
        )
    return table_of(("part of a step", "time", "share"), rows, (1, 2))


def largest_operators(found: ProfiledPass, width: int, most: int) -> Table:
    """The operators with the most time."""
    rows = found.operators[:most]
    room = max(20, width - _FIGURES_WIDTH)
    names = [short_kernel(row.operator.removeprefix("aten::"), room) for row in rows]
    return operator_table(found, rows, names=names)


def kernel_table(found: ProfiledPass, width: int, most: int) -> Table | None:
    """The kernels with the most time; None on a CPU."""
    rows = [
        (
            short_kernel(row.name, max(20, width - _FIGURES_WIDTH)),
            f"{row.calls / found.steps:.3g}",
            time_text(row.time_ns // found.steps),
            time_text(row.longest_ns),
        )
        for row in found.kernels[:most]
    ]
    return table_of(("kernel", "calls", "per step", "longest"), rows, (1, 2, 3)) if rows else None


_STRAGGLER_SHARE = 0.02
"""Of a step: ranks that wait less than this for each other are even."""


@dataclass(frozen=True, slots=True)
class Rank:
    """One rank; times per step."""

    rank: int
    name: str
    step_ns: int
    transfer_ns: int
    waiting_ns: int
    """In collectives, for the slowest rank."""


@dataclass(frozen=True, slots=True)
class Ranks:
    """All ranks of a job, by number."""

    ranks: tuple[Rank, ...]
    straggler: int | None
    """The rank that the others wait for; None if they are even."""


def ranks_of(runs: Sequence[TraceRun]) -> Ranks | Missing:
    """Compare the collectives of ranks. Missing if there are not two ranks with the same collectives."""
    of_rank = {run.rank: run for run in runs if run.rank is not None}
    if len(of_rank) < 2:
        return Missing("fewer than two ranks")
    collectives = {rank: _by_name(run.collectives) for rank, run in of_rank.items()}
    counts = {tuple(sorted((name, len(ns)) for name, ns in found.items())) for found in collectives.values()}
    if len(counts) != 1 or not next(iter(counts)):
        return Missing("the ranks did not do the same collectives")
    transfer_ns = 0
    waiting_ns: dict[int, int] = dict.fromkeys(of_rank, 0)
    for name in next(iter(collectives.values())):
        for index in range(len(next(iter(collectives.values()))[name])):
            shortest = min(found[name][index] for found in collectives.values())
            transfer_ns += shortest
            for rank, found in collectives.items():
                waiting_ns[rank] += found[name][index] - shortest
    ranks = tuple(
        Rank(
            rank,
            run.name,
            run.found.window_ns // run.found.steps,
            transfer_ns // run.found.steps,
            waiting_ns[rank] // run.found.steps,
        )
        for rank, run in sorted(of_rank.items())
    )
    least = min(ranks, key=lambda r: r.waiting_ns)
    most = max(r.waiting_ns for r in ranks)
    is_even = most - least.waiting_ns < _STRAGGLER_SHARE * least.step_ns
    return Ranks(ranks, None if is_even else least.rank)


def _by_name(collectives: Iterable[tuple[str, int]]) -> dict[str, list[int]]:
    found: dict[str, list[int]] = defaultdict(list)
    for name, ns in collectives:
        found[name].append(ns)
    return found


def rank_lines(found: Ranks) -> list[str]:
    """The answer, and a line for each rank."""
    if found.straggler is None:
        first = f"{len(found.ranks)} ranks are even: none waits long for another"
    else:
        waited = max(r.waiting_ns for r in found.ranks)
        longest = format_seconds(waited * 1e-9)
        first = f"rank {found.straggler} is the slowest: others wait up to {longest} a step for it"
    lines = [first]
    for one in found.ranks:
        share = format_percent(one.waiting_ns / one.step_ns) if one.step_ns else "—"
        lines.append(
            f"  rank {one.rank}: step {format_seconds(one.step_ns * 1e-9)}, waiting for others"
            f" {format_seconds(one.waiting_ns * 1e-9)} ({share}),"
            f" transferring {format_seconds(one.transfer_ns * 1e-9)}"
        )
    return lines
