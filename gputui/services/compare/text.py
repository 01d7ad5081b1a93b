"""A comparison as plain text, as wide as where it is shown."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from io import StringIO

from rich.console import Console
from rich.text import Text

from gputui.analysis.attribution import Attribution
from gputui.services.compare.columns import COLUMNS, ComparisonColumn, Width
from gputui.services.compare.pairing import Comparison
from gputui.services.compare.row_text import choice_words, difference_words, no_difference_words, side_words
from gputui.services.compare.tables import (
    Naming,
    TextTable,
    absent_lines,
    column_table,
    left_out,
    metric_table,
    performance_lines,
    remarks,
    row_table,
)
from gputui.services.compare.why import Why, sentence
from gputui.services.compare.why_text import finding_lines, part_table, trust_line, unattributed
from gputui.services.support.text_tables import Page, console_on, table_width

_LEAST_WIDE = 100
"""Columns of the terminal from which a wide table is tried."""


def comparisons_as_text(
    pairs: Sequence[tuple[Comparison, Sequence[Why]]],
    ignore: str,
    columns: Sequence[ComparisonColumn] = (),
    width: int | None = None,
) -> str:
    """Each comparison, without escape sequences; without a width in that of the terminal."""
    made = StringIO()
    for page in comparison_pages(pairs, ignore, columns, console_on(made, width, is_terminal=False)):
        page.show()
    return made.getvalue()


def comparison_pages(
    pairs: Sequence[tuple[Comparison, Sequence[Why]]],
    ignore: str,
    columns: Sequence[ComparisonColumn],
    out: Console,
) -> Iterator[Page]:
    """Each comparison once it is laid out."""
    widths: list[Width] = ["narrow", "short"] if out.width < _LEAST_WIDE else ["wide", "narrow", "short"]
    for place, (comparison, whys) in enumerate(pairs):
        page = Page(out)
        if place:
            page.line()
        for letter, side in (("a", comparison.a), ("b", comparison.b)):
            page.line(f"{letter}  {side_words(side, ignore, page.width - 3)}")
        for line in choice_words(comparison, ignore):
            page.line(line)
        if comparison.differs:
            page.line("differs: " + ", ".join(difference_words(d) for d in comparison.differs))
        elif not ignore:
            page.line(f"differs: {no_difference_words(comparison)}")
        page.line()
        naming = Naming(comparison, ignore)
        beside: Sequence[ComparisonColumn] | None
        for beside in (columns, [c for c in columns if not c.table_heading]) if columns else (None,):
            tables = [row_table(comparison, naming, width, beside) for width in widths]
            table = _first_that_fits(page, tables)
            if _fits(page, table):
                break
        styles = ["bold" if row.verdict.word in ("faster", "slower") else "" for row in comparison.rows]
        styles += ["italic"] * (len(table.rows) - len(comparison.rows))
        page.table(table.headings, table.rows, table.numeric, styles)
        for number, note in enumerate(naming.notes, 1):
            page.line(f"[{number}] {note}")
        absent = absent_lines(comparison, columns)
        for line in (*remarks(comparison, naming), *absent, *performance_lines(comparison)):
            page.line(line)
        _write_whys(page, whys, naming)
        _write_table(page, metric_table(comparison, naming))
        for column in COLUMNS:
            if column.default == "below" if beside is None else column in columns and column not in beside:
                _write_table(page, column_table(column, comparison, naming))
        for line in left_out(comparison, naming):
            page.line(line)
        yield page


def _write_table(page: Page, table: TextTable | None) -> None:
    if table is not None:
        page.line()
        page.table(table.headings, table.rows, table.numeric)


def _write_whys(page: Page, whys: Sequence[Why], naming: Naming) -> None:
    """The block of each row, then those that have none with the reason; nothing of what was not profiled."""
    for why in whys:
        name = naming.name(why.row)
        if isinstance(why.attribution, Attribution):
            _write_why(page, why, why.attribution, name)
        elif why.findings_a or why.findings_b:
            page.line()
            page.add(Text(f"{name}:", style="bold"))
            _write_findings(page, why)
    absent = list(unattributed(whys, naming))
    if absent:
        page.line()
    for line in absent:
        page.line(line)


def _write_why(page: Page, why: Why, found: Attribution, name: str) -> None:
    page.line()
    page.add(Text.assemble((f"why {name}: ", "bold"), sentence(why.row, found)))
    tables = [_indented(part_table(found, with_peak=with_peak)) for with_peak in (True, False)]
    table = _first_that_fits(page, tables)
    page.table(table.headings, table.rows, right=range(1, len(table.headings)))
    page.line(f"  {trust_line(found)}")
    _write_findings(page, why)


def _write_findings(page: Page, why: Why) -> None:
    for line in finding_lines(why):
        page.line(f"  {line}")


def _indented(table: TextTable) -> TextTable:
    headings, *rows = ((f"  {first}", *rest) for first, *rest in (table.headings, *table.rows))
    return TextTable(headings, tuple(rows), table.numeric)


def _first_that_fits(page: Page, tables: Sequence[TextTable]) -> TextTable:
    """Else the last."""
    return next((table for table in tables if _fits(page, table)), tables[-1])


def _fits(page: Page, table: TextTable) -> bool:
    return table_width((table.headings, *table.rows), page.encoding) <= page.width
