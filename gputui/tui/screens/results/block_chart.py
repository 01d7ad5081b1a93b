"""Times of blocks in the order of measurement, as a chart of characters."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import accumulate, groupby
from statistics import median
from typing import NamedTuple

from gputui.model.journal import Block
from gputui.model.result import CaseResult
from gputui.model.units import counted, format_percent, format_seconds
from gputui.services.results.waiting import CROWDED_SHARE, contention_of, own_launches_of
from gputui.store.reading import BlockReasons
from gputui.tui.terminal.lines import Line, Span
from gputui.tui.widgets.sections import area_lines, section

_AXIS = 9
"""Width of the axis labels at the left."""
_HEADROOM = 0.1
"""Below the fastest block, as a share of the range, so that it does not seem to take no time."""
_WIDEST = 8
"""Cells of a block, where there are few."""

_CROWDED, _SLOWED, _CAPPED, _UNSEEN = "!", "T", "P", "?"
_WORST_FIRST = (_SLOWED, _CAPPED, _UNSEEN, "")


class _Point(NamedTuple):
    """One column: one block or, if there are too many, adjacent ones."""

    seconds: float
    launch: int
    is_crowded: bool
    held: str
    """Why its clocks were limited: a letter, or empty."""


def block_chart(case: CaseResult, reasons: Sequence[BlockReasons], width: int, rows: int) -> tuple[Line, ...]:
    """Seconds per step of each block; launches, throttled and crowded blocks below. Empty without blocks.

    The axis does not begin at 0: it spans the measured range. A mark that no block has gets no line.
    """
    points = _points(case, reasons)
    room = max(width - _AXIS - 1, 10)
    if not points:
        return ()
    columns = _spread(points, room)
    low, high = min(p.seconds for p in points), max(p.seconds for p in points)
    bottom = low - max((high - low) * _HEADROOM, low * 1e-6)
    heights = [None if p is None else p.seconds - bottom for p in columns]
    fastest, slowest = format_seconds(low), format_seconds(high)
    if fastest == slowest and high > low:
        slowest = f"+{format_percent(high / low - 1)}"
    labels = {0: slowest, rows - 1: fastest}
    note = (Span("a step; the axis does not begin at 0", "dim"),)
    lines: list[Line] = [section((Span("times of blocks", "title"),), width, note)]
    for row, area in enumerate(area_lines(heights, high - bottom, rows, len(columns), "compute")):
        lines.append((Span(f"{labels.get(row, ''):>{_AXIS}} ", "dim"), *area))
    lines.append((Span(f"{'launch':>{_AXIS}} ", "dim"), Span(_launches(columns), "dim")))
    if any(p.held in (_SLOWED, _CAPPED) for p in points):
        marks = "".join(" " if p is None else p.held or " " for p in columns)
        lines.append((Span(f"{'throttled':>{_AXIS}} ", "dim"), Span(marks, "warn")))
    if any(p.is_crowded for p in points):
        marks = "".join(_CROWDED if p is not None and p.is_crowded else " " for p in columns)
        lines.append((Span(f"{'crowded':>{_AXIS}} ", "dim"), Span(marks, "warn")))
    return tuple(lines)


def chart_words(case: CaseResult, reasons: Sequence[BlockReasons]) -> tuple[str, ...]:
    """The chart in words, the meaning of its marks and the number of blocks that have them."""
    points = _points(case, reasons)
    if not points:
        return ()
    count, launches = len(points), len({p.launch for p in points})
    seconds = [p.seconds for p in points]
    own = [s for launch in own_launches_of(case) for s in launch] if contention_of(case) else []
    without = (
        f" ({format_seconds(median(own) * case.case.units_per_step)} without the waiting)" if own else ""
    )
    summary = (
        f"{counted(count, 'block')} in {counted(launches, 'launch')},"
        f" median {format_seconds(median(seconds))} per step{without},"
        f" slowest {format_percent(max(seconds) / min(seconds) - 1)} above fastest"
    )
    sentences = [summary]
    on_gpu = case.case.variant.device_class == "gpu"
    if on_gpu:
        sentences.append(_throttle_words(reasons, count))
    crowded = sum(p.is_crowded for p in points)
    if crowded:
        sentences.append(
            f"of {counted(count, 'block')}: {_CROWDED} CPU contention"
            f" over {format_percent(CROWDED_SHARE)} of the time it wanted them in {crowded}"
        )
    elif all(block.waited_ns is None for m in case.measurements for block in m.blocks):
        sentences.append("CPU contention was not recorded")
    if on_gpu:
        sentences.append("whether others used the GPU is not recorded")
    return tuple(sentences)


def _throttle_words(reasons: Sequence[BlockReasons], blocks: int) -> str:
    if not reasons:
        return "throttling: not recorded in its telemetry"
    slowed, capped = sum(r.slowed for r in reasons), sum(r.power_capped for r in reasons)
    parts = []
    if slowed:
        parts.append(f"{_SLOWED} slowed by heat or a power brake in {slowed}")
    if capped:
        parts.append(f"{_CAPPED} power-capped in {capped}")
    mark = f"{_UNSEEN} " if parts else ""
    if not parts:
        parts.append(f"not throttled in {len(reasons)}")
    if len(reasons) < blocks:
        parts.append(f"{mark}unseen in {blocks - len(reasons)}")
    return f"of {counted(blocks, 'block')}: {', '.join(parts)}"


def _points(case: CaseResult, reasons: Sequence[BlockReasons]) -> list[_Point]:
    held = {(r.launch_id, r.block_index): _letter(r) for r in reasons}
    return [
        _Point(
            block.block_ns * 1e-9 / block.steps,
            measurement.launch_id + 1,
            _is_crowded(block),
            held.get((measurement.launch_id, block.index), _UNSEEN),
        )
        for measurement in case.measurements
        for block in measurement.blocks
    ]


def _letter(reasons: BlockReasons) -> str:
    return _SLOWED if reasons.slowed else _CAPPED if reasons.power_capped else ""


def _worst(points: Sequence[_Point]) -> str:
    return min((p.held for p in points), key=_WORST_FIRST.index)


def _is_crowded(block: Block) -> bool:
    wanted = (block.waited_ns or 0) + (block.cpu_ns or 0)
    return block.waited_ns is not None and wanted > 0 and block.waited_ns / wanted > CROWDED_SHARE


def _spread(points: Sequence[_Point], most: int) -> list[_Point | None]:
    """At most `most` columns, an empty one before each launch but the first.

    A few blocks become wide; of many adjacent ones the slowest is shown.
    """
    launches = [list(group) for _, group in groupby(points, key=lambda p: p.launch)]
    gap = [None] if 2 * len(launches) <= most else []
    room = most - len(gap) * (len(launches) - 1)
    if len(points) <= room:
        each = min(room // len(points), _WIDEST)
        parts = [[point for point in launch for _ in range(each)] for launch in launches]
    elif gap:
        ends = [0, *accumulate(len(launch) for launch in launches)]
        cells = [end * room // len(points) for end in ends]
        parts = [
            _thinned(launch, max(until - since, 1))
            for launch, since, until in zip(launches, cells[:-1], cells[1:], strict=True)
        ]
    else:
        parts = [_thinned(points, room)]
    columns: list[_Point | None] = []
    for part in parts:
        columns += [*(gap if columns else []), *part]
    return columns[:most]


def _thinned(points: Sequence[_Point], cells: int) -> list[_Point]:
    """The slowest of adjacent ones, with the worst mark among them."""
    found = []
    for cell in range(min(cells, len(points))):
        part = points[cell * len(points) // cells : (cell + 1) * len(points) // cells] or points[-1:]
        slowest = max(part, key=lambda p: p.seconds)
        is_crowded = any(p.is_crowded for p in part)
        found.append(_Point(slowest.seconds, part[0].launch, is_crowded, _worst(part)))
    return found


def _launches(columns: Sequence[_Point | None]) -> str:
    """The number of a launch at its first column, as far as there is room."""
    text = ""
    last: int | None = None
    for place, point in enumerate(columns):
        if point is not None and point.launch != last:
            last = point.launch
            if len(text) < place or not place:
                text = text.ljust(place) + str(last)
    return text[: len(columns)]
