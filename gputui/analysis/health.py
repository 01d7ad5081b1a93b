"""What ails a GPU, in words."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

from gputui.model.absent import Missing
from gputui.model.live import FOREIGN, HIDDEN, LOST, DeviceSample, ProcessSample
from gputui.model.units import format_percent

Severity = Literal["good", "warn", "alarm"]

POWER_CAP = 0x4
"""NVML clocks-event reasons (nvml.h, nvmlClocksEventReasons). GpuIdle 0x1 and the clocks that an application
chose, 0x2, slow nothing down that wants to run."""
HW_SLOWDOWN = 0x8
SW_THERMAL = 0x20
HW_THERMAL = 0x40
HW_POWER_BRAKE = 0x80
SLOWED = POWER_CAP | HW_SLOWDOWN | SW_THERMAL | HW_THERMAL | HW_POWER_BRAKE

STALE_AFTER_S = 3.0
BUSY_PCT = 10.0
"""From here on a GPU counts as busy: an idle one trains its link down to save power."""
_TOLD_SHARE = 0.05
"""A share of the time slowed that is worth a word although it is not slowed now."""


@dataclass(frozen=True, slots=True)
class Finding:
    """One thing that a person should know of a GPU."""

    word: str
    """Short, in capitals where it is a state: `POWER-CAPPED`, `LOST`, `PCIe x4 of x16`."""
    severity: Severity
    why: str
    """One sentence."""


def health(
    now_ns: int,
    gpu: DeviceSample,
    earlier: DeviceSample | None = None,
    foreign: int = 0,
    stale_after_s: float = STALE_AFTER_S,
) -> tuple[Finding, ...]:
    """What ails a GPU, the worst first; empty if nothing does.

    `earlier` is the same GPU some minutes ago: its throttle counters give the share of the time between.
    `foreign` processes of others are on it (`foreign_processes`). With intervals above a second,
    `stale_after_s` should be more than two of them.
    """
    found = [
        *_reachable(now_ns, gpu, stale_after_s),
        *_slowed(gpu, earlier),
        *_errors(gpu),
        *_link(gpu),
        *_shared(foreign),
    ]
    order: tuple[Severity, ...] = ("alarm", "warn", "good")
    return tuple(sorted(found, key=lambda finding: order.index(finding.severity)))


def foreign_processes(processes: Sequence[ProcessSample] | Missing, device: int, user: str) -> int:
    """How many processes of other users are on a GPU.

    Those of the host that a container cannot look at are not counted: they may be one's own.
    """
    if isinstance(processes, Missing):
        return 0
    return sum(
        1
        for process in processes
        if any(use.device == device for use in process.uses)
        and (process.user in (FOREIGN, HIDDEN) if isinstance(process.user, Missing) else process.user != user)
    )


def throttle_words(bits: int) -> tuple[str, ...]:
    """What slows a GPU now, by its clocks-event reasons."""
    words = (
        (POWER_CAP, "POWER-CAPPED"),
        (SW_THERMAL | HW_THERMAL, "THERMAL"),
        (HW_POWER_BRAKE, "POWER BRAKE"),
        (HW_SLOWDOWN, "HW SLOWDOWN"),
    )
    return tuple(word for mask, word in words if bits & mask)


def _reachable(now_ns: int, gpu: DeviceSample, stale_after_s: float) -> list[Finding]:
    age_s = (now_ns - gpu.t_ns) / 1e9
    is_stale = age_s >= stale_after_s
    stale = f"STALE {_age(age_s)}"
    if gpu.problem is None:
        return [Finding(stale, "warn", f"the last reading is {_age(age_s)} old")] if is_stale else []
    reason = gpu.problem.reason
    if reason.startswith(LOST):
        return [Finding("LOST", "alarm", reason)]
    return [Finding(stale if is_stale else "NO READING", "alarm", reason)]


def _slowed(gpu: DeviceSample, earlier: DeviceSample | None) -> list[Finding]:
    bits = _whole(gpu, "throttle_bits")
    if bits is None or gpu.problem is not None:
        return []
    found: list[Finding] = []
    power = _share(gpu, earlier, "throttled_power_ns")
    if bits & POWER_CAP or (power is not None and power >= _TOLD_SHARE):
        found.append(Finding("POWER-CAPPED", "warn", _power_sentence(gpu, earlier, power)))
    heat = _share(gpu, earlier, "throttled_thermal_ns")
    if bits & (SW_THERMAL | HW_THERMAL) or (heat is not None and heat >= _TOLD_SHARE):
        found.append(Finding("THERMAL", "alarm", _heat_sentence(gpu, earlier, heat)))
    if bits & HW_POWER_BRAKE:
        why = "the box itself tells the GPU to draw less: its power supply is at its limit"
        found.append(Finding("POWER BRAKE", "alarm", why))
    if bits & HW_SLOWDOWN and not bits & (HW_THERMAL | HW_POWER_BRAKE):
        why = "the hardware has halved the clocks or worse: heat, or the power supply"
        found.append(Finding("HW SLOWDOWN", "alarm", why))
    return found


def _power_sentence(gpu: DeviceSample, earlier: DeviceSample | None, share: float | None) -> str:
    limit, default = _number(gpu, "power_limit_w"), _number(gpu, "power_limit_default_w")
    why = "the power limit holds the clocks down"
    if limit is not None:
        why += f": {limit:.0f} W"
        if default is not None and round(limit) < round(default):
            why += f", set below the {default:.0f} W it comes with"
    return why + _of_the_time(gpu, earlier, share)


def _heat_sentence(gpu: DeviceSample, earlier: DeviceSample | None, share: float | None) -> str:
    now, limit = _number(gpu, "temperature_c"), _number(gpu, "temperature_limit_c")
    why = "heat holds the clocks down"
    if now is not None:
        why += f": {now:.0f} °C" + (f", slowed from {limit:.0f} °C on" if limit is not None else "")
    return why + _of_the_time(gpu, earlier, share)


def _of_the_time(gpu: DeviceSample, earlier: DeviceSample | None, share: float | None) -> str:
    if share is None or earlier is None:
        return ""
    return f"; {format_percent(share)} of the last {_age((gpu.t_ns - earlier.t_ns) / 1e9)}"


def _share(gpu: DeviceSample, earlier: DeviceSample | None, key: str) -> float | None:
    """Of the time between two samples, 0 to 1; None where the counter is not known or began anew."""
    if earlier is None or gpu.t_ns <= earlier.t_ns:
        return None
    now, then = _whole(gpu, key), _whole(earlier, key)
    if now is None or then is None or now < then:
        return None
    return min(1.0, (now - then) / (gpu.t_ns - earlier.t_ns))


def _errors(gpu: DeviceSample) -> list[Finding]:
    count = _whole(gpu, "ecc_uncorrected_count")
    if not count:
        return []
    many = "1 memory error" if count == 1 else f"{count} memory errors"
    return [Finding(f"ECC errors {count}", "alarm", f"{many} could not be corrected: results may be wrong")]


def _link(gpu: DeviceSample) -> list[Finding]:
    width, width_max = _whole(gpu, "pcie_width"), _whole(gpu, "pcie_width_max")
    if gpu.problem is None and width and width_max and width < width_max:
        why = f"the PCIe link has trained {width} of {width_max} lanes: copies to the GPU are slow"
        return [Finding(f"PCIe x{width} of x{width_max}", "warn", why)]
    generation, best = _whole(gpu, "pcie_generation"), _whole(gpu, "pcie_generation_max")
    busy = _number(gpu, "sm_busy_pct")
    if gpu.problem is None and generation and best and generation < best and busy and busy >= BUSY_PCT:
        why = f"the PCIe link runs at generation {generation} of {best} while the GPU is busy"
        return [Finding(f"PCIe gen {generation} of {best}", "warn", why)]
    return []


def _shared(foreign: int) -> list[Finding]:
    if not foreign:
        return []
    who = "1 process" if foreign == 1 else f"{foreign} processes"
    return [Finding("SHARED", "warn", f"{who} of other users on this GPU")]


def _number(gpu: DeviceSample, key: str) -> float | None:
    value = gpu.values.get(key)
    return float(value) if isinstance(value, int | float) else None


def _whole(gpu: DeviceSample, key: str) -> int | None:
    value = gpu.values.get(key)
    return value if isinstance(value, int) else None


def _age(seconds: float) -> str:
    if seconds < 100:
        return f"{seconds:.0f} s"
    return f"{seconds / 60:.0f} min" if seconds < 6000 else f"{seconds / 3600:.0f} h"
