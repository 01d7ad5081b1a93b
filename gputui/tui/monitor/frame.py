"""What a frame of the Monitor is drawn from, with totals since it was opened, and what all its parts need:
charts, words, amounts of money.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace

from gputui.analysis.health import LONGEST_STEP_NS, NEAR_C, GpuFinding, Severity, Throttling, is_lost
from gputui.document.spans import Span, cut, width_of
from gputui.metrics import Metric, number, word
from gputui.model.absent import Missing
from gputui.model.telemetry import DeviceSample, LiveSample
from gputui.model.units import counted, format_usd, with_prefix
from gputui.tui.monitor.history import FULL_FROM, SECOND_NS, Chart, History, LoadLevel, SteadyLoads
from gputui.tui.widgets.cells import clean

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
            if energy is not None and self._energy_mj is not None and energy >= self._energy_mj:
                self.energy_j += (energy - self._energy_mj) / 1000
                self.has_energy = True
            elif power is not None and self._power_w is not None:
                self.energy_j += (power + self._power_w) / 2 * step / 1e9
                self.energy_is_estimate = self.has_energy = True
            if is_idle:
                self.idle_ns += step
        self._t_ns, self._energy_mj, self._power_w = device.t_ns, energy, power
        self.throttling.add(device.t_ns, values)

    def idle_since_ns(self, now_ns: int) -> int:
        """For how long it has been idle until now; 0 while it works."""
        return 0 if self._idle_from_ns is None else max(now_ns - self._idle_from_ns, 0)


class Ledger:
    def __init__(self, usd_per_hour: float | None = None) -> None:
        self.usd_per_hour = usd_per_hour
        """Of the whole box."""
        self.accounts: defaultdict[int, Account] = defaultdict(Account)
        self._first_ns: int | None = None
        self.elapsed_ns = 0

    def add(self, t_ns: int, gpus: tuple[DeviceSample, ...]) -> None:
        if self._first_ns is None:
            self._first_ns = t_ns
        self.elapsed_ns = t_ns - self._first_ns
        for device in gpus:
            self.accounts[device.device].add(device)

    def cost_usd(self, elapsed_ns: float, share: float = 1.0) -> float | None:
        """The cost of a share of the box over a time; None without a price."""
        return None if self.usd_per_hour is None else self.usd_per_hour * share * elapsed_ns / _HOUR_NS


_LATER_NS = 617_000_000
"""Each GPU's charts move this much later than those of the one before: all at once would fill a link."""
_SHORT_SPANS_NS = tuple(seconds * SECOND_NS for seconds in (10, 20, 30, 60, 120, 300, 600, 1800))


def span_of(known_ns: int, longest_ns: int) -> int:
    """The length of charts: the shortest of a few lengths that holds what is known, at most `longest_ns`.

    So they fill within seconds, and are drawn anew a few times in the first minutes.
    """
    return next((span for span in _SHORT_SPANS_NS if known_ns <= span < longest_ns), longest_ns)


def span_text(span_ns: int) -> str:
    """`30 s`, `5 min`."""
    seconds = span_ns // SECOND_NS
    return f"{seconds} s" if seconds < 60 else f"{seconds // 60} min"


def new_chart(device: int, metric: str, width: int, rows: int, span_ns: int) -> Chart:
    """The chart of a metric of a device in this size; what draws frames keeps those in use."""
    return Chart(width, rows, span_ns, device % 16 * _LATER_NS)


