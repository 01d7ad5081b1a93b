"""Problems of a GPU, in words: the wording and thresholds of the panes and of `snapshot`."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Literal

from gputui.model.absent import Missing
from gputui.model.live import FOREIGN, HIDDEN, LOST, DeviceSample, ProcessSample
from gputui.model.units import format_percent

Severity = Literal["warn", "alarm"]
"""Also names of styles."""
Cause = Literal["power", "thermal", "other"]

CONTENTION = "CPU contention from other processes"

POWER_CAP = 0x4
"""NVML clocks-event reasons (nvml.h, nvmlClocksEventReasons). GpuIdle 0x1 and application clocks, 0x2,
slow down nothing that wants to run."""
HW_SLOWDOWN = 0x8
SW_THERMAL = 0x20
HW_THERMAL = 0x40
HW_POWER_BRAKE = 0x80

CAUSES: tuple[tuple[Cause, str, int], ...] = (
    ("power", "throttled_power_ns", POWER_CAP),
    ("thermal", "throttled_thermal_ns", SW_THERMAL | HW_THERMAL),
    ("other", "throttled_other_ns", HW_SLOWDOWN | HW_POWER_BRAKE),
)
"""Name, the driver's counter of nanoseconds, and the clocks-event reasons that indicate it now."""

STALE_AFTER_S = 3.0
BUSY_PCT = 10.0
"""From here on a GPU counts as busy: an idle one trains its link down to save power."""
REPORTED_SHARE = 0.005
"""A smaller share of throttled time is not reported once it is over."""


@dataclass(frozen=True, slots=True)
class Slowed:
    """For which share of the recent past a GPU was throttled."""

    span_s: float = 0.0
    """Length of that time."""
    shares: Mapping[Cause, float | None] = field(default_factory=dict)
    """0 to 1; None or absent if unknown."""


@dataclass(frozen=True, slots=True)
class GpuFinding:
    """One thing the user should know about a GPU."""

    word: str
    """In capitals for a state: `POWER-CAPPED 12 % of 5 min`, `LOST`, `PCIe x4 of x16`."""
    severity: Severity
    why: str
    """One sentence without its full stop."""
    short: str = ""
    """For narrow places: `POWER-CAPPED 12 %`; empty if the word is short."""

    @property
    def brief(self) -> str:
        return self.short or self.word


def health(
    now_ns: int,
    gpu: DeviceSample,
    slowed: Slowed = Slowed(),
    foreign: int = 0,
    stale_after_s: float = STALE_AFTER_S,
) -> tuple[GpuFinding, ...]:
    """The problems of a GPU, worst first.

    `foreign` processes of other users run on it (`foreign_processes`). With intervals above a second,
    `stale_after_s` should be more than two of them.
    """
    found = _reachable(now_ns, gpu, stale_after_s)
    if gpu.problem is None:
        found += [*_slowed(gpu, slowed), *_errors(gpu), *_link(gpu)]
        if foreign:
            who = "1 process" if foreign == 1 else f"{foreign} processes"
            found.append(GpuFinding("SHARED", "warn", f"{who} of other users on this GPU"))
    return tuple(sorted(found, key=lambda finding: finding.severity != "alarm"))


def foreign_processes(processes: Sequence[ProcessSample] | Missing, user: str) -> dict[int, int]:
    """By device, how many processes of other users run on it; `user` is the current user, empty if unknown.

    A process is foreign if its user is known and not `user`, or if the system hides it. Processes of the host
    that a container cannot see are not counted: they may be the user's.
    """
    found: dict[int, int] = {}
    if isinstance(processes, Missing):
        return found
    for process in processes:
        who = process.user
        theirs = who in (FOREIGN, HIDDEN) if isinstance(who, Missing) else bool(user) and who != user
        if theirs:
            for device in {use.device for use in process.uses}:
                found[device] = found.get(device, 0) + 1
    return found


def is_lost(problem: Missing) -> bool:
    """Whether a GPU is gone for good, not only silent."""
    return problem.reason.startswith(LOST)


def age(seconds: float) -> str:
    """`3 s`, `5 min`, `2.0 h`: few digits, so that it seldom changes."""
    if seconds < 99.5:
        return f"{max(seconds, 0):.0f} s"
    return f"{seconds / 60:.0f} min" if seconds < 6000 else f"{seconds / 3600:.1f} h"


def throttle_words(bits: int) -> tuple[str, ...]:
    """What throttles a GPU now, from its clocks-event reasons."""
    words = (
        (POWER_CAP, "POWER-CAPPED"),
        (SW_THERMAL | HW_THERMAL, "THERMAL"),
        (HW_POWER_BRAKE, "POWER BRAKE"),
        (HW_SLOWDOWN, "HW SLOWDOWN"),
    )
    return tuple(word for mask, word in words if bits & mask)


