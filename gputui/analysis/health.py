"""Problems of a GPU in words, with the thresholds of all screens, and how long it was throttled lately.

With thresholds of their own making, the Monitor could warn of a GPU that `doctor` calls healthy.
"""

from __future__ import annotations

import copy
from collections import deque
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Literal, NamedTuple

from gputui.metrics import Values, number
from gputui.model.absent import Missing
from gputui.model.telemetry import (
    FOREIGN,
    HIDDEN,
    HW_POWER_BRAKE,
    HW_SLOWDOWN,
    HW_THERMAL,
    LOST,
    POWER_CAP,
    SW_THERMAL,
    DeviceSample,
    ProcessSample,
)
from gputui.model.units import format_bytes, format_percent

Severity = Literal["note", "warn", "alarm"]
"""What has passed or slows nothing; what to keep an eye on; what is true now and matters."""
Cause = Literal["power", "thermal", "other"]

CAUSES: tuple[tuple[Cause, str, int], ...] = (
    ("power", "throttled_power_ns", POWER_CAP),
    ("thermal", "throttled_thermal_ns", SW_THERMAL | HW_THERMAL),
    ("other", "throttled_other_ns", HW_SLOWDOWN | HW_POWER_BRAKE),
)
"""Name, the driver's counter of nanoseconds, and the clocks-event reasons that indicate it now."""

XIDS: Mapping[int, tuple[str, Severity]] = {
    13: ("a program used the GPU wrongly, mostly by an index out of range", "note"),
    31: ("a program touched memory of the GPU that is not its own", "note"),
    43: ("a program made the GPU stop, and was ended", "note"),
    45: ("a program was ended while it used the GPU", "note"),
    48: ("a memory error could not be corrected: results may be wrong", "alarm"),
    63: ("a bad row of the memory is replaced when the GPU is reset", "warn"),
    64: ("a bad row of the memory could not be replaced: exchange the GPU", "alarm"),
    74: ("an NVLink connection failed", "alarm"),
    79: ("the GPU fell off the bus", "alarm"),
    92: ("many memory errors were corrected: the memory is failing", "warn"),
    94: ("a memory error was contained: the program that met it was ended", "alarm"),
    95: ("a memory error was not contained: results of all programs may be wrong", "alarm"),
    119: ("the GPU's own processor does not answer the driver", "alarm"),
    120: ("the GPU's own processor failed", "alarm"),
}
"""https://docs.nvidia.com/deploy/xid-errors/, those that boxes for rent show."""
WORST_FIRST: Mapping[str, int] = {"alarm": 0, "warn": 1, "note": 2}
STALE_AFTER_S = 3.0
BUSY_PCT = 10.0
"""From here on a GPU counts as busy: an idle one trains its link down to save power."""
FREE_BYTES = 2**30
"""More memory in use is that of a program, which a container may not see: the driver itself takes less."""
NEAR_C = 5.0
"""So close to where it slows itself, a GPU is hot."""
NOW_S = 10.0
"""What slowed a GPU within this time still does: a driver reports it now and then, not all the time."""
ALARM_S = 3.0
"""So much of the last minute a GPU must be slowed for an alarm, unless it is as hot as it may be."""
GHOST = "GHOST UTILIZATION"
GHOST_PCT = 99.0
GHOST_BYTES = 64 * 2**20
GHOST_POWER_SHARE = 0.25
"""A Blackwell GPU whose process was killed in the middle of a kernel may report 100 %, at some 100 W of 600,
until another one has opened and closed a context (lium-io, PR 1142). A context alone needs more memory."""
AT_CAP_SHARE = 0.97
"""From this share of its power limit on, a GPU that reports a power cap is held back by it."""
REPORTED_SHARE = 0.005
"""A smaller share of throttled time is not reported once it is over."""


