"""What adds up while the monitor is open: energy, money, idle time, and time throttled in the last minutes."""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass

from gputui.model.live import DeviceSample
from gputui.tui.monitor.metrics import number

WINDOW_NS = 300 * 1_000_000_000
"""Throttling is told for the last five minutes."""
LONGEST_STEP_NS = 30 * 1_000_000_000
"""Readings further apart than this say nothing of the time between them."""
IDLE_PCT = 1.0
"""A GPU that is busy for less than this share of the time is idle."""
_HOUR_NS = 3600 * 1_000_000_000

CAUSES: tuple[tuple[str, str], ...] = (
    ("power", "throttled_power_ns"),
    ("thermal", "throttled_thermal_ns"),
    ("other", "throttled_other_ns"),
)


@dataclass(frozen=True, slots=True)
class _Counts:
    """Throttle counters at one instant."""

    t_ns: int
    throttled_ns: tuple[float | None, ...]
    """By cause, in the order of CAUSES."""


class Account:
    """What one GPU has used since the monitor was opened."""

    __slots__ = ("_counts", "_energy_mj", "_power_w", "_t_ns", "energy_is_estimate", "energy_j", "idle_ns", "known_ns")

    def __init__(self) -> None:
        self.energy_j = 0.0
        self.energy_is_estimate = False
        """True when a stretch was added up from power, for want of the driver's counter."""
        self.idle_ns = 0
        self.known_ns = 0
        """Time for which it is known whether it was idle."""
        self._t_ns: int | None = None
        self._energy_mj: float | None = None
        self._power_w: float | None = None
        self._counts: deque[_Counts] = deque()

    def add(self, device: DeviceSample) -> None:
        """One reading; the same one again changes nothing."""
        if device.problem is not None:
            self._t_ns = None
            return
        if self._t_ns == device.t_ns:
            return
        values = device.values
        step = device.t_ns - self._t_ns if self._t_ns is not None else 0
        energy, power = number(values, "energy_mj"), number(values, "power_w")
        if 0 < step <= LONGEST_STEP_NS:
            self._use(step, energy, power)
            busy = number(values, "sm_busy_pct")
            if busy is not None:
                self.known_ns += step
                self.idle_ns += step if busy < IDLE_PCT else 0
        self._t_ns, self._energy_mj, self._power_w = device.t_ns, energy, power
        throttled = tuple(number(values, key) for _, key in CAUSES)
        if any(count is not None for count in throttled):
            if self._counts and device.t_ns - self._counts[-1].t_ns > LONGEST_STEP_NS:
                self._counts.clear()
            self._counts.append(_Counts(device.t_ns, throttled))
            while len(self._counts) > 2 and device.t_ns - self._counts[1].t_ns >= WINDOW_NS:
                self._counts.popleft()
            self._thin()

    def _use(self, step_ns: int, energy: float | None, power: float | None) -> None:
        if energy is not None and self._energy_mj is not None and energy >= self._energy_mj:
            self.energy_j += (energy - self._energy_mj) / 1000
        elif power is not None and self._power_w is not None:
            self.energy_j += (power + self._power_w) / 2 * step_ns / 1e9
            self.energy_is_estimate = True

    def _thin(self) -> None:
        """Readings ten times a second are no better here than one a second."""
        if len(self._counts) > 2 and self._counts[-2].t_ns - self._counts[-3].t_ns < 900_000_000:
            del self._counts[-2]

    def throttled_share(self, cause: str) -> float | None:
        """Part of the last five minutes, or of what there is of them, in which a cause slowed the GPU.

        None where the driver does not count it, or nothing is known yet.
        """
        which = next(i for i, (name, _) in enumerate(CAUSES) if name == cause)
        if len(self._counts) < 2:
            return None
        first, last = self._counts[0], self._counts[-1]
        start, end = first.throttled_ns[which], last.throttled_ns[which]
        if start is None or end is None or last.t_ns <= first.t_ns or end < start:
            return None
        return min((end - start) / (last.t_ns - first.t_ns), 1.0)


class Ledger:
    """The accounts of all GPUs, and what the box costs."""

    def __init__(self, usd_per_hour: float | None = None) -> None:
        self.usd_per_hour = usd_per_hour
        self._accounts: dict[int, Account] = {}
        self._first_ns: int | None = None
        self.elapsed_ns = 0

    def add(self, t_ns: int, gpus: tuple[DeviceSample, ...]) -> None:
        """One sample of all GPUs."""
        if self._first_ns is None:
            self._first_ns = t_ns
        self.elapsed_ns = t_ns - self._first_ns
        for device in gpus:
            self.account(device.device).add(device)

    def account(self, device: int) -> Account:
        """What one GPU has used."""
        return self._accounts.setdefault(device, Account())

    def cost_usd(self, elapsed_ns: float, share: float = 1.0) -> float | None:
        """What a part of the box costs for a time; None without a price."""
        return None if self.usd_per_hour is None else self.usd_per_hour * share * elapsed_ns / _HOUR_NS
