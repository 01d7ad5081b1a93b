"""One launch: build its cases, warm them up, time them in turn, block by block; then profile some of them.

In: workloads and requests. Out: messages, from "warm" to "profiled".
"""

from __future__ import annotations

import gc
import math
import statistics
import time
from collections.abc import Callable
from contextlib import ExitStack, suppress
from dataclasses import asdict, dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import Any  # Any: the JSON of a launch

from . import MIN_BLOCKS
from .accelerator import allocator, require_named, synchronize
from .channel import Channel
from .contract import Figure, Precision, Request, Step, Value, Workload
from .failures import Failed, outcome_of, reason_of, text_for_file
from .profiling.profiled_pass import WARM_STEPS, NoTrace, profiled_pass, without_result
from .steps import COMPILE, COMPILE_FIGURE, STEP_TIMES, resolve
from .timing import (
    NO_TIME_APART,
    QUEUED_S,
    BlockTime,
    NotApart,
    Stopwatch,
    TimesApart,
    device_times_apart,
    has_trend,
    median_half_width,
    steps_for,
    still_falls,
    stopwatch_for,
)
from .workloads import workload_named

MIN_BLOCK_S, MAX_BLOCK_S = 0.05, 0.2
"""Bounds of a block's length, unless one step takes longer."""
WANTED_BLOCKS = 10
"""Between these bounds, blocks are short enough for this many in what is left of a case's share."""
SUSTAINED_BLOCKS = 300
"""A sustained case is split into about this many blocks."""
WARM_SHARE = 0.25
"""Of what is left of a case's share after its first step: the most that warming up may take."""
APART_SHARE = 0.05
"""Of a case's share: the most that measuring host and device time of a step apart may take."""
_TRIES_APART = 2
"""How often its steps are queued, at least."""
MAX_VOID_BLOCKS = 10
"""A model whose loss scale keeps falling has no finite gradients and would never get enough blocks."""
MAX_SINGLE_STEPS = 3
ENOUGH_HALF_WIDTH = 0.005
"""Relative half-width of the median's confidence interval at which a case is done."""
_NOT_MEASURED = Value(None, 0, "not measured")


@dataclass
class _Running:
    case_id: int
    workload: Workload
    precision: Precision
    step: Step
    timed: Callable[[int], BlockTime]
    """Times this number of steps, here or in the processes that do them."""
    steps_per_block: int
    expected_block_ns: float
    """Duration of a block, estimated from the warm-up."""
    found: list[tuple[Figure, Value]]
    """What the warm-up showed: STEP_TIMES of a GPU, and how much longer a first step took that compiled."""
    left_ns: float
    """What is left of the case's share after the warm-up, and at least what MIN_BLOCKS take."""
    void_blocks: int = 0
    block_ns: list[int] = field(default_factory=list)

    def is_done(self, most_blocks: int) -> bool:
        if self.workload.is_sustained:
            return False
        count = len(self.block_ns)
        enough = count > MIN_BLOCKS and median_half_width(self.block_ns) <= ENOUGH_HALF_WIDTH
        return enough or count >= most_blocks


class _NoTime(Exception):
    """There is too little time for the minimum number of blocks."""


