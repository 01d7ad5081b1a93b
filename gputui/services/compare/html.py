"""A comparison as one self-contained HTML page, to send to a colleague."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from importlib import resources

from gputui.analysis.attribution import Attribution
from gputui.analysis.verdict import RatioEstimate
from gputui.model.result import CaseResult
from gputui.model.telemetry import HOST
from gputui.services.compare.columns import COLUMNS
from gputui.services.compare.headline import Headline
from gputui.services.compare.pairing import Comparison, Row, Side
from gputui.services.compare.row_text import (
    change_text,
    choice_words,
    difference_words,
    no_difference_words,
    side_words,
)
from gputui.services.compare.svg import (
    Bar,
    IntervalMark,
    Line,
    Strip,
    bar_chart,
    interval_chart,
    line_chart,
    safe,
    strip_chart,
)
from gputui.services.compare.tables import (
    Naming,
    TextTable,
    column_table,
    left_out,
    metric_table,
    performance_lines,
    remarks,
    row_table,
)
from gputui.services.compare.why import Why, part_name, sentence, signed
from gputui.services.compare.why_text import finding_lines, part_table, trust_line, unattributed
from gputui.services.results.conditions import Evidence
from gputui.services.results.throughput import launches_of
from gputui.version import __version__

_PIECES = 180
"""Of a run over time: two for each unit of a chart's width would not be seen."""
_MOST_LAUNCHES = 6
_MOST_DEVICES = 2
_OF_GPU = (
    ("power_w", "power", "W"),
    ("sm_clock_mhz", "SM clock", "MHz"),
    ("temperature_c", "temperature", "°C"),
)
_OF_HOST = (
    ("cpu_busy_pct", "CPU used, 100 for each logical CPU", "%"),
    ("cpu_clock_mhz", "CPU clock", "MHz"),
)
_ANY_WIDTH = 10_000
_POLICY = "default-src 'none'; style-src 'unsafe-inline'; base-uri 'none'; form-action 'none'"


def comparisons_as_page(
    pairs: Sequence[tuple[Comparison, Sequence[Why]]], ignore: str, headline: Headline, evidence: Evidence
) -> str:
    """A page that fetches and runs nothing; names from files cannot become markup.

    Raises GputuiError if the telemetry of a file can no longer be read.
    """
    style = resources.files("gputui.services.compare").joinpath("html.css").read_text(encoding="utf-8")
    steps = "".join(f"<pre>{safe(step.command)}</pre>" for step in headline.steps)
    first = f'<p class="headline">{safe(headline.text)}</p>' + (f"<p>To tell:</p>{steps}" if steps else "")
    bodies = "".join(_section(*pair, ignore, evidence) for pair in pairs)
    names = " vs ".join(safe(side.name) for side in (pairs[0][0].b, pairs[0][0].a))
    page = (
        '<!DOCTYPE html>\n<html lang="en"><head><meta charset="utf-8">\n'
        f'<meta http-equiv="Content-Security-Policy" content="{_POLICY}">\n'
        '<meta name="viewport" content="width=device-width, initial-scale=1">\n'
        f"<title>{names}</title>\n<style>\n{style}</style></head>\n<body>{first}{bodies}\n"
        "<footer>Above zero is more work in the same time on b. All intervals are 95 %; a verdict is"
        " given only where the whole interval is on one side. "
        f"gputui {safe(__version__)} compare</footer></body></html>\n"
    )
    return page.encode(
        "ascii", "xmlcharrefreplace"
    ).decode()  # the same page in whatever encoding it is printed


def _section(comparison: Comparison, whys: Sequence[Why], ignore: str, evidence: Evidence) -> str:
    naming = Naming(comparison, ignore)
    table = _table(row_table(comparison, naming))
    differs = [difference_words(difference) for difference in comparison.differs]
    if not differs and not ignore:
        differs = [no_difference_words(comparison)]
    parts = [
        f"<h1>{safe(comparison.b.name)} <small>vs</small> {safe(comparison.a.name)}</h1>",
        "".join(
            f'<p><b class="{letter}">{letter}</b> {safe(side_words(side, ignore, _ANY_WIDTH))}</p>'
            for letter, side in (("a", comparison.a), ("b", comparison.b))
        ),
        _list(choice_words(comparison, ignore), "notes"),
        _part("What differs", _list(differs)),
        _part("Verdicts", interval_chart(list(_marks(comparison, naming)))),
        table,
        _list((f"[{number}] {note}" for number, note in enumerate(naming.notes, 1)), "notes"),
        _list((*remarks(comparison, naming), *performance_lines(comparison))),
        _part("Why", "".join(_why(why, naming) for why in whys) + _list(unattributed(whys, naming))),
        _part("Times of blocks", "".join(_strips(row, naming) for row in comparison.rows)),
        *(
            _part(column.name.capitalize(), _table(column_table(column, comparison, naming)))
            for column in COLUMNS
            if column.table_heading
        ),
        _part("Figures", _table(metric_table(comparison, naming))),
        _part("Telemetry", _telemetry(comparison, evidence)),
        _list(left_out(comparison, naming)),
    ]
    return f"\n<section>{''.join(part for part in parts if part)}</section>"


