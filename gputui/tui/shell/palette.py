"""The palette: screens, keys, runs, files, GPUs, profiles and pages, found by a few letters."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import suppress
from functools import partial
from pathlib import Path

from textual import events
from textual.app import ComposeResult
from textual.binding import Binding
from textual.containers import Vertical
from textual.screen import ModalScreen
from textual.widgets import DataTable, Input

from gputui.document.spans import Span
from gputui.errors import GputuiError
from gputui.store.text import clean_text
from gputui.tui.shell.registry import Action, shown_key
from gputui.tui.widgets.app_context import shell_of
from gputui.tui.widgets.cells import wrapped
from gputui.tui.widgets.lines_page import LinesPage
from gputui.tui.widgets.plain_table import PlainTable

_NOTHING = "Nothing fits: fewer letters, or others"
_LONGEST = 140
"""Cells of a sentence that are shown in full under the table; the longest of an action is shorter."""
_MOST_ROWS = 200
_LINES_AROUND, _LEAST_ACTION = 3, 20
"""The frame and what is typed; cells of the title of an action where it is narrow."""
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


class Palette(ModalScreen[Choice | None]):
    """Returns what was chosen; None after esc."""

    DEFAULT_CSS = """
    Palette { align: center top; background: ansi_default; }
    Palette > Vertical {
        width: 100%; max-width: 102; height: auto; max-height: 100%; padding: 0 1; background: ansi_default;
    }
    Palette > Vertical > Vertical { height: auto; max-height: 100%; padding: 0 1; background: ansi_default; }
    Palette Input, Palette Input:focus { border: none; height: 1; padding: 0; background: ansi_default; }
    Palette Input > .input--selection { text-style: $block-cursor-text-style; }
    Palette Input:ansi > .input--cursor { background: ansi_default; color: ansi_default; }
    Palette DataTable { background: ansi_default; height: auto; scrollbar-size: 0 1; }
    Palette DataTable > .datatable--cursor {
        background: $block-cursor-background;
        color: $block-cursor-foreground;
        text-style: $block-cursor-text-style;
    }
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

    def compose(self) -> ComposeResult:
        with Vertical(), Vertical() as box:
            box.styles.border = ("ascii" if shell_of(self).ascii_only else "solid", "ansi_default")
            field = Input(placeholder="type a command, a run, a file or a page; esc leaves")
            field.cursor_blink = False
            yield field
            table = PlainTable(("key", "action", "what it does"))
            table.can_focus = False
            yield table
            yield LinesPage(id="sentence")

    def on_mount(self) -> None:
        if shell_of(self).ascii_only:
            self.query_one(PlainTable).styles.scrollbar_size_vertical = 0
        self._fill()
        self.query_one(Input).focus()

    def add(self, choices: Iterable[Choice]) -> None:
        """More to choose from; the cursor stays in its row."""
        self._choices += choices
        if self.is_attached and self.is_mounted:
            self._fill()

    def on_key(self, event: events.Key) -> None:
        """Take a letter that was typed before the field had the focus."""
        if event.is_printable and event.character:
            self.query_one(Input).insert_text_at_cursor(event.character)
            self._fill()

    def on_input_changed(self, event: Input.Changed) -> None:
        event.stop()
        self.query_one(PlainTable).move_cursor(row=0)
        self._fill()

    def on_input_submitted(self, event: Input.Submitted) -> None:
        event.stop()
        place = self.query_one(PlainTable).cursor_row
        self.dismiss(self._shown[place] if place < len(self._shown) else None)

    def on_resize(self) -> None:
        """Reserve room for the longest sentence, so that the table does not change its height."""
        table = self.query_one(PlainTable)
        most = -(-_LONGEST // max(table.size.width, 10))
        self.query_one("#sentence").styles.height = most
        table.styles.max_height = max(self.size.height - most - _LINES_AROUND, 2)
        self.call_after_refresh(self._describe)

    def on_data_table_row_highlighted(self, event: DataTable.RowHighlighted) -> None:
        event.stop()
        self._describe()

    def on_data_table_row_selected(self, event: DataTable.RowSelected) -> None:
        event.stop()
        self.dismiss(self._shown[event.cursor_row])

    def action_step(self, rows: int) -> None:
        """Move the table's cursor from the field."""
        self.query_one(PlainTable).step(rows)

    def _fill(self) -> None:
        self._shown = matching(self._choices, self.query_one(Input).value, self._used)[:_MOST_ROWS]
        rows = [(shown_key(action), action.title, action.sentence) for action, _ in self._shown]
        self.query_one(PlainTable).fill(rows, widest={1: max(self.size.width // 3, _LEAST_ACTION)})
        self._describe()

    def _describe(self) -> None:
        """Show the full description of the selected action."""
        place, page = self.query_one(PlainTable).cursor_row, self.query_one("#sentence", LinesPage)
        sentence = clean_text(self._shown[place][0].sentence) if place < len(self._shown) else _NOTHING
        rows = wrapped(sentence, max(page.size.width, 10), page.size.height)
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
