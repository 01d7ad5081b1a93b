"""One word for this box: OK, SLOW, FAULT or CAN'T TELL. In: doctor's checks, and short runs on all GPUs at
once. Out: a word for each GPU with its reason, the next step, and a text for the provider."""

from __future__ import annotations

import math
import shutil
import signal
import statistics
import sys
import time
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory
from types import FrameType, MappingProxyType
from typing import NoReturn

from gputui.analysis.fleet import FAR_BELOW, LEAST_CHANGE
from gputui.analysis.peak_tests import ABOVE_LIMIT, BELOW_NORMAL, NO_REFERENCE, NORMAL, PeakTest
from gputui.document.spans import ranges
from gputui.errors import GputuiError, MachineLacks
from gputui.metrics import word
from gputui.model.absent import Missing, known
from gputui.model.machine import Gpu, Interpreter, Machine
from gputui.model.plan import Case, Plan
from gputui.model.result import Run
from gputui.model.units import counted, format_percent, format_rate
from gputui.recording.run_directory import Spec
from gputui.services.compare.fleet import fleet_of
from gputui.services.compare.pairing import joined
from gputui.services.doctor.checks import SystemState, judged
from gputui.services.doctor.disturbances import DISTURBING, SLOWING, TELL, Check, gpus_of, in_the_way
from gputui.services.prices import price_of
from gputui.services.profiles.interpreters import unused_gpu
from gputui.services.profiles.loader import find_profile
from gputui.services.profiles.planner import Choices, resolve_plan
from gputui.services.results.expected import performance_checks, power_cap_of
from gputui.services.results.headline import case_subject
from gputui.services.results.labels import gpu_words, plain_name
from gputui.services.results.selectors import run_in
from gputui.services.results.throughput import contention_of, rate_of
from gputui.services.runs.process import (
    LiveRun,
    follow,
    import_journal,
    new_run_id,
    start_runs,
    writable_target,
)
from gputui.services.runs.process import stop as end_run
from gputui.services.snapshot import take_snapshot
from gputui.services.support.paths import hash_key
from gputui.sources.nvml_calls import Values
from gputui.store.reading import CaseConditions, open_result


@dataclass(frozen=True, slots=True)
class Measured:
    run: Run
    conditions: Mapping[int, CaseConditions]
    """Of its cases, by number."""

    @property
    def rates(self) -> dict[Case, float]:
        """Of the cases that were measured."""
        found = {case.case: rate_of(case) for case in self.run.cases}
        return {case: rate for case, rate in found.items() if not isinstance(rate, Missing)}

    @property
    def clock_mhz(self) -> float:
        """The median clock of the case in which it was lowest, as at the hardest work; 0 if unknown."""
        return min((known(one.clock_median_mhz) or 0.0 for one in self.conditions.values()), default=0.0)


OK, SLOW, FAULT, CANNOT_TELL = "OK", "SLOW", "FAULT", "CAN'T TELL"
WORDS = {FAULT: "alarm", SLOW: "warn", CANNOT_TELL: "dim", OK: "good"}
"""The worst first, each with its style."""
CLOSE = math.exp(-FAR_BELOW)
"""Of each of its neighbors, and of what is published: what is below is not called OK."""
_SHARED = ("h2d_pinned", "d2h_pinned")
"""Links to the host, whose memory all GPUs share: what is published is of one at a time."""
_UNMEASURED = "; its speed was not measured"
_HELD = 0.05
"""Of the time of a case, or of a clock: from this share on, it is the reason for a low rate."""


@dataclass(frozen=True, slots=True)
class CaseRate:
    """How fast one case was on one device."""

    case: str
    units_per_s: float
    unit: str
    neighbors_per_s: float | None
    """The median of the other GPUs of its model in this box; None without any."""
    is_low: bool


@dataclass(frozen=True, slots=True)
class DeviceCheck:
    """One GPU, the CPU, or the driver."""

    device: str
    """`GPU 3`, `CPU`, `driver`."""
    word: str
    """OK, SLOW, FAULT or CAN'T TELL."""
    reason: str
    next_step: str = ""
    command: str = ""
    slower_by: float = 0.0
    """Share of the rate that it lacks in its slowest case; 0 unless it is SLOW."""
    rates: tuple[CaseRate, ...] = ()

    def verdict(self, parts: int | None = None) -> str:
        """`SLOW by 8 %: power-capped at 600 of 700 W`; of what is wrong, so many parts between colons."""
        by = f" by {format_percent(self.slower_by)}" if self.slower_by else ""
        is_wrong = self.word in (FAULT, SLOW)
        return f"{self.word}{by}: {': '.join(self.reason.split(': ')[: parts if is_wrong else None])}"

    @property
    def brief(self) -> str:
        """The verdict without what explains its words."""
        return self.verdict(2 if self.word == FAULT else 1)


