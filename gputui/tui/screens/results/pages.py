"""The pages of one run, what is said where there is none, and where to save what is shown."""

from __future__ import annotations

from pathlib import Path

from gputui.analysis.peak_tests import NO_REFERENCE
from gputui.document.drawings import legend_lines, parts_bar
from gputui.document.spans import Line, Span, line_width, wrapped
from gputui.document.table import Table
from gputui.document.table import parts_of as beside_each_other
from gputui.document.theme import FAMILIES, TONES
from gputui.errors import GputuiError
from gputui.model.absent import Missing
from gputui.model.journal import MEMORY_PARTS
from gputui.model.result import CaseResult
from gputui.model.units import format_bytes, format_seconds, listed
from gputui.services.profiles.loader import shipped_profiles
from gputui.services.results.browser import RunDetail, breakdown_for
from gputui.services.results.expected import performance_checks
from gputui.services.results.exports import (
    TRACE_ENDING,
    Sheet,
    default_name,
    save_sheet,
    save_trace,
    trace_of,
)
from gputui.services.results.headline import is_bad_news
from gputui.services.results.kept_files import HOW_TO_OPEN, traces_of
from gputui.services.results.labels import case_name, launch_number, run_heading, run_notes
from gputui.services.results.step_answer import why_sentence
from gputui.services.results.step_tables import (
    POINTS,
    main_step,
    memory_table,
    parts_of,
    step_words,
)
from gputui.services.results.throughput import speeds_of
from gputui.services.support.paths import default_result_file
from gputui.tui.screens.results.overview import largest_operators, share_lines, step_lines
from gputui.tui.screens.results.tables import launch_lines, rests_on_lines
from gputui.tui.shell.shell_screen import ShellScreen, ask_and_save
from gputui.tui.widgets.cells import log_lines, paragraph, stacked, table_lines

_PART_STYLES = dict(zip(MEMORY_PARTS, (*(f"{family} {TONES}" for family in FAMILIES), "track"), strict=True))
_AROUND_MEMORY = 5
"""Lines of headings and between the blocks of that page."""


def step_page(detail: RunDetail, case: CaseResult, width: int, height: int) -> tuple[Line, ...]:
    """The step breakdown with a bar for each kind of time, and the largest operators where there is room."""
    lines = breakdown_lines(detail, case, width)
    breakdown = breakdown_for(detail, case)
    if isinstance(breakdown, Missing):
        return lines
    largest = tuple(largest_operators(detail, case, breakdown, width, height - len(lines) - 2))
    return (*lines, (), *largest) if largest else lines


def breakdown_lines(detail: RunDetail, case: CaseResult, width: int) -> tuple[Line, ...]:
    """The step breakdown, with a bar for each kind of time."""
    breakdown = breakdown_for(detail, case)
    if isinstance(breakdown, Missing):
        return not_profiled(breakdown.reason, width, detail.run.summary.profile, case)
    found = detail.passes[case.case_id]
    lines: list[Line] = [
        *step_lines(case, breakdown, width),
        (),
        *paragraph(f"a step: {step_words(breakdown, found)}", width),
        (),
    ]
    lines += share_lines(breakdown, width)
    for trace in traces_of(detail.run.summary.run_id, detail.path):
        lines += [(), *paragraph(f"trace: {trace}; {HOW_TO_OPEN}", width)]
    return tuple(lines)


def memory_page(detail: RunDetail, case: CaseResult, width: int, height: int) -> tuple[Line, ...]:
    """Memory by part at the points of a step, as bars and numbers."""
    found = detail.passes.get(case.case_id)
    if found is None:
        return not_profiled("it has no profiled pass", width, detail.run.summary.profile, case)
    if not found.memory:
        return paragraph(f"memory: not known: {found.memory_reason}", width)
    most = max(1, *(point.allocated_bytes for point in found.memory))
    room = max(width - 24, 10)
    is_thick = height >= 4 * len(found.memory) + _AROUND_MEMORY
    lines: list[Line] = [*paragraph("memory that torch allocates on the device", width, "title"), ()]
    for point in found.memory:
        of = point.allocated_bytes
        parts = [(name, size / of, _PART_STYLES[name]) for name, size in parts_of(point).items() if size]
        bar = parts_bar(parts, round(of / most * room))
        lines += [(Span(" " * 13), *bar)] if is_thick else []
        rest = Span(" " * max(room - line_width(bar), 0))
        lines.append((Span(f"{POINTS[point.point]:12} "), *bar, rest, Span(f" {format_bytes(of)}")))
        lines += [()] * is_thick
    legend = legend_lines([(name, "", style) for name, style in _PART_STYLES.items()], width - 3)
    lines += [(Span("   "), *line) for line in legend]
    lines.append(())
    but_sums = memory_table(found).written[:-1]  # those stand behind the bars
    for columns in beside_each_other(but_sums, width, 1, gap=2):
        lines += table_lines(Table(tuple(columns)), width, margin=0)
    return tuple(lines)


