"""Progress of runs, from the lines of their journals: what `gputui attach` and the screens show."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from gputui.analysis.health import throttle_words
from gputui.analysis.statistics import Interval, hodges_lehmann_interval, median
from gputui.model.absent import Missing
from gputui.model.case import Case
from gputui.model.journal import (
    Block,
    CaseEnd,
    CaseWarm,
    Event,
    LaunchEnd,
    LaunchesLeftOut,
    LaunchStart,
    Line,
    RunEnd,
    RunStart,
    Stored,
)
from gputui.model.plan import PROFILED, Plan, PlannedLaunch
from gputui.model.profiled import ProfiledPass
from gputui.model.telemetry import HOST, Reading
from gputui.model.units import format_bytes, format_rate
from gputui.recording.pacing import FIRST_STARTUP_S, FIRST_STARTUP_WITHOUT_TORCH_S
from gputui.store.journal_reader import latest_readings
from gputui.store.text import clean_text
from gputui.worker.launch.timed_launch import MIN_BLOCK_S
from gputui.worker.workloads import WORKLOADS

INTERVAL_BLOCKS = 400
"""The running median and interval use at most this many of the last blocks: they are computed twice a
second."""
EVENTS_KEPT = 200
LAST_WORDS_KEPT = 50
READING_HOLDS_S = 10.0
_WITH_WARM_UP = 1.3
"""Times the timed blocks: building, the first step, and warm-up until three blocks agree."""


class TimeLeft:
    """Elapsed and remaining time of all runs of one supervisor."""

    def __init__(self, plans: Sequence[Plan]) -> None:
        self._begun_ns = time.monotonic_ns()
        self._started_ns: dict[int, int] = {}
        self._waiting_s = [
            {launch.launch_id: expected_s(plan, launch) for launch in plan.launches} for plan in plans
        ]
        self._budget_s = sum(plan.budget_s for plan in plans)
        self._done_s = 0.0
        """What was expected of the launches that ended, and what they took."""
        self._taken_s = 0.0
        self._now_s: float | None = None
        """Elapsed when the launch in progress began."""
        self._is_of_this_clock = False

    def trust_clock(self) -> None:
        """Use the journals' timestamps: they are of this boot, so their clock is ours."""
        self._is_of_this_clock = True

    def hear(self, index: int, line: Line) -> None:
        """Read one line of the journal of run `index`; it may have been written long before."""
        if isinstance(line, RunStart):
            self._started_ns[index] = line.started_ns
            if self._is_of_this_clock:
                self._begun_ns = min(self._started_ns.values())
        elif not self._is_of_this_clock and isinstance(
            line, LaunchStart | CaseWarm | CaseEnd | LaunchEnd | LaunchesLeftOut | Event | RunEnd
        ):
            passed_ns = line.t_ns - self._started_ns.get(index, line.t_ns)
            self._begun_ns = time.monotonic_ns() - passed_ns
        if isinstance(line, LaunchStart):
            self._now_s = self._at_s(index, line.t_ns)
        elif isinstance(line, LaunchEnd):
            self._done_s += self._waiting_s[index].pop(line.launch_id, 0.0)
            self._taken_s = self._at_s(index, line.t_ns)
            self._now_s = None
        elif isinstance(line, LaunchesLeftOut):
            for launch_id in line.launch_ids:
                self._waiting_s[index].pop(launch_id, None)

    @property
    def begun_ns(self) -> int:
        """When the first run began, on this process's monotonic clock."""
        return self._begun_ns

    def elapsed_s(self) -> float:
        """Since the first run began."""
        return max((time.monotonic_ns() - self._begun_ns) / 1e9, 0.0)

    def left_s(self) -> float | None:
        """What the launches to come are expected to take, corrected by what those before took.

        Never more than the rest of the budget; None if the run has no limit.
        """
        if not self._budget_s:
            return None  # a recording ends when its program does
        elapsed_s = self.elapsed_s()
        left_s = sum(sum(launches.values()) for launches in self._waiting_s)
        if self._done_s:
            left_s *= self._taken_s / self._done_s
        if self._now_s is not None:
            left_s = max(left_s - (elapsed_s - self._now_s), 0.0)
        return min(left_s, max(self._budget_s - elapsed_s, 0.0))

    def _at_s(self, index: int, t_ns: int) -> float:
        """Seconds since the first run began, of an instant in the journal of a run."""
        first_ns = min(self._started_ns.values(), default=t_ns)
        return max(t_ns - min(first_ns, self._started_ns.get(index, t_ns)), 0) / 1e9


