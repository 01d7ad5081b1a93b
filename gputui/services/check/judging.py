"""Whether each GPU of this box is as it should be: by its health, its neighbors, and what is known of it."""

from __future__ import annotations

import math
import statistics
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from types import MappingProxyType

from gputui.analysis.fleet import FEWEST, far_below
from gputui.analysis.peak_tests import ABOVE_LIMIT, BELOW_NORMAL, NO_REFERENCE, NORMAL, PeakTest
from gputui.document.spans import ranges
from gputui.errors import GputuiError
from gputui.metrics import word
from gputui.model.absent import Missing, known
from gputui.model.machine import Gpu, Machine
from gputui.model.plan import Case
from gputui.model.result import Run
from gputui.model.units import format_percent, format_rate
from gputui.services.compare.fleet import fleet_of
from gputui.services.compare.pairing import joined
from gputui.services.doctor.disturbances import DISTURBING, SLOWING, TELL, Check
from gputui.services.results.expected import performance_checks, power_cap_of
from gputui.services.results.headline import case_subject
from gputui.services.results.labels import gpu_words, plain_name
from gputui.services.results.throughput import rate_of
from gputui.sources.nvml_live.questions import Values
from gputui.store.reading import CaseConditions


@dataclass(frozen=True, slots=True)
class Measured:
    """What was measured of one GPU, or of the CPU."""

    run: Run
    conditions: Mapping[int, CaseConditions]
    """Of its cases, by number."""


OK, SLOW, FAULT, CANNOT_TELL = "OK", "SLOW", "FAULT", "CAN'T TELL"
WORDS = {FAULT: "alarm", SLOW: "warn", CANNOT_TELL: "dim", OK: "good"}
"""The worst first, each with its style."""
CLOSE = 0.9
"""Of each of its neighbors, and of what is published: what is below is not called OK."""
_SHARED = ("h2d_pinned", "d2h_pinned")
"""Links to the host, whose memory all GPUs share: what is published is of one at a time."""
_HELD = 0.05
"""Of the time of a case: from this share on, what held the clocks down is the reason for a low rate."""


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

    def verdict(self, parts: int = 9) -> str:
        """`SLOW by 8 %: power-capped at 600 of 700 W`; of what is wrong, so many parts between colons."""
        by = f" by {format_percent(self.slower_by)}" if self.slower_by else ""
        is_wrong = self.word in (FAULT, SLOW)
        return f"{self.word}{by}: {': '.join(self.reason.split(': ')[: parts if is_wrong else None])}"


@dataclass(frozen=True, slots=True)
class BoxCheck:
    """The word for the box, and for each of its devices."""

    box: str
    """`8x H200, driver 580.95.05`."""
    devices: tuple[DeviceCheck, ...]
    not_measured: str
    """Why no speed was measured; empty if it was."""
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
                what = one.verdict(2 if one.word == FAULT else 1).removeprefix(f"{self.word}: ")
                said.setdefault(what, []).append(one.device)
        return ". ".join(f"{named(devices)}: {what}" for what, devices in said.items())


def named(devices: Sequence[str]) -> str:
    """`GPU 3`, `GPU 0-6`."""
    numbers = [int(device.removeprefix("GPU ")) for device in devices if device.startswith("GPU ")]
    return f"GPU {', '.join(ranges(numbers))}" if numbers else devices[0]


_Low = dict[Case | None, float]
"""Cases in which a device is slow, and its rate over what it should be; None is the mean of all cases."""


@dataclass(frozen=True, slots=True)
class _Beside:
    """One GPU beside the others of its model."""

    others: Mapping[Case, float]
    """The medians of their rates."""
    count: int
    low: _Low


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
    beside = _beside_neighbors(of_device)
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
    if fails is not None:
        why = Check("", "note", f"its speed was not measured: {fails.message}", fails.hint)
        devices = [_because(one, CANNOT_TELL, why) if one.word == OK else one for one in devices]
    return BoxCheck(box, tuple(devices), "" if measured else not_measured, _text(box, devices, settings))


def rates_of(one: Measured) -> dict[Case, float]:
    """What was measured of a device."""
    found = ((case.case, rate_of(case)) for case in one.run.cases)
    return {case: rate for case, rate in found if not isinstance(rate, Missing)}


def _beside_neighbors(measured: Mapping[int | None, Measured]) -> dict[int, _Beside]:
    """Each GPU beside the others of its model: from FEWEST on as fleets are judged everywhere; of fewer,
    those are slow that are far below the rest."""
    kinds: dict[str, dict[int, Measured]] = {}
    for index, one in measured.items():
        if index is not None and rates_of(one):
            kinds.setdefault(one.run.cases[0].device_name, {})[index] = one
    found = {}
    for kind in kinds.values():
        rates = {index: rates_of(one) for index, one in kind.items()}
        cases = [case for case in next(iter(rates.values())) if all(case in of for of in rates.values())]
        low = _as_a_fleet(kind, cases) if len(kind) >= FEWEST else _of_few(rates, cases)
        for index in kind if len(kind) > 1 else ():
            others = {
                case: statistics.median(of[case] for other, of in rates.items() if other != index)
                for case in cases
            }
            found[index] = _Beside(others, len(kind) - 1, low.get(index, {}))
    return found


