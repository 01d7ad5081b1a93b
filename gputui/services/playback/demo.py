"""What the screens of `gputui demo` show besides live GPUs: runs of three boxes, one in progress, a trace.

All of it is made up: the tables are in `demo.toml`, of which `tests/makers/demo_trace.py` made the trace.
"""

from __future__ import annotations

import os
import random
import threading
import time
from bisect import bisect_right
from collections import deque
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, chdir
from dataclasses import replace
from importlib import resources
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Any  # Any: our own tables

import tomllib

from gputui.model.absent import Missing
from gputui.model.journal import (
    IDLE,
    JOURNAL_SCHEMA,
    Block,
    CaseEnd,
    CasePlanned,
    CaseWarm,
    Kernel,
    LaunchEnd,
    LaunchStart,
    Line,
    MachineFound,
    MemoryPoint,
    Operator,
    Price,
    ProfiledPass,
    RunEnd,
    RunStart,
    RuntimeFound,
    TimeSlice,
    WorkerReady,
)
from gputui.model.machine import Cpu, Gpu, Identity, Interpreter, Layer, Machine, Memory, Runtime, TorchDevice
from gputui.model.plan import DEMO_PROFILE, Case, Plan
from gputui.model.telemetry import HOST, Reading
from gputui.services.playback.demo_gpus import EARLIER_S, USER, DemoBox
from gputui.services.profiles.loader import find_profile
from gputui.services.profiles.planner import Choices, resolve_plan
from gputui.services.runs.device_history import HistoryReader
from gputui.services.runs.process import uuid7
from gputui.services.runs.progress import ProgressSnapshot, ProgressTracker
from gputui.services.traces.imported import contents_of, read_run
from gputui.store.journal_reader import JournalContents
from gputui.version import version

if TYPE_CHECKING:
    from gputui.services.doctor.checks import SystemState

_S, _MIB = 10**9, 2**20
_LAUNCHES, _BLOCKS, _BLOCK_S, _BUDGET_S, _PROFILED_STEPS, _READINGS_PER_S = 4, 10, 0.16, 320.0, 10, 10
_LAUNCH_SPREAD, _BLOCK_SPREAD = 0.004, 0.003  # of the times of a GPU; those of a CPU vary three times as much
# When the run on the first box began, and how long before it the next.
_STORED_UTC_US, _APART_US = 1_795_270_000_000_000, 5_400_000_000
# The box with a run in progress, and how long that has gone on when it is first looked at.
_RUNNING, _GONE_NS = 1, 138 * _S

_PLACE = resources.files("gputui.services.playback")
_DATA: dict[str, Any] = tomllib.loads((_PLACE / "demo.toml").read_text("utf-8"))
_RUNTIME = Runtime(
    torch_hip=Missing("torch was built for CUDA"), arch_list=("sm_80", "sm_90"), **_DATA["runtime"]
)


