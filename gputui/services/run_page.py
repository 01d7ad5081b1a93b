"""What one run says, for `run`, `show` and the Results screen; and the same of loads on a server, and of a
profiled step."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from types import MappingProxyType

from gputui.analysis.peak_tests import NO_REFERENCE
from gputui.analysis.verdict import SpeedEstimate
from gputui.document.drawings import stacked_bar
from gputui.document.page import Console, Page
from gputui.document.spans import Line, Span, cut, line_width
from gputui.document.table import Column, Table, table_of
from gputui.model.absent import Missing
from gputui.model.journal import NOTHING_MEASURED, Price, ProfiledPass
from gputui.model.result import CaseResult, Run
from gputui.model.units import counted, format_percent, format_rate, format_seconds
from gputui.services.compare.pairing import gains_of
from gputui.services.compare.row_text import judgement_text, style_of
from gputui.services.results.expected import PEAK_WORKLOADS, peak_name, performance_checks, uses_of
from gputui.services.results.headline import (
    HAD_THE_CPU,
    case_order,
    headline_sentences,
    is_bad_news,
    main_first,
    size_order,
)
from gputui.services.results.labels import (
    OTHERS_HAD,
    case_name,
    ending_words,
    is_recording,
    not_measured_line,
    not_measured_lines,
    plain_case_name,
    run_notes,
    some_of,
)
from gputui.services.results.run_forms import NextStep, brief_table, metric_rows, metric_table, next_steps
from gputui.services.results.selectors import run_in
from gputui.services.results.step_answer import why_sentence
from gputui.services.results.step_breakdown import (
    StepBreakdown,
    breakdown_of,
    memory_table,
    operator_table,
    step_of,
    step_words,
)
from gputui.services.results.throughput import Speeds, speed_of, speeds_of
from gputui.services.runs.process import LiveRun
from gputui.services.serving.curve import ServingRun, serving_of
from gputui.services.serving.text import (
    break_even_line,
    curve_table,
    energy_line,
    measured_levels,
    server_line,
    server_table,
    serving_headline,
    serving_notes,
    times_table,
    unmeasured_lines,
)

_LEAST_SHARE = 0.005
_NAME = 28
_LEAST_ROWS = 3
_OTHER_LINES = 4
"""The headings of the table, what is left out of it, the line below it, and the prompt."""
_STEP_LINES, _ROWS_BESIDE_STEP = 5, 10
"""Of a step's title, bar, legend and the line below, which fewer cases than this never make room for."""
_MOST_NAMED = 2
"""Kinds of failure."""
_BAR = 20
_RATES = 4
"""Columns of `brief_table` that say how fast a case is."""
_GAIN = 3.5
"""What precisions bring, which the rates say too, goes before bars and costs."""


def read_ended(
    runs: Sequence[LiveRun], like: str = ""
) -> tuple[tuple[Run, ...], tuple[ServingRun | Missing, ...], dict[int, ProfiledPass], tuple[NextStep, ...]]:
    """Of runs that ended together: results, loads, profiled passes of the only one, and what to do next.

    `like` is the run that they repeat, as `F@RUN`.
    """
    from gputui.store.reading import open_result  # duckdb: only who opens a file pays for it

    target = runs[0].target
    with open_result(target) as file:
        results = tuple(run_in(file, run.run_id) for run in runs)
        loads = tuple(serving_of(one, file.serving(one.summary.run_id)) for one in results)
        passes = dict(file.profiled(runs[0].run_id)) if len(runs) == 1 else {}
        measured = file.measured_summaries()
    return (
        results,
        loads,
        passes,
        tuple(next_steps(results, target, measured, passes=passes.values(), like=like)),
    )