def not_sampled(width: int) -> tuple[Line, ...]:
    return paragraph(
        "nothing was sampled during this run: a run samples the box by itself where the driver or /proc"
        " can be read",
        width,
    )


def environment_page(detail: RunDetail, width: int) -> tuple[Line, ...]:
    """Run, box and runtime with all their details."""
    lines = [line for text in run_heading(detail.run) for line in paragraph(text, width, indent=9)]
    summary = detail.run.summary
    rest = (
        f"file     {detail.path}",
        f"gputui   {summary.gputui_version}, profile version {summary.profile_version}, seed {summary.seed}",
        f"run id   {summary.run_id}",
    )
    return (*lines, *(line for text in rest for line in paragraph(text, width, indent=9)))


def findings_page(detail: RunDetail, width: int, height: int) -> tuple[Line, ...]:
    """Expected performance, bottlenecks with the step they were seen in, evidence, remarks and events.

    Steps are left out where `height` lines do not hold them. Where there is room for more, the launches of
    each case follow and, of a run without a finding, the step of its main case.
    """
    lines = [*_findings(detail, width, has_steps=True)]
    if len(lines) > height:
        return _findings(detail, width, has_steps=False)
    main = Missing("") if detail.findings else main_step(detail.run, detail.passes)
    step = [] if isinstance(main, Missing) else [(), *step_lines(*main, width)]
    launches = [[*launch_lines(detail, case, width)] for case, _ in speeds_of(detail.run)]
    lines += stacked(launches, height - len(lines) - len(step))
    if len(lines) + len(step) <= height:
        lines += step
    if not isinstance(main, Missing):
        room = height - len(lines)
        lines += stacked([[*largest_operators(detail, *main, width, room - 1)]], room)
    return tuple(lines)


def _findings(detail: RunDetail, width: int, *, has_steps: bool) -> tuple[Line, ...]:
    checks = sorted(performance_checks(detail.run), key=lambda check: not is_bad_news([check]))
    told = [(check.text, "" if check.word == NO_REFERENCE else "title") for check in checks]
    told.insert(
        sum(is_bad_news([check]) for check in checks), (why_sentence(detail.run, detail.passes), "title")
    )
    lines = [line for text, style in told if text for line in paragraph(text, width, style)]
    for case, findings in detail.findings:
        lines += [(), (Span(case_name(case), "title"),)]
        for finding in findings:
            rough = " (rough)" if finding.confidence == "low" else ""
            lines += paragraph(f"  {finding.text}{rough}", width, indent=4)
        breakdown = breakdown_for(detail, case)
        if has_steps and not isinstance(breakdown, Missing):
            lines += step_lines(case, breakdown, width)
    if evidence := list(rests_on_lines(detail, width - 1)):
        lines += [(), *evidence]
    notes = run_notes(detail.run)
    if notes:
        lines += [(), *(line for note in notes for line in paragraph(note, width))]
    if detail.events:
        lines += [(), (Span("events", "title"),)]
    started_us = detail.run.summary.started_utc_us
    for event in detail.events:
        when = "" if event.t_us is None else format_seconds(max(event.t_us - started_us, 0) / 1e6)
        style = {"warning": "warn", "error": "alarm"}.get(event.level, "")
        lines += paragraph(f"{when:>12}  {event.level}: {event.message}", width, style, indent=14)
    lines += last_words(detail, width)
    if not detail.passes:
        lines += [(), *not_profiled("no case of this run has a profiled pass", width)]
    if detail.spans and not detail.series:
        lines += [(), *not_sampled(width)]
    while lines and not lines[0]:
        lines.pop(0)
    return tuple(lines) or paragraph("nothing to report about this run", width)


