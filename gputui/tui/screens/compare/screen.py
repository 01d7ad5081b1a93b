"""The Compare screen: the rows of a comparison, and the evidence of each."""

from __future__ import annotations

import shlex
from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path

from textual.app import ComposeResult
from textual.binding import Binding
from textual.containers import Horizontal, Vertical
from textual.widgets import ContentSwitcher

from gputui.analysis.attribution import Attribution
from gputui.document.spans import Span
from gputui.services.compare.columns import COLUMNS_OF_SIDES, ENERGY, ComparisonColumn
from gputui.services.compare.formats import FORM_OF_ENDING, save_comparison
from gputui.services.compare.pairing import Comparison, Row, main_row
from gputui.services.compare.row_text import called, letter_of, short_name
from gputui.services.compare.rows_table import RowOfSides
from gputui.services.results.browser import Candidate, candidates
from gputui.store.text import clean_text
from gputui.tui.screens.compare.evidence import evidence_of, open_row
from gputui.tui.screens.compare.layout import CompareLayout, lay_out, row_line
from gputui.tui.screens.compare.loaded import (
    Loaded,
    ShownRow,
    differing,
    read,
    read_text,
    rows_of,
    teaching,
    with_baseline,
    with_energy,
)
from gputui.tui.screens.compare.pane import unsure_line
from gputui.tui.shell.registry import Action
from gputui.tui.shell.shell_screen import AskText, Dialog, ShellScreen, ask_and_save, bindings_of
from gputui.tui.terminal.renderer import LinesView
from gputui.tui.widgets.app_context import copy, shell_of
from gputui.tui.widgets.cells import error_lines, paragraph
from gputui.tui.widgets.scrolled import MARKER, Entry, LinesList, LinesOf, LinesPage

ACTIONS: tuple[Action, ...] = (
    Action("enter", "enter", "Evidence", "Show the evidence for the verdict of the selected row"),
    Action("back", "escape,backspace", "Back", "Cancel reading, or leave the evidence or text"),
    Action(
        "values", "v", "Values", "Rates, times of a step, costs, energies, or shares of the peak of all sides"
    ),
    Action("values-before", "V", "Values back", "The previous values", does="values(-1)"),
    Action("baseline", "b", "Baseline", "Make the other side the baseline"),
    Action("next-side", "n", "Next side", "With more than two sides: show the next one", does="look(1)"),
    Action(
        "side-before", "p", "Side before", "With more than two sides: show the previous one", does="look(-1)"
    ),
    Action(
        "by", "g", "Sides", "Choose what separates the sides: files, device, precision, mode, threads ..."
    ),
    Action("differs", "d", "Differences", "Recorded differences between the sides, line by line"),
    Action("text", "t", "Text", "The output of `gputui compare` for this comparison"),
    Action("command", "c", "Command", "Copy the equivalent command line"),
    Action("open-files", "o", "Files", "Compare other files: type them as for `gputui compare`"),
    Action("copy", "y", "Copy", "Copy the table or page shown, as tab-separated text"),
    Action("save", "e", "Save as", "Save the comparison as .md, .csv, .json or .html"),
    Action("reload", "r", "Reload", "Read the files again"),
    Action("down", "j", "Down", "One line down, as the arrow does", does="step(1)"),
    Action("up", "k", "Up", "One line up", does="step(-1)"),
)


_HINTS = {
    "rows": ("enter", "values", "baseline", "by", "text", "save", "differs", "command", "open-files", "back"),
    "page": ("back", "down", "copy"),
    "notice": ("open-files", "reload", "back"),
}
_TEXT = "as text"
_AROUND = 3
"""Lines of the screen that are not of the body."""


FILES = "files"
_MOST_LINES = 12
_LINES_AROUND = 5
"""Above and below what can be chosen, on a narrow terminal."""


