"""Totals since the monitor was opened: energy, cost and idle time; and throttling in the last minutes."""

from __future__ import annotations

import copy
from collections import deque
from dataclasses import dataclass

from gputui.analysis.health import CAUSES, Cause, Slowed
from gputui.metrics import number
from gputui.model.live import DeviceSample

WINDOW_NS = 300 * 1_000_000_000
"""Throttling is reported for the last five minutes."""
LONGEST_STEP_NS = 30 * 1_000_000_000
"""The time between readings further apart than this counts as unknown."""
IDLE_PCT = 1.0
"""A GPU that is busy for less than this share of the time is idle."""
_HOUR_NS = 3600 * 1_000_000_000


@dataclass(frozen=True, slots=True)
class _Counts:
    """Time throttled up to one instant, by cause in the order of CAUSES."""

    t_ns: int
    counted_ns: tuple[float | None, ...]
    """As counted by the driver."""
    seen_ns: tuple[float, ...]
    """Summed up from the reasons at each reading, for drivers that do not count."""


class Account:
    """What one GPU has used since the monitor was opened."""

    __slots__ = (
        "_counts",
        "_energy_mj",
        "_idle_from_ns",
        "_power_w",
        "_seen_ns",
        "_slowed_at_ns",
        "_t_ns",
        "energy_is_estimate",
        "energy_j",
        "has_energy",
        "idle_ns",
    )

    def __init__(self) -> None:
        self.energy_j = 0.0
        self.has_energy = False
        """False while its energy is unknown."""
        self.energy_is_estimate = False
        """True when part of it was integrated from power, for lack of the driver's counter."""
        self.idle_ns = 0
        self._t_ns: int | None = None
        self._energy_mj: float | None = None
        self._power_w: float | None = None
        self._seen_ns = (0.0,) * len(CAUSES)
        self._slowed_at_ns: dict[Cause, int] = {}
        """When each cause was last seen, by the reasons or because the driver's counter grew."""
        self._idle_from_ns: int | None = None
        """Since when it has been idle; None while it works."""
        self._counts: deque[_Counts] = deque()

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
        bits = number(values, "throttle_bits")
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
            if bits:
                self._seen_ns = tuple(
                    seen + (step if int(bits) & mask else 0)
                    for seen, (_, _, mask) in zip(self._seen_ns, CAUSES, strict=True)
                )
        self._t_ns, self._energy_mj, self._power_w = device.t_ns, energy, power
        counted = tuple(number(values, key) for _, key, _ in CAUSES)
        before = self._counts[-1].counted_ns if self._counts else counted
        for (cause, _, mask), was, now in zip(CAUSES, before, counted, strict=True):
            has_grown = was is not None and now is not None and now > was
            if has_grown or int(bits or 0) & mask:
                self._slowed_at_ns[cause] = device.t_ns
        if bits is not None or any(count is not None for count in counted):
            self._count(_Counts(device.t_ns, counted, self._seen_ns))

    def _use(self, step_ns: int, energy: float | None, power: float | None) -> None:
        if energy is not None and self._energy_mj is not None and energy >= self._energy_mj:
            self.energy_j += (energy - self._energy_mj) / 1000
            self.has_energy = True
        elif power is not None and self._power_w is not None:
            self.energy_j += (power + self._power_w) / 2 * step_ns / 1e9
            self.energy_is_estimate = self.has_energy = True

    def _count(self, counts: _Counts) -> None:
        kept = self._counts
        if kept and counts.t_ns - kept[-1].t_ns > LONGEST_STEP_NS:
            kept.clear()
        kept.append(counts)
        while len(kept) > 2 and counts.t_ns - kept[1].t_ns >= WINDOW_NS:
            kept.popleft()
        # Readings five times a second are no better here than one a second.
        if len(kept) > 2 and kept[-2].t_ns - kept[-3].t_ns < 900_000_000:
            del kept[-2]

    @property
    def throttle_span_s(self) -> float:
        """The time that shares refer to, at most five minutes."""
        if len(self._counts) < 2:
            return 0.0
        return min(self._counts[-1].t_ns - self._counts[0].t_ns, WINDOW_NS) / 1e9

    @property
    def slowed(self) -> Slowed:
        """Shares of the last five minutes, or of the known part of them."""
        shares = {name: self.throttled_share(name) for name, _, _ in CAUSES}
        now_ns = self._t_ns or 0
        since_s = {cause: (now_ns - t_ns) / 1e9 for cause, t_ns in self._slowed_at_ns.items()}
        return Slowed(self.throttle_span_s, shares, since_s)

    def idle_since_ns(self, now_ns: int) -> int:
        """For how long it has been idle until now; 0 while it works."""
        return 0 if self._idle_from_ns is None else max(now_ns - self._idle_from_ns, 0)

    def throttled_share(self, cause: Cause) -> float | None:
        """Share of the last five minutes, or of the known part of them, in which a cause slowed the GPU.

        None if nothing is known yet, or the driver's counter was reset.
        """
        which = next(i for i, (name, _, _) in enumerate(CAUSES) if name == cause)
        if len(self._counts) < 2:
            return None
        first, last = self._counts[0], self._counts[-1]
        start, end = first.counted_ns[which], last.counted_ns[which]
        if start is None or end is None:
            start, end = first.seen_ns[which], last.seen_ns[which]
        if last.t_ns <= first.t_ns or end < start:
            return None
        return min((end - start) / (last.t_ns - first.t_ns), 1.0)

    def copied(self) -> Account:
        twin = copy.copy(self)
        twin._counts = self._counts.copy()
        twin._slowed_at_ns = self._slowed_at_ns.copy()
        return twin


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

    def copied(self) -> Ledger:
        twin = copy.copy(self)
        twin._accounts = {device: account.copied() for device, account in self._accounts.items()}
        return twin
