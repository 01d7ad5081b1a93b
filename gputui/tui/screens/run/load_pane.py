"""A load on a server while it is offered: what is in flight, the newest times, and what came before."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence

from gputui.metrics import round_ceiling
from gputui.model.serving import LoadNow, LoadStep
from gputui.model.units import counted, format_percent, format_seconds, three_digits
from gputui.services.runs.progress import OfferedLoad
from gputui.tui.terminal.lines import Line, Span
from gputui.tui.widgets.cells import clean, fitted, right
from gputui.tui.widgets.charts import area_with_axis, axis_cells
from gputui.tui.widgets.sections import fitting, joined, section

_WIDE = 100
_BETWEEN = "  ·  "


def load_lines(load: OfferedLoad, width: int, rows: int, *, has_axis: bool) -> list[Line]:
    """Two lines and a chart of `rows`; with `has_axis` one more line, of what was offered before."""
    title = (Span(clean(load.name), "title"), Span(f"  launch {load.launch} of {load.launches}"))
    newest = load.now[-1] if load.now and load.now[-1].step_index == len(load.steps) else None
    lines = [section(title, width, (Span(_offered(newest), "dim"),) if newest else ()), _now(newest, width)]
    lines += _charts(load.now, width, rows)
    return [*lines, _before(load, width)] if has_axis else lines


def _offered(now: LoadNow) -> str:
    if now.rate_per_s is not None:
        return f"{three_digits(now.rate_per_s)} req/s offered"
    return counted(now.users or 0, "user")


def _now(now: LoadNow | None, width: int) -> Line:
    """`  26.1 req/s ended  4 in flight  TTFT 52.0 ms  10.1 ms an event`."""
    if now is None:
        return fitted((Span("  between two loads", "dim"),), width)
    parts = [("", f"{three_digits(now.ended_per_s)} req/s", "ended"), ("", str(now.in_flight), "in flight")]
    if now.ttft_s is not None:
        parts.append(("TTFT ", format_seconds(now.ttft_s), ""))
    if now.event_gap_s is not None:
        parts.append(("", format_seconds(now.event_gap_s), "an event"))
    spans: list[Span] = []
    for before, value, after in parts:
        spans += [Span(f"  {before}"), Span(value, "title"), Span(f" {after}")]
    return fitted(spans, width)


def _charts(now: Sequence[LoadNow], width: int, rows: int) -> Iterator[Line]:
    """What is in flight over time, and where there is room the time to first token beside it."""
    halves = 2 if width >= _WIDE else 1
    each = (width - 3 * (halves - 1)) // halves
    flight = _chart(
        [float(one.in_flight) for one in now], "in flight", each, rows, "compute", "{:.0f}".format
    )
    if halves == 1:
        yield from flight
        return
    firsts = _chart([one.ttft_s for one in now], "TTFT", each, rows, "clock", format_seconds)
    for mine, theirs in zip(flight, firsts, strict=True):
        yield fitted((*mine, Span("   "), *theirs), width)


def _chart(
    values: Sequence[float | None],
    name: str,
    width: int,
    rows: int,
    family: str,
    show: Callable[[float], str],
) -> list[Line]:
    """One second a cell, the newest at the right end; the axis begins at 0."""
    room = width - axis_cells(width)
    shown = [None] * max(room - len(values), 0) + list(values[-room:])
    top = round_ceiling(max((value for value in shown if value is not None), default=0.0) or 1.0)
    return area_with_axis(shown, top, rows, width, family, show(top), name=name)


def _before(load: OfferedLoad, width: int) -> Line:
    """The rates that this launch has tried, the newest first."""
    parts = [_tried(step) for step in reversed(load.steps) if step.rate_per_s is not None]
    head = Span(f"{right('tried' if parts else '', axis_cells(width) - 1)} ", "dim")
    kept = fitting([(Span(part),) for part in parts], width - axis_cells(width), _BETWEEN)
    return fitted((head, *joined(kept, _BETWEEN)), width)


def _tried(step: LoadStep) -> str:
    """`24.0 req/s: the queue grew`, `12.0 req/s: 98 % within the limits`."""
    rate = f"{three_digits(step.rate_per_s or 0.0)} req/s"
    if step.is_overloaded:
        return f"{rate}: the queue grew"
    return rate if step.good_share is None else f"{rate}: {format_percent(step.good_share)} within the limits"
