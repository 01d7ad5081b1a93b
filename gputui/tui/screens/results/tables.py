"""The tables of the Results screen, and their rows as plain text."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from datetime import datetime
from pathlib import Path
from statistics import median

from gputui.analysis.statistics import hodges_lehmann
from gputui.analysis.verdict import SpeedEstimate
from gputui.document.drawings import bars
from gputui.document.spans import Line, Span
from gputui.document.table import Column, Table, table_of
from gputui.model.absent import Missing
from gputui.model.journal import Operator
from gputui.model.result import CaseResult, Run, RunSummary
from gputui.model.units import (
    counted,
    format_bytes,
    format_change,
    format_percent,
    format_rate,
    format_seconds,
    three_digits,
)
from gputui.services.results.browser import FileEntry, FileRuns, RunDetail
from gputui.services.results.case_table import brief_metrics
from gputui.services.results.exports import Sheet, runs_sheet
from gputui.services.results.labels import (
    case_name,
    day,
    device_words,
    interval_words,
    measured_first,
    metric_range,
    metric_text,
    shared_case_words,
    short_result_name,
)
from gputui.services.results.step_tables import CATEGORY_WORDS
from gputui.services.results.throughput import (
    GAVE,
    HELD_BY_OTHERS,
    HOST_BOUND,
    busy_words,
    gave_text,
    is_by_clock,
    is_crowded,
    measured_blocks,
    own_launches_of,
    speed_of,
    speeds_of,
    waited_of,
    waited_share,
)
from gputui.store.reading import CaseConditions
from gputui.store.selecting import MAX_LABEL
from gputui.store.text import clean_text
from gputui.tui.widgets.cells import clean, section, table_lines
from gputui.tui.widgets.scrolled import PlainTable
from gputui.worker.profiling.rows import added_up

FILE_HEADINGS = ("file", "size", "changed", "in")
RUN_HEADINGS = ("", "run", "when", "label", "profile", "status", "device")
STEP_HEADING = "per step"
CASE_HEADINGS = ("case", "rate", "95 %", STEP_HEADING, "remarks")
RUN_ORDERS: tuple[tuple[str, Callable[[RunSummary], object]], ...] = (
    ("when", lambda run: -run.started_utc_us),
    ("label", lambda run: (not run.label, run.label.casefold())),
    ("profile", lambda run: run.profile),
    ("status", lambda run: run.status),
    ("device", device_words),
)
"""Orders of runs; equal ones newest first."""
OPERATOR_ORDERS: tuple[tuple[str, Callable[[Operator], object]], ...] = (
    ("time", lambda row: -row.time_ns),
    ("calls", lambda row: -row.calls),
    ("name", lambda row: row.operator),
)
GROUPS = ("operator", "category", "phase")
MARK = "*"
_MARK, _LABEL = RUN_HEADINGS.index(""), RUN_HEADINGS.index("label")
_WIDE, _LABEL_CELLS = 150, 14
"""From this width of the screen on labels are shown in full; below it status and box take precedence."""


def file_row(entry: FileEntry) -> tuple[str, ...]:
    """Name, size, time of the last change, directory."""
    changed = datetime.fromtimestamp(entry.modified_s)
    name = f"{entry.path.name} (default)" if entry.is_default else entry.path.name
    return (
        clean_text(name),
        format_bytes(entry.total_bytes),
        f"{changed:%Y-%m-%d %H:%M}",
        clean_text(str(entry.path.parent)),
    )


def run_row(run: RunSummary) -> tuple[str, ...]:
    """One run, without its mark."""
    return (run.short_id, day(run), run.label, run.profile, run.status, device_words(run))


def holds_text(cells: Sequence[str], wanted: str) -> bool:
    """Whether any cell contains the text, ignoring case."""
    return any(wanted.casefold() in cell.casefold() for cell in cells)


def sorted_runs(runs: Sequence[RunSummary], order: int) -> list[RunSummary]:
    key = RUN_ORDERS[order][1]
    newest_first = sorted(runs, key=lambda run: -run.started_utc_us)
    return sorted(newest_first, key=lambda run: key(run))  # type: ignore[arg-type,return-value]


CaseRow = tuple[CaseResult, tuple[str, ...]]
"""A row of the table of cases: a case, or a metric of the case above."""


def case_rows(run: Run) -> list[CaseRow]:
    """Each case with its metrics below it; those that were not to be run here come last."""
    rows: list[CaseRow] = []
    for case in measured_first(run.cases):
        speed = speed_of(case)
        cells = (case_name(case), case.outcome, "", "", case.reason)
        if isinstance(speed, SpeedEstimate):
            cells = (
                f"{case_name(case)} ({HOST_BOUND})" if busy_words(case) else case_name(case),
                format_rate(speed.units_per_s, case.case.unit),
                interval_words(speed),
                format_seconds(case.case.units_per_step / speed.units_per_s) if case.case.has_steps else "",
                _flags(case),
            )
        rows.append((case, cells))
        for metric in brief_metrics(case):
            cells = (f"  {metric.title}", metric_text(metric), "", "", metric_range(metric))
            rows.append((case, cells))
    return rows


def _flags(case: CaseResult) -> str:
    """Remarks on a result, in a word or two."""
    flags = []
    if case.outcome != "ok":
        flags.append(f"{case.outcome}: {case.reason}" if case.reason else case.outcome)
    if gave := "this" if is_by_clock(case) else gave_text(case):
        flags.append(f"{GAVE} {gave}")
    if is_crowded(case):
        share = waited_share(case)
        flags.append(HELD_BY_OTHERS + ("" if isinstance(share, Missing) else f" {format_percent(share)}"))
    if busy := busy_words(case):
        flags.append(busy)
    if any(m.outcome == "ok" and m.stable is False for m in case.measurements):
        flags.append("not stable")
    if layouts := {m.layout for m in case.measurements if m.layout}:
        flags.append(f"layout {' and '.join(sorted(layouts))}")
    failed = [m for m in case.measurements if m.outcome != "ok"]
    if failed and case.outcome == "ok":
        flags.append(f"{len(failed)} of {len(case.measurements)} launches {failed[-1].outcome}")
    return ", ".join(flags)


def chosen_operators(rows: Sequence[Operator], group: int, order: int, wanted: str) -> list[Operator]:
    """Operators that contain a text, individually or grouped, in one of OPERATOR_ORDERS."""
    kept = [
        row
        for row in rows
        if holds_text(
            (row.operator, row.phase, row.category, CATEGORY_WORDS.get(row.category, ""), row.shapes), wanted
        )
    ]
    if GROUPS[group] != "operator":
        kept = _added_up(kept, GROUPS[group])
    key = OPERATOR_ORDERS[order][1]
    kept.sort(key=lambda row: key(row))  # type: ignore[arg-type,return-value]
    return kept


def _added_up(rows: Sequence[Operator], by: str) -> list[Operator]:
    """One row for each category or phase."""
    groups: dict[str, list[Operator]] = {}
    for row in rows:
        name = CATEGORY_WORDS.get(row.category, row.category) if by == "category" else row.phase
        groups.setdefault(name, []).append(row)
    return [
        replace(
            added_up(members),
            phase="",
            category="",
            operator=f"{name} ({counted(len(members), 'row')})",
            shapes="",
            dtypes="",
        )
        for name, members in groups.items()
    ]


class RunsTable(PlainTable):
    """A row for each run that matches the filter; marks are kept across files."""

    def __init__(self, id: str | None = None) -> None:
        super().__init__(RUN_HEADINGS, id=id)
        self.contents: FileRuns | None = None
        """The contents of the file; None before one was read."""
        self.marked: list[tuple[Path, str]] = []
        """File and id, in the order of marking."""
        self.filter_text = ""
        self._order = 0
        self._runs: dict[str, tuple[RunSummary, tuple[str, ...]]] = {}
        """Each run by its id, with its cells without the mark."""
        self._read_state: tuple[int, int] = (0, 0)

    @property
    def here(self) -> RunSummary | None:
        """The run under the cursor."""
        return self._runs[self.key][0] if self.key else None

    @property
    def marked_here(self) -> list[RunSummary]:
        """Those of this file, in the order of marking."""
        return [self._runs[key[1]][0] for key in self.marked if key == self._key_of(key[1])]

    @property
    def heading(self) -> str:
        """File, number of runs shown and their order, and the number of marked ones."""
        if self.contents is None:
            return ""
        marks = f", {len(self.marked)} marked" if self.marked else ""
        count = len(self.keys)
        of = f" of {len(self.contents.runs)} holding {self.filter_text}," if self.filter_text else ""
        of = of or (" run" if count == 1 else " runs")
        return f"{self.contents.path.name}: {count}{of} by {RUN_ORDERS[self._order][0]}{marks}"

    @property
    def sheet(self) -> Sheet:
        """The visible runs, in their order, to be saved."""
        assert self.contents is not None
        return runs_sheet(self.contents.path, [self._runs[run_id][0] for run_id in self.keys])

    @property
    def is_outdated(self) -> bool:
        """Whether the file has changed since it was read."""
        return self.contents is not None and _changed(self.contents.path) != self._read_state

    def expect(self, path: Path) -> None:
        """A file is about to be read: later changes may be missing from what `hold` gets."""
        self._read_state = _changed(path)

    def hold(self, contents: FileRuns) -> None:
        """Show the contents of a file; marks of runs that no longer exist are removed."""
        there = {run.run_id for run in contents.runs}
        self.marked = [key for key in self.marked if key[0] != contents.path or key[1] in there]
        self.contents = contents
        self._runs = {run.run_id: (run, run_row(run)) for run in contents.runs}
        self.draw()

    def draw(self) -> None:
        """Draw the rows in the columns that fit the width; the cursor stays on its run."""
        contents = self.contents
        if contents is None:
            return
        ids = [run.run_id for run in sorted_runs(contents.runs, self._order)]
        rows = {run_id: (self._mark_of(run_id), *self._runs[run_id][1]) for run_id in ids}
        kept = {run_id: cells for run_id, cells in rows.items() if holds_text(cells, self.filter_text)}
        room = _LABEL_CELLS if self.screen.size.width < _WIDE else MAX_LABEL
        self.fill([*kept.values()], widest={_LABEL: room}, keys=[*kept])

    def sort_by_next(self) -> None:
        self._order = (self._order + 1) % len(RUN_ORDERS)
        self.draw()

    def mark(self) -> None:
        """Mark or unmark the run under the cursor, and go on to the next row."""
        if not self.key:
            return
        key = self._key_of(self.key)
        if key in self.marked:
            self.marked.remove(key)
        else:
            self.marked.append(key)
        for row, run_id in enumerate(self.keys):
            self.change(row, _MARK, self._mark_of(run_id))
        self.action_cursor_down()

    def _key_of(self, run_id: str) -> tuple[Path, str]:
        assert self.contents is not None
        return self.contents.path, run_id

    def _mark_of(self, run_id: str) -> str:
        key = self._key_of(run_id)
        return f"{MARK}{self.marked.index(key) + 1}" if key in self.marked else ""


def _changed(path: Path) -> tuple[int, int]:
    """Modification time and size of a file, without opening it."""
    try:
        found = path.stat()
    except OSError:
        return 0, 0
    return found.st_mtime_ns, found.st_size


_USUAL = ("case", "rate", "95 %", "slowed", "capped", "other programs", "clock", "launches", "blocks")
HEADINGS = (*_USUAL, "warming up", "shared", "samples")
"""The last ones go first where a terminal is narrow."""
LAUNCH_HEADINGS = ("launch", "rate", "from median", "blocks", "slowest", "other programs", "")


def rests_on_lines(detail: RunDetail, width: int) -> Iterator[Line]:
    """A table of the measured cases, without the columns that no case has; empty if nothing was measured.

    Shares are of the time in which a case was timed.
    """
    speeds = speeds_of(detail.run)
    common = shared_case_words(case.case for case, _ in speeds)
    rows = [
        (
            clean(short_result_name(case, common)),
            *_cells(case, speed, detail.conditions.get(case.case_id)),
        )
        for case, speed in speeds
    ]
    if not rows:
        return
    found = table_of(HEADINGS, rows, range(1, len(HEADINGS)), priorities=dict(enumerate(range(-2, 10))))
    known = [replace(one, cells=[text or "—" for text in one.texts]) for one in _filled(found)]
    yield section((Span("how reliable the figures are", "title"),), width)
    yield from table_lines(Table(tuple(known)), width)


def launch_lines(detail: RunDetail, case: CaseResult, width: int, current: int = -1) -> Iterator[Line]:
    """How fast each launch of a case was, and what disturbed its blocks; `current` is the id of one to mark.

    Rates are without the waiting for CPUs where that is known. Columns that no launch has are left out.
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
                "" if mine is None or len(seconds) < 2 else format_change(median(seconds.values()) / mine),
                f"{len(steps_ns) or ''}",
                f"+{format_percent(max(steps_ns) / min(steps_ns) - 1)}" if steps_ns else "",
                f"up to {format_percent(max(waited))}" if waited else "",
                clean(one.reason),
            )
        )
    rates = [1 / seconds[one.launch_id] if one.launch_id in seconds else None for one in case.measurements]
    known = _filled(table_of(LAUNCH_HEADINGS, rows, range(5), priorities={3: 1, 4: 2}))
    fastest = bars(rates, max(filter(None, rates), default=1.0), "chart", priority=3)
    legend = (Span("bar: of the fastest", "dim"),) if len(seconds) > 1 else ()
    yield section((Span("launches of ", "dim"), Span(clean(case_name(case)), "title")), width, legend)
    marks = [one.launch_id == current for one in case.measurements]
    yield from table_lines(Table((*known, fastest)), width, margin=3, marks=marks)


