"""What panes need to draw a frame, and the charts they keep from one frame to the next."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from gputui.analysis.health import GpuFinding
from gputui.model.absent import Missing
from gputui.model.live import DeviceSample
from gputui.model.units import counted, format_usd, with_prefix
from gputui.tui.monitor.accounts import IDLE_PCT, Account, Ledger
from gputui.tui.monitor.metrics import PaneMetric, Units, number, word
from gputui.tui.terminal.lines import Line, Span
from gputui.tui.widgets.cells import clean, cut, fitted, left, width_of
from gputui.tui.widgets.charts import Chart, gauge, round_ceiling
from gputui.tui.widgets.history import History, Series

NEARLY_FULL = 0.95
"""From this share on, memory and temperature are drawn as a warning."""


class ChartPool:
    """Charts by position and size; those that the last frame did not use are dropped."""

    def __init__(self) -> None:
        self._last: dict[tuple[object, ...], Chart] = {}
        self._now: dict[tuple[object, ...], Chart] = {}

    def chart(self, key: tuple[int, str], width: int, rows: int, span_ns: int) -> Chart:
        """The chart of a metric of a device in this size."""
        full = (*key, width, rows, span_ns)
        kept = self._now.get(full) or self._last.get(full)
        if kept is None:
            kept = Chart(width, rows, span_ns)
        self._now[full] = kept
        return kept

    def turn(self) -> None:
        """Call it after each frame."""
        self._last, self._now = self._now, {}


@dataclass(frozen=True, slots=True)
class PaneContext:
    """What panes need besides a sample."""

    now_ns: int
    span_ns: int
    """How far charts reach back."""
    units: Units
    metrics: tuple[PaneMetric, ...]
    """Of GPUs, most important first."""
    history: History
    ledger: Ledger
    charts: ChartPool
    ascii_only: bool
    stale_after_s: float
    """Readings older than this are marked as stale."""


def metric_lines(
    context: PaneContext, device: DeviceSample, metric: PaneMetric, width: int, rows: int = 1
) -> list[Line]:
    """One metric: its name, value, bar, chart and a note with a reference value."""
    values = device.values
    amount = metric.amount(values)
    shown = metric.show(values, context.units)
    series = context.history.series(device.device, metric.id)
    label = Span(f"{metric.label[:6]:<7}", "dim")
    text = cut(shown.text, 10)
    value = Span(text + " " * (11 - width_of(text)), "dim" if device.problem is not None else "")
    if amount is None and series is None:
        missing = values.get(metric.key)
        why = missing.reason if isinstance(missing, Missing) else ""
        blank = fitted((), width)
        return [fitted((label, value, Span(clean(why), "dim")), width), *[blank] * (rows - 1)]
    note_width = min(max(width // 4, 12), 22) if width >= 54 else 0
    bar_width = 10 if width >= 74 else 0
    chart_width = width - 18 - (note_width + 2 if note_width else 0) - (bar_width + 2 if bar_width else 0)
    high = metric.high(values)
    ceiling = high if high is not None and high > 0 else _ceiling(series, context)
    drawn: Sequence[str] = ()
    if chart_width > 0:
        chart = context.charts.chart((device.device, metric.id), chart_width, rows, context.span_ns)
        drawn = chart.draw(series, context.now_ns, ceiling)
    spans = [label, value]
    lead = 18
    if bar_width:
        filled, rest = gauge(amount, high or 0.0, bar_width)
        is_full = metric.warns and amount is not None and bool(high) and amount / (high or 1.0) >= NEARLY_FULL
        spans += [Span(filled, "warn" if is_full else "accent"), Span(rest + "  ", "dim")]
        lead += bar_width + 2
    if not drawn:
        return [fitted(spans, width), *[fitted((), width)] * (rows - 1)]
    # The parts have exact widths, so measuring again is unnecessary.
    spans.append(Span(drawn[0], "chart"))
    if note_width:
        spans.append(Span("  " + left(_note(clean(shown.note), note_width), note_width), "dim"))
    lines = [tuple(span for span in spans if span.text)]
    end = " " * (note_width + 2 if note_width else 0)
    for row in drawn[1:]:
        lines.append((Span(" " * lead), Span(row, "chart"), *((Span(end),) if end else ())))
    return lines


def _note(text: str, width: int) -> str:
    while width_of(text) > width and ", " in text:
        text = text.rpartition(", ")[0]
    return cut(text, width)


def _ceiling(series: Series | None, context: PaneContext) -> float:
    if series is None:
        return 1.0
    bucket = series.over(context.now_ns - context.span_ns, context.now_ns + 1, context.span_ns)
    return round_ceiling(bucket.greatest) if bucket is not None else 1.0


def findings_spans(findings: Sequence[GpuFinding], *, brief: bool = False) -> list[Span]:
    """The short names of findings, worst first."""
    spans: list[Span] = []
    for finding in findings:
        if spans:
            spans.append(Span(" "))
        spans.append(Span(clean(finding.brief if brief else finding.word), finding.severity))
    return spans


def device_title(device: DeviceSample) -> str:
    """`0 H200 SXM`, `0:1 1g.10gb`."""
    if device.mig_index is not None:
        return f"{device.label} {profile_text(device)}"
    name = clean(word(device.values, "name")[:256]).strip()
    return f"{device.label} {name or 'GPU without a name'}"


def profile_text(device: DeviceSample) -> str:
    """`1g.10gb`; the driver's name of an instance if its profile is unknown."""
    return clean(device.mig_profile or word(device.values, "name")[:256]).strip() or "instance"


