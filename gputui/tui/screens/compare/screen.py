"""The Compare screen: the rows of a comparison, and the evidence of each."""

from __future__ import annotations

import shlex
from collections.abc import Callable
from dataclasses import replace

from textual.app import ComposeResult
from textual.widgets import ContentSwitcher, DataTable

from gputui.analysis.attribution import Attribution
from gputui.services.compare.columns import COLUMNS_OF_SIDES, ENERGY, ComparisonColumn
from gputui.services.compare.formats import FORM_OF_ENDING, save_comparison
from gputui.services.compare.pairing import Comparison, Row
from gputui.services.support.paths import copies_directory
from gputui.store.text import clean_text
from gputui.tui.screens.compare.actions import ACTIONS
from gputui.tui.screens.compare.by_dialog import FILES, AskBy
from gputui.tui.screens.compare.loaded import (
    Loaded,
    heading_of,
    read,
    read_text,
    short_name,
    with_baseline,
    with_energy,
)
from gputui.tui.screens.compare.opened_row import OpenedRow, open_row
from gputui.tui.screens.compare.pages import differing, sides_lines, teaching
from gputui.tui.screens.compare.rows_table import RowOfSides, SidesTable, row_line, rows_of_sides, sheet_of
from gputui.tui.shell.clipboard import copy
from gputui.tui.shell.save_dialog import ask_and_save
from gputui.tui.shell.shell_screen import ShellScreen, bindings_of
from gputui.tui.terminal.lines import Line, Span
from gputui.tui.terminal.lines_view import LinesView
from gputui.tui.widgets.app_context import shell_of
from gputui.tui.widgets.dialogs import AskText
from gputui.tui.widgets.lines_page import LinesPage
from gputui.tui.widgets.paragraphs import paragraph
from gputui.tui.widgets.plain_ascii import in_ascii
from gputui.tui.widgets.plain_table import PlainTable

_HINTS = {
    "rows": ("enter", "values", "baseline", "by", "text", "save", "differs", "command", "open-files", "back"),
    "page": ("back", "down", "copy"),
    "notice": ("open-files", "reload", "back"),
}
Lines = tuple[Line, ...]
_HIGH = 16
"""Lines from which a terminal has room for the sides above the rows."""
_TEXT = "as text"
_SIDES_SHARE = 4
"""Of the height: a quarter may go to the names of sides."""


