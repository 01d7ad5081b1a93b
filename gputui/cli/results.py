"""The table of one run, as `run` ends with it and `show` prints it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import click
from rich.console import Console
from rich.table import Table
from rich.text import Text

from gputui.analysis.peak_tests import NO_REFERENCE
from gputui.analysis.verdict import SpeedEstimate
from gputui.model.absent import Missing
from gputui.model.journal import Price
from gputui.model.result import CaseResult, Run
from gputui.model.units import (
    counted,
    format_percent,
    format_rate,
    format_seconds,
)
from gputui.services.results.costs import cost_cells
from gputui.services.results.expected import performance_checks
from gputui.services.results.headline import case_order, run_headline, size_order
from gputui.services.results.labels import (
    NOT_RUN,
    case_name,
    ending_words,
    interval_words,
    is_recording,
    metric_range,
    metric_text,
    needs_budget,
    outcome_words,
    run_notes,
    shared_case_words,
    short_result_name,
    some_of,
)
from gputui.services.results.metrics import metrics_of
from gputui.services.results.roofline import peak_share, uses_of
from gputui.services.results.throughput import speed_of
from gputui.services.support.text_tables import Page, add_row, flowing, table, table_width

_LEAST_ROWS = 3
_OTHER_LINES = 4
"""The headings of the table, what is left out of it, the line below it, and the prompt."""
_MOST_MISSING = 2
_BAR = 10
_Speeds = Sequence[tuple[CaseResult, SpeedEstimate]]


def print_run(
    out: Console,
    run: Run,
    heading: Sequence[str] = (),
    footer: Sequence[str] = (),
    *,
    is_verbose: bool = False,
    shows_all: bool = False,
    share: float = 1.0,
    headline: str = "",
) -> None:
    """The headline, `heading`, the cases, in a line what else is to know, and `footer`.

    A terminal gets what fits on `share` of its screen, unless it is to show all: the case of the headline,
    then those on a GPU. Anything else gets all cases. Efficiency, notes and reasons come with `is_verbose`.
    The headline is the run's, unless another is given.
    """
    page, end = Page(out), Page(out)
    page.add(Text(headline or run_headline(run), style="bold"))
    for line in heading:
        page.line(line)
    page.line()
    measured, unmeasured = _by_outcome(run)
    if is_verbose:
        page.show()
        _print_verbose(out, run, measured, unmeasured)
        out.print()
    else:
        for line in missing_lines(run):
            end.line(line)
        notes = run_notes(run, is_brief=True)
        if notes or unmeasured:
            end.line(" · ".join((*_measured_of(run), *notes, "more: --verbose")))
        lines = end.height + sum(-(-len(line) // out.width) for line in footer)
        is_whole = shows_all or not out.is_terminal
        room = None if is_whole else int(out.size.height * share) - lines - _OTHER_LINES
        if measured:
            _write_cases(page, run, measured, room)
            page.line()
        page.add(end)
        page.show()
    for line in footer:
        click.echo(line)  # the terminal breaks it, so that a command can be copied whole


def missing_lines(run: Run) -> list[str]:
    """Which cases were not measured and why, the failures first; two lines at most, the second may count.

    Why a run was interrupted is in its headline, not beside the cases that it did not finish; so is how a
    recording ended.
    """
    if is_recording(run):
        return []
    is_cut = run.summary.status == "interrupted"
    found: dict[tuple[bool, str, str], list[str]] = {}
    for case in run.cases:
        if isinstance(speed_of(case), Missing):
            is_plan = case.outcome in NOT_RUN
            how, why = ending_words(case)
            why = "" if is_cut and case.outcome == "interrupted" else why
            found.setdefault((is_plan, how, why), []).append(case.case.name)
    kinds = sorted(found.items(), key=lambda kind: kind[0][0])
    lines = [
        f"{counted(len(names), 'case') if is_plan else some_of(names)} {': '.join(filter(None, words))}"
        for (is_plan, *words), names in kinds
    ]
    if len(lines) <= _MOST_MISSING:
        return lines
    shown = _MOST_MISSING - 1
    left = sum(len(names) for _, names in kinds[shown:])
    return [*lines[:shown], f"{counted(left, 'more case')} not measured"]


def _measured_of(run: Run) -> list[str]:
    """How many of the cases that can run on this box were measured, if some were not, but any was."""
    able = [
        case
        for case in run.cases
        if case.outcome not in NOT_RUN or (case.outcome == "skipped" and needs_budget(case))
    ]
    count = sum(not isinstance(speed_of(case), Missing) for case in run.cases)
    if not 0 < count < len(able):
        return []
    if len(able) < len(run.cases):
        return [f"measured {count} of the {counted(len(able), 'case')} that can run here"]
    return [f"measured {count} of {counted(len(able), 'case')}"]


def _write_cases(page: Page, run: Run, measured: _Speeds, most_lines: int | None) -> None:
    """The cases that fit, then the other figures if they fit; a line counts what did not."""
    room = None if most_lines is None else max(most_lines - page.height, _LEAST_ROWS)
    rows = case_rows(measured, room)
    if rows:
        headings, *lines = _brief(page, rows, run)
        page.table(headings, lines, right=(1, 2, 3))
    metrics = _metric_rows(run)
    has_metrics = not metrics or room is None or len(rows) + len(metrics) + 2 <= room
    if metrics and has_metrics:
        page.line()
        page.table(_METRIC_HEADINGS, metrics, right=(1,))
    left = [counted(len(measured) - len(rows), "more case")] if len(rows) < len(measured) else []
    left += (
        []
        if has_metrics or not metrics
        else [counted(sum(bool(value) for _, value, _ in metrics), "other figure")]
    )
    if left:
        page.line(f"{' and '.join(left)}: --all")


def case_rows(measured: _Speeds, room: int | None) -> _Speeds:
    """All if they fit; else the case of the headline, then those on a GPU, of each workload the largest."""
    if room is None or len(measured) <= room:
        return measured
    sizes: dict[tuple[str, str], int] = {}
    for case in (result.case for result, _ in measured):
        key = case.work.workload, case.variant.device_class
        sizes[key] = min(sizes.get(key, size_order(case)), size_order(case))
    main = min(measured, key=lambda pair: case_order(pair[0].case))

    def place(pair: tuple[CaseResult, SpeedEstimate]) -> tuple[bool, bool, bool, tuple[int, ...]]:
        case = pair[0].case
        is_largest = size_order(case) == sizes[case.work.workload, case.variant.device_class]
        return pair is not main, case.variant.device_class != "gpu", not is_largest, case_order(case)

    kept = {id(pair) for pair in sorted(measured, key=place)[:room]}
    return [pair for pair in measured if id(pair) in kept]


def _brief(page: Page, measured: _Speeds, run: Run) -> list[list[str]]:
    """Headings and rows: case, rate, interval, share of the peak, also drawn, cost; the last go first if
    there is no room."""
    common = shared_case_words(case.case for case, _ in measured)
    unsaid = [*common, "gpu"]  # beside cases on a CPU the others need no word
    shares = [peak_share(case, run.cases, run.summary.machine) for case, _ in measured]
    columns = [
        [f"case ({' '.join(common)})" if common else "case"]
        + [short_result_name(case, unsaid, is_short=True) for case, _ in measured],
        ["rate", *(format_rate(speed.units_per_s, case.case.unit) for case, speed in measured)],
        ["95 %", *(interval_words(speed) for _, speed in measured)],
    ]
    peaks = ["of peak", *(share.text if share else "—" for share in shares)]
    bars = ["", *("━" * round(min(share.share, 1.0) * _BAR) if share else "" for share in shares)]
    costs = cost_cells(measured, run.summary.price)
    with_peaks = [*columns, peaks] if any(shares) else columns
    with_costs = [*with_peaks, costs] if any(costs[1:]) else with_peaks
    with_bars = [*with_peaks, [f"{bar:{_BAR}}" for bar in bars], *with_costs[len(with_peaks) :]]
    for some in (with_bars if any(shares) else with_costs, with_costs, with_peaks, columns):
        lines = [list(line) for line in zip(*some, strict=True)]
        if table_width(lines, page.encoding) <= page.width:
            break
    return lines


def _by_outcome(run: Run) -> tuple[list[tuple[CaseResult, SpeedEstimate]], dict[str, list[str]]]:
    """Measured cases, and by its reason the names of those that were not."""
    measured: list[tuple[CaseResult, SpeedEstimate]] = []
    unmeasured: dict[str, list[str]] = {}
    for case in run.cases:
        speed = speed_of(case)
        if isinstance(speed, SpeedEstimate):
            measured.append((case, speed))
        else:
            unmeasured.setdefault(outcome_words(case), []).append(case.case.name)
    return measured, unmeasured


def _print_verbose(
    out: Console,
    run: Run,
    measured: _Speeds,
    unmeasured: Mapping[str, Sequence[str]],
) -> None:
    """Cases with all their columns, figures and efficiency, what was not run and why, and every note."""
    if measured:
        out.print(_table(out, measured, run.summary.price))
    _print_metrics(out, run)
    _print_uses(out, run)
    for reason, names in unmeasured.items():
        shown = ", ".join(names) if len(names) <= 2 else f"{len(names)} {_common_part(names)}cases"
        out.print(flowing(f"{shown}: {reason}"))
    for line in run_notes(run):
        out.print(flowing(line))
    out.print()
    judged = performance_checks(run)
    if not judged and any(not case.case.is_program for case in run.cases):
        out.print(Text("cannot tell whether this box is normal: no peak test (gemm, membw) was measured"))
    for performance in judged:
        out.print(Text(performance.text, style="bold" if performance.word != NO_REFERENCE else ""))


_METRIC_HEADINGS = ("figure", "value", "range of launches")


def _metric_rows(run: Run) -> list[tuple[str, str, str]]:
    """What cases gave besides their speed, below the name of each."""
    rows: list[tuple[str, str, str]] = []
    for case in run.cases:
        found = metrics_of(case)
        if found:
            rows.append((case_name(case), "", ""))
        rows += [(f"  {f.title}", metric_text(f), metric_range(f)) for f in found]
    return rows


def _print_metrics(out: Console, run: Run) -> None:
    rows = _metric_rows(run)
    if rows:
        made = table(_METRIC_HEADINGS, right=(1,), breaks=(2,))
        for row in rows:
            add_row(made, *row)
        out.print()
        out.print(made)


def _print_uses(out: Console, run: Run) -> None:
    """What each case achieved, and which shares of the peaks that is; nothing if none is known."""
    rows: list[tuple[str, str, str, str]] = []
    impossible: list[str] = []
    for case in run.cases:
        for use in uses_of(case, run.cases, run.summary.machine):
            if isinstance(use.of_sheet, Missing) and isinstance(use.of_measured, Missing):
                continue
            peak_test = "gemm" if use.unit == "flop" else "membw"
            measured = "—" if isinstance(use.of_measured, Missing) else format_percent(use.of_measured)
            sheet = "—" if isinstance(use.of_sheet, Missing) else format_percent(use.of_sheet)
            measured = measured if measured == "—" else f"{measured} of {peak_test}"
            rows.append((case_name(case), format_rate(use.per_s, use.unit), measured, sheet))
            if use.is_impossible:
                impossible.append(f"{case_name(case)} {sheet}")
    if not rows:
        return
    has_sheet = any(row[3] != "—" for row in rows)
    headings = ["efficiency", "achieved", "of this box's peak"]
    made = table([*headings, "of the data sheet"] if has_sheet else headings, right=(1, 2, 3))
    for row in rows:
        add_row(made, *(row if has_sheet else row[:3]))
    out.print()
    out.print(made)
    if impossible:
        out.print(
            Text(
                f"above the physical peak: {', '.join(impossible)}: a measurement error, or the "
                "device is not what its name says"
            )
        )


def _table(out: Console, measured: _Speeds, price: Price | Missing) -> Table:
    """Every column: rate, time of a step, interval, blocks, cost; names are short if it is narrow."""
    common = shared_case_words(case.case for case, _ in measured)
    short = [short_result_name(case, [*common, "gpu"], is_short=True) for case, _ in measured]
    columns = [
        [f"case ({' '.join(common)})" if common else "case", *short],
        ["rate", *(format_rate(speed.units_per_s, case.case.unit) for case, speed in measured)],
        ["per step", *(_step_text(case, speed) for case, speed in measured)],
        ["95 %", *(interval_words(speed) for _, speed in measured)],
        ["blocks", *(_blocks_text(speed) for _, speed in measured)],
    ]
    costs = cost_cells(measured, price)
    columns += [costs] if any(costs[1:]) else []
    named = [["case", *(case_name(case) for case, _ in measured)], *columns[1:]]
    is_wide = table_width(list(zip(*named, strict=True)), out.encoding) <= out.width
    headings, *rows = zip(*(named if is_wide else columns), strict=True)
    made = table(headings, right=(1, 2, 3))
    for row in rows:
        add_row(made, *row)
    return made


def _blocks_text(speed: SpeedEstimate) -> str:
    """Blocks, and of how many launches if there are several: `18/3`."""
    return f"{speed.blocks}" if speed.launches == 1 else f"{speed.blocks}/{speed.launches}"


def _step_text(case: CaseResult, speed: SpeedEstimate) -> str:
    return format_seconds(case.case.units_per_step / speed.units_per_s)


def _common_part(names: Sequence[str]) -> str:
    """The words that all names share, such as `gpu `."""
    shared = [word for word in names[0].split() if all(word in name.split() for name in names)]
    return "".join(f"{word} " for word in shared)
