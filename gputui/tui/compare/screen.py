"""The Compare screen: the rows of a comparison, and the evidence of each."""

from __future__ import annotations

import shlex
from collections.abc import Callable
from dataclasses import dataclass, replace

from textual.app import ComposeResult
from textual.widgets import ContentSwitcher, DataTable

from gputui.analysis.attribution import Attribution
from gputui.analysis.cost import Cost
from gputui.analysis.verdict import SpeedEstimate
from gputui.model.absent import Missing
from gputui.model.units import RATES, format_seconds
from gputui.services.comparing import Answer, Asked, ask
from gputui.services.comparison import Cell, Comparison, Row, Side
from gputui.services.explaining import Why
from gputui.services.jobs import Job
from gputui.services.printed import printed
from gputui.services.row_wording import (
    common_words,
    cost_text,
    difference_words,
    interval_text,
    peak_text,
    rate_text,
    ratio_text,
    row_name,
    side_words,
)
from gputui.store.text import clean_text
from gputui.tui.compare.actions import ACTIONS
from gputui.tui.compare.evidence_page import evidence_page
from gputui.tui.dialogs import AskText
from gputui.tui.lines import Line, Span
from gputui.tui.lines_page import LinesPage
from gputui.tui.lines_view import LinesView
from gputui.tui.monitor.cells import cut, fitted
from gputui.tui.monitor.plain_ascii import in_ascii
from gputui.tui.plain_table import PlainTable
from gputui.tui.results.pages import paragraph
from gputui.tui.shell import ShellScreen, bindings_of, shell_of

VALUES = ("rate", "per step", "cost", "of the peak")
"""What the columns of the sides show."""
_WIDE = 100
_HIGH = 16
_LABEL_CELLS = 24
_HINTS = {
    "rows": ("enter", "baseline", "values", "text", "differs", "open-files", "back"),
    "page": ("back", "down"),
    "notice": ("open-files", "reload", "back"),
}


@dataclass(frozen=True, slots=True)
class Loaded:
    """A comparison that was read."""

    words: tuple[str, ...]
    """As they were typed."""
    asked: Asked
    baseline: int
    answer: Answer