@dataclass(frozen=True, slots=True)
class BoxCheck:
    """The word for the box, and for each of its devices."""

    box: str
    """`8x H200, driver 580.95.05`."""
    devices: tuple[DeviceCheck, ...]
    not_measured: str
    text: str
    """For the provider; empty if there is nothing to repair."""

    @property
    def word(self) -> str:
        """The worst of its devices."""
        return next(word for word in WORDS if any(one.word == word for one in self.devices))

    @property
    def headline(self) -> str:
        """What is not as it should be, the worst first; what holds for several devices once."""
        said: dict[str, list[str]] = {}
        for one in sorted(self.devices, key=lambda one: list(WORDS).index(one.word)):
            if one.word != OK or self.word == OK:
                what = one.brief.removeprefix(one.word) if one.word == self.word else f": {one.brief}"
                said.setdefault(what, []).append(one.device)
        return ". ".join(f"{named(devices)}{what}" for what, devices in said.items())


def named(devices: Sequence[str]) -> str:
    """`GPU 3`, `GPU 0-6`."""
    numbers = [int(device.removeprefix("GPU ")) for device in devices if device.startswith("GPU ")]
    return f"GPU {', '.join(ranges(numbers))}" if numbers else devices[0]


@dataclass(frozen=True, slots=True)
class _Beside:
    """One GPU beside the others of its model in this box."""

    count: int
    """Of the others."""
    rates: Mapping[Case, float]
    """The medians of theirs."""
    clock_mhz: float
    """Likewise, at work; 0 if unknown."""
    low: Collection[Case | None]
    """Cases in which it is slower than they are; None is the mean of all."""


def checked(
    machine: Machine,
    checks: Sequence[Check],
    measured: Sequence[Measured],
    fails: GputuiError | None = None,
    not_measured: str = "",
    settings: Mapping[int, Values] = MappingProxyType({}),
) -> BoxCheck:
    """The word for a box of which this was found and measured; without measurements it is about health only.

    `fails` is why there are none though some should be; `not_measured`, why there are none.
    """
    of_device = {case.device_index: one for one in measured for case in one.run.cases[:1]}
    beside = _beside_neighbors({index: one for index, one in of_device.items() if index is not None})
    devices = [_device(gpu, checks, of_device.get(gpu.index), beside.get(gpu.index)) for gpu in machine.gpus]
    devices += [
        DeviceCheck("driver", FAULT, machine.gpus_absent, check.next_step, check.command)
        for check in checks
        if check.topic == "driver" and check.state == "problem"
    ]
    driver = known(machine.driver_version)
    box = gpu_words(machine) or str(known(machine.cpu.model) or "CPU")
    box += f", driver {driver}" if machine.gpus and driver else ""
    devices = devices or [_device(None, checks, of_device.get(None), None)]
    if not measured and (now := in_the_way(checks, of_cpu=not machine.gpus)) is not None:
        devices = [_because(one, CANNOT_TELL, now, _UNMEASURED) if one.word == OK else one for one in devices]
    if fails is not None:
        why = Check("", "note", f"its speed was not measured: {fails.message}", fails.hint)
        devices = [_because(one, CANNOT_TELL, why) if one.word == OK else one for one in devices]
    return BoxCheck(box, tuple(devices), "" if measured else not_measured, _text(box, devices, settings))


def _beside_neighbors(measured: Mapping[int, Measured]) -> dict[int, _Beside]:
    """Each GPU beside the others of its model, judged as fleets of GPUs are everywhere."""
    kinds: dict[str, list[int]] = {}
    for index, one in measured.items():
        if one.rates:
            kinds.setdefault(one.run.cases[0].device_name, []).append(index)
    found = {}
    for kind in kinds.values():
        cases = [case for case in measured[kind[0]].rates if all(case in measured[one].rates for one in kind)]
        low = _low_ones(kind, measured, cases) if len(kind) > 1 and cases else {}
        for index in low:
            others = [measured[other] for other in kind if other != index]
            rates = {case: statistics.median(one.rates[case] for one in others) for case in cases}
            clock_mhz = statistics.median(one.clock_mhz for one in others)
            found[index] = _Beside(len(others), rates, clock_mhz, low[index])
    return found


