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

from gputui.document.spans import Span
from gputui.errors import clean_text
from gputui.services.compare.columns import COLUMNS_OF_SIDES, ENERGY, RATE
from gputui.services.compare.formats import FORM_OF_ENDING, save_comparison
from gputui.services.compare.row_text import called, short_name
from gputui.services.results.browser import Candidate, candidates
from gputui.tui.screens.comparison import (
    HIGH,
    Loaded,
    differing,
    document_lines,
    evidence_lines,
    lines_above,
    main_number,
    open_row,
    read,
    remarks,
    table_of_rows,
    teaching,
    text_of,
    with_energy,
)
from gputui.tui.shell.registry import Action
from gputui.tui.shell.shell_screen import (
    AskText,
    Dialog,
    ShellScreen,
    ask_and_save,
    bindings_of,
    copy,
    screen_of,
    show_in,
)
from gputui.tui.terminal.renderer import LinesView, shell_of
from gputui.tui.widgets.cells import error_lines, fitted
from gputui.tui.widgets.scrolled import MARKER, Entry, LinesList, LinesOf, LinesPage, TableList

ACTIONS: tuple[Action, ...] = (
    Action("enter", "enter", "Evidence", "Show the evidence for the verdict of the selected row"),
    Action("back", "escape,backspace", "Back", "Cancel reading, or leave the evidence or text"),
    Action("values", "v", "Values", "Rates, times of a step, costs, energies or shares of the peak"),
    Action("values-before", "V", "Values back", "The previous values", does="values(-1)"),
    Action("baseline", "b", "Baseline", "Make the other side the baseline"),
    Action("next-side", "n", "Next side", "With more than two sides: show the next one", does="look(1)"),
    Action(
        "side-before", "p", "Side before", "With more than two sides: show the one before", does="look(-1)"
    ),
    Action("by", "g", "Sides", "Choose what separates the sides: files, device, precision, mode ..."),
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
    "teaching": ("open-files", "reload", "back"),
}
_AROUND = 3
"""Lines of the screen that are not of the body."""
FILES = "files"
_MOST_LINES = 12
_LINES_AROUND = 5
"""Above and below what can be chosen, on a narrow terminal."""


class AskBy(Dialog[str]):
    """One of the dimensions, or FILES for the files themselves."""

    BINDINGS = [Binding("backspace", "dismiss", "Back", show=False)]  # noqa: RUF012 - Textual declares it so
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


