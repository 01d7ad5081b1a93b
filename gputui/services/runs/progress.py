"""Progress of runs, from the lines of their journals: what `gputui attach` and the screens show.

Nothing asks the supervisor, so any process may watch a run, and watching disturbs no timing.
"""

from __future__ import annotations

import time
from collections import defaultdict, deque
from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from statistics import median

from gputui.analysis.statistics import Estimated, hodges_lehmann_interval
from gputui.errors import clean_text
from gputui.model.absent import Missing
from gputui.model.journal import (
    Block,
    CaseEnd,
    CasePlanned,
    CaseWarm,
    Event,
    Figure,
    LaunchEnd,
    LaunchesLeftOut,
    LaunchStart,
    Line,
    MachineFound,
    ProfiledPass,
    RunEnd,
    RunStart,
    RuntimeFound,
    Stored,
)
from gputui.model.machine import Machine, Runtime
from gputui.model.plan import Case, Plan, PlannedCase, PlannedLaunch, Work
from gputui.model.result import CaseResult, Measurement
from gputui.model.serving import LoadNow, LoadStep, ServerFound
from gputui.model.telemetry import HOST
from gputui.model.units import UNKNOWN, counted, format_rate, format_seconds, format_spread, listed
from gputui.recording.pacing import FIRST_STARTUP_S, FIRST_STARTUP_WITHOUT_TORCH_S, profiled_s
from gputui.services.results.expected import share_of_sheet, uses_of
from gputui.services.results.labels import (
    gpu_number,
    interval_words,
    not_measured_line,
    plain_case_name,
    shared_case_words,
    short_case_name,
)
from gputui.services.results.throughput import (
    GAVE,
    gave_of_launch,
    gave_text,
    is_launch_undecidable,
    is_undecidable,
    own_times,
    speed_of,
    speed_of_launch,
    told_rate,
    waited_of,
)
from gputui.services.runs.device_history import DeviceHistory, HistoryReader
from gputui.worker.launch import ENOUGH_HALF_WIDTH, MAX_BLOCK_S
from gputui.worker.workloads import WORKLOADS

INTERVAL_BLOCKS = 400
"""The running median and interval use at most this many of the last blocks: they are computed twice a
second."""
EVENTS_KEPT = 200
LAST_WORDS_KEPT = 50
LOADS_KEPT = 600
_AT_WORK = ("starting", "profiling", "warm", "timing")
_TIMES = (("ttft_p50_s", "TTFT"), ("tpot_p50_s", "TPOT"))
_NO_BLOCK = Missing("no block has been timed yet")
_WITH_WARM_UP = 1.3
"""Times the timed blocks: building, the first step, and warm-up until three blocks agree."""


