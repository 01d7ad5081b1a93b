"""Executes plans: one worker per launch, everything into journals, until the end or the first signal.

It outlives the shell that started it, and imports little, so that it takes no CPU from what it measures.
"""

from __future__ import annotations

import contextlib
import select
import shutil
import signal
import subprocess
import sys
import time
import traceback
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from itertools import zip_longest
from pathlib import Path
from types import FrameType

from gputui.machine.describing import describe_machine
from gputui.machine.gpus import GpuAddress, gpu_addresses, join_gpu
from gputui.model.absent import Missing
from gputui.model.journal import (
    NOTHING_MEASURED,
    STOPPED,
    TELEMETRY_NAME,
    Block,
    CaseEnd,
    CasePlanned,
    CaseWarm,
    Event,
    LaunchEnd,
    LaunchesLeftOut,
    LaunchStart,
    ProfiledPass,
    RunEnd,
    Stored,
    end_of,
    without_result,
)
from gputui.model.machine import Machine
from gputui.model.plan import FOUND_BY_TRYING, PlannedDevice, PlannedLaunch
from gputui.recording.pacing import Pace, WakingClock, profiled_s
from gputui.recording.probing import copy_worker
from gputui.recording.run_directory import NO_ROOM, JournalWriter, Spec
from gputui.recording.sampler import Sampler, sampler_of_run
from gputui.recording.worker_process import (
    WorkerProcess,
    Zygote,
    described_launch,
    line_of,
    may_fork,
    without_paths,
    worker_environment,
)

HARD_STOP = 1.2
"""A run ends at this multiple of its budget, whatever is in progress."""
WORTH_SAYING = 0.1
"""Share of their time that threads waited for a CPU, from which a run that ended early mentions it."""
AT_WORK = 0.1
"""A silent worker that got more than this share of a CPU may be slow; one that got less hangs."""
START_SILENCE_S = 120.0
"""How long a worker may be silent before it counts as hanging, until its first message: it may import torch
from a cold or a remote disk."""
MORE_SILENCE_S = 20.0
"""And afterwards: its allowance, in which one step may lie, plus this; its limit, if it is at work."""
LOG_LIMIT_BYTES = 8 * 2**20
STORE_TIMEOUT_S = 120.0
RESERVE_BYTES, RESERVE_SHARE = 1_500_000_000, 0.125
"""Heap that a profiled pass may reserve, and the largest share of the usable memory for that."""


@dataclass
class _Run:
    """One run directory and its progress."""

    run_dir: Path
    spec: Spec
    journal: JournalWriter
    start_file: Path
    pace: Pace
    unplanned: list[PlannedLaunch] = field(default_factory=list)
    """Launches that repeat a single case after a crash or an OOM."""
    crashes: dict[tuple[int, int], str] = field(default_factory=dict)
    """Why the worker of a (replicate, case) crashed, for those that are to run alone."""
    blocks: Counter[tuple[int, int]] = field(default_factory=Counter)
    """Blocks in the journal, by (launch, case)."""
    ended_cases: set[tuple[int, int]] = field(default_factory=set)
    """(replicate, case) with an outcome."""
    measured_cases: Counter[int] = field(default_factory=Counter)
    """In how many launches each was measured."""
    has_result: bool = False
    """Whether a launch found out what its device can do."""
    failed_launches: set[int] = field(default_factory=set)
    """In which a case failed."""
    profiled_cases: set[int] = field(default_factory=set)
    """Those whose profiled pass is in the journal, with or without a result."""
    left_out: list[int] = field(default_factory=list)
    """Launches of late passes for which there was no time."""
    waited_ns: int = 0
    """For a CPU, of all threads in all blocks, and the time of those threads."""
    thread_ns: int = 0
    next_launch_id: int = 0


class _Ends(Exception):
    """Why nothing more is launched: a signal, or a problem that every further launch would meet as well."""


