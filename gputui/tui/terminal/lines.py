"""Lines of styled text: panes build them with pure functions, one widget shows them."""

from __future__ import annotations

from typing import NamedTuple


class Span(NamedTuple):
    """A piece of a line in one style."""

    text: str
    """Safe to show: no control characters. Its width is counted in cells."""
    style: str = ""
    """A name of the theme (`theme.STYLES`); empty is plain."""


Line = tuple[Span, ...]
"""One row of cells, already cut to its width."""
