"""A run that has ended: the answer, the box beside others of its kind, the results, what to do next."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

from gputui.analysis.peak_tests import (
    ABOVE_LIMIT,
    BELOW_NORMAL,
    NO_REFERENCE,
    NORMAL,
    Expectation,
    PeakTest,
    PerformanceCheck,
)
from gputui.document.table import Column, Drawing, Table
from gputui.model.units import counted, format_percent, format_rate
from gputui.services.results.case_table import CaseLine, rates_table
from gputui.services.results.expected import CHECK_WORDS
from gputui.services.results.next_steps import NextStep
from gputui.services.runs.progress import ProgressSnapshot
from gputui.tui.screens.run.cases_pane import STATE_STYLES
from gputui.tui.screens.run.devices_pane import device_charts, device_under_test
from gputui.tui.screens.run.model import EndedRuns, RunModel
from gputui.tui.terminal.lines import Line, Span
from gputui.tui.widgets.cells import clean, fitted, line_width, wrapped
from gputui.tui.widgets.sections import section, table_lines

_TALL, _LEAST_CHARTS = 30, 14
"""Lines of a terminal from which there are gaps, and free ones from which there are charts."""
_HIGHEST_CHART = 8
_OF_BOXES = 5
"""Normal cases that are shown beside the boxes of a reference."""
_MARGIN = "   "
_WIDEST_BAR = 40
_POINT, _RANGE, _TRACK = "●", "━", "─"
_MARKS = tuple(
    (percent / 100, f"{percent} %") for percent in range(25, 400, 25) if percent % 50 == 0 or percent == 75
)
"""Of the axis of published figures."""


def ended_lines(model: RunModel, ended: EndedRuns, width: int, height: int) -> list[Line]:
    """At most `height` lines, scrolled as the model says."""
    lines = list(_page(ended, width, is_tall=height >= _TALL))
    lines += _telemetry(model.progress, width, height - len(lines))
    model.scrolled = min(model.scrolled, max(len(lines) - height, 0))
    shown = lines[model.scrolled : model.scrolled + height]
    below = len(lines) - model.scrolled - height
    if below > 0:
        more = fitted((Span(f"{_MARGIN}{counted(below + 1, 'more line')} below: arrows", "dim"),), width)
        shown[-1] = more
    return shown


def _page(ended: EndedRuns, width: int, *, is_tall: bool) -> Iterator[Line]:
    answer = list(_answer(ended, width))
    yield from answer
    gap = [fitted((), width)] if is_tall else []
    judged = [(check, one) for check in ended.checks for one in check.peak_tests if one.word != NO_REFERENCE]
    if judged:
        yield from gap if answer else ()
        yield from _published(ended.checks, judged, width)
    if ended.next_steps and not is_tall:  # what has no room is scrolled to
        yield from _next(ended.next_steps, width)
    measured = [row for row in ended.rows if row.rate]
    if measured:
        yield from gap if answer or judged else ()
        yield from _results(measured, width)
    yield from _not_measured(ended.rows, width)
    if ended.next_steps and is_tall:
        yield from gap
        yield section((Span("next", "title"),), width)
        yield from _next(ended.next_steps, width)
    for said in ended.said:
        yield from _flowing(clean(said), width, "dim")
    if ended.wrong is None:
        yield from _flowing(f"stored in {clean(ended.target)}", width, "dim")


def _answer(ended: EndedRuns, width: int) -> Iterator[Line]:
    """What it comes to; what went wrong, if it did."""
    if ended.wrong is not None:
        text = f"{ended.wrong.message}: {ended.wrong.hint}" if ended.wrong.hint else ended.wrong.message
        yield from _flowing(clean(text), width, "alarm", indent=1)
        return
    words = {check.word for check in ended.checks}
    style = "alarm" if ABOVE_LIMIT in words else "warn" if BELOW_NORMAL in words else "title"
    for headline in ended.headlines:
        yield from _flowing(clean(headline), width, style, indent=1)
    if ended.status != "finished" and not ended.headlines:
        yield from _flowing(f"The run did not finish: {clean(ended.status)}.", width, "warn", indent=1)


def _telemetry(progress: ProgressSnapshot | None, width: int, room: int) -> list[Line]:
    """What the device under test did meanwhile, where there is room for charts."""
    if progress is None or device_under_test(progress) is None or room < _LEAST_CHARTS:
        return []
    rows = min((room - 3) // 2 - 1, _HIGHEST_CHART)
    return [fitted((), width), *device_charts(progress, width, rows, abreast=2)]


# The box beside its published range


def _published(
    checks: Sequence[PerformanceCheck],
    judged: Sequence[tuple[PerformanceCheck, PeakTest]],
    width: int,
) -> Iterator[Line]:
    names = dict.fromkeys(check.device_name.removeprefix("NVIDIA ") for check, _ in judged)
    standings = [check.standing for check in checks if check.standing is not None and check.standing.judges]
    whose = " and ".join(dict.fromkeys(counted(one.boxes, "box") for one in standings)) or "published"
    legend = (Span("● ", "title"), Span("this box  ", "dim"), Span(f"━━ {whose}", "dim"))
    named = clean(" and ".join(names))
    words = f"{named} and {whose} of its kind" if standings else f"published figures for {named}"
    yield section((Span(words, "title"),), width, legend)
    many = len({check.device_index for check, _ in judged}) > 1
    left_out = 0
    if standings:  # a reference judges every case: the worst are shown, and how many are like them
        judged = sorted(judged, key=lambda pair: (pair[1].word == NORMAL, pair[1].share or 0.0))
        wrong = sum(one.word != NORMAL for _, one in judged)
        left_out = max(len(judged) - max(wrong, _OF_BOXES), 0)
        judged = judged[: len(judged) - left_out]
    columns = _published_columns(judged, heading="case" if standings else "peak test", many=many)
    yield from table_lines(Table(columns), width, margin=len(_MARGIN))
    if left_out:
        yield fitted((Span(f"{_MARGIN}and {counted(left_out, 'case')} more, all normal", "dim"),), width)


def _published_columns(
    judged: Sequence[tuple[PerformanceCheck, PeakTest]], *, heading: str, many: bool
) -> tuple[Column | Drawing, ...]:
    known = [
        (check, one, expectation, share)
        for check, one in judged
        if (expectation := one.expectation) is not None and (share := one.share) is not None
    ]
    styles = [CHECK_WORDS[one.word].style for _, one, _, _ in known]

    def draw(cells: int, beside: Sequence[Column]) -> Column:
        axis = _axis([one for _, one, _, _ in known], cells)
        marks = "".join(span.text for span in axis_labels(axis, _MARKS))
        drawn = []
        for (_, _, expectation, share), style in zip(known, styles, strict=True):
            most = expectation.measured_high and expectation.measured_high / expectation.measured_low
            drawn.append([range_plot(share, 1.0, most, axis, style)])
        return Column(marks, drawn)

    names = [
        Span(_label(check, one, many=many), "title" if one.word != NORMAL else "")
        for check, one, _, _ in known
    ]
    here = [format_rate(one.units_per_s, one.unit) for _, one, _, _ in known]
    elsewhere = [Span(_elsewhere(expectation, one), "dim") for _, one, expectation, _ in known]
    words = [CHECK_WORDS[one.word] for _, one, _, _ in known]
    return (
        Column(heading, names, breaks=True),
        Column("here", here, True),
        Column("elsewhere", elsewhere, priority=2),
        Drawing(draw, 8, 200, wishes=((2, 27),)),
        Column("", [format_percent(share) for _, _, _, share in known], True),
        Column("", words),
    )


def _axis(judged: Sequence[PeakTest], cells: int) -> Axis:
    """In shares of the lowest published figure, wide enough for all."""
    shares = [one.share for one in judged if one.share is not None]
    highest = [
        one.expectation.measured_high / one.expectation.measured_low
        for one in judged
        if one.expectation is not None and one.expectation.measured_high is not None
    ]
    low = min(0.5, *(share // 0.25 * 0.25 for share in shares))
    return Axis(max(low, 0.0), max(1.25, *(1.03 * one for one in (*shares, *highest))), max(cells, 8))


def _label(check: PerformanceCheck, judged: PeakTest, *, many: bool) -> str:
    """The peak test, and on which of several GPUs."""
    label = clean(judged.label)
    return f"GPU {check.device_index} {label}" if many and check.device_index is not None else label


def _elsewhere(expectation: Expectation, test: PeakTest) -> str:
    """`49.8 to 53.2`, without the unit where it is that of the figure beside it; `from 380`."""
    units = (test.units_per_s, expectation.measured_low, expectation.measured_high or test.units_per_s)
    rates = [format_rate(value, test.unit) for value in units]
    if len({rate.partition(" ")[2] for rate in rates}) == 1:
        rates = [rate.partition(" ")[0] for rate in rates]
    _, low, high = rates
    if expectation.measured_high is None:
        return f"from {low}"
    return low if low == high else f"{low} to {high}"


# What was measured


def _results(rows: Sequence[CaseLine], width: int) -> Iterator[Line]:
    yield section(
        (Span(f"all {counted(len(rows), 'case')}" if len(rows) > 1 else "the case", "title"),), width
    )
    yield from table_lines(rates_table(rows, widest_bar=_WIDEST_BAR), width, margin=len(_MARGIN))


def _not_measured(rows: Sequence[CaseLine], width: int) -> Iterable[Line]:
    """Each outcome and reason once, however many cases have it: without a GPU that is most of them."""
    named: dict[str, list[str]] = {}
    for row in rows:
        if not row.rate:
            named.setdefault(row.why, []).append(row.name)
    for why, names in named.items():
        style = STATE_STYLES.get(why.partition(":")[0], "dim")
        who = ", ".join(names) if len(names) == 1 or style != "dim" else counted(len(names), "case")
        yield from _flowing(f"{clean(who)}: {clean(why)}", width, style)


# What to do next


def _next(steps: Sequence[NextStep], width: int) -> Iterator[Line]:
    cells = max(len(clean(step.command)) for step in steps)
    for step in steps:
        spans = (Span(f"{_MARGIN}$ ", "dim"), Span(clean(step.command), "accent"))
        why = Span("  " + " " * (cells - len(clean(step.command))) + step.why, "dim")
        yield fitted((*spans, why) if line_width((*spans, why)) <= width else spans, width)


def _flowing(text: str, width: int, style: str, indent: int = 3) -> Iterator[Line]:
    for row in wrapped(text, width - indent - 1, 6):
        yield fitted((Span(" " * indent), Span(row, style)), width)


@dataclass(frozen=True, slots=True)
class Axis:
    """What the two ends of a line of cells stand for."""

    low: float
    high: float
    cells: int

    def place(self, value: float) -> int:
        """The cell of a value; the first or the last if it lies outside."""
        share = (value - self.low) / (self.high - self.low)
        return min(max(int(share * self.cells), 0), self.cells - 1)


def range_plot(value: float, low: float, high: float | None, axis: Axis, style: str) -> tuple[Span, ...]:
    """`────●──━━━━──`: the value as a point, the range from `low` to `high`, or to the end if it is open."""
    first = axis.place(low)
    last = axis.cells - 1 if high is None else axis.place(high)
    kinds = [_RANGE if first <= cell <= last else _TRACK for cell in range(axis.cells)]
    kinds[axis.place(value)] = _POINT
    styles = {_RANGE: "dim", _TRACK: "track", _POINT: style}
    spans: list[Span] = []
    for kind in kinds:
        if spans and spans[-1].style == styles[kind]:
            spans[-1] = Span(spans[-1].text + kind, styles[kind])
        else:
            spans.append(Span(kind, styles[kind]))
    return tuple(spans)


def axis_labels(axis: Axis, marks: tuple[tuple[float, str], ...]) -> Line:
    """Labels that begin at the cells of their values; one that has no room or no value here is left out."""
    text = ""
    for value, label in marks:
        place = axis.place(value)
        is_inside = axis.low <= value <= axis.high and place + len(label) <= axis.cells
        if is_inside and (not text or place > len(text)):
            text = text.ljust(place) + label
    return (Span(text.ljust(axis.cells), "dim"),)