class Supervisor:
    """Executes the plans of one or several run directories, alternating their launches.

    Runs in the main thread of its process. A SIGINT or SIGTERM ends the worker, keeps what is finished, and
    stores it; SIGHUP changes nothing, since there is no terminal to lose.
    """

    def __init__(
        self,
        run_dirs: Sequence[Path],
        start_silence_s: float = START_SILENCE_S,
        more_silence_s: float = MORE_SILENCE_S,
    ) -> None:
        self._run_dirs = run_dirs
        self._start_silence_s = start_silence_s
        self._more_silence_s = more_silence_s
        self._signal = 0
        self._clock = WakingClock()
        self._zygotes: dict[object, Zygote | None] = {}
        """By interpreter and environment; None where torch cannot be imported or has started threads."""
        self._addresses: tuple[GpuAddress, ...] = ()
        self._usable_bytes = 0

    def run(self) -> int:
        """Execute; returns the exit status: 0, 128 + signal, or 1 if a run failed or could not be stored."""
        signal.signal(signal.SIGINT, self._on_signal)
        signal.signal(signal.SIGTERM, self._on_signal)
        signal.signal(signal.SIGHUP, signal.SIG_IGN)
        # The parent may have blocked signals, so that none is lost between the two processes.
        signal.pthread_sigmask(signal.SIG_UNBLOCK, (signal.SIGINT, signal.SIGTERM, signal.SIGHUP))
        runs = [_open_run(run_dir, self._run_dirs) for run_dir in self._run_dirs]
        machine = describe_machine(name=runs[0].spec.machine_name, hash_key=runs[0].spec.hash_key)
        self._usable_bytes = machine.memory.usable_bytes
        self._addresses = gpu_addresses()
        for run in runs:
            self._write_heading(run, machine)
        status, reason = "finished", ""
        try:
            telemetry = runs[0].run_dir / TELEMETRY_NAME
            with sampler_of_run(telemetry, partial(self._warn, runs[0])) as sampler:
                for run in runs:
                    for launch in run.spec.plan.launches:
                        with contextlib.suppress(OSError):  # which its first launch will report
                            self._start_zygote(run, launch)
                for run, launch in _alternating(runs):
                    self._launch(run, launch, sampler)
                for run in runs:
                    self._say_what_was_left_out(run)
        except _Ends as error:
            status, reason = "interrupted", str(error)
        except Exception as error:  # whatever happened, finished results are kept and stored
            traceback.print_exc()  # into its log: the message may hold anything, so it goes nowhere else
            status, reason = "failed", f"{type(error).__name__} in the supervisor, whose log has the message"
        for zygote in filter(None, self._zygotes.values()):
            zygote.close()
        for run in runs[1:]:  # the sampler writes only once, but every journal must be complete by itself
            try:
                shutil.copyfile(telemetry, run.run_dir / TELEMETRY_NAME)
            except OSError as error:
                print(f"telemetry is missing in {run.run_dir}: {error.strerror}", file=sys.stderr)
        ends = [
            ("failed", NOTHING_MEASURED) if status == "finished" and not run.has_result else (status, reason)
            for run in runs
        ]
        exit_statuses = [_close_run(run, *end) for run, end in zip(runs, ends, strict=True)]
        if self._signal:
            return 128 + self._signal
        return 1 if any(end[0] == "failed" for end in ends) or any(exit_statuses) else 0

    def _on_signal(self, number: int, frame: FrameType | None) -> None:
        self._signal = number

    def _event(self, run: _Run, level: str, message: str) -> None:
        run.journal.append(Event(level, message, time.monotonic_ns()))

    def _warn(self, run: _Run, problem: str) -> None:
        """Of the sampler, which may quote an exception."""
        self._event(run, "warning", without_paths(problem))

    def _write_heading(self, run: _Run, machine: Machine) -> None:
        plan = run.spec.plan
        devices = {case_id: launch.device for launch in plan.launches for case_id in launch.case_ids}
        planned = []
        for one in plan.cases:
            device = devices.get(one.case_id)
            index = None if device is None else self._device_index(device)
            planned.append(CasePlanned(one, index, "" if device is None else device.name))
        is_cleared = not plan.step_file and len(plan.program_ids) < len(plan.cases)
        run.journal.write_heading(machine, run.spec.runtime, planned, is_cleared=is_cleared)

    def _device_index(self, device: PlannedDevice) -> int | None:
        """Telemetry's index of a torch device, by UUID or PCI address, never by torch's own index."""
        if device.device_class != "gpu":
            return None
        index = join_gpu(self._addresses, device.visible, device.pci_address)
        return None if isinstance(index, Missing) else index

    def _launch(self, run: _Run, launch: PlannedLaunch, sampler: Sampler) -> None:
        """Run one worker from start to end. Raises _Ends after a signal, and on a full disk."""
        plan = run.spec.plan
        begun_s = self._clock.now_s()
        zygote = self._zygote(run, launch) if run.pace.has_time_for(launch) else None
        run.pace.spent_s += self._clock.now_s() - begun_s
        allowance = run.pace.allowance(launch)
        if allowance is None:
            self._drop(run, launch, f"too little was left of the {plan.budget_s:.0f} s")
            return
        aim_s, limit_s = allowance
        begun_s = self._clock.now_s()
        described = described_launch(plan, launch, run.run_dir, aim_s, limit_s)
        described["reserve_bytes"] = min(RESERVE_BYTES, int(self._usable_bytes * RESERVE_SHARE))
        try:
            worker = WorkerProcess(plan.interpreter, run.start_file, run.run_dir, launch, described, zygote)
        except OSError as error:
            reason = f"no worker could be started: {error.strerror or error}"
            if error.errno in NO_ROOM:
                raise _Ends(reason) from error
            self._drop(run, launch, reason, "failed")
            return
        try:
            run.journal.append(
                LaunchStart(
                    launch.launch_id,
                    launch.replicate,
                    launch.case_ids,
                    launch.threads,
                    aim_s,
                    worker.started_ns,
                    is_fork=zygote is not None,
                )
            )
            index = self._device_index(launch.device)
            sampler.focus(() if index is None else (index,))
            hard_stop_s = begun_s + plan.budget_s * HARD_STOP - run.pace.spent_s
            outcome, reason = self._listen(run, launch, worker, allowance, hard_stop_s)
        finally:
            sampler.focus(())
            worker.end()
        self._end_profiled(run, launch, reason or "its worker sent none")
        for case_id in launch.case_ids:
            if (launch.replicate, case_id) not in run.ended_cases:
                alone = len(launch.case_ids) == 1
                if outcome == "failed" and not alone:
                    run.crashes[launch.replicate, case_id] = reason
                    self._again_alone(run, launch, case_id)
                else:
                    self._end_case(run, launch, case_id, outcome, reason)
        went_well = (
            outcome == "ok" and worker.exit_status == 0 and launch.launch_id not in run.failed_launches
        )
        tail = "" if went_well else worker.log_tail()
        run.journal.append(
            LaunchEnd(launch.launch_id, outcome, reason, worker.exit_status, tail, time.monotonic_ns())
        )
        run.journal.sync()
        run.pace.ended(launch, aim_s, self._clock.now_s() - begun_s)
        if self._signal:
            raise _Ends(STOPPED[self._signal])
        if run.journal.failure:
            raise _Ends(run.journal.failure)

    def _start_zygote(self, run: _Run, launch: PlannedLaunch) -> Zygote | None:
        """The process to fork this launch's worker from, which may still be importing torch.

        None if the launch is to import torch itself. Raises OSError if the interpreter cannot be started.
        """
        plan = run.spec.plan
        environment = worker_environment(launch, {"step_file": plan.step_file})
        key = (plan.interpreter, *environment.items())
        known = self._zygotes.get(key)
        if not may_fork(plan, launch) or (known is None and key in self._zygotes):
            return None
        if known is None or not known.is_alive():
            self._zygotes[key] = None  # a fork is not worth another try where this fails
            log = run.run_dir / "logs" / "zygote.log"
            known = self._zygotes[key] = Zygote(plan.interpreter, run.start_file, environment, log)
        return known

    def _zygote(self, run: _Run, launch: PlannedLaunch) -> Zygote | None:
        """The process to fork this launch's worker from, ready to; None for a worker that imports torch."""
        known = None
        hard_stop_s = self._clock.now_s() + run.spec.plan.budget_s * HARD_STOP - run.pace.spent_s
        with contextlib.suppress(EOFError, OSError):  # without one, the worker itself says what is wrong
            known = self._start_zygote(run, launch)
            while known is not None and not self._signal and self._clock.now_s() < hard_stop_s:
                if known.is_ready(0.25):
                    return known
        if known is not None and known.close() >= 0:
            self._zygotes.update({key: None for key, one in self._zygotes.items() if one is known})
        return None

    def _listen(
        self,
        run: _Run,
        launch: PlannedLaunch,
        worker: WorkerProcess,
        allowance: tuple[float, float],
        hard_stop_s: float,
    ) -> tuple[str, str]:
        """Record the worker's messages until the last one, its exit, its silence, a signal, a full disk,
        or the hard stop."""
        patience_s, heard_s = (self._start_silence_s, self._start_silence_s), self._clock.now_s()
        besides_s = profiled_s(run.spec.plan, launch) + self._more_silence_s
        heard_cpu_s = worker.cpu_s()
        stopped_s = self._clock.stopped_s
        while True:
            exited = worker.exit_status is not None
            heard = self._hear(run, launch, worker, 0.0 if exited else 0.25)
            if heard:
                patience_s = allowance[0] + besides_s, allowance[1] + besides_s
                heard_s, heard_cpu_s = self._clock.now_s(), worker.cpu_s()
            if heard == "end":
                worker.wait_for_exit()
                return "ok", ""
            if exited:
                return "failed", _death(worker.exit_status)
            if self._signal:
                return "interrupted", STOPPED[self._signal]
            if run.journal.failure:
                return "interrupted", run.journal.failure
            now_s = self._clock.now_s()
            if self._clock.stopped_s > stopped_s:
                gap_s, stopped_s = self._clock.stopped_s - stopped_s, self._clock.stopped_s
                self._event(run, "warning", f"this supervisor was stopped for {gap_s:.0f} s")
            is_at_work = worker.cpu_s() - heard_cpu_s > AT_WORK * (now_s - heard_s)
            if now_s - heard_s > patience_s[is_at_work]:
                return "failed", f"the worker hung: no word for {now_s - heard_s:.0f} s"
            if now_s > hard_stop_s:
                return "interrupted", f"hard stop at {HARD_STOP} times the budget"
            if worker.cut_log(LOG_LIMIT_BYTES):
                self._event(run, "warning", f"{_named(run, launch)}: its log was emptied, it grew too large")

    def _hear(self, run: _Run, launch: PlannedLaunch, worker: WorkerProcess, timeout_s: float) -> str:
        """Record what the worker has sent, waiting up to `timeout_s` for the first message.

        Returns the kind of the last message, empty if there was none; what follows `end` is not read.
        """
        kind = ""
        select.select([worker.channel], [], [], timeout_s)
        for message in worker.messages(worker.channel.read() or b""):
            try:
                kind = str(message.pop("kind", "garbage"))
                if kind == "end":
                    break
                if kind == "void":
                    case = run.spec.plan.cases[int(message["case_id"])].case
                    self._event(run, "info", f"{case.name}: block left out, {message['reason']}")
                    continue
                line = line_of(kind, message, launch, worker.started_ns)
                if isinstance(line, CaseEnd):
                    self._case_ended(run, launch, line)
                run.journal.append(line)
                if isinstance(line, Block):
                    run.blocks[launch.launch_id, line.case_id] += 1
                    run.waited_ns += line.waited_ns or 0
                    run.thread_ns += line.thread_ns
                elif isinstance(line, ProfiledPass):
                    run.profiled_cases.add(line.case_id)
                elif isinstance(line, CaseWarm) and launch.case_ids.index(line.case_id) == 0:
                    first_step_ns = line.t_ns - line.warmup_ns - line.first_step_ns
                    run.pace.started(launch, (first_step_ns - worker.started_ns) / 1e9)
            except (LookupError, TypeError, ValueError):
                self._event(run, "warning", f"{_named(run, launch)}: a line of the worker made no sense")
        return kind

    def _case_ended(self, run: _Run, launch: PlannedLaunch, end: CaseEnd) -> None:
        if end.outcome == "oom" and len(launch.case_ids) > 1:
            self._again_alone(run, launch, end.case_id)
        run.ended_cases.add((launch.replicate, end.case_id))
        run.has_result |= end.outcome in FOUND_BY_TRYING
        if end.outcome == "ok":
            run.measured_cases[end.case_id] += 1
        elif end.outcome == "failed":
            run.failed_launches.add(launch.launch_id)

    def _again_alone(self, run: _Run, launch: PlannedLaunch, case_id: int) -> None:
        """Plan one more launch with only this case: another may have taken its memory, or crashed it."""
        launch_id = run.next_launch_id
        run.next_launch_id += 1
        alone = replace(
            launch,
            launch_id=launch_id,
            case_ids=(case_id,),
            weight=launch.weight / len(launch.case_ids),
            profiled=tuple(one for one in launch.profiled if one == case_id),
        )
        run.unplanned.append(alone)
        name = run.spec.plan.cases[case_id].case.name
        self._event(run, "info", f"{name}: will be run alone once")

    def _drop(self, run: _Run, launch: PlannedLaunch, reason: str, outcome: str = "skipped") -> None:
        """List what a launch would have measured; a case that crashed before has failed, whatever else.

        A late pass that finds no time is only counted: its cases are measured.
        """
        self._end_profiled(run, launch, reason)
        ended = {case_id for _, case_id in run.ended_cases}
        is_late_pass = outcome == "skipped" and ended.issuperset(launch.case_ids) and launch.replicate > 0
        for case_id in launch.case_ids:
            crash = run.crashes.get((launch.replicate, case_id))
            if crash is not None:
                self._end_case(run, launch, case_id, "failed", f"{crash}; not run alone: {reason}")
            elif (launch.replicate, case_id) not in run.ended_cases and not is_late_pass:
                self._end_case(run, launch, case_id, outcome, reason)
        if is_late_pass:
            run.left_out.append(launch.launch_id)

    def _say_what_was_left_out(self, run: _Run) -> None:
        """Report in one line that the budget ended before the last pass, and what a busy box cost."""
        plan, left_out = run.spec.plan, tuple(run.left_out)
        if not left_out:
            return
        waiting = run.waited_ns / max(run.thread_ns, 1)
        waited = f"; its threads waited {100 * waiting:.0f} % of their time for a CPU"
        counts = run.measured_cases.values() or [0]
        some = " to ".join(map(str, sorted({min(counts), max(counts)})))
        of_all = f"{some} of {plan.replicates} launches of each case"
        message = f"time was up after {of_all}{waited if waiting > WORTH_SAYING else ''}"
        run.journal.append(LaunchesLeftOut(left_out, message, time.monotonic_ns()))

    def _end_profiled(self, run: _Run, launch: PlannedLaunch, reason: str) -> None:
        """Record why a profiled pass of a case that was measured has no result, if it has none."""
        for case_id in launch.profiled:
            if case_id in run.measured_cases and case_id not in run.profiled_cases:
                run.profiled_cases.add(case_id)
                run.journal.append(without_result(launch.launch_id, case_id, reason))

    def _end_case(self, run: _Run, launch: PlannedLaunch, case_id: int, outcome: str, reason: str) -> None:
        run.ended_cases.add((launch.replicate, case_id))
        blocks = run.blocks[launch.launch_id, case_id]
        run.journal.append(CaseEnd(launch.launch_id, case_id, outcome, reason, blocks, time.monotonic_ns()))