def _filled(table: Table) -> list[Column]:
    """The columns in which any row has something."""
    return [column for column in table.written if any(column.texts)]


def _cells(case: CaseResult, speed: SpeedEstimate, found: CaseConditions | None) -> tuple[str, ...]:
    waited = waited_share(case)
    slowed, capped, cold, shared = ("",) * 4
    if found is not None:
        slowed, capped, cold, shared = (
            "" if isinstance(share, Missing) else format_percent(share)
            for share in (
                found.slowed_share,
                found.power_capped_share,
                found.cold_share,
                found.shared_share,
            )
        )
    return (
        format_rate(speed.units_per_s, case.case.unit),
        interval_words(speed),
        slowed,
        capped,
        "" if isinstance(waited, Missing) else format_percent(waited),
        "" if found is None else _clock(found),
        str(speed.launches),
        "" if case.case.is_whole else str(speed.blocks),
        cold,
        shared,
        "" if found is None else str(found.samples),
    )


def _clock(found: CaseConditions) -> str:
    """`1.98 of 1.98 GHz`."""
    if isinstance(found.clock_median_mhz, Missing):
        return ""
    most = found.clock_most_mhz
    of = "" if isinstance(most, Missing) else f" of {three_digits(most / 1000)}"
    return f"{three_digits(found.clock_median_mhz / 1000)}{of} GHz"
