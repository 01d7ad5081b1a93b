"""One launch: build its cases, warm them up, then time them in turn, block by block."""

from __future__ import annotations

import contextlib
import math
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import Any  # Any: the JSON of a launch

from ..channel import Channel
from ..contract import Precision, Request, Step, Value, Workload
from ..failures import Failed, outcome_of, reason_of, text_for_file
from ..steps.compiling import COMPILE, COMPILE_FIGURE
from ..steps.precision import resolve
from ..timing.cpu_wait import waited_between, waited_ns
from ..timing.stopwatch import BlockTime, Stopwatch, agree, median_half_width, steps_for, stopwatch_for
from ..workloads import workload_named

MIN_BLOCK_S = 0.2
MIN_BLOCKS = 5
SUSTAINED_BLOCKS = 300
"""A sustained case is split into about this many blocks."""
MAX_VOID_BLOCKS = 10
"""A model whose loss scale keeps falling has no finite gradients and would never get enough blocks."""
MAX_SINGLE_STEPS = 3
ENOUGH_HALF_WIDTH = 0.005
"""Relative half-width of the median's confidence interval at which a case is done."""
WARM_TOLERANCE = {"cpu": 0.02}
"""Half the spread at which three blocks count as warm; CPUs share their machine with other programs."""
WARM_TOLERANCE_GPU = 0.005


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
    compile_s: float | None
    """How much longer the first step took than a later one, if it compiled."""
    warmup_ns: int
    left_ns: float
    """What is left of the case's share after the warm-up."""
    most_blocks: int
    void_blocks: int = 0
    block_ns: list[int] = field(default_factory=list)

    def is_done(self) -> bool:
        if self.workload.is_sustained:
            return False
        count = len(self.block_ns)
        enough = count > MIN_BLOCKS and median_half_width(self.block_ns) <= ENOUGH_HALF_WIDTH
        return enough or count >= self.most_blocks


class _NoTime(Exception):
    """The case's share of the budget is too small for the minimum number of blocks."""


