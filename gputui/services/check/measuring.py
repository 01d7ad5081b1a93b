"""Measures every GPU of the box at the same time: a short run of the profile `check` on each."""

from __future__ import annotations

import shutil
import signal
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory
from types import FrameType
from typing import NoReturn

from gputui.errors import GputuiError, MachineLacks
from gputui.model.absent import Missing
from gputui.model.journal import Line
from gputui.model.machine import Interpreter, Machine
from gputui.model.plan import Plan
from gputui.model.units import counted
from gputui.recording.run_directory import Spec
from gputui.services.check.judging import BoxCheck, Measured, checked, is_disturbing
from gputui.services.doctor.checks import SystemState, judged
from gputui.services.doctor.disturbances import Check, gpus_of
from gputui.services.prices import price_of
from gputui.services.profiles.loader import find_profile
from gputui.services.profiles.planner import Choices, resolve_plan
from gputui.services.profiles.torch_builds import unused_gpu
from gputui.services.results.selectors import run_in
from gputui.services.runs.process import LiveRun, follow, new_run_id, start_runs, writable_target
from gputui.services.runs.process import stop as end_run
from gputui.services.runs.recovery import import_journal
from gputui.services.snapshot import take_snapshot
from gputui.services.support.paths import hash_key
from gputui.store.reading import open_result

PROFILE = "check"
QUICK = "--quick looks at health only"
_ENDING = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


def check_box(box: SystemState, *, db: Path | None, on_tick: Callable[[str], None]) -> BoxCheck:
    """Check a box that was looked at; measures its GPUs for up to 50 s if it has torch.

    What is measured goes into the result file `db`, if any. `on_tick` gets what is being done. Raises nothing
    where nothing can be measured: that is part of the answer.
    """
    checks, found, why_not = judged(box), list[Measured](), QUICK
    fails: GputuiError | None = None
    if isinstance(box.interpreter, GputuiError):
        fails = box.interpreter
    elif box.interpreter is not None and isinstance(box.interpreter.runtime.torch_version, Missing):
        missing = box.interpreter.runtime.torch_version.reason
        why_not = f"{missing}: to measure, name a Python that has it: --python EXE"
    elif box.interpreter is not None:
        what = counted(len(box.machine.gpus), "GPU") if box.machine.gpus else "the CPU"
        try:
            plans = plans_of(box.interpreter, box.machine, checks)
            with TemporaryDirectory(prefix="gputui-") as scratch:
                target = Path(scratch) / "check.db" if db is None else writable_target(db)
                tick = partial(on_tick, f"measuring {what}")
                found = measured(plans, box, target, tick, keeps=db is not None)
        except GputuiError as error:
            fails = error
        after = judged(replace(box, sample=take_snapshot(processes=True)))
        checks += tuple(check for check in after if check.state == "problem" and check not in checks)
    return checked(box.machine, checks, found, fails, why_not, box.settings)


def plans_of(interpreter: Interpreter, machine: Machine, checks: Sequence[Check]) -> list[Plan]:
    """A plan for each GPU that torch can use and nobody uses; for the CPU where there is no GPU.

    Raises MachineLacks if torch cannot use the GPUs of this box.
    """
    gpus = [device for device in interpreter.devices if device.torch_device != "cpu"]
    usable = [f"gpu:{number}" for number, device in enumerate(gpus) if device.runs_here]
    if machine.gpus and not usable:
        unused = unused_gpu(interpreter, machine)
        raise MachineLacks("torch sees no GPU" if unused is None else unused.reason, "gputui doctor")
    profile = find_profile(PROFILE)
    each = [resolve_plan(profile, interpreter, machine, Choices(one)) for one in usable or ["cpu"]]
    in_use = {check.topic.removesuffix(" use") for check in checks if is_disturbing(check)}
    return [
        plan
        for plan in each
        if plan.launches and in_use.isdisjoint(f"GPU {index}" for index in gpus_of(plan.launches, machine))
    ]


def measured(
    plans: Sequence[Plan], box: SystemState, target: Path, on_tick: Callable[[], None], *, keeps: bool
) -> list[Measured]:
    """Run all plans at once, store them in `target`, and read what they measured.

    `keeps` their directories, as `run` does, if `target` is to stay. Takes at most 1.2 times a budget, and
    the storing. Calls `on_tick` a few times a second. Raises GputuiError if a run cannot be started or
    stored. Whatever is raised meanwhile, no process is left behind.
    """
    if not plans or not isinstance(box.interpreter, Interpreter):
        return []
    price, runtime = price_of(None, None, box.machine), box.interpreter.runtime
    key = hash_key(makes=keeps)
    specs = [Spec(new_run_id(), plan, runtime, "", price, "", key, str(target)) for plan in plans]
    with _running(specs, keeps=keeps) as runs:
        following = [follow([run], 0.2 / len(runs)) for run in runs]
        while following:
            following = [lines for lines in following if _goes_on(lines)]
            on_tick()
        for run in runs:
            import_journal(run.run_dir, target)
    with open_result(target) as file:
        return [Measured(run_in(file, run.run_id), file.conditions(run.run_id)) for run in runs]


def _goes_on(lines: Iterator[tuple[int, Line | None]]) -> bool:
    """Read what is new of a run; whether more may come."""
    return any(line is None for _, line in lines)


@contextmanager
def _running(specs: Sequence[Spec], *, keeps: bool) -> Iterator[list[LiveRun]]:
    """Runs with a supervisor each; those that still go are ended in the end."""
    runs: list[LiveRun] = []
    try:
        signal.pthread_sigmask(signal.SIG_BLOCK, _ENDING)  # so that none is started and not known
        try:
            for spec in specs:
                runs += start_runs([spec], stores=False)
        finally:
            signal.pthread_sigmask(signal.SIG_UNBLOCK, _ENDING)
        yield runs
    finally:
        for run in runs:
            end_run(run, signal.SIGTERM)
        for run in runs:
            if run.supervisor is not None:
                run.supervisor.wait()
            if not keeps:
                shutil.rmtree(run.run_dir, ignore_errors=True)


@contextmanager
def signals_raised() -> Iterator[None]:
    """For the main thread: SIGTERM and SIGHUP raise SystemExit, as Ctrl-C raises KeyboardInterrupt."""
    before = {number: signal.signal(number, _leave) for number in (signal.SIGTERM, signal.SIGHUP)}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def _leave(number: int, frame: FrameType | None) -> NoReturn:
    sys.exit(128 + number)