class CompareScreen(ShellScreen):
    """All sides against the baseline, row by row; one of them is looked at."""

    ID = "compare"
    ACTIONS = ACTIONS
    BINDINGS = bindings_of(ACTIONS)
    DEFAULT_CSS = """
    CompareScreen #level { height: 1fr; }
    """

    def __init__(self) -> None:
        super().__init__()
        self._words: tuple[str, ...] = ()
        self._loaded: Loaded | None = None
        self._place = 0
        self._value = 0
        self._rows: list[RowOfSides] = []
        self._sheet: SidesTable | None = None
        self._page_heading = ""
        self._pages: dict[str, Callable[[int], Lines]] = {}
        self._table = PlainTable(id="rows")

    def compose_body(self) -> ComposeResult:
        """The sides, the rows, a page for what a row rests on, and one for what cannot be shown."""
        self._sides = LinesView(shell_of(self).depth)
        self._sides.styles.height = 0
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
        """Compare what these words behind `gputui compare` ask for."""
        self._words = words
        if self.is_ready:
            self._read(words)

    @property
    def level(self) -> str:
        """`rows`, `page` or `notice`."""
        return str(self.query_one("#level", ContentSwitcher).current)

    @property
    def comparison(self) -> Comparison | None:
        """The side that is looked at, against the baseline."""
        return None if self._loaded is None else self._loaded.answer.comparisons[self._place]

    def has_reasons(self, row: Row) -> bool:
        """Whether it is known why the sides differ in a row."""
        why = None if self._loaded is None else self._loaded.why(self._place, row)
        return why is not None and isinstance(why.attribution, Attribution)

    @property
    def value(self) -> ComparisonColumn:
        """What the columns of the sides show."""
        return COLUMNS_OF_SIDES[self._value]

    def heading(self) -> str:
        """What is compared."""
        if self.level == "page":
            return self._page_heading
        shown = self.comparison
        if self.level == "notice" or shown is None or self._loaded is None:
            return "compare"
        return heading_of(shown, self._place, len(self._loaded.answer.comparisons))

    def hints(self) -> tuple[str, ...]:
        """The keys of the level."""
        found = _HINTS[self.level]
        if self.level == "rows" and self._loaded and len(self._loaded.answer.comparisons) > 1:
            return (found[0], "next-side", *found[1:])
        return found

    def _teach(self) -> None:
        if self._loaded is None and not self.is_busy:
            self._notice(teaching)

    def _read(self, words: tuple[str, ...]) -> None:
        self._words = words
        needs_energy = self.value is ENERGY
        self.begin(lambda job: read(words, job, with_energy=needs_energy), self._take_read, self._fail)

    def _take_read(self, loaded: Loaded) -> None:
        """What was asked for in words may also say which values are to be shown."""
        wanted = loaded.request.columns
        self._value = next((n for n, c in enumerate(COLUMNS_OF_SIDES) if c in wanted), self._value)
        self._take(loaded)

    def _take(self, loaded: Loaded) -> None:
        self._loaded, self._place = loaded, min(self._place, len(loaded.answer.comparisons) - 1)
        self._rows = rows_of_sides(loaded.answer.comparisons, loaded.ignore)
        self._show_level("rows")
        self._fill()
        for warning in loaded.asked.warnings:
            self.say(warning, "warn")

    def _fail(self, message: str, hint: str) -> None:
        def lines(width: int) -> Lines:
            told = paragraph(clean_text(message), width, "warn")
            return (*told, (), *paragraph(clean_text(hint), width)) if hint else told

        self._notice(lines)

    def _fill(self) -> None:
        """The sides and the table anew, in the columns that the width has room for."""
        loaded = self._loaded
        if loaded is None:
            return
        comparisons = loaded.answer.comparisons
        names = [short_name(one.b.name) for one in comparisons]
        width = self.size.width
        sheet = sheet_of(comparisons, self._rows, names, self._place, loaded.ignore, self.value, width - 1)
        self._sheet = sheet
        self._table.fill(sheet.cells, sheet.headings)
        self._draw_sides()
        self._tell_row()

    def _draw_sides(self) -> None:
        loaded, sheet = self._loaded, self._sheet
        if loaded is None or sheet is None or self.level != "rows" or self.size.height < _HIGH:
            self._sides.styles.height = 0
            return
        most = self.size.height // _SIDES_SHARE
        lines = sides_lines(loaded, self._place, sheet, loaded.command(self.value), self.size.width, most)
        self._sides.styles.height = len(lines)
        is_ascii = shell_of(self).ascii_only
        self._sides.show(tuple(in_ascii(line) for line in lines) if is_ascii else lines)

    def on_data_table_row_highlighted(self, event: DataTable.RowHighlighted) -> None:
        """Why no more can be said stands below the table."""
        event.stop()
        self._tell_row()

    def _tell_row(self) -> None:
        """What there is no room for in the row under the cursor, in the line below the table."""
        if self.level != "rows" or self.is_busy or self._loaded is None:
            return
        rows = self._rows_here
        names = [short_name(one.b.name) for one in self._loaded.answer.comparisons]
        self.say("" if rows is None else row_line(rows, self._place, names, self.value), "dim")

    @property
    def _rows_here(self) -> RowOfSides | None:
        place = self._table.cursor_row
        return self._rows[place] if place < len(self._rows) else None

    # keys

    def action_enter(self) -> None:
        """Where no table has the keys there is nothing to open."""

    def on_data_table_row_selected(self, event: DataTable.RowSelected) -> None:
        """Enter, or a click on the row under the cursor."""
        event.stop()
        rows, loaded, place, number = self._rows_here, self._loaded, self._place, self._table.cursor_row
        if rows is None or loaded is None or self.is_busy:
            return
        if rows[place] is None:
            self.say("neither a nor b has this case: n looks at the next side", "warn")
            return
        self.begin(lambda job: open_row(loaded, number, place, job), self._show_evidence, self._fail)

    def _show_evidence(self, opened: OpenedRow) -> None:
        self._loaded = opened.loaded
        self._rows = rows_of_sides(opened.loaded.answer.comparisons, opened.loaded.ignore)
        is_ascii = shell_of(self).ascii_only
        self._show_page(f"evidence of {opened.name}", lambda width: opened.lines(width, ascii_only=is_ascii))

    def action_back(self) -> None:
        """Out of what is being read, the page, or the screen."""
        if self.give_up():
            self.say("given up")
            if self._loaded is None:
                self._teach()
        elif self.level == "page" or (self.level == "notice" and self._loaded is not None):
            self._show_level("rows")
            self._fill()
        else:
            shell_of(self).open_screen("results")

    def action_baseline(self) -> None:
        """The side that is looked at becomes the baseline."""
        loaded = self._loaded
        if loaded is None or self.level == "notice":
            return
        baseline = loaded.others()[self._place]
        self.begin(lambda job: with_baseline(loaded, baseline, job), self._take, self._fail)

    def action_next_side(self) -> None:
        """The next side is looked at, against the baseline."""
        self._look(1)

    def action_side_before(self) -> None:
        """The side before is looked at."""
        self._look(-1)

    def _look(self, steps: int) -> None:
        if self._loaded is not None and self.level == "rows":
            self._place = (self._place + steps) % len(self._loaded.answer.comparisons)
            self._fill()
            self.refresh_lines()

    def action_values(self) -> None:
        """The next column that each side has."""
        self._turn(1)

    def action_values_before(self) -> None:
        """The one before."""
        self._turn(-1)

    def _turn(self, steps: int) -> None:
        loaded = self._loaded
        if loaded is None or self.level != "rows":
            return
        self._value = (self._value + steps) % len(COLUMNS_OF_SIDES)
        if self.value is ENERGY and not loaded.with_energy:
            self.begin(lambda job: with_energy(loaded, job), self._take, self._fail)
        else:
            self._fill()

    def action_by(self) -> None:
        """Ask what tells the sides apart."""
        loaded = self._loaded
        if loaded is None:
            self.say("nothing is compared yet: o takes files", "warn")
            return
        request = loaded.request

        def chosen(by: str | None) -> None:
            if by is not None and by != (loaded.ignore or FILES):
                self._place = 0
                wanted = replace(request, by="" if by == FILES else by, baseline="", columns=())
                self._read(wanted.words)

        self.app.push_screen(
            AskBy([short_name(file) for file in request.files], loaded.asked.dimensions(), loaded.ignore),
            chosen,
        )

    def action_differs(self) -> None:
        """What differs, a line each, and what was measured on neither side."""
        shown = self.comparison
        if shown is not None and self._loaded is not None:
            ignore = self._loaded.ignore
            self._show_page("what differs", lambda width: differing(shown, ignore, width))

    def action_text(self) -> None:
        """What the command prints at this width."""
        loaded = self._loaded
        if loaded is None:
            return
        width = self.size.width - 1
        words, command = loaded.words(self.value), loaded.command(self.value)

        def done(printed: tuple[str, ...]) -> None:
            text = tuple((Span(line),) for line in printed)

            def lines(width: int) -> Lines:
                return (*paragraph(f"$ {clean_text(command)}", width - 1, "accent"), (), *text)

            self._show_page(_TEXT, lines)

        self.begin(lambda job: read_text(words, width, job), done, self._fail)

    def action_command(self) -> None:
        """The command line that prints the same goes to the clipboard."""
        if self._loaded is None:
            self.say("nothing is compared yet: o takes files", "warn")
        else:
            self.say(copy(self.app, self._loaded.command(self.value), copies_directory()), "good")

    def action_open_files(self) -> None:
        """Ask for files."""

        def opened(text: str | None) -> None:
            try:
                words = tuple(shlex.split(text or ""))
            except ValueError as error:
                self.say(f"{text}: {error}", "warn")
                return
            if words:
                self._place = 0
                self._read(words)

        question = "Files to compare, the baseline first: F[@RUN] or reference:NAME ... [--by D]"
        self.app.push_screen(AskText(question, shlex.join(self._words)), opened)

    def action_save(self) -> None:
        """Ask where to save the whole comparison."""
        loaded = self._loaded
        if loaded is not None and self.level != "notice":
            columns = loaded.columns(self.value)
            ask_and_save(
                self,
                f"Save the comparison; its ending is one of {', '.join(FORM_OF_ENDING)}",
                "comparison.html",
                lambda path: save_comparison(path, loaded.asked, loaded.baseline, columns),
            )

    def action_reload(self) -> None:
        """Read again what is compared."""
        if self._loaded is not None and self.level != "notice":
            self._read(self._loaded.words(self.value))
        elif self._words:
            self._read(self._words)

    def on_resize(self) -> None:
        """Other columns fit, and other words in a line."""
        self.call_after_refresh(self._lay_out)

    def _lay_out(self) -> None:
        self._fill()
        if self.level == "page" and self._page_heading == _TEXT:
            self.action_text()  # its lines are broken where it is made
        for name, lines in self._pages.items():
            self.query_one(f"#{name}", LinesPage).show(lines(self.size.width), keeps_place=True)
        self.refresh_lines()

    def _show_page(self, heading: str, lines: Callable[[int], Lines]) -> None:
        self._page_heading = heading
        self.say("")
        self._show_lines("page", lines)

    def _notice(self, lines: Callable[[int], Lines]) -> None:
        self._show_lines("notice", lines)

    def _show_lines(self, name: str, lines: Callable[[int], Lines]) -> None:
        """A page of lines that are made for any width."""
        self._pages[name] = lines
        self.query_one(f"#{name}", LinesPage).show(lines(self.size.width))
        self._show_level(name)

    def _show_level(self, name: str) -> None:
        self.query_one("#level", ContentSwitcher).current = name
        self.query_one(f"#{name}").focus()
        self._draw_sides()
        self.refresh_lines()


SCREEN = CompareScreen
