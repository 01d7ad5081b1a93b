"""One run in tabs."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace

from textual import events
from textual.app import ComposeResult
from textual.containers import Vertical
from textual.widget import Widget
from textual.widgets import ContentSwitcher, DataTable, Tab, Tabs

from gputui.document.spans import Line, Span
from gputui.model.absent import Missing
from gputui.model.journal import Operator
from gputui.model.result import CaseResult
from gputui.services.results import exports as saving
from gputui.services.results.browser import RunDetail, breakdown_for
from gputui.services.results.exports import Sheet
from gputui.services.results.labels import case_name, outcome_words
from gputui.services.results.step_breakdown import StepBreakdown
from gputui.services.results.step_tables import operator_table, profiled_cases
from gputui.store.reading import TelemetrySeries
from gputui.tui.screens.results import pages
from gputui.tui.screens.results.overview import overview_page, step_lines
from gputui.tui.screens.results.tables import (
    CASE_HEADINGS,
    GROUPS,
    OPERATOR_ORDERS,
    STEP_HEADING,
    CaseRow,
    case_rows,
    chosen_operators,
    launch_lines,
)
from gputui.tui.screens.results.timeline import PINNED, TimeWindow, at_cursor, lane_cells, share_at, timeline
from gputui.tui.terminal.renderer import LinesView
from gputui.tui.widgets.app_context import shell_of
from gputui.tui.widgets.cells import in_ascii, paragraph, section
from gputui.tui.widgets.scrolled import LinesPage, PlainTable

TABS = ("overview", "cases", "operators", "step", "memory", "timeline", "environment", "findings")
OF_A_CASE = ("operators", "step", "memory")
"""Tabs that show one case."""
_WIDE, _NAME_CELLS = 100, 26
"""Below this width names of operators are cut, to leave room for time and share."""
_SHORT_TABS = {
    "overview": "Over",
    "operators": "Ops",
    "memory": "Mem",
    "timeline": "Time",
    "environment": "Env",
    "findings": "Find",
}
_CLOSE_TABS_CELLS = 48
"""Below this width tabs have one blank between them, so that all are visible."""
_ROWS_ABOVE_AND_BELOW = 6
"""Lines of the screen outside the page."""
_LEAST_BELOW = 12
"""Free rows under a table from which they show more of what is selected."""


def tabs_of(detail: RunDetail) -> tuple[str, ...]:
    """The tabs that a run has something for; the findings say what is missing."""
    missing = [] if detail.passes else ["operators", "step", "memory"]
    if not detail.series and not detail.spans:
        missing.append("timeline")
    return tuple(name for name in TABS if name not in missing)


class RunPane(Vertical):
    """The pages of a run; all tabs show the same case, if they have it."""

    def __init__(
        self,
        show_message: Callable[[str, str], None],
        read_window: Callable[[RunDetail, TimeWindow], None],
        id: str | None = None,
    ) -> None:
        """`show_message` shows a text in a style of the theme in the line for messages.

        `read_window` reads the telemetry of a part of the run and passes it to `take_series`.
        """
        super().__init__(id=id)
        self._show_message = show_message
        self._read_window = read_window
        self._series: tuple[TelemetrySeries, ...] = ()
        self._window: TimeWindow | None = None
        self._pressed_at: int | None = None
        self._way: list[str] = []
        """The tabs from which `enter` led to this one, the first one first."""
        self.detail: RunDetail | None = None
        self.tabs: tuple[str, ...] = TABS
        """Those that the run has something for."""
        self._case_rows: list[CaseRow] = []
        self._case_id = -1  # none was chosen
        self._group = self._order = 0
        self.operator_filter = ""
        self._cases = PlainTable(CASE_HEADINGS, id="cases")
        self._operators = PlainTable((), id="operators")
        self._page = LinesPage(id="page")
        self._tabs = Tabs(*(Tab(name.capitalize(), id=name) for name in TABS))
        self._tabs.can_focus = False
        self._switcher = ContentSwitcher(
            self._cases, self._operators, self._page, initial="cases", id="pages"
        )

    def compose(self) -> ComposeResult:
        yield self._tabs
        yield self._switcher
        self._below = LinesView()
        self._below.display = False
        yield self._below

    @property
    def tab(self) -> str:
        """The one that is shown."""
        return str(self._tabs.active or TABS[0])

    @property
    def body(self) -> Widget:
        """The widget to focus."""
        return self.query_one(f"#{self._switcher.current}")

    def show(self, detail: RunDetail) -> None:
        """Show another run, from its first tab; tabs without content are hidden."""
        self.detail = detail
        self.tabs = tabs_of(detail)
        for name in TABS:
            if name in self.tabs:
                self._tabs.show(name)
            else:
                self._tabs.hide(name)
        self._case_rows = case_rows(detail.run)
        self._case_id, self.operator_filter = -1, ""
        self._series = detail.series
        has_time = bool(detail.series or detail.spans)
        self._window = TimeWindow.over_all(detail.series, detail.spans) if has_time else None
        _fill_without_empty(
            self._cases, CASE_HEADINGS, [cells for _, cells in self._case_rows], (STEP_HEADING,)
        )
        self.on_resize()
        self.show_tab(TABS[0])

    def on_resize(self) -> None:
        """Fit the names of the tabs to the width."""
        width = self.screen.size.width
        is_close = width < _CLOSE_TABS_CELLS
        names = _SHORT_TABS if sum(len(name) + 2 for name in self.tabs) > width else {}
        for tab in self._tabs.query(Tab):
            name = str(tab.id)
            tab.label = names.get(name, name.capitalize())
            tab.styles.padding = (0, 1, 0, 0) if is_close else (0, 1)

    def show_tab(self, name: str) -> None:
        self._way.clear()
        self._go_to(name)

    def _go_to(self, name: str) -> None:
        self._tabs.active = name
        self.draw()

    def _open(self, name: str) -> None:
        """Go to a tab from which `go_back` leads to this one."""
        self._way = self._way[: self._way.index(name)] if name in self._way else [*self._way, self.tab]
        self._go_to(name)

    def go_back(self) -> bool:
        """Return to the tab from which this one was opened, as it was; False if none was."""
        if not self._way:
            return False
        self._go_to(self._way.pop())
        return True

    def step_tab(self, step: int) -> None:
        """Move by this many tabs, wrapping around."""
        self.show_tab(self.tabs[(self.tabs.index(self.tab) + step) % len(self.tabs)])

    def step_case(self, step: int) -> None:
        """Move by this many cases that have something on this tab, or were timed."""
        if self.tab == "timeline" and self.detail is not None and self.detail.spans:
            spans = self.detail.spans
            self.change_window(lambda window: window.next_span(spans, step))
            self._page.show_marked()
        there = self._profiled()
        if self.tab not in OF_A_CASE or len(there) < 2:
            return
        here = self._case()
        place = there.index(here) if here in there else 0
        self._case_id = there[(place + step) % len(there)].case_id
        self.draw()

    def change_window(self, change: Callable[[TimeWindow], TimeWindow]) -> None:
        """Change the window of the telemetry: draw what is loaded at once, read what is missing."""
        detail, before = self.detail, self._window
        if self.tab != "timeline" or detail is None or before is None:
            return
        self._window = now = change(before)
        if now.is_whole:
            self._series = detail.series
        elif (now.from_us, now.to_us) != (before.from_us, before.to_us):
            self._read_window(detail, now)
        self._draw_timeline(keeps_place=True)

    def open_further(self) -> None:
        """From the timeline to the case at its cursor, or to its step; from a step to its operators."""
        detail, window = self.detail, self._window
        there = at_cursor(detail, window) if detail and window and self.tab == "timeline" else []
        if self.tab == "step":
            self._open("operators")
        elif detail is not None and there:
            self._case_id = there[0].case_id
            self._open("step" if self._case_id in detail.passes else "cases")
            rows = [case.case_id for case, _ in self._case_rows]
            self._cases.move_cursor(row=rows.index(self._case_id))

    def step_cursor(self, cells: int) -> None:
        wide = lane_cells(self.screen.size.width)
        self.change_window(lambda window: window.stepped(cells / wide))

    def take_series(self, window: TimeWindow, series: tuple[TelemetrySeries, ...]) -> None:
        """Show what was read for a window, if it is still the current one."""
        shown = self._window
        if shown is not None and (shown.from_us, shown.to_us) == (window.from_us, window.to_us):
            self._series = series
            self._draw_timeline(keeps_place=True)

    def on_mouse_down(self, event: events.MouseDown) -> None:
        """Remember where a selection of telemetry may begin."""
        self._pressed_at = event.screen_x if self.tab == "timeline" else None

    def on_mouse_up(self, event: events.MouseUp) -> None:
        """Zoom to the selection, or move the cursor to the clicked position."""
        pressed, self._pressed_at = self._pressed_at, None
        if pressed is None:
            return
        width = self.screen.size.width
        first, last = sorted(share_at(x, width) for x in (pressed, event.screen_x))
        if not 0 <= first <= 1:
            return

        def chosen(window: TimeWindow) -> TimeWindow:
            if pressed == event.screen_x:
                return window.at(first)
            ends = (window.at(share).cursor_us for share in (first, last))
            return window.between(*ends)

        self.change_window(chosen)

    def sort(self) -> None:
        if self.tab == "operators":
            self._order = (self._order + 1) % len(OPERATOR_ORDERS)
            self.draw()

    def group(self) -> None:
        if self.tab == "operators":
            self._group = (self._group + 1) % len(GROUPS)
            self.draw()

    def filter_operators(self, text: str) -> None:
        """Show only operators that contain a text; the focus does not change."""
        self.operator_filter = text
        case = self._case()
        if self.detail is not None and case is not None:
            self._fill_operators(self.detail, case)

    def draw(self) -> None:
        detail = self.detail
        if detail is None:
            return
        name, case = self.tab, self._case()
        if name == "cases":
            self._switcher.current = "cases"
        elif name == "operators" and case is not None and self._fill_operators(detail, case):
            self._switcher.current = "operators"
        else:
            self._switcher.current = "page"
            if name == "timeline":
                self._draw_timeline()
            else:
                self._page.show(self._lines_of(detail, name, case))
        if name in OF_A_CASE and case is not None:
            self._show_message(self._case_words(case), "accent")
        elif name == "cases":
            self._describe_case_row()
        else:
            self._show_message("", "")
        self._draw_below()
        self.body.focus()

    def on_tabs_tab_activated(self, event: Tabs.TabActivated) -> None:
        event.stop()
        if self.display:
            self.draw()

    def on_data_table_row_highlighted(self, event: DataTable.RowHighlighted) -> None:
        event.stop()
        if self.tab == "cases" and self.display and self.detail is not None:
            self._describe_case_row()
            self._draw_below()

    def on_data_table_row_selected(self, event: DataTable.RowSelected) -> None:
        """Go to where a case was timed, or to its step if it only was profiled."""
        event.stop()
        place, detail = event.cursor_row, self.detail
        if detail is None or event.data_table is not self._cases or place >= len(self._case_rows):
            return
        self._case_id = self._case_rows[place][0].case_id
        timed = [span for span in detail.spans if span.case_id == self._case_id]
        if timed:
            self._open("timeline")
            self.change_window(lambda window: window.over(timed[0]))
        elif self._case_id in detail.passes:
            self._open("step")

    def sheet(self) -> Sheet | Missing:
        """What the tab shows, to be saved; Missing with the reason where that is not a table."""
        detail, name, case = self.detail, self.tab, self.shown_case
        if detail is None:
            return Missing("no run is shown")
        match name:
            case "overview" | "cases":
                return replace(saving.cases_sheet(detail), what=name)
            case "environment":
                return saving.environment_sheet(detail)
            case "findings":
                return saving.findings_sheet(detail)
            case "timeline" if self._window is not None:
                within_us = self._window.from_us, self._window.to_us
                return saving.telemetry_sheet(detail, self._series, within_us)
        if case is None:
            return Missing(f"this run has nothing for the tab {name}")
        if name == "operators":
            breakdown = breakdown_for(detail, case)
            if isinstance(breakdown, Missing):
                return breakdown
            return saving.operators_sheet(detail, case, self._chosen(breakdown))
        return saving.step_sheet(detail, case) if name == "step" else saving.memory_sheet(detail, case)

    @property
    def shown_case(self) -> CaseResult | None:
        """The case that the tab shows, if it shows one."""
        return self._case() if self.tab in OF_A_CASE else None

    def _describe_case_row(self) -> None:
        place = self._cases.cursor_row
        if place < len(self._case_rows):
            cells = self._case_rows[place][1]
            self._show_message(f"{cells[0].strip()}: {cells[-1]}" if cells[-1] else "", "dim")

    def _case_words(self, case: CaseResult) -> str:
        there = self._profiled()
        words = f"{case_name(case)}  (case {there.index(case) + 1} of {len(there)})"
        if self.tab == "operators":
            words += f"  by {GROUPS[self._group]}, sorted by {OPERATOR_ORDERS[self._order][0]}"
            words += f", holding {self.operator_filter}" if self.operator_filter else ""
        return words

    def _lines_of(self, detail: RunDetail, name: str, case: CaseResult | None) -> tuple[Line, ...]:
        width, height = self.screen.size.width, self.screen.size.height - _ROWS_ABOVE_AND_BELOW
        if name == "overview":
            return overview_page(detail, width, height)
        if name == "environment":
            return pages.environment_page(detail, width)
        if name == "findings":
            return pages.findings_page(detail, width, height)
        if case is None:
            return pages.not_profiled("no case of this run has a profiled pass", width)
        if name == "operators":
            found = breakdown_for(detail, case)
            why = found.reason if isinstance(found, Missing) else "no operators"
            return pages.not_profiled(why, width, detail.run.summary.profile, case)
        page = pages.step_page if name == "step" else pages.memory_page
        return page(detail, case, width, height)

    def _draw_timeline(self, *, keeps_place: bool = False) -> None:
        if self.detail is None or self._window is None or self.tab != "timeline":
            return
        width, height = self.screen.size.width, self._switcher.size.height
        lines = timeline(self.detail, self._series, self._window, width, height)
        self._page.show(lines, keeps_place=keeps_place, pinned=PINNED if self.detail.spans else 0)

    def _profiled(self) -> list[CaseResult]:
        return [] if self.detail is None else profiled_cases(self.detail.run, self.detail.passes)

    def _case(self) -> CaseResult | None:
        """The one that was chosen, else that of the headline."""
        there = self._profiled()
        return next((case for case in there if case.case_id == self._case_id), there[0] if there else None)

    def _chosen(self, breakdown: StepBreakdown) -> list[Operator]:
        return chosen_operators(breakdown.operators, self._group, self._order, self.operator_filter)

    def _draw_below(self) -> None:
        """Where a table leaves much room, show the launches of the selected case, or the step, below it."""
        shown, detail = self._switcher.current, self.detail
        table, case = (self._cases, None) if shown == "cases" else (self._operators, self._case())
        if shown == "cases" and table.cursor_row < len(self._case_rows):
            case = self._case_rows[table.cursor_row][0]
        rows = self.screen.size.height - _ROWS_ABOVE_AND_BELOW - table.row_count - 2
        lines: tuple[Line, ...] = ()
        if shown != "page" and detail is not None and case is not None and rows >= _LEAST_BELOW:
            lines = self._lines_below(detail, case, shown == "cases", self.screen.size.width, rows - 1)
        self._below.display = bool(lines)
        self._switcher.styles.height = table.row_count + 2 if lines else "1fr"
        is_ascii = shell_of(self).ascii_only
        self._below.show(tuple(in_ascii(line) if is_ascii else line for line in lines[:rows]))

    def _lines_below(
        self, detail: RunDetail, case: CaseResult, is_case: bool, width: int, height: int
    ) -> tuple[Line, ...]:
        if not is_case:
            return pages.breakdown_lines(detail, case, width)
        if not case.case.has_steps:
            return ()
        title = section((Span(case_name(case), "title"),), width)
        lines: list[Line] = [title, *paragraph(outcome_words(case), width)]
        if any(m.blocks for m in case.measurements):
            lines = [*launch_lines(detail, case, width)]
        breakdown = breakdown_for(detail, case)
        step = () if isinstance(breakdown, Missing) else ((), *step_lines(case, breakdown, width))
        return (*lines, *(step if len(lines) + len(step) <= height else ()))

    def _fill_operators(self, detail: RunDetail, case: CaseResult) -> bool:
        breakdown = breakdown_for(detail, case)
        if isinstance(breakdown, Missing) or not breakdown.operators:
            return False
        table = operator_table(detail.passes[case.case_id], self._chosen(breakdown), breakdown.step_ns)
        widest = {0: _NAME_CELLS} if self.screen.size.width < _WIDE else None
        _fill_without_empty(self._operators, table.headings, table.rows, table.headings[3:], widest)
        return True


def _fill_without_empty(
    table: PlainTable,
    headings: Sequence[str],
    rows: Sequence[Sequence[str]],
    optional: Sequence[str],
    widest: Mapping[int, int] | None = None,
) -> None:
    """Fill a table without those of the optional columns in which no row has anything."""
    kept = [
        place
        for place, name in enumerate(headings)
        if name not in optional or not rows or any(cells[place] for cells in rows)
    ]
    table.fill(
        [[cells[place] for place in kept] for cells in rows], [headings[place] for place in kept], widest
    )