@dataclass(frozen=True, slots=True)
class Slowed:
    """For which share of the recent past a GPU was throttled."""

    span_s: float = 0.0
    shares: Mapping[Cause, float | None] = field(default_factory=dict)
    """0 to 1; None or absent if unknown."""
    since_s: Mapping[Cause, float] = field(default_factory=dict)
    """How long ago each cause was last seen; absent if it was not."""
    last_minute_s: Mapping[Cause, float] = field(default_factory=dict)
    """Seconds of the last minute, of each cause that was seen within NOW_S."""


@dataclass(frozen=True, slots=True)
class GpuFinding:
    """One thing the user should know about a GPU."""

    word: str
    """In capitals for a state: `POWER-CAPPED at 600 W, 12 % of 5 min`, `LOST`, `PCIe x4 of x16`."""
    severity: Severity
    why: str
    """One sentence without its full stop."""
    short: str = ""
    """For narrow places: `POWER-CAPPED at 600 W`; empty if the word is short."""

    @property
    def style(self) -> str:
        return "dim" if self.severity == "note" else self.severity

    @property
    def brief(self) -> str:
        return self.short or self.word


def health(
    now_ns: int,
    gpu: DeviceSample,
    slowed: Slowed = Slowed(),
    processes: Sequence[ProcessSample] | Missing = (),
    user: str = "",
    stale_after_s: float = STALE_AFTER_S,
) -> tuple[GpuFinding, ...]:
    """The problems of a GPU, worst first.

    `processes` are those of all GPUs, as far as they are known; `user` is the current user, empty if unknown.
    With intervals above a second, `stale_after_s` should be more than two of them.
    """
    found = _reachable(now_ns, gpu, stale_after_s)
    if gpu.problem is None:
        here = () if isinstance(processes, Missing) else _on(gpu.device, processes)
        found += [*_slowed(gpu, slowed), *_errors(gpu), *_link(gpu)]
        foreign = sum(is_foreign(process, user) for process in here)
        if foreign:
            who = "1 process" if foreign == 1 else f"{foreign} processes"
            found.append(GpuFinding("SHARED", "warn", f"{who} of other users on this GPU"))
        if not here and gpu.source == "nvml":
            found += _ghost(gpu)
    return tuple(sorted(found, key=lambda finding: WORST_FIRST[finding.severity]))


def why_not_free(now_ns: int, gpu: DeviceSample, processes: Sequence[ProcessSample] | Missing) -> str:
    """Why nothing should be started on a GPU now, in a few words; empty if it is healthy and unused."""
    for finding in health(now_ns, gpu):
        if finding.severity != "note":
            return finding.brief
    if not isinstance(processes, Missing) and _on(gpu.device, processes):
        return "a process uses it"
    used, busy = number(gpu.values, "memory_used_bytes"), number(gpu.values, "sm_busy_pct")
    if used is not None and used > FREE_BYTES:
        return f"{format_bytes(used)} of its memory are in use"
    return f"{busy:.0f} % busy" if busy is not None and busy >= BUSY_PCT else ""


def _on(device: int, processes: Sequence[ProcessSample]) -> tuple[ProcessSample, ...]:
    return tuple(process for process in processes if any(use.device == device for use in process.uses))


def is_foreign(process: ProcessSample, user: str) -> bool:
    """Whether its user is known and not `user`, the current user, empty if unknown; or the system hides it.

    Processes of the host that a container cannot see do not count: they may be the user's.
    """
    who = process.user
    return who in (FOREIGN, HIDDEN) if isinstance(who, Missing) else bool(user) and who != user


def _ghost(gpu: DeviceSample) -> Iterator[GpuFinding]:
    keys = ("sm_busy_pct", "memory_used_bytes", "power_w", "power_limit_w")
    busy, used, power, limit = (number(gpu.values, key) for key in keys)
    if busy is None or used is None or power is None or limit is None:
        return
    if busy >= GHOST_PCT and used <= GHOST_BYTES and power <= GHOST_POWER_SHARE * limit:
        why = (
            f"{busy:.0f} % busy, no process, idle power ({power:.0f} W): left over from a killed process;"
            " opening and closing a context clears it"
        )
        yield GpuFinding(GHOST, "warn", why, "GHOST")