def instances_text(device: DeviceSample, count: int) -> str:
    """`5 slices` for a GPU divided by MIG; empty for a whole one."""
    if count:
        return counted(count, "slice")
    return "MIG without slices" if device.values.get("mig_mode") == 1 else ""


def is_full(device: DeviceSample) -> bool:
    """Whether hardly any memory is free."""
    used, total = number(device.values, "memory_used_bytes"), number(device.values, "memory_total_bytes")
    return used is not None and total is not None and total > 0 and used / total >= NEARLY_FULL


def instance_state(device: DeviceSample, findings: Sequence[GpuFinding]) -> list[Span]:
    """The end of an instance's row."""
    if device.problem is not None:
        return [Span(clean(device.problem.reason), "alarm")]
    spans = findings_spans(findings, brief=True)
    if is_full(device):
        return [Span("FULL ", "warn"), *spans]
    active = number(device.values, "gpm_sm_active_pct")
    return (
        [*spans, Span(" idle" if spans else "idle", "dim")]
        if active is not None and active < IDLE_PCT
        else spans
    )


def account_text(context: PaneContext, accounts: Sequence[Account], gpus_of_box: int) -> str:
    """The account of one GPU: `since start 35 min · 1.30 MJ · $2.68, of it idle 4 min = $0.31`.

    Of several: `all GPUs 35 min · 9.10 MJ · $21.40, idle 41 min of GPU time = $3.14`.
    """
    ledger = context.ledger
    are_several = len(accounts) > 1
    parts = [("all GPUs " if are_several else "since start ") + _elapsed(ledger.elapsed_ns)]
    if any(account.has_energy for account in accounts):
        digits, prefix = with_prefix(sum(account.energy_j for account in accounts))
        about = "about " if any(account.energy_is_estimate for account in accounts) else ""
        parts.append(f"{about}{digits} {prefix}J")
    share = len(accounts) / max(gpus_of_box, 1)
    cost = ledger.cost_usd(ledger.elapsed_ns, share)
    idle_ns = sum(account.idle_ns for account in accounts)
    idle = f"idle {_elapsed(idle_ns)}" if idle_ns else ""
    if are_several and idle:
        idle += " of GPU time"
    if cost is None:
        return " · ".join([*parts, *([idle] if idle else [])])
    idle_cost = ledger.cost_usd(idle_ns, 1 / max(gpus_of_box, 1))
    if idle and idle_cost is not None:
        idle = f"{',' if are_several else ', of it'} {idle} = {_usd(idle_cost)}"
    return " · ".join([*parts, _usd(cost) + idle])


def used_in_short(context: PaneContext, accounts: Sequence[Account]) -> str:
    """The account of all GPUs, abbreviated: `$2.68, idle $0.31`, or `1.30 MJ` without a price."""
    ledger = context.ledger
    cost = ledger.cost_usd(ledger.elapsed_ns)
    if cost is not None:
        idle_ns = sum(account.idle_ns for account in accounts)
        idle = ledger.cost_usd(idle_ns, 1 / len(accounts))
        return _usd(cost) + (f", idle {_usd(idle)}" if idle_ns and idle is not None else "")
    if not any(account.has_energy for account in accounts):
        return ""
    digits, prefix = with_prefix(sum(account.energy_j for account in accounts))
    return f"{digits} {prefix}J"


def _usd(amount: float) -> str:
    return f"${amount:.2f}" if amount < 0.0995 else format_usd(amount)


def _elapsed(nanoseconds: float) -> str:
    """Whole minutes, so that it seldom changes."""
    minutes = int(nanoseconds // 60_000_000_000)
    if minutes < 1:
        return "<1 min"
    return f"{minutes} min" if minutes < 100 else f"{minutes // 60} h {minutes % 60} min"