def _box(number: int, data: dict[str, Any]) -> Machine:
    box_id, memory_bytes = f"de{number:010}", data["memory_gib"] * 2**30
    return Machine(
        machine_id=box_id,
        cpu=Cpu(**{**data["cpu"], "features": tuple(data["cpu"]["features"])}),
        memory=Memory(memory_bytes, memory_bytes, "host", memory_bytes // 2),
        gpus=(Gpu(gpu_id=box_id, **data["gpu"]),),
        gpus_absent="",
        layers=(Layer("container", "docker", ("dockerenv",)),),
        instance_type=Missing("it is made up"),
        region=Missing("it is made up"),
        identities=(Identity("stated", box_id),),
        **_DATA["machine"],
    )


BOXES: tuple[Machine, ...] = tuple(_box(number, data) for number, data in enumerate(_DATA["box"]))


def interpreter_of(box: Machine) -> Interpreter:
    """A Python with a torch that sees all GPUs of a box."""
    cpu = TorchDevice("cpu", 0, str(box.cpu.model), "", "", None, None, "", True, True, "")
    gpu = replace(cpu, torch_device="cuda", compute_capability=str(box.gpus[0].compute_capability))
    gpus = (replace(gpu, index=one.index, name=one.name) for one in box.gpus)
    return Interpreter("python", _RUNTIME, (cpu, *gpus))


def _plan(number: int) -> Plan:
    """What `quick` measures on one of BOXES, with a profiled pass of every case."""
    choices = Choices(replicates=_LAUNCHES, budget_s=_BUDGET_S, most_blocks=_BLOCKS, keeps_traces=True)
    return replace(
        resolve_plan(find_profile("quick"), interpreter_of(BOXES[number]), BOXES[number], choices),
        profile=DEMO_PROFILE,
    )


def _journal(number: int, plan: Plan, started_utc_us: int, started_ns: int) -> JournalContents:
    """A run on one of BOXES, the same each time for the same beginning."""
    chance, box = random.Random(f"{number} {started_utc_us}"), BOXES[number]
    start = RunStart(
        schema=JOURNAL_SCHEMA,
        run_id=uuid7(started_utc_us // 1000, chance.getrandbits(80)),
        started_utc_us=started_utc_us,
        started_ns=started_ns,
        utc_offset_min=0,
        gputui_version=version(),
        profile=DEMO_PROFILE,
        profile_version=plan.profile_version,
        seed=number,
        replicates=plan.replicates,
        budget_s=plan.budget_s,
        label=f"demo {_DATA['box'][number]['name']}",
        price=Price(_DATA["box"][number]["usd_per_hour"], 1, "stated", "", "", "", ""),
    )
    device = {"gpu": (0, box.gpus[0].name), "cpu": (None, str(box.cpu.model))}
    lines: list[Line] = [
        start,
        MachineFound(box),
        RuntimeFound(_RUNTIME),
        *(CasePlanned(one, *device[one.case.variant.device_class]) for one in plan.cases),
    ]
    t_ns = started_ns + _S
    for launch in plan.launches:
        key, threads = launch.launch_id, launch.threads
        lines.append(LaunchStart(key, launch.replicate, launch.case_ids, threads, None, t_ns, is_fork=True))
        lines.append(WorkerReady(key, _S // 3, threads, t_ns := t_ns + _S // 3))
        for case_id in launch.case_ids:
            lines += _timed(number, plan.cases[case_id].case, (key, case_id), threads, t_ns, chance)
            t_ns = getattr(lines[-1], "t_ns", t_ns)
        lines += [_profiled(number, plan.cases[case_id].case, (key, case_id)) for case_id in launch.profiled]
        lines.append(LaunchEnd(key, "ok", "", 0, "", t_ns := t_ns + len(launch.profiled) * _S // 2))
    lines.append(RunEnd("finished", "", started_utc_us + (t_ns - started_ns) // 1000, t_ns))
    return JournalContents(start, tuple(lines), ())


def _timed(
    number: int, case: Case, key: tuple[int, int], threads: int, t_ns: int, chance: random.Random
) -> Iterator[Line]:
    """One case in one launch: warm, its blocks, its end. `key` is launch and case."""
    on_gpu, precision = case.variant.device_class == "gpu", case.variant.precision.replace("amp", "amp-bf16")
    spread = 1 if on_gpu else 3
    step_ns = _step_ns(number, case) * chance.gauss(1, spread * _LAUNCH_SPREAD)
    steps = max(round(_BLOCK_S * _S / step_ns), 1)
    first_ns, t_ns = round(3 * step_ns), t_ns + _S // 4
    yield CaseWarm(*key, precision, _S // 10, first_ns, _S // 8, 4, True, steps, t_ns)
    for index in range(_BLOCKS):
        wall_ns = round(steps * step_ns * chance.gauss(1, spread * _BLOCK_SPREAD))
        device_ns, cpu_ns = (wall_ns - 9000, wall_ns) if on_gpu else (None, wall_ns * threads)
        yield Block(*key, index, steps, t_ns, wall_ns, device_ns, cpu_ns, 0)
        t_ns += wall_ns + 200_000
    yield CaseEnd(*key, "ok", "", _BLOCKS, t_ns)


def _step_ns(number: int, case: Case) -> float:
    return case.units_per_step / float(_DATA["rates"][case.name][number]) * _S


def _slowness(number: int, case: Case, bound: str) -> float:
    """How much longer than on the first box the same arithmetic, or the same copy, takes."""
    test = _DATA["peak_tests"][f"{case.variant.device_class} {bound}"]
    rates = _DATA["rates"][test.format(precision=case.variant.precision)]
    return float(rates[0] / rates[number])


def _profiled(number: int, case: Case, key: tuple[int, int]) -> ProfiledPass:
    """Some steps by operator, what was idle between them, and who holds the memory."""
    on_gpu, rows = case.variant.device_class == "gpu", _DATA["operators"][case.work.workload]
    window_ns = 1.03 * _PROFILED_STEPS * _step_ns(number, case)  # being traced takes time too
    idle_share = _DATA["idle_shares"][f"{case.variant.device_class} {case.work.size}"]
    # a GPU does its work as fast meanwhile, and waits the longer
    idle_ns = round(window_ns * (1 - (1 - idle_share) / 1.03 if on_gpu else idle_share))
    weights = [share * _slowness(number, case, bound) for *_, share, bound in rows]
    sizes = {"n": 8192 if case.work.size == "large" else 2048, "w": 768, "b": round(case.units_per_step)}
    operators = tuple(
        Operator(
            phase=phase,
            category=category,
            operator=operator,
            shapes=shapes.format(**sizes),
            dtypes="c10::BFloat16" if case.variant.precision == "amp" else "float",
            calls=_PROFILED_STEPS * calls,
            events=_PROFILED_STEPS * calls,
            time_ns=round((window_ns - idle_ns) * weight / sum(weights)),
            cpu_ns=_PROFILED_STEPS * calls * 12_000,
            kernels=_PROFILED_STEPS * calls * on_gpu,
        )
        for (phase, category, operator, shapes, calls, *_), weight in zip(rows, weights, strict=True)
    )
    return ProfiledPass(
        *key,
        is_valid=True,
        reason="",
        steps=_PROFILED_STEPS,
        window_ns=sum(row.time_ns for row in operators) + idle_ns,
        events=sum(row.events for row in operators),
        event_cost_ns=200,
        unmatched_ns=0,
        operators=operators,
        slices=(
            *(TimeSlice(row.phase, "compute", "", row.time_ns) for row in operators),
            TimeSlice("forward", IDLE, "launch" if on_gpu else "python", idle_ns),
        ),
        kernels=tuple(
            Kernel(
                _DATA["kernels"][row.category],
                "compute",
                row.operator,
                row.calls,
                row.time_ns,
                row.time_ns // 9,
            )
            for row in (operators if on_gpu else ())
        ),
        memory=tuple(_memory(case)),
        memory_reason="",
        trace_bytes=0,
    )


def _memory(case: Case) -> Iterator[MemoryPoint]:
    """A training holds gradients and two moments of its weights, and activations until they are used."""
    weights, inputs = (mib * _MIB for mib in _DATA["memory_mib"][f"{case.work.workload} {case.work.size}"])
    trained, reserved = weights * (case.workload_class == "training"), 8 * weights + 2 * inputs
    for point, gradients, activations in (
        ("start", 0, 0),
        ("after_forward", 0, 3),
        ("after_backward", 1, 0),
        ("after_optimizer", 0, 0),
        ("peak", 1, 3),
    ):
        yield MemoryPoint(
            point, weights, gradients * trained, 2 * trained, activations * trained, inputs, 0, reserved
        )


def _readings(number: int, plan: Plan, contents: JournalContents) -> Iterator[Reading]:
    """What a sampler would read of the GPU during a run, and once a second of the host."""
    chance, data, cores = random.Random(number), _DATA["box"][number], BOXES[number].cpu.usable_cores
    changes = [one for one in contents.lines if isinstance(one, LaunchStart | CaseWarm | CaseEnd)]
    times_ns, (idle_w, most_w) = [one.t_ns for one in changes], data["power_w"]
    power_w, temperature_c, energy_mj = idle_w, 50.0, 9e9
    for tick in range((times_ns[-1] - times_ns[0]) * _READINGS_PER_S // _S):
        t_ns = times_ns[0] + tick * _S // _READINGS_PER_S
        last = changes[bisect_right(times_ns, t_ns) - 1]
        case = plan.cases[last.case_id].case if isinstance(last, CaseWarm) else None
        share = _DATA["power_shares"].get(
            case and f"{case.variant.device_class} {case.work.workload} {case.work.size}", 0.0
        )
        threads = cores if case is not None and case.variant.threads == "all" else 1
        power_w = min(0.3 * power_w + 0.7 * (most_w * share or idle_w) * chance.gauss(1, 0.01), most_w)
        is_capped = power_w > 0.97 * most_w
        temperature_c += 0.002 * (40 + 32 * power_w / most_w - temperature_c)
        energy_mj += 1000 * power_w / _READINGS_PER_S
        yield Reading(
            0,
            t_ns,
            {
                "sm_busy_pct": 98.0 if share else 0.0,
                "memory_busy_pct": 60 * share,
                "memory_used_bytes": 7.4e9 if share else 6.4e8,
                "power_w": power_w,
                "temperature_c": round(temperature_c),
                "sm_clock_mhz": data["clock_mhz"][is_capped],
                "memory_clock_mhz": 3201.0,
                "throttle_bits": 4 * is_capped,
                "energy_mj": round(energy_mj),
                "compute_process_count": 1.0,
            },
        )
        if tick % _READINGS_PER_S == 0:
            yield Reading(
                HOST,
                t_ns,
                {
                    "cpu_busy_pct": 100.0 * threads,
                    "cpu_steal_pct": 0.0,
                    "memory_used_bytes": 11 * 2**30,
                    "load_1min": threads + 0.1 * chance.random(),
                    "cpu_clock_mhz": 3100.0,
                },
            )


class MadeUpProgress:
    """A run in progress by this process's clock, which no worker measures; after its end it begins anew."""

    def __init__(self) -> None:
        self.plan = _plan(_RUNNING)
        self._begin(time.monotonic_ns() - _GONE_NS)

    def _begin(self, begun_ns: int) -> None:
        contents = _journal(_RUNNING, self.plan, _STORED_UTC_US, begun_ns)
        self._lines, self._readings = deque(contents.lines), deque(_readings(_RUNNING, self.plan, contents))
        self._tracker = ProgressTracker([self.plan], is_of_this_clock=True)
        self._history = HistoryReader(lambda: tuple(_until(time.monotonic_ns(), self._readings)))

    def picture(self) -> ProgressSnapshot:
        """How far it is now, and what its GPU and host did."""
        now_ns = time.monotonic_ns()
        if not self._lines:
            self._begin(now_ns)
        for line in _until(now_ns, self._lines):
            self._tracker.hear(0, line)
        return replace(self._tracker.picture(), devices=self._history.poll(now_ns))


def _until(now_ns: int, waiting: deque[Any]) -> Iterator[Any]:
    """Take what was written until now; a block when it begins."""
    while waiting and getattr(waiting[0], "t_ns", getattr(waiting[0], "start_ns", 0)) <= now_ns:
        yield waiting.popleft()


class Demo:
    """The directory of the demo, which contains all that gputui keeps as long as it lasts.

    So no file of the user's is shown as made up, or the other way round. `close` removes it.
    """

    WORDS: Mapping[str, tuple[str, ...]] = {
        "results": ("demo.db",),
        "compare": ("demo.db@latest", "demo.db@latest~1"),
    }
    """What screens are opened with, as on the command line."""

    def __init__(self, gpus: int) -> None:
        """Make the directory. Raises OSError."""
        self.gpus, self._is_written = gpus, False
        self._lock, self._stack = threading.Lock(), ExitStack()
        name = self._stack.enter_context(
            TemporaryDirectory(prefix="gputui-demo-", ignore_cleanup_errors=True)
        )
        self._stack.enter_context(chdir(name))
        self.db = Path(name, "demo.db")
        own = {"GPUTUI_DB": str(self.db), "GPUTUI_STATE": name}
        self._stack.callback(os.environ.update, {key: os.environ.get(key, "") for key in own})
        os.environ.update(own)

    def write(self, on_step: Callable[[str], None]) -> None:
        """Write the runs into the result file, unless they are there. Raises GputuiError."""
        from gputui.store.writing import store_run

        with self._lock:
            if self._is_written:
                return
            for number in range(len(BOXES)):
                on_step(f"making up a run on {BOXES[number].gpus[0].name}")
                plan = _plan(number)
                contents = _journal(number, plan, _STORED_UTC_US - number * _APART_US, 0)
                store_run(self.db, contents, _readings(number, plan, contents))
            on_step("making up a trace")
            with resources.as_file(_PLACE / "demo_trace.json.gz") as trace:
                contents = contents_of(read_run(trace, "demo trace"))
            start = replace(contents.start, profile=DEMO_PROFILE)
            lines = (start, MachineFound(BOXES[0]), RuntimeFound(_RUNTIME), *contents.lines[2:])
            store_run(self.db, replace(contents, start=start, lines=lines), (), imported_from=trace.name)
            self._is_written = True

    def close(self) -> None:
        """Remove the directory, and leave the process as it was."""
        with self._lock:
            self._is_written = True
            self._stack.close()


def made_up_box(demo: Demo) -> SystemState:
    """Everything that the checks of `doctor` look at."""
    from gputui.services.doctor.checks import SystemState, identity_checks  # the first picture does without
    from gputui.services.doctor.disturbances import Check

    box = replace(
        BOXES[0],
        cpu=replace(BOXES[0].cpu, host_cores=96, host_threads=96, usable_threads=96.0, usable_cores=96),
        memory=replace(BOXES[0].memory, host_bytes=1008 * 2**30, usable_bytes=1008 * 2**30),
        gpus=tuple(replace(BOXES[0].gpus[0], index=index) for index in range(demo.gpus)),
    )
    return SystemState(
        machine=box,
        sample=DemoBox(demo.gpus).at(EARLIER_S, time.monotonic_ns()),
        user=USER,
        interpreter=interpreter_of(box),
        found_as="made up",
        passed_over=(),
        settings={},
        elsewhere=(
            Check("clock", "ok", "tsc"),
            *identity_checks(box),
            Check("result file", "ok", str(demo.db)),
        ),
    )