def is_lost(problem: Missing) -> bool:
    """Whether a GPU is gone for good, not only silent."""
    return problem.reason.startswith(LOST)


def age(seconds: float) -> str:
    """`3 s`, `5 min`, `2.0 h`: few digits, so that it seldom changes."""
    if seconds < 99.5:
        return f"{max(seconds, 0):.0f} s"
    return f"{seconds / 60:.0f} min" if seconds < 6000 else f"{seconds / 3600:.1f} h"


def _reachable(now_ns: int, gpu: DeviceSample, stale_after_s: float) -> list[GpuFinding]:
    age_s = (now_ns - gpu.t_ns) / 1e9
    stale = f"STALE {age(age_s)}" if age_s >= stale_after_s else ""
    if gpu.problem is None:
        return [GpuFinding(stale, "warn", f"the last reading is {age(age_s)} old")] if stale else []
    reason = gpu.problem.reason
    if is_lost(gpu.problem):
        return [GpuFinding("LOST", "alarm", reason)]
    return [GpuFinding(stale or "NO READING", "alarm", reason)]


def _slowed(gpu: DeviceSample, slowed: Slowed) -> Iterator[GpuFinding]:
    bits = int(number(gpu.values, "throttle_bits") or 0)
    now, limit = number(gpu.values, "temperature_c"), number(gpu.values, "temperature_limit_c")
    is_hot = now is not None and limit is not None and now >= limit - NEAR_C
    if _is_now(bits & (SW_THERMAL | HW_THERMAL), slowed, "thermal"):
        severity: Severity = "alarm" if is_hot else _severity(slowed, "thermal")
        why = "heat holds the clocks down" + (f": {now:.0f} °C" if now is not None else "")
        if now is not None and limit is not None:
            why += f", and it slows itself from {limit:.0f} °C on"
        yield _slowed_finding("THERMAL", severity, why, slowed, "thermal")
    else:
        yield from _past("slowed by heat", "heat held the clocks down", slowed, "thermal")
        if is_hot and now is not None and limit is not None:
            why = f"{now:.0f} °C: it slows itself from {limit:.0f} °C on"
            yield GpuFinding("HOT", "alarm" if now >= limit else "warn", why)
    if _is_now(bits & POWER_CAP, slowed, "power"):
        yield _power_capped(gpu, slowed)
    else:
        yield from _past("capped", "the power limit held the clocks down", slowed, "power")
    if bits & HW_POWER_BRAKE:
        why = "the box tells the GPU to draw less: its power supply is at its limit"
        yield _slowed_finding("POWER BRAKE", _severity(slowed, "other"), why, slowed, "other")
    elif bits & HW_SLOWDOWN and not bits & HW_THERMAL:
        why = "the hardware has halved the clocks or worse: heat, or the power supply"
        yield _slowed_finding("HW SLOWDOWN", _severity(slowed, "other"), why, slowed, "other")


def _severity(slowed: Slowed, cause: Cause) -> Severity:
    return "alarm" if slowed.last_minute_s.get(cause, 0.0) >= ALARM_S else "warn"


def _is_now(bits: int, slowed: Slowed, cause: Cause) -> bool:
    return bool(bits) or slowed.since_s.get(cause, NOW_S) < NOW_S


def _share_of_time(slowed: Slowed, cause: Cause) -> str:
    """`12 % of 5 min`; empty where it is too little or unknown."""
    share = slowed.shares.get(cause)
    if share is None or share < REPORTED_SHARE:
        return ""
    return f"{format_percent(share)} of {age(slowed.span_s)}"


def _slowed_finding(word: str, severity: Severity, why: str, slowed: Slowed, cause: Cause) -> GpuFinding:
    part = _share_of_time(slowed, cause)
    if not part:
        return GpuFinding(word, severity, why)
    return GpuFinding(f"{word} {part}", severity, why, f"{word} {part.partition(' of ')[0]}")


