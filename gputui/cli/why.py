"""What `compare` prints of why sides differ: one block for each row that clearly does."""

from __future__ import annotations

from collections.abc import Sequence

from rich.text import Text

from gputui.analysis.attribution import Attribution
from gputui.cli.tables import Page, Sheet, first_that_fits
from gputui.services.compare.columns import Naming
from gputui.services.compare.why import Why, sentence
from gputui.services.compare.why_text import finding_lines, part_table, trust_line, unattributed


def write_whys(page: Page, whys: Sequence[Why], naming: Naming) -> None:
    """The block of each row, then those that have none with the reason; nothing of what was not profiled."""
    for why in whys:
        if isinstance(why.attribution, Attribution):
            _write_one(page, why, why.attribution, naming.name(why.row))
        elif why.findings_a or why.findings_b:
            page.line()
            page.add(Text(f"{naming.name(why.row)}:", style="bold"))
            _write_findings(page, why)
    absent = list(unattributed(whys, naming))
    if absent:
        page.line()
    for line in absent:
        page.line(line)


def _write_one(page: Page, why: Why, found: Attribution, name: str) -> None:
    page.line()
    page.add(Text.assemble((f"why {name}: ", "bold"), sentence(why.row, found)))
    sheet = first_that_fits(page.width, (_sheet(found, with_peak=True), _sheet(found, with_peak=False)))
    page.table(sheet.headings, sheet.rows, right=range(1, len(sheet.headings)))
    page.line(f"  {trust_line(found)}")
    _write_findings(page, why)


def _write_findings(page: Page, why: Why) -> None:
    for line in finding_lines(why):
        page.line(f"  {line}")


def _sheet(found: Attribution, *, with_peak: bool) -> Sheet:
    words = part_table(found, with_peak=with_peak)
    first, *rest = words.headings
    return Sheet([f"  {first}", *rest], [[f"  {cells[0]}", *cells[1:]] for cells in words.rows])
