"""Panes of runs in progress, on the Run screen and below a shell's prompt: cases, the device and the host, a
load on a server.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence

from gputui.analysis.health import health
from gputui.document.drawings import gauge_spans, strip
from gputui.document.spans import Line, Span, line_width
from gputui.document.table import Column, Drawing, Table
from gputui.metrics import Metric, charted, limits_of, round_ceiling, without_unit, word
from gputui.model.absent import Missing
from gputui.model.machine import Machine
from gputui.model.serving import LoadNow, LoadStep
from gputui.model.telemetry import HOST, DeviceSample
from gputui.model.units import UNKNOWN, counted, format_clock, format_percent, format_seconds, three_digits
from gputui.services.results.expected import share_text
from gputui.services.results.throughput import BY_CLOCK, CROWDED_SHARE, GAVE, HELD_BY_OTHERS
from gputui.services.runs.device_history import MOST_BINS, DeviceHistory
from gputui.services.runs.progress import CaseProgress, OfferedLoad, ProgressSnapshot
from gputui.tui.widgets.cells import (
    clean,
    fitted,
    fitting,
    joined,
    left,
    right,
    section,
    side_by_side,
    table_lines,
)
from gputui.tui.widgets.charts import (
    above_axis,
    abreast_cells,
    area_with_axis,
    axis_cells,
    time_axis,
    time_chart,
)

STATE_STYLES = {
    "ok": "good",
    "failed": "alarm",
    "oom": "alarm",
    "interrupted": "warn",
    "timing": "accent",
    "warm": "accent",
    "starting": "accent",
    "profiling": "accent",
}
_STATE_WORDS = {"timing": "running", "warm": "running"}
_STATE, _RATE, _UNIT, _SPREAD = 8, 5, 8, 6
_GAUGE, _LEAST_BAR, _MOST_BAR = 12, 6, 24
_WIDEST_GAUGE = 40
_TIME, _FOR_TIMES = 8, 76
"""Cells of a time of a load on a server, and from which width there is room for two."""
_GAVE_IS = f"{GAVE}: as {HELD_BY_OTHERS}; rates are without that"
_OF_FASTEST = ("BESIDE THE FASTEST HERE", "OF FASTEST", "")


def overall(progress: ProgressSnapshot, width: int, now_ns: int, ends: str) -> Line:
    """`━━━━━━━━──── 69 %  pass 5 of 8  about 3:40 left, ends 14:31  8:12 gone`."""
    gone = format_clock((now_ns - progress.begun_ns) / 1e9)
    done = sum(min(case.launches_done, case.launches) for case in progress.to_run)
    count = f"{done} of {counted(sum(case.launches for case in progress.to_run), 'case')}"
    if progress.passes > 1:
        count = f"pass {max(progress.pass_number, 1)} of {progress.passes}"
    share = progress.share_done
    if progress.is_storing:
        left_words: tuple[Span, ...] = (Span("storing the results", "title"),)
    elif progress.left_s is None or share is None:
        left_words = (Span("until its program ends", "title"),)
    else:
        words = f"about {format_clock(progress.left_s)} left" if progress.left_s >= 1 else "nearly done"
        left_words = (Span(words, "title"), Span(f", ends {ends}" if ends else ""))
    percent = () if share is None else (Span(f"{100 * share:3.0f} %", "title"),)
    parts = [percent, left_words, (Span(count),), (Span(f"{gone} gone", "dim"),)]
    text = joined(fitting(parts, width - 24, "  ", least=2))
    room = min(width - line_width(text) - 4, _WIDEST_GAUGE)
    return fitted((Span(" "), *gauge_spans(share, 1.0, room, "accent"), Span("  "), *text), width)


def cases_so_far(progress: ProgressSnapshot, width: int, rows: int, scrolled: int = 0) -> list[Line]:
    """At most `rows` lines: headings, cases around the one in progress, and what is not in sight."""
    cases, not_run = progress.to_run, progress.not_run_line
    explained = [_GAVE_IS] if any(case.gave for case in cases) else []
    explained += [BY_CLOCK] if any(case.spread == UNKNOWN for case in cases) else []
    room = max(rows - 1 - len(explained), 1)
    if len(cases) > room or not_run:
        room = max(room - 1, 1)
    now = next((i for i, case in enumerate(cases) if case.is_now), 0)
    first = min(max(now - room * 2 // 3, 0) + scrolled, max(len(cases) - room, 0))
    has_times = progress.server_is_here is not None and width >= _FOR_TIMES
    shown = cases[first : first + room]
    table = _table(shown, progress.shared_words, has_times=has_times)
    lines = list(table_lines(table, width, margin=3, marks=[case.is_now for case in shown]))
    hidden = [*_hidden(cases[:first], "above"), *_hidden(cases[first + room :], "below")]
    if notes := list(filter(None, [*hidden, clean(not_run)])):
        lines.append(fitted((Span(f"   {' · '.join(notes)}", "dim"),), width))
    return lines + [fitted((Span(f"   {words}", "dim"),), width) for words in explained]


def _hidden(cases: Sequence[CaseProgress], where: str) -> list[str]:
    """`6 above: ok`, `4 above: 3 ok, 1 failed`."""
    counts = Counter(case.state for case in cases)
    states = [f"{count} {state}" if len(counts) > 1 else state for state, count in counts.items()]
    return [f"{len(cases)} {where}: {', '.join(states)}"] if states else []


def _rate(case: CaseProgress) -> list[Line]:
    """The number, in line with those of others, and its unit; how a case ended that has none."""
    number, _, unit = case.rate.partition(" ")
    if case.rate or case.is_now or case.state == "waiting":
        return [(Span(f"{number:>{_RATE}} ", "title"), Span(unit, "dim"))]
    return [(Span(f"{'':{_RATE - 4}}"), Span(case.state, STATE_STYLES.get(case.state, "dim")))]


def _table(cases: Sequence[CaseProgress], shared: str, *, has_times: bool) -> Table:
    """What is known of these cases; headings are as wide as most cells get, so that columns stay in place.

    A bar is the share of a data sheet's peak; where that is unknown, of the fastest case that does the same.
    """
    what = "LOAD" if has_times else "CASE"
    launch = [[gauge_spans(case.share_done, 1.0, _GAUGE, "accent") if case.is_now else ()] for case in cases]
    names = [
        Span(case.short_name or case.name, "title" if case.is_now else "" if case.rate else "dim")
        for case in cases
    ]
    states = [
        Span(_STATE_WORDS.get(case.state, case.state), STATE_STYLES.get(case.state, "dim")) for case in cases
    ]
    rates = [_rate(case) for case in cases]
    of_sheet = [case.peak for case in cases]
    has_sheet = any(of_sheet)
    peaks = [share_text(share) for share in of_sheet]
    gave = [Span(case.gave, "warn") for case in cases]
    times = [
        Column(f"{title:>{_TIME}}", ["" if one is None else format_seconds(one) for one in of], True)
        for title, of in (("TTFT", [c.ttft_s for c in cases]), ("TPOT", [c.tpot_s for c in cases]))
    ]

    def draw(cells: int, beside: Sequence[Column]) -> Column:
        shares = of_sheet if has_sheet else [case.of_fastest for case in cases]
        drawn = [
            [() if share is None else gauge_spans(share, 1.0, cells, "accent" if case.is_now else "compute")]
            for case, share in zip(cases, shares, strict=True)
        ]
        heading = "" if has_sheet else next(one for one in _OF_FASTEST if len(one) <= cells)
        return Column(heading, drawn)

    return Table(
        (
            Column(f"{what} ({shared})" if shared and not has_times else what, names, breaks=True),
            Column("DONE", [f"{case.launches_done}/{case.launches}" for case in cases], priority=1.8),
            Column(f"{'RATE':>{_RATE}}{'':{_UNIT}}", rates),
            Column(f"{'95 % RANGE':>{_SPREAD}}", [Span(case.spread, "dim") for case in cases], True),
            *([Column(GAVE.upper(), gave, True)] if any(case.gave for case in cases) else []),
            *([] if has_times else [Drawing(draw, _LEAST_BAR, _MOST_BAR, 1.5, wishes=((3, _GAUGE),))]),
            *([Column("% OF SPEC", peaks, True, 1)] if has_sheet else []),
            Column(f"{'STATE':{_STATE}}", states, priority=2),
            Column("", launch, priority=3),
            *(times if has_times else []),
        )
    )


BUSY_FROM_PCT = 5.0
STEAL_FROM_PCT = 1.0
_STEPS = (1, 2, 3, 4, 6, 8, 12, 16, 24, 32, 48, 64, MOST_BINS)


def device_under_test(progress: ProgressSnapshot) -> DeviceHistory | None:
    """The device of the worker at work; before the first one, a GPU if there is one.

    Of a server under load on this box, the GPU that was busiest so far: the process that listens at its port
    is often a proxy, and one in a container has another PID than the driver reports.
    """
    if isinstance(progress.devices, Missing) or not progress.devices:
        return None
    if progress.server_is_here:
        return max(progress.devices, key=_busy)
    by_index = {one.device: one for one in progress.devices}
    if progress.under_test in by_index:
        return by_index[progress.under_test]
    return next((one for one in progress.devices if not one.is_host), progress.devices[0])


def _busy(device: DeviceHistory) -> tuple[bool, float]:
    """In order of how busy it was; the host after every GPU."""
    return not device.is_host, sum(value or 0.0 for value in device.bins.get("sm_busy_pct", ()))


def device_rows(progress: ProgressSnapshot, width: int) -> list[Line]:
    """Three lines: a heading, and four metrics with a history of one row each."""
    device = device_under_test(progress)
    if device is None:
        return _without(progress, width)
    metrics = _of(device)[:4]
    half = (width - 4) // 2
    names = [max((len(one.name) for one in metrics[column::2]), default=0) for column in range(2)]
    cells = [
        _row(device, metric, progress.machine, half, names[place % 2]) for place, metric in enumerate(metrics)
    ]
    pairs = [cells[place : place + 2] for place in range(0, len(cells), 2)]
    lines = [fitted((Span("  "), *joined(pair)), width) for pair in pairs]
    return [_heading(progress, device, width), *lines]


_ABREAST = 4


def device_charts(progress: ProgressSnapshot, width: int, rows: int) -> list[Line]:
    """A heading, four charts with `rows` rows each, and the axis of time below each."""
    device = device_under_test(progress)
    if device is None:
        return _without(progress, width)
    each = abreast_cells(width, _ABREAST)
    limits, cells = limits_of(progress.machine, device.device), each - axis_cells(each)
    span_s = _cell_s(device, cells) * cells
    blocks = []
    for metric in _of(device)[:_ABREAST]:
        figure, series = metric.text(device.now.get(metric.key)), device.series(metric.key)
        note = metric.limit_text(limits, after=figure)
        values = series.cells(span_s / cells, cells)
        blocks.append(time_chart(metric, series, values, limits, figure, note, each, rows))
    axis = time_axis("0:00", "since the run began", format_clock(span_s), each)
    lines = above_axis(blocks, axis, width, _ABREAST) if blocks else []
    return [_heading(progress, device, width), *lines]


def host_lines(progress: ProgressSnapshot, width: int) -> list[Line]:
    """The host beside a GPU under test, and what the other GPUs do: a line at most."""
    device, devices = device_under_test(progress), progress.devices
    if device is None or device.is_host or isinstance(devices, Missing):
        return []
    host = next((one for one in devices if one.is_host), None)
    parts: list[tuple[Span, ...]] = []
    if host is not None:
        values = {**limits_of(progress.machine, HOST), **host.now}
        for metric in charted(HOST):
            full = metric.full_scale(values)
            if full and metric.key in host.now:
                gauge = gauge_spans(metric.amount(values), full, 8, metric.hue)
                parts.append((Span(metric.in_words(values)), Span(" "), *gauge))
        parts += _host_notes(host)
    parts += [(Span(others),)] if (others := _others(devices, device)) else []
    here = fitting(parts, width - 9, "   ", least=1)
    return [fitted((Span("   host  ", "dim"), *joined(here, "   ")), width)] if here else []


def _of(device: DeviceHistory) -> list[Metric]:
    """The metrics that were ever read, in order of priority."""
    return [metric for metric in charted(device.device) if metric.key in device.bins]


def _without(progress: ProgressSnapshot, width: int) -> list[Line]:
    why = progress.devices.reason if isinstance(progress.devices, Missing) else "nothing has been read yet"
    return [section((Span("device", "title"),), width), fitted((Span(f"  {clean(why)}", "dim"),), width)]


def _heading(progress: ProgressSnapshot, device: DeviceHistory, width: int) -> Line:
    model = word(limits_of(progress.machine, device.device), "name").removeprefix("NVIDIA ")
    if device.is_host:
        name = [Span("host" if progress.server_is_here is not False else "this box, the client", "title")]
        state: list[Sequence[Span]] = [*_host_notes(device)]
        share = progress.waited_share
        if not isinstance(
            share, Missing
        ):  # what other programs have of the time in which the case wants a CPU
            style = "warn" if share > CROWDED_SHARE else "dim"
            state.append((Span(f"other programs {format_percent(share)}", style),))
    else:
        name = [Span(f"GPU {device.device}", "title")]
        state = [_health(device, progress.machine)]
        if "sm_busy_pct" in device.now:
            state.insert(0, (Span(f"{device.now['sm_busy_pct']:.0f} % busy"),))
    title = joined((name, (Span(clean(model)),) if model else (), *state))
    return section(title, width)


def _health(device: DeviceHistory, machine: Machine | None) -> tuple[Span, ...]:
    """What the Monitor says of it."""
    values = {**limits_of(machine, device.device), **device.now}
    findings = health(0, DeviceSample(device.device, "run", 0, values), device.slowed)
    if not findings:
        is_read = bool(device.slowed.shares)
        return (Span("not throttled", "good") if is_read else Span("throttling is not read", "dim"),)
    return joined([(Span(finding.word, finding.style),) for finding in findings], ", ")


def _host_notes(host: DeviceHistory) -> list[tuple[Span, ...]]:
    steal = host.now.get("cpu_steal_pct", 0.0)
    if steal < STEAL_FROM_PCT:
        return []
    return [(Span(f"{steal:.0f} % taken by the hypervisor", "warn"),)]


def _others(devices: Sequence[DeviceHistory], device: DeviceHistory) -> str:
    """`7 other GPUs idle`, `2 of 7 other GPUs busy`; empty if there is no other."""
    busy = [
        one.now["sm_busy_pct"] >= BUSY_FROM_PCT
        for one in devices
        if not one.is_host and one.device != device.device and "sm_busy_pct" in one.now
    ]
    all_of_them = counted(len(busy), "other GPU")
    if any(busy):
        return f"{sum(busy)} of {all_of_them} busy"
    return f"{all_of_them} idle" if busy else ""


def _row(
    device: DeviceHistory, metric: Metric, machine: Machine | None, width: int, name_cells: int
) -> tuple[Span, ...]:
    """`power         680 W ▄▇▇▇▇▇▇ of 700`."""
    limits, series = limits_of(machine, device.device), device.series(metric.key)
    top = metric.top(limits, max(series.known, default=0.0))
    figure = metric.text(device.now.get(metric.key))
    end = (
        metric.limit_text(limits, after=figure, is_brief=True)
        or f"to {without_unit(metric.axis(top), figure)}"
    )
    room = max(width - name_cells - 10 - len(end) - 2, 4)
    chart = strip(series.cells(_cell_s(device, room), room), top)
    head = (Span(left(metric.name, name_cells), "dim"), Span(right(figure, 10)))
    return fitted(
        (*head, Span(" "), Span(f"{chart:{room}}", f"{metric.hue} 1"), Span(f" {end}", "dim")), width
    )


def _cell_s(device: DeviceHistory, cells: int) -> float:
    """Seconds of a cell, so that the run so far fits.

    It is a bin, or one of a few numbers of them, so that older cells seldom change while the run goes on.
    """
    longest = max((len(one) for one in device.bins.values()), default=0)
    step = next(step for step in _STEPS if step * cells >= longest or step == _STEPS[-1])
    return step * device.bin_s


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
    spans = ((Span(f"  {before}"), Span(value, "title"), Span(f" {after}")) for before, value, after in parts)
    return fitted(joined(spans, ""), width)


def _charts(now: Sequence[LoadNow], width: int, rows: int) -> list[Line]:
    """What is in flight over time, and where there is room the time to first token beside it."""
    each = abreast_cells(width, 2 if width >= _WIDE else 1)
    in_flight = [float(one.in_flight) for one in now]
    charts = [_chart(in_flight, "requests", each, rows, "compute", "{:.0f}".format)]
    if width >= _WIDE:
        charts.append(_chart([one.ttft_s for one in now], "TTFT", each, rows, "clock", format_seconds))
    return side_by_side(charts, width, 3)


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
