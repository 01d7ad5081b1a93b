"""A run of loads on a server: its curve as bars with the times beside, and what limits its meaning."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import lru_cache

from gputui.model.absent import Missing
from gputui.services.results.browser import RunDetail
from gputui.services.serving.curve import SEARCH, Level, ServingRun, serving_of
from gputui.services.serving.text import (
    HEADINGS,
    curve_rows,
    serving_headline,
    serving_notes,
    unmeasured_lines,
)
from gputui.tui.terminal.lines import Line, Span
from gputui.tui.widgets.cells import clean, fitted, left, right, width_of
from gputui.tui.widgets.paragraphs import paragraph
from gputui.tui.widgets.sections import gauge_spans, section

_MARGIN = "   "
_LEAST_BAR, _MOST_BAR = 8, 80
_LEFT_OUT = tuple(HEADINGS[HEADINGS.index(name)] for name in ("n", "/user", "95 %", "p99"))
"""Columns that a narrow terminal does without, in this order."""


class _ByIdentity:
    """A run that equals only itself, so that its requests are sorted once, not for each picture."""

    def __init__(self, detail: RunDetail) -> None:
        self.detail = detail

    def __eq__(self, other: object) -> bool:
        return isinstance(other, _ByIdentity) and other.detail is self.detail

    def __hash__(self) -> int:
        return id(self.detail)


@lru_cache(maxsize=8)
def _loads(detail: _ByIdentity) -> ServingRun | None:
    run, records = detail.detail.run, detail.detail.loads
    found = serving_of(run, records)
    return None if isinstance(found, Missing) else found


def loads_of(detail: RunDetail) -> ServingRun | None:
    """The loads of a run; None for a run of another kind."""
    return _loads(_ByIdentity(detail))


def headline(detail: RunDetail, loads: ServingRun) -> str:
    return serving_headline(loads, detail.run.summary.price)


def load_lines(loads: ServingRun, width: int, most: int | None = None) -> Iterator[Line]:
    """The curve: a row for each load, a bar for its output tokens per second; `most` rows of it."""
    measured = [level for level in loads.levels if not isinstance(level.speed, Missing)]
    rows = curve_rows(loads)
    if not rows:
        return
    legend = (Span("bar: output tokens/s", "dim"),)
    yield section((Span("loads", "title"),), width, legend)
    kept = _columns(rows, width)
    wide = [max(width_of(cells[place]) for cells in (HEADINGS, *rows)) for place in kept]
    bar = min(width - len(_MARGIN) - sum(wide) - 2 * len(kept), _MOST_BAR)
    yield fitted((Span(_MARGIN), *_cells(HEADINGS, kept, wide, bar, "dim")), width)
    highest = max(_output(level) for level in measured)
    for level, cells in list(zip(measured, rows, strict=True))[:most]:
        mark = Span(" ▸ " if level.kind == SEARCH else _MARGIN, "accent")
        gauge = gauge_spans(_output(level), highest or 1.0, bar, "compute") if bar >= _LEAST_BAR else ()
        yield fitted((mark, *_cells(cells, kept, wide, bar, "", gauge)), width)
    if most is not None and len(rows) > most:
        yield fitted((Span(f"{_MARGIN}{len(rows) - most} more: enter", "dim"),), width)


def _columns(rows: Sequence[tuple[str, ...]], width: int) -> list[int]:
    """The columns that fit, and a bar, where there is room for one."""
    kept = list(range(len(HEADINGS)))
    for name in ("", *_LEFT_OUT):
        kept = [place for place in kept if HEADINGS[place] != name]
        wide = sum(max(width_of(cells[place]) for cells in (HEADINGS, *rows)) + 2 for place in kept)
        if len(_MARGIN) + wide + _LEAST_BAR <= width:
            break
    return kept


def _cells(
    cells: Sequence[str],
    kept: Sequence[int],
    wide: Sequence[int],
    bar: int,
    style: str,
    gauge: Sequence[Span] = (),
) -> Iterator[Span]:
    """The name, a figure, its bar, and the rest."""
    for number, (place, room) in enumerate(zip(kept, wide, strict=True)):
        text = clean(cells[place])
        if number == 0:
            yield Span(left(text, room), style)
            continue
        yield Span("  " + right(text, room), style or ("title" if number == 1 else ""))
        if number == 1 and bar >= _LEAST_BAR:
            yield Span("  ")
            yield from gauge or (Span(" " * bar),)


def note_lines(loads: ServingRun, width: int) -> Iterator[Line]:
    """Loads without a result, and what limits the meaning of the others."""
    for text in unmeasured_lines(loads):
        yield from paragraph(f"{_MARGIN}{clean(text)}", width, "warn", indent=len(_MARGIN) + 2)
    for text in serving_notes(loads):
        yield from paragraph(f"{_MARGIN}{clean(text)}", width, "dim", indent=len(_MARGIN) + 2)


def _output(level: Level) -> float:
    return 0.0 if isinstance(level.output_per_s, Missing) else level.output_per_s
