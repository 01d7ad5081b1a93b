"""A scrollable page of lines."""

from __future__ import annotations

from textual.geometry import Size
from textual.scroll_view import ScrollView
from textual.strip import Strip

from gputui.tui.terminal.lines import Line, Span
from gputui.tui.terminal.lines_view import strip_of
from gputui.tui.widgets.app_context import shell_of
from gputui.tui.widgets.cells import fitted, line_width
from gputui.tui.widgets.plain_ascii import in_ascii


class LinesPage(ScrollView, can_focus=True):
    """Shows lines, marking those that are cut; arrow and page keys scroll."""

    DEFAULT_CSS = (
        "LinesPage { height: 1fr; background: ansi_default; overflow-x: hidden; scrollbar-size-vertical: 1; }"
    )

    def __init__(self, id: str | None = None) -> None:
        super().__init__(id=id)
        self._lines: tuple[Line, ...] = ()
        self._pinned = 0

    def on_mount(self) -> None:
        """Hide the scrollbar in ASCII mode: it is drawn with blocks."""
        if shell_of(self).ascii_only:
            self.styles.scrollbar_size_vertical = 0

    @property
    def text(self) -> str:
        """The page as plain text."""
        return "\n".join(_text_of(line).rstrip() for line in self._lines)

    def show(self, lines: tuple[Line, ...], *, keeps_place: bool = False, pinned: int = 0) -> None:
        """Show these lines, from the top unless `keeps_place`; so many are `pinned` there."""
        shell, self._pinned = shell_of(self), pinned
        self._lines = tuple(in_ascii(line) for line in lines) if shell.ascii_only else lines
        self.virtual_size = Size(self.size.width, len(lines))
        if not keeps_place:
            self.scroll_to(0, 0, animate=False)
        self.refresh()

    def show_marked(self) -> None:
        """Scroll as far as it takes for the line with a mark in its margin to be in sight."""
        marks = (row for row, line in enumerate(self._lines) if _text_of(line).startswith((" ▸ ", " > ")))
        marked = next(marks, 0)
        least, most = marked + 1 - self.size.height, max(marked - self._pinned, 0)
        self.scroll_to(y=min(max(self.scroll_offset.y, least), most), animate=False)

    def step(self, lines: int) -> None:
        self.scroll_relative(y=lines, animate=False)

    def render_line(self, y: int) -> Strip:
        """The line at a visible row."""
        place = y if y < self._pinned else y + self.scroll_offset.y
        line, width = self._lines[place] if place < len(self._lines) else (), self.size.width
        shell, room = shell_of(self), self.scrollable_content_region.width
        if line_width(line) > room > 0 and _text_of(line)[room:].strip(" ─"):  # no mark for the end of a rule
            line = fitted(line, room)
            line = in_ascii(line) if shell.ascii_only else line
        below = len(self._lines) - self.scroll_offset.y - self.size.height
        if shell.ascii_only and below > 0 and y == self.size.height - 1 > 0:  # there is no scrollbar
            more = f"  {below} more v"
            line = (*in_ascii(fitted(line, max(width - len(more), 0))), Span(more, "dim"))
        return strip_of(line, width, shell.palette)


def _text_of(line: Line) -> str:
    return "".join(span.text for span in line)
