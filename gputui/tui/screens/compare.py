"""The Compare screen: the answer and the rows of a comparison with a cursor, and the evidence of each row."""

from __future__ import annotations

import shlex
from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path

from textual.app import ComposeResult
from textual.binding import Binding
from textual.containers import Vertical
from textual.widgets import ContentSwitcher

from gputui.document.spans import Line, Span, cut
from gputui.errors import clean_text
from gputui.services.compare.columns import COLUMNS_OF_SIDES, ENERGY, ComparisonColumn
from gputui.services.compare.formats import FORM_OF_ENDING, save_comparison
from gputui.services.compare.pairing import main_row
from gputui.services.compare.row_text import LABEL_CELLS, called, letter_of, short_name
from gputui.services.compare.rows_table import first_of, rows_table
from gputui.services.compare.tables import sides_table
from gputui.services.results.browser import Candidate, candidates
from gputui.tui.screens.comparison import (
    Document,
    Loaded,
    differing,
    document_lines,
    evidence_lines,
    open_row,
    read,
    teaching,
    text_of,
    with_energy,
)
from gputui.tui.shell.registry import Action
from gputui.tui.shell.shell_screen import AskText, Dialog, ShellScreen, ask_and_save, bindings_of, copy
from gputui.tui.terminal.renderer import LinesView, shell_of
from gputui.tui.widgets.cells import error_lines, paragraph, table_lines
from gputui.tui.widgets.scrolled import MARKER, Entry, LinesList, LinesOf, LinesPage, TableList

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
_AROUND = 3
"""Lines of the screen that are not of the body."""
_HIGH = 13
"""Lines of the body from which there is room for the sides, and for evidence below many rows."""
_MOST_HEADLINE, _MOST_SIDES = 5, 8
_MORE = "enter: all of it"
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
        self._values = {FILES: files, **dimensions}
        self._current = [*self._values].index(current or FILES)

    def compose_body(self) -> ComposeResult:
        self._list = LinesList(id="sides")
        yield self._list

    def on_mount(self) -> None:
        """The cursor stands on what is shown now."""
        entries = []
        for key, (name, values) in enumerate(self._values.items()):
            is_possible = len(values) > 1
            told = ", ".join(values) if is_possible else f"only {values[0]}" if values else "none recorded"
            text = f"{name:10} {clean_text(told)}"
            span = Span(text) if is_possible else Span(" " * len(MARKER) + text, "dim")
            entries.append(Entry(((span,),), key if is_possible else -1))
        room = min(_MOST_LINES, max(self.app.size.height - _LINES_AROUND, 2))
        self._list.styles.height = min(len(entries), room)
        self._list.styles.scrollbar_size_vertical = 0
        self._list.fill(entries, "", self._current)
        self._list.focus()

    def on_lines_list_chosen(self, event: LinesList.Chosen) -> None:
        event.stop()
        self.dismiss([*self._values][event.key])

    def action_step(self, lines: int) -> None:
        self._list.step(lines)