class AskBy(Dialog[str]):
    """One of the dimensions, or FILES for the files themselves."""

    BINDINGS = [  # noqa: RUF012 - Textual declares it so
        Binding("backspace", "dismiss", "Back", show=False),
        Binding("j", "step(1)", show=False),
        Binding("k", "step(-1)", show=False),
    ]
    KEYS = "enter applies, esc cancels"

    def __init__(self, files: Sequence[str], dimensions: Mapping[str, Sequence[str]], current: str) -> None:
        super().__init__("What separates the sides?")
        self._names = [FILES, *dimensions]
        self._current = self._names.index(current or FILES)
        several = len(files) > 1
        possible = {FILES: (", ".join(files) if several else "a second file is needed: o", several)}
        for name, values in dimensions.items():
            only = f"only {values[0]}" if values else "none recorded"
            possible[name] = (", ".join(values), True) if len(values) > 1 else (only, False)
        self._entries: list[Entry] = []
        for key, (name, (told, is_possible)) in enumerate(possible.items()):
            text = f"{name:10} {clean_text(told)}"
            dimmed = Entry(((Span(" " * len(MARKER) + text, "dim"),),))
            self._entries.append(Entry(((Span(text),),), key) if is_possible else dimmed)

    def compose_body(self) -> ComposeResult:
        self._list = LinesList(id="sides")
        yield self._list

    def on_mount(self) -> None:
        """The cursor stands on what is shown now."""
        room = min(_MOST_LINES, max(self.app.size.height - _LINES_AROUND, 2))
        self._list.styles.height = min(len(self._entries), room)
        self._list.styles.scrollbar_size_vertical = 0
        self._list.fill(self._entries, "", self._current)
        self._list.focus()

    def on_lines_list_chosen(self, event: LinesList.Chosen) -> None:
        event.stop()
        self.dismiss(self._names[event.key])

    def action_step(self, lines: int) -> None:
        self._list.step(lines)