def _low_ones(
    kind: Sequence[int], measured: Mapping[int, Measured], cases: Sequence[Case]
) -> dict[int, set[Case | None]]:
    """By GPU, the cases in which it stands out below the others, or is one of the slower of two groups."""
    fleet = fleet_of([joined(str(index), [measured[index].run], False, {}) for index in kind], "gpu")
    called: dict[str, Case] = {case_subject(case, cases): case for case in cases}
    low: dict[int, set[Case | None]] = {index: set() for index in kind}
    for box in fleet.boxes:
        low[int(box.name)] = {called.get(name) for name, ratio in box.where if ratio < 1}
        if box.stands_out == "slower" and not low[int(box.name)]:
            low[int(box.name)] = {None}
    for split in fleet.splits:
        for name in split.slower:
            low[int(name)].add(called.get(split.subject))
    return low


def _device(
    gpu: Gpu | None, checks: Sequence[Check], measured: Measured | None, beside: _Beside | None
) -> DeviceCheck:
    device = "CPU" if gpu is None else f"GPU {gpu.index}"
    mine = [check for check in checks if gpu is not None and f"{check.topic} ".startswith(f"{device} ")]
    faults = [check for check in mine if check.state == "problem"]
    reasons = [*_reasons(gpu, mine, measured, beside)]
    if measured is None:
        found = DeviceCheck(device, OK, f"healthy{_UNMEASURED}")
        if faults:
            return _because(found, FAULT, faults[0])
        held = [check for check in mine if is_disturbing(check) or check.topic.endswith(" MIG")] + reasons
        return _because(found, CANNOT_TELL, held[0], _UNMEASURED) if held else found
    tests = [
        test
        for one in performance_checks(measured.run)
        for test in one.peak_tests
        if beside is None or test.measure not in _SHARED
    ]
    low = _shares_of_low(measured.rates, beside, tests)
    others = {} if beside is None else beside.rates
    rates = (
        CaseRate(_called(case), rate, case.unit, others.get(case), case in low)
        for case, rate in measured.rates.items()
    )
    found = DeviceCheck(device, OK, "", rates=tuple(rates))
    if faults and not (low and all(check.found.startswith(SLOWING) for check in faults)):
        return _because(found, FAULT, faults[0])
    if not measured.rates:
        first = measured.run.cases[0]
        why = Check(
            "", "note", f"its measurement {first.outcome}: {first.reason}", "gputui run check shows more"
        )
        return _because(found, FAULT if first.outcome == "failed" else CANNOT_TELL, why)
    if waited := max(map(contention_of, measured.run.cases)):
        busy = f"other programs had the CPU for {format_percent(waited)} of the time"
        return _because(found, CANNOT_TELL, Check("", "note", busy, "check again when they are done"))
    if not low:
        return _not_slow(found, beside, tests)
    by = 1 - min(low.values())
    slowest = min(low, key=lambda case: low[case])
    is_link = slowest.work.workload == "xfer"
    reasons.sort(key=lambda why: why.found.startswith("PCIe") is not is_link)  # what explains that case first
    unknown = f"in {_called(slowest)}, and nothing here says why"
    return replace(_because(found, SLOW, next(iter(reasons), Check("", "note", unknown, TELL))), slower_by=by)


def is_disturbing(check: Check) -> bool:
    """Whether somebody uses the GPU, so that measuring it says nothing and disturbs them."""
    return check.topic.endswith(" use") or check.found.startswith(DISTURBING)


def _shares_of_low(
    rates: Mapping[Case, float], beside: _Beside | None, tests: Sequence[PeakTest]
) -> dict[Case, float]:
    """Cases in which a device is slow, and its rate over what it should be."""
    low: dict[Case, float] = {}
    if beside is not None:
        shares = {case: rates[case] / rate for case, rate in beside.rates.items()}
        is_low = None in beside.low
        low = {
            case: share
            for case, share in shares.items()
            if case in beside.low or (is_low and share < math.exp(-LEAST_CHANGE))
        }
    for test in tests:
        if test.word == BELOW_NORMAL and test.share is not None:
            low |= {case: test.share for case, rate in rates.items() if rate == test.units_per_s}
    return low


def _called(case: Case) -> str:
    """`matmul amp`, `memory copy`, `from host`."""
    if case.work.workload == "xfer":
        return "from host" if "h2d" in case.work.size else "to host"
    name = plain_name(case.work.workload)
    return f"{name} {case.variant.precision}" if case.work.workload == "gemm" else name


def _because(found: DeviceCheck, word: str, why: Check, more: str = "") -> DeviceCheck:
    return replace(found, word=word, reason=why.found + more, next_step=why.next_step, command=why.command)


