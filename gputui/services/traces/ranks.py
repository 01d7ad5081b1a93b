"""Which rank of a job holds up the others, at which collective, and what it did before.

The k-th collective of a name is the same operation on every rank, and ends on all of them together: clocks
are aligned at these ends. The rank that enters it last is the one for which the others wait, so what a rank
spends in it beyond the shortest of all is waiting, and that shortest is the transfer itself.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from statistics import median

from gputui.analysis.findings import WORTH_A_LINE
from gputui.model.absent import Missing
from gputui.model.journal import ProfiledPass
from gputui.model.units import format_percent, format_seconds
from gputui.services.results.step_breakdown import CATEGORY_WORDS, breakdown_of
from gputui.services.traces.imported import TraceRun

_EVEN_SHARE = 0.02
"""Of a step: ranks that are less late than this are even."""
_OF_OTHERS = ("communication", "idle: queue", "idle: sync")
"""Parts of a step that are not a rank's own doing."""


@dataclass(frozen=True, slots=True)
class Rank:
    """One rank; times per step."""

    rank: int
    step_ns: int
    transfer_ns: int
    waiting_ns: int
    """In collectives, for the rank that enters them last."""
    late_ns: int
    """How much later than the middle one of the others it enters those that it enters last."""
    latest: str
    """Which of them it holds up most."""
    waited_share: float
    """Of its window, in which it waited for cores that other programs had; 0 if unknown."""
    excess: str
    """What its steps have more of than those of the others; empty if that is not most of its lateness."""


def ranks_of(runs: Sequence[TraceRun]) -> tuple[Rank, ...] | Missing:
    """Compare the collectives of ranks, by number. Missing if no two ranks have the same collectives."""
    of_rank = {run.rank: run for run in sorted(runs, key=lambda run: run.rank or 0) if run.rank is not None}
    if len(of_rank) < 2:
        return Missing("fewer than two ranks")
    collectives = {
        rank: sorted((c for c in run.collectives if c.start_ns >= run.window.start_ns), key=lambda c: c.name)
        for rank, run in of_rank.items()
    }
    names, *others = ([one.name for one in ones] for ones in collectives.values())
    if not names or any(other != names for other in others):
        return Missing("the ranks did not do the same collectives")
    together = [dict(zip(collectives, ones, strict=True)) for ones in zip(*collectives.values(), strict=True)]
    first = next(iter(of_rank))
    behind_ns = {r: median(ones[r].end_ns - ones[first].end_ns for ones in together) for r in of_rank}
    late_at: dict[int, Counter[str]] = {rank: Counter() for rank in of_rank}
    waiting_ns, transfer_ns = Counter[int](), 0
    places = _places(names, of_rank[first].found.steps)
    for place, ones in zip(places, together, strict=True):
        enters_ns = {rank: one.start_ns - behind_ns[rank] for rank, one in ones.items()}
        last = max(enters_ns, key=enters_ns.__getitem__)
        others_ns = median(t_ns for rank, t_ns in enters_ns.items() if rank != last)
        late_at[last][place] += round(enters_ns[last] - others_ns)
        lengths_ns = Counter({rank: one.end_ns - one.start_ns for rank, one in ones.items()})
        transfer_ns += min(lengths_ns.values())
        waiting_ns.update({rank: ns - min(lengths_ns.values()) for rank, ns in lengths_ns.items()})
    parts = {rank: _parts(run.found) for rank, run in of_rank.items()}
    return tuple(
        Rank(
            rank=rank,
            step_ns=run.found.window_ns // run.found.steps,
            transfer_ns=transfer_ns // run.found.steps,
            waiting_ns=waiting_ns[rank] // run.found.steps,
            late_ns=late_at[rank].total() // run.found.steps,
            latest=max(late_at[rank], key=late_at[rank].__getitem__, default=""),
            waited_share=run.found.waited_share or 0.0,
            excess=_excess(rank, parts, late_at[rank].total() / run.found.steps),
        )
        for rank, run in of_rank.items()
    )


def _places(names: Sequence[str], steps: int) -> Iterator[str]:
    """`allreduce 2 of 5`, of a step if each has as many."""
    counts, seen = Counter(names), Counter[str]()
    for name in names:
        of = counts[name] if counts[name] % steps else counts[name] // steps
        yield f"{name} {seen[name] % of + 1} of {of}" if of > 1 else name
        seen[name] += 1


def _parts(found: ProfiledPass) -> dict[str, float]:
    """Nanoseconds of a step by what a rank does itself."""
    breakdown = breakdown_of(found)
    shares = () if isinstance(breakdown, Missing) else breakdown.shares
    mine = ((one.name, one.share) for one in shares if one.name not in _OF_OTHERS)
    return {CATEGORY_WORDS.get(name, name): share * found.window_ns / found.steps for name, share in mine}


def _excess(rank: int, parts: Mapping[int, Mapping[str, float]], late_ns: float) -> str:
    """`7.10 ms more of waiting for the loader`, against the middle one of the others."""
    others = [of for number, of in parts.items() if number != rank]
    more_ns = {name: ns - median(of.get(name, 0.0) for of in others) for name, ns in parts[rank].items()}
    most = max(more_ns, key=more_ns.__getitem__, default="")
    if not late_ns or not most or more_ns[most] < late_ns / 2:
        return ""
    return f"{format_seconds(more_ns[most] * 1e-9)} more of {most}"


def rank_lines(ranks: Sequence[Rank]) -> list[str]:
    """Who holds up the others and why, and a line for each rank."""
    most_ns = max(one.late_ns for one in ranks)
    late = [one for one in ranks if one.late_ns > max(_EVEN_SHARE * one.step_ns, most_ns / 2)]
    lines = []
    if any(one.waited_share >= WORTH_A_LINE for one in ranks):
        lines.append("which rank holds up the others is not said: other programs had the cores meanwhile")
        late = []
    for one in sorted(late, key=lambda one: -one.late_ns):
        did = (
            f"a step of it has {one.excess} than one of the others"
            if one.excess
            else "its steps do not tell why: look at what it did before them"
        )
        if one.step_ns < min(other.step_ns for other in ranks if other is not one):
            did += ". Its own step is the shortest, since it waits for nobody"
        lines.append(
            f"rank {one.rank} holds up the others: it enters collectives last,"
            f" {format_seconds(one.late_ns * 1e-9)} a step later than they, most at {one.latest}; {did}"
        )
    for one in ranks:
        share = format_percent(one.waiting_ns / one.step_ns) if one.step_ns else "—"
        lines.append(
            f"  rank {one.rank}: step {format_seconds(one.step_ns * 1e-9)}, waiting for others"
            f" {format_seconds(one.waiting_ns * 1e-9)} ({share}),"
            f" transferring {format_seconds(one.transfer_ns * 1e-9)}"
        )
    is_even = len(lines) == len(ranks)
    return [f"{len(ranks)} ranks are even: none waits long for another", *lines] if is_even else lines
