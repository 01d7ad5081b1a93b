"""Loads on a server, of both sides: output and times by number of users as charts, all loads in tables."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence

from gputui.analysis.order_statistics import Percentile
from gputui.document.html import bullets, letter, safe, table
from gputui.model.absent import Missing
from gputui.model.series import TimeSeries
from gputui.model.units import three_digits
from gputui.services.compare.pairing import Comparison
from gputui.services.compare.svg import Line, line_chart, value_axis
from gputui.services.results.conditions import Evidence
from gputui.services.serving.curve import CLOSED, Level, ServingRun, Times, serving_of
from gputui.services.serving.text import (
    curve_table,
    measured_levels,
    server_line,
    serving_notes,
    unmeasured_lines,
)

_LEAST_POINTS = 2


def loads_part(comparison: Comparison, evidence: Evidence) -> str:
    """Of the newest run of each side; empty if neither offered loads.

    Raises GputuiError if a file can no longer be read.
    """
    sides = []
    for side_letter, side in (("a", comparison.a), ("b", comparison.b)):
        run_id = side.run.run_id
        loads = serving_of(evidence.run(run_id), evidence.loads(run_id))
        if not isinstance(loads, Missing):
            sides.append((side_letter, loads))
    if not sides:
        return ""
    charts = "".join(
        _by_users(title, unit, sides, of)
        for title, unit, of in (
            ("output", "tok/s", lambda level: _known(level.output_per_s)),
            ("median TTFT", "ms", lambda level: _median_ms(level.ttft)),
            ("median TPOT", "ms", lambda level: _median_ms(level.tpot)),
        )
    )
    how = "By number of users, the figures those of the most; b in dashes."
    drawn = f'<p class="dim">{how}</p><div class="charts">{charts}</div>'
    return (drawn if charts else "") + "".join(_table(side, loads) for side, loads in sides)


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
    words = (f"0 to {most:.0f} users", f"{_short(low)} to {_short(high)} {unit}")
    ends = "".join(f"<span>{safe(text)}</span>" for text in words)
    chart = line_chart(f"{title} by number of users", lines, most)
    best = ", ".join(f"{letter(line.side)} {safe(_short(line.series.values[-1]))}" for line in lines)
    return f'<div><p class="of">{safe(title)} {best} {safe(unit)}</p>{chart}<p class="ends">{ends}</p></div>'


def _table(side: str, loads: ServingRun) -> str:
    levels = measured_levels(loads)
    found = curve_table(levels) if levels else None
    lines: Iterable[str] = (*unmeasured_lines(loads), *serving_notes(loads))
    return f"<h3>{letter(side)} {safe(server_line(loads))}</h3>{table(found)}{bullets(lines, 'notes')}"


def _known(value: float | Missing) -> float | None:
    return None if isinstance(value, Missing) else value


def _median_ms(times: Times) -> float | None:
    return 1e3 * times.p50_s.value if isinstance(times.p50_s, Percentile) else None


def _short(value: float) -> str:
    return f"{value:.0f}" if value >= 100 else three_digits(value)
