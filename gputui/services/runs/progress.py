"""Progress of runs, from the lines of their journals: what `gputui attach` and the screens show."""

from __future__ import annotations

import time
from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from statistics import median

from gputui.analysis.statistics import Interval, hodges_lehmann_interval
from gputui.analysis.verdict import SpeedEstimate
from gputui.model.absent import Missing
from gputui.model.case import Case
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
    RunEnd,
    RunStart,
    RuntimeFound,
    Stored,
)
from gputui.model.machine import Machine, Runtime
from gputui.model.plan import Plan, PlannedLaunch
from gputui.model.profiled import ProfiledPass
from gputui.model.result import CaseResult, Measurement
from gputui.model.serving import LoadNow, LoadStep, ServerFound
from gputui.model.telemetry import HOST
from gputui.model.units import UNKNOWN, counted, format_rate, format_spread, listed
from gputui.recording.pacing import FIRST_STARTUP_S, FIRST_STARTUP_WITHOUT_TORCH_S, profiled_s
from gputui.services.results.labels import (
    gpu_number,
    interval_words,
    not_measured_line,
    plain_case_name,
    shared_case_words,
    short_case_name,
)
from gputui.services.results.roofline import share_of_sheet, uses_of
from gputui.services.results.throughput import (
    GAVE,
    gave_of_launch,
    gave_text,
    speed_of,
    speed_of_launch,
    told_rate,
)
from gputui.services.results.waiting import is_launch_undecidable, is_undecidable, own_times, waited_of
from gputui.services.runs.device_history import DeviceHistory, HistoryReader
from gputui.store.text import clean_text
from gputui.worker.launch.timed_launch import ENOUGH_HALF_WIDTH, MAX_BLOCK_S
from gputui.worker.workloads import WORKLOADS

INTERVAL_BLOCKS = 400
"""The running median and interval use at most this many of the last blocks: they are computed twice a
second."""
EVENTS_KEPT = 200
LAST_WORDS_KEPT = 50
LOADS_KEPT = 600
_NO_BLOCK = Missing("no block has been timed yet")
_WITH_WARM_UP = 1.3
"""Times the timed blocks: building, the first step, and warm-up until three blocks agree."""


