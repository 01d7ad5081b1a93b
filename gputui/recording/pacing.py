"""Divides a run's budget among its launches, and says how many of them its starts leave room for."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import replace

from gputui.model.case import WHOLE_BOX
from gputui.model.plan import TIMED, Plan, PlannedLaunch
from gputui.model.units import counted

LEAST_MEASURING_S = 1.5
"""With less, a workload cannot warm up and run five blocks of 0.2 s."""
ENOUGH_S = 4.0
"""Of measuring, for a case of the sizes that profiles choose. Where there is too little time for all cases,
each gets as much before the next begins."""
LEAST_OF_A_PROGRAM_S = 0.5
"""A program's blocks are as short as it makes them."""
FIRST_STARTUP_S = {"cpu": 2.0, "gpu": 6.0, WHOLE_BOX: 0.3}
"""Importing torch, and opening a GPU: assumed until this run has measured it."""
FIRST_STARTUP_WITHOUT_TORCH_S = 0.3
GRACE = 0.05
"""Share of the budget by which the last launch may be late, rather than be dropped for lack of a second."""
END_S = 0.2
"""For a worker to exit."""
RUNS_AGAIN = "too slow: it will run once more"
"""After the name of a case, in the message about launches left out for it."""


def least_budget_s(plan: Plan) -> float:
    """About how many seconds it takes to measure every case once, at least: starts, warm-up, short blocks.

    As often as planned, where the number of launches is not for the run to choose.
    """
    programs = plan.program_ids
    seconds = 0.0
    for launch in plan.launches:
        if launch.purpose == TIMED and (plan.startup_share is None or not launch.replicate):
            start_s = FIRST_STARTUP_S[launch.device.device_class]
            seconds += (start_s if launch.needs_torch else FIRST_STARTUP_WITHOUT_TORCH_S) + END_S
            seconds += sum(
                LEAST_OF_A_PROGRAM_S if case_id in programs else LEAST_MEASURING_S
                for case_id in launch.case_ids
            )
    return seconds