class CompareScreen(ShellScreen):
    """All sides against the baseline, row by row; one of them is looked at."""

    ID = "compare"
    ACTIONS = ACTIONS
    BINDINGS = bindings_of(ACTIONS)
    DEFAULT_CSS = """
    CompareScreen #level, CompareScreen #beside, CompareScreen #below { height: 1fr; }
    CompareScreen Horizontal, CompareScreen Vertical { height: 1fr; }
    """

    def __init__(self) -> None:
        super().__init__()
        self._loaded: Loaded | None = None
        self._place = 0
        self._value = 0
        self._opened: dict[tuple[int, int], ShownRow] = {}
        """Rows with what their boxes did meanwhile, by side and row."""
        self._candidates: tuple[Candidate, ...] = ()
        self._page_heading = ""
        self._table = LinesList(id="rows")

    def compose_body(self) -> ComposeResult:
        """The answer, the rows and what the selected one rests on; a page for all of it, one for messages."""
        self._top, self._heading, self._below, self._beside = (LinesView() for _ in range(4))
        self._below.id, self._beside.id = "below", "beside"
        self._left = Vertical(self._heading, self._table, self._below)
        with ContentSwitcher(initial="notice", id="level"):
            with Vertical(id="overview"):
                yield self._top
                with Horizontal():
                    yield self._left
                    yield self._beside
            yield LinesPage(id="page")
            yield LinesPage(id="notice")

    def begin_with(self, words: tuple[str, ...]) -> None:
        """Compare what these words behind `gputui compare` ask for; without any say how to ask."""
        if words:
            self._read(words)
        else:
            self._teach()

    @property
    def level(self) -> str:
        """`rows`, `page` or `notice`."""
        current = str(self.query_one("#level", ContentSwitcher).current)
        return "rows" if current == "overview" else current

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
        if self.level == "page":
            return self._page_heading
        shown = self.comparison
        if self.level == "notice" or shown is None or self._loaded is None:
            return "compare"
        count = len(self._loaded.answer.comparisons)
        more = f" ({self._place + 1} of {count} sides)" if count > 1 else ""
        return f"{called(shown.b)} vs {called(shown.a)}{more}"

    def hints(self) -> tuple[str, ...]:
        found = _HINTS[self.level]
        if self.level == "rows" and self._loaded and len(self._loaded.answer.comparisons) > 1:
            return (found[0], "next-side", *found[1:])
        return found

    def _teach(self) -> None:
        """How to begin, and pairs of stored runs as soon as they are found."""
        if self._loaded is not None or self.is_busy:
            return
        self._show_lines("notice", partial(teaching, self._candidates))

        def taken(found: tuple[Candidate, ...]) -> None:
            self._candidates = found
            if found and self._loaded is None and self.level == "notice":
                self._show_lines("notice", partial(teaching, found))

        self.begin(
            lambda job: candidates(Path.cwd(), job),
            taken,
            lambda message, hint: self.say(message, "warn"),
            is_quiet=True,
        )

    def _read(self, words: tuple[str, ...]) -> None:
        self._words = words
        needs_energy = self.value is ENERGY
        self.begin(lambda job: read(words, job, with_energy=needs_energy), self._take_read, self._fail)

    def _take_read(self, loaded: Loaded) -> None:
        """What was asked for in words may also say which values are to be shown."""
        wanted = loaded.request.columns
        self._value = next((n for n, c in enumerate(COLUMNS_OF_SIDES) if c in wanted), self._value)
        self._table.fill((), "", -1)
        self._take(loaded)

    def _take(self, loaded: Loaded) -> None:
        self._loaded, self._place = loaded, min(self._place, len(loaded.answer.comparisons) - 1)
        self._opened.clear()
        self._show_level("rows")
        self._fill()
        for warning in loaded.asked.warnings:
            self.say(warning, "warn")

    def _fail(self, message: str, hint: str) -> None:
        self._show_lines("notice", partial(error_lines, message, hint))

    def _fill(self) -> None:
        """Everything anew, in the columns and blocks that the size has room for."""
        if self._loaded is None or self.level != "rows":
            return
        number = self._table.key
        if not 0 <= number < len(rows_of(self._loaded)):
            number = self._main_row()
        made = self._layout(number)
        self._table.fill(made.rows.entries, made.rows.text, number)
        self._draw(made)

    def _main_row(self) -> int:
        assert self._loaded is not None
        main = main_row(self._loaded.answer.comparisons[self._place].rows)
        rows = enumerate(rows_of(self._loaded))
        return next((number for number, row in rows if main and row[self._place] is main), 0)

    def _shown(self, number: int) -> ShownRow:
        assert self._loaded is not None
        shown = ShownRow(self._loaded, rows_of(self._loaded)[number], self._place)
        opened = self._opened.get((self._place, number))
        return shown if opened is None else replace(shown, curves=opened.curves)

    def _layout(self, number: int) -> CompareLayout:
        """At the size of the body, with this row selected."""
        return lay_out(self._shown(number), self.value, self.size.width, self.size.height - _AROUND)

    def _draw(self, made: CompareLayout) -> None:
        for view, lines in (
            (self._top, made.top),
            (self._heading, (made.rows.heading,)),
            (self._below, made.below),
            (self._beside, made.beside),
        ):
            self.show_in(view, *lines)
        self._top.styles.height = len(made.top)
        self._heading.styles.height = 1
        self._table.styles.height = made.rows_height
        self._left.styles.width = self.size.width - made.beside_width
        self._beside.styles.width = made.beside_width
        self._beside.display = bool(made.beside_width)
        self._tell_row(made)
        self._read_curves(made)

    def _read_curves(self, made: CompareLayout) -> None:
        """What the boxes did while the selected row was timed, where there is room to show it."""
        loaded, place, number = self._loaded, self._place, self._table.key
        rows = self._rows_here
        if not made.beside_width or self.is_busy or loaded is None or (place, number) in self._opened:
            return
        if rows is None or rows[place] is None:
            return

        def taken(opened: ShownRow) -> None:
            self._opened[place, number] = opened
            self._loaded = opened.loaded
            self._draw_selected()

        self.begin(lambda job: open_row(loaded, number, place, job), taken, is_quiet=True)

    def _draw_selected(self) -> None:
        """What depends on the selected row."""
        if self._loaded is not None and self.level == "rows":
            self._draw(self._layout(self._table.key))

    def on_lines_list_selected(self, event: LinesList.Selected) -> None:
        """Its evidence stands beside or below the table."""
        event.stop()
        self.give_up_quietly()
        self._draw_selected()

    def _tell_row(self, made: CompareLayout) -> None:
        """What there is no room for: in the row, or sides; else how many rows are undecided."""
        rows = self._rows_here
        if self.level != "rows" or self.is_busy or self._loaded is None or rows is None:
            return
        names = [letter_of(place) for place in range(len(rows))]
        text = row_line(rows, self._place, names, self.value, has_reason=not (made.below or made.beside))
        if len(made.rows.shown) < len(rows):
            shown = ", ".join(made.rows.shown)
            text = "; ".join(filter(None, (f"{shown} of {len(rows)} sides in sight: n goes on", text)))
        if text or made.has_unsure:
            self.say(text, "dim")
        else:
            self.say_line(
                unsure_line(self._shown(self._table.key), self.size.width, has_command=not made.has_command)
            )

    @property
    def _rows_here(self) -> RowOfSides | None:
        number = self._table.key
        return None if self._loaded is None or number < 0 else rows_of(self._loaded)[number]

    # keys

    def action_enter(self) -> None:
        """Where no table has the keys, the first pair that could be compared."""
        if self._loaded is None and self._candidates and not self._words:
            self._read(self._candidates[0].words)

    def on_lines_list_chosen(self, event: LinesList.Chosen) -> None:
        """Enter, or a click on the selected row."""
        event.stop()
        rows, loaded, place, number = self._rows_here, self._loaded, self._place, event.key
        if rows is None or loaded is None:
            return
        if rows[place] is None:
            self.say("neither a nor b has this case: n shows the next side", "warn")
            return
        opened = self._opened.get((place, number))
        if opened is not None:
            self._show_evidence(opened)
        else:
            self.begin(lambda job: open_row(loaded, number, place, job), self._show_evidence, self._fail)

    def _show_evidence(self, opened: ShownRow) -> None:
        self._loaded = opened.loaded
        self._show_page(f"evidence of {opened.name}", partial(evidence_of, opened))

    def action_back(self) -> None:
        self.give_up_quietly()
        if self.give_up():
            self.say("cancelled")
            if self._loaded is None:
                self._teach()
        elif self.level == "page" or (self.level == "notice" and self._loaded is not None):
            self._show_level("rows")
            self._fill()
        else:
            shell_of(self).open_screen("results")

    def action_baseline(self) -> None:
        loaded = self._loaded
        if loaded is None or self.level == "notice":
            return
        baseline = loaded.others()[self._place]
        self.begin(lambda job: with_baseline(loaded, baseline, job), self._take, self._fail)

    def action_look(self, steps: int) -> None:
        if self._loaded is not None and self.level == "rows":
            self._place = (self._place + steps) % len(self._loaded.answer.comparisons)
            self._fill()
            self.refresh_lines()

    def action_values(self, steps: int = 1) -> None:
        loaded = self._loaded
        if loaded is None or self.level != "rows":
            return
        self._value = (self._value + steps) % len(COLUMNS_OF_SIDES)
        if self.value is ENERGY and not loaded.with_energy:
            self.begin(lambda job: with_energy(loaded, job), self._take, self._fail)
        else:
            self._fill()

    def action_by(self) -> None:
        loaded = self._loaded
        if loaded is None:
            self.say("nothing is compared yet: o chooses files", "warn")
            return
        request = loaded.request

        def chosen(by: str) -> None:
            if by != (loaded.ignore or FILES):
                self._place = 0
                wanted = replace(request, by="" if by == FILES else by, baseline="", columns=())
                self._read(wanted.words)

        self.ask(
            AskBy([short_name(file) for file in request.files], loaded.asked.dimensions(), loaded.ignore),
            chosen,
        )

    def action_differs(self) -> None:
        shown = self.comparison
        if shown is not None and self._loaded is not None:
            self._show_page("what differs", partial(differing, shown, self._loaded.ignore))

    def action_text(self) -> None:
        loaded = self._loaded
        if loaded is None:
            return
        width = self.size.width - 1
        words, command = loaded.words(self.value), loaded.command(self.value)

        def done(printed: tuple[str, ...]) -> None:
            text = tuple((Span(line),) for line in printed)
            self._show_page(
                _TEXT,
                lambda width: (*paragraph(f"$ {clean_text(command)}", width - 1, "accent"), (), *text),
            )

        self.begin(lambda job: read_text(words, width, job), done, self._fail)

    def action_command(self) -> None:
        if self._loaded is None:
            self.say("nothing is compared yet: o chooses files", "warn")
        else:
            self.say(copy(self.app, self._loaded.command(self.value)), "good")

    def action_open_files(self) -> None:

        def opened(text: str) -> None:
            try:
                words = tuple(shlex.split(text))
            except ValueError as error:
                self.say(f"{text}: {error}", "warn")
                return
            if words:
                self._place = 0
                self._read(words)

        question = "Files to compare, the baseline first: F[@RUN] or reference:NAME ... [--by D]"
        self.ask(AskText(question, shlex.join(self._words)), opened)

    def action_save(self) -> None:
        loaded = self._loaded
        if loaded is not None and self.level != "notice":
            columns = loaded.columns(self.value)
            ask_and_save(
                self,
                f"Save the comparison; name it {', '.join(f'*{ending}' for ending in FORM_OF_ENDING)}",
                "comparison.html",
                lambda path: save_comparison(path, loaded.asked, loaded.baseline, columns),
            )

    def action_reload(self) -> None:
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
        self.refresh_lines()

    def _show_page(self, heading: str, lines: LinesOf) -> None:
        self._page_heading = heading
        self.say("")
        self._show_lines("page", lines)

    def _show_lines(self, name: str, lines: LinesOf) -> None:
        self.query_one(f"#{name}", LinesPage).show_at_any_width(lines)
        self._show_level(name)

    def _show_level(self, name: str) -> None:
        self.query_one("#level", ContentSwitcher).current = "overview" if name == "rows" else name
        self.query_one(f"#{name}").focus()
        self.refresh_lines()


SCREEN = CompareScreen
