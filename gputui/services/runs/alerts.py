"""Which events of a run alert the user: its end, a case that failed, a case that ran out of memory."""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Iterable, Sequence

from gputui.model.journal import CaseEnd, Line, RunEnd
from gputui.model.plan import Plan
from gputui.services.results.labels import plain_case_name

LEAST_APART_S = 10.0
"""Events that follow an alert sooner are reported with the next one."""
_WORDS = {"failed": "failed", "oom": "ran out of memory"}


def endings(ends: Collection[RunEnd], runs: int) -> Iterable[str]:
    """How so many runs of one supervisor ended, each word once."""
    found = [f"{end.status}: {end.reason}" if end.reason else end.status for end in ends]
    return dict.fromkeys([*found, *(["its supervisor was killed"] if len(ends) < runs else [])])


class Alerts:
    """Reads journals and writes alerts for a user who is looking elsewhere. For one thread.

    With `is_late`, what was written before the first `tick` is history and raises no alert.
    """

    def __init__(
        self,
        plans: Sequence[Plan],
        called: str,
        *,
        is_late: bool = False,
        clock_s: Callable[[], float] = time.monotonic,
    ) -> None:
        self._plans = plans
        self._called = called
        self._is_history = is_late
        self._clock_s = clock_s
        self._alerted_s: float | None = None
        self._waiting: list[str] = []
        """Sentences about cases, oldest first."""
        self._seen: set[tuple[int, int, str]] = set()
        self._ends: dict[int, RunEnd] = {}

    def hear(self, index: int, line: Line) -> None:
        """Read one line of the journal of run `index`."""
        if isinstance(line, RunEnd):
            self._ends[index] = line
        elif isinstance(line, CaseEnd) and line.outcome in _WORDS:
            key = (index, line.case_id, line.outcome)
            if key not in self._seen and not self._is_history:
                self._waiting.append(self._sentence(index, line))
            self._seen.add(key)

    def tick(self) -> str:
        """The alert to raise now, empty for none; call it when there are no more lines to read."""
        self._is_history = False
        now_s = self._clock_s()
        is_soon = self._alerted_s is not None and now_s - self._alerted_s < LEAST_APART_S
        if not self._waiting or is_soon:
            return ""
        self._alerted_s = now_s
        return f"run {self._called}: {self._taken()}"

    def end(self) -> str:
        """The alert to raise when all runs are stored, or their supervisor is gone."""
        cases = f"; {self._taken()}" if self._waiting else ""
        return f"run {self._called} {', '.join(endings(self._ends.values(), len(self._plans)))}{cases}"

    def _sentence(self, index: int, line: CaseEnd) -> str:
        planned = self._plans[index].cases
        is_planned = line.case_id < len(planned)
        name = plain_case_name(planned[line.case_id].case) if is_planned else f"case {line.case_id}"
        name = name if len(self._plans) == 1 else f"[{index + 1}] {name}"
        return f"{name} {_WORDS[line.outcome]}"

    def _taken(self) -> str:
        first, *others = self._waiting
        self._waiting.clear()
        return f"{first}, and {len(others)} more" if others else first