def _power_capped(gpu: DeviceSample, slowed: Slowed) -> GpuFinding:
    keys = ("power_w", "power_limit_w", "power_limit_default_w")
    power, limit, default = (number(gpu.values, key) for key in keys)
    word, why, part = "POWER-CAPPED", "the power limit holds the clocks down", _share_of_time(slowed, "power")
    if limit is None:
        return _slowed_finding(word, "warn", why, slowed, "power")
    word, why = f"{word} at {limit:.0f} W", f"{why}: {limit:.0f} W"
    if default is not None and round(limit) < round(default):
        why += f" (factory {default:.0f} W)"
    severity: Severity = "warn" if power is None or power >= AT_CAP_SHARE * limit else "note"
    return GpuFinding(f"{word}, {part}" if part else word, severity, why, word)


def _past(word: str, why: str, slowed: Slowed, cause: Cause) -> Iterator[GpuFinding]:
    """`was capped 0.8 % of 5 min, 2 min ago`."""
    since_s, part = slowed.since_s.get(cause), _share_of_time(slowed, cause)
    if since_s is not None and part:
        ago = f"{age(since_s if since_s >= 99.5 else since_s // 10 * 10)} ago"
        brief = f"was {word} {part.partition(' of ')[0]}, {ago}"
        yield GpuFinding(f"was {word} {part}, {ago}", "note", f"{why} in that time, but not now", brief)


def _errors(gpu: DeviceSample) -> Iterator[GpuFinding]:
    xids, last = number(gpu.values, "xid_count"), number(gpu.values, "xid_last")
    if xids and last is not None:
        what, severity = XIDS.get(int(last), ("an error in the log of the driver", "warn"))
        times = "" if xids == 1 else f", the last of {xids:.0f}"
        yield GpuFinding(f"Xid {last:.0f}", severity, f"{what}{times}")
    if count := number(gpu.values, "ecc_uncorrected_count"):
        many = "1 memory error" if count == 1 else f"{count:.0f} memory errors"
        why = f"{many} could not be corrected: results may be wrong"
        yield GpuFinding(f"ECC errors {count:.0f}", "alarm", why, f"ECC {count:.0f}")
    if number(gpu.values, "remapped_rows_failed"):
        why = "a bad row of the memory could not be replaced by a spare one: exchange the GPU"
        yield GpuFinding("ROW REMAP FAILED", "alarm", why)
    elif number(gpu.values, "remapped_rows_pending"):
        why = "a bad row of the memory is replaced by a spare one when the GPU is reset"
        yield GpuFinding("ROW REMAP PENDING", "warn", why)


def _link(gpu: DeviceSample) -> Iterator[GpuFinding]:
    keys = ("pcie_width", "pcie_width_max", "pcie_generation", "pcie_generation_max", "sm_busy_pct")
    width, widest, generation, best, busy = (number(gpu.values, key) or 0.0 for key in keys)
    if width and width < widest:
        why = f"the PCIe link has trained {width:.0f} of {widest:.0f} lanes: copies to the GPU are slow"
        yield GpuFinding(f"PCIe x{width:.0f} of x{widest:.0f}", "warn", why)
    elif generation and generation < best and busy >= BUSY_PCT:
        why = f"the PCIe link runs at generation {generation:.0f} of {best:.0f} while the GPU is busy"
        yield GpuFinding(f"PCIe gen{generation:.0f} of {best:.0f}", "warn", why)


WINDOW_NS, _MINUTE_NS = 300 * 1_000_000_000, 60 * 1_000_000_000
"""Throttling is reported for the last five minutes; the last one decides about alarms."""
LONGEST_STEP_NS = 30 * 1_000_000_000
"""The time between readings further apart than this counts as unknown."""
_CREEP = 0.05
"""A counter that grows by a smaller share of the time counts moments that slow nothing."""


