"""Divides a run's budget among its launches."""

from __future__ import annotations

from gputui.model.plan import Plan, PlannedLaunch

LEAST_MEASURING_S = 1.5
"""With less, a workload cannot warm up and run five blocks of 0.2 s."""
LEAST_OF_A_PROGRAM_S = 0.5
"""A program's blocks are as short as it makes them."""
FIRST_STARTUP_S = {"cpu": 2.0, "gpu": 6.0}
"""Importing torch, and opening a GPU: assumed until this run has measured it."""
FIRST_STARTUP_WITHOUT_TORCH_S = 0.3
GRACE = 0.05
"""Share of the budget by which the last launch may be late, rather than be dropped for lack of a second."""
END_S = 0.2
"""For a worker to exit."""


class Pace:
    """How much of the budget is spent, and what each launch gets of the rest.

    Each launch first costs its start: seconds in which nothing is measured, whatever its weight. What remains
    of the budget after all starts is divided by weight. If that leaves too little, the last launches are left
    out of the sum: what is dropped for lack of time is a later repetition, not the first of each case.
    """

    def __init__(self, plan: Plan) -> None:
        self._budget_s = plan.budget_s
        self._waiting = {launch.launch_id: launch for launch in plan.launches}
        self._startup_s = dict(FIRST_STARTUP_S)
        self._programs = {command.case_id for command in plan.commands}
        self.spent_s = 0.0

    def allowance_s(self, launch: PlannedLaunch) -> float | None:
        """Seconds from its start that a launch may take; None if too few are left. Call it once per
        launch."""
        self._waiting.pop(launch.launch_id, None)
        sharing = [launch, *self._waiting.values()]
        starts_s = sum(map(self._start_s, sharing))
        weights = sum(other.weight for other in sharing)
        is_program = not self._programs.isdisjoint(launch.case_ids)
        least_s = LEAST_OF_A_PROGRAM_S if is_program else LEAST_MEASURING_S
        while True:
            measuring_s = (self._budget_s - self.spent_s - starts_s) * launch.weight / weights
            if measuring_s >= least_s:
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

    def _start_s(self, launch: PlannedLaunch) -> float:
        start_s = self._startup_s[launch.device.device_class]
        return (start_s if launch.needs_torch else FIRST_STARTUP_WITHOUT_TORCH_S) + END_S