def _reachable(now_ns: int, gpu: DeviceSample, stale_after_s: float) -> list[GpuFinding]:
    age_s = (now_ns - gpu.t_ns) / 1e9
    stale = f"STALE {age(age_s)}" if age_s >= stale_after_s else ""
    if gpu.problem is None:
        return [GpuFinding(stale, "warn", f"the last reading is {age(age_s)} old")] if stale else []
    reason = gpu.problem.reason
    if is_lost(gpu.problem):
        return [GpuFinding("LOST", "alarm", reason)]
    return [GpuFinding(stale or "NO READING", "alarm", reason)]


def _slowed(gpu: DeviceSample, slowed: Slowed) -> list[GpuFinding]:
    bits = int(_number(gpu, "throttle_bits") or 0)
    found: list[GpuFinding] = []
    if bits & POWER_CAP or (slowed.shares.get("power") or 0) >= REPORTED_SHARE:
        found.append(_slowed_finding("POWER-CAPPED", "warn", _power_sentence(gpu), slowed, "power"))
    if bits & (SW_THERMAL | HW_THERMAL) or (slowed.shares.get("thermal") or 0) >= REPORTED_SHARE:
        found.append(_slowed_finding("THERMAL", "alarm", _heat_sentence(gpu), slowed, "thermal"))
    if bits & HW_POWER_BRAKE:
        why = "the box tells the GPU to draw less: its power supply is at its limit"
        found.append(_slowed_finding("POWER BRAKE", "alarm", why, slowed, "other"))
    elif bits & HW_SLOWDOWN and not bits & HW_THERMAL:
        why = "the hardware has halved the clocks or worse: heat, or the power supply"
        found.append(_slowed_finding("HW SLOWDOWN", "alarm", why, slowed, "other"))
    return found


def _slowed_finding(word: str, severity: Severity, why: str, slowed: Slowed, cause: Cause) -> GpuFinding:
    share = slowed.shares.get(cause)
    if share is None or share < REPORTED_SHARE:
        return GpuFinding(word, severity, why)
    part = format_percent(share)
    return GpuFinding(f"{word} {part} of {age(slowed.span_s)}", severity, why, f"{word} {part}")


def _power_sentence(gpu: DeviceSample) -> str:
    limit, default = _number(gpu, "power_limit_w"), _number(gpu, "power_limit_default_w")
    why = "the power limit holds the clocks down"
    if limit is not None:
        why += f": {limit:.0f} W"
        if default is not None and round(limit) < round(default):
            why += f", set below the {default:.0f} W it comes with"
    return why


def _heat_sentence(gpu: DeviceSample) -> str:
    now, limit = _number(gpu, "temperature_c"), _number(gpu, "temperature_limit_c")
    why = "heat holds the clocks down"
    if now is not None:
        why += f": {now:.0f} °C" + (f", slowed from {limit:.0f} °C on" if limit is not None else "")
    return why


def _errors(gpu: DeviceSample) -> list[GpuFinding]:
    count = _number(gpu, "ecc_uncorrected_count")
    if not count:
        return []
    many = "1 memory error" if count == 1 else f"{count:.0f} memory errors"
    why = f"{many} could not be corrected: results may be wrong"
    return [GpuFinding(f"ECC errors {count:.0f}", "alarm", why, f"ECC {count:.0f}")]


def _link(gpu: DeviceSample) -> list[GpuFinding]:
    width, widest = _number(gpu, "pcie_width"), _number(gpu, "pcie_width_max")
    if width and widest and width < widest:
        why = f"the PCIe link has trained {width:.0f} of {widest:.0f} lanes: copies to the GPU are slow"
        return [GpuFinding(f"PCIe x{width:.0f} of x{widest:.0f}", "warn", why)]
    generation, best = _number(gpu, "pcie_generation"), _number(gpu, "pcie_generation_max")
    busy = _number(gpu, "sm_busy_pct")
    if generation and best and generation < best and busy is not None and busy >= BUSY_PCT:
        why = f"the PCIe link runs at generation {generation:.0f} of {best:.0f} while the GPU is busy"
        return [GpuFinding(f"PCIe gen{generation:.0f} of {best:.0f}", "warn", why)]
    return []


def _number(gpu: DeviceSample, key: str) -> float | None:
    value = gpu.values.get(key)
    if not isinstance(value, int | float) or not math.isfinite(value):
        return None
    return value
