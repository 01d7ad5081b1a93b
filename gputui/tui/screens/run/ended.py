"""The page of a run that has ended: what `run` prints, the box beside others of its kind, what to do next."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from io import StringIO
from itertools import groupby

from gputui.analysis.peak_tests import NO_REFERENCE, NORMAL, Expectation, PeakTest, PerformanceCheck
from gputui.document.page import Console
from gputui.document.spans import Line, Span
from gputui.document.table import Column, Drawing, Table
from gputui.document.theme import Palette
from gputui.model.absent import Missing
from gputui.model.units import counted, format_percent, format_rate
from gputui.services.results.expected import CHECK_WORDS, performance_checks
from gputui.services.results.next_steps import NextStep
from gputui.services.run_page import run_page, serving_page
from gputui.services.runs.progress import ProgressSnapshot
from gputui.tui.screens.run.following import Ended
from gputui.tui.screens.run.form import sentence
from gputui.tui.screens.run.panes import cases_so_far
from gputui.tui.widgets.cells import clean, section, table_lines, wrapped

_MARGIN = "   "
_MOST_NORMAL = 5
"""Normal cases that are shown beside the boxes of a reference, which judges every case."""
_LEAST_SHARE, _MOST_SHARE = 0.5, 1.25
"""The ends of the axis; it goes on for shares beyond them."""
_Judged = tuple[PeakTest, Expectation]


def ended_lines(
    found: Ended, progress: ProgressSnapshot | None, palette: Palette, width: int
) -> Iterator[Line]:
    """All of it; what was measured, as far as it was heard, if it could not be stored."""
    if found.wrong is not None:
        yield from _rows(clean(sentence(found.wrong)), width, "alarm")
        if progress is not None:
            yield from cases_so_far(progress, width, len(progress.cases) + 4)[0]
    elif found.status != "finished":
        yield from _rows(f"The run did not finish: {clean(found.status)}.", width, "warn")
    out = Console(StringIO(), width - 2, 0, False, True, palette)
    for result, load in zip(found.results, found.loads, strict=True):
        page = (
            run_page(out, result, shows_all=True, passes=dict(found.passes))
            if isinstance(load, Missing)
            else serving_page(out, result, load)
        )
        yield from ((Span(" "), *line) for line in page.lines)
        yield from published_lines(performance_checks(result), width)
    if found.steps:
        yield ()
        yield section((Span("next", "title"),), width)
        yield from _next(found.steps, width)
    stored = [f"stored in {found.runs[0].target}"] if found.results else []
    for said in (*found.said, *stored):
        yield from _rows(clean(said), width, "dim")


def published_lines(checks: Sequence[PerformanceCheck], width: int) -> Iterator[Line]:
    """What each peak test reaches beside what other boxes of its kind do; nothing where none is known."""
    judged = [
        (test, test.expectation)
        for check in checks
        for test in check.peak_tests
        if test.expectation is not None and test.word != NO_REFERENCE
    ]
    if not judged:
        return
    names = clean(" and ".join(dict.fromkeys(check.device_name.removeprefix("NVIDIA ") for check in checks)))
    boxes = [check.standing.boxes for check in checks if check.standing is not None and check.standing.judges]
    whose = counted(max(boxes), "box") if boxes else "published"
    words = f"{names} and {whose} of its kind" if boxes else f"published figures for {names}"
    legend = (Span("● ", "title"), Span("this box  ", "dim"), Span(f"━━ {whose}", "dim"))
    yield ()
    yield section((Span(words, "title"),), width, legend)
    judged.sort(key=lambda one: one[0].word == NORMAL)
    odd = sum(test.word != NORMAL for test, _ in judged)
    shown = judged[: max(odd, _MOST_NORMAL)] if boxes else judged
    yield from table_lines(Table(_columns(shown)), width, margin=len(_MARGIN))
    if len(shown) < len(judged):
        left_out = counted(len(judged) - len(shown), "case")
        yield (Span(f"{_MARGIN}and {left_out} more, all normal", "dim"),)


def _columns(judged: Sequence[_Judged]) -> tuple[Column | Drawing, ...]:
    shares = [test.units_per_s / expected.measured_low for test, expected in judged]
    ends = [(one.measured_high or one.measured_low) / one.measured_low for _, one in judged]
    words = [CHECK_WORDS[test.word] for test, _ in judged]
    low, high = min(_LEAST_SHARE, *shares), max(_MOST_SHARE, *shares, *ends)

    def draw(cells: int, beside: Sequence[Column]) -> Column:
        drawn = [
            [range_plot((share, 1.0, end), low, high, cells, word.style)]
            for share, end, word in zip(shares, ends, words, strict=True)
        ]
        return Column("", drawn)

    return (
        Column(
            "case",
            [Span(clean(test.label), word.style) for (test, _), word in zip(judged, words, strict=True)],
        ),
        Column("here", [format_rate(test.units_per_s, test.unit) for test, _ in judged], True),
        Column("elsewhere", [Span(_elsewhere(test, of), "dim") for test, of in judged], priority=2),
        Drawing(draw, 8, 200, wishes=((2, 27),)),
        Column("", list(map(format_percent, shares)), True),
        Column("", words),
    )


def _elsewhere(test: PeakTest, of: Expectation) -> str:
    """`49.8 TFLOP/s to 53.2 TFLOP/s`, `from 380 TFLOP/s`."""
    low = format_rate(of.measured_low, test.unit)
    if of.measured_high is None:
        return f"from {low}"
    high = format_rate(of.measured_high, test.unit)
    return low if low == high else f"{low} to {high}"


def range_plot(
    shares: tuple[float, float, float], low: float, high: float, cells: int, style: str
) -> tuple[Span, ...]:
    """`────●──━━━━──`: of a value as a point and the ends of its range, on an axis of so many cells."""
    places = [int((share - low) / (high - low) * cells) for share in shares]
    at, first, last = (min(max(place, 0), cells - 1) for place in places)
    kinds = ["━" if first <= cell <= last else "─" for cell in range(cells)]
    kinds[at] = "●"
    styles = {"━": "dim", "─": "track", "●": style}
    return tuple(Span("".join(same), styles[kind]) for kind, same in groupby(kinds))


def _next(steps: Sequence[NextStep], width: int) -> Iterator[Line]:
    table = Table(
        (
            Column("", [[(Span("$ ", "dim"), Span(clean(step.command), "accent"))] for step in steps]),
            Column("", [Span(step.why, "dim") for step in steps], priority=1),
        )
    )
    yield from table_lines(table, width, margin=len(_MARGIN), has_headings=False)


def _rows(text: str, width: int, style: str) -> Iterator[Line]:
    for row in wrapped(text, width - 3, 6):
        yield (Span(f" {row}", style),)