class TimeLeft:
    """Elapsed and remaining time of all runs of one supervisor."""

    def __init__(self, plans: Sequence[Plan], is_of_this_clock: bool) -> None:
        """`is_of_this_clock` if the journals' timestamps are of this boot, so that their clock is ours."""
        self.begun_ns = time.monotonic_ns()
        """When the first run began, on this process's monotonic clock."""
        self.started_ns: dict[int, int] = {}
        """Of each run, by the clock of its journal."""
        self._waiting_s = [
            {launch.launch_id: expected_s(plan, launch) for launch in plan.launches} for plan in plans
        ]
        self._of_case_s = [
            {
                case_id: expected_s(plan, launch) / len(launch.case_ids)
                for launch in plan.launches
                for case_id in launch.case_ids
            }
            for plan in plans
        ]
        """Of a launch of a case alone, as it comes after a worker was killed."""
        self._budget_s = sum(plan.budget_s for plan in plans)
        self._done_s = 0.0
        """What was expected of the launches that came to their end, and what they took."""
        self._taken_s = 0.0
        self._ended_s = 0.0
        self._now_s: float | None = None
        """Elapsed when the launch in progress began."""
        self._is_of_this_clock = is_of_this_clock

    def hear(self, index: int, line: Line) -> None:
        """Read one line of the journal of run `index`; it may have been written long before."""
        if isinstance(line, RunStart):
            self.started_ns[index] = line.started_ns
            if self._is_of_this_clock:
                self.begun_ns = min(self.started_ns.values())
        elif not self._is_of_this_clock and isinstance(
            line, LaunchStart | CaseWarm | CaseEnd | LaunchEnd | LaunchesLeftOut | Event | RunEnd
        ):
            passed_ns = line.t_ns - self.started_ns.get(index, line.t_ns)
            self.begun_ns = time.monotonic_ns() - passed_ns
        if isinstance(line, LaunchStart):
            self._now_s = self.at_s(index, line.t_ns)
            alone_s = sum(self._of_case_s[index].get(case_id, 0.0) for case_id in line.case_ids)
            self._waiting_s[index].setdefault(line.launch_id, alone_s)
        elif isinstance(line, LaunchEnd):
            waited_s, ended_s = self._waiting_s[index].pop(line.launch_id, 0.0), self.at_s(index, line.t_ns)
            if line.outcome == "ok":  # when a worker was killed says nothing about the pace
                self._done_s += waited_s
                self._taken_s += ended_s - self._ended_s
            self._now_s, self._ended_s = None, ended_s
        elif isinstance(line, LaunchesLeftOut):
            for launch_id in line.launch_ids:
                self._waiting_s[index].pop(launch_id, None)

    def elapsed_s(self) -> float:
        """Since the first run began."""
        return max((time.monotonic_ns() - self.begun_ns) / 1e9, 0.0)

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

    def at_s(self, index: int, t_ns: int) -> float:
        """Seconds since the first run began, of an instant in the journal of a run."""
        first_ns = min(self.started_ns.values(), default=t_ns)
        return max(t_ns - min(first_ns, self.started_ns.get(index, t_ns)), 0) / 1e9


def expected_s(plan: Plan, launch: PlannedLaunch) -> float:
    """About how long a launch takes: to start, to warm up and to time as many blocks as are enough.

    At most its share of the budget, which is what long steps, programs and sustained work take.
    """
    share_s = plan.budget_s * launch.weight / sum(other.weight for other in plan.launches)
    cases = [plan.cases[case_id].case for case_id in launch.case_ids]
    if any(case.is_program or _is_sustained(case) for case in cases):
        return share_s
    start_s = (
        FIRST_STARTUP_S[launch.device.device_class] if launch.needs_torch else FIRST_STARTUP_WITHOUT_TORCH_S
    )
    most_s = start_s + len(cases) * plan.most_blocks * MAX_BLOCK_S * _WITH_WARM_UP
    return min(share_s, most_s) + profiled_s(plan, launch)


def _is_sustained(case: Case) -> bool:
    return any(workload.name == case.work.workload and workload.is_sustained for workload in WORKLOADS)


@dataclass(frozen=True, slots=True)
class CaseProgress:
    """One case of a run in progress."""

    name: str
    state: str
    """`waiting`, `starting`, `profiling`, `warm` or `timing`; an outcome once it ended."""
    reason: str
    launches_done: int
    launches: int
    """Timed launches planned; 0 for a case that is not run."""
    rate: str
    """Of all launches so far, weighed as in the table of results, as `1.2 GB/s`; empty before the first
    block."""
    spread: str = ""
    """The 95 % interval of the rate around it, as `±1 %`; empty while there is none."""
    peak: float | None = None
    share_done: float = 0.0
    short_name: str = ""
    """Without the words that all cases of its run share."""
    ttft_s: float | None = None
    """Of a load on a server, the median over its launches of their medians; None while there is none."""
    tpot_s: float | None = None
    of_fastest: float | None = None
    """Its rate as a share of the fastest case that does the same work in this run; None before a rate."""
    gave: str = ""
    """The rate by the clock, where `rate` is far from it (`gave_text`)."""

    @property
    def is_now(self) -> bool:
        """Whether a worker is executing it."""
        return self.state in _AT_WORK