class CompareScreen(ShellScreen):
    """One side against the baseline, row by row."""

    ID = "compare"
    ACTIONS = ACTIONS
    BINDINGS = bindings_of(ACTIONS)
    DEFAULT_CSS = """
    CompareScreen #level { height: 1fr; }
    CompareScreen #sides { height: 2; }
    CompareScreen #sides.-hidden { display: none; }
    """

    def __init__(self) -> None:
        super().__init__()
        self._words: tuple[str, ...] = ()
        self._loaded: Loaded | None = None
        self._place = 0
        self._value = 0
        self._rows: list[Row] = []
        self._page_heading = ""
        self._page_again: Callable[[], None] = lambda: None
        """Makes the page anew that is shown, as wide as the screen is then."""
        self._table = PlainTable(id="rows")

    def compose_body(self) -> ComposeResult:
        """The sides, the rows, a page for what a row rests on, and one for what cannot be shown."""
        self._sides = LinesView(shell_of(self).depth)
        self._sides.id = "sides"
        self._sides.add_class("-hidden")
        yield self._sides
        with ContentSwitcher(initial="notice", id="level"):
            yield self._table
            yield LinesPage(id="page")
            yield LinesPage(id="notice")

    def on_mount(self) -> None:
        """What was asked for, else how to ask."""
        self.is_ready = True
        if self._words:
            self._read(self._words)
        else:
            self.call_after_refresh(self._teach)

    def show_words(self, words: tuple[str, ...]) -> None:
        """Compare these `F[@RUN]`, the first as the baseline."""
        self._words = words
        if self.is_ready:
            self._read(words)

    @property
    def level(self) -> str:
        """`rows`, `page` or `notice`."""
        return str(self.query_one("#level", ContentSwitcher).current)

    @property
    def comparison(self) -> Comparison | None:
        """What the table shows."""
        return None if self._loaded is None else self._loaded.answer.comparisons[self._place]

    def has_reasons(self, row: Row) -> bool:
        """Whether it is known why the sides differ in a row."""
        why = self._why(row)
        return why is not None and isinstance(why.attribution, Attribution)

    def heading(self) -> str:
        """What is compared."""
        if self.level == "page":
            return self._page_heading
        shown = self.comparison
        if self.level == "notice" or shown is None or self._loaded is None:
            return "compare"
        count = len(self._loaded.answer.comparisons)
        more = f" ({self._place + 1} of {count} sides)" if count > 1 else ""
        return f"{_called(shown.b)} against {_called(shown.a)}{more}"

    def hints(self) -> tuple[str, ...]:
        """The keys of the level."""
        found = _HINTS[self.level]
        if self.level == "rows" and self._loaded and len(self._loaded.answer.comparisons) > 1:
            return ("enter", "next-side", *found[1:])
        return found

    def _teach(self) -> None:
        if self._loaded is not None or self.is_busy:
            return
        width = self.size.width
        lines = [
            *paragraph("Nothing is compared yet.", width, "title"),
            (),
            *paragraph("Press 3, mark two runs with space, then c. The first is the baseline.", width),
            *paragraph("Or press o and type files as for gputui compare: a.db b.db, a.db@label, a.db", width),
            (),
            *paragraph(
                "One file alone: its devices, precisions or threads against each other.", width, "dim"
            ),
        ]
        self._notice(tuple(lines))

    def _read(self, words: tuple[str, ...], baseline: int = 0) -> None:
        self._words = words

        def work(job: Job[Loaded]) -> Loaded:
            job.say(f"reading {', '.join(_short(word) for word in words)}")
            asked = ask(words)
            job.say("comparing")
            return Loaded(words, asked, baseline, asked.compared(baseline))

        self.begin(work, self._take, self._fail)

    def _take(self, loaded: Loaded) -> None:
        self._loaded, self._place = loaded, min(self._place, len(loaded.answer.comparisons) - 1)
        self._fill()
        self._show_level("rows")
        for warning in loaded.asked.warnings:
            self.say(warning, "warn")

    def _fail(self, message: str, hint: str) -> None:
        width = self.size.width
        lines = paragraph(clean_text(message), width, "warn")
        if hint:
            lines += ((), *paragraph(clean_text(hint), width))
        self._notice(lines)

    def _fill(self) -> None:
        """The table anew, in the columns that the width has room for."""
        shown = self.comparison
        if shown is None or self._loaded is None:
            return
        ignore, is_wide = self._loaded.asked.ignore, self.size.width >= _WIDE
        common = common_words(shown, ignore)
        value = VALUES[self._value]
        unit = value if self._value else "" if is_wide else "per s"
        case = f"case ({' '.join(common)})" if common else "case"
        headings = (case, f"a {unit}".strip(), f"b {unit}".strip(), "b against a", "verdict", "remarks")
        self._rows = [*shown.rows, *shown.one_sided]
        rows = [self._row_cells(row, common, ignore, is_wide) for row in self._rows]
        for group in shown.groups:
            mean = "—" if isinstance(group.mean, Missing) else interval_text(group.mean, wide=is_wide)
            rows.append((f"mean of {group.common}/{group.rows} {group.group}", "", "", mean, "", ""))
        self._table.fill(rows, headings)
        self._sides.show(self._side_lines(shown, self.size.width))
        self._tell_row()

    def _side_lines(self, shown: Comparison, width: int) -> tuple[Line, ...]:
        """What a and b are."""
        lines = [
            fitted((Span(f"{letter}  ", "title"), Span(self._side_words(side, width - 3))), width)
            for letter, side in (("a", shown.a), ("b", shown.b))
        ]
        return tuple(map(in_ascii, lines)) if shell_of(self).ascii_only else tuple(lines)

    def _row_cells(self, row: Row, common: list[str], ignore: str, is_wide: bool) -> tuple[str, ...]:
        a, b = (self._cell(cell) for cell in (row.a, row.b))
        return (
            row_name(row, common, ignore, is_short=not is_wide),
            a if is_wide else a.removesuffix("/s"),
            b if is_wide else b.removesuffix("/s"),
            ratio_text(row, wide=is_wide),
            row.verdict.word,
            "; ".join(filter(None, (*(f"{f.side} {f.word}" for f in row.flags), row.note))),
        )

    def _cell(self, cell: Cell) -> str:
        """One side of a row, as VALUES says."""
        match VALUES[self._value]:
            case "per step" if isinstance(cell.speed, SpeedEstimate) and cell.result is not None:
                return format_seconds(cell.result.case.units_per_step / cell.speed.units_per_s)
            case "cost":
                unit = RATES[cell.result.case.unit].per_million if cell.result else ""
                return f"{cost_text(cell)} for {unit}" if isinstance(cell.cost, Cost) else "—"
            case "of the peak":
                return peak_text(cell) or "—"
        return rate_text(cell)

    def on_data_table_row_highlighted(self, event: DataTable.RowHighlighted) -> None:
        """Why no more can be said stands below the table."""
        event.stop()
        self._tell_row()

    def _tell_row(self) -> None:
        if self.level != "rows" or self.is_busy:
            return
        row = self._row_here
        self.say("" if row is None else "; ".join(filter(None, (row.verdict.reason, row.note))), "dim")

    @property
    def _row_here(self) -> Row | None:
        place = self._table.cursor_row
        return self._rows[place] if place < len(self._rows) else None

    def _side_words(self, side: Side, width: int) -> str:
        ignore = self._loaded.asked.ignore if self._loaded else ""
        name, short = _called(side), _short(side.name)
        name = name if name == short else f"{name}  {short}"
        return clean_text(side_words(replace(side, name=name), ignore, width))

    def _why(self, row: Row) -> Why | None:
        if self._loaded is None:
            return None
        return next((why for why in self._loaded.answer.whys[self._place] if why.row is row), None)

    # keys

    def action_enter(self) -> None:
        """Where no table has the keys there is nothing to open."""

    def on_data_table_row_selected(self, event: DataTable.RowSelected) -> None:
        """Enter, or a click on the row under the cursor."""
        event.stop()
        if self._row_here is not None:
            self._show_evidence(self._row_here)

    def _show_evidence(self, row: Row) -> None:
        shown = self.comparison
        if shown is None or self._loaded is None:
            return
        ignore = self._loaded.asked.ignore
        name = row_name(row, [], ignore)
        page = evidence_page(row, name, self._why(row), self.size.width, ascii_only=shell_of(self).ascii_only)
        self._show_page(f"evidence of {name}", page, lambda: self._show_evidence(row))

    def action_back(self) -> None:
        """Out of what is being read, the page, or the screen."""
        if self.give_up():
            self.say("given up")
            if self._loaded is None:
                self._teach()
        elif self.level == "page" or (self.level == "notice" and self._loaded is not None):
            self._show_level("rows")
            self._tell_row()
        else:
            shell_of(self).open_screen("results")

    def action_baseline(self) -> None:
        """The side that is shown becomes the baseline."""
        loaded = self._loaded
        if loaded is None or self.level == "notice":
            return
        others = [place for place in range(len(loaded.asked.sides)) if place != loaded.baseline]
        baseline = others[self._place]

        def work(job: Job[Loaded]) -> Loaded:
            job.say("comparing")
            return Loaded(loaded.words, loaded.asked, baseline, loaded.asked.compared(baseline))

        self.begin(work, self._take, self._fail)

    def action_next_side(self) -> None:
        """The next side against the baseline."""
        if self._loaded is not None and self.level == "rows":
            self._place = (self._place + 1) % len(self._loaded.answer.comparisons)
            self._fill()
            self.refresh_lines()

    def action_values(self) -> None:
        """The next of VALUES."""
        if self.level == "rows":
            self._value = (self._value + 1) % len(VALUES)
            self._fill()

    def action_differs(self) -> None:
        """What differs, a line each, and what was measured on neither side."""
        shown = self.comparison
        if shown is None or self._loaded is None:
            return
        width = self.size.width
        lines: list[Line] = []
        for letter, side in (("a", shown.a), ("b", shown.b)):
            lines += paragraph(f"{letter}  {self._side_words(side, 10_000)}", width, indent=3)
        lines += [(), (Span("differs", "title"),)]
        for difference in shown.differs:
            lines += paragraph(f"  {clean_text(difference_words(difference))}", width, indent=4)
        if not shown.differs:
            lines += paragraph("  nothing that is recorded", width)
        for reason, count in shown.unmeasured:
            lines += paragraph(
                f"{count} case{'s' if count > 1 else ''} on neither side: {clean_text(reason)}", width, "dim"
            )
        self._show_page("what differs", tuple(lines), self.action_differs)

    def action_text(self) -> None:
        """The command's own words, from the command itself."""
        loaded = self._loaded
        if loaded is None:
            return
        words = list(loaded.words)
        note = ""
        if loaded.baseline:
            if len(words) == len(loaded.asked.sides):
                words.insert(0, words.pop(loaded.baseline))
            else:
                note = f"the command's baseline is {loaded.asked.sides[0].name}"
        width = self.size.width - 1
        command = f"gputui compare {shlex.join(words)}"

        def done(lines: tuple[str, ...]) -> None:
            heads = paragraph(f"$ {clean_text(command)}", width, "accent") + paragraph(note, width, "dim")
            self._show_page("as text", (*heads, (), *((Span(line),) for line in lines)), self.action_text)

        self.begin(lambda job: printed(("compare", *words), width, job), done, self._fail)

    def action_open_files(self) -> None:
        """Ask for files."""

        def opened(text: str | None) -> None:
            try:
                words = tuple(shlex.split(text or ""))
            except ValueError as error:
                self.say(f"{text}: {error}", "warn")
                return
            if words:
                self._read(words)

        value = shlex.join(self._words)
        self.app.push_screen(AskText("Files to compare, the baseline first: F[@RUN] ...", value), opened)

    def action_reload(self) -> None:
        """Read again what is compared."""
        if self._words:
            self._read(self._words, self._loaded.baseline if self._loaded else 0)

    def on_resize(self) -> None:
        """Other columns fit."""
        self.call_after_refresh(self._draw_again)

    def _hide_sides(self) -> None:
        """They stand above the rows and above pages of them, where a terminal is not very low."""
        is_seen = self._loaded is not None and self.level != "notice" and self.size.height >= _HIGH
        self._sides.set_class(not is_seen, "-hidden")

    def _draw_again(self) -> None:
        self._hide_sides()
        self._fill()
        if self.level == "page":
            self._page_again()
        elif not self._words:
            self._teach()

    def _show_page(self, heading: str, lines: tuple[Line, ...], again: Callable[[], None]) -> None:
        self._page_heading, self._page_again = heading, again
        self.query_one("#page", LinesPage).show(lines)
        self.say("")
        self._show_level("page")

    def _notice(self, lines: tuple[Line, ...]) -> None:
        self.query_one("#notice", LinesPage).show(lines)
        self._show_level("notice")

    def _show_level(self, name: str) -> None:
        self.query_one("#level", ContentSwitcher).current = name
        self._hide_sides()
        self.query_one(f"#{name}").focus()
        self.refresh_lines()


def _called(side: Side) -> str:
    """What a person calls a side: the label of a run that was chosen, else as it was asked for."""
    label = side.run.label if "@" in side.name else ""
    return cut(clean_text(label), _LABEL_CELLS) or _short(side.name)


def _short(name: str) -> str:
    """A selector for a heading: the file's name and, of a run's id, its last digits."""
    path, at, run = name.rpartition("@")
    if not at:
        return name.rpartition("/")[2]
    return f"{path.rpartition('/')[2]}@{run[-8:] if len(run) == 36 else run}"
