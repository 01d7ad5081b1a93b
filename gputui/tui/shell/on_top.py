"""What opens on top of a screen: its keys, the error log or a page of the documentation; and the palette, in
which screens, keys, runs, files, GPUs, profiles and pages are found by a few letters.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import suppress
from functools import partial
from pathlib import Path

from textual import events
from textual.app import ComposeResult
from textual.binding import Binding
from textual.screen import ModalScreen
from textual.widgets import Input

from gputui.document.spans import Line, Span, width_of
from gputui.document.table import Column, Table, table_of
from gputui.errors import GputuiError, clean_text
from gputui.services.support.paths import kept_errors
from gputui.store.opening import SUFFIXES
from gputui.tui.shell.registry import APP_ACTIONS, SCREENS_ACTIONS, Action, ScreenEntry, shown_key, shown_keys
from gputui.tui.shell.shell_screen import Field, Framed, copy
from gputui.tui.widgets.cells import ends_of, left, paragraph, section, table_lines, wrapped
from gputui.tui.widgets.scrolled import LinesOf, LinesPage, TableList

THIS_SCREEN, EVERY_SCREEN = "Keys of this screen", "Keys of every screen"
_TITLES_FROM, _TITLE = 96, 12
"""From this width on titles have a column, and its cells."""
_TABLE_RULE = re.compile(r"\n[|:-]+(?=\n)")


class PageScreen(ModalScreen[None]):
    """Lines that fit the width beside a scrollbar, below a message about what was copied."""

    DEFAULT_CSS = "PageScreen { background: ansi_default; }"
    BINDINGS = [  # noqa: RUF012 - Textual declares it so
        Binding("escape,backspace,question_mark,L,q,enter", "dismiss", "Back", show=False),
        Binding("j", "scroll(1)", show=False),
        Binding("k", "scroll(-1)", show=False),
        Binding("y,c", "copy", "Copy", show=False),
    ]

    def __init__(self, lines_of: LinesOf) -> None:
        super().__init__()
        self._lines_of = lines_of
        self._page = LinesPage()

    def compose(self) -> ComposeResult:
        yield self._page

    def on_mount(self) -> None:
        self._page.focus()
        self._show()

    def action_scroll(self, lines: int) -> None:
        self._page.step(lines)

    def action_copy(self) -> None:
        self._show()
        self._show((Span(copy(self.app, self._page.text), "good"),))

    def _show(self, *above: Line) -> None:
        self._page.show_at_any_width(lambda width: (*above, *self._lines_of(width - 1)))


def help_lines(actions: Iterable[Action], entries: Iterable[ScreenEntry], width: int) -> list[Line]:
    """The keys of the screen, then those of the app: titles where there is room, and descriptions."""
    opening = [Action(entry.id, entry.key, entry.title, entry.tooltip) for entry in entries]
    opening += SCREENS_ACTIONS if opening else ()
    groups = ((THIS_SCREEN, tuple(actions)), (EVERY_SCREEN, (*opening, *APP_ACTIONS)))
    listed = [(heading, of_group) for heading, of_group in groups if of_group]
    lead = max((width_of(_keys_of(one)) for _, of_group in listed for one in of_group), default=0)
    lines: list[Line] = []
    for heading, of_group in listed:
        hint = () if lines else (Span("esc leaves", "dim"),)
        lines += [()] if lines else []
        lines.append(section((Span(heading, "title"),), width, hint))
        titles = [left(action.title, _TITLE) for action in of_group] if width >= _TITLES_FROM else []
        columns = (
            Column("", [Span(left(_keys_of(action), lead), "accent") for action in of_group]),
            *((Column("", titles),) if titles else ()),
            Column("", [action.sentence for action in of_group], breaks=True),
        )
        lines += table_lines(Table(columns), width, margin=1, folds=True, has_headings=False)
    return lines


def log_lines(path: Path, width: int) -> Iterator[Line]:
    errors = kept_errors(path)
    yield (Span("Errors, the newest first", "title"), Span("  (esc goes back, y copies)", "dim"))
    yield from ((Span(row, "dim"),) for row in wrapped(str(path), width, 3))
    yield ()
    none = "None so far. Errors appear where they happen, and are kept here."
    for error in errors or (none,):
        style = "dim" if error.startswith(" ") else ""
        yield from ((Span(row, style),) for row in wrapped(error, width, 20))


def doc_lines(text: str, width: int) -> Iterator[Line]:
    """Markdown as headings, paragraphs, a line for each row of a table, and what stands between fences."""
    for number, part in enumerate(re.split("^```.*\n", text, flags=re.MULTILINE)):
        if number % 2:
            yield from (*((Span(f"  {row}", "accent"),) for row in part.splitlines()), ())
            continue
        for block in filter(None, part.strip().split("\n\n")):
            for row in re.split(r"\n(?=- |\d+\. |\|)", _TABLE_RULE.sub("", block)):
                cells = " · ".join(re.split(r"\s+\|\s+", row.strip("| ")))
                words = " ".join(re.sub(r"[`*\\]|^#+ ", "", cells).split())
                style, indent = "title" if row.startswith("#") else "", 2 * row.startswith(("- ", "|"))
                yield from paragraph(words, width, style, indent=indent)
            yield ()


def _keys_of(action: Action) -> str:
    return ", ".join(shown_keys(action))


_LONGEST = 140
"""Cells of a sentence that are shown in full under the table; the longest of an action is shorter."""
_MOST_ROWS = 200
_LINES_AROUND = 3
"""The frame and what is typed."""
_SENTENCES_FROM, _BESIDE_ACTION = 60, 18
"""The width from which sentences have a column; cells beside the title of an action below it."""
_CURSOR_KEYS = ("up", "down", "left", "right", "home", "end", "pageup", "pagedown", "tab", "j", "k")

Choice = tuple[Action, Callable[[], object]]
"""What is shown, and what choosing it does."""


def matching(choices: Iterable[Choice], query: str, used: Sequence[str] = ()) -> list[Choice]:
    """Those that fit the words: first whose title begins with them, among these what was `used` before.

    Others keep their order, but cursor keys come last. Everything fits nothing typed.
    """
    words = clean_text(query).lower().split()

    def rank(choice: Choice) -> tuple[int, int, bool]:
        text = text_of(choice)
        use = used.index(text) if text in used else len(used)
        return -_fit(choice[0], words), use, choice[0].key.partition(",")[0] in _CURSOR_KEYS

    return sorted((choice for choice in choices if _fit(choice[0], words)), key=rank)


def text_of(choice: Choice) -> str:
    """Its key, a tab and its title: what is remembered of it."""
    return f"{shown_key(choice[0])}\t{clean_text(choice[0].title)}"


def _fit(action: Action, words: Sequence[str]) -> int:
    """3 if the title begins with the words, 2 if they begin words of it, 1 if all occur, 0 if not."""
    title = action.title.lower()
    if title.startswith(" ".join(words)):
        return 3
    if all(f" {word}" in f" {title}" for word in words):
        return 2
    return int(all(word in f"{title} {action.tooltip.lower()}" for word in words))


def none_fits(query: str) -> str:
    """What is said of words that nothing fits; a file is listed only where files were looked for."""
    if query.endswith(SUFFIXES):
        return f"There is no {query} here or beside the default file: key 3, then o, opens one elsewhere"
    return "Nothing fits: fewer letters, or others"


class Palette(Framed[Choice]):
    """Returns what was chosen; None after esc."""

    DEFAULT_CSS = """
    Palette { align: center top; }
    Palette > Vertical { width: 100%; max-width: 102; max-height: 100%; padding: 0 1; }
    Palette > Vertical > Vertical { max-height: 100%; }
    Palette TableList { height: auto; }
    Palette #sentence { height: 1; scrollbar-size: 0 0; }
    """
    BINDINGS = [  # noqa: RUF012 - Textual declares it so
        Binding("escape", "dismiss", "Back", show=False),
        Binding("down,ctrl+n", "step(1)", show=False, priority=True),
        Binding("up", "step(-1)", show=False, priority=True),
        Binding("pagedown", "step(10)", show=False, priority=True),
        Binding("pageup", "step(-10)", show=False, priority=True),
    ]

    def __init__(self, choices: Iterable[Choice], used: Sequence[str]) -> None:
        """`used` are texts of earlier choices, the last first."""
        super().__init__()
        self._choices = [*choices]
        self._used = used
        self._shown: Sequence[Choice] = ()
        self._field = Field(placeholder="type a command, a run, a file or a page; esc leaves")
        self._table = TableList()

    def compose_inside(self) -> ComposeResult:
        yield self._field
        yield self._table
        yield LinesPage(id="sentence")

    def on_mount(self) -> None:
        self._table.can_focus = False
        self._fill()
        self._field.focus()

    def add(self, choices: Iterable[Choice]) -> None:
        """More to choose from; the cursor stays in its row."""
        self._choices += choices
        if self.is_attached and self.is_mounted:
            self._fill(self._table.key)

    def on_key(self, event: events.Key) -> None:
        """Take a letter that was typed before the field had the focus."""
        if event.is_printable and event.character:
            self._field.insert_text_at_cursor(event.character)
            self._fill()

    def on_input_changed(self, event: Input.Changed) -> None:
        event.stop()
        self._fill()

    def on_input_submitted(self, event: Input.Submitted) -> None:
        event.stop()
        self.dismiss(self._shown[self._table.key] if self._shown else None)

    def on_resize(self) -> None:
        """Reserve room for the longest sentence, so that the table does not change its height."""
        most = -(-_LONGEST // max(self._table.size.width, 10))
        self.query_one("#sentence").styles.height = most
        self._table.styles.max_height = max(self.size.height - most - _LINES_AROUND, 2)
        self.call_after_refresh(self._describe)

    def on_lines_list_selected(self, event: TableList.Selected) -> None:
        event.stop()
        self._describe()

    def on_lines_list_chosen(self, event: TableList.Chosen) -> None:
        event.stop()
        self.dismiss(self._shown[event.key])

    def action_step(self, rows: int) -> None:
        self._table.step(rows)

    def _fill(self, place: int = 0) -> None:
        self._shown = matching(self._choices, self._field.value, self._used)[:_MOST_ROWS]
        width = self.size.width
        most, columns = (width // 3, 3) if width >= _SENTENCES_FROM else (width - _BESIDE_ACTION, 2)
        rows = [
            (shown_key(action), ends_of(action.title, most), action.sentence)[:columns]
            for action, _ in self._shown
        ]
        table = table_of(("key", "action", "what it does")[:columns], rows, breaks=(2,))
        self._table.show_table(table, place)
        self._describe()

    def _describe(self) -> None:
        page, shown = self.query_one("#sentence", LinesPage), self._shown
        sentence = shown[self._table.key][0].sentence if shown else none_fits(self._field.value)
        rows = wrapped(clean_text(sentence), max(page.size.width, 10), page.size.height)
        page.show((Span(row, "dim"),) for row in rows)


def nouns(
    db: Path | None, open_screen: Callable[[str, tuple[str, ...]], None], open_page: Callable[[str], None]
) -> Iterator[Choice]:
    """All of them, with the runs of the file `db`, or of the one that changed last; reads files.

    `open_screen` takes the id of a screen and its arguments, `open_page` the text of a page.
    """
    # Deferred: they take half a second, in which the palette can already be typed into.
    from gputui.services.profiles.loader import shipped_profiles
    from gputui.services.results.browser import recent_files
    from gputui.services.results.labels import day
    from gputui.services.support.documentation import text_of, topics
    from gputui.services.support.paths import default_result_file
    from gputui.store.reading import open_result

    for profile in shipped_profiles():
        action = Action("", "", f"run {profile.name}", f"Measure with this profile. {profile.question}")
        yield action, partial(open_screen, "run", (profile.name,))
    files = recent_files(Path())
    db = db or next((entry.path for entry in files), default_result_file())
    with suppress(GputuiError), open_result(db) as file:  # such a file is listed, and says why when opened
        for run in file.summaries():
            words = " ".join(filter(None, (run.short_id, run.profile, run.label)))
            action = Action("", "", f"run {words}", f"Its results: {day(run)}, {run.status}, in {db}")
            yield action, partial(open_screen, "results", (f"{db}@{run.run_id}",))
    for entry in files:
        action = Action("", "", f"file {entry.path.name}", f"The runs of {entry.path}")
        yield action, partial(open_screen, "results", (str(entry.path),))
    for name, page in topics().items():
        text = text_of(page)
        titles = [line.lstrip("# ") for line in text.splitlines() if line.startswith(("# ", "## "))]
        yield Action("", "", f"docs {name}", "; ".join(titles)), partial(open_page, text)
