"""Parts of a document as Markdown, to paste into an issue; all text is escaped here and nowhere else."""

from __future__ import annotations

import re
from collections.abc import Iterable

from gputui.document.table import Code, Links, Part, Section, Table
from gputui.store.text import clean_text

_SPECIAL = re.compile(r"[\\`*<>|~&\[\]$]|(?<!\w)_|_(?!\w)")
_NUMBERED = re.compile(r"\\\[(\d+)\\\](?![(\[:])")
_LINKS = re.compile(r"(?<!\w)([@#])(?=\w)|(:)(?=//)|(?i:(\bwww)(?=\.))")
"""What GitHub would make a mention, a reference or a link of."""


def escaped(text: str) -> str:
    """Text escaped for a line or a table cell of Markdown."""
    plain = _SPECIAL.sub(lambda found: f"\\{found.group()}", " ".join(clean_text(text).split()))
    plain = _NUMBERED.sub(r"[\1]", plain)
    return _LINKS.sub(lambda found: f"{found.group()}<!-- -->", plain)


def markdown_of(part: Part | Section) -> str:
    """A part between blank lines; a section within others begins with its title."""
    if isinstance(part, Section):
        first, *rest = part.parts
        lead = f"**{escaped(part.title)}:** {escaped(first)}\n" if isinstance(first, str) else ""
        head = [lead] if lead else [f"**{escaped(part.title)}**\n", markdown_of(first)]
        return "\n".join((*head, *map(markdown_of, rest)))
    if isinstance(part, str):
        return f"{escaped(part)}\n"
    if isinstance(part, Table):
        return markdown_table(part)
    if isinstance(part, Code):
        return "".join(f"    {line}\n" for line in part.lines)
    if isinstance(part, Links):
        return "".join(f"- {escaped(text)}{f': <{link}>' if link else ''}\n" for text, link in part.items)
    return markdown_list(part)


def markdown_table(table: Table | None) -> str:
    """A table with escaped cells; nothing for None."""
    if table is None:
        return ""
    ruler = ["---:" if column.is_right else "---" for column in table.written]
    lines = [[escaped(cell) for cell in cells] for cells in (table.headings, *table.rows)]
    return "".join(f"| {' | '.join(cells)} |\n" for cells in (lines[0], ruler, *lines[1:]))


def markdown_list(lines: Iterable[str]) -> str:
    """A list of escaped lines; nothing without lines."""
    return "".join(f"- {escaped(line)}\n" for line in lines)
