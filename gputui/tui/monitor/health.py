"""What ails a GPU, in words."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from gputui.model.absent import Missing
from gputui.model.live import DeviceSample, ProcessSample
from gputui.model.units import format_percent
from gputui.tui.monitor.accounts import Account
from gputui.tui.monitor.metrics import number

POWER_CAP = 0x4
"""Clocks-event reasons of nvml.h. Idle (0x1) and clocks that an application asked for (0x2) are none of them:
they slow nothing down that wants to run."""
HW_SLOWDOWN = 0x8
SW_THERMAL = 0x20
HW_THERMAL = 0x40
HW_POWER_BRAKE = 0x80

STALE_AFTER_S = 3.0
BUSY_PCT = 10.0
"""From here on a GPU is busy; an idle one trains its link down to save power."""
_TOLD_SHARE = 0.005
"""A smaller part of the time is not worth a word once it is over."""


@dataclass(frozen=True, slots=True)
class Finding:
    """One thing that a person should know of a GPU."""

    word: str
    """`POWER-CAPPED 12 % of 5 min`."""
    severity: str
    """`alarm` or `warn`, which are styles too."""
    why: str
    """One sentence without its stop."""
    short: str = ""
    """Where there is little room: `POWER-CAPPED 12 %`; empty if the word is short."""

    @property
    def brief(self) -> str:
        """The shorter of the two."""
        return self.short or self.word


def health(
    now_ns: int, gpu: DeviceSample, account: Account, foreign: int = 0, stale_after_s: float = STALE_AFTER_S
) -> tuple[Finding, ...]:
    """What ails a GPU, the worst first; empty if nothing does. `foreign` processes of others are on it."""
    found = _reachable(now_ns, gpu, stale_after_s)
    if gpu.problem is None:
        found += [*_slowed(gpu, account), *_errors(gpu), *_link(gpu)]
        if foreign:
            who = "1 process" if foreign == 1 else f"{foreign} processes"
            found.append(Finding("SHARED", "warn", f"{who} of other users on this GPU"))
    return tuple(sorted(found, key=lambda finding: finding.severity != "alarm"))


def foreign_processes(processes: Sequence[ProcessSample] | Missing, user: str) -> dict[int, int]:
    """By device, how many processes of other users are on it.

    A process is another's if its user is known and not `user`, or if the system hides it from us. Processes
    whose number means nothing here may be our own by another number: they are not counted.
    """
    found: dict[int, int] = {}
    if isinstance(processes, Missing):
        return found
    for process in processes:
        who = process.user
        theirs = "another user" in who.reason if isinstance(who, Missing) else bool(user) and who != user
        if theirs:
            for device in {use.device for use in process.uses}:
                found[device] = found.get(device, 0) + 1
    return found


def is_lost(problem: Missing) -> bool:
    """Whether a GPU is gone for good, and not only silent."""
    return "lost" in problem.reason.lower()


def _reachable(now_ns: int, gpu: DeviceSample, stale_after_s: float) -> list[Finding]:
    age_s = (now_ns - gpu.t_ns) / 1e9
    stale = f"STALE {age(age_s)}" if age_s >= stale_after_s else ""
    if gpu.problem is None:
        return [Finding(stale, "warn", f"the last reading is {age(age_s)} old")] if stale else []
    reason = gpu.problem.reason
    if is_lost(gpu.problem):
        return [Finding("LOST", "alarm", reason)]
    return [Finding(stale or "NO READING", "alarm", reason)]


def _slowed(gpu: DeviceSample, account: Account) -> list[Finding]:
    whole = number(gpu.values, "throttle_bits")
    bits = int(whole) if whole is not None else 0
    found: list[Finding] = []
    share, span_s = account.throttled_share("power"), account.throttle_span_s
    if bits & POWER_CAP or (share is not None and share >= _TOLD_SHARE):
        found.append(_told("POWER-CAPPED", "warn", _power_sentence(gpu), share, span_s))
    share = account.throttled_share("thermal")
    if bits & (SW_THERMAL | HW_THERMAL) or (share is not None and share >= _TOLD_SHARE):
        found.append(_told("THERMAL", "alarm", _heat_sentence(gpu), share, span_s))
    share = account.throttled_share("other")
    if bits & HW_POWER_BRAKE:
        why = "the box tells the GPU to draw less: its power supply is at its limit"
        found.append(_told("POWER BRAKE", "alarm", why, share, span_s))
    elif bits & HW_SLOWDOWN and not bits & HW_THERMAL:
        why = "the hardware has halved the clocks or worse: heat, or the power supply"
        found.append(_told("HW SLOWDOWN", "alarm", why, share, span_s))
    return found


def _told(word: str, severity: str, why: str, share: float | None, span_s: float) -> Finding:
    if share is None or share < _TOLD_SHARE:
        return Finding(word, severity, why)
    part = format_percent(share)
    return Finding(f"{word} {part} of {age(span_s)}", severity, why, f"{word} {part}")


def _power_sentence(gpu: DeviceSample) -> str:
    limit, default = number(gpu.values, "power_limit_w"), number(gpu.values, "power_limit_default_w")
    why = "the power limit holds the clocks down"
    if limit is not None:
        why += f": {limit:.0f} W"
        if default is not None and round(limit) < round(default):
            why += f", set below the {default:.0f} W it comes with"
    return why


def _heat_sentence(gpu: DeviceSample) -> str:
    now, limit = number(gpu.values, "temperature_c"), number(gpu.values, "temperature_limit_c")
    why = "heat holds the clocks down"
    if now is not None:
        why += f": {now:.0f} °C" + (f", slowed from {limit:.0f} °C on" if limit is not None else "")
    return why


def _errors(gpu: DeviceSample) -> list[Finding]:
    count = number(gpu.values, "ecc_uncorrected_count")
    if not count:
        return []
    many = "1 memory error" if count == 1 else f"{count:.0f} memory errors"
    return [Finding(f"ECC {count:.0f}", "alarm", f"{many} could not be corrected: results may be wrong")]


def _link(gpu: DeviceSample) -> list[Finding]:
    width, widest = number(gpu.values, "pcie_width"), number(gpu.values, "pcie_width_max")
    if width and widest and width < widest:
        why = f"the PCIe link has trained {width:.0f} of {widest:.0f} lanes: copies are slow"
        return [Finding(f"PCIe x{width:.0f} of x{widest:.0f}", "warn", why)]
    generation, best = number(gpu.values, "pcie_generation"), number(gpu.values, "pcie_generation_max")
    busy = number(gpu.values, "sm_busy_pct")
    if generation and best and generation < best and busy is not None and busy >= BUSY_PCT:
        why = f"the PCIe link runs at generation {generation:.0f} of {best:.0f} while the GPU is busy"
        return [Finding(f"PCIe gen{generation:.0f} of {best:.0f}", "warn", why)]
    return []


def age(seconds: float) -> str:
    """`3 s`, `5 min`, `2 h`: whole units, so that it seldom changes."""
    if seconds < 99.5:
        return f"{max(seconds, 0):.0f} s"
    return f"{seconds / 60:.0f} min" if seconds < 6000 else f"{seconds / 3600:.1f} h"