@dataclass(frozen=True, slots=True)
class Frame:
    sample: LiveSample
    now_ns: int
    span_ns: int
    metrics: tuple[Metric, ...]
    """Of GPUs, most important first."""
    history: History
    ledger: Ledger
    charts: Callable[[int, str, int, int, int], Chart]
    """`new_chart`, or what keeps them."""
    loads: SteadyLoads
    stale_after_s: float
    gpus: tuple[DeviceSample, ...]
    """Without MIG instances."""
    instances: Mapping[int, Sequence[DeviceSample]]
    """MIG instances by GPU; empty for a whole one."""
    findings: Mapping[int, Sequence[GpuFinding]]
    """By device, worst first."""
    selected: int | None

    def chart(self, device: int, metric: Metric, high: float, width: int, rows: int) -> tuple[str, ...]:
        """The history of a metric, top row first; it ends at the newest reading, or now if that is stale."""
        series = self.history.series(device, metric.id)
        end_ns = self.now_ns
        if series is not None and series.last_ns is not None:
            is_stale = end_ns - series.last_ns > self.stale_after_s * SECOND_NS
            end_ns = end_ns if is_stale else series.last_ns
        return self.charts(device, metric.id, width, rows, self.span_ns).draw(series, end_ns, high)

    def gauge(
        self, key: object, value: float | None, high: float, width: int, style: str
    ) -> tuple[Span, Span]:
        filled_part, rest = self.loads.gauge(key, value, high, width, self.now_ns)
        return Span(filled_part, style), Span(rest, "track")

    def ceiling(self, device: DeviceSample, metric: Metric) -> float:
        """The top of a metric's chart: its limit, or a round number above all that is in sight."""
        full = metric.full_scale(device.values)
        if full:
            return full
        series = self.history.series(device.device, metric.id)
        ring = None if series is None else series.ring_for(self.span_ns)
        seen = ring and ring.over(self.now_ns - self.span_ns, self.now_ns + 1)
        return metric.top({}, seen[1]) if seen else 1.0

    def load_of_busy(self, device: DeviceSample, busy_pct: float | None) -> LoadLevel:
        """Idle or working; a GPU that cannot be read is shown as idle."""
        if busy_pct is None or device.problem is not None:
            return LoadLevel.IDLE
        return self.loads.at((device.device, "busy"), busy_pct, self.now_ns)

    def load_of_memory(self, device: DeviceSample) -> LoadLevel:
        used, total = number(device.values, "memory_used_bytes"), number(device.values, "memory_total_bytes")
        if used is None or not total or device.problem is not None:
            return LoadLevel.IDLE
        share_pct = 100 * used / total
        return self.loads.at((device.device, "memory"), share_pct, self.now_ns, limit_from=FULL_FROM)

    def load_of_power(self, device: DeviceSample) -> LoadLevel:
        """Near its limit while it draws what its power cap allows."""
        if device.problem is not None:
            return LoadLevel.IDLE
        share = 90.0 if self._is(device, "warn", "POWER-CAPPED") else 89.0
        held = self.loads.at((device.device, "power"), share, self.now_ns, limit_from=90.0)
        if held is LoadLevel.NEAR_LIMIT:
            return held
        busy_pct = number(device.values, "sm_busy_pct")
        return LoadLevel.WORKING if busy_pct is None else self.load_of_busy(device, busy_pct)

    def _is(self, device: DeviceSample, severity: Severity, *words: str) -> bool:
        """Whether one of its findings begins with one of these words and is that severe."""
        findings = self.findings.get(device.device, ())
        return any(one.severity == severity and one.word.startswith(words) for one in findings)

    def load_of_temperature(self, device: DeviceSample) -> LoadLevel:
        """Near its limit within 5 degrees of where the GPU slows itself."""
        celsius = number(device.values, "temperature_c")
        limit = number(device.values, "temperature_limit_c")
        if celsius is None or limit is None or device.problem is not None:
            return LoadLevel.WORKING
        if self._is(device, "alarm", "HOT", "THERMAL"):
            return LoadLevel.FAILED
        key = (device.device, "temperature")
        return self.loads.at(key, celsius, self.now_ns, idle_below=-100.0, limit_from=limit - NEAR_C)


FIGURE_STYLES: tuple[str, ...] = ("dim", "", "warn", "alarm")
"""Of figures by LoadLevel: only gauges and charts have the hue of their family."""


def findings_spans(findings: Sequence[GpuFinding], room: int, *, brief: bool = False) -> list[Span]:
    """The names of findings that fit, worst first, and how many do not."""
    spans: list[Span] = []
    for place, finding in enumerate(findings):
        text, behind = clean(finding.brief if brief else finding.word), len(findings) - place - 1
        rest = f" +{behind}" if behind else ""
        if spans and sum(len(span.text) for span in spans) + 2 + len(text) + len(rest) > room:
            spans.append(Span(f" +{behind + 1}", finding.style))
            break
        spans += [Span("  " if spans else ""), Span(text, finding.style)]
    return spans


def short_name(device: DeviceSample) -> str:
    """Without the vendor: the part that distinguishes GPUs."""
    name = clean(word(device.values, "name")[:256]).strip()
    return name.removeprefix("NVIDIA ").removeprefix("AMD ").removesuffix(" (demo)") or "GPU without a name"


def device_title(device: DeviceSample) -> str:
    """`0 H200 SXM`, `0:1 1g.10gb`."""
    if device.mig_index is not None:
        return f"{device.label} {profile_text(device)}"
    return f"{device.label} {short_name(device)}"


def profile_text(device: DeviceSample) -> str:
    """`1g.10gb`; the driver's name of an instance if its profile is unknown."""
    return clean(device.mig_profile or word(device.values, "name")[:256]).strip() or "instance"