class Launch:
    """Runs the cases of one launch and reports on a channel.

    `described` is the supervisor's JSON: device, threads, seed, most_blocks, the cases, and seconds. Timing
    should end at `allowance_s` and must at `limit_s`, both from the start; a case is given up only for the
    latter. The cases named in `profiled`, the most wanted first, are then profiled, for `profiled_s` in all.
    Times are of CLOCK_MONOTONIC. An outcome is reported for every case, whatever happens inside it.
    """

    def __init__(
        self,
        described: dict[str, Any],
        channel: Channel,
        started_ns: int,
        *,
        workload_named: Callable[[str], Workload] = workload_named,
        stopwatch: Stopwatch | None = None,
        times_apart: TimesApart | None = None,
        clock: Callable[[], int] = time.monotonic_ns,
    ) -> None:
        self._described, self._channel = described, channel
        self._device = str(described["device"])
        self._most_blocks = int(described["most_blocks"])
        self._cases: list[dict[str, Any]] = described["cases"]
        step_file = str(self._cases[0].get("step_file") or "") if self._cases else ""
        self._step_file = Path(step_file) if step_file else None
        self._workload_named = workload_named
        kept_s = sum(workload_named(str(case["workload"])).figures_s for case in self._cases)
        allowance_s = float(described["allowance_s"])
        self._limit_s = float(described.get("limit_s", allowance_s))
        self._deadline_ns = started_ns + round((allowance_s - kept_s) * 1e9)
        self._last_ns = started_ns + round((self._limit_s - kept_s) * 1e9)
        self._profiled: list[int] = described.get("profiled", [])
        self._stopwatch: Stopwatch = stopwatch or stopwatch_for(self._device)
        self._times_apart: TimesApart = times_apart or partial(device_times_apart, self._device)
        self._clock = clock

    def run(self) -> None:
        """Time all cases, then profile."""
        self._profile(self._timed())

    def _timed(self) -> dict[int, _Running]:
        """Warm up each case within its share of the time, then time all of them in turn.

        Returns those to profile, their steps still open.
        """
        running: list[_Running] = []
        for index, described in enumerate(self._cases):
            kept_ns = sum(case.left_ns for case in running)
            share_ns = (self._deadline_ns - self._clock() - kept_ns) / (len(self._cases) - index)
            last_ns = self._last_ns - MIN_BLOCKS * sum(case.expected_block_ns for case in running)
            warm = partial(self._warm, described, share_ns, last_ns)
            case = self._guarded(int(described["case_id"]), warm)
            if case is not None:
                running.append(case)
        open_cases: dict[int, _Running] = {}
        while running:
            for case in list(running):
                done = self._guarded(case.case_id, partial(self._time_block, case), len(case.block_ns))
                if done is False and self._has_time_for(case, running):
                    continue
                running.remove(case)
                finish = partial(self._finish, case)
                is_ok = done is not None and self._guarded(case.case_id, finish, len(case.block_ns))
                if is_ok and case.case_id in self._profiled:
                    open_cases[case.case_id] = case
                else:
                    _close(case.step)
        return open_cases

    def _has_time_for(self, case: _Running, active: list[_Running]) -> bool:
        """Whether one more round of blocks ends before the deadline; the minimum is always measured."""
        latest_ns = [one.block_ns[-1] if one.block_ns else one.expected_block_ns for one in active]
        return len(case.block_ns) < MIN_BLOCKS or self._clock() + sum(latest_ns) <= self._deadline_ns

    def _guarded(self, case_id: int, work: Callable[[], Any], blocks: int = 0) -> Any:
        """Do `work`. If it raises, report the outcome of the case and return None."""
        try:
            return work()
        except BrokenPipeError:
            raise  # the supervisor is gone; there is no one to report to
        except _NoTime as error:
            self._end(case_id, "skipped", str(error), blocks)
        except Exception as error:  # torch and workloads may raise anything; the other cases go on
            self._end(case_id, outcome_of(error), reason_of(error, self._step_file), blocks)
        self._free_memory()
        return None

    def _request(self, described: dict[str, Any], time_s: float) -> tuple[Workload, Request]:
        """What to build, with its precision in force."""
        launch = self._described
        require_named(self._device, str(launch.get("device_name", "")))
        workload = self._workload_named(described["workload"])
        precision = resolve(described["precision"], self._device)
        precision.apply()
        return workload, Request(
            workload.sizes[described["size"]].parameters,
            self._device,
            precision,
            int(launch["threads"]),
            int(launch["seed"]),
            time_s,
            str(described.get("mode", "eager")),
            str(launch.get("rendezvous", "")),
        )

    def _warm(self, described: dict[str, Any], share_ns: float, last_ns: float) -> _Running:
        """Build, take the first step, and repeat blocks while they become faster.

        Raises _NoTime if MIN_BLOCKS of one step each cannot end by `last_ns`.
        """
        begun_ns = self._clock()
        if begun_ns >= last_ns:
            raise _NoTime(f"no time was left of the launch's {self._limit_s:.3g} s")
        workload, request = self._request(described, share_ns / 1e9)
        step = workload.build(request)
        with ExitStack() as undo:
            undo.callback(_close, step)
            case = self._warmed(described, workload, request, step, begun_ns, share_ns, last_ns)
            undo.pop_all()
        return case

    def _warmed(
        self,
        described: dict[str, Any],
        workload: Workload,
        request: Request,
        step: Step,
        begun_ns: int,
        share_ns: float,
        last_ns: float,
    ) -> _Running:
        """The part of `_warm` that follows once the step is built."""
        built_ns = self._clock()
        timed = step.timed or partial(self._stopwatch, step.run)
        first = timed(step.multiple)
        warm_start_ns = self._clock()
        if warm_start_ns >= last_ns:
            taken = _seconds(first.wall_ns)
            raise _NoTime(f"its first step took {taken}, and the launch had {self._limit_s:.3g} s")
        left_ns = share_ns - (warm_start_ns - begun_ns)
        wanted_s = left_ns * (1 - WARM_SHARE) / WANTED_BLOCKS / 1e9
        block_s = min(max(wanted_s, MIN_BLOCK_S), MAX_BLOCK_S)
        if workload.is_sustained:
            block_s = max(block_s, share_ns / 1e9 / SUSTAINED_BLOCKS)

        single = self._single_steps(partial(timed, step.multiple), last_ns)
        blocks, recent = len(single), list[int]()
        per_step_ns = min(one.block_ns for one in single) / step.multiple
        steps = _whole(steps_for(block_s, per_step_ns), step)
        is_slow = steps == step.multiple and per_step_ns * steps > wanted_s * 1e9
        is_block = is_slow and not (step.timed or step.settled or step.loss_scale)
        end_ns = warm_start_ns + WARM_SHARE * left_ns
        while not is_block and self._clock() < end_ns and blocks < self._most_blocks and still_falls(recent):
            block = timed(steps)
            blocks += 1
            per_step_ns = block.block_ns / steps
            wanted = _whole(steps_for(block_s, per_step_ns), step)
            if not steps * 0.7 <= wanted <= steps * 1.5:
                steps, recent = wanted, []
            else:
                recent.append(block.block_ns)
        found = self._apart(workload, step, per_step_ns, APART_SHARE * share_ns)
        if request.mode == COMPILE:
            compile_ns = max(first.wall_ns - step.multiple * per_step_ns, 0.0)
            found.append((COMPILE_FIGURE, Value(compile_ns / 1e9, 1)))
        if step.settled:
            step.settled()
        case = _Running(
            int(described["case_id"]),
            workload,
            request.precision,
            step,
            timed,
            steps,
            expected_block_ns=steps * per_step_ns,
            found=found,
            left_ns=max(share_ns - (self._clock() - begun_ns), MIN_BLOCKS * steps * per_step_ns),
        )
        now_ns = single[-1].start_ns if is_block else self._clock()
        self._channel.send(
            "warm",
            case_id=case.case_id,
            precision_used=request.precision.used,
            build_ns=built_ns - begun_ns,
            first_step_ns=first.wall_ns,
            warmup_ns=now_ns - warm_start_ns,
            warmup_blocks=blocks - is_block,
            stable=not has_trend(recent),
            steps_per_block=steps,
            layout=step.layout,
            t_ns=now_ns,
        )
        if is_block:
            self._time_block(case, single[-1])
        return case

    def _apart(
        self, workload: Workload, step: Step, step_ns: float, limit_ns: float
    ) -> list[tuple[Figure, Value]]:
        """The values of STEP_TIMES, measured within about so many ns; none on a CPU."""
        if self._device == "cpu":
            return []
        steps = _whole(steps_for(QUEUED_S, step_ns), step)
        try:
            if step.timed:
                raise NotApart("its steps are timed in other processes")
            if workload.is_alone:
                raise NotApart("it would take memory of the device, which this case has to itself")
            if _TRIES_APART * steps * step_ns > limit_ns:
                raise NotApart(NO_TIME_APART)
            host_ns, device_ns = self._times_apart(step.run, steps, limit_ns)
        except NotApart as reason:
            return [(figure, Value(None, 0, str(reason))) for figure in STEP_TIMES]
        values = Value(device_ns / 1e9, steps), Value(host_ns / 1e9, steps)
        return list(zip(STEP_TIMES, values, strict=True))

    def _single_steps(self, timed: Callable[[], BlockTime], last_ns: float) -> list[BlockTime]:
        """Single steps until one is short enough for the minimum number of blocks: rarely more than one.

        Raises _NoTime if there is no time for another try; one step may have been delayed by other processes.
        """
        taken, had_ns = list[BlockTime](), last_ns - self._clock()
        while True:
            taken.append(timed())
            step_ns, left_ns = min(one.block_ns for one in taken), last_ns - self._clock()
            if step_ns * (MIN_BLOCKS - 1) <= left_ns:  # the latest may be the first block
                return taken
            if step_ns > left_ns or len(taken) == MAX_SINGLE_STEPS:
                raise _NoTime(
                    f"{MIN_BLOCKS} steps of {_seconds(step_ns)} do not fit into the {_seconds(had_ns)} left"
                )

    def _time_block(self, case: _Running, timed: BlockTime | None = None) -> bool:
        """Time one block, unless it is, and report it; returns whether the case is done."""
        case.precision.apply()
        scale = case.step.loss_scale
        scale_before = scale() if scale else 0.0
        timed = timed or case.timed(case.steps_per_block)
        if scale and scale() < scale_before:
            self._channel.send("void", case_id=case.case_id, reason="optimizer step skipped: loss scale fell")
            case.void_blocks += 1
            if case.void_blocks == MAX_VOID_BLOCKS:
                raise Failed(f"the loss scale fell in {MAX_VOID_BLOCKS} blocks")
            return False
        self._channel.send(
            "block",
            case_id=case.case_id,
            index=len(case.block_ns),
            steps=case.steps_per_block,
            **asdict(timed),
        )
        case.block_ns.append(timed.block_ns)
        return case.is_done(self._most_blocks)

    def _finish(self, case: _Running) -> bool:
        """Check the output of the work, then report; returns whether it is right."""
        loss = float(case.step.loss()) if case.step.loss else 0.0
        result = float(case.step.result()) if case.step.result else 0.0
        self._send_figures(case)
        reason = case.step.fault() if case.step.fault else ""
        if not math.isfinite(loss):
            reason = f"the loss became {loss}"
        elif not math.isfinite(result):
            reason = f"the output became {result}"
        elif reason:
            reason = text_for_file(str(reason), "the step found its work wrong", self._step_file)
        self._end(case.case_id, "failed" if reason else "ok", reason, len(case.block_ns))
        return not reason

    def _send_figures(self, case: _Running) -> None:
        """Report every declared figure; one that the step does not return is absent, with the reason."""
        step_ns = [ns / case.steps_per_block for ns in case.block_ns]
        given = case.step.figures(step_ns) if case.step.figures else {}
        declared = [(figure, given.get(figure.key, _NOT_MEASURED)) for figure in case.workload.figures]
        for figure, value in (*declared, *case.found):
            if value.reason and figure.key in given:
                value = replace(value, reason=text_for_file(value.reason, "not measured", self._step_file))
            self._channel.send("figure", case_id=case.case_id, **asdict(figure), **asdict(value))

    def _end(self, case_id: int, outcome: str, reason: str, blocks: int) -> None:
        self._channel.send(
            "case_end",
            case_id=case_id,
            outcome=outcome,
            reason=reason,
            blocks=blocks,
            t_ns=self._clock(),
        )

    def _free_memory(self) -> None:
        gc.collect()
        counted = allocator(self._device)
        if counted:
            counted.empty_cache()

    def _profile(self, open_cases: dict[int, _Running]) -> None:
        """Profile the most wanted case with its warm step, alone in memory; the others are built again."""
        ends_ns = time.monotonic_ns() + round(float(self._described.get("profiled_s", 0)) * 1e9)
        wanted = [case_id for case_id in self._profiled if case_id in open_cases]
        step_ns = {
            case_id: statistics.median(case.block_ns) / case.steps_per_block
            for case_id, case in open_cases.items()
        }
        step = open_cases.pop(wanted[0]).step if wanted else None
        while open_cases:
            _close(open_cases.popitem()[1].step)
        for case_id in wanted:
            self._free_memory()
            found = self._profiled_pass(case_id, step, step_ns[case_id], ends_ns)
            step = None
            self._channel.send("profiled", case_id=case_id, **found)

    def _profiled_pass(self, case_id: int, step: Step | None, step_ns: float, ends_ns: int) -> dict[str, Any]:
        """The fields of a `profiled` message, whatever happens."""
        described = next(case for case in self._cases if case["case_id"] == case_id)
        try:
            workload, request = self._request(described, (ends_ns - time.monotonic_ns()) / 1e9)
            if step is None:
                if time.monotonic_ns() + WARM_STEPS * step_ns > ends_ns:
                    raise NoTrace("no time was left")
                step = workload.build(request)
                for _ in range(WARM_STEPS):
                    step.run()
                synchronize(self._device)
            trace = Path(described["trace"]) if described.get("trace") else None
            return profiled_pass(
                step,
                self._device,
                step_ns,
                ends_ns,
                trace=trace,
                reserve_bytes=int(self._described.get("reserve_bytes", 0)),
                step_file=self._step_file,
            )
        except BrokenPipeError:
            raise  # the supervisor is gone
        except Exception as error:  # torch and workloads may raise anything: that costs the pass, not the run
            return without_result(reason_of(error, self._step_file))
        finally:
            if step:
                _close(step)


def _whole(steps: int, step: Step) -> int:
    """This number of steps, rounded up to what the case can do."""
    return -(-steps // step.multiple) * step.multiple


def _close(step: Step) -> None:
    """End what the case started; its outcome was reported before."""
    if step.close:
        with suppress(Exception):
            step.close()


def _seconds(ns: float) -> str:
    return f"{ns / 1e9:.3g} s"
