"""Which rank of a job holds up the others, at which collective, and what it did before.

The k-th collective of a name is the same operation on every rank, and ends on all of them together: clocks
are aligned at these ends. The rank that enters it last is the one for which the others wait, so what a rank
spends in it beyond the shortest of all is waiting, and that shortest is the transfer itself.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
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


def rank_lines(runs: Sequence[TraceRun]) -> list[str]:
    """Who holds up the others and why, and a line for each rank; none if no two ranks did the same
    collectives."""
    of_rank = {run.rank: run for run in sorted(runs, key=lambda run: run.rank or 0) if run.rank is not None}
    collectives = {
        rank: sorted((c for c in run.collectives if c.start_ns >= run.window.start_ns), key=lambda c: c.name)
        for rank, run in of_rank.items()
    }
    names = [[one.name for one in ones] for ones in collectives.values()]
    if len(of_rank) < 2 or not names[0] or any(other != names[0] for other in names):
        return []
    together = [dict(zip(collectives, ones, strict=True)) for ones in zip(*collectives.values(), strict=True)]
    first, steps = next(iter(of_rank)), {rank: run.found.steps for rank, run in of_rank.items()}
    behind_ns = {r: median(ones[r].end_ns - ones[first].end_ns for ones in together) for r in of_rank}
    late_at: dict[int, Counter[str]] = {rank: Counter() for rank in of_rank}
    waiting_ns, transfer_ns = Counter[int](), 0
    for place, ones in zip(_places(names[0], steps[first]), together, strict=True):
        enters_ns = {rank: one.start_ns - behind_ns[rank] for rank, one in ones.items()}
        last = max(enters_ns, key=enters_ns.__getitem__)
        others_ns = median(t_ns for rank, t_ns in enters_ns.items() if rank != last)
        late_at[last][place] += round(enters_ns[last] - others_ns)
        lengths_ns = Counter({rank: one.end_ns - one.start_ns for rank, one in ones.items()})
        transfer_ns += min(lengths_ns.values())
        waiting_ns.update({rank: ns - min(lengths_ns.values()) for rank, ns in lengths_ns.items()})
    step_ns = {rank: run.found.window_ns // run.found.steps for rank, run in of_rank.items()}
    late_ns = {rank: at.total() // steps[rank] for rank, at in late_at.items()}
    lines = []
    if any((run.found.waited_share or 0.0) >= WORTH_A_LINE for run in of_rank.values()):
        lines.append("which rank holds up the others is not said: other programs had the cores meanwhile")
    else:
        parts = {rank: _parts(run.found) for rank, run in of_rank.items()}
        for rank in sorted(late_ns, key=lambda rank: -late_ns[rank]):
            if late_ns[rank] > max(_EVEN_SHARE * step_ns[rank], max(late_ns.values()) / 2):
                did = _excess(rank, parts, late_ns[rank])
                if step_ns[rank] < min(ns for other, ns in step_ns.items() if other != rank):
                    did += ". Its own step is the shortest, since it waits for nobody"
                lines.append(
                    f"rank {rank} holds up the others: it enters collectives last,"
                    f" {format_seconds(late_ns[rank] * 1e-9)} a step later than they, most at"
                    f" {max(late_at[rank], key=late_at[rank].__getitem__)}; {did}"
                )
        if not lines:
            lines.append(f"{len(of_rank)} ranks are even: none waits long for another")
    for rank, ns in step_ns.items():
        waits_ns = waiting_ns[rank] // steps[rank]
        share = format_percent(waits_ns / ns) if ns else "—"
        lines.append(
            f"  rank {rank}: step {format_seconds(ns * 1e-9)}, waiting for others"
            f" {format_seconds(waits_ns * 1e-9)} ({share}),"
            f" transferring {format_seconds(transfer_ns // steps[rank] * 1e-9)}"
        )
    return lines


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
    """What its steps have more of than the middle one of the others, if that is most of its lateness."""
    others = [of for number, of in parts.items() if number != rank]
    more_ns = {name: ns - median(of.get(name, 0.0) for of in others) for name, ns in parts[rank].items()}
    most = max(more_ns, key=more_ns.__getitem__, default="")
    if not most or more_ns[most] < late_ns / 2:
        return "its steps do not tell why: look at what it did before them"
    return f"a step of it has {format_seconds(more_ns[most] * 1e-9)} more of {most} than one of the others"
