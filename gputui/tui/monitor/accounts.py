"""Totals since the monitor was opened: energy, cost and idle time; and throttling in the last minutes."""

from __future__ import annotations

from dataclasses import dataclass, field

from gputui.analysis.throttling import LONGEST_STEP_NS, Throttling
from gputui.metrics import number
from gputui.model.telemetry import DeviceSample

IDLE_PCT = 1.0
"""A GPU that is busy for less than this share of the time is idle."""
_HOUR_NS = 3600 * 1_000_000_000


@dataclass(slots=True)
class Account:
    """What one GPU has used since the monitor was opened."""

    energy_j: float = 0.0
    has_energy: bool = False
    """False while its energy is unknown."""
    energy_is_estimate: bool = False
    """True when part of it was integrated from power, for lack of the driver's counter."""
    idle_ns: int = 0
    throttling: Throttling = field(default_factory=Throttling)
    _t_ns: int | None = None
    _energy_mj: float | None = None
    _power_w: float | None = None
    _idle_from_ns: int | None = None
    """Since when it has been idle; None while it works."""

    def add(self, device: DeviceSample) -> None:
        """Add a reading; adding it again changes nothing."""
        if device.problem is not None:
            self._t_ns = None
            return
        if self._t_ns is not None and device.t_ns <= self._t_ns:
            return
        values = device.values
        step = device.t_ns - self._t_ns if self._t_ns is not None else 0
        energy, power = number(values, "energy_mj"), number(values, "power_w")
        busy = number(values, "sm_busy_pct")
        is_idle = busy is not None and busy < IDLE_PCT
        if not is_idle or step > LONGEST_STEP_NS:
            self._idle_from_ns = None
        if is_idle and self._idle_from_ns is None:
            self._idle_from_ns = device.t_ns
        if 0 < step <= LONGEST_STEP_NS:
            self._use(step, energy, power)
            if is_idle:
                self.idle_ns += step
        self._t_ns, self._energy_mj, self._power_w = device.t_ns, energy, power
        self.throttling.add(device.t_ns, values)

    def _use(self, step_ns: int, energy: float | None, power: float | None) -> None:
        if energy is not None and self._energy_mj is not None and energy >= self._energy_mj:
            self.energy_j += (energy - self._energy_mj) / 1000
            self.has_energy = True
        elif power is not None and self._power_w is not None:
            self.energy_j += (power + self._power_w) / 2 * step_ns / 1e9
            self.energy_is_estimate = self.has_energy = True

    def idle_since_ns(self, now_ns: int) -> int:
        """For how long it has been idle until now; 0 while it works."""
        return 0 if self._idle_from_ns is None else max(now_ns - self._idle_from_ns, 0)


class Ledger:
    """The accounts of all GPUs, and the price of the box."""

    def __init__(self, usd_per_hour: float | None = None) -> None:
        self.usd_per_hour = usd_per_hour
        """Of the whole box."""
        self._accounts: dict[int, Account] = {}
        self._first_ns: int | None = None
        self.elapsed_ns = 0

    def add(self, t_ns: int, gpus: tuple[DeviceSample, ...]) -> None:
        """Add one sample of all GPUs."""
        if self._first_ns is None:
            self._first_ns = t_ns
        self.elapsed_ns = t_ns - self._first_ns
        for device in gpus:
            self.account(device.device).add(device)

    def account(self, device: int) -> Account:
        if device not in self._accounts:
            self._accounts[device] = Account()
        return self._accounts[device]

    def cost_usd(self, elapsed_ns: float, share: float = 1.0) -> float | None:
        """The cost of a share of the box over a time; None without a price."""
        return None if self.usd_per_hour is None else self.usd_per_hour * share * elapsed_ns / _HOUR_NS