def run_page(
    out: Console,
    run: Run,
    heading: Sequence[str] = (),
    footer: Sequence[Line] = (),
    *,
    is_verbose: bool = False,
    shows_all: bool = False,
    share: float = 1.0,
    headline: str = "",
    passes: Mapping[int, ProfiledPass] = MappingProxyType({}),
    more: str = "more: --verbose",
) -> Page:
    """The headline, `heading`, the cases, a step of the main one, what else is to know, and `footer`.

    A terminal gets what fits on `share` of its screen, unless it is to show all: the case of the headline,
    then those on a GPU. Anything else gets all cases. Efficiency, notes and reasons come with `is_verbose`.
    The headline is the run's, unless another is given. `more` says where the rest is.
    """
    page, end = Page(out), Page(out)
    rest = write_answer(page, run, heading, passes, headline)
    measured = speeds_of(run)
    if is_verbose:
        _write_verbose(page, run, measured)
        page.line()
    else:
        for line in missing_lines(run):
            end.line(line, "dim")
        notes = run_notes(run, is_brief=True)
        if any(sentence.startswith(HAD_THE_CPU) for sentence in rest):
            notes = [note for note in notes if not note.startswith(OTHERS_HAD)]
        has_more = bool(notes) or len(measured) < len(run.cases)
        said = (*notes, more if has_more else "")
        if any(said):
            end.line(" · ".join(filter(None, said)), "dim")
        lines = end.height + sum(-(-line_width(line) // out.width) for line in footer)
        is_whole = shows_all or not out.is_terminal
        room = None if is_whole else int(out.height * share) - lines - _OTHER_LINES
        words, parts = step_of(run, passes)
        has_step = bool(parts) and (
            room is None or room - _STEP_LINES >= min(len(measured), _ROWS_BESIDE_STEP)
        )
        if measured:
            _write_cases(page, run, measured, room if room is None else room - has_step * _STEP_LINES)
            page.line()
        if has_step:
            page.line(words, "dim")
            page.table(Table((stacked_bar(parts),)))
            page.line()
        page.add(end)
    for one in footer:
        page.spans(one)  # the terminal breaks it, so that a command can be copied whole
    return page


def write_answer(
    page: Page, run: Run, heading: Sequence[str], passes: Mapping[int, ProfiledPass], headline: str = ""
) -> Sequence[str]:
    """The headline, the sentences after it, which it returns, `heading`, and a blank line."""
    answer, *rest = (headline,) if headline else headline_sentences(run, why_sentence(run, passes)) or ("",)
    page.line(answer, "title warn" if is_bad_news(performance_checks(run)) and not headline else "title")
    if rest:
        page.line(" ".join(rest))
    page.part(tuple(heading))
    page.line()
    return rest


def missing_lines(run: Run) -> list[str]:
    """Cases that failed or ran out of memory, by name; then in one line how many were not measured, and why.

    Why a run was interrupted is in its headline, and so is how a recording ended.
    """
    if is_recording(run):
        return []
    lost = [case for case in run.cases if isinstance(speed_of(case), Missing)]
    found: dict[str, list[str]] = {}
    for case in lost:
        if case.outcome in ("failed", "oom"):
            how = ": ".join(filter(None, ending_words(case)))
            found.setdefault(how, []).append(plain_case_name(case.case))
    named = [f"{some_of(names)} {how}" for how, names in found.items()]
    total = not_measured_line([(case.outcome, case.reason) for case in lost], len(run.cases))
    return [*named[:_MOST_NAMED], *filter(None, [total])]


def _write_cases(page: Page, run: Run, measured: Speeds, most_lines: int | None) -> None:
    """The cases that fit, then the other figures if they fit; a line counts what did not."""
    metrics = metric_rows(run, is_brief=True)
    room = None if most_lines is None else max(most_lines - page.height, _LEAST_ROWS)
    if room is not None and len(measured) == room + 1 and not metrics:
        room += 1  # in place of the line that would count it
    rows = case_rows(measured, room)
    if rows:
        page.table(with_gains(brief_table(run, rows, _BAR), run, rows))
    has_metrics = not metrics or room is None or len(rows) + len(metrics) + 2 <= room
    if metrics and has_metrics:
        page.line()
        page.table(metric_table(metrics))
    left = [counted(len(measured) - len(rows), "more case")] if len(rows) < len(measured) else []
    left += (
        []
        if has_metrics or not metrics
        else [counted(sum(bool(value) for _, value, _ in metrics), "other figure")]
    )
    if left:
        page.hint(" and ".join(left), "--all")


def with_gains(table: Table, run: Run, rows: Speeds) -> Table:
    """With a column of what each precision brings beside fp32, as `compare` of this run has it."""
    gains = {
        case_id: Span(judgement_text(gain, with_interval=False), style_of(gain))
        for case_id, gain in gains_of(run).items()
    }
    column = Column("beside fp32", [gains.get(case.case_id, "") for case, _ in rows], priority=_GAIN)
    columns = (*table.columns[:_RATES], column, *table.columns[_RATES:])
    return replace(table, columns=columns) if gains else table


def case_rows(measured: Speeds, room: int | None) -> Speeds:
    """All if they fit; else the case of the headline, then those on a GPU, of each workload the largest."""
    if room is None or len(measured) <= room:
        return measured
    sizes: dict[tuple[str, str], int] = {}
    for case in (result.case for result, _ in measured):
        key = case.work.workload, case.variant.device_class
        sizes[key] = min(sizes.get(key, size_order(case)), size_order(case))
    main = min(measured, key=lambda pair: main_first(pair[0]))

    def place(pair: tuple[CaseResult, SpeedEstimate]) -> tuple[bool, bool, bool, tuple[int, ...]]:
        case = pair[0].case
        is_largest = size_order(case) == sizes[case.work.workload, case.variant.device_class]
        return pair is not main, case.variant.device_class != "gpu", not is_largest, case_order(case)

    kept = {id(pair) for pair in sorted(measured, key=place)[:room]}
    return [pair for pair in measured if id(pair) in kept]


def _write_verbose(page: Page, run: Run, measured: Speeds) -> None:
    """Cases with all their columns, figures, and the details."""
    if measured:
        page.table(whole_table(run, measured))
    if metrics := metric_rows(run):
        page.line()
        page.table(metric_table(metrics))
    write_details(page, run)


def write_details(page: Page, run: Run) -> None:
    """Efficiency, what was not run and why, every note, and whether the box is normal."""
    _write_uses(page, run)
    page.part((*not_measured_lines(run), *run_notes(run)))
    page.line()
    judged = performance_checks(run)
    if not judged and any(not case.case.is_program for case in run.cases):
        page.line("cannot tell whether this box is normal: no peak test (gemm, membw) was measured")
    for performance in judged:
        page.line(performance.text, "title" if performance.word != NO_REFERENCE else "")


def _write_uses(page: Page, run: Run) -> None:
    """What each case achieved, and which shares of the peaks that is; nothing if none is known."""
    rows: list[tuple[str, str, str, str]] = []
    impossible: list[str] = []
    for case in run.cases:
        for use in uses_of(case, run.cases, run.summary.machine):
            sheet, measured = (
                "" if isinstance(share, Missing) else format_percent(share)
                for share in (use.of_sheet, use.of_measured)
            )
            of_test = f"{measured} of {peak_name(PEAK_WORKLOADS[use.unit])}" if measured else "—"
            if sheet or measured:
                rows.append((case_name(case), format_rate(use.per_s, use.unit), of_test, sheet or "—"))
            if use.is_impossible:
                impossible.append(f"{case_name(case)} {sheet}")
    if not rows:
        return
    has_sheet = any(row[3] != "—" for row in rows)
    headings = ["efficiency", "achieved", "of this box's peak"]
    headings += ["of the data sheet"] if has_sheet else []
    page.line()
    page.table(table_of(headings, [row[: len(headings)] for row in rows], right=(1, 2, 3)))
    if impossible:
        page.line(
            f"above the physical peak: {', '.join(impossible)}: a measurement error, or the "
            "device is not what its name says"
        )


def whole_table(run: Run, measured: Speeds) -> Table:
    """Every column: rate, interval, share of the peak, cost, time of a step, blocks; names are short where it
    is narrow."""
    name, *rest = brief_table(run, measured, 0).columns
    assert isinstance(name, Column)
    return Table(
        (
            Column("case", [case_name(case) for case, _ in measured], narrow=name, priority=2),
            *(column for column in rest if isinstance(column, Column)),
            Column(
                "per step",
                [format_seconds(one.case.units_per_step / s.units_per_s) for one, s in measured],
                True,
            ),
            Column("blocks", [f"{s.blocks}/{s.launches}".removesuffix("/1") for _, s in measured]),
        )
    )


def serving_page(
    out: Console,
    run: Run,
    serving: ServingRun,
    heading: Sequence[str] = (),
    footer: Sequence[Line] = (),
    *,
    is_verbose: bool = False,
    api_price: tuple[float, float] | None = None,
) -> Page:
    """The headline, the server, the curve, what limits its meaning, and `footer`."""
    page = Page(out)
    price: Price | Missing = run.summary.price
    page.line(serving_headline(serving, price), "title")
    if run.summary.status != "finished" and run.summary.status_reason != NOTHING_MEASURED:
        why = f" ({run.summary.status_reason})" if run.summary.status_reason else ""
        page.line(f"The run was {run.summary.status}{why}.")
    page.part((*heading, server_line(serving)))
    page.line()
    levels = measured_levels(serving)
    if levels:
        page.table(curve_table(levels))
        page.line()
    if is_verbose and (times := times_table(serving)):
        page.table(times)
        page.line()
    if is_verbose and (server := server_table(serving)):
        page.line("By the server's own metrics, when each load ended:")
        page.table(server)
        page.line()
    energy = energy_line(serving)
    if energy:
        page.line(energy)
    hosted = [] if api_price is None else [break_even_line(serving, price, api_price)]
    page.part((*hosted, *unmeasured_lines(serving), *serving_notes(serving)))
    for one in footer:
        page.spans(one)  # the terminal breaks it, so that a command can be copied whole
    return page


def write_step(page: Page, case: CaseResult, found: ProfiledPass, top: int) -> None:
    """How long a step takes, its parts, `top` of its operators, and its memory; or why that is not known."""
    breakdown = breakdown_of(found, case)
    if isinstance(breakdown, Missing):
        page.line(f"{case_name(case)}: not profiled: {breakdown.reason}")
        return
    page.line(f"a step of {case_name(case)}: {step_words(breakdown, found)}", "title")
    for line in _breakdown(breakdown):
        page.line(f"  {line}")
    if operators := breakdown.operators[:top]:
        names = [cut(row.operator.removeprefix("aten::"), _NAME) for row in operators]
        page.table(operator_table(found, operators, breakdown.step_ns, names), margin=2)
    if found.memory:
        page.table(memory_table(found), margin=2)
    else:
        page.line(f"  memory: not known: {found.memory_reason}")


def _breakdown(breakdown: StepBreakdown) -> Iterator[str]:
    """`compute 94 %: backward 66 %, forward 24 %, optimizer 4 %`."""
    for share in breakdown.shares:
        if share.share >= _LEAST_SHARE:
            parts = [
                f"{phase} {format_percent(part)}" for phase, part in share.phases if part >= _LEAST_SHARE
            ]
            where = f": {', '.join(parts)}" if len(share.phases) > 1 else f" ({share.phases[0][0]})"
            yield f"{share.name} {format_percent(share.share)}{where}"
    rest = sum(share.share for share in breakdown.shares if share.share < _LEAST_SHARE)
    if rest >= _LEAST_SHARE:
        yield f"others {format_percent(rest)}"