class Pace:
    """How much of the budget is spent, and what each launch gets of the rest.

    Each launch first costs its start: seconds in which nothing is measured, whatever its weight. What remains
    of the budget after all starts is divided by weight. If that leaves too little, the last launches are left
    out of the sum: what is dropped for lack of time is a later repetition, not the first of each case.

    Where the budget is too small for all cases anyway, the first get enough each, and the last are dropped.

    With a `startup_share` cases get as many launches as can start within that share of the budget.
    """

    def __init__(self, plan: Plan) -> None:
        self._plan = plan
        self._budget_s = plan.budget_s
        self._waiting = {launch.launch_id: launch for launch in plan.launches}
        self._planned = frozenset(self._waiting)
        self._closed: set[int] = set()
        """Launches that are not executed, though their time stays reserved."""
        self._startup_s = dict(FIRST_STARTUP_S)
        self._unknown = {launch.device.device_class for launch in plan.launches if launch.needs_torch}
        """Device classes whose start is not measured yet."""
        self._programs = plan.program_ids
        self._most = plan.replicates
        """Launches per case, as far as is known."""
        self._is_settled = plan.startup_share is None
        self._too_slow: set[int] = set()
        """Launches in which a case was too slow for its share."""
        self.spent_s = 0.0

    def to_execute(self, launch: PlannedLaunch) -> PlannedLaunch | None:
        """The launch with the cases that it still has; None if it was left out."""
        if launch.launch_id in self._closed:
            return None
        return self._waiting.get(launch.launch_id) if launch.launch_id in self._planned else launch

    def allowance_s(self, launch: PlannedLaunch) -> float | None:
        """Seconds from its start that a launch may take; None if too few are left. Call it once per
        launch."""
        self._waiting.pop(launch.launch_id, None)
        sharing = [launch, *self._within(self._replicates())]
        starts_s = sum(map(self._start_s, sharing))
        weights = sum(other.weight for other in sharing)
        is_program = not self._programs.isdisjoint(launch.case_ids)
        least_s = LEAST_OF_A_PROGRAM_S if is_program else LEAST_MEASURING_S
        needed_s = starts_s + LEAST_MEASURING_S * sum(len(other.case_ids) for other in sharing)
        is_short = needed_s > self._budget_s - self.spent_s and not is_program
        wanted_s = ENOUGH_S * len(launch.case_ids) if is_short else least_s
        while True:
            measuring_s = (self._budget_s - self.spent_s - starts_s) * launch.weight / weights
            if measuring_s >= (wanted_s if len(sharing) > 1 else least_s):
                return self._start_s(launch) - END_S + measuring_s
            if len(sharing) == 1:
                is_near = measuring_s + GRACE * self._budget_s >= least_s
                return self._start_s(launch) - END_S + least_s if is_near else None
            last = sharing.pop()
            starts_s -= self._start_s(last)
            weights -= last.weight

    def started(self, launch: PlannedLaunch, startup_s: float) -> None:
        """Record how long a launch took until it began to measure."""
        if launch.needs_torch:
            self._startup_s[launch.device.device_class] = startup_s
            self._unknown.discard(launch.device.device_class)

    def settle(self, next_launch: PlannedLaunch) -> tuple[Sequence[int], str]:
        """Leave out the launches that there is no time to start; returns their ids, and why.

        Decides once: when the starts of all devices are known, or when the first repetition is next. Until
        then, and if all can start, ((), "").
        """
        if self._is_settled or (self._unknown and not next_launch.replicate):
            return (), ""
        self._most, self._is_settled = self._replicates(), True
        left_out = self._leave_out_beyond_most()
        if not left_out:
            return (), ""
        share = self._starts_s(self._plan.replicates) / self._budget_s
        return left_out, (
            f"{counted(self._most, 'launch')} per case instead of {self._plan.replicates}, whose starts alone"
            f" would take {100 * share:.0f} % of the {self._budget_s:.0f} s"
        )

    def too_slow(self, launch: PlannedLaunch, case_id: int) -> tuple[float, tuple[int, ...], str]:
        """Make room for a case that found too little time in its first launch: it gets one launch for all.

        Others may be as slow, so all cases get one launch less, once for each launch in which that happened.
        Returns the weight of the case's only launch, the ids of launches that are left out, and a message;
        (0, (), "") where launches are not for the run to choose, or one is all there is.
        """
        if self._plan.startup_share is None or launch.replicate or launch.launch_id not in self._planned:
            return 0.0, (), ""
        self._most = self._replicates()
        if self._most > 1 and launch.launch_id not in self._too_slow:
            self._most -= 1
        elif launch.launch_id not in self._too_slow:
            return 0.0, (), ""
        self._too_slow.add(launch.launch_id)
        left_out = [*self._leave_out_beyond_most(), *self._without(case_id)]
        weight = self._most * launch.weight / len(launch.case_ids)
        others = counted(self._most, "launch")
        return (
            weight,
            tuple(left_out),
            f"{RUNS_AGAIN}, for longer, and the others in {others}",
        )

    def _leave_out_beyond_most(self) -> list[int]:
        beyond = [i for i, launch in self._waiting.items() if launch.replicate >= self._most]
        for launch_id in beyond:
            del self._waiting[launch_id]
        return beyond

    def _without(self, case_id: int) -> list[int]:
        """Take a case out of the timed launches that wait; returns those that have no other."""
        emptied = []
        for launch in list(self._waiting.values()):
            if case_id not in launch.case_ids or launch.purpose != TIMED:
                continue
            rest = tuple(other for other in launch.case_ids if other != case_id)
            if rest:
                weight = launch.weight * len(rest) / len(launch.case_ids)
                self._waiting[launch.launch_id] = replace(launch, case_ids=rest, weight=weight)
            else:
                del self._waiting[launch.launch_id]
                emptied.append(launch.launch_id)
        return emptied

    def close(self, case_ids: Collection[int]) -> tuple[int, ...]:
        """Leave out the waiting timed launches of which every case is one of these; returns their ids.

        The others become no longer by that: launches of one length are launches of one kind.
        """
        closed = tuple(
            launch.launch_id
            for launch in self._waiting.values()
            if launch.purpose == TIMED
            and launch.launch_id not in self._closed
            and set(launch.case_ids) <= set(case_ids)
        )
        self._closed.update(closed)
        return closed

    def _within(self, replicates: int) -> list[PlannedLaunch]:
        """The waiting launches that share the budget: of so many per case, if the run chooses that itself."""
        chooses = self._plan.startup_share is not None
        return [one for one in self._waiting.values() if not chooses or one.replicate < replicates]

    def _replicates(self) -> int:
        """Launches per case whose starts fit into their share of the budget; at least 1."""
        if self._is_settled or self._plan.startup_share is None:
            return self._most
        most_s = self._plan.startup_share * self._budget_s
        return max((n for n in range(2, self._most + 1) if self._starts_s(n) <= most_s), default=1)

    def _starts_s(self, replicates: int) -> float:
        return sum(self._start_s(launch) for launch in self._plan.launches if launch.replicate < replicates)

    def _start_s(self, launch: PlannedLaunch) -> float:
        start_s = self._startup_s[launch.device.device_class]
        return (start_s if launch.needs_torch else FIRST_STARTUP_WITHOUT_TORCH_S) + END_S