class CompareScreen(ShellScreen):
    """All sides against the baseline, row by row; one of them is looked at."""

    ID = "compare"
    ACTIONS = ACTIONS
    BINDINGS = bindings_of(ACTIONS)
    DEFAULT_CSS = """
    CompareScreen #level, CompareScreen #below, CompareScreen Vertical { height: 1fr; }
    """

    def __init__(self) -> None:
        super().__init__()
        self.loaded: Loaded | None = None
        self.place = 0
        self._value = 0
        self._candidates: tuple[Candidate, ...] = ()
        self._page_heading = ""
        self._top, self._table, self._below = LinesView(), TableList(), LinesView()
        self._below.id = "below"

    def compose_body(self) -> ComposeResult:
        """The answer, the rows and what the selected one rests on; a page for all of it, one for messages."""
        with ContentSwitcher(initial="notice", id="level"):
            with Vertical(id="rows"):
                yield self._top
                yield self._table
                yield self._below
            yield LinesPage(id="page")
            yield LinesPage(id="notice")

    def begin_with(self, words: tuple[str, ...]) -> None:
        """Compare what these words behind `gputui compare` ask for; without any say how to ask."""
        if words:
            self._read(words)
        else:
            self._teach()

    @property
    def value(self) -> ComparisonColumn:
        """What the columns of the sides show."""
        return COLUMNS_OF_SIDES[self._value]

    def heading(self) -> str:
        if self.level == "page":
            return self._page_heading
        if self.level == "notice" or self.loaded is None:
            return "compare"
        shown, count = self.loaded.answer.comparisons[self.place], len(self.loaded.answer.comparisons)
        more = f" ({self.place + 1} of {count} sides)" if count > 1 else ""
        return f"{called(shown.b)} vs {called(shown.a)}{more}"

    def hints(self) -> tuple[str, ...]:
        found = _HINTS[self.level]
        if self.level == "rows" and self.loaded and len(self.loaded.answer.comparisons) > 1:
            return (found[0], "next-side", *found[1:])
        return found

    def _teach(self) -> None:
        """How to begin, and pairs of stored runs as soon as they are found."""
        if self.loaded is not None or self.is_busy:
            return
        self._show_document("notice", teaching(self._candidates))

        def taken(found: tuple[Candidate, ...]) -> None:
            self._candidates = found
            if found and self.loaded is None and self.level == "notice":
                self._show_document("notice", teaching(found))

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
        self._table.key = -1
        self._take(loaded)

    def _take(self, loaded: Loaded) -> None:
        self.loaded, self.place = loaded, min(self.place, len(loaded.answer.comparisons) - 1)
        self._show_level("rows")
        self._fill()
        for warning in loaded.asked.warnings:
            self.say(warning, "warn")

    def _fail(self, message: str, hint: str) -> None:
        self._show_lines("notice", partial(error_lines, message, hint))

    def _fill(self) -> None:
        """Everything anew, in the columns that the size has room for."""
        loaded = self.loaded
        if loaded is None or self.level != "rows":
            return
        number = self._table.key
        if not 0 <= number < len(loaded.rows):
            main = main_row(loaded.answer.comparisons[self.place].rows)
            shown = [rows[self.place] for rows in loaded.rows]
            number = next((n for n, row in enumerate(shown) if main and row is main), 0)
        made = rows_table(
            loaded.answer.comparisons,
            loaded.rows,
            loaded.ignore,
            value=self.value,
            place=self.place,
            note=lambda row: " !" if row.flags else " *" if row.note else "",
            is_drawn=True,
        )
        self._table.show_table(made, number, len(loaded.rows))
        self._draw()

    def _draw(self) -> None:
        """What stands around the rows: the answer and the sides, and the evidence of the selected one."""
        loaded, number = self.loaded, self._table.key
        if loaded is None or self.level != "rows":
            return
        width, height = self.size.width, self.size.height - _AROUND
        top = self._top_lines(loaded, width, height)
        evidence = evidence_lines(loaded, number, self.place, width - 1, _MORE) if number >= 0 else []
        room, needed = max(height - len(top), 1), self._table.virtual_size.height
        least = height // 3 if height >= _HIGH else 0
        below = min(len(evidence), max(room - needed, least))
        self._top.styles.height = len(top)
        self._table.styles.height = min(needed, max(room - below, 1))
        self.show_in(self._top, *top)
        self.show_in(self._below, *evidence[: max(room - needed, below)])
        self._say_row(loaded, number)

    def _top_lines(self, loaded: Loaded, width: int, height: int) -> list[Line]:
        """The answer in a few lines, of which the first sentence stands out; a line for each side where there
        is room, with `▸` before the one that is looked at."""
        first, *rest = map(clean_text, loaded.answer.headline.sentences)
        lines = [*paragraph(first, width, "title"), *(paragraph(" ".join(rest), width) if rest else ())]
        most = _MOST_HEADLINE if height >= _HIGH else 2
        if len(lines) > most:
            ((text, style),) = lines[most - 1]
            lines[most - 1 :] = [(Span(cut(f"{text} …", width), style),)]
        if height < _HIGH:
            return lines
        sides = [loaded.asked.sides[place] for place in (loaded.baseline, *loaded.others())]
        is_many = len(sides) > 2
        marks = [is_many and place == self.place for place in range(-1, len(sides) - 1)]
        table = sides_table(sides, loaded.ignore, LABEL_CELLS)
        drawn = [*table_lines(table, width, margin=2 * is_many, marks=marks, has_headings=False)]
        return [*lines, *drawn[: min(_MOST_SIDES, max(height // 4, 2))]]

    def _say_row(self, loaded: Loaded, number: int) -> None:
        """Why values of the selected row are absent, and what is to know of it."""
        if self.is_busy or number < 0:
            return
        rows = loaded.rows[number]
        cells = [("a", first_of(rows).a)]
        cells += [(letter_of(place), row.b) for place, row in enumerate(rows) if row is not None]
        reasons = self.value.reasons(cells)
        told = [f"{' and '.join(names)}: {reason}" for reason, names in reasons.items()]
        row = rows[self.place]
        if row is not None:
            flags = [f"{flag.side} {flag.word}" for flag in row.flags]
            told += filter(None, (*flags, row.note))
        self.say("; ".join(told), "dim")

    def on_lines_list_selected(self, event: LinesList.Selected) -> None:
        event.stop()
        self.give_up_quietly()
        self._draw()

    # keys

    def action_enter(self) -> None:
        """Where no table has the keys, the first pair that could be compared."""
        if self.loaded is None and self._candidates and not self._words:
            self._read(self._candidates[0].words)

    def on_lines_list_chosen(self, event: LinesList.Chosen) -> None:
        """Enter, or a click on the selected row."""
        event.stop()
        loaded, place, number = self.loaded, self.place, event.key
        if loaded is None:
            return
        if loaded.rows[number][place] is None:
            self.say("neither a nor b has this case: n shows the next side", "warn")
            return

        def opened(found: tuple[Loaded, LinesOf]) -> None:
            self.loaded, lines = found
            self._show_page(f"evidence of {loaded.name(number)}", lines)

        self.begin(lambda job: open_row(loaded, number, place, job), opened, self._fail)

    def action_back(self) -> None:
        self.give_up_quietly()
        if self.give_up():
            self.say("cancelled")
            if self.loaded is None:
                self._teach()
        elif self.level == "page" or (self.level == "notice" and self.loaded is not None):
            self._show_level("rows")
            self._fill()
        else:
            shell_of(self).open_screen("results")

    def action_baseline(self) -> None:
        loaded = self.loaded
        if loaded is None or self.level == "notice":
            return
        baseline = loaded.others()[self.place]
        self.begin(
            lambda job: loaded.against(baseline, with_energy=loaded.with_energy), self._take, self._fail
        )

    def action_look(self, steps: int) -> None:
        if self.loaded is not None and self.level == "rows":
            self.place = (self.place + steps) % len(self.loaded.answer.comparisons)
            self._fill()
            self.refresh_lines()

    def action_values(self, steps: int = 1) -> None:
        loaded = self.loaded
        if loaded is None or self.level != "rows":
            return
        self._value = (self._value + steps) % len(COLUMNS_OF_SIDES)
        if self.value is ENERGY and not loaded.with_energy:
            self.begin(lambda job: with_energy(loaded, job), self._take, self._fail)
        else:
            self._fill()

    def action_by(self) -> None:
        loaded = self.loaded
        if loaded is None:
            self.say("nothing is compared yet: o chooses files", "warn")
            return
        request = loaded.request

        def chosen(by: str) -> None:
            if by != (loaded.ignore or FILES):
                self.place = 0
                wanted = replace(request, by="" if by == FILES else by, baseline="", columns=())
                self._read(wanted.words)

        files = [short_name(file) for file in request.files]
        self.ask(AskBy(files, loaded.asked.dimensions(), loaded.ignore), chosen)

    def action_differs(self) -> None:
        if self.loaded is not None:
            self._page_heading = "what differs"
            self._show_document("page", differing(self.loaded, self.place))

    def action_text(self) -> None:
        if self.loaded is not None:
            self._show_page("as text", partial(text_of, self.loaded, self.value))

    def action_command(self) -> None:
        if self.loaded is None:
            self.say("nothing is compared yet: o chooses files", "warn")
        else:
            self.say(copy(self.app, self.loaded.command(self.value)), "good")

    def action_open_files(self) -> None:
        def opened(text: str) -> None:
            try:
                words = tuple(shlex.split(text))
            except ValueError as error:
                self.say(f"{text}: {error}", "warn")
                return
            if words:
                self.place = 0
                self._read(words)

        question = "Files to compare, the baseline first: F[@RUN] ... [--by D]"
        self.ask(AskText(question, shlex.join(self._words)), opened)

    def action_save(self) -> None:
        loaded = self.loaded
        if loaded is not None and self.level != "notice":
            columns = loaded.columns(self.value)
            ask_and_save(
                self,
                f"Save the comparison; name it {', '.join(f'*{ending}' for ending in FORM_OF_ENDING)}",
                "comparison.html",
                lambda path: save_comparison(path, loaded.asked, loaded.baseline, columns),
            )

    def action_reload(self) -> None:
        if self.loaded is not None and self.level != "notice":
            self._read(self.loaded.words(self.value))
        elif self._words:
            self._read(self._words)

    def on_resize(self) -> None:
        """Other columns fit, and other words in a line."""
        self.call_after_refresh(self._fill)
        self.call_after_refresh(self.refresh_lines)

    def _show_page(self, heading: str, lines: LinesOf) -> None:
        self._page_heading = heading
        self.say("")
        self._show_lines("page", lines)

    def _show_document(self, name: str, parts: Document) -> None:
        self._show_lines(name, lambda width: document_lines(parts, width - 1))

    def _show_lines(self, name: str, lines: LinesOf) -> None:
        self.query_one(f"#{name}", LinesPage).show_at_any_width(lines)
        self._show_level(name)

    def _show_level(self, name: str) -> None:
        self.show_level(name, self._table if name == "rows" else self.query_one(f"#{name}"))


SCREEN = CompareScreen