class Launch:
    """Runs the cases of one launch and reports on a channel.

    `described` is the supervisor's JSON: device, threads, seed, allowance_s, most_blocks, and the cases.
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
        clock: Callable[[], int] = time.monotonic_ns,
    ) -> None:
        self._channel = channel
        self._device = str(described["device"])
        self._threads = int(described["threads"])
        self._seed = int(described["seed"])
        self._most_blocks = int(described["most_blocks"])
        self._rendezvous = str(described.get("rendezvous", ""))
        self._cases: list[dict[str, Any]] = described["cases"]
        step_file = str(self._cases[0].get("step_file") or "") if self._cases else ""
        self._step_file = Path(step_file) if step_file else None
        self._allowance_ns = round(float(described["allowance_s"]) * 1e9)
        self._deadline_ns = started_ns + self._allowance_ns
        self._workload_named = workload_named
        kept_s = [workload_named(str(case["workload"])).figures_s for case in self._cases]
        self._deadline_ns -= round(sum(kept_s) * 1e9)
        self._stopwatch: Stopwatch = stopwatch or stopwatch_for(self._device)
        self._clock = clock

    def run(self) -> None:
        """Warm up each case within its share of the time, then time all of them in turn."""
        running: list[_Running] = []
        for index, described in enumerate(self._cases):
            kept_ns = sum(case.left_ns for case in running)
            share_ns = (self._deadline_ns - self._clock() - kept_ns) / (len(self._cases) - index)
            case_id = int(described["case_id"])
            warm = self._guarded(case_id, partial(self._warm, described, share_ns))
            if isinstance(warm, _Running):
                running.append(warm)
        self._drop_what_does_not_fit(running)
        while running:
            for case in list(running):
                done = self._guarded(case.case_id, partial(self._time_block, case), len(case.block_ns))
                if done is None:
                    running.remove(case)
                    _close(case.step)
                elif done or not self._has_time_for(running):
                    running.remove(case)
                    self._guarded(case.case_id, partial(self._finish, case), len(case.block_ns))
                    _close(case.step)

    def _has_time_for(self, active: list[_Running]) -> bool:
        """Whether one more round of blocks ends before the deadline; the minimum is always measured."""
        if any(len(case.block_ns) < MIN_BLOCKS for case in active):
            return True
        round_ns = sum(case.block_ns[-1] for case in active)  # every active case has had its turn
        return self._clock() + round_ns <= self._deadline_ns

    def _drop_what_does_not_fit(self, running: list[_Running]) -> None:
        """Give up cases, last first, until the minimum number of blocks of the others fits.

        Time spent on warming up does not count: better late by that much than warmed up for nothing.
        """
        while len(running) > 1:
            needed_ns = sum(MIN_BLOCKS * case.expected_block_ns for case in running)
            warmups_ns = sum(case.warmup_ns for case in running)
            left_ns = max(self._deadline_ns + warmups_ns - self._clock(), 0)
            if needed_ns <= left_ns:
                break
            case = running.pop()
            reason = (
                f"too slow for what is left of its share, {_seconds(left_ns)}"
                f" ({MIN_BLOCKS} blocks of each case take {_seconds(needed_ns)}): raise --budget"
            )
            self._end(case.case_id, "skipped", reason, 0)
            _close(case.step)

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

    def _warm(self, described: dict[str, Any], share_ns: float) -> _Running:
        """Build, take the first step, and repeat blocks until three agree.

        The warm-up may take at most a quarter of the share, and at most as many blocks as are then timed.
        """
        begun_ns = self._clock()
        case_id = int(described["case_id"])
        if share_ns <= 0:
            raise _NoTime(f"no time was left of the launch's {_seconds(self._allowance_ns)}: raise --budget")
        workload = self._workload_named(described["workload"])
        size = workload.sizes[described["size"]]
        precision = resolve(described["precision"], self._device)
        precision.apply()
        mode = str(described.get("mode", "eager"))
        request = Request(
            size.parameters,
            self._device,
            precision,
            self._threads,
            self._seed,
            share_ns / 1e9,
            mode,
            self._rendezvous,
        )
        step = workload.build(request)
        try:
            return self._warmed(case_id, workload, request, step, begun_ns, share_ns)
        except BaseException:
            _close(step)
            raise

    def _warmed(
        self,
        case_id: int,
        workload: Workload,
        request: Request,
        step: Step,
        begun_ns: int,
        share_ns: float,
    ) -> _Running:
        """The part of `_warm` that follows once the step is built."""
        built_ns = self._clock()
        timed_steps = step.timed or partial(self._stopwatch, step.run)
        first = timed_steps(step.multiple)
        if self._clock() - begun_ns > share_ns:
            raise _NoTime(
                f"too slow for its {_seconds(share_ns)} share"
                f" (the first step took {_seconds(first.wall_ns)}): raise --budget"
            )
        warm_start_ns = self._clock()
        blocks = self._single_steps(partial(timed_steps, step.multiple), begun_ns, share_ns)

        steps = _whole(steps_for(MIN_BLOCK_S / 4, blocks[-1] / step.multiple), step)
        tolerance = WARM_TOLERANCE.get(self._device, WARM_TOLERANCE_GPU)
        stable = False
        per_step_ns = blocks[-1] / step.multiple
        recent: list[int] = []
        end_ns = warm_start_ns + share_ns / 4
        while not stable and self._clock() < end_ns and len(blocks) < self._most_blocks:
            timed = timed_steps(steps)
            per_step_ns = timed.block_ns / steps
            blocks.append(timed.block_ns)
            wanted = _whole(steps_for(MIN_BLOCK_S, per_step_ns), step)
            if not steps * 0.7 <= wanted <= steps * 1.5:
                steps, recent = wanted, []
            else:
                recent.append(timed.block_ns)
            stable = agree(recent, tolerance)
        block_s = MIN_BLOCK_S * 1.02
        if workload.is_sustained:
            block_s = max(block_s, share_ns / 1e9 / SUSTAINED_BLOCKS)
        steps = _whole(steps_for(block_s, per_step_ns), step)
        if step.settled:
            step.settled()
        now_ns = self._clock()
        block_ns = steps * per_step_ns
        warmup_ns = now_ns - warm_start_ns
        left_ns = share_ns - (now_ns - begun_ns)
        if block_ns * MIN_BLOCKS > left_ns + warmup_ns:
            raise _NoTime(
                f"too slow for its {_seconds(share_ns)} share"
                f" ({MIN_BLOCKS} blocks of {_seconds(block_ns)}): raise --budget"
            )
        self._channel.send(
            "warm",
            case_id=case_id,
            precision_used=request.precision.used,
            build_ns=built_ns - begun_ns,
            first_step_ns=first.wall_ns,
            warmup_ns=warmup_ns,
            warmup_blocks=len(blocks),
            stable=stable,
            steps_per_block=steps,
            t_ns=now_ns,
        )
        compile_s = None
        if request.mode == COMPILE:
            compile_s = max(first.wall_ns - step.multiple * per_step_ns, 0.0) / 1e9
        return _Running(
            case_id,
            workload,
            request.precision,
            step,
            timed_steps,
            steps,
            block_ns,
            compile_s,
            warmup_ns,
            left_ns,
            self._most_blocks,
        )

    def _single_steps(self, timed: Callable[[], BlockTime], begun_ns: int, share_ns: float) -> list[int]:
        """Single steps until one is short enough for the minimum number of blocks: rarely more than one.

        Raises _NoTime if the budget does not allow another try; one step may have been delayed by other
        processes.
        """
        taken: list[int] = []
        while True:
            left_ns = share_ns - (self._clock() - begun_ns)
            if taken and min(taken) * MIN_BLOCKS <= left_ns:
                return taken
            if taken and (min(taken) > left_ns or len(taken) == MAX_SINGLE_STEPS):
                raise _NoTime(
                    f"too slow for its {_seconds(share_ns)} share"
                    f" ({_seconds(min(taken))} a step): raise --budget"
                )
            taken.append(timed().block_ns)

    def _time_block(self, case: _Running) -> bool:
        """Time and report one block; returns whether the case is done."""
        case.precision.apply()
        scale = case.step.loss_scale
        scale_before = scale() if scale else 0.0
        waited_before_ns = waited_ns()
        timed = case.timed(case.steps_per_block)
        waited = timed.waited_ns if case.step.timed else waited_between(waited_before_ns, waited_ns())
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
            start_ns=timed.start_ns,
            wall_ns=timed.wall_ns,
            device_ns=timed.device_ns,
            cpu_ns=timed.cpu_ns,
            waited_ns=waited,
        )
        case.block_ns.append(timed.block_ns)
        return case.is_done()

    def _finish(self, case: _Running) -> None:
        """Check the output of the work, then report."""
        loss = float(case.step.loss()) if case.step.loss else 0.0
        result = float(case.step.result()) if case.step.result else 0.0
        self._send_figures(case)
        fault = case.step.fault() if case.step.fault else ""
        if not math.isfinite(loss):
            self._end(case.case_id, "failed", f"the loss became {loss}", len(case.block_ns))
        elif not math.isfinite(result):
            self._end(case.case_id, "failed", f"the output became {result}", len(case.block_ns))
        elif fault:
            reason = text_for_file(str(fault), "the step found its work wrong", self._step_file)
            self._end(case.case_id, "failed", reason, len(case.block_ns))
        else:
            self._end(case.case_id, "ok", "", len(case.block_ns))

    def _send_figures(self, case: _Running) -> None:
        """Report every declared figure; one that the step does not return is absent, with the reason."""
        given = (
            case.step.figures([ns / case.steps_per_block for ns in case.block_ns])
            if case.step.figures
            else {}
        )
        for declared in case.workload.figures:
            found = given.get(declared.key, Value(None, 0, "not measured"))
            if declared.key in given:
                reason = text_for_file(found.reason, "not measured", self._step_file)
                found = replace(found, reason=reason)
            self._channel.send("figure", case_id=case.case_id, **asdict(declared), **asdict(found))
        if case.compile_s is not None:
            taken = Value(case.compile_s, 1)
            self._channel.send("figure", case_id=case.case_id, **asdict(COMPILE_FIGURE), **asdict(taken))

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
        if self._device == "cuda":
            import torch

            torch.cuda.empty_cache()


def _whole(steps: int, step: Step) -> int:
    """This number of steps, rounded up to what the case can do."""
    return -(-steps // step.multiple) * step.multiple


def _close(step: Step) -> None:
    """End what the case started; its outcome was reported before."""
    if step.close:
        with contextlib.suppress(Exception):
            step.close()


def _seconds(ns: float) -> str:
    return f"{ns / 1e9:.3g} s"
