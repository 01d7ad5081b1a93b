"""Parts of a document as one HTML page that fetches and runs nothing; text of all kinds is escaped here and
nowhere else."""

from __future__ import annotations

import html
import re
from collections.abc import Iterable
from importlib import resources

from gputui.document.parts import Code, Links, Part
from gputui.document.table import Table
from gputui.store.text import clean_text
from gputui.version import __version__

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


def table(found: Table | None) -> str:
    """A table that scrolls within the page where it is too wide."""
    if found is None:
        return ""
    numeric = [column.is_right for column in found.written]
    head, *rows = (
        "".join(_cell(tag, text, is_right) for text, is_right in zip(cells, numeric, strict=True))
        for tag, cells in (("th", found.headings), *(("td", cells) for cells in found.rows))
    )
    body = "".join(f"<tr>{row}</tr>\n" for row in rows)
    return f'\n<div class="wide"><table><thead><tr>{head}</tr></thead><tbody>\n{body}</tbody></table></div>'


def _cell(tag: str, text: str, is_numeric: bool) -> str:
    """Numbers are aligned to the right."""
    return f"<{tag}{' class=n' if is_numeric else ''}>{safe(text)}</{tag}>"


def html_of(one: Part) -> str:
    """A part of a section."""
    if isinstance(one, str):
        return f"<p>{safe(one)}</p>"
    if isinstance(one, Table):
        return table(one) if any(one.headings[:1]) else f'<div class="about">{table(one)}</div>'
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
        f"<footer>gputui {safe(__version__)}</footer></body></html>\n"
    )
    return page.encode(
        "ascii", "xmlcharrefreplace"
    ).decode()  # the same page in whatever encoding it is printed
