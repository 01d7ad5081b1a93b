"""Which rank of a job holds up the others, at which collective, and what it did before.

The k-th collective of a name is the same operation on every rank, and ends on all of them together: clocks
are aligned at these ends. The rank that enters it last is the one for which the others wait, so what a rank
spends in it beyond the shortest of all is waiting, and that shortest is the transfer itself.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from statistics import median

from gputui.model.absent import Missing
from gputui.model.profiled import IDLE, ProfiledPass
from gputui.model.units import format_percent, format_seconds
from gputui.services.results.step_tables import CATEGORY_WORDS
from gputui.services.traces.collectives import Collective
from gputui.services.traces.imported import TraceRun

_EVEN_SHARE = 0.02
"""Of a step: ranks that are less late than this are even."""
_OF_OTHERS = ("queue", "sync")
"""Causes of idle time that are not a rank's own doing."""


@dataclass(frozen=True, slots=True)
class Rank:
    """One rank; times per step."""

    rank: int
    name: str
    step_ns: int
    transfer_ns: int
    waiting_ns: int
    """In collectives, for the rank that enters them last."""
    late_ns: int
    """How much later than the middle one of the others it enters those that it enters last."""
    last_of: int
    """How many it enters last, of all in the window."""
    latest: str
    """Which of them it holds up most."""
    excess: str
    """What its steps have more of than those of the others; empty if that is not most of its lateness."""


@dataclass(frozen=True, slots=True)
class Ranks:
    """All ranks of a job, by number."""

    ranks: tuple[Rank, ...]
    collectives: int
    """Of each rank, in its window."""

    @property
    def late(self) -> tuple[Rank, ...]:
        """Those that hold up the others, the latest first; none if they are even."""
        found = [one for one in self.ranks if one.late_ns >= _EVEN_SHARE * one.step_ns and one.late_ns]
        return tuple(sorted(found, key=lambda one: -one.late_ns))


def ranks_of(runs: Sequence[TraceRun]) -> Ranks | Missing:
    """Compare the collectives of ranks. Missing if there are not two ranks with the same collectives."""
    of_rank = {run.rank: run for run in sorted(runs, key=lambda run: run.rank or 0) if run.rank is not None}
    if len(of_rank) < 2:
        return Missing("fewer than two ranks")
    together = _together(of_rank)
    if not together:
        return Missing("the ranks did not do the same collectives")
    first = next(iter(of_rank))
    behind_ns = {
        rank: median(_end_ns(ones[rank]) - _end_ns(ones[first]) for _, ones in together) for rank in of_rank
    }
    late_at: dict[int, Counter[str]] = {rank: Counter() for rank in of_rank}
    last_of, waiting_ns, transfer_ns = Counter[int](), Counter[int](), 0
    for place, ones in together:
        enters_ns = {rank: one.start_ns - behind_ns[rank] for rank, one in ones.items()}
        last = max(enters_ns, key=enters_ns.__getitem__)
        others_ns = median(t_ns for rank, t_ns in enters_ns.items() if rank != last)
        late_at[last][place] += round(enters_ns[last] - others_ns)
        last_of[last] += 1
        shortest_ns = min(one.length_ns for one in ones.values())
        transfer_ns += shortest_ns
        for rank, one in ones.items():
            waiting_ns[rank] += one.length_ns - shortest_ns
    parts = {rank: _parts(run.found) for rank, run in of_rank.items()}
    ranks = [
        Rank(
            rank=rank,
            name=run.name,
            step_ns=run.found.window_ns // run.found.steps,
            transfer_ns=transfer_ns // run.found.steps,
            waiting_ns=waiting_ns[rank] // run.found.steps,
            late_ns=late_at[rank].total() // run.found.steps,
            last_of=last_of[rank],
            latest=max(late_at[rank], key=late_at[rank].__getitem__, default=""),
            excess=_excess(rank, parts, late_at[rank].total() / run.found.steps),
        )
        for rank, run in of_rank.items()
    ]
    return Ranks(tuple(ranks), len(together))