def not_profiled(
    reason: str, width: int, profile: str = "", case: CaseResult | None = None
) -> tuple[Line, ...]:
    """Why there is no step breakdown, and how to get one; of a case of this profile, if it is one of ours."""
    is_ours = case is not None and profile in [one.name for one in shipped_profiles()]
    how = (
        f"to profile it: gputui run {profile} --trace --only {case.case.work.workload}"
        if case is not None and is_ours
        else "quick profiles gpt_train; gputui run --trace profiles every case that can be"
    )
    return (*paragraph(f"not profiled: {reason}", width), *paragraph(how, width, "dim"))


def last_words(detail: RunDetail, width: int) -> tuple[Line, ...]:
    """A heading, and for each failed launch its cases, the reason, and the end of its log."""
    if not detail.last_words:
        return ()
    cases = {case.case_id: case for case in detail.run.cases}
    lines: list[Line] = [(), (Span("last words of workers", "title"),)]
    for failed, log_end in detail.last_words:
        of = [cases[case_id] for case_id in failed.case_ids if case_id in cases]
        number = launch_number(of[0], failed.launch_id) if of else 1
        launch = f"launch {number} of {listed([*map(case_name, of)] or ['a case'])}"
        why = f"{failed.outcome}: {failed.reason}" if failed.reason else failed.outcome
        about = wrapped(f"{launch}: {why}", max(width - 1, 20), 2)
        lines += [(Span(row, "warn"),) for row in about]
        lines += log_lines(log_end, width)
    where = "logs stay on the machine that measured" if detail.logs is None else f"whole logs: {detail.logs}"
    lines += [(Span(row, "dim"),) for row in wrapped(where, max(width - 1, 20))]
    return tuple(lines)


def no_runs(path: Path, width: int) -> tuple[Line, ...]:
    """Shown for a file without runs."""
    return (
        *paragraph(f"{path} holds no run yet.", width),
        *paragraph(f"measure into it: gputui run quick --db {path}", width, "dim"),
    )


def first_steps(runs_in_progress: int, width: int) -> tuple[Line, ...]:
    """How to measure this box."""
    under_way = "A run is in progress and will appear here when it ends. Press 2 to watch it."
    return (
        *paragraph("No runs yet.", width, "title"),
        (),
        *((*paragraph(under_way, width, "warn"), ()) if runs_in_progress else ()),
        *paragraph("Measure this box: press 2, or in a shell", width),
        *paragraph("  gputui run quick", width, "accent"),
        (),
        *paragraph(
            f"Looked in {default_result_file().parent} and {Path.cwd()}. A file elsewhere: press o.",
            width,
            "dim",
        ),
    )


def ask_for_sheet(
    screen: ShellScreen,
    sheet: Sheet | Missing,
    detail: RunDetail | None = None,
    case: CaseResult | None = None,
) -> None:
    """Ask for a path for a table, or for the Chrome trace of a run in `detail`, unless there is neither."""
    if isinstance(sheet, Sheet) and not sheet.rows:
        sheet = Missing("no row is shown")
    question, name = f"Save the Chrome trace as {TRACE_ENDING}", f"trace{TRACE_ENDING}"
    if isinstance(sheet, Sheet):
        trace = "" if detail is None else f"; the Chrome trace as {TRACE_ENDING}"
        question, name = f"Save the {sheet.what} as .csv or .json{trace}", default_name(sheet)
    elif detail is None or not _has_trace(detail, case):
        screen.say(f"there is nothing to save here: {sheet.reason}", "warn")
        return

    def save(path: Path) -> str:
        if detail is not None and path.name.lower().endswith(TRACE_ENDING):
            return save_trace(path, detail, case)
        if isinstance(sheet, Missing):
            raise GputuiError(f"there is no table here: {sheet.reason}", "go to another tab")
        return save_sheet(path, sheet)

    ask_and_save(screen, question, name, save)


def _has_trace(detail: RunDetail, case: CaseResult | None) -> bool:
    try:
        trace_of(detail, case)
    except GputuiError:
        return False
    return True
