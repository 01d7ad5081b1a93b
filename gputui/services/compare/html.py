"""A comparison as one self-contained HTML page, to send to somebody who decides.

Its charts are inline SVG: shapes only, since labels are text of the page, which can wrap. A chart is as wide
as its place: positions are percentages, or the drawing is stretched. No script, no style attribute; the style
sheet of the page knows the classes.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from statistics import median

from gputui.analysis.attribution import Attribution
from gputui.analysis.cost import Cost
from gputui.analysis.order_statistics import Percentile
from gputui.analysis.statistics import bin_of, histogram
from gputui.document.markup import (
    bullets,
    command_line,
    folded,
    html_of,
    letter,
    page_of,
    part,
    safe,
    table,
    with_units,
)
from gputui.document.table import table_of
from gputui.metrics import Metric, charted
from gputui.model.absent import Missing, known
from gputui.model.result import TimeSeries
from gputui.model.telemetry import HOST
from gputui.model.units import counted, format_percent, format_seconds, three_digits
from gputui.services.compare.columns import COLUMNS, COST
from gputui.services.compare.headline import (
    Headline,
    subject,
)
from gputui.services.compare.pairing import (
    Comparison,
    Row,
    Side,
    main_row,
    performance_checks_of_side,
)
from gputui.services.compare.row_text import (
    choice_words,
    letter_of,
    no_difference_words,
    side_parts,
)
from gputui.services.compare.rows_table import rows_of_sides, rows_table
from gputui.services.compare.side_records import MOST_METRICS, serving_of_side
from gputui.services.compare.suggestions import effort_words
from gputui.services.compare.tables import Naming, below_rows, disturbances, row_table
from gputui.services.compare.text import price_points
from gputui.services.compare.why import Why, finding_lines, part_table
from gputui.services.results.conditions import Evidence
from gputui.services.results.throughput import step_times_of
from gputui.services.serving.curve import CLOSED, Level, ServingRun, Times
from gputui.services.serving.text import (
    curve_table,
    measured_levels,
    server_line,
    serving_notes,
    unmeasured_lines,
)

_HOW_TO_READ = (
    "Above zero, b does more work than a in the same time. From half as much again on, a change is a factor.",
    "Intervals are 95 %. Faster and slower: the whole interval lies beyond 1 %. Same: it lies within.",
    "A hollow mark is undecided. A diamond is the average of a class of cases, their geometric mean.",
    "The axis is logarithmic: twice as fast and half as fast are equally far from zero.",
    "Cost is the price of the box for the time that the work takes; its interval is that of the rate.",
)


def comparisons_as_page(
    pairs: Sequence[tuple[Comparison, Sequence[Why]]], ignore: str, headline: Headline, evidence: Evidence
) -> str:
    """A page that fetches and runs nothing; names from files cannot become markup.

    Raises GputuiError if the telemetry of a file can no longer be read.
    """
    comparisons = [comparison for comparison, _ in pairs]
    sides = (comparisons[0].a, *(comparison.b for comparison in comparisons))
    names = " vs ".join(safe(side.name) for side in (*sides[1:], sides[0]))
    first, *rest = headline.sentences
    body = "".join(
        (
            f'<p class="dim">{names}</p><h1>{with_units(safe(first))}</h1>',
            f'<p class="lead">{safe(" ".join(rest))}</p>' if rest else "",
            _sides(sides, ignore),
            _to_tell(headline),
            part("Every case" if len(pairs) > 1 else "b vs a, every case", _rows(comparisons, ignore)),
            _details(pairs, ignore, evidence),
            folded("How to read this page", bullets(_HOW_TO_READ)),
        )
    )
    return page_of(names, body)


def _sides(sides: Sequence[Side], ignore: str) -> str:
    """A box for each side, named after its device where these differ."""
    parts = [side_parts(side, ignore) for side in sides]
    by_device = len({device for _, device, *_ in parts}) == len(sides)
    boxes = []
    for place, (name, device, price, torch, launches, day) in enumerate(parts, -1):
        side = "a" if place < 0 else letter_of(place)
        title, more = (device, name) if by_device else (name, device)
        words = ", ".join(filter(None, (title, price)))
        baseline = "baseline" if side == "a" else ""
        about = " · ".join(filter(None, (baseline, more, torch, launches, day)))
        boxes.append(
            f'<div class="box {side}">{letter(side)} <b>{safe(words)}</b>'
            f'<p class="dim">{safe(about)}</p></div>'
        )
    return f'\n<div class="sides">{"".join(boxes)}</div>'


def _to_tell(headline: Headline) -> str:
    if not headline.steps:
        return ""
    commands = "".join(command_line(f"{step.box}$ {step.command}") for step in headline.steps)
    purpose, effort = safe(headline.purpose.capitalize()), safe(effort_words(headline.steps))
    return f'\n<div class="tell"><p><b>{purpose}</b>, {effort}:</p>{commands}</div>'


def _rows(comparisons: Sequence[Comparison], ignore: str) -> str:
    """The table of rows with their intervals drawn, and what is to know of it."""
    is_pair = len(comparisons) == 1
    rows = rows_of_sides(comparisons, ignore, one_sided=False)
    if not rows:
        return ""
    made = rows_table(
        comparisons,
        rows,
        ignore,
        note=lambda row: f": {row.rate.reason}" if row.rate.ratio is None else "",
        is_drawn=True,
        has_means=is_pair,
    )
    doubts, notes = _notes(comparisons, ignore)
    return (
        table(made.table, "forest" if is_pair else "forest many")
        + bullets(doubts, "doubts")
        + bullets((*notes, *_about_costs(comparisons)), "notes")
    )


def _notes(comparisons: Sequence[Comparison], ignore: str) -> tuple[list[str], list[str]]:
    """What makes rows doubtful; which runs were chosen, and whether each device performs as elsewhere."""
    doubts: list[str] = []
    notes: list[str] = []
    of_sides = [("a", comparisons[0].a)]
    for place, comparison in enumerate(comparisons):
        side = letter_of(place)
        of_pair = f"{side} vs a: " if len(comparisons) > 1 else ""
        doubts += disturbances(comparison, Naming(comparison, ignore), side)
        notes += [f"{of_pair}{line}" for line in choice_words(comparison, ignore)]
        of_sides.append((side, comparison.b))
    notes += [f"{side} {found.text}" for side, of in of_sides for found in performance_checks_of_side(of)]
    return list(dict.fromkeys(doubts)), notes


def _about_costs(comparisons: Sequence[Comparison]) -> Iterable[str]:
    """What is to know of costs, where a side has a price."""
    cells = [("a", row.a) for row in comparisons[0].rows]
    cells += [(letter_of(place), row.b) for place, one in enumerate(comparisons) for row in one.rows]
    paid = [(side, cell.cost.share) for side, cell in cells if isinstance(cell.cost, Cost)]
    if not paid:
        return
    of_sides: dict[str, list[str]] = {}
    for side in dict.fromkeys(side for side, _ in paid):
        shares = sorted({share for other, share in paid if other == side} - {1.0})
        of_sides.setdefault(" or ".join(map(format_percent, shares)), []).append(side)
    for words, sides in of_sides.items():
        if words:
            yield f"{', '.join(sides)}: {words} of the price of the box, for the GPUs that a case uses"
    for reason, sides in COST.reasons(cells).items():
        yield f"{', '.join(dict.fromkeys(sides))}: {reason}"
    main = main_row(comparisons[0].rows)
    if main is not None and len(comparisons) == 1:
        yield from (f"{condition}: {then}" for condition, then in price_points(main, comparisons[0]))


def _details(pairs: Sequence[tuple[Comparison, Sequence[Why]]], ignore: str, evidence: Evidence) -> str:
    if len(pairs) == 1:
        ((comparison, whys),) = pairs
        return pair_details(comparison, whys, main_row(comparison.rows), ignore, evidence)
    return "".join(
        folded(
            f"{letter_of(place)}, {comparison.b.name}, vs a in detail",
            f'<p class="dim">In this part {letter("b")} is {letter(letter_of(place))},'
            f" {safe(comparison.b.name)}.</p>"
            + pair_details(comparison, whys, main_row(comparison.rows), ignore, evidence),
        )
        for place, (comparison, whys) in enumerate(pairs)
    )


_PIECES = 300
"""Of a run over time: more would not be seen."""
_MOST_DEVICES = 2
_LEAST_POINTS = 2
"""Of a line in a chart of loads."""


def pair_details(
    comparison: Comparison, whys: Sequence[Why], main: Row | None, ignore: str, evidence: Evidence
) -> str:
    """The main case in full, then everything else folded.

    Raises GputuiError if the telemetry of a file can no longer be read.
    """
    naming = Naming(comparison, ignore)
    by_row = {id(why.row): why for why in whys}
    main_why = None if main is None else by_row.get(id(main))
    boxes = [] if main is None else _boxes(main, main_why, f", {subject(main, comparison.rows)}")
    first = "".join(f"<section>{box}</section>" for box in boxes)
    others = "".join(
        f"<section><h3>{safe(naming.name(row))}</h3>{body}</section>"
        for row in comparison.rows
        if row is not main and (body := "".join(_boxes(row, by_row.get(id(row)))))
    )
    differs = comparison.differs
    # a machine's id says nothing to a reader but that it is another one
    recorded = [(what, *(("", "") if what == "machine" else values)) for what, *values in differs]
    differences = table(table_of(("", "a", "b"), recorded)) if differs else ""
    words = ", ".join(what for what, _, _ in differs)
    below = [column for column in COLUMNS if column.table_heading]
    figures = table(row_table(comparison, naming))  # which numbers the notes
    figures += "".join(html_of(part) for part in below_rows(comparison, whys, naming, below) if part)
    nothing = "" if differs or ignore else no_difference_words(comparison)
    return "".join(
        (
            f'\n<div class="pair">{first}</div>' if first else "",
            part("Loads on the server", _loads(comparison, evidence)),
            part("Over the run", _telemetry(comparison, evidence)),
            "\n<section><h2>Details</h2>",
            folded(f"Recorded differences: {words}", differences),
            f"<p>{safe(nothing[0].upper())}{safe(nothing[1:])}.</p>" if nothing else "",
            folded(
                "The other cases: time per step, and why",
                f'<div class="pair">{others}</div>' if others else "",
            ),
            folded("All figures", figures),
            "</section>",
        )
    )


def _boxes(row: Row, why: Why | None, name: str = "") -> list[str]:
    """Why the sides differ, and how long the blocks took; with a name under a large heading."""
    return [box for box in (_why(why, name), _times(row, name)) if box]


def _why(why: Why | None, name: str) -> str:
    if why is None:
        return ""
    findings = bullets(finding_lines(why))
    found = why.attribution
    if not isinstance(found, Attribution):
        return f"{_heading('What holds a step back', name)}{findings}" if findings else ""
    longer = "longer" if found.difference_ns > 0 else "less"
    title = f"Why a step of b takes {format_seconds(abs(found.difference_ns) * 1e-9)} {longer}"
    return f"{_heading(title, name)}{table(part_table(found, is_drawn=True), 'parts')}{findings}"


def _times(row: Row, name: str) -> str:
    """How long a step took in the blocks of each side, without the waiting for CPUs, on one axis."""
    times_of = [("a", step_times_of(row.a.result)), ("b", step_times_of(row.b.result))]
    sides = [(side, steps) for side, steps in times_of if steps]
    axis = time_axis(seconds for _, steps in sides for launch in steps for seconds in launch)
    if axis is None:
        return ""
    charts = ""
    for side, steps in sides:
        times = [seconds for launch in steps for seconds in launch]
        words = (
            f"{counted(len(times), 'block')} in {counted(len(steps), 'launch')},"
            f" median {format_seconds(median(times))}"
        )
        chart = time_histogram(side, steps, axis, f"time per step of {side}")
        charts += f'<p class="of">{letter(side)} {safe(words)}</p>{chart}'
    middle = f"a step{', log axis' if axis.is_log else ''}"
    ends = _ends(format_seconds(axis.low_s), middle, format_seconds(axis.high_s))
    return f"{_heading(f'Time per step{name}', name)}{charts}{ends}"


def _heading(title: str, name: str) -> str:
    return f"<h2>{safe(title)}</h2>" if name else f"<h4>{safe(title)}</h4>"


def _ends(*texts: str) -> str:
    words = "".join(f"<span>{safe(text)}</span>" for text in texts)
    return f'<p class="ends">{words}</p>'


def _telemetry(comparison: Comparison, evidence: Evidence) -> str:
    """Telemetry of the newest run of each side: the GPUs that were measured, otherwise the host."""
    is_one_run = comparison.a.run.run_id == comparison.b.run.run_id
    sides = (("a", comparison.a), ("b", comparison.b))[: 1 if is_one_run else 2]
    lines: dict[Metric, list[Line]] = {}
    for side_letter, side in sides:
        for metric, line in _lines(side_letter, side, evidence):
            lines.setdefault(metric, []).append(line)
    charts = [_over_time(metric, found, is_one_run) for metric, found in lines.items()]
    if not charts:
        return ""
    how = (
        "one run holds both sides"
        if is_one_run
        else "from the beginning of each side's newest run; b in dashes"
    )
    return f'<p class="dim">Medians; {how}.</p><div class="charts">{"".join(charts)}</div>'


def _lines(side_letter: str, side: Side, evidence: Evidence) -> Iterable[tuple[Metric, Line]]:
    """Of the first GPUs that measured anything in the newest run of a side, otherwise of the host."""
    newest = [case.result for case in side.cases if case.run.run_id == side.run.run_id]
    measured = {result.device_index for result in newest if result.outcome == "ok"}
    devices = sorted(index for index in measured if index is not None)[:_MOST_DEVICES] or [HOST]
    series = evidence.series(side.run.run_id, _PIECES)
    first_us = min((one.first_us for one in series), default=0)
    for one in series:
        if one.device_index not in devices:
            continue
        name = "host" if one.device_index == HOST else f"GPU {one.device_index}"
        for metric in charted(one.device_index)[:MOST_METRICS]:
            line = Line(side_letter, name, one.of(metric.key, first_us))
            if line.series.known:
                yield metric, line


def _over_time(metric: Metric, lines: Sequence[Line], is_one_run: bool) -> str:
    is_alone = len({(line.side, line.label) for line in lines}) == len({line.side for line in lines})
    values = ", ".join(
        ("" if is_one_run else f"{letter(line.side)} ")
        + ("" if is_alone else f"{safe(line.label)} ")
        + safe(metric.text(median(line.series.known)))
        for line in lines
    )
    longest_s = max((s for line in lines for s in line.series.seconds), default=0.0)
    ends = _ends("0 s", metric.between(*value_axis(lines)), format_seconds(longest_s))
    chart = line_chart(f"{metric.name} over time", lines, longest_s)
    return f'<div><p class="of">{safe(metric.name)} {values}</p>{chart}{ends}</div>'


# Loads on a server: output and times by number of users as charts, all loads in tables


def _loads(comparison: Comparison, evidence: Evidence) -> str:
    """Of the newest run of each side; empty if neither offered loads."""
    found = [("a", serving_of_side(comparison.a, evidence)), ("b", serving_of_side(comparison.b, evidence))]
    sides = [(side, loads) for side, loads in found if not isinstance(loads, Missing)]
    if not sides:
        return ""
    charts = "".join(
        _by_users(title, unit, sides, of)
        for title, unit, of in (
            ("output", "tok/s", lambda level: known(level.output_per_s)),
            ("median TTFT", "ms", lambda level: _median_ms(level.ttft)),
            ("median TPOT", "ms", lambda level: _median_ms(level.tpot)),
        )
    )
    how = "By number of users, the figures those of the most; b in dashes."
    drawn = f'<p class="dim">{how}</p><div class="charts">{charts}</div>'
    page = drawn if charts else ""
    for side, loads in sides:
        levels = measured_levels(loads)
        notes = (*unmeasured_lines(loads), *serving_notes(loads))
        page += f"<h3>{letter(side)} {safe(server_line(loads))}</h3>"
        page += table(curve_table(levels) if levels else None) + bullets(notes, "notes")
    return page


def _by_users(
    title: str,
    unit: str,
    sides: Sequence[tuple[str, ServingRun]],
    of: Callable[[Level], float | None],
) -> str:
    lines = []
    for side, loads in sides:
        points = [
            (float(level.users), value)
            for level in loads.levels
            if level.kind == CLOSED and level.users and (value := of(level)) is not None
        ]
        if len(points) >= _LEAST_POINTS:
            lines.append(Line(side, side, TimeSeries(*zip(*points, strict=True))))
    if not lines:
        return ""
    most = max(users for line in lines for users in line.series.seconds)
    low, high = value_axis(lines)
    ends = _ends(f"0 to {most:.0f} users", f"{three_digits(low)} to {three_digits(high)} {unit}")
    chart = line_chart(f"{title} by number of users", lines, most)
    best = ", ".join(f"{letter(line.side)} {safe(three_digits(line.series.values[-1]))}" for line in lines)
    return f'<div><p class="of">{safe(title)} {best} {safe(unit)}</p>{chart}{ends}</div>'


def _median_ms(times: Times) -> float | None:
    return 1e3 * times.p50_s.value if isinstance(times.p50_s, Percentile) else None


_BINS = 90
_LOG_FROM = 4.0
"""Ratio of the longest to the shortest from which times are drawn on a log axis."""
_LEAST_SPAN = 0.2
"""Of the highest value that a chart over time is high, so that a watt or two does not look like a storm."""
_ACROSS, _DOWN = 1000, 100
"""Units of a drawing that is stretched to its place."""


@dataclass(frozen=True, slots=True)
class TimeAxis:
    """Times of steps, from a little below the shortest to a little above the longest, in equal bins."""

    low_s: float
    high_s: float

    @property
    def is_log(self) -> bool:
        return self.high_s > _LOG_FROM * self.low_s

    def bin(self, seconds: float) -> int:
        return bin_of(seconds, self.low_s, self.high_s, _BINS, is_log=self.is_log)


def time_axis(times: Iterable[float]) -> TimeAxis | None:
    """None if there is no time above zero."""
    known = [one for one in times if one > 0]
    if not known:
        return None
    margin = 1 + max(0.02, 0.06 * (max(known) / min(known) - 1))
    return TimeAxis(min(known) / margin, max(known) * margin)


def time_histogram(side: str, launches: Sequence[Sequence[float]], axis: TimeAxis, label: str) -> str:
    """How many blocks took how long, with a tick below for the median of each launch."""
    times = [seconds for launch in launches for seconds in launch if seconds > 0]
    counts = histogram(times, axis.low_s, axis.high_s, _BINS, is_log=axis.is_log)
    most = max(counts) or 1
    width = _ACROSS / _BINS
    body = "".join(
        f"M{place * width:.0f} 84v-{max(84 * count / most, 4):.0f}h{width - 1:.0f}V84z"
        for place, count in enumerate(counts)
        if count
    )
    middles = [sorted(launch)[len(launch) // 2] for launch in launches if launch]
    ticks = "".join(f"M{(axis.bin(s) + 0.5) * width:.0f} 90v10" for s in middles if s > 0)
    return _stretched(
        "times",
        label,
        f'<path class="body {safe(side)}" d="{body}"/><path class="base" d="M0 85H{_ACROSS}"/>'
        f'<path class="tick {safe(side)}" d="{ticks}"/>',
    )


@dataclass(frozen=True, slots=True)
class Line:
    """One device over time."""

    side: str
    label: str
    series: TimeSeries


def value_axis(lines: Sequence[Line]) -> tuple[float, float]:
    """The lowest and the highest value of a chart over time; a line at least must have a value."""
    known = [value for line in lines for value in line.series.known]
    low, high = min(known), max(known)
    margin = max(0.05 * (high - low), (_LEAST_SPAN * abs(high) - (high - low)) / 2, 0.5)
    return (max(low - margin, 0.0) if low >= 0 else low - margin), high + margin


def line_chart(label: str, lines: Sequence[Line], longest_s: float) -> str:
    """A metric over the time since each run began; b is drawn in dashes."""
    low, high = value_axis(lines)
    drawn = []
    for line in lines:
        path, is_on = [], False
        for second, value in zip(line.series.seconds, line.series.values, strict=True):
            if math.isfinite(value):
                x, y = _ACROSS * second / (longest_s or 1.0), _DOWN * (high - value) / (high - low)
                path.append(f"{'L' if is_on else 'M'}{x:.0f} {y:.1f}")
            is_on = math.isfinite(value)
        title = f"<title>{safe(line.label)}</title>"
        drawn.append(f'<path class="line {safe(line.side)}" d="{"".join(path)}">{title}</path>')
    return _stretched("over-time", label, f'<path class="base" d="M0 100H{_ACROSS}"/>{"".join(drawn)}')


def _stretched(kind: str, label: str, parts: str) -> str:
    return (
        f'<svg class="{kind}" viewBox="0 0 {_ACROSS} {_DOWN}" preserveAspectRatio="none" role="img"'
        f' aria-label="{safe(label)}">{parts}</svg>'
    )
