"""The pages of one run, made as `show` makes them; what is said where there is none, and where to save."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from io import StringIO
from pathlib import Path
from statistics import median

from gputui.analysis.statistics import hodges_lehmann
from gputui.analysis.verdict import SpeedEstimate
from gputui.document.drawings import stacked_bar
from gputui.document.page import Page, console_on
from gputui.document.spans import Line, Span
from gputui.document.table import Table, table_of
from gputui.errors import GputuiError
from gputui.model.absent import Missing
from gputui.model.plan import DEMO_PROFILE, TRACE_PROFILE
from gputui.model.result import CaseResult
from gputui.model.units import (
    format_change,
    format_percent,
    format_rate,
    format_seconds,
    listed,
    three_digits,
)
from gputui.services.profiles.loader import shipped_profiles
from gputui.services.results.browser import (
    TRACE_ENDING,
    RunDetail,
    Sheet,
    breakdown_for,
    default_name,
    save_sheet,
    save_trace,
)
from gputui.services.results.headline import headline_sentences
from gputui.services.results.labels import (
    case_name,
    interval_words,
    launch_number,
    run_heading,
    run_heading_in_one,
    shared_case_words,
    short_result_name,
)
from gputui.services.results.run_forms import HOW_TO_OPEN, traces_of
from gputui.services.results.selectors import from_here
from gputui.services.results.step_answer import answer_of_trace, sentence
from gputui.services.results.step_breakdown import step_parts
from gputui.services.results.throughput import (
    measured_blocks,
    own_launches_of,
    speeds_of,
    waited_of,
    waited_share,
)
from gputui.services.run_page import run_page, serving_page, write_details, write_step
from gputui.services.serving.curve import serving_of
from gputui.services.support.paths import default_result_file
from gputui.store.reading import CaseConditions
from gputui.tui.shell.shell_screen import ShellScreen, ask_and_save
from gputui.tui.widgets.cells import paragraph

_EVERY_OPERATOR = 400
_STYLES = {"warning": "warn", "error": "alarm"}
"""Of events."""


def overview_page(detail: RunDetail, width: int) -> Sequence[Line]:
    """What `show` prints of the run; then what holds it back, what its figures rest on, and all else."""
    run, out = detail.run, console_on(StringIO(), width, is_terminal=False)
    loads, heading = serving_of(run, detail.loads), run_heading_in_one(run)
    if isinstance(loads, Missing):
        headline = _answer_of_trace(detail)
        page = run_page(out, run, heading, headline=headline, passes=detail.passes, more="")
    else:
        page = serving_page(out, run, loads, heading)
    for case, findings in detail.findings:
        page.line()
        page.line(case_name(case), "title")
        for finding in findings:
            rough = " (rough)" if finding.confidence == "low" else ""
            page.line(f"  {finding.text}{rough}")
    if speeds_of(run):
        page.line()
        page.line("how reliable the figures are", "title")
        page.table(reliability_table(detail), margin=2, gap=2)
    write_details(page, run)
    _write_record(page, detail)
    _write_last_words(page, detail)
    return page.lines


def _write_record(page: Page, detail: RunDetail) -> None:
    """Where and with what it was measured, and what happened meanwhile."""
    summary = detail.run.summary
    if page.lines[-1]:
        page.line()
    page.part(tuple(run_heading(detail.run)))
    page.line(f"file     {from_here(str(detail.path))}")
    page.line(f"gputui   {summary.gputui_version}, seed {summary.seed}, run id {summary.run_id}")
    if not detail.passes:
        page.line("no case was profiled: gputui run --trace profiles every case that can be", "dim")
    if detail.spans and not detail.series:
        page.line("nothing was sampled during this run", "dim")
    if detail.events:
        page.line()
        page.line("events", "title")
    for event in detail.events:
        when = "" if event.t_us is None else format_seconds(max(event.t_us - summary.started_utc_us, 0) / 1e6)
        page.line(f"{when:>12}  {event.level}: {event.message}", _STYLES.get(event.level, ""))


def _answer_of_trace(detail: RunDetail) -> str:
    """Where the steps of a stored trace go; empty for another run."""
    run, notes = detail.run, [event.message for event in detail.events]
    found = next((one for one in detail.passes.values() if one.is_valid), None)
    if found is None or run.summary.profile not in (TRACE_PROFILE, DEMO_PROFILE) or speeds_of(run):
        return ""
    answer = sentence(answer_of_trace(found, run.cases[0].device_name, "", notes))
    made_up = headline_sentences(run)[:1] if run.summary.is_made_up else ()
    return " ".join((*made_up, answer))


def case_page(detail: RunDetail, case: CaseResult, width: int) -> Sequence[Line]:
    """A step of a case as `show --case` prints it, and its launches."""
    page = Page(console_on(StringIO(), width, is_terminal=False))
    found = detail.passes.get(case.case_id)
    breakdown = breakdown_for(detail, case)
    if not isinstance(breakdown, Missing):
        page.table(Table((stacked_bar(step_parts(breakdown)),)))
        page.line()
    if found is not None:
        write_step(page, case, found, _EVERY_OPERATOR)
    else:
        page.line(f"{case_name(case)}: not profiled: it has no profiled pass")
        is_ours = detail.run.summary.profile in [one.name for one in shipped_profiles()]
        only = f"{detail.run.summary.profile} --trace --only {case.case.work.workload}"
        page.line(f"to profile it: gputui run {only}" if is_ours else "to profile it: --trace", "dim")
    for trace in traces_of(detail.run.summary.run_id, detail.path):
        page.line(f"trace: {trace}; {HOW_TO_OPEN}")
    if any(m.blocks for m in case.measurements):
        page.line()
        page.line(f"launches of {case_name(case)}", "title")
        page.table(_launches(case), margin=2, gap=2)
    return page.lines


def _write_last_words(page: Page, detail: RunDetail) -> None:
    """For each failed launch its cases, the reason, and the end of its log."""
    if not detail.last_words:
        return
    cases = {case.case_id: case for case in detail.run.cases}
    page.line()
    page.line("last words of workers", "title")
    for failed, log_end in detail.last_words:
        of = [cases[case_id] for case_id in failed.case_ids if case_id in cases]
        number = launch_number(of[0], failed.launch_id) if of else 1
        why = f"{failed.outcome}: {failed.reason}" if failed.reason else failed.outcome
        page.line(f"launch {number} of {listed([*map(case_name, of)] or ['a case'])}: {why}", "warn")
        for row in log_end:
            page.line(f"    {row}")
    where = "logs stay on the machine that measured" if detail.logs is None else f"whole logs: {detail.logs}"
    page.line(where, "dim")


def _launches(case: CaseResult) -> Table:
    """How fast each launch of a case was, and what disturbed its blocks.

    Rates are without the waiting for CPUs where that is known.
    """
    own = zip(measured_blocks(case), own_launches_of(case), strict=True)
    seconds = {blocks[0].launch_id: hodges_lehmann(times) for blocks, times in own}
    rows = []
    for one in case.measurements:
        mine = seconds.get(one.launch_id)
        steps_ns = [] if case.case.is_whole else [b.block_ns / b.steps for b in one.blocks]
        waited = [share for b in one.blocks if not isinstance(share := waited_of(b), Missing)]
        rows.append(
            (
                f"{one.replicate + 1}",
                one.outcome if mine is None else format_rate(1 / mine, case.case.unit),
                "" if mine is None else format_change(median(seconds.values()) / mine),
                f"{len(steps_ns) or ''}",
                f"+{format_percent(max(steps_ns) / min(steps_ns) - 1)}" if steps_ns else "",
                f"up to {format_percent(max(waited))}" if waited else "",
                one.reason,
            )
        )
    headings = ("launch", "rate", "from median", "blocks", "slowest", "other programs", "")
    return _filled(table_of(headings, rows, range(6), (6,), priorities={3: 1, 4: 2}))


HEADINGS = ("case", "rate", "95 %", "slowed", "capped", "other programs", "clock", "launches", "blocks")
"""The last ones go first where a terminal is narrow."""


def reliability_table(detail: RunDetail) -> Table:
    """The measured cases without the columns that none has; shares are of the time in which a case was
    timed."""
    speeds = speeds_of(detail.run)
    common = shared_case_words(case.case for case, _ in speeds)
    rows = [
        (short_result_name(case, common), *_rests_on(case, speed, detail.conditions.get(case.case_id)))
        for case, speed in speeds
    ]
    return _filled(
        table_of(HEADINGS, rows, range(1, len(HEADINGS)), priorities=dict(enumerate(range(-2, 7))))
    )


def _rests_on(case: CaseResult, speed: SpeedEstimate, found: CaseConditions | None) -> Iterator[str]:
    yield format_rate(speed.units_per_s, case.case.unit)
    yield interval_words(speed)
    held = (Missing(""),) * 2 if found is None else (found.slowed_share, found.power_capped_share)
    for share in (*held, waited_share(case)):
        yield "" if isinstance(share, Missing) else format_percent(share)
    yield "" if found is None else _clock(found)
    yield str(speed.launches)
    yield "" if case.case.is_whole else str(speed.blocks)


def _clock(found: CaseConditions) -> str:
    """`1.98 of 1.98 GHz`."""
    if isinstance(found.clock_median_mhz, Missing):
        return ""
    most = found.clock_most_mhz
    of = "" if isinstance(most, Missing) else f" of {three_digits(most / 1000)}"
    return f"{three_digits(found.clock_median_mhz / 1000)}{of} GHz"


def _filled(table: Table) -> Table:
    """Without the columns in which no row has anything."""
    return Table(tuple(column for column in table.written if any(column.texts)))


def no_runs(path: Path, width: int) -> tuple[Line, ...]:
    return (
        *paragraph(f"{path} holds no run yet.", width),
        *paragraph(f"measure into it: gputui run quick --db {path}", width, "dim"),
    )


def first_steps(runs_in_progress: int, width: int) -> tuple[Line, ...]:
    under_way = "A run is in progress and will appear here when it ends. Press 2 to watch it."
    looked = f"Looked in {default_result_file().parent} and {Path.cwd()}. A file elsewhere: press o."
    return (
        *paragraph("No runs yet.", width, "title"),
        (),
        *((*paragraph(under_way, width, "warn"), ()) if runs_in_progress else ()),
        *paragraph("Measure this box: press 2, or in a shell", width),
        (Span("  gputui run quick", "accent"),),
        (),
        *paragraph(looked, width, "dim"),
    )


def ask_for_sheet(
    screen: ShellScreen,
    sheet: Sheet | Missing,
    detail: RunDetail | None = None,
    case: CaseResult | None = None,
) -> None:
    """Ask for a path for a table, or for the Chrome trace of a run in `detail`."""
    if isinstance(sheet, Sheet) and not sheet.rows:
        sheet = Missing("no row is shown")
    if isinstance(sheet, Missing) and detail is None:
        screen.say(f"there is nothing to save here: {sheet.reason}", "warn")
        return
    trace = f"the Chrome trace as {TRACE_ENDING}"
    question, name = f"Save {trace}", f"trace{TRACE_ENDING}"
    if isinstance(sheet, Sheet):
        also = "" if detail is None else f"; {trace}"
        question, name = f"Save the {sheet.what} as .csv or .json{also}", default_name(sheet)

    def save(path: Path) -> str:
        if detail is not None and path.name.lower().endswith(TRACE_ENDING):
            return save_trace(path, detail, case)
        if isinstance(sheet, Missing):
            raise GputuiError(f"there is no table here: {sheet.reason}", "go to another tab")
        return save_sheet(path, sheet)

    ask_and_save(screen, question, name, save)