def _reasons(
    gpu: Gpu | None, mine: Sequence[Check], measured: Measured | None, beside: _Beside | None
) -> Iterator[Check]:
    """What makes a GPU slower than others of its model, the surest first."""
    for check in mine:
        if check.topic.endswith(" power") and gpu is not None:
            yield replace(check, found=power_cap_of(gpu), next_step="to lift the limit:")
        elif check.found.startswith(SLOWING) or check.topic.endswith((" heat", " clock")):
            yield check
    if measured is None:
        return
    slowed = max((known(one.slowed_share) or 0.0 for one in measured.conditions.values()), default=0.0)
    if slowed >= _HELD:
        found = f"heat or its power supply held the clocks down for {format_percent(slowed)} of the time"
        yield Check("", "note", found, "see that its fans turn and its air is cool, or tell the provider")
    if gpu is not None and beside is not None and measured.clock_mhz < (1 - _HELD) * beside.clock_mhz:
        found = f"clock at {measured.clock_mhz:.0f} MHz, its neighbors at {beside.clock_mhz:.0f} MHz"
        yield Check(
            "", "note", found, "if it is locked, this unlocks it:", f"sudo nvidia-smi -i {gpu.index} -rgc"
        )


def _not_slow(found: DeviceCheck, beside: _Beside | None, tests: Sequence[PeakTest]) -> DeviceCheck:
    """OK where boxes of its model or its neighbors decide, and nothing is far below what is published."""
    words = {test.word for test in tests} - {NO_REFERENCE}
    if words == {NORMAL}:
        return replace(found, reason="as fast as boxes of its model elsewhere")
    unsure, lowest = "no public figures, and no neighbor to compare it with", math.inf
    for test in tests:
        if test.share is not None and test.word != NO_REFERENCE:
            share = 0.0 if test.word == ABOVE_LIMIT else test.share
            lowest, unsure = min((lowest, unsure), (share, test.phrase))
    for rate in found.rates if beside is not None else ():
        if rate.neighbors_per_s is not None and rate.units_per_s < CLOSE * rate.neighbors_per_s:
            part = format_percent(rate.units_per_s / rate.neighbors_per_s)
            lowest, unsure = 0.0, f"{part} of its neighbors in {rate.case}, which differ by much themselves"
    if beside is not None and lowest >= CLOSE:
        others = "its neighbor" if beside.count == 1 else f"its {beside.count} neighbors"
        return replace(found, reason=f"as fast as {others}")
    return replace(found, word=CANNOT_TELL, reason=unsure)


def _text(box: str, devices: Sequence[DeviceCheck], settings: Mapping[int, Values]) -> str:
    """What to send to whoever owns the box: facts that they can check, of what no setting here repairs."""
    places = {f"GPU {index}": word(values, "pci_address") for index, values in settings.items()}
    broken = [
        one
        for one in devices
        if one.word in (FAULT, SLOW) and not one.command.startswith("sudo nvidia-smi -i")
    ]
    if not broken:
        return ""
    when = time.strftime("%d %b %Y %H:%M UTC", time.gmtime())
    said = []
    for one in broken:
        place = f" ({places[one.device]})" if places.get(one.device) else ""
        low = [rate for rate in one.rates if rate.is_low and rate.neighbors_per_s]
        rates = [
            f"{rate.case} {format_rate(rate.units_per_s, rate.unit)}, its neighbors"
            f" {format_rate(rate.neighbors_per_s or 0.0, rate.unit)}"
            for rate in low
        ]
        said.append(f"{one.device}{place}: {'; '.join([one.brief, *rates])}.")
    what = "it" if len(broken) == 1 else "them"
    return " ".join([f"{box}, {when}.", *said, f"Please repair {what}, or replace the box."])


_ENDING = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


def check_box(box: SystemState, *, db: Path | None, on_tick: Callable[[str], None]) -> BoxCheck:
    """Check a box that was looked at; measures its GPUs for up to 50 s if it has torch.

    What is measured goes into the result file `db`, if any. `on_tick` gets what is being done. Raises nothing
    where nothing can be measured: that is part of the answer.
    """
    checks, found, why_not = judged(box), list[Measured](), "--quick looks at health only"
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
    profile = find_profile("check")
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
            following = [lines for lines in following if any(line is None for _, line in lines)]
            on_tick()
        for run in runs:
            import_journal(run.run_dir, target)
    with open_result(target) as file:
        return [Measured(run_in(file, run.run_id), file.conditions(run.run_id)) for run in runs]


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

    def leave(number: int, _: FrameType | None) -> NoReturn:
        sys.exit(128 + number)

    before = {number: signal.signal(number, leave) for number in (signal.SIGTERM, signal.SIGHUP)}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