@dataclass(frozen=True, slots=True)
class TimedCase:
    """The case that is being timed."""

    name: str
    step_s: tuple[tuple[float, ...], ...]
    """Seconds per step of the last blocks of each launch, this one last."""
    blocks: int
    centre_s: float
    """The Hodges–Lehmann estimate, as in verdicts; the median if there are too few blocks for an interval."""
    interval: Estimated | Missing
    rate: str
    """Of the estimate, with what the box gave where that is far from it."""
    spread: str
    aim: str
    """When this launch of the case is done, as `±0.5 % or 60 blocks`."""
    launches: int
    most_blocks: int


@dataclass(frozen=True, slots=True)
class Happened:
    """An event, or a failed launch."""

    at_s: float
    level: str
    message: str


@dataclass(frozen=True, slots=True)
class LogTail:
    """The end of a worker's log after its launch or a case of it failed, or after it did not exit cleanly."""

    run: int
    launch_id: int
    at_s: float
    launch: str
    """Such as `launch 3 of spin mini cpu fp32`."""
    outcome: str
    reason: str
    lines: tuple[str, ...]
    """The last ones of its log, safe to show."""


@dataclass(frozen=True, slots=True)
class OfferedLoad:
    """A load on a server while it is offered, and what those before came to."""

    name: str
    launch: int
    launches: int
    now: tuple[LoadNow, ...]
    """Of this launch, about one a second, the oldest first."""
    steps: tuple[LoadStep, ...]
    """Of this launch, that have ended: a search tries several rates."""

    @property
    def is_open(self) -> bool:
        """Whether requests arrive at a rate, whatever the server does."""
        return bool(self.now) and self.now[-1].rate_per_s is not None


@dataclass(frozen=True, slots=True)
class ProgressSnapshot:
    """Everything shown of runs in progress at one moment."""

    begun_ns: int
    left_s: float | None
    cases: tuple[CaseProgress, ...]
    strip: TimedCase | None
    events: tuple[Happened, ...]
    is_storing: bool
    share_done: float | None = None
    """Of the time it takes, by what is expected to be left; None without a limit."""
    machine: Machine | None = None
    under_test: int | None = None
    """Index of the GPU on which a worker is or was last at work, HOST for the CPU; None before the first."""
    shared_words: str = ""
    """The words that the names of all cases share, as `mini cpu`."""
    devices: tuple[DeviceHistory, ...] | Missing = ()
    """What the sampler has read, the host first."""
    last_words: tuple[LogTail, ...] = ()
    load: OfferedLoad | None = None
    server_is_here: bool | None = None
    """Whether the server under load runs on this box; None for a run without one."""
    runtime: Runtime | None = None
    pass_number: int = 0
    """Of the pass in progress, from 1; 0 before the first."""
    passes: int = 0
    waited_share: float | Missing = _NO_BLOCK
    """Of the newest block: what its threads waited for CPUs that others held; 0 to 1."""

    def ends_at(self, now: datetime) -> str:
        """The time of day at which it is expected to end, as `14:31`; empty if unknown."""
        if self.left_s is None or self.is_storing:
            return ""
        return f"{now + timedelta(seconds=self.left_s):%H:%M}"

    @property
    def to_run(self) -> tuple[CaseProgress, ...]:
        """The cases that are run here."""
        return tuple(case for case in self.cases if case.launches)

    @property
    def not_run_line(self) -> str:
        """How many cases are not run here, and why; empty if all are."""
        left = [(case.state, case.reason) for case in self.cases if not case.launches]
        return not_measured_line(left, len(self.cases))


@dataclass(slots=True)
class _Launched:
    """One case in one launch, as far as it has come."""

    precision_used: str = ""
    outcome: str = ""
    reason: str = ""
    blocks: list[Block] = field(default_factory=list)


@dataclass(frozen=True, slots=True)
class _Rate:
    """What is known of the rate of a case, after so many blocks."""

    blocks: int = 0
    units_per_s: float = 0.0
    rate: str = ""
    gave: str = ""
    spread: str = ""
    peak: float | None = None


