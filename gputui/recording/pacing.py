"""Divides a run's budget among its launches."""

from __future__ import annotations

from gputui.model.plan import Plan, PlannedLaunch

LEAST_MEASURING_S = 1.0
"""Below this nothing that counts can be measured."""
FIRST_STARTUP_S = {"cpu": 3.0, "gpu": 6.0}
"""Importing torch, and opening a GPU: taken for granted until this run has shown better."""
FIRST_STARTUP_WITHOUT_TORCH_S = 0.3
END_S = 0.5
"""For a worker to leave."""


class Pace:
    """How much of the budget is spent, and what each launch gets of the rest.

    A launch first costs its start: seconds in which nothing is measured, however light it is. What remains of
    the budget after all starts is divided by weight.
    """

    def __init__(self, plan: Plan) -> None:
        self._budget_s = plan.budget_s
        self._waiting = {launch.launch_id: launch for launch in plan.launches}
        self._startup_s = dict(FIRST_STARTUP_S)
        if not plan.needs_torch:
            self._startup_s = dict.fromkeys(FIRST_STARTUP_S, FIRST_STARTUP_WITHOUT_TORCH_S)
        self._commands = {command.case_id for command in plan.commands}
        self.spent_s = 0.0

    def allowance_s(self, launch: PlannedLaunch) -> float | None:
        """Seconds from its start that a launch may take; None if too few are left. Call it once each."""
        self._waiting.pop(launch.launch_id, None)
        later = list(self._waiting.values())
        starts_s = sum(self._start_s(other) for other in (launch, *later))
        weights = sum(other.weight for other in (launch, *later))
        measuring_s = (self._budget_s - self.spent_s - starts_s) * launch.weight / weights
        if measuring_s < LEAST_MEASURING_S:
            return None
        return self._start_s(launch) - END_S + measuring_s

    def started(self, launch: PlannedLaunch, startup_s: float) -> None:
        """A launch took so long until it began to measure."""
        if not self._is_program(launch):
            self._startup_s[launch.device.device_class] = startup_s

    def _start_s(self, launch: PlannedLaunch) -> float:
        if self._is_program(launch):
            return FIRST_STARTUP_WITHOUT_TORCH_S + END_S
        return self._startup_s[launch.device.device_class] + END_S

    def _is_program(self, launch: PlannedLaunch) -> bool:
        """Its own start is part of what is timed, and says nothing of a worker with torch."""
        return not self._commands.isdisjoint(launch.case_ids)
