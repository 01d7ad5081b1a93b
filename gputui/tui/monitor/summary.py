"""The second line: the whole box in one sentence."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence

from gputui.analysis.health import is_lost
from gputui.metrics import memory_scale, number, three_digits_of, with_unit
from gputui.model.telemetry import DeviceSample
from gputui.model.units import counted, format_usd
from gputui.tui.monitor.frame import Frame, findings_spans, idle_text, is_idle, short_name
from gputui.tui.terminal.lines import Line, Span
from gputui.tui.widgets.cells import fitted, line_width
from gputui.tui.widgets.load import LoadLevel

_LEVELS = 9
"""Of how much the line holds."""
_ROOMY_FROM = 150
"""From this width on, GPUs that are held back are counted by the reason."""


def summary_line(frame: Frame, width: int) -> Line:
    """`8x H200   6 busy  1 idle  1 LOST   3.4 of 4.8 kW   655 of 983 GiB   $28.00/h  $7.00 unused`."""
    if not frame.gpus:
        return fitted((Span("no GPU", "warn"), Span("  host only", "dim")), width)
    line: Line = ()
    for level in range(_LEVELS):  # what ails GPUs stays to the end: their rows may be out of sight
        parts = [part for part in _parts(frame, width, level) if part]
        gap = Span("   " if level == 0 else "  ")
        line = tuple(span for place, part in enumerate(parts) for span in (*((gap,) if place else ()), *part))
        if line_width(line) <= width:
            break
    return fitted(line, width)


def _parts(frame: Frame, width: int, level: int) -> Iterator[list[Span]]:
    """What the line holds; a higher level holds less."""
    yield [Span(_names(frame.gpus), "title")]
    if len(frame.gpus) == 1:
        yield from _of_one(frame, frame.gpus[0], width)
    else:
        yield _states(frame, width, has_idle=level < 3)
    if level < 8:
        yield _power(frame, is_short=level >= 5)
    if len(frame.gpus) > 1 and level < 6:
        yield _memory(frame, is_short=level >= 4)
    if level < 7:
        yield _money(frame, level)


def _names(gpus: Sequence[DeviceSample]) -> str:
    """`8x H200`; of several kinds each with its number."""
    names = Counter(short_name(gpu) for gpu in gpus)
    return ", ".join(f"{count}x {name}" for name, count in names.items())


def _of_one(frame: Frame, gpu: DeviceSample, width: int) -> Iterator[list[Span]]:
    findings = frame.findings[gpu.device]
    if gpu.problem is None:
        busy = number(gpu.values, "sm_busy_pct")
        load = frame.load_of_busy(gpu, busy)
        text = (
            idle_text(frame, gpu)
            if load is LoadLevel.IDLE and busy is not None
            else f"busy {with_unit(busy, '%')}"
        )
        if frame.instances[gpu.device]:
            text = f"in {counted(len(frame.instances[gpu.device]), 'slice')}"
        yield [Span(text, "compute" if load else "dim")]
    if findings:
        yield findings_spans(findings, width // 2, brief=width < 100)
    elif gpu.problem is None:
        yield [Span("healthy", "good")]


def _states(frame: Frame, width: int, *, has_idle: bool) -> list[Span]:
    lost = [gpu for gpu in frame.gpus if gpu.problem is not None]
    idle = [gpu for gpu in frame.gpus if gpu.problem is None and is_idle(frame, gpu)]
    busy = len(frame.gpus) - len(lost) - len(idle)
    gone = sum(gpu.problem is not None and is_lost(gpu.problem) for gpu in lost)
    spans = [Span(f"{busy} busy", "compute" if busy else "dim")]
    spans += [Span("  "), Span(f"{len(idle)} idle", "dim")] if idle and (has_idle or not busy) else []
    slices = sum(map(len, frame.instances.values()))
    spans += [Span("  "), Span(counted(slices, "slice"), "dim")] if slices else []
    spans += [Span("  "), Span(f"{gone} LOST", "alarm")] if gone else []
    spans += [Span("  "), Span(f"{len(lost) - gone} SILENT", "alarm")] if len(lost) > gone else []
    readable = [frame.findings[gpu.device] for gpu in frame.gpus if gpu.problem is None]
    troubled = [found for found in readable if found and found[0].severity != "note"]
    if not troubled:
        return spans
    if width >= _ROOMY_FROM:
        kinds = Counter((_kind(findings[0].brief), findings[0].severity) for findings in troubled)
        for (kind, style), count in kinds.items():
            spans += [Span("  "), Span(f"{count} {kind}", style)]
        return spans
    worst = "alarm" if any(f[0].severity == "alarm" for f in troubled) else "warn"
    return [*spans, Span("  "), Span(counted(len(troubled), "problem"), worst)]


def _kind(brief: str) -> str:
    """`POWER-CAPPED at 600 W` as `power-capped`."""
    if brief.startswith("PCIe"):
        return "on a slow link"
    word = brief.split(" ")[0]
    return word if word == "ECC" else word.lower()


def _power(frame: Frame, *, is_short: bool) -> list[Span]:
    drawn_w, most_w = _together(frame, "power_w", "power_limit_w")
    if drawn_w is None:
        return []
    scale, unit, decimals = (1000, "kW", 1) if (most_w or drawn_w) >= 1000 else (1, "W", 0)
    whole = "" if is_short or most_w is None else f" of {most_w / scale:.{decimals}f}"
    return [Span(f"{drawn_w / scale:.{decimals}f}", "title"), Span(f"{whole} {unit}", "dim")]


def _memory(frame: Frame, *, is_short: bool) -> list[Span]:
    used, total = _together(frame, "memory_used_bytes", "memory_total_bytes")
    if used is None or total is None:
        return []
    scale = memory_scale(frame.units)
    whole = "" if is_short else f" of {three_digits_of(total / scale)}"
    return [Span(three_digits_of(used / scale), "title"), Span(f"{whole} {frame.units.memory}", "dim")]


def _together(frame: Frame, key: str, limit: str) -> tuple[float | None, float | None]:
    """The sums over the GPUs of a value and of its limit; None for a limit that fewer tell."""
    live = [gpu.values for gpu in frame.gpus if gpu.problem is None]
    known, limits = ([n for values in live if (n := number(values, of)) is not None] for of in (key, limit))
    return (sum(known), sum(limits) if len(limits) >= len(known) else None) if known else (None, None)


def _money(frame: Frame, level: int) -> list[Span]:
    """What the box costs, and what of it is paid for GPUs that do nothing."""
    price = frame.ledger.usd_per_hour
    if price is None:
        return []
    unused = sum(gpu.problem is not None or is_idle(frame, gpu) for gpu in frame.gpus)
    spans = [Span(f"{_dollars(price, level)}/h", "title")]
    if unused:
        amount = _dollars(price * unused / len(frame.gpus), level)
        spans += [Span("  "), Span(f"{amount} unused" if level else f"{amount}/h of it unused", "warn")]
    return spans


def _dollars(amount: float, level: int) -> str:
    return f"${amount:.0f}" if level >= 2 and amount >= 1.5 else format_usd(amount)