def _marks(comparison: Comparison, naming: Naming) -> Iterable[IntervalMark]:
    for row in comparison.rows:
        if isinstance(row.estimate, RatioEstimate):
            estimate = row.estimate
            told = change_text(row.rate)
            yield IntervalMark(
                naming.name(row), row.verdict.word, told, estimate.ratio, estimate.low, estimate.high
            )


def _why(why: Why, naming: Naming) -> str:
    found = why.attribution
    if not isinstance(found, Attribution):
        lines = list(finding_lines(why))
        return f"<h3>{safe(naming.name(why.row))}</h3>{_list(lines)}" if lines else ""
    shown = found.shown()
    bars = [Bar(f"{part_name(part)} {signed(part.difference_ns)}", part.difference_ns) for part in shown]
    rest_ns = found.difference_ns - sum(part.difference_ns for part in shown)
    if rest_ns:
        bars.append(Bar(f"the rest {signed(rest_ns)}", rest_ns))
    return (
        f"<h3>{safe(naming.name(why.row))}</h3><p>{safe(sentence(why.row, found))}</p>{bar_chart(bars)}"
        f"{_table(part_table(found, with_peak=True))}{_list((trust_line(found), *finding_lines(why)))}"
    )


def _strips(row: Row, naming: Naming) -> str:
    """Seconds per step of each launch, block by block."""
    strips = []
    for letter, cell in (("a", row.a), ("b", row.b)):
        launches = [] if cell.result is None else launches_of(cell.result)
        for number, launch in enumerate(launches[:_MOST_LAUNCHES], 1):
            times = [s_per_unit * row.case.units_per_step for s_per_unit in launch]
            strips.append(Strip(letter, f"{letter} launch {number}", times))
    chart = strip_chart(strips)
    return f"<h3>{safe(naming.name(row))}</h3>{chart}" if chart else ""


def _telemetry(comparison: Comparison, evidence: Evidence) -> str:
    """Telemetry of the newest run of each side: the GPUs that were measured, otherwise the host."""
    is_one_run = comparison.a.run.run_id == comparison.b.run.run_id
    sides = (("a", comparison.a), ("b", comparison.b))[: 1 if is_one_run else 2]
    lines: dict[str, list[Line]] = {}
    for letter, side in sides:
        devices = _devices(side)
        series = evidence.series(side.run.run_id, _PIECES)
        first_us = min((one.first_us for one in series), default=0)
        for one in series:
            if one.device_index not in devices:
                continue
            seconds = [(t_us - first_us) * 1e-6 for t_us in one.t_us]
            name = "host" if one.device_index == HOST else f"GPU {one.device_index}"
            for key, _, _ in _OF_HOST if one.device_index == HOST else _OF_GPU:
                if key in one.columns and any(map(math.isfinite, one.columns[key])):
                    line = Line(letter, f"{letter} {name}", seconds, one.columns[key])
                    lines.setdefault(key, []).append(line)
    charts = [
        line_chart(title, unit, lines[key]) for key, title, unit in (*_OF_GPU, *_OF_HOST) if key in lines
    ]
    if not charts:
        return ""
    shown = ", ".join(dict.fromkeys(line.label for found in lines.values() for line in found))
    how = "one run holds both sides" if is_one_run else "a is the whole line, b the dashed"
    return f"<p>{safe(shown)}; {how}; from the beginning of the newest run.</p>{''.join(charts)}"


def _devices(side: Side) -> Sequence[int]:
    """The first GPUs that measured anything in the newest run of a side, otherwise the host."""
    results: list[CaseResult] = [
        case.result
        for case in side.cases
        if case.run.run_id == side.run.run_id and case.result.outcome == "ok"
    ]
    used = sorted({result.device_index for result in results if result.device_index is not None})
    return used[:_MOST_DEVICES] or [HOST]


def _part(title: str, body: str) -> str:
    return f"\n<h2>{title}</h2>{body}" if body else ""


def _list(lines: Iterable[str], kind: str = "") -> str:
    items = "".join(f"<li>{safe(line)}</li>" for line in lines)
    return f'\n<ul class="{kind}">{items}</ul>' if items else ""


def _table(table: TextTable | None) -> str:
    if table is None:
        return ""
    head = "".join(
        _cell("th", heading, place in table.numeric) for place, heading in enumerate(table.headings)
    )
    rows = "".join(
        f"<tr>{''.join(_cell('td', cell, place in table.numeric) for place, cell in enumerate(cells))}</tr>\n"
        for cells in table.rows
    )
    return f'\n<div class="wide"><table><thead><tr>{head}</tr></thead><tbody>\n{rows}</tbody></table></div>'


def _cell(tag: str, text: str, is_numeric: bool) -> str:
    return f"<{tag}{' class=n' if is_numeric else ''}>{safe(text)}</{tag}>"