class TimeLeft:
    """Elapsed and remaining time of all runs of one supervisor."""

    def __init__(self, plans: Sequence[Plan]) -> None:
        self._begun_ns = time.monotonic_ns()
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
        """Elapsed when the last launch ended."""
        self._now_s: float | None = None
        """Elapsed when the launch in progress began."""
        self._is_of_this_clock = False

    def trust_clock(self) -> None:
        """Use the journals' timestamps: they are of this boot, so their clock is ours."""
        self._is_of_this_clock = True
        self._begun_ns = min(self.started_ns.values(), default=self._begun_ns)

    def hear(self, index: int, line: Line) -> None:
        """Read one line of the journal of run `index`; it may have been written long before."""
        if isinstance(line, RunStart):
            self.started_ns[index] = line.started_ns
            if self._is_of_this_clock:
                self._begun_ns = min(self.started_ns.values())
        elif not self._is_of_this_clock and isinstance(
            line, LaunchStart | CaseWarm | CaseEnd | LaunchEnd | LaunchesLeftOut | Event | RunEnd
        ):
            passed_ns = line.t_ns - self.started_ns.get(index, line.t_ns)
            self._begun_ns = time.monotonic_ns() - passed_ns
        if isinstance(line, LaunchStart):
            self._now_s = self._at_s(index, line.t_ns)
            alone_s = sum(self._of_case_s[index].get(case_id, 0.0) for case_id in line.case_ids)
            self._waiting_s[index].setdefault(line.launch_id, alone_s)
        elif isinstance(line, LaunchEnd):
            waited_s, ended_s = self._waiting_s[index].pop(line.launch_id, 0.0), self._at_s(index, line.t_ns)
            if line.outcome == "ok":  # when a worker was killed says nothing about the pace
                self._done_s += waited_s
                self._taken_s += ended_s - self._ended_s
            self._now_s, self._ended_s = None, ended_s
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
    """Of all launches so far, weighed as in the table of results, as `1.2 GB/s`; empty before the first
    block."""
    spread: str = ""
    """The 95 % interval of the rate around it, as `±1 %`; empty while there is none."""
    peak: float | None = None
    """What it reaches of a peak; None if that is unknown."""
    of_launch: float = 0.0
    """How much of the launch in progress is done, 0 to 1."""
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
        return self.state in ("starting", "profiling", "warm", "timing")

    @property
    def share_done(self) -> float:
        """Of its launches, 0 to 1."""
        return min((self.launches_done + self.of_launch) / self.launches, 1.0) if self.launches else 0.0


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
    rate: str = ""
    """Of the estimate, with what the box gave where that is far from it."""
    spread: str = ""
    """The interval around the rate; empty while there is none."""
    aim: str = ""
    """When this launch of the case is done, as `±0.5 % or 60 blocks`."""
    earlier_step_s: tuple[tuple[float, ...], ...] = ()
    """As `step_s`, of the launches before."""
    launch: int = 1
    """Its number among the launches of the case."""
    launches: int = 1
    most_blocks: int = 0


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
    """Its number among the launches of the case."""
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
    """Newest last."""
    is_storing: bool
    """Whether everything is measured."""
    share_done: float | None = None
    """Of the time it takes, by what is expected to be left; None without a limit."""
    machine: Machine | None = None
    """The box, once the journal has it."""
    under_test: int | None = None
    """Index of the GPU on which a worker is or was last at work, HOST for the CPU; None before the first."""
    shared_words: str = ""
    """The words that the names of all cases share, as `mini cpu`."""
    devices: tuple[DeviceHistory, ...] | Missing = ()
    """What the sampler has read, the host first."""
    last_words: tuple[LogTail, ...] = ()
    """Newest last."""
    load: OfferedLoad | None = None
    """What is offered to a server now; None while nothing is."""
    server_is_here: bool | None = None
    """Whether the server under load runs on this box; None for a run without one."""
    runtime: Runtime | None = None
    """The software under test, once the journal has it."""
    pass_number: int = 0
    """Of the pass in progress, from 1; 0 before the first."""
    passes: int = 0
    """Planned; each measures every case once."""
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
    """Empty while it goes on."""
    blocks: list[Block] = field(default_factory=list)


