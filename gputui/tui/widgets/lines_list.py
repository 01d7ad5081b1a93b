"""A scrollable list of lines, one entry of which is selected."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from rich.style import Style
from textual import events
from textual.binding import Binding
from textual.geometry import Size
from textual.message import Message
from textual.scroll_view import ScrollView
from textual.strip import Strip

from gputui.document.theme import SELECTED
from gputui.tui.terminal.lines import Line, Span
from gputui.tui.terminal.lines_view import strip_of
from gputui.tui.widgets.app_context import shell_of
from gputui.tui.widgets.cells import fitted
from gputui.tui.widgets.plain_ascii import in_ascii

MARKER = "▸ "
"""Before the selected entry; the others are indented as far."""


@dataclass(frozen=True, slots=True)
class Entry:
    """Some lines that belong together."""

    lines: tuple[Line, ...]
    key: int = -1
    """What is selected with it; negative of a heading, which cannot be selected."""


class LinesList(ScrollView, can_focus=True):
    """Entries below each other; arrows, page keys and clicks select one, enter chooses it."""

    DEFAULT_CSS = (
        "LinesList { height: 1fr; background: ansi_default; overflow-x: hidden; scrollbar-size-vertical: 1; }"
    )
    BINDINGS = [  # noqa: RUF012 - Textual declares it so
        Binding("up", "step(-1)", show=False),
        Binding("down", "step(1)", show=False),
        Binding("pageup", "page(-1)", show=False),
        Binding("pagedown", "page(1)", show=False),
        Binding("home", "step(-1000000)", show=False),
        Binding("end", "step(1000000)", show=False),
        Binding("enter", "choose", show=False),
    ]

    class Selected(Message):
        """Another entry is selected."""

        def __init__(self, key: int) -> None:
            super().__init__()
            self.key = key

    class Chosen(Message):
        """Enter, or a click on the selected entry."""

        def __init__(self, key: int) -> None:
            super().__init__()
            self.key = key

    def __init__(self, id: str | None = None) -> None:
        super().__init__(id=id)
        self._entries: tuple[Entry, ...] = ()
        self._placed: list[tuple[int, Line]] = []
        """Key and text of each line."""
        self._key = -1
        self.text = ""
        """What is copied."""

    def on_mount(self) -> None:
        """Hide the scrollbar in ASCII mode: it is drawn with blocks."""
        if shell_of(self).ascii_only:
            self.styles.scrollbar_size_vertical = 0

    @property
    def key(self) -> int:
        """Of the selected entry; negative if there is none."""
        return self._key

    def fill(self, entries: Sequence[Entry], text: str, key: int) -> None:
        """Show these entries, and select the one with this key; the first if there is none."""
        is_ascii = shell_of(self).ascii_only
        self._entries, self.text = tuple(entries), text
        self._placed = [
            (entry.key, in_ascii(line) if is_ascii else line) for entry in entries for line in entry.lines
        ]
        keys = self._keys
        self._key = key if key in keys else keys[0] if keys else -1
        self.virtual_size = Size(self.size.width, len(self._placed))
        self.call_after_refresh(self._show_selected)
        self.refresh()

    def select(self, key: int) -> None:
        """Select an entry and scroll to it."""
        if key in self._keys and key != self._key:
            self._key = key
            self.refresh()
            self.post_message(self.Selected(key))
        self._show_selected()

    def step(self, entries: int) -> None:
        """Select the entry that is so many after the selected one."""
        keys = self._keys
        if keys:
            place = keys.index(self._key) if self._key in keys else 0
            self.select(keys[min(max(place + entries, 0), len(keys) - 1)])

    action_step = step

    def action_page(self, pages: int) -> None:
        self.step(pages * max(self.size.height - 1, 1))

    def action_choose(self) -> None:
        if self._key >= 0:
            self.post_message(self.Chosen(self._key))

    def on_click(self, event: events.Click) -> None:
        place = event.y + self.scroll_offset.y
        key = self._placed[place][0] if place < len(self._placed) else -1
        if key < 0:
            return
        event.stop()
        if key == self._key:
            self.post_message(self.Chosen(key))
        else:
            self.select(key)

    def on_resize(self) -> None:
        self.virtual_size = Size(self.size.width, len(self._placed))
        self.call_after_refresh(self._show_selected)

    def render_line(self, y: int) -> Strip:
        """The line at a visible row."""
        place, width, shell = y + self.scroll_offset.y, self.size.width, shell_of(self)
        if place >= len(self._placed):
            return Strip.blank(width, Style.null())
        key, line = self._placed[place]
        is_selected = 0 <= key == self._key
        is_first = is_selected and (place == 0 or self._placed[place - 1][0] != key)
        marker = MARKER if is_first else " " * len(MARKER) if key >= 0 else ""
        if shell.ascii_only:
            marker = marker.replace("▸", ">")
        room = self.scrollable_content_region.width
        whole = (Span(marker, "accent"), *line)
        if not is_selected:
            return strip_of(fitted(whole, room), width, shell.palette)
        chosen = (Span(span.text, (span.style or "title") + SELECTED) for span in fitted(whole, room))
        return strip_of(tuple(chosen), room, shell.palette)

    @property
    def _keys(self) -> list[int]:
        return [entry.key for entry in self._entries if entry.key >= 0]

    def _show_selected(self) -> None:
        """Scroll as little as needed; a heading above the first entry comes along."""
        rows = [row for row, (key, _) in enumerate(self._placed) if key == self._key]
        if not rows or not self.size.height:
            return
        top, height = self.scroll_offset.y, self.size.height
        first = 0 if rows[0] <= 1 else rows[0]
        if first < top:
            self.scroll_to(0, first, animate=False)
        elif rows[-1] >= top + height:
            self.scroll_to(0, rows[-1] - height + 1, animate=False)
