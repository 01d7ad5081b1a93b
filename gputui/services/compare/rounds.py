"""Bakeoffs in rounds: all hosts get launches until their rows are told from those of the first.

Between rounds the rows are judged here, from the result file. A round is a bakeoff like any other, so that
nothing waits on a host while this side is away.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace

from gputui.analysis.resolution import DECIDED, error_rate_of
from gputui.model.result import Run
from gputui.model.units import counted, listed
from gputui.recording.run_directory import Spec
from gputui.services.compare.pairing import Pairing, pairing, side_of_runs
from gputui.services.compare.resolve import RowStanding, lines_of_rows, standings_of
from gputui.services.hosts.bakeoff import Bakeoff, BatchPart, Rounds
from gputui.services.hosts.host import Host
from gputui.services.profiles.planner import plan_again
from gputui.services.runs.process import new_run_id
from gputui.store.reading import open_result

MOST_LAUNCHES = 12
"""Per case, unless the user names another number: three at first, as in a bakeoff, then as many again, then
twice as many in all."""


@dataclass(frozen=True, slots=True)
class HostStanding:
    """What is known of a host's rows beside those of the first host."""

    name: str
    base: str
    rounds: Rounds
    made: int
    """Rounds that are over."""
    rows: dict[Pairing, RowStanding]

    @property
    def open(self) -> set[Pairing]:
        """The rows that another round may decide."""
        return {key for key, row in self.rows.items() if not row.is_closed}

    @property
    def message(self) -> str:
        """`gpu-b: 2 of 4 rows decided after 3 launches`."""
        decided = sum(row.word in DECIDED for row in self.rows.values())
        launches = counted(self.rounds.looks[self.made - 1], "launch")
        left = f", {len(self.open)} open" if self.open else ""
        return f"{self.name}: {decided} of {counted(len(self.rows), 'row')} decided after {launches}{left}"

    def lines(self) -> Iterator[str]:
        """A heading, a line for each row, those that are decided first, and how sure they are."""
        yield f"{self.name} against {self.base}, to ±{self.rounds.percent:g} %"
        yield from (f"  {line}" for line in lines_of_rows(self.rows.values(), self.rounds.percent))


def how_sure(rounds: Rounds) -> str:
    """What the rounds may do, and how sure their answers are."""
    after = listed([str(n) for n in rounds.looks])
    confidence = 100 * (1 - error_rate_of(rounds.looks))
    return (
        f"rows to ±{rounds.percent:g} %: at most {counted(len(rounds.looks), 'round')}, to {after} launches"
        f" per case, with {confidence:.3g} % intervals, so that all rounds together are 97 % sure"
    )


def standings(bakeoff: Bakeoff) -> list[HostStanding]:
    """Every host beside the first after this round, which is over. Raises GputuiError."""
    rounds = bakeoff.rounds
    if rounds is None:
        return []
    made, base_name = rounds.before + 1, rounds.hosts[0]
    runs = _runs_by_label(bakeoff)
    base = runs.get(rounds.label_of(base_name), [])
    found = []
    for name in rounds.hosts[1:]:
        measured = runs.get(rounds.label_of(name), [])
        if base and measured:
            rows: dict[Pairing, RowStanding] = {}
            for number in range(1, made + 1):
                _look(rows, base[:number], measured[:number], rounds, number)
            found.append(HostStanding(name, base_name, rounds, made, rows))
    return found


def _runs_by_label(bakeoff: Bakeoff) -> dict[str, list[Run]]:
    """The stored runs of all rounds, in the order of the rounds."""
    found: dict[str, list[Run]] = {}
    with open_result(bakeoff.target) as file:
        for summary in sorted(file.summaries(), key=lambda summary: summary.started_utc_us):
            if bakeoff.rounds is not None and summary.label.startswith(bakeoff.rounds.name):
                found.setdefault(summary.label, []).append(file.run(summary.run_id))
    return found


def _look(
    rows: dict[Pairing, RowStanding], base: list[Run], runs: list[Run], rounds: Rounds, number: int
) -> None:
    """Judge the rows after a round; those that were closed before stay as they were."""
    sides = side_of_runs("the first host", base, pool=True), side_of_runs("a host", runs, pool=True)
    for case, row in standings_of(*sides, rounds.looks, rounds.percent, number, base_grows=True):
        key = pairing(case)
        if key not in rows or not rows[key].is_closed:
            rows[key] = row


def next_round(bakeoff: Bakeoff, found: list[HostStanding]) -> Bakeoff | None:
    """The round after this one, not yet started; None if no row is open, or no host is left to decide it.

    Raises NotStored.
    """
    rounds = bakeoff.rounds
    made = 0 if rounds is None else rounds.before + 1
    if rounds is None or made == len(rounds.looks):
        return None
    wanted = {one.name: one.open for one in found}
    wanted[rounds.hosts[0]] = {key for keys in wanted.values() for key in keys}
    launches = rounds.looks[made] - rounds.looks[made - 1]
    parts, places = list[tuple[Host, Spec | BatchPart]](), dict[int, int]()
    for place, run in enumerate(bakeoff.runs):
        if run.spec is None or not run.is_whole:
            continue
        plan = run.spec.plan
        keys = wanted.get(run.host.name, set())
        ids = {one.case_id for one in plan.cases if one.outcome is None and pairing(one.case) in keys}
        if ids:
            again = plan_again(plan, ids, launches, plan.seed + 1)
            places[place] = len(parts)
            parts.append((run.host, replace(run.spec, run_id=new_run_id(), plan=again)))
    if len(parts) < 2 or parts[0][0].name != rounds.hosts[0]:
        return None
    groups = [[places[place] for place in group if place in places] for group in bakeoff.groups]
    return Bakeoff.create(
        f"{rounds.name}-r{made + 1}",
        bakeoff.target,
        parts,
        [group for group in groups if group],
        bakeoff.runs[0].step,
        bakeoff.words,
        bakeoff.gives_up_after_s,
        replace(rounds, before=made),
    )