def _open_run(run_dir: Path, run_dirs: Sequence[Path]) -> _Run:
    """Take the lock, which is held for life, begin the journal, and prepare what a launch needs."""
    spec = Spec.read(run_dir)
    return _Run(
        run_dir,
        spec,
        JournalWriter.begin(run_dir, spec, run_dirs),
        start_file=copy_worker(run_dir / "code"),
        pace=Pace(spec.plan),
        next_launch_id=1 + max((launch.launch_id for launch in spec.plan.launches), default=-1),
    )


def _close_run(run: _Run, status: str, reason: str) -> int:
    """Write the last lines of a journal and run the command that stores it; returns its exit status."""
    _say_last(run, end_of(run.journal.start, status, reason))
    exit_status, message = 0, ""
    if run.spec.on_end:
        try:
            done = subprocess.run(
                run.spec.on_end,
                stdin=subprocess.DEVNULL,
                capture_output=True,
                timeout=STORE_TIMEOUT_S,
                check=False,
                start_new_session=True,
            )
            exit_status = done.returncode
            message = done.stderr.decode(errors="replace").strip() if done.returncode else ""
        except (OSError, subprocess.TimeoutExpired) as error:
            exit_status, message = 4, str(error)
    _say_last(run, Stored(exit_status, message, time.monotonic_ns()))
    try:
        run.journal.close()
    except OSError as error:
        print(f"{run.run_dir}: the journal's end may be lost: {error.strerror}", file=sys.stderr)
    return exit_status


