"""A report as Markdown, to paste into an issue, and as one HTML page."""

from __future__ import annotations

from collections.abc import Iterator

from gputui.document.drawings import stacked_bar
from gputui.document.markup import (
    bullets,
    escaped,
    html_of,
    markdown_of,
    markdown_table,
    page_of,
    part,
    safe,
    table,
    with_units,
)
from gputui.document.spans import Span
from gputui.document.table import Table, text_of
from gputui.model.units import format_percent
from gputui.services.compare.formats import comparison_text
from gputui.services.compare.session import Answer, Asked
from gputui.services.results.headline import as_sentence
from gputui.services.share.report import REPEAT, Report


def as_markdown(report: Report, compared: tuple[Asked, Answer] | None) -> str:
    """Headings, lists and tables; names from files cannot become markup."""
    lines = [f"# {escaped(report.title)}\n", f"{escaped(report.lead)}\n" if report.lead else ""]
    words, parts = report.step
    shares = ", ".join(f"{name} {format_percent(share)}" for name, share, _ in parts)
    step = as_sentence(": ".join(filter(None, (words, shares))))
    lines += [markdown_table(report.figures), markdown_of(f"{step}.") if step else ""]
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
    head = f"<h1>{with_units(safe(report.title))}</h1>{lead}{_drawn(report)}"
    return page_of(safe(report.title), head + "".join(_sections(report)))


def _drawn(report: Report) -> str:
    """The figures side by side, and the step as a bar, or why it is not known; nothing without figures."""
    if report.figures is None:
        return ""
    figures = "".join(
        f'<div><p class="dim">{safe(column.heading)}</p><p class="figure">{safe(text_of(figure))}</p>'
        f'<p class="{verdict.style}">{safe(verdict.text)}</p></div>'
        for column in report.figures.written
        for figure, verdict in [column.cells]
        if isinstance(verdict, Span)
    )
    words, parts = as_sentence(report.step[0]), report.step[1]
    step = part(words, table(Table((stacked_bar(parts),)))) if parts else bullets([words], "notes")
    return f'\n<div class="figures">{figures}</div>{step}'


def _sections(report: Report) -> Iterator[str]:
    for section in report.sections:
        yield part(section.title, "".join(html_of(one) for one in section.parts if one))
