"""A report as Markdown, to paste into an issue, and as one HTML page."""

from __future__ import annotations

from collections.abc import Iterator

from gputui.document.html import html_of, page_of, part, safe, with_units
from gputui.document.markdown import escaped, markdown_of
from gputui.services.compare.formats import comparison_text
from gputui.services.compare.session import Answer, Asked
from gputui.services.share.report import REPEAT, Report


def as_markdown(report: Report, compared: tuple[Asked, Answer] | None) -> str:
    """Headings, lists and tables; names from files cannot become markup."""
    lines = [f"# {escaped(report.title)}\n", f"{escaped(report.lead)}\n" if report.lead else ""]
    for section in report.sections:
        if compared and section.title == REPEAT:
            _, _, rows = comparison_text(*compared, "markdown").partition("\n\n")  # the title is its headline
            lines += ["## Side by side\n", rows]
        lines.append(f"## {section.title}\n")
        lines += [markdown_of(one) for one in section.parts if one]
    return "\n".join(filter(None, lines)).rstrip() + "\n"


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
        yield part(section.title, "".join(html_of(one) for one in section.parts if one))