@dataclass(slots=True)
class _Case:
    """What was heard of a case."""

    run: int
    planned: PlannedCase
    state: str
    reason: str
    launches: int
    most_blocks: int
    profiled: set[int]
    done: int = 0
    device_index: int | None = None
    device_name: str = ""
    launched: defaultdict[int, _Launched] = field(default_factory=lambda: defaultdict(_Launched))
    figures: defaultdict[str, list[float]] = field(default_factory=lambda: defaultdict(list))
    known: _Rate = _Rate()

    @property
    def case(self) -> Case:
        return self.planned.case

    @property
    def is_now(self) -> bool:
        return self.state in _AT_WORK

    @property
    def share_done(self) -> float:
        """Of its launches, with that of the one in progress, 0 to 1."""
        now = next((one.blocks for one in reversed(self.launched.values()) if not one.outcome), [])
        of_launch = min(len(now) / self.most_blocks, 1.0) if self.is_now else 0.0
        return min((self.done + of_launch) / max(self.launches, self.done, 1), 1.0) if self.launches else 0.0

    @property
    def newest_blocks(self) -> list[Block]:
        """Of the newest launch that has any."""
        return next((one.blocks for one in reversed(self.launched.values()) if one.blocks), [])

    def figure(self, key: str) -> float | None:
        """The median over its launches; None while there is none."""
        return median(self.figures[key]) if key in self.figures else None

    def result(self) -> CaseResult:
        """As it would be stored if it ended now."""
        measurements = tuple(
            Measurement(
                launch_id=launch_id,
                replicate=0,
                outcome=one.outcome or "ok",
                reason="",
                precision_used=one.precision_used,
                is_fork=False,
                first_step_ns=None,
                warmup_ns=None,
                warmup_blocks=None,
                stable=None,
                blocks=tuple(one.blocks[-INTERVAL_BLOCKS:]),
            )
            for launch_id, one in self.launched.items()
        )
        return CaseResult(
            self.planned.case_id, self.case, self.device_index, self.device_name, "ok", "", measurements
        )

    def rate(self, machine: Machine | None) -> _Rate:
        """From all launches, computed anew only when there are more blocks."""
        count = sum(len(launched.blocks) for launched in self.launched.values())
        if self.known.blocks == count:
            return self.known
        result, unit = self.result(), self.case.unit
        speed = speed_of(result)
        if isinstance(speed, Missing):
            blocks = [block for one in result.measurements for block in one.blocks][-INTERVAL_BLOCKS:]
            units_per_s = speed_of_launch(self.case, blocks)
            gave = gave_of_launch(self.case, blocks)
            spread = UNKNOWN if is_launch_undecidable(self.case, blocks) else ""
            self.known = _Rate(count, units_per_s, format_rate(units_per_s, unit), gave, spread)
        else:
            self.known = _Rate(
                count,
                speed.units_per_s,
                format_rate(speed.units_per_s, unit),
                gave_text(result),
                interval_words(speed),
                None if machine is None else share_of_sheet(uses_of(result, (), machine)),
            )
        return self.known


