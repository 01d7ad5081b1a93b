"""Parts of a document as one HTML page that fetches and runs nothing; text of all kinds is escaped here and
nowhere else."""

from __future__ import annotations

import html
import re
from collections.abc import Iterable, Iterator, Sequence
from importlib import resources

from gputui.document.spans import Span
from gputui.document.table import Code, Column, Drawing, Links, Part, Section, Table
from gputui.errors import clean_text
from gputui.version import version

_POLICY = "default-src 'none'; style-src 'unsafe-inline'; base-uri 'none'; form-action 'none'"


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


def table(found: Table, kind: str = "") -> str:
    """A table that scrolls within the page where it is too wide. Drawings without a picture are left out.

    The page's style sheet leaves columns of high priority out of some kinds of tables where it is narrow.
    """
    columns = [cells for column in found.columns for cells in _cells_of(column)]
    head, *rows = map("".join, zip(*columns, strict=True))
    styles = found.styles or [""] * len(rows)
    body = "".join(f"<tr{_class(style)}>{row}</tr>\n" for style, row in zip(styles, rows, strict=True))
    above = f"<thead><tr>{head}</tr></thead>" if _has_headings(found) else ""
    return f'\n<div class="wide"><table{_class(kind)}>{above}<tbody>\n{body}</tbody></table></div>'


def _has_headings(found: Table) -> bool:
    """Whether there is anything to say above its columns, such as an axis."""
    return any(found.headings) or len(found.written) < len(found.columns)


def _cells_of(column: Column | Drawing) -> Iterator[list[str]]:
    """The heading and the cells of a column, then those that take their place where there is less room."""
    if isinstance(column, Drawing):
        if column.picture is not None:
            heading, drawn = column.picture()
            yield [f'<th class="drawn">{heading}</th>', *(f'<td class="drawn">{one}</td>' for one in drawn)]
        return
    kinds = ["n" if column.is_right else "", "breaks" if column.breaks else ""]
    priority = f"p{int(column.priority)}" if column.priority and not column.breaks else ""
    yield _texts(column, [*kinds, priority])
    if priority and column.narrow is not None:
        yield _texts(column.narrow, [*kinds, f"instead {priority}"])


def _texts(column: Column, kinds: Sequence[str]) -> list[str]:
    """Numbers are aligned to the right."""
    styles = (cell.style if isinstance(cell, Span) else "" for cell in column.cells)
    cells = zip(styles, column.texts, strict=True)
    return [
        f"<th{_class(*kinds)}>{safe(column.heading)}</th>",
        *(f"<td{_class(*kinds, style)}>{safe(text)}</td>" for style, text in cells),
    ]


def _class(*kinds: str) -> str:
    words = " ".join(filter(None, kinds))
    return f' class="{words}"' if words else ""


def html_of(one: Part | Section) -> str:
    """A part of a section, which may be a smaller one."""
    if isinstance(one, Section):
        return f"<h4>{safe(one.title)}</h4>{''.join(map(html_of, one.parts))}"
    if isinstance(one, str):
        return f"<p>{safe(one)}</p>"
    if isinstance(one, Table):
        return table(one) if _has_headings(one) else f'<div class="about">{table(one)}</div>'
    if isinstance(one, Code):
        return f"<pre>{chr(10).join(map(safe, one.lines))}</pre>"
    if isinstance(one, Links):
        linked = (
            f'<a href="{safe(link)}">{safe(text)}</a>' if link else safe(text) for text, link in one.items
        )
        return f"<ul>{''.join(f'<li>{item}</li>' for item in linked)}</ul>"
    return bullets(one)


def with_units(text: str) -> str:
    """A headline, already markup, in which no line breaks between a number and its unit."""
    return re.sub(r"(?<=\d) (?=%|[mµn]?s\b|\w+/s\b)", "\N{NO-BREAK SPACE}", text)


def page_of(title: str, body: str) -> str:
    """The whole document around a body; both are markup already."""
    style = resources.files("gputui.document").joinpath("page.css").read_text(encoding="utf-8")
    page = (
        '<!DOCTYPE html>\n<html lang="en"><head><meta charset="utf-8">\n'
        f'<meta http-equiv="Content-Security-Policy" content="{_POLICY}">\n'
        '<meta name="viewport" content="width=device-width, initial-scale=1">\n'
        f"<title>{title}</title>\n<style>\n{style}</style></head>\n<body>{body}\n"
        f"<footer>gputui {safe(version())}</footer></body></html>\n"
    )
    return page.encode(
        "ascii", "xmlcharrefreplace"
    ).decode()  # the same page in whatever encoding it is printed


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


def markdown_table(table: Table) -> str:
    """A table with escaped cells, a list where it has no headings."""
    if not any(table.headings):
        return markdown_list(" ".join(filter(None, cells)) for cells in table.rows)
    ruler = ["---:" if column.is_right else "---" for column in table.written]
    lines = [[escaped(cell) for cell in cells] for cells in (table.headings, *table.rows)]
    return "".join(f"| {' | '.join(cells)} |\n" for cells in (lines[0], ruler, *lines[1:]))


def markdown_list(lines: Iterable[str]) -> str:
    """A list of escaped lines; nothing without lines."""
    return "".join(f"- {escaped(line)}\n" for line in lines)
