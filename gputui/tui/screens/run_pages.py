"""Runs that are followed in a thread, from their journals to what they come to; and the pages of a run in
progress and of one that has ended.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from io import StringIO
from itertools import groupby
from time import monotonic

from gputui.analysis.peak_tests import NO_REFERENCE, NORMAL, Expectation, PeakTest, PerformanceCheck
from gputui.analysis.statistics import Estimated
from gputui.document.page import Console
from gputui.document.spans import Line, Span, line_width
from gputui.document.table import Column, Drawing, Table
from gputui.document.theme import Palette
from gputui.errors import GputuiError, clean_text
from gputui.model.absent import Missing
from gputui.model.journal import ProfiledPass
from gputui.model.result import Run
from gputui.model.units import (
    axis_of_seconds,
    counted,
    format_clock,
    format_percent,
    format_rate,
    format_seconds,
)
from gputui.recording.run_directory import Spec
from gputui.services.playback.demo import MadeUpProgress
from gputui.services.results.expected import CHECK_WORDS, performance_checks
from gputui.services.results.labels import torch_in
from gputui.services.results.run_forms import HOW_TO_OPEN, NextStep, end_of_log, traces_of
from gputui.services.run_page import read_ended, run_page, serving_page
from gputui.services.runs.alerts import endings
from gputui.services.runs.device_history import HistoryReader
from gputui.services.runs.process import LiveRun, called, follow, is_of_this_boot, see_stored
from gputui.services.runs.progress import Happened, LogTail, ProgressSnapshot, ProgressTracker, TimedCase
from gputui.services.serving.curve import ServingRun
from gputui.services.support.background import Job
from gputui.store.journal_reader import TelemetryTail
from gputui.tui.screens.run_panes import (
    cases_so_far,
    device_charts,
    device_rows,
    host_lines,
    load_lines,
    overall,
)
from gputui.tui.shell.shell_screen import sentence
from gputui.tui.widgets.cells import (
    clean,
    filled,
    fitted,
    left,
    log_lines,
    right,
    section,
    table_lines,
    wrapped,
)
from gputui.tui.widgets.charts import area, axis_cells, body_styles, with_axis

TELL_EVERY_S = 1.0


@dataclass(frozen=True, slots=True)
class Watched:
    """The runs of one supervisor, and how far they are."""

    called: str
    """Short ids, with labels; safe to show."""
    profile: str
    into: str
    """The result file, and the interpreters."""
    progress: ProgressSnapshot


@dataclass(frozen=True, slots=True)
class Ended:
    runs: tuple[LiveRun, ...]
    status: str
    """As `finished`, or why not."""
    results: tuple[Run, ...] = ()
    """As they are stored; empty if they could not be stored or read, which `wrong` is about."""
    loads: tuple[ServingRun | Missing, ...] = ()
    passes: tuple[tuple[int, ProfiledPass], ...] = ()
    steps: tuple[NextStep, ...] = ()
    said: tuple[str, ...] = ()
    """What else is to be known: that a supervisor was killed, where a trace lies."""
    wrong: GputuiError | None = None


Tell = Callable[[Job[Ended], Watched], None]
"""Takes how far runs are; called in the thread that follows them."""


def follow_to_end(runs: tuple[LiveRun, ...], tell: Tell, job: Job[Ended]) -> Ended:
    """Tell how far they are, about once a second, until all are stored or their supervisor is gone."""
    specs = [Spec.read(run.run_dir) for run in runs]
    is_here = is_of_this_boot(runs[0])
    tracker = ProgressTracker([spec.plan for spec in specs], is_of_this_clock=is_here)
    histories = [HistoryReader(TelemetryTail(run.run_dir).poll) for run in runs] if is_here else []
    names = " and ".join(clean_text(called(run)) for run in runs)
    runtimes = [spec.runtime for spec in specs if spec.runtime.python_version]  # loads ask no interpreter
    pythons = ", ".join(dict.fromkeys(f"Python {one.python_version}, {torch_in(one)}" for one in runtimes))
    into = f"into {runs[0].target}" + (f" with {pythons}" if pythons else "")
    told_s = 0.0
    for index, line in follow(runs, TELL_EVERY_S):
        job.say("")
        if line is not None:
            tracker.hear(index, line)
        elif monotonic() - told_s >= TELL_EVERY_S:
            told_s = monotonic()
            tell(job, Watched(names, specs[0].plan.profile, into, tracker.picture(histories)))
    tell(job, Watched(names, specs[0].plan.profile, into, tracker.picture(histories)))
    return ended(runs, tracker)


def follow_the_demo(wait: Callable[[float], object], tell: Tell, job: Job[Ended]) -> Ended:
    """Tell how far a made-up run is, for as long as somebody wants to know."""
    made_up = MadeUpProgress()
    while True:
        job.say("")
        tell(
            job, Watched("demo", made_up.plan.profile, "into demo.db with a made-up torch", made_up.picture())
        )
        wait(TELL_EVERY_S)


def ended(runs: tuple[LiveRun, ...], tracker: ProgressTracker) -> Ended:
    """See that runs are stored, and read them back. What is wrong belongs to the end."""
    found = Ended(runs, "; ".join(endings(tracker.ended.values(), len(runs))))
    said: list[str] = []
    try:
        for index, run in enumerate(runs):
            said += see_stored(run, tracker.stored.get(index))
        results, loads, passes, steps = read_ended(runs)
    except GputuiError as error:
        return replace(found, said=tuple(said), wrong=error)
    said += [
        f"trace: {trace}; {HOW_TO_OPEN}" for run in runs for trace in traces_of(run.short_id, run.target)
    ]
    return Ended(runs, found.status, results, loads, tuple(passes.items()), steps, tuple(said))


def whole_logs(runs: Sequence[LiveRun], progress: ProgressSnapshot) -> ProgressSnapshot:
    """With more of each failed worker's log than the journal holds."""
    words = tuple(
        replace(said, lines=end_of_log(runs[said.run].run_dir, said.launch_id) or said.lines)
        for said in progress.last_words
    )
    return replace(progress, last_words=words)