class _Counts(NamedTuple):
    """Time throttled until then, by cause: as the driver counts it, and summed up from the reasons at each
    reading."""

    t_ns: int
    counted_ns: Mapping[Cause, float | None]
    seen_ns: Mapping[Cause, float]

    def since(self, first: _Counts, cause: Cause) -> float | None:
        """Time throttled since then; None if the driver's counter was reset."""
        start, end = first.counted_ns[cause], self.counted_ns[cause]
        if start is None or end is None:
            start, end = first.seen_ns[cause], self.seen_ns[cause]
        return None if end < start else end - start


class Throttling:
    """What slowed one GPU in the last five minutes."""

    def __init__(self) -> None:
        self._slowed_at_ns: dict[Cause, int] = {}
        """When each cause was last seen, by the reasons or because the driver's counter grew."""
        self._counts: deque[_Counts] = deque()

    def add(self, t_ns: int, values: Values) -> None:
        """Add a reading; adding it again changes nothing."""
        kept = self._counts
        step_ns = t_ns - kept[-1].t_ns if kept else 0
        if kept and not step_ns:
            return
        counted_ns = {cause: number(values, key) for cause, key, _ in CAUSES}
        reasons = number(values, "throttle_bits")
        if reasons is None and all(count is None for count in counted_ns.values()):
            return
        if not 0 <= step_ns <= LONGEST_STEP_NS:
            kept.clear()
            step_ns = 0
        before = kept[-1] if kept else _Counts(t_ns, counted_ns, dict.fromkeys(counted_ns, 0.0))
        seen_ns = dict(before.seen_ns)
        for cause, _, mask in CAUSES:
            is_told = bool(int(reasons or 0) & mask)
            was, now = before.counted_ns[cause], counted_ns[cause]
            has_grown = was is not None and now is not None and now - was > _CREEP * step_ns
            if has_grown or is_told:
                self._slowed_at_ns[cause] = t_ns
            seen_ns[cause] += step_ns * is_told
        kept.append(_Counts(t_ns, counted_ns, seen_ns))
        while len(kept) > 2 and t_ns - kept[1].t_ns >= WINDOW_NS:
            kept.popleft()
        # Readings five times a second are no better here than one a second.
        if len(kept) > 2 and kept[-2].t_ns - kept[-3].t_ns < 900_000_000:
            del kept[-2]

    @property
    def span_s(self) -> float:
        """The time that shares refer to, at most five minutes."""
        return min(self._counts[-1].t_ns - self._counts[0].t_ns, WINDOW_NS) / 1e9 if self._counts else 0.0

    @property
    def slowed(self) -> Slowed:
        """Shares of the last five minutes, or of the known part of them; as of the last reading."""
        if not self._counts:
            return Slowed()
        now = self._counts[-1]
        since_s = {cause: (now.t_ns - t_ns) / 1e9 for cause, t_ns in self._slowed_at_ns.items()}
        minutes_ago = (one for one in reversed(self._counts) if now.t_ns - one.t_ns >= _MINUTE_NS)
        begin = next(minutes_ago, self._counts[0])
        # A driver may report a reason that it does not count.
        last_minute_s = {
            cause: max(now.since(begin, cause) or 0.0, now.seen_ns[cause] - begin.seen_ns[cause]) / 1e9
            for cause, seconds in since_s.items()
            if seconds < NOW_S
        }
        shares = {cause: self.share(cause) for cause, _, _ in CAUSES}
        return Slowed(self.span_s, shares, since_s, last_minute_s)

    def share(self, cause: Cause) -> float | None:
        """Share of the last five minutes, or of the known part of them, in which a cause slowed the GPU.

        None if nothing is known yet, or the driver's counter was reset.
        """
        if len(self._counts) < 2:
            return None
        first, last = self._counts[0], self._counts[-1]
        throttled_ns = last.since(first, cause)
        return None if throttled_ns is None else min(throttled_ns / (last.t_ns - first.t_ns), 1.0)

    def __deepcopy__(self, memo: object) -> Throttling:
        """Counts never change, so that copies share them."""
        twin = copy.copy(self)
        twin._counts = self._counts.copy()
        twin._slowed_at_ns = self._slowed_at_ns.copy()
        return twin
