"""A report as Markdown, to paste into an issue, and as one HTML page."""

from __future__ import annotations

from collections.abc import Iterator

from gputui.services.compare.formats import comparison_text
from gputui.services.compare.html import page_of, with_units
from gputui.services.compare.html_elements import bullets, part, safe, table
from gputui.services.compare.markdown import escaped, markdown_list, markdown_table
from gputui.services.compare.session import Answer, Asked
from gputui.services.compare.tables import TextTable
from gputui.services.share.report import REPEAT, Code, Links, Part, Report


def as_markdown(report: Report, compared: tuple[Asked, Answer] | None) -> str:
    """Headings, lists and tables; names from files cannot become markup."""
    lines = [f"# {escaped(report.title)}\n", f"{escaped(report.lead)}\n" if report.lead else ""]
    for section in report.sections:
        if compared and section.title == REPEAT:
            _, _, rows = comparison_text(*compared, "markdown").partition("\n\n")  # the title is its headline
            lines += ["## Side by side\n", rows]
        lines.append(f"## {section.title}\n")
        lines += [_markdown(one) for one in section.parts if one]
    return "\n".join(filter(None, lines)).rstrip() + "\n"


def _markdown(one: Part) -> str:
    if isinstance(one, str):
        return f"{escaped(one)}\n"
    if isinstance(one, TextTable):
        return markdown_table(one)
    if isinstance(one, Code):
        return "".join(f"    {line}\n" for line in one.lines)
    if isinstance(one, Links):
        return "".join(f"- {escaped(text)}{f': <{link}>' if link else ''}\n" for text, link in one.items)
    return markdown_list(one)


def as_page(report: Report, compared: tuple[Asked, Answer] | None) -> str:
    """The page that `compare` writes if there is something to compare, with the report below; it fetches and
    runs nothing."""
    if compared:
        whole = comparison_text(*compared, "html")
        body = "".join(_sections(report))
        return whole.replace("<footer>", f"{body}<footer>", 1)
    lead = f'<p class="lead">{safe(report.lead)}</p>' if report.lead else ""
    return page_of(
        safe(report.title), f"<h1>{with_units(safe(report.title))}</h1>{lead}{''.join(_sections(report))}"
    )


def _sections(report: Report) -> Iterator[str]:
    for section in report.sections:
        yield part(section.title, "".join(_html(one) for one in section.parts if one))


def _html(one: Part) -> str:
    if isinstance(one, str):
        return f"<p>{safe(one)}</p>"
    if isinstance(one, TextTable):
        return table(one) if any(one.headings[:1]) else f'<div class="about">{table(one)}</div>'
    if isinstance(one, Code):
        return f"<pre>{chr(10).join(map(safe, one.lines))}</pre>"
    if isinstance(one, Links):
        linked = (
            f'<a href="{safe(link)}">{safe(text)}</a>' if link else safe(text) for text, link in one.items
        )
        return f"<ul>{''.join(f'<li>{item}</li>' for item in linked)}</ul>"
    return bullets(one)