def _say_last(run: _Run, line: RunEnd | Stored) -> None:
    """Write a line that may be lost: a run without an end is stored as interrupted."""
    try:
        run.journal.append(line)
        run.journal.sync()
    except OSError as error:
        print(f"{run.run_dir}: no {type(line).__name__} in the journal: {error.strerror}", file=sys.stderr)


def _alternating(runs: Sequence[_Run]) -> Iterator[tuple[_Run, PlannedLaunch]]:
    """The launches of all runs in turn; a launch that must be repeated alone comes right after the
    original."""
    for row in zip_longest(*(run.spec.plan.launches for run in runs)):
        for run, launch in zip(runs, row, strict=True):
            if launch is not None:
                yield run, launch
                while run.unplanned:
                    yield run, run.unplanned.pop(0)


def _named(run: _Run, launch: PlannedLaunch) -> str:
    names = (run.spec.plan.cases[case_id].case.name for case_id in launch.case_ids)
    return f"launch {launch.replicate + 1} of {', '.join(names)}"


def _death(exit_status: int | None) -> str:
    if exit_status is not None and exit_status < 0:
        try:
            name = signal.Signals(-exit_status).name
            when = ", as it does when memory runs out" if exit_status == -signal.SIGKILL else ""
            return f"the worker died of {name}{when}"
        except ValueError:
            return f"the worker died of signal {-exit_status}"
    return f"the worker left early with status {exit_status}"