class ProgressTracker:
    """Tracks the progress of runs from their journals. For one thread, as `follow` is."""

    def __init__(self, plans: Sequence[Plan], *, is_of_this_clock: bool = False) -> None:
        self.pace = TimeLeft(plans, is_of_this_clock)
        self.heard_s = 0.0
        """When the last line that has a time was written, since the first run began."""
        self._plans = plans
        self._machines: dict[int, Machine] = {}
        self._runtime: Runtime | None = None
        self._pass_number = 0
        self._under_test: int | None = None
        self._timed: _Case | None = None
        self._events: deque[Happened] = deque(maxlen=EVENTS_KEPT)
        self.launched: dict[tuple[int, int], str] = {}
        """By run and launch: `launch 2 of gemm mini cpu fp32 and gemm mini cpu amp`, the second of these."""
        self._last_words: deque[LogTail] = deque(maxlen=LAST_WORDS_KEPT)
        self._loads: deque[LoadNow] = deque(maxlen=LOADS_KEPT)
        self._steps: list[LoadStep] = []
        self._server_is_here: bool | None = None
        self._offered: _Case | None = None
        self.ended: dict[int, RunEnd] = {}
        self.stored: dict[int, Stored] = {}
        self._cases = {
            (index, case.case_id): _Case(
                index,
                case,
                case.outcome or "waiting",
                case.reason,
                sum(1 for launch in plan.launches if case.case_id in launch.case_ids),
                plan.most_blocks,
                {launch.launch_id for launch in plan.launches if case.case_id in launch.profiled},
            )
            for index, plan in enumerate(plans)
            for case in plan.cases
        }

        planned = [case.case for case in self._cases.values() if case.launches]
        self._shared = shared_case_words(planned) if len(planned) > 1 else []
        profiles = {case.work.workload.partition(" ")[0] for case in planned}
        of_loads = len(planned) > 1 and len(profiles) == 1 and min(profiles).startswith("serve:")
        self._profile = min(profiles) if of_loads else ""
        """The word that the names of all loads on a server share; empty for another run."""

    def hear(self, index: int, line: Line) -> Happened | None:
        """Read one line of the journal of run `index`, and return what is to be said of it.

        Lines of cases that the plan lacks are ignored.
        """
        self.pace.hear(index, line)
        if (t_ns := getattr(line, "t_ns", None)) is not None:
            self.heard_s = self.pace.at_s(index, t_ns)
        planned = line.planned if isinstance(line, CasePlanned) else line
        case = self._cases.get((index, getattr(planned, "case_id", -1)))
        said = self._hear_of(case, line) if case is not None else self._hear_of_run(index, line)
        if said is None:
            return None
        level, message = said
        self._events.append(Happened(self.heard_s, level, clean_text(message)))
        return self._events[-1]

    def _hear_of_run(self, index: int, line: Line) -> tuple[str, str] | None:
        """A line of the whole run; returns level and message of an event."""
        match line:
            case MachineFound():
                self._machines[index] = line.machine
            case RuntimeFound():
                self._runtime = line.runtime
            case LaunchStart():
                self._begin_launch(index, line)
            case LaunchEnd():
                return self._end_launch(index, line)
            case Event():
                return line.level, line.message
            case LaunchesLeftOut():
                for launch in self._plans[index].launches:
                    if launch.launch_id in line.launch_ids:
                        for one in self._of(index, launch.case_ids):
                            one.launches -= 1
                return "info", line.message
            case RunEnd():
                self.ended[index] = line
                self._timed = None
                if line.status != "finished":
                    return "warning", f"run {line.status}: {line.reason}"
            case Stored():
                self.stored[index] = line
        return None

    def _hear_of(self, case: _Case, line: Line) -> tuple[str, str] | None:
        """A line of one case; returns level and message of an event."""
        match line:
            case CasePlanned():
                case.device_index, case.device_name = line.device_index, line.device_name
            case CaseWarm():
                case.state, case.reason = "warm", ""
                case.launched[line.launch_id].precision_used = line.precision_used
            case Block() if line.steps > 0:
                case.launched[line.launch_id].blocks.append(line)
                case.state = "timing"
                # of cases whose blocks take turns, one is followed until it ends
                if self._timed is None or self._timed.state != "timing":
                    self._timed = case
            case ServerFound():
                self._server_is_here = line.is_here
            case LoadNow():
                self._hear_load(case, line)
            case LoadStep():
                self._steps.append(line)
            case Figure() if not isinstance(line.value, Missing):
                case.figures[line.key].append(line.value)
            case CaseEnd():
                return self._hear_end(case, line)
            case ProfiledPass():
                if case.state == "profiling":
                    case.state = "ok"
                if not line.is_valid:
                    return "warning", f"{self._name(case)} not profiled: {line.reason}"
        return None

    def picture(self, histories: Sequence[HistoryReader] = ()) -> ProgressSnapshot:
        """`histories` of what the samplers read, one for each run; none if their clock is not ours."""
        under_way = next((at for at in range(len(self._plans)) if at not in self.ended), len(self._plans) - 1)
        fastest: dict[Work, float] = defaultdict(float)
        for case in self._cases.values():
            units_per_s = case.rate(self._machines.get(case.run)).units_per_s
            fastest[case.case.work] = max(fastest[case.case.work], units_per_s)
        left_s, passed_s = self.pace.left_s(), self.pace.elapsed_s()
        is_storing = len(self.ended) == len(self._plans)
        return ProgressSnapshot(
            begun_ns=self.pace.begun_ns,
            left_s=left_s,
            cases=tuple(self._progress_of(case, fastest[case.case.work]) for case in self._cases.values()),
            strip=None if self._timed is None else self._strip(self._timed),
            events=tuple(self._events),
            is_storing=is_storing,
            share_done=1.0 if is_storing else _share(passed_s, left_s),
            machine=self._machines.get(next((one.run for one in self._cases.values() if one.is_now), 0)),
            under_test=self._under_test,
            shared_words=" ".join([self._profile, *self._shared]).strip(),
            last_words=tuple(self._last_words),
            load=self._load(),
            server_is_here=self._server_is_here,
            devices=histories[under_way].poll(time.monotonic_ns()) if histories else (),
            runtime=self._runtime,
            pass_number=self._pass_number,
            passes=max((plan.replicates for plan in self._plans), default=0),
            waited_share=_NO_BLOCK if self._timed is None else waited_of(self._timed.newest_blocks[-1]),
        )

    def _of(self, index: int, case_ids: Sequence[int]) -> list[_Case]:
        """Those of them that the plan of a run has."""
        return [self._cases[index, one] for one in case_ids if (index, one) in self._cases]

    def _progress_of(self, case: _Case, fastest_per_s: float) -> CaseProgress:
        rate = case.known
        return CaseProgress(
            self._name(case),
            case.state,
            clean_text(case.reason),
            case.done,
            max(case.launches, case.done) if case.launches else 0,
            rate.rate,
            rate.spread,
            rate.peak,
            case.share_done,
            self._short_name(case),
            case.figure("ttft_p50_s"),
            case.figure("tpot_p50_s"),
            rate.units_per_s / fastest_per_s if rate.units_per_s else None,
            rate.gave,
        )

    def _hear_load(self, case: _Case, line: LoadNow) -> None:
        if self._loads and self._loads[-1].launch_id != line.launch_id:
            self._loads.clear()
            self._steps = [step for step in self._steps if step.launch_id == line.launch_id]
        self._offered = case
        case.state, case.reason = "timing", ""
        self._loads.append(line)

    def _load(self) -> OfferedLoad | None:
        case = self._offered
        if case is None or not case.is_now:
            return None
        launch = min(case.done + 1, max(case.launches, 1))
        loads, steps = tuple(self._loads), tuple(self._steps)
        return OfferedLoad(self._name(case), launch, case.launches, loads, steps)

    def _hear_end(self, case: _Case, line: CaseEnd) -> tuple[str, str]:
        if line.outcome != "skipped":  # it had no time, so nothing was tried
            case.done += 1
        launched = case.launched[line.launch_id]
        launched.outcome, launched.reason = line.outcome, line.reason
        has_result = any(one.outcome == "ok" for one in case.launched.values())
        case.state, case.reason = ("ok", "") if has_result else (line.outcome, line.reason)
        if line.outcome != "ok":
            return "warning", f"{self._name(case)} {line.outcome}: {line.reason}"
        if line.launch_id in case.profiled:
            case.state = "profiling"
        rate = case.rate(self._machines.get(case.run))
        is_by_clock = is_undecidable(case.result())
        spread = "" if is_by_clock else rate.spread
        words = told_rate(f"{rate.rate} {spread}".strip(), rate.gave, is_by_clock=is_by_clock)
        done = f"{self._short_name(case)}: launch {case.done} of {max(case.launches, case.done)} ok"
        times = (
            f"{name} {format_seconds(case.figures[key][-1])}" for key, name in _TIMES if key in case.figures
        )
        return "info", ", ".join(filter(None, (done, words, *times)))

    def _begin_launch(self, index: int, line: LaunchStart) -> None:
        self._pass_number = max(self._pass_number, line.replicate + 1)
        cases = self._of(index, line.case_ids)
        for case in cases:
            case.state, case.reason = "starting", ""
            on_gpu = case.case.variant.device_class == "gpu"
            self._under_test = case.device_index if on_gpu else HOST
        of = f" of {listed([self._name(case) for case in cases])}" if cases else ""
        self.launched[index, line.launch_id] = f"launch {line.replicate + 1}{of}"

    def _end_launch(self, index: int, line: LaunchEnd) -> tuple[str, str] | None:
        failed: str | None = None
        for case in (one for one in self._cases.values() if one.run == index):
            if case.is_now:
                case.state, case.reason = line.outcome, line.reason
            launched = case.launched.get(line.launch_id)
            if launched is not None and launched.outcome == "failed" and failed is None:
                failed = launched.reason
            if launched is not None and not launched.outcome:
                launched.outcome = line.outcome if line.outcome != "ok" else "interrupted"
        name = self.launched.get((index, line.launch_id), "a launch")
        if line.log_tail or failed is not None:
            tail = LogTail(
                index,
                line.launch_id,
                self.heard_s,
                name,
                line.outcome if failed is None else "failed",
                clean_text(line.reason or failed or ""),
                tuple(clean_text(row) for row in line.log_tail.splitlines()),
            )
            self._last_words.append(tail)
        if line.outcome != "ok":
            return "warning", f"{name} {line.outcome}: {line.reason}"
        return ("warning", f"{name}: its worker left with {line.exit_status}") if line.exit_status else None

    def _name(self, case: _Case) -> str:
        number = gpu_number(case.case, case.device_index)
        return self._numbered(case, plain_case_name(case.case).replace(" gpu", f" gpu{number}"))

    def _short_name(self, case: _Case) -> str:
        """Without what all cases share; beside cases on a CPU the others need no word."""
        if self._profile:
            return self._numbered(case, case.case.work.workload.removeprefix(f"{self._profile} "))
        number = gpu_number(case.case, case.device_index)
        name = short_case_name(case.case, (*self._shared, "gpu"), is_short=True)
        return self._numbered(case, f"{name} gpu{number}" if number else name)

    def _numbered(self, case: _Case, name: str) -> str:
        """With the number of its run, if there are several."""
        return clean_text(name) if len(self._plans) == 1 else f"[{case.run + 1}] {clean_text(name)}"

    def _strip(self, timed: _Case) -> TimedCase:
        case, blocks = timed.case, timed.newest_blocks
        units = case.units_per_step
        launches = tuple(
            tuple([units * s for s in own_times(case, launched.blocks[-INTERVAL_BLOCKS:])])
            for launched in timed.launched.values()
            if launched.blocks
        )
        gave = gave_of_launch(case, blocks[-INTERVAL_BLOCKS:])
        interval = hodges_lehmann_interval(launches[-1])
        centre_s = max(median(launches[-1]) if isinstance(interval, Missing) else interval.value, 1e-12)
        spread = ""
        if isinstance(interval, Estimated):
            spread = format_spread(
                units / centre_s, units / max(interval.high, 1e-12), units / max(interval.low, 1e-12)
            )
        has_aim = not (case.is_program or _is_sustained(case))
        return TimedCase(
            self._name(timed),
            launches,
            len(blocks),
            centre_s,
            interval,
            rate=format_rate(units / centre_s, case.unit) + (f", {GAVE} {gave}" if gave else ""),
            spread=spread,
            aim=f"±{100 * ENOUGH_HALF_WIDTH:g} % or {counted(timed.most_blocks, 'block')}" if has_aim else "",
            launches=max(timed.launches, len(launches)),
            most_blocks=timed.most_blocks,
        )


def _share(passed_s: float, left_s: float | None) -> float | None:
    """Of the time that it takes in all."""
    if left_s is None:
        return None
    return passed_s / (passed_s + left_s) if passed_s + left_s > 0 else 0.0