def slices_of(frame: Frame, device: DeviceSample) -> str:
    """`5 slices` for a GPU divided by MIG, else `whole`."""
    count = len(frame.instances[device.device])
    if count:
        return counted(count, "slice")
    return "no slices" if device.values.get("mig_mode") == 1 else "whole"


def is_idle(frame: Frame, device: DeviceSample) -> bool:
    """Whether hardly anything runs on it, by what the driver reports of it or of its MIG instances."""
    for part in frame.instances.get(device.device) or (device,):
        share = number(part.values, "sm_busy_pct" if part.parent is None else "gpm_sm_active_pct")
        if share is None or frame.load_of_busy(part, share) is not LoadLevel.IDLE:
            return False
    return True


def idle_text(frame: Frame, device: DeviceSample) -> str:
    """`idle 4 min`; whole minutes, so that it seldom changes."""
    minutes = frame.ledger.accounts[device.device].idle_since_ns(frame.now_ns) // (60 * SECOND_NS)
    return f"idle {minutes} min" if minutes < 100 else f"idle {minutes // 60} h"


def account_text(frame: Frame, accounts: Sequence[Account]) -> str:
    """What GPUs of the box have used: `used in 35 min: 1.30 MJ, $2.68, idle $0.31`, of several without the
    energy, which moves all the time. Without a price, energy and for how long they were idle.
    """
    ledger, gpus_of_box = frame.ledger, max(len(frame.gpus), 1)
    parts = []
    of_several = " of GPU time" * (len(accounts) > 1)
    if not (of_several and ledger.usd_per_hour) and any(account.has_energy for account in accounts):
        digits, prefix = with_prefix(sum(account.energy_j for account in accounts))
        about = "about " if any(account.energy_is_estimate for account in accounts) else ""
        parts.append(f"{about}{digits} {prefix}J")
    cost = ledger.cost_usd(ledger.elapsed_ns, len(accounts) / gpus_of_box)
    if cost is not None:
        parts.append(_usd(cost))
    idle_ns = sum(account.idle_ns for account in accounts)
    idle_cost = ledger.cost_usd(idle_ns, 1 / gpus_of_box)
    if idle_ns:
        parts.append(f"idle {_elapsed(idle_ns) + of_several if idle_cost is None else _usd(idle_cost)}")
    return f"used in {_elapsed(ledger.elapsed_ns)}: {', '.join(parts)}" if parts else ""


def _usd(amount: float) -> str:
    return f"${amount:.2f}" if amount < 0.0995 else format_usd(amount)


def _elapsed(nanoseconds: float) -> str:
    """Whole minutes, so that it seldom changes."""
    minutes = int(nanoseconds // 60_000_000_000)
    if minutes < 1:
        return "<1 min"
    return f"{minutes} min" if minutes < 100 else f"{minutes // 60} h {minutes % 60} min"


def account_span(frame: Frame) -> Span:
    return Span(account_text(frame, [frame.ledger.accounts[gpu.device] for gpu in frame.gpus]), "dim")


def why_spans(frame: Frame, gpu: DeviceSample, room: int) -> list[Span]:
    """What ails a GPU, and why, as far as there is room."""
    findings = frame.findings[gpu.device]
    if not findings:
        return []
    first = findings[0]
    text = f"{clean(first.word)}: {clean(first.why)}"
    if width_of(text) > room:
        return [Span(cut(f"{clean(first.brief)}: {clean(first.why)}", room), first.style)]
    return [Span(text, first.style), *(Span(clean(one.brief), one.style) for one in findings[1:])]


def parents_of(gpus: Sequence[DeviceSample]) -> list[DeviceSample]:
    """GPUs without their instances; an instance whose GPU is not in the sample counts as one."""
    names = {device.device for device in gpus if device.parent is None}
    return [
        _without_readings(device) if device.problem is not None and is_lost(device.problem) else device
        for device in gpus
        if device.parent is None or device.parent not in names
    ]


_OF_THE_DEVICE = {
    *("name", "uuid", "driver", "pci_address", "memory_total_bytes", "power_limit_w"),
    *("temperature_limit_c", "sm_clock_max_mhz", "memory_clock_max_mhz"),
}


def _without_readings(device: DeviceSample) -> DeviceSample:
    """A lost GPU with its static properties: its last readings are no longer true."""
    gone = device.problem or Missing("the GPU is lost")
    values = {key: value if key in _OF_THE_DEVICE else gone for key, value in device.values.items()}
    return replace(device, values=values)
