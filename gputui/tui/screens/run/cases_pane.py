"""How far a run is, and what it has measured of each case, on the Run screen and below a shell's prompt."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

from gputui.document.drawings import gauge_spans
from gputui.document.table import Column, Drawing, Table
from gputui.model.units import UNKNOWN, counted, format_clock, format_seconds
from gputui.services.results.roofline import share_text
from gputui.services.results.throughput import GAVE, HELD_BY_OTHERS
from gputui.services.results.waiting import BY_CLOCK
from gputui.services.runs.progress import CaseProgress, ProgressSnapshot
from gputui.tui.terminal.lines import Line, Span
from gputui.tui.widgets.cells import clean, fitted, line_width
from gputui.tui.widgets.sections import fitting, joined, table_lines

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


def cases_so_far(
    progress: ProgressSnapshot, width: int, rows: int, scrolled: int = 0
) -> tuple[list[Line], int]:
    """At most `rows` lines: headings, cases around the one in progress, and what is not in sight.

    Also returns how far it is scrolled then.
    """
    cases, not_run = progress.to_run, progress.not_run_line
    explained = [_GAVE_IS] if any(case.gave for case in cases) else []
    explained += [BY_CLOCK] if any(case.spread == UNKNOWN for case in cases) else []
    room = max(rows - 1 - len(explained), 1)
    if len(cases) > room or not_run:
        room = max(room - 1, 1)
    now = next((i for i, case in enumerate(cases) if case.is_now), 0)
    scrolled = min(scrolled, max(len(cases) - room, 0))
    first = min(max(now - room * 2 // 3, 0) + scrolled, max(len(cases) - room, 0))
    has_times = progress.server_is_here is not None and width >= _FOR_TIMES
    shown = cases[first : first + room]
    table = _table(shown, progress.shared_words, has_times=has_times)
    lines = list(table_lines(table, width, margin=3, marks=[case.is_now for case in shown]))
    hidden = [*_hidden(cases[:first], "above"), *_hidden(cases[first + room :], "below")]
    if notes := list(filter(None, [*hidden, clean(not_run)])):
        lines.append(fitted((Span(f"   {' · '.join(notes)}", "dim"),), width))
    lines += [fitted((Span(f"   {words}", "dim"),), width) for words in explained]
    return lines, scrolled


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