def _as_a_fleet(kind: Mapping[int, Measured], cases: Sequence[Case]) -> dict[int, _Low]:
    fleet = fleet_of([joined(str(index), [one.run], False, {}) for index, one in kind.items()], "gpu")
    called: dict[str, Case] = {case_subject(case, cases): case for case in cases}
    low: dict[int, _Low] = {index: {} for index in kind}
    for box in fleet.boxes:
        mine = low[int(box.name)]
        mine.update((called.get(name), ratio) for name, ratio in box.where if ratio < 1)
        if box.stands_out == "slower" and not mine:
            mine[None] = box.overall
    for split in fleet.splits:
        for name in split.slower:
            low[int(name)][called.get(split.subject)] = split.ratio
    return low


def _of_few(rates: Mapping[int, Mapping[Case, float]], cases: Sequence[Case]) -> dict[int, _Low]:
    low: dict[int, _Low] = {index: {} for index in rates}
    for case in cases:
        logs = [math.log(of[case]) for of in rates.values()]
        slower = far_below(logs, CLOSE)
        usual = statistics.median(log for place, log in enumerate(logs) if place not in slower)
        for place in slower:
            low[list(rates)[place]][case] = math.exp(logs[place] - usual)
    return low


def _device(
    gpu: Gpu | None, checks: Sequence[Check], measured: Measured | None, beside: _Beside | None
) -> DeviceCheck:
    device = "CPU" if gpu is None else f"GPU {gpu.index}"
    mine = [check for check in checks if gpu is not None and f"{check.topic} ".startswith(f"{device} ")]
    faults = [check for check in mine if check.state == "problem"]
    performances = () if measured is None else performance_checks(measured.run)
    tests = [
        test
        for one in performances
        for test in one.peak_tests
        if beside is None
        or test.measure not in _SHARED  # measured by several at once, which is not elsewhere
    ]
    rates = {} if measured is None else rates_of(measured)
    low = dict({} if beside is None else beside.low)
    for test in tests:
        if test.word == BELOW_NORMAL and test.share is not None:
            low |= {case: test.share for case, rate in rates.items() if rate == test.units_per_s}
    shown = (
        CaseRate(
            _called(case),
            rate,
            case.unit,
            None if beside is None else beside.others.get(case),
            bool({case, None} & {*low}),
        )
        for case, rate in rates.items()
    )
    found = DeviceCheck(device, OK, "healthy; its speed was not measured", rates=tuple(shown))
    if faults and not (low and all(check.found.startswith(SLOWING) for check in faults)):
        return _because(found, FAULT, faults[0])
    reasons = [*_reasons(gpu, mine, measured)]
    disturbing = [
        one for one in mine if one.found.startswith(DISTURBING) or one.topic.endswith((" use", " MIG"))
    ]
    if not rates:
        held = next(iter([*reasons, *disturbing]), None)
        return found if held is None else _because(found, CANNOT_TELL, held, "; its speed was not measured")
    if not low:
        return _not_slow(found, beside, tests)
    by = 1 - min(low.values())
    if disturbing:
        return _because(found, CANNOT_TELL, disturbing[0], f", and it is {format_percent(by)} slower")
    slowest = min(low, key=lambda case: low[case])
    unknown = f"in {'all cases' if slowest is None else _called(slowest)}, and nothing here says why"
    return replace(_because(found, SLOW, next(iter(reasons), Check("", "note", unknown, TELL))), slower_by=by)


def _called(case: Case) -> str:
    """`matmul amp`, `memory copy`, `from host`."""
    if case.work.workload == "xfer":
        return "from host" if "h2d" in case.work.size else "to host"
    name = plain_name(case.work.workload)
    return f"{name} {case.variant.precision}" if case.work.workload == "gemm" else name


def _because(found: DeviceCheck, word: str, why: Check, more: str = "") -> DeviceCheck:
    return replace(found, word=word, reason=why.found + more, next_step=why.next_step, command=why.command)


def _reasons(gpu: Gpu | None, mine: Sequence[Check], measured: Measured | None) -> Iterator[Check]:
    """What makes a GPU slower than others of its model, the surest first."""
    for check in mine:
        if check.topic.endswith(" power") and gpu is not None:
            yield replace(check, found=power_cap_of(gpu))
        elif check.found.startswith(SLOWING) or check.topic.endswith((" heat", " clock")):
            yield check
    shares = [known(one.slowed_share) or 0.0 for one in (measured.conditions.values() if measured else ())]
    if max(shares, default=0.0) >= _HELD:
        found = f"heat or its power supply held the clocks down for {format_percent(max(shares))} of the time"
        yield Check("", "note", found, "see that its fans turn and its air is cool, or tell the provider")


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
        said.append(f"{one.device}{place}: {'; '.join([one.verdict(), *rates])}.")
    what = "it" if len(broken) == 1 else "them"
    return " ".join([f"{box}, {when}.", *said, f"Please repair {what}, or replace the box."])