_TALL, _LOW, LEAST_WIDTH = 34, 24, 40
"""From the first height on there is room for charts of several rows, above the second for the host. Charts
have no cell in much less than the width: what is drawn for it is cut there."""
_EVENTS = 6


def watching_lines(
    progress: ProgressSnapshot,
    into: str,
    width: int,
    height: int,
    now_ns: int,
    ends: str = "",
    scrolled: int = 0,
) -> list[Line]:
    """At most `height` lines; `ends` is the time of day at which it is expected to end, empty if unknown.

    `scrolled` is by how many cases.
    """
    is_tall = height >= _TALL
    lines = [overall(progress, width, now_ns, ends)]
    if is_tall:
        lines += [fitted((Span(f"  {clean(into)}", "dim"),), width), fitted((), width)]
    needed = 1 + len(progress.to_run) + bool(progress.not_run_line)
    hosts = host_lines(progress, width) if height > _LOW else []
    events = _EVENTS if is_tall else _EVENTS // 2
    spare = height - len(lines) - needed - len(hosts) - events  # charts take what the cases leave
    if is_tall:
        rows = min(max((spare - 7) // 2, 3), 6)
        below = [fitted((), width), *_strip(progress, width, rows, has_axis=True)]
        below += [*device_charts(progress, width, rows), *hosts]
    else:
        devices = device_rows(progress, width)
        searches = progress.load is not None and progress.load.is_open
        rows = min(max(spare - len(devices) - 3 - searches, 2), 5)
        below = [*_strip(progress, width, rows, has_axis=searches), *devices, *hosts]
    room = min(max(height - len(lines) - len(below) - events - 1, 3), needed)
    lines += [*cases_so_far(progress, width, room, scrolled), *below]
    return [*lines, *_events(progress, width, max(height - len(lines), 0))]


def _strip(progress: ProgressSnapshot, width: int, rows: int, *, has_axis: bool) -> list[Line]:
    """The blocks of the case that is timed, or the load that is offered; as many lines while none is."""
    if progress.load is not None:
        return load_lines(progress.load, width, rows, has_axis=has_axis)
    strip = progress.strip
    if strip is None:
        words = "storing what was measured" if progress.is_storing else "no block has been timed yet"
        lines = [section((Span("blocks", "title"),), width), fitted((Span(f"  {words}", "dim"),), width)]
        return filled(lines, width, 2 + rows + has_axis)
    launch = f"launch {len(strip.step_s)} of {strip.launches}, block {strip.blocks}"
    most = f" of at most {strip.most_blocks}" if strip.aim else ""
    aim = (Span(f"enough: {strip.aim}", "dim"),) if strip.aim else ()
    title = (Span(clean(strip.name), "title"), Span(f"  {launch}{most}"))
    return [section(title, width, aim), *_blocks(strip, width, rows, has_axis=has_axis)]


def _blocks(strip: TimedCase, width: int, rows: int, *, has_axis: bool) -> Iterator[Line]:
    """The rate of this launch, and its step times as columns behind those of launches before."""
    shown = _shown_blocks(strip, width - axis_cells(width) - 2)
    low, high, low_text, high_text = axis_of_seconds(min(map(min, shown)), max(map(max, shown)))
    yield _running(strip, width, begins_at_0=low == 0)
    drawn = [area([step - low for step in one], high - low, rows) for one in shown]
    bodies = map("┆".join, zip(*drawn, strict=True))
    painted = [(Span(*row),) for row in zip(bodies, body_styles("compute", rows), strict=True)]
    yield from (fitted(line, width) for line in with_axis(painted, high_text, width, low_text))
    if has_axis:
        first = len(strip.step_s) - len(shown) + 1
        names = [left(f"launch {first + place}", len(one)) for place, one in enumerate(shown)]
        yield fitted((Span(" " * axis_cells(width)), Span(" ".join(names), "dim")), width)


def _running(strip: TimedCase, width: int, *, begins_at_0: bool) -> Line:
    """`  215k tok/s ±1.4 % in this launch        76.2 ms a step, axis not from 0`."""
    sure = f"  {strip.interval.reason}" if not isinstance(strip.interval, Estimated) else f"  {strip.spread} "
    where = "in this launch" if isinstance(strip.interval, Estimated) else ""
    here = (Span(f"  {strip.rate}", "title"), Span(sure), Span(where, "dim"))
    note, room = f"  {format_seconds(strip.centre_s)} a step", width - line_width(here)
    if not begins_at_0 and line_width((Span(f"{note}, axis not from 0"),)) <= room:
        note += ", axis not from 0"
    return fitted((*here, Span(right(note, max(room, 0)), "dim")), width)


def _shown_blocks(strip: TimedCase, room: int) -> list[tuple[float, ...]]:
    """Step times by launch, the oldest first; columns stay where they are while a launch goes on."""
    *earlier, newest = strip.step_s
    shown = [newest[-room:]]
    before = room - min(max(strip.most_blocks, len(newest)), room) - 1
    for one in reversed(earlier):
        if before < 1:
            break
        shown.insert(0, one[-before:])
        before -= len(shown[0]) + 1
    return shown


def _events(progress: ProgressSnapshot, width: int, height: int) -> list[Line]:
    """The newest events, newest last; of older ones warnings stay in sight."""
    if height < 2:
        return []
    lines = [section((Span("events", "title"),), width)]
    if not progress.events:
        lines.append(fitted((Span("  none so far", "dim"),), width))
    for event in _in_sight(progress.events, height - 1):
        style = {"warning": "warn", "error": "alarm"}.get(event.level, "")
        text = ("! " if style else "") + clean(event.message)
        at = Span(f"  {right(format_clock(event.at_s), 5)}  ", "dim")
        lines.append(fitted((at, Span(text, style)), width))
    return lines


def _in_sight(events: Sequence[Happened], rows: int) -> Sequence[Happened]:
    """The last ones; up to half of the room goes to the last warnings."""
    newest = list(events[-rows:])
    kept = sum(event.level != "info" for event in newest)
    warnings = [event for event in events[:-rows] if event.level != "info"]
    more = warnings[-(rows // 2 - kept) :] if rows // 2 > kept else []
    return [*more, *newest[len(more) :]]


def logs_lines(words: Sequence[LogTail], places: Iterable[object], width: int) -> Iterator[Line]:
    """What workers had written when their launch failed, and where their whole logs are."""
    if not words:
        yield (Span("  no worker has failed", "dim"),)
    for said in words:
        about = clean(f"{said.launch}: {said.outcome}{': ' if said.reason else ''}{said.reason}")
        for number, row in enumerate(wrapped(about, width - 9, 4)):
            at = "" if number else format_clock(said.at_s)
            yield (Span(f"  {at:5}", "dim"), Span(row, "warn"))
        yield from log_lines(map(clean, said.lines), width)
    for place in places:
        where = f"full logs, until the directory is removed: {clean(str(place))}"
        yield from rows_of(where, width, "dim", most=3)


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
        yield from rows_of(clean(sentence(found.wrong.message, found.wrong.hint)), width, "alarm", margin=" ")
        if progress is not None:
            yield from cases_so_far(progress, width, len(progress.cases) + 4)
    elif found.status != "finished":
        yield from rows_of(f"The run did not finish: {clean(found.status)}.", width, "warn", margin=" ")
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
        yield from rows_of(clean(said), width, "dim", margin=" ")


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


def rows_of(text: str, width: int, style: str, *, margin: str = "  ", most: int = 6) -> Iterator[Line]:
    """A safe text in at most so many rows."""
    for row in wrapped(text, width - 3, most):
        yield (Span(margin + row, style),)
