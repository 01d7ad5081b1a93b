"""A stored run as it is read back, whatever file it came from."""

from __future__ import annotations

import functools
import math
from bisect import bisect_left, bisect_right
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import pairwise
from statistics import fmean, median
from typing import Any, TypeVar  # Any: what was worked out of a value

from gputui.model.absent import Missing
from gputui.model.journal import Block, Figure, Price
from gputui.model.machine import Machine, Runtime
from gputui.model.plan import DEMO_PROFILE, Case

_Read = TypeVar("_Read", "CaseResult", "Run")
_Found = TypeVar("_Found")


def worked_out_once(work: Callable[[_Read], _Found]) -> Callable[[_Read], _Found]:
    """A function of a case or a run whose answer the value itself keeps: many read it."""
    name = f"{work.__module__}.{work.__qualname__}"

    @functools.wraps(work)
    def found(of: _Read) -> _Found:
        known: dict[str, Any] = vars(of)
        if name not in known:
            known[name] = work(of)
        answer: _Found = known[name]
        return answer

    return found


@dataclass(frozen=True, slots=True)
class Measurement:
    """One case in one launch: what was requested, how it ended, and its blocks."""

    launch_id: int
    replicate: int
    outcome: str
    reason: str
    precision_used: str
    """Empty if it never became warm."""
    is_fork: bool
    """Whether its worker was forked from a process that had imported torch."""
    first_step_ns: int | None
    warmup_ns: int | None
    warmup_blocks: int | None
    stable: bool | None
    blocks: tuple[Block, ...]
    """In order of time, without warm-up."""
    figures: tuple[Figure, ...] = ()
    """Results other than speed, in the order in which the workload declares them."""
    layout: str = ""
    """In which a trial found it faster: `nhwc` or `nchw`; empty if none was made."""


@dataclass(frozen=True, slots=True)
class Spread:
    """The variance of the log time between launches, or between runs, and how well it is known."""

    variance: float
    df: float
    source: str = ""
    """Where it is from: errors of two of one source are the same error."""


@dataclass(frozen=True)
class CaseResult:
    """One case of one run with all its launches. Has no slots because it keeps what is worked out of it."""

    case_id: int
    case: Case
    device_index: int | None
    device_name: str
    outcome: str
    """`ok` if any launch measured it; else the outcome of the last, or the plan's."""
    reason: str
    measurements: tuple[Measurement, ...]
    launch_spread: Spread | None = None
    """Of one launch, with what the runs of its box in the file show; None where they were not read."""
    run_spread: Spread | None = None
    """Of one run, likewise."""
    pair_spreads: tuple[tuple[int, Spread], ...] = ()
    """Of the log ratio to another case in one launch, likewise, by `case_id` of that case: those that were
    interleaved with it."""

    @property
    def precision_used(self) -> str:
        """Of the last launch that measured it; empty if none did."""
        return next((m.precision_used for m in reversed(self.measurements) if m.outcome == "ok"), "")


@dataclass(frozen=True, slots=True)
class RunFacts:
    """Facts about a run, without its machine."""

    run_id: str
    started_utc_us: int
    ended_utc_us: int | None
    utc_offset_min: int
    status: str
    status_reason: str
    profile: str
    profile_version: int
    seed: int
    replicates: int
    budget_s: float
    label: str
    gputui_version: str

    @property
    def is_made_up(self) -> bool:
        """Whether it is a run of `gputui demo`."""
        return self.profile == DEMO_PROFILE


@dataclass(frozen=True, slots=True)
class RunSummary(RunFacts):
    """One run without its measurements."""

    machine: Machine
    runtime: Runtime
    price: Price | Missing

    @property
    def short_id(self) -> str:
        """The last 8 hex digits: a UUIDv7 begins with the time, so its end distinguishes runs."""
        return self.run_id.replace("-", "")[-8:]


@dataclass(frozen=True)
class Run:
    """One execution of a profile on one machine in one runtime. Has no slots, as `CaseResult`."""

    summary: RunSummary
    cases: tuple[CaseResult, ...]


_LEAST_HOLD_S = 1.5
"""Outside of blocks the sampler reads once a second."""


@dataclass(frozen=True, slots=True)
class TimeSeries:
    """One metric of one device."""

    seconds: Sequence[float]
    """Ascending, since a beginning that all series of a chart share."""
    values: Sequence[float]
    """NaN where it was not measured."""

    @property
    def known(self) -> list[float]:
        """What was measured."""
        return [value for value in self.values if math.isfinite(value)]

    def at(self, second: float) -> float:
        """The last reading up to an instant; NaN before the first."""
        place = bisect_right(self.seconds, second) - 1
        return self.values[place] if place >= 0 else math.nan

    def cells(
        self, cell_s: float, cells: int, combine: Callable[[Sequence[float]], float] = fmean
    ) -> list[float | None]:
        """The values in each cell of time as one; a cell without any has the one before if that is recent."""
        known = [pair for pair in zip(self.seconds, self.values, strict=True) if math.isfinite(pair[1])]
        read_s, values = [second for second, _ in known], [value for _, value in known]
        gaps = [later - earlier for earlier, later in pairwise(read_s)]
        hold_s = max(2.5 * median(gaps), _LEAST_HOLD_S) if gaps else _LEAST_HOLD_S
        columns: list[float | None] = []
        for place in range(cells):
            start_s = place * cell_s
            end_s = start_s + cell_s + (place == cells - 1) * 1e-6  # the last reading lies at the very end
            first, end = bisect_left(read_s, start_s), bisect_left(read_s, end_s)
            is_held = first == end and first > 0 and start_s - read_s[first - 1] <= hold_s
            mine = values[first - is_held : end]
            columns.append(combine(mine) if mine else None)
        return columns