def expected_s(plan: Plan, launch: PlannedLaunch) -> float:
    """About how long a launch takes: to start, to warm up and to time as many blocks as are enough.

    At most its share of the budget, which is what long steps, programs and sustained work take.
    """
    share_s = plan.budget_s * launch.weight / sum(other.weight for other in plan.launches)
    cases = [plan.cases[case_id].case for case_id in launch.case_ids]
    if launch.purpose == PROFILED or any(case.is_program or _is_sustained(case) for case in cases):
        return share_s
    start_s = (
        FIRST_STARTUP_S[launch.device.device_class] if launch.needs_torch else FIRST_STARTUP_WITHOUT_TORCH_S
    )
    return min(share_s, start_s + len(cases) * plan.most_blocks * MIN_BLOCK_S * _WITH_WARM_UP)


def _is_sustained(case: Case) -> bool:
    return any(workload.name == case.work.workload and workload.is_sustained for workload in WORKLOADS)


@dataclass(frozen=True, slots=True)
class CaseProgress:
    """One case of a run in progress."""

    run: int
    """Index among the runs of the supervisor."""
    name: str
    state: str
    """`waiting`, `starting`, `profiling`, `warm` or `timing`; an outcome once it ended."""
    reason: str
    launches_done: int
    launches: int
    """Timed launches planned; 0 for a case that is not run."""
    blocks: int
    """In all launches so far."""
    rate: str
    """Of the median block so far, as `1.2 GB/s`; empty before the first."""

    @property
    def is_now(self) -> bool:
        """Whether a worker is executing it."""
        return self.state in ("starting", "profiling", "warm", "timing")


@dataclass(frozen=True, slots=True)
class TimedCase:
    """The case that is being timed."""

    name: str
    step_s: tuple[float, ...]
    """Seconds per step, block by block, of this launch; only the last ones if there are many."""
    blocks: int
    centre_s: float
    """The Hodges–Lehmann estimate, as in verdicts; the median if there are too few blocks for an interval."""
    interval: Interval | Missing
    """Of 95 %, in seconds."""


@dataclass(frozen=True, slots=True)
class Happened:
    """An event, or a failed launch."""

    at_s: float
    """Since the run began."""
    level: str
    message: str


@dataclass(frozen=True, slots=True)
class LogTail:
    """The end of a worker's log after its launch or a case of it failed, or after it did not exit cleanly."""

    run: int
    """Index among the runs of the supervisor."""
    launch_id: int
    at_s: float
    """Since the run began."""
    launch: str
    """Such as `launch 3, spin mini cpu fp32`."""
    outcome: str
    reason: str
    lines: tuple[str, ...]
    """The last ones of its log, safe to show."""


@dataclass(frozen=True, slots=True)
class ProgressSnapshot:
    """Everything shown of runs in progress at one moment."""

    begun_ns: int
    left_s: float | None
    cases: tuple[CaseProgress, ...]
    strip: TimedCase | None
    events: tuple[Happened, ...]
    """Newest last."""
    is_storing: bool
    """Whether everything is measured."""
    box: tuple[str, ...] = ()
    """The sampler's last reading, a line per GPU; of the host if there is none."""
    last_words: tuple[LogTail, ...] = ()
    """Newest last."""


def box_now(run_dir: Path, now_ns: int | None = None) -> tuple[str, ...]:
    """The sampler's last reading of a run of this boot, as `GPU 0  98 % busy · 512 W · 1.98 GHz · 71 °C`.

    `now_ns` is the monotonic time; readings older than 10 s are left out. The reason, if the telemetry cannot
    be read.
    """
    now_ns = time.monotonic_ns() if now_ns is None else now_ns
    latest = latest_readings(run_dir)
    if isinstance(latest, Missing):
        return (latest.reason,)
    readings = [r for r in latest if now_ns - r.t_ns < READING_HOLDS_S * 1e9]
    gpus = tuple(_gpu_words(reading) for reading in readings if reading.device != HOST)
    return gpus or tuple(_host_words(reading) for reading in readings)


def _gpu_words(reading: Reading) -> str:
    values = reading.values
    parts = [f"GPU {reading.device}"]
    for key, form in (
        ("sm_busy_pct", "{:.0f} % busy"),
        ("power_w", "{:.0f} W"),
        ("sm_clock_mhz", "{:.0f} MHz"),
        ("temperature_c", "{:.0f} °C"),
    ):
        if key in values:
            parts.append(form.format(values[key]))
    return " · ".join([*parts, *throttle_words(int(values.get("throttle_bits", 0)))])


