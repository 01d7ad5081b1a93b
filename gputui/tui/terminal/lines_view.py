"""The widget that shows lines of styled text."""

from __future__ import annotations

from collections.abc import Iterable
from functools import lru_cache
from typing import Protocol, cast

from rich.segment import Segment
from rich.style import Style
from textual.geometry import Region
from textual.strip import Strip
from textual.widget import Widget

from gputui.document.drawings import in_hues
from gputui.document.theme import Depth, Palette
from gputui.tui.terminal.cell_diff import rich_style, width_of
from gputui.tui.terminal.lines import Line, Span, without_marked_blanks


@lru_cache(maxsize=1024)  # charts never repeat: more would only fill memory
def _segment(span: Span, palette: Palette) -> Segment:
    return Segment(in_hues(span, palette), rich_style(span.style, palette))


def strip_of(line: Line, width: int, palette: Palette) -> Strip:
    """A line as a Textual strip, cut or padded to a width."""
    if palette.depth is Depth.NONE:
        line = without_marked_blanks(line)
    cells = sum(width_of(span.text) for span in line)
    return Strip([_segment(span, palette) for span in line], cells).adjust_cell_length(width, Style.null())


class _Coloured(Protocol):
    palette: Palette


class LinesView(Widget, can_focus=False, inherit_bindings=False):
    """Shows lines as they are; an unchanged line costs nothing."""

    DEFAULT_CSS = "LinesView { width: 100%; height: 100%; }"

    def __init__(self) -> None:
        super().__init__()
        self._lines: tuple[Line, ...] = ()
        self._strips: dict[int, Strip] = {}
        self._drawn_for: tuple[int, Palette] | None = None

    def show(self, lines: tuple[Line, ...]) -> None:
        """Show these lines from the top, and nothing below them."""
        self.refresh_rows(self.take(lines))

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
        width, palette = self.size.width, cast(_Coloured, self.app).palette
        if self._drawn_for != (width, palette):
            self._strips.clear()
            self._drawn_for = width, palette
        strip = self._strips.get(y)
        if strip is None:
            line = self._lines[y] if y < len(self._lines) else ()
            strip = self._strips[y] = strip_of(line, width, palette)
        return strip

    def render_lines(self, crop: Region) -> list[Strip]:
        """The strips of a region; skips borders and filters, which these lines do not have."""
        strips = [self.render_line(y) for y in crop.line_range]
        if crop.x == 0 and crop.width == self.size.width:
            return strips
        return [strip.crop(crop.x, crop.right) for strip in strips]