def _together(of_rank: Mapping[int, TraceRun]) -> list[tuple[str, dict[int, Collective]]]:
    """Each collective with its place in a step, by rank; empty if the ranks did not do the same."""
    by_name = {rank: _by_name(run) for rank, run in of_rank.items()}
    counts = [{name: len(ones) for name, ones in found.items()} for found in by_name.values()]
    if any(count != counts[0] for count in counts):
        return []
    steps = next(iter(of_rank.values())).found.steps
    return [
        (_place(name, k, count, steps), {rank: found[name][k] for rank, found in by_name.items()})
        for name, count in counts[0].items()
        for k in range(count)
    ]


def _by_name(run: TraceRun) -> dict[str, list[Collective]]:
    """Those that begin in its window."""
    found: dict[str, list[Collective]] = defaultdict(list)
    for one in run.collectives:
        if one.start_ns >= run.window.start_ns:
            found[one.name].append(one)
    return found


def _end_ns(one: Collective) -> int:
    return one.start_ns + one.length_ns


def _place(name: str, index: int, count: int, steps: int) -> str:
    """`allreduce 2 of 5`, of a step if each has as many."""
    of = count if count % steps else count // steps
    return f"{name} {index % of + 1} of {of}" if of > 1 else name


def _parts(found: ProfiledPass) -> Counter[str]:
    """Time of a step by what a rank does itself."""
    parts = Counter[str]()
    for part in found.slices:
        if part.time_class == IDLE and part.cause not in _OF_OTHERS:
            cause = f"idle: {part.cause.replace('_', ' ')}"
            parts[CATEGORY_WORDS.get(cause, cause)] += part.time_ns
        elif part.time_class not in (IDLE, "communication"):
            parts[part.time_class.replace("_", " ")] += part.time_ns
    return Counter({name: ns // found.steps for name, ns in parts.items()})


def _excess(rank: int, parts: Mapping[int, Counter[str]], late_ns: float) -> str:
    """`7.10 ms more of waiting for the loader`, against the middle one of the others."""
    others = [of for number, of in parts.items() if number != rank]
    more_ns = {name: ns - median(of[name] for of in others) for name, ns in parts[rank].items()}
    most = max(more_ns, key=more_ns.__getitem__, default="")
    if not late_ns or not most or more_ns[most] < late_ns / 2:
        return ""
    return f"{format_seconds(more_ns[most] * 1e-9)} more of {most}"


def rank_lines(found: Ranks) -> list[str]:
    """Who holds up the others and why, and a line for each rank."""
    lines = [_late_line(one, found) for one in found.late]
    if not lines:
        lines = [f"{len(found.ranks)} ranks are even: none waits long for another"]
    for one in found.ranks:
        share = format_percent(one.waiting_ns / one.step_ns) if one.step_ns else "—"
        lines.append(
            f"  rank {one.rank}: step {format_seconds(one.step_ns * 1e-9)}, waiting for others"
            f" {format_seconds(one.waiting_ns * 1e-9)} ({share}),"
            f" transferring {format_seconds(one.transfer_ns * 1e-9)}"
        )
    return lines


def _late_line(one: Rank, found: Ranks) -> str:
    did = (
        f"a step of it has {one.excess} than one of the others"
        if one.excess
        else "its steps do not tell why: look at what it did before them"
    )
    others_ns = [other.step_ns for other in found.ranks if other is not one]
    if one.step_ns < min(others_ns):
        did += ". Its own step is the shortest, since it waits for nobody"
    entered = f"{one.last_of} of {found.collectives} collectives"
    late = format_seconds(one.late_ns * 1e-9)
    return (
        f"rank {one.rank} holds up the others: it enters {entered} last, {late} a step late, most at"
        f" {one.latest}; {did}"
    )
