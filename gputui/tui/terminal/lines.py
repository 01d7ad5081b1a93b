"""What a pane draws: lines of styled text, made by pure functions and put on the screen by one widget."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Span:
    """A piece of a line in one style."""

    text: str
    """Safe to show: no control characters; its width is counted in cells."""
    style: str = ""
    """A name of the theme; empty is plain. In use: dim, title, accent, good, warn, alarm, chart, selected."""


Line = tuple[Span, ...]
"""One row of cells, cut to its width by whoever made it."""
