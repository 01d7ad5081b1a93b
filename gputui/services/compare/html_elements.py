"""Pieces of the page; text of all kinds is escaped here and nowhere else."""

from __future__ import annotations

import html
from collections.abc import Iterable

from gputui.services.compare.tables import TextTable
from gputui.store.text import clean_text


def safe(text: str) -> str:
    """Text escaped for HTML."""
    return html.escape(clean_text(text), quote=True)


def command_line(text: str) -> str:
    """A command whose words are whole where lines break: browsers break behind the hyphens of an option."""
    words = "".join(f"<span>{safe(word)}</span> " for word in text.split(" "))
    return f'<pre class="command">{words.rstrip()}</pre>'


def letter(side: str) -> str:
    """The mark of a side, in its colour."""
    return f'<b class="side {safe(side)}">{safe(side)}</b>'


def part(title: str, body: str) -> str:
    """A heading and what belongs below it; nothing without a body."""
    return f"\n<section><h2>{safe(title)}</h2>{body}</section>" if body else ""


def folded(title: str, body: str) -> str:
    """A part that a click unfolds; nothing without a body."""
    return f"\n<details><summary>{safe(title)}</summary>{body}</details>" if body else ""


def bullets(lines: Iterable[str], kind: str = "") -> str:
    """A list; nothing without lines."""
    items = "".join(f"<li>{safe(line)}</li>" for line in lines)
    of_kind = f' class="{kind}"' if kind else ""
    return f"\n<ul{of_kind}>{items}</ul>" if items else ""


def table(found: TextTable | None) -> str:
    """A table that scrolls within the page where it is too wide."""
    if found is None:
        return ""
    head = "".join(_cell("th", text, place in found.numeric) for place, text in enumerate(found.headings))
    rows = "".join(
        f"<tr>{''.join(_cell('td', text, place in found.numeric) for place, text in enumerate(cells))}</tr>\n"
        for cells in found.rows
    )
    return f'\n<div class="wide"><table><thead><tr>{head}</tr></thead><tbody>\n{rows}</tbody></table></div>'


def _cell(tag: str, text: str, is_numeric: bool) -> str:
    """Numbers are aligned to the right."""
    return f"<{tag}{' class=n' if is_numeric else ''}>{safe(text)}</{tag}>"
