"""What the figures of a run rest on: launches, blocks, and the state of the device, a line for each case."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from gputui.analysis.verdict import SpeedEstimate
from gputui.document.table import Table, table_of
from gputui.model.absent import Missing
from gputui.model.result import CaseResult
from gputui.model.units import format_percent, format_rate, three_digits
from gputui.services.results.browser import RunDetail
from gputui.services.results.labels import case_name, interval_words
from gputui.services.results.throughput import speeds_of
from gputui.services.results.waiting import waited_share
from gputui.store.reading import CaseConditions
from gputui.tui.terminal.lines import Line, Span
from gputui.tui.widgets.cells import clean
from gputui.tui.widgets.sections import section
from gputui.tui.widgets.table_lines import table_lines

_USUAL = ("case", "rate", "95 %", "slowed", "capped", "other programs", "clock", "launches", "blocks")
HEADINGS = (*_USUAL, "warming up", "shared", "samples")
"""The last ones go first where a terminal is narrow."""


def rests_on_lines(detail: RunDetail, width: int) -> Iterator[Line]:
    """A table of the measured cases, without the columns that no case has; empty if nothing was measured.

    Shares are of the time in which a case was timed.
    """
    rows = [_cells(case, speed, detail.conditions.get(case.case_id)) for case, speed in speeds_of(detail.run)]
    if not rows:
        return
    found = table_of(HEADINGS, rows, range(1, len(HEADINGS)), priorities=dict(enumerate(range(-2, 10))))
    known = [
        replace(one, cells=[text or "—" for text in one.texts]) for one in found.written if any(one.texts)
    ]
    yield section((Span("how reliable the figures are", "title"),), width)
    yield from table_lines(Table(tuple(known)), width)


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
        clean(case_name(case)),
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
