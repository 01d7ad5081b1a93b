"""The parts of a document that is not a comparison; each form writes each of them in its own way."""

from __future__ import annotations

from dataclasses import dataclass

from gputui.document.table import Table


@dataclass(frozen=True, slots=True)
class Code:
    """Lines to type or to paste."""

    lines: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Links:
    """What somebody published, and where; both are ours, not from a file."""

    items: tuple[tuple[str, str], ...]


Part = str | Table | Code | Links | tuple[str, ...]
"""A paragraph, a table, lines of code, links, or a list."""


@dataclass(frozen=True, slots=True)
class Section:
    """A heading and what belongs below it."""

    title: str
    parts: tuple[Part, ...]