def _host_words(reading: Reading) -> str:
    values = reading.values
    parts = ["host"]
    if "cpu_busy_pct" in values:
        parts.append(f"CPU {values['cpu_busy_pct']:.0f} %")
    if values.get("cpu_steal_pct", 0) >= 1:
        parts.append(f"{values['cpu_steal_pct']:.0f} % taken by the hypervisor")
    if "cpu_clock_mhz" in values:
        parts.append(f"{values['cpu_clock_mhz']:.0f} MHz")
    if "memory_used_bytes" in values:
        parts.append(f"{format_bytes(values['memory_used_bytes'])} in use")
    return " · ".join(parts)


@dataclass(slots=True)
class _Case:
    state: str
    reason: str
    launches: int
    done: int = 0
    blocks: int = 0
    has_result: bool = False
    """A launch of it was `ok`, so the result file will say so."""


class ProgressTracker:
    """Tracks the progress of runs from their journals. For one thread, as `follow` is."""

    def __init__(self, plans: Sequence[Plan], *, is_of_this_clock: bool = False) -> None:
        self.pace = TimeLeft(plans)
        if is_of_this_clock:
            self.pace.trust_clock()
        self._plans = plans
        self._started_ns: dict[int, int] = {}
        self._steps_ns: dict[tuple[int, int], list[float]] = {}
        self._rates: dict[tuple[int, int], tuple[int, str]] = {}
        self._timed: tuple[int, int] | None = None
        self._events: list[Happened] = []
        self._launched: dict[tuple[int, int], str] = {}
        self._last_words: list[LogTail] = []
        self._failed: dict[tuple[int, int], str] = {}
        """By run and launch, why its first failed case failed."""
        self.ended: dict[int, RunEnd] = {}
        self.stored: dict[int, Stored] = {}
        self._cases = {
            (index, case.case_id): _Case(
                case.outcome or "waiting",
                case.reason,
                sum(
                    1
                    for launch in plan.launches
                    if launch.purpose != PROFILED and case.case_id in launch.case_ids
                ),
            )
            for index, plan in enumerate(plans)
            for case in plan.cases
        }

    def hear(self, index: int, line: Line) -> None:
        """Read one line of the journal of run `index`; lines of cases that the plan lacks are ignored."""
        self.pace.hear(index, line)
        if isinstance(line, RunStart):
            self._started_ns[index] = line.started_ns
        elif isinstance(line, LaunchStart):
            state = "profiling" if line.purpose == PROFILED else "starting"
            for case_id in line.case_ids:
                self._become(index, case_id, state)
            names = ", ".join(self._name(index, case_id) for case_id in line.case_ids)
            self._launched[index, line.launch_id] = names
        elif isinstance(line, CaseWarm):
            self._become(index, line.case_id, "warm")
        elif isinstance(line, Block):
            self._hear_block(index, line)
        elif isinstance(line, CaseEnd):
            self._hear_end(index, line)
        elif isinstance(line, ProfiledPass):
            case = self._cases.get((index, line.case_id))
            if case is not None and case.state == "profiling":
                case.state = "ok" if case.has_result else "waiting"
            if not line.is_valid and case is not None:
                self._note(
                    index, None, "warning", f"{self._name(index, line.case_id)} not profiled: {line.reason}"
                )
        elif isinstance(line, LaunchEnd):
            self._end_launch(index, line)
        elif isinstance(line, Event):
            self._note(index, line.t_ns, line.level, line.message)
        elif isinstance(line, LaunchesLeftOut):
            self._leave_out(index, line)
        elif isinstance(line, RunEnd):
            self.ended[index] = line
            self._timed = None
            if line.status != "finished":
                self._note(index, line.t_ns, "warning", f"run {line.status}: {line.reason}")
        elif isinstance(line, Stored):
            self.stored[index] = line

    def picture(self) -> ProgressSnapshot:
        return ProgressSnapshot(
            begun_ns=self.pace.begun_ns,
            left_s=self.pace.left_s(),
            cases=tuple(
                CaseProgress(
                    index,
                    self._name(index, case_id),
                    case.state,
                    clean_text(case.reason),
                    case.done,
                    case.launches,
                    case.blocks,
                    self._rate(index, case_id),
                )
                for (index, case_id), case in self._cases.items()
            ),
            strip=self._strip(),
            events=tuple(self._events),
            is_storing=len(self.ended) == len(self._plans),
            last_words=tuple(self._last_words),
        )

    def _become(self, index: int, case_id: int, state: str) -> None:
        case = self._cases.get((index, case_id))
        if case is not None:
            case.state, case.reason = state, ""

    def _hear_block(self, index: int, line: Block) -> None:
        case = self._cases.get((index, line.case_id))
        if case is None or line.steps < 1:
            return
        steps = self._steps_ns.setdefault((index, line.case_id), [])
        if line.index == 0:
            steps.clear()
        steps.append(line.block_ns / line.steps)
        case.state = "timing"
        case.blocks += 1
        self._timed = (index, line.case_id)

    def _hear_end(self, index: int, line: CaseEnd) -> None:
        case = self._cases.get((index, line.case_id))
        if case is None:
            return
        case.done += 1
        case.has_result |= line.outcome == "ok"
        case.state, case.reason = ("ok", "") if case.has_result else (line.outcome, line.reason)
        if line.outcome == "failed":
            self._failed.setdefault((index, line.launch_id), line.reason)
        if line.outcome != "ok":
            self._note(
                index,
                line.t_ns,
                "warning",
                f"{self._name(index, line.case_id)} {line.outcome}: {line.reason}",
            )

    def _end_launch(self, index: int, line: LaunchEnd) -> None:
        for (run, _), case in self._cases.items():
            if run == index and case.state in ("starting", "warm", "timing", "profiling"):
                case.state, case.reason = line.outcome, line.reason
        if line.outcome != "ok" or line.exit_status:
            parts = f"launch {line.launch_id + 1} {line.outcome}: {line.reason}"
            self._note(index, line.t_ns, "warning", parts)
        failed = self._failed.get((index, line.launch_id))
        if line.log_tail or failed is not None:
            names = self._launched.get((index, line.launch_id), "")
            tail = LogTail(
                index,
                line.launch_id,
                self._since_start_s(index, line.t_ns),
                f"launch {line.launch_id + 1}, {names}" if names else f"launch {line.launch_id + 1}",
                line.outcome if failed is None else "failed",
                clean_text(line.reason or failed or ""),
                tuple(clean_text(row) for row in line.log_tail.splitlines()),
            )
            self._last_words.append(tail)
            del self._last_words[:-LAST_WORDS_KEPT]

    def _leave_out(self, index: int, line: LaunchesLeftOut) -> None:
        for launch in self._plans[index].launches:
            if launch.launch_id in line.launch_ids and launch.purpose != PROFILED:
                for case_id in launch.case_ids:
                    self._cases[index, case_id].launches -= 1
        self._note(index, line.t_ns, "info", line.message)

    def _since_start_s(self, index: int, t_ns: int) -> float:
        return max(t_ns - self._started_ns.get(index, 0), 0) / 1e9

    def _note(self, index: int, t_ns: int | None, level: str, message: str) -> None:
        at_s = self.pace.elapsed_s() if t_ns is None else self._since_start_s(index, t_ns)
        self._events.append(Happened(at_s, level, clean_text(message)))
        del self._events[:-EVENTS_KEPT]

    def _name(self, index: int, case_id: int) -> str:
        name = clean_text(self._plans[index].cases[case_id].case.name)
        return name if len(self._plans) == 1 else f"[{index + 1}] {name}"

    def _rate(self, index: int, case_id: int) -> str:
        steps = self._steps_ns.get((index, case_id))
        if not steps:
            return ""
        known = self._rates.get((index, case_id))
        if known is not None and known[0] == len(steps) and self._timed != (index, case_id):
            return known[1]
        case = self._plans[index].cases[case_id].case
        rate = format_rate(case.units_per_step / max(median(steps), 1e-9) * 1e9, case.unit)
        self._rates[index, case_id] = (len(steps), rate)
        return rate

    def _strip(self) -> TimedCase | None:
        if self._timed is None:
            return None
        steps = self._steps_ns[self._timed]
        step_s = tuple(ns / 1e9 for ns in steps[-INTERVAL_BLOCKS:])
        interval = hodges_lehmann_interval(step_s)
        centre_s = median(step_s) if isinstance(interval, Missing) else interval.estimate
        return TimedCase(self._name(*self._timed), step_s, len(steps), centre_s, interval)