class RowsPane(Vertical):
    """The answer and the sides, the rows of a comparison, and below them what the selected one rests on."""

    def __init__(self, id: str | None = None) -> None:
        super().__init__(id=id)
        self.loaded: Loaded | None = None
        self._above, self._table, self._below = LinesView(), TableList(), LinesView(id="below")

    def compose(self) -> ComposeResult:
        yield self._above
        yield self._table
        yield self._below

    def show(self, loaded: Loaded, *, is_new: bool = False) -> None:
        """Show this in the columns that there is room for; the cursor of a new one is on its main row."""
        self.loaded, number = loaded, self._table.key
        if is_new or not 0 <= number < len(loaded.rows):
            number = main_number(loaded)
        self._table.show_table(table_of_rows(loaded), number, len(loaded.rows))
        self._draw(loaded)

    def _draw(self, loaded: Loaded) -> None:
        """What stands around the rows, as much as there is room for."""
        screen, number = screen_of(self), self._table.key
        width, height = screen.size.width, screen.size.height - _AROUND
        above = lines_above(loaded, width, height)
        evidence = evidence_lines(loaded, number, width - 1)
        room, needed = max(height - len(above), 1), self._table.virtual_size.height
        below = min(len(evidence), max(room - needed, height // 3 if height >= HIGH else 0))
        self._above.styles.height = len(above)
        self._table.styles.height = min(needed, max(room - below, 1))
        show_in(self._above, *above)
        shown = evidence[: max(room - needed, below)]
        if 1 < len(shown) < len(evidence):
            more = f" {len(evidence) - len(shown)} more ▼"
            shown[-1] = (*fitted(shown[-1], width - 1 - len(more)), Span(more, "dim"))
        show_in(self._below, *shown)
        if not screen.is_busy:
            screen.say(remarks(loaded, number), "dim")

    def draw_again(self) -> None:
        """After another page, or at another size."""
        if self.loaded is not None and self.display:
            self.show(self.loaded)

    def on_resize(self) -> None:
        self.call_after_refresh(self.draw_again)

    def on_lines_list_selected(self, event: LinesList.Selected) -> None:
        event.stop()
        if self.loaded is not None:
            self._draw(self.loaded)

    def action_look(self, steps: int) -> None:
        if self.loaded is not None:
            self.show(self.loaded.next_side(steps))

    def action_values(self, steps: int = 1) -> None:
        if self.loaded is None:
            return
        place = COLUMNS_OF_SIDES.index(self.loaded.value) + steps
        wanted = replace(self.loaded, value=COLUMNS_OF_SIDES[place % len(COLUMNS_OF_SIDES)])
        if wanted.value is ENERGY and not wanted.with_energy:
            screen_of(self).begin(lambda job: with_energy(wanted, job), self.show)
        else:
            self.show(wanted)


class TeachingPage(LinesPage):
    """How to begin, and pairs of stored runs as soon as they are found; enter takes the first."""

    _found: tuple[Candidate, ...] = ()

    def teach(self) -> None:
        self._take(self._found)
        screen_of(self).begin(lambda job: candidates(Path.cwd(), job), self._take, is_quiet=True)

    def _take(self, found: tuple[Candidate, ...]) -> None:
        self._found = found
        self.show_at_any_width(lambda width: document_lines(teaching(found), width - 1))

    def action_enter(self) -> None:
        if self._found:
            screen_of(self).show_words(self._found[0].words)


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
        self._rows, self._teaching = RowsPane(id="rows"), TeachingPage(id="teaching")
        self._page_heading = ""

    def compose_body(self) -> ComposeResult:
        """The rows; a page for all of one row, for text and what differs; and one for messages."""
        with ContentSwitcher(initial="teaching", id="level"):
            yield self._teaching
            yield self._rows
            yield LinesPage(id="page")
            yield LinesPage(id="notice")

    def begin_with(self, words: tuple[str, ...]) -> None:
        """Compare what these words behind `gputui compare` ask for; without any say how to ask."""
        if words:
            self._read(words)
        elif self.loaded is None and not self.is_busy:
            self.show_level("teaching")
            self._teaching.teach()

    @property
    def loaded(self) -> Loaded | None:
        return self._rows.loaded

    def heading(self) -> str:
        if self.level == "page":
            return self._page_heading
        if self.level != "rows" or self.loaded is None:
            return "compare"
        shown, count = self.loaded.comparison, len(self.loaded.answer.comparisons)
        more = f" ({self.loaded.place + 1} of {count} sides)" if count > 1 else ""
        return f"{called(shown.b)} vs {called(shown.a)}{more}"

    def hints(self) -> tuple[str, ...]:
        first, *others = _HINTS[self.level]
        has_more = self.level == "rows" and self.loaded and len(self.loaded.answer.comparisons) > 1
        return (first, *(("next-side",) if has_more else ()), *others)

    def _read(self, words: tuple[str, ...], place: int = 0) -> None:
        self._words, value = words, RATE if self.loaded is None else self.loaded.value
        self.begin(lambda job: read(words, job, value, place), partial(self._take, is_new=True), self._fail)

    def _take(self, loaded: Loaded, *, is_new: bool = False) -> None:
        self.show_level("rows")
        self._rows.show(loaded, is_new=is_new)
        for warning in loaded.asked.warnings:
            self.say(warning, "warn")

    def _fail(self, message: str, hint: str) -> None:
        self._show("notice", partial(error_lines, message, hint))

    def _show(self, level: str, lines: LinesOf, heading: str = "") -> None:
        """A page instead of the rows."""
        self._page_heading = heading
        self.say("")
        self.query_one(f"#{level}", LinesPage).show_at_any_width(lines)
        self.show_level(level)

    def on_lines_list_chosen(self, event: LinesList.Chosen) -> None:
        """Enter, or a click on the selected row."""
        loaded, number = self.loaded, event.key
        assert loaded is not None

        def opened(found: tuple[Loaded, LinesOf]) -> None:
            self._rows.loaded, lines = found
            self._show("page", lines, f"evidence of {loaded.name(number)}")

        self.begin(lambda job: open_row(loaded, number, job), opened)

    def action_back(self) -> None:
        self.give_up_quietly()
        if self.give_up():
            self.say("cancelled")
            self.begin_with(())
        elif self.level in ("page", "notice") and self.loaded is not None:
            self.show_level("rows")
            self._rows.draw_again()
        else:
            shell_of(self).open_screen("results")

    def action_baseline(self) -> None:
        loaded = self.loaded
        if loaded is not None and self.level != "notice":
            baseline = loaded.others()[loaded.place]
            self.begin(lambda job: loaded.against(baseline), self._take, self._fail)

    def action_by(self) -> None:
        loaded = self.loaded
        if loaded is None:
            self.say("nothing is compared yet: o chooses files", "warn")
            return
        request = loaded.request

        def chosen(by: str) -> None:
            if by != (loaded.ignore or FILES):
                wanted = replace(request, by="" if by == FILES else by, baseline="", columns=())
                self._read(wanted.words)

        files = [short_name(file) for file in request.files]
        self.ask(AskBy(files, loaded.asked.dimensions(), loaded.ignore), chosen)

    def action_differs(self) -> None:
        if self.loaded is not None:
            parts = differing(self.loaded)
            self._show("page", lambda width: document_lines(parts, width - 1), "what differs")

    def action_text(self) -> None:
        if self.loaded is not None:
            self._show("page", partial(text_of, self.loaded), "as text")

    def action_command(self) -> None:
        if self.loaded is None:
            self.say("nothing is compared yet: o chooses files", "warn")
        else:
            self.say(copy(self.app, self.loaded.command), "good")

    def action_open_files(self) -> None:
        def opened(text: str) -> None:
            try:
                words = tuple(shlex.split(text))
            except ValueError as error:
                self.say(f"{text}: {error}", "warn")
                return
            if words:
                self._read(words)

        question = "Files to compare, the baseline first: F[@RUN] ... [--by D]"
        self.ask(AskText(question, shlex.join(self._words)), opened)

    def action_save(self) -> None:
        loaded = self.loaded
        if loaded is not None and self.level != "notice":
            ask_and_save(
                self,
                f"Save the comparison; name it {', '.join(f'*{ending}' for ending in FORM_OF_ENDING)}",
                "comparison.html",
                lambda path: save_comparison(path, loaded.asked, loaded.baseline, loaded.columns),
            )

    def action_reload(self) -> None:
        if self.loaded is not None and self.level != "notice":
            self._read(self.loaded.words, self.loaded.place)
        else:
            self.begin_with(self._words)


SCREEN = CompareScreen
