"""Divides a run's budget among its launches, so that as many passes as fit see the whole of it, by a clock
that stands still while the supervisor is stopped."""

from __future__ import annotations

import time
from collections.abc import Callable

from gputui.model.plan import WHOLE_BOX, Plan, PlannedLaunch

LEAST_MEASURING_S = 1.0
"""For a case to be built and warmed up, and for five blocks, at the sizes that profiles choose."""
LEAST_OF_A_PROGRAM_S = 0.5
"""A program's blocks are as short as it makes them."""
FIRST_STARTUP_S = {"cpu": 0.5, "gpu": 6.0, WHOLE_BOX: 0.3}
"""A fork, or importing torch and opening a GPU: assumed until this run has measured it."""
FIRST_STARTUP_WITHOUT_TORCH_S = 0.3
PROFILED_S, PROFILED_SHARE = 4.0, 0.05
"""What is set aside for a profiled pass: at least so many seconds, and this share of the budget."""
GRACE = 0.02
"""Share of the budget by which a case may be late, rather than be dropped for lack of a second."""
END_S = 0.2
"""For a worker to exit."""
OVERRUN_S = 0.5
"""A launch that is later than this had slow cases, which need as long in every pass."""


def profiled_s(plan: Plan, launch: PlannedLaunch) -> float:
    """Seconds set aside for the profiled passes of a launch."""
    return len(launch.profiled) * max(PROFILED_S, PROFILED_SHARE * plan.budget_s)


def least_budget_s(plan: Plan) -> float:
    """About how many seconds it takes to measure every case once, at least."""
    pace = Pace(plan)
    return sum(pace.needed_s(launch) for launch in plan.launches if not launch.replicate)


class Pace:
    """How much of the budget is spent, and what each launch gets of the rest.

    Each launch first costs its start: seconds in which nothing is measured, whatever its weight. What remains
    of the budget after all starts is divided by weight. If that leaves too little, the last launches are left
    out of the sum: what is dropped for lack of time is a late pass, not the first of each case.
    """

    def __init__(self, plan: Plan) -> None:
        self._plan = plan
        self._waiting = {launch.launch_id: launch for launch in plan.launches}
        self._startup_s = dict(FIRST_STARTUP_S)
        self._slow_s: dict[tuple[int, ...], float] = {}
        """What the slow cases of a launch took beside its start, at least; a busy box may calm down."""
        self._programs = plan.program_ids
        self.spent_s = 0.0

    def allowance(self, launch: PlannedLaunch) -> tuple[float, float] | None:
        """In how many seconds from its start the blocks of a launch should end, and by when they must.

        The latter, if its steps are slow: by then only what the rest of the first pass needs is left, and its
        own profiled passes. None if too little is left. Call it once per launch.
        """
        self._waiting.pop(launch.launch_id, None)
        left_s = self._plan.budget_s - self.spent_s
        sharing = [launch, *self._waiting.values()]
        needed_s = list(map(self.needed_s, sharing))
        while len(sharing) > 1 and sum(needed_s) > left_s:
            sharing.pop()
            needed_s.pop()
        if not self.has_time_for(launch):
            return None
        measuring_s = left_s - sum(map(self._beside_s, sharing))
        measuring_s *= launch.weight / sum(other.weight for other in sharing)
        own_s = profiled_s(self._plan, launch)
        aim_s = max(self._beside_s(launch) + measuring_s, self.needed_s(launch)) - own_s - END_S
        kept_s = sum(self.needed_s(other) for other in sharing[1:] if not other.replicate)
        return aim_s, max(left_s - kept_s - own_s - END_S, aim_s)

    def has_time_for(self, launch: PlannedLaunch) -> bool:
        """Whether the least that a launch takes is left; about that much, if it is the first of its cases."""
        grace_s = 0.0 if launch.replicate else GRACE * self._plan.budget_s
        return self.needed_s(launch) <= self._plan.budget_s - self.spent_s + grace_s

    def needed_s(self, launch: PlannedLaunch) -> float:
        """The least that a launch takes, as far as this run knows."""
        is_program = not self._programs.isdisjoint(launch.case_ids)
        least_s = LEAST_OF_A_PROGRAM_S if is_program else LEAST_MEASURING_S
        return self._beside_s(launch) + self._slow_s.get(launch.case_ids, least_s * len(launch.case_ids))

    def _beside_s(self, launch: PlannedLaunch) -> float:
        """What a launch takes beside its blocks."""
        start_s = self._startup_s[launch.device.device_class]
        start_s = start_s if launch.needs_torch else FIRST_STARTUP_WITHOUT_TORCH_S
        return start_s + profiled_s(self._plan, launch) + END_S

    def started(self, launch: PlannedLaunch, startup_s: float) -> None:
        """Record how long a launch took until it began to measure."""
        if launch.needs_torch:
            self._startup_s[launch.device.device_class] = startup_s

    def ended(self, launch: PlannedLaunch, aim_s: float, took_s: float) -> None:
        """Record how long a launch took from before its start to its end."""
        self.spent_s += took_s
        if took_s > aim_s + profiled_s(self._plan, launch) + END_S + OVERRUN_S:
            slow_s = max(took_s - self._beside_s(launch), 0.0)
            self._slow_s[launch.case_ids] = min(slow_s, self._slow_s.get(launch.case_ids, slow_s))


STOPPED_S = 20.0
"""A supervisor reads its clock at least every 15 s, even while it ends a stubborn worker."""


class WakingClock:
    """Seconds, without the time in which this process was stopped: by SIGSTOP, or in a frozen cgroup.

    A gap is detected if two readings are more than STOPPED_S apart; shorter ones count as time.
    """

    def __init__(self, monotonic_s: Callable[[], float] = time.monotonic) -> None:
        self._monotonic_s = monotonic_s
        self._looked_s = monotonic_s()
        self.stopped_s = 0.0
        """Sum of the gaps until the last reading."""

    def now_s(self) -> float:
        """The time; a gap since the last reading does not count."""
        now_s = self._monotonic_s()
        gap_s = now_s - self._looked_s
        self._looked_s = now_s
        if gap_s >= STOPPED_S:
            self.stopped_s += gap_s
        return now_s - self.stopped_s
