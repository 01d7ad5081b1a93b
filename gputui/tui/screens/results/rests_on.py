"""What the figures of a run rest on: a line for each case, and one for each launch of a case."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from statistics import median

from gputui.analysis.statistics import hodges_lehmann
from gputui.analysis.verdict import SpeedEstimate
from gputui.document.bars import bars
from gputui.document.table import Column, Table, table_of
from gputui.model.absent import Missing
from gputui.model.result import CaseResult
from gputui.model.units import format_change, format_percent, format_rate, three_digits
from gputui.services.results.browser import RunDetail
from gputui.services.results.labels import case_name, interval_words, shared_case_words, short_result_name
from gputui.services.results.throughput import speeds_of
from gputui.services.results.waiting import measured_blocks, own_launches_of, waited_of, waited_share
from gputui.store.reading import CaseConditions
from gputui.tui.terminal.lines import Line, Span
from gputui.tui.widgets.cells import clean
from gputui.tui.widgets.sections import section, table_lines

_USUAL = ("case", "rate", "95 %", "slowed", "capped", "other programs", "clock", "launches", "blocks")
HEADINGS = (*_USUAL, "warming up", "shared", "samples")
"""The last ones go first where a terminal is narrow."""
LAUNCH_HEADINGS = ("launch", "rate", "from median", "blocks", "slowest", "other programs", "")


def rests_on_lines(detail: RunDetail, width: int) -> Iterator[Line]:
    """A table of the measured cases, without the columns that no case has; empty if nothing was measured.

    Shares are of the time in which a case was timed.
    """
    speeds = speeds_of(detail.run)
    common = shared_case_words(case.case for case, _ in speeds)
    rows = [
        (
            clean(short_result_name(case, common)),
            *_cells(case, speed, detail.conditions.get(case.case_id)),
        )
        for case, speed in speeds
    ]
    if not rows:
        return
    found = table_of(HEADINGS, rows, range(1, len(HEADINGS)), priorities=dict(enumerate(range(-2, 10))))
    known = [replace(one, cells=[text or "—" for text in one.texts]) for one in _filled(found)]
    yield section((Span("how reliable the figures are", "title"),), width)
    yield from table_lines(Table(tuple(known)), width)


def launch_lines(detail: RunDetail, case: CaseResult, width: int, current: int = -1) -> Iterator[Line]:
    """How fast each launch of a case was, and what disturbed its blocks; `current` is the id of one to mark.

    Rates are without the waiting for CPUs where that is known. Columns that no launch has are left out.
    """
    own = zip(measured_blocks(case), own_launches_of(case), strict=True)
    seconds = {blocks[0].launch_id: hodges_lehmann(times) for blocks, times in own}
    rows = []
    for one in case.measurements:
        mine = seconds.get(one.launch_id)
        steps_ns = [] if case.case.is_whole else [b.block_ns / b.steps for b in one.blocks]
        waited = [share for b in one.blocks if not isinstance(share := waited_of(b), Missing)]
        rows.append(
            (
                f"{one.replicate + 1}",
                one.outcome if mine is None else format_rate(1 / mine, case.case.unit),
                "" if mine is None or len(seconds) < 2 else format_change(median(seconds.values()) / mine),
                f"{len(steps_ns) or ''}",
                f"+{format_percent(max(steps_ns) / min(steps_ns) - 1)}" if steps_ns else "",
                f"up to {format_percent(max(waited))}" if waited else "",
                clean(one.reason),
            )
        )
    rates = [1 / seconds[one.launch_id] if one.launch_id in seconds else None for one in case.measurements]
    known = _filled(table_of(LAUNCH_HEADINGS, rows, range(5), priorities={3: 1, 4: 2}))
    fastest = bars(rates, max(filter(None, rates), default=1.0), "chart", priority=3)
    legend = (Span("bar: of the fastest", "dim"),) if len(seconds) > 1 else ()
    yield section((Span("launches of ", "dim"), Span(clean(case_name(case)), "title")), width, legend)
    marks = [one.launch_id == current for one in case.measurements]
    yield from table_lines(Table((*known, fastest)), width, margin=3, marks=marks)


def _filled(table: Table) -> list[Column]:
    """The columns in which any row has something."""
    return [column for column in table.written if any(column.texts)]


def _cells(case: CaseResult, speed: SpeedEstimate, found: CaseConditions | None) -> tuple[str, ...]:
    waited = waited_share(case)
    slowed, capped, cold, shared = ("",) * 4
    if found is not None:
        slowed, capped, cold, shared = (
            "" if isinstance(share, Missing) else format_percent(share)
            for share in (
                found.slowed_share,
                found.power_capped_share,
                found.cold_share,
                found.shared_share,
            )
        )
    return (
        format_rate(speed.units_per_s, case.case.unit),
        interval_words(speed),
        slowed,
        capped,
        "" if isinstance(waited, Missing) else format_percent(waited),
        "" if found is None else _clock(found),
        str(speed.launches),
        "" if case.case.is_whole else str(speed.blocks),
        cold,
        shared,
        "" if found is None else str(found.samples),
    )


def _clock(found: CaseConditions) -> str:
    """`1.98 of 1.98 GHz`."""
    if isinstance(found.clock_median_mhz, Missing):
        return ""
    most = found.clock_most_mhz
    of = "" if isinstance(most, Missing) else f" of {three_digits(most / 1000)}"
    return f"{three_digits(found.clock_median_mhz / 1000)}{of} GHz"
