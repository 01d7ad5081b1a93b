"""The widget that shows lines of styled text."""

from __future__ import annotations

from collections.abc import Iterable
from functools import lru_cache

from rich.segment import Segment
from rich.style import Style
from textual.geometry import Region
from textual.strip import Strip
from textual.widget import Widget

from gputui.tui.terminal.cell_diff import rich_style, width_of
from gputui.tui.terminal.lines import Line, Span, without_marked_blanks
from gputui.tui.terminal.theme import Depth


@lru_cache(maxsize=1024)  # charts never repeat: more would only fill memory
def _segment(span: Span, depth: Depth) -> Segment:
    return Segment(span.text, rich_style(span.style, depth))


def strip_of(line: Line, width: int, depth: Depth) -> Strip:
    """A line as a Textual strip, cut or padded to a width."""
    if depth is Depth.NONE:
        line = without_marked_blanks(line)
    cells = sum(width_of(span.text) for span in line)
    return Strip([_segment(span, depth) for span in line], cells).adjust_cell_length(width, Style.null())


class LinesView(Widget, can_focus=False, inherit_bindings=False):
    """Shows lines as they are; an unchanged line costs nothing."""

    DEFAULT_CSS = "LinesView { width: 100%; height: 100%; }"

    def __init__(self, depth: Depth) -> None:
        super().__init__()
        self._depth = depth
        self._lines: tuple[Line, ...] = ()
        self._strips: dict[int, Strip] = {}
        self._width = 0

    def show(self, lines: tuple[Line, ...]) -> bool:
        """Show these lines from the top, and nothing below them. True if any of them is new."""
        changed = self.take(lines)
        self.refresh_rows(changed)
        return bool(changed and self.size.width)

    def take(self, lines: tuple[Line, ...]) -> dict[int, Line]:
        """Keep these lines without drawing them; returns the visible rows that changed."""
        old = self._lines
        common = min(len(old), len(lines))
        changed = [y for y in range(common) if lines[y] is not old[y] and lines[y] != old[y]]
        changed.extend(range(common, max(len(old), len(lines))))
        self._lines = lines
        for y in changed:
            self._strips.pop(y, None)
        height = self.size.height
        return {y: lines[y] if y < len(lines) else () for y in changed if y < height}

    def refresh_rows(self, rows: Iterable[int]) -> None:
        """Have Textual redraw these rows."""
        width = self.size.width
        regions = [Region(0, y, width, 1) for y in rows]
        if regions and width:
            self.refresh(*regions)

    def render_line(self, y: int) -> Strip:
        """The strip of a row; the same object as long as the line is the same."""
        width = self.size.width
        if width != self._width:
            self._strips.clear()
            self._width = width
        strip = self._strips.get(y)
        if strip is None:
            line = self._lines[y] if y < len(self._lines) else ()
            strip = self._strips[y] = strip_of(line, width, self._depth)
        return strip

    def render_lines(self, crop: Region) -> list[Strip]:
        """The strips of a region; skips borders and filters, which these lines do not have."""
        strips = [self.render_line(y) for y in crop.line_range]
        if crop.x == 0 and crop.width == self.size.width:
            return strips
        return [strip.crop(crop.x, crop.right) for strip in strips]