@dataclass(slots=True)
class _Case:
    case: Case
    state: str
    reason: str
    launches: int
    most_blocks: int
    done: int = 0
    device_index: int | None = None
    device_name: str = ""
    launched: dict[int, _Launched] = field(default_factory=dict)
    """By launch."""

    @property
    def blocks(self) -> int:
        return sum(len(launched.blocks) for launched in self.launched.values())

    @property
    def has_result(self) -> bool:
        """Whether a launch of it was `ok`, so that the result file will say so."""
        return any(launched.outcome == "ok" for launched in self.launched.values())

    @property
    def is_now(self) -> bool:
        return self.state in ("starting", "profiling", "warm", "timing")

    @property
    def of_launch(self) -> float:
        going_on = [one for one in self.launched.values() if not one.outcome]
        if not self.is_now or not going_on:
            return 0.0
        return min(len(going_on[-1].blocks) / self.most_blocks, 1.0)

    def result(self, case_id: int) -> CaseResult:
        """As it would be stored if it ended now."""
        return CaseResult(
            case_id, self.case, self.device_index, self.device_name, "ok", "", tuple(self._measurements())
        )

    def _measurements(self) -> Iterator[Measurement]:
        for launch_id, one in self.launched.items():
            yield Measurement(
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


@dataclass(frozen=True, slots=True)
class _Rate:
    """What is known of the rate of a case, after so many blocks."""

    blocks: int
    units_per_s: float = 0.0
    rate: str = ""
    gave: str = ""
    spread: str = ""
    peak: float | None = None


class ProgressTracker:
    """Tracks the progress of runs from their journals. For one thread, as `follow` is."""

    def __init__(self, plans: Sequence[Plan], *, is_of_this_clock: bool = False) -> None:
        self.pace = TimeLeft(plans)
        if is_of_this_clock:
            self.pace.trust_clock()
        self._plans = plans
        self._machines: dict[int, Machine] = {}
        self._runtime: Runtime | None = None
        self._pass_number = 0
        self._under_test: int | None = None
        self._rates: dict[tuple[int, int], _Rate] = {}
        self._timed: tuple[int, int] | None = None
        self._events: list[Happened] = []
        self.launched: dict[tuple[int, int], str] = defaultdict(lambda: "a launch")
        """By run and launch: `launch 2 of gemm mini cpu fp32 and gemm mini cpu amp`, the second of these."""
        self._last_words: list[LogTail] = []
        self._failed: dict[tuple[int, int], str] = {}
        self._loads: list[LoadNow] = []
        self._steps: list[LoadStep] = []
        self._profiled = {
            (index, launch.launch_id, case_id)
            for index, plan in enumerate(plans)
            for launch in plan.launches
            for case_id in launch.profiled
        }
        self._server_is_here: bool | None = None
        self._offered: tuple[int, int] | None = None
        """Run and case of the load that is offered."""
        self.figures: dict[tuple[int, int], dict[str, list[float]]] = {}
        """By run and case, then by key: the value of each launch."""
        self.ended: dict[int, RunEnd] = {}
        self.stored: dict[int, Stored] = {}
        self._cases = {
            (index, case.case_id): _Case(
                case.case,
                case.outcome or "waiting",
                case.reason,
                sum(1 for launch in plan.launches if case.case_id in launch.case_ids),
                plan.most_blocks,
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

    def hear(self, index: int, line: Line) -> None:
        """Read one line of the journal of run `index`; lines of cases that the plan lacks are ignored."""
        self.pace.hear(index, line)
        if isinstance(line, MachineFound):
            self._machines[index] = line.machine
        elif isinstance(line, RuntimeFound):
            self._runtime = line.runtime
        elif isinstance(line, CasePlanned):
            case = self._cases.get((index, line.planned.case_id))
            if case is not None:
                case.device_index, case.device_name = line.device_index, line.device_name
        elif isinstance(line, LaunchStart):
            self._pass_number = max(self._pass_number, line.replicate + 1)
            for case_id in line.case_ids:
                self._become(index, case_id, "starting")
                planned = self._cases.get((index, case_id))
                if planned is not None:
                    on_gpu = planned.case.variant.device_class == "gpu"
                    self._under_test = planned.device_index if on_gpu else HOST
            names = [self._name(index, one) for one in line.case_ids if (index, one) in self._cases]
            of = f" of {listed(names)}" if names else ""
            self.launched[index, line.launch_id] = f"launch {line.replicate + 1}{of}"
        elif isinstance(line, CaseWarm):
            self._become(index, line.case_id, "warm")
            launched = self._launched_case(index, line.case_id, line.launch_id)
            if launched is not None:
                launched.precision_used = line.precision_used
        elif isinstance(line, Block):
            self._hear_block(index, line)
        elif isinstance(line, ServerFound):
            self._server_is_here = line.is_here
        elif isinstance(line, LoadNow):
            self._hear_load(index, line)
        elif isinstance(line, LoadStep):
            self._steps.append(line)
        elif isinstance(line, Figure) and not isinstance(line.value, Missing):
            by_key = self.figures.setdefault((index, line.case_id), {})
            by_key.setdefault(line.key, []).append(line.value)
        elif isinstance(line, CaseEnd):
            self._hear_end(index, line)
        elif isinstance(line, ProfiledPass):
            case = self._cases.get((index, line.case_id))
            if case is not None and case.state == "profiling":
                case.state = "ok"
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

    def picture(self, histories: Sequence[HistoryReader] = ()) -> ProgressSnapshot:
        """`histories` of what the samplers read, one for each run; none if their clock is not ours."""
        under_way = next((at for at in range(len(self._plans)) if at not in self.ended), len(self._plans) - 1)
        rates = {key: self._rate(*key) for key in self._cases}
        left_s = self.pace.left_s()
        passed_s = self.pace.elapsed_s()
        is_storing = len(self.ended) == len(self._plans)
        return ProgressSnapshot(
            begun_ns=self.pace.begun_ns,
            left_s=left_s,
            cases=tuple(self._progress_of(*key, rate) for key, rate in rates.items()),
            strip=self._strip(),
            events=tuple(self._events),
            is_storing=is_storing,
            share_done=1.0 if is_storing else _share(passed_s, left_s),
            machine=self._machines.get(self._now[0] if self._now else 0),
            under_test=self._under_test,
            shared_words=" ".join([self._profile, *self._shared]).strip(),
            last_words=tuple(self._last_words),
            load=self._load(),
            server_is_here=self._server_is_here,
            devices=histories[under_way].poll(time.monotonic_ns()) if histories else (),
            runtime=self._runtime,
            pass_number=self._pass_number,
            passes=max((plan.replicates for plan in self._plans), default=0),
            waited_share=_NO_BLOCK
            if self._timed is None
            else waited_of(self._newest_blocks(self._timed)[-1]),
        )

    def launch_rate(self, index: int, case_id: int, launch_id: int) -> str:
        """The rate of one launch of a case, as in the final table; empty without a block."""
        case = self._cases[index, case_id]
        blocks = case.launched[launch_id].blocks
        if not blocks:
            return ""
        rate = format_rate(speed_of_launch(case.case, blocks), case.case.unit)
        is_by_clock = is_launch_undecidable(case.case, blocks)
        return told_rate(rate, gave_of_launch(case.case, blocks), is_by_clock=is_by_clock)

    def _newest_blocks(self, key: tuple[int, int]) -> list[Block]:
        """Of the newest launch of a case that has any."""
        return next(one.blocks for one in reversed(self._cases[key].launched.values()) if one.blocks)

    @property
    def _now(self) -> tuple[int, int] | None:
        """Run and number of a case that a worker is executing."""
        return next((key for key, case in self._cases.items() if case.is_now), None)

    def _progress_of(self, index: int, case_id: int, rate: _Rate) -> CaseProgress:
        case = self._cases[index, case_id]
        return CaseProgress(
            index,
            self._name(index, case_id),
            case.state,
            clean_text(case.reason),
            case.done,
            max(case.launches, case.done) if case.launches else 0,
            case.blocks,
            rate.rate,
            rate.spread,
            rate.peak,
            case.of_launch,
            self._short_name(index, case_id),
            self._median_figure(index, case_id, "ttft_p50_s"),
            self._median_figure(index, case_id, "tpot_p50_s"),
            self._of_fastest(case, rate),
            rate.gave,
        )

    def _of_fastest(self, case: _Case, rate: _Rate) -> float | None:
        alike = [
            known.units_per_s
            for key, known in self._rates.items()
            if self._cases[key].case.work == case.case.work
        ]
        return rate.units_per_s / max(alike) if rate.units_per_s else None

    def _median_figure(self, index: int, case_id: int, key: str) -> float | None:
        values = self.figures.get((index, case_id), {}).get(key)
        return median(values) if values else None

    def _launched_case(self, index: int, case_id: int, launch_id: int) -> _Launched | None:
        case = self._cases.get((index, case_id))
        return None if case is None else case.launched.setdefault(launch_id, _Launched())

    def _become(self, index: int, case_id: int, state: str) -> None:
        case = self._cases.get((index, case_id))
        if case is not None:
            case.state, case.reason = state, ""

    def _hear_block(self, index: int, line: Block) -> None:
        launched = self._launched_case(index, line.case_id, line.launch_id)
        if launched is None or line.steps < 1:
            return
        launched.blocks.append(line)
        self._cases[index, line.case_id].state = "timing"
        # of cases whose blocks take turns, one is followed until it ends
        if self._timed is None or self._cases[self._timed].state != "timing":
            self._timed = index, line.case_id

    def _hear_load(self, index: int, line: LoadNow) -> None:
        if (index, line.case_id) not in self._cases:
            return
        if self._loads and self._loads[-1].launch_id != line.launch_id:
            self._loads.clear()
            self._steps = [step for step in self._steps if step.launch_id == line.launch_id]
        self._offered = index, line.case_id
        self._become(index, line.case_id, "timing")
        self._loads.append(line)
        del self._loads[:-LOADS_KEPT]

    def _load(self) -> OfferedLoad | None:
        if self._offered is None or not self._cases[self._offered].is_now:
            return None
        case = self._cases[self._offered]
        return OfferedLoad(
            self._name(*self._offered),
            min(case.done + 1, max(case.launches, 1)),
            case.launches,
            tuple(self._loads),
            tuple(self._steps),
        )

    def _hear_end(self, index: int, line: CaseEnd) -> None:
        case = self._cases.get((index, line.case_id))
        launched = self._launched_case(index, line.case_id, line.launch_id)
        if case is None or launched is None:
            return
        if line.outcome != "skipped":  # it had no time, so nothing was tried
            case.done += 1
        launched.outcome = line.outcome
        case.state, case.reason = ("ok", "") if case.has_result else (line.outcome, line.reason)
        if line.outcome == "ok" and (index, line.launch_id, line.case_id) in self._profiled:
            case.state = "profiling"
        if line.outcome == "failed":
            self._failed.setdefault((index, line.launch_id), line.reason)
        name = self._name(index, line.case_id)
        if line.outcome != "ok":
            self._note(index, line.t_ns, "warning", f"{name} {line.outcome}: {line.reason}")
            return
        rate = self._rate(index, line.case_id)
        words = told_rate(
            " ".join(filter(None, (rate.rate, rate.spread))),
            rate.gave,
            is_by_clock=is_undecidable(case.result(line.case_id)),
        )
        launches = max(case.launches, case.done)
        done = f"{self._short_name(index, line.case_id)}: launch {case.done} of {launches} ok"
        self._note(index, line.t_ns, "info", f"{done}, {words}" if words else done)

    def _end_launch(self, index: int, line: LaunchEnd) -> None:
        for (run, _), case in self._cases.items():
            if run == index and case.is_now:
                case.state, case.reason = line.outcome, line.reason
            launched = case.launched.get(line.launch_id) if run == index else None
            if launched is not None and not launched.outcome:
                launched.outcome = line.outcome if line.outcome != "ok" else "interrupted"
        if line.outcome != "ok" or line.exit_status:
            words = f"{self.launched.get((index, line.launch_id), 'a launch')} {line.outcome}: {line.reason}"
            self._note(index, line.t_ns, "warning", words)
        failed = self._failed.get((index, line.launch_id))
        if line.log_tail or failed is not None:
            tail = LogTail(
                index,
                line.launch_id,
                self._since_start_s(index, line.t_ns),
                self.launched[index, line.launch_id],
                line.outcome if failed is None else "failed",
                clean_text(line.reason or failed or ""),
                tuple(clean_text(row) for row in line.log_tail.splitlines()),
            )
            self._last_words.append(tail)
            del self._last_words[:-LAST_WORDS_KEPT]

    def _leave_out(self, index: int, line: LaunchesLeftOut) -> None:
        for launch in self._plans[index].launches:
            if launch.launch_id in line.launch_ids:
                for case_id in launch.case_ids:
                    self._cases[index, case_id].launches -= 1
        self._note(index, line.t_ns, "info", line.message)

    def _since_start_s(self, index: int, t_ns: int) -> float:
        return max(t_ns - self.pace.started_ns.get(index, 0), 0) / 1e9

    def _note(self, index: int, t_ns: int | None, level: str, message: str) -> None:
        at_s = self.pace.elapsed_s() if t_ns is None else self._since_start_s(index, t_ns)
        self._events.append(Happened(at_s, level, clean_text(message)))
        del self._events[:-EVENTS_KEPT]

    def _name(self, index: int, case_id: int) -> str:
        case = self._cases[index, case_id]
        number = gpu_number(case.case, case.device_index)
        return self._numbered(index, plain_case_name(case.case).replace(" gpu", f" gpu{number}"))

    def _short_name(self, index: int, case_id: int) -> str:
        """Without what all cases share; beside cases on a CPU the others need no word."""
        case = self._cases[index, case_id]
        if self._profile:
            return self._numbered(index, case.case.work.workload.removeprefix(f"{self._profile} "))
        number = gpu_number(case.case, case.device_index)
        name = short_case_name(case.case, (*self._shared, "gpu"), is_short=True)
        return self._numbered(index, f"{name} gpu{number}" if number else name)

    def _numbered(self, index: int, name: str) -> str:
        """With the number of its run, if there are several."""
        return clean_text(name) if len(self._plans) == 1 else f"[{index + 1}] {clean_text(name)}"

    def _rate(self, index: int, case_id: int) -> _Rate:
        """From all launches of a case, computed anew only when it has more blocks or another outcome."""
        case = self._cases[index, case_id]
        known = self._rates.get((index, case_id), _Rate(0))
        if known.blocks == case.blocks:
            return known
        result = case.result(case_id)
        speed = speed_of(result)
        if isinstance(speed, Missing):
            blocks = [block for one in result.measurements for block in one.blocks][-INTERVAL_BLOCKS:]
            units_per_s = speed_of_launch(case.case, blocks)
            gave = gave_of_launch(case.case, blocks)
            spread = UNKNOWN if is_launch_undecidable(case.case, blocks) else ""
            made = _Rate(case.blocks, units_per_s, format_rate(units_per_s, case.case.unit), gave, spread)
        else:
            made = self._estimated(index, result, speed)
        self._rates[index, case_id] = made
        return made

    def _estimated(self, index: int, result: CaseResult, speed: SpeedEstimate) -> _Rate:
        machine = self._machines.get(index)
        return _Rate(
            self._cases[index, result.case_id].blocks,
            speed.units_per_s,
            format_rate(speed.units_per_s, result.case.unit),
            gave_text(result),
            interval_words(speed),
            None if machine is None else share_of_sheet(uses_of(result, (), machine)),
        )

    def _strip(self) -> TimedCase | None:
        if self._timed is None:
            return None
        case = self._cases[self._timed]
        units = case.case.units_per_step
        launches = [
            tuple([units * s for s in own_times(case.case, launched.blocks[-INTERVAL_BLOCKS:])])
            for launched in case.launched.values()
            if launched.blocks
        ]
        *earlier, step_s = launches
        blocks = self._newest_blocks(self._timed)
        gave = gave_of_launch(case.case, blocks[-INTERVAL_BLOCKS:])
        interval = hodges_lehmann_interval(step_s)
        centre_s = max(median(step_s) if isinstance(interval, Missing) else interval.estimate, 1e-12)
        spread = ""
        if isinstance(interval, Interval):
            spread = format_spread(
                units / centre_s, units / max(interval.high, 1e-12), units / max(interval.low, 1e-12)
            )
        has_aim = not (case.case.is_program or _is_sustained(case.case))
        return TimedCase(
            self._name(*self._timed),
            step_s,
            len(blocks),
            centre_s,
            interval,
            rate=format_rate(units / centre_s, case.case.unit) + (f", {GAVE} {gave}" if gave else ""),
            spread=spread,
            aim=f"±{100 * ENOUGH_HALF_WIDTH:g} % or {counted(case.most_blocks, 'block')}" if has_aim else "",
            earlier_step_s=tuple(earlier),
            launch=len(launches),
            launches=max(case.launches, len(launches)),
            most_blocks=case.most_blocks,
        )


def _share(passed_s: float, left_s: float | None) -> float | None:
    """Of the time that it takes in all."""
    if left_s is None:
        return None
    return passed_s / (passed_s + left_s) if passed_s + left_s > 0 else 0.0
