"""What `compare` prints of why sides differ: one block for each row that clearly does."""

from __future__ import annotations

from collections.abc import Sequence

from rich.console import Console
from rich.text import Text

from gputui.analysis.attribution import Attribution
from gputui.cli.tables import Sheet, add_row, first_that_fits, table
from gputui.services.comparison_tables import Naming
from gputui.services.explaining import Why, sentence
from gputui.services.why_wording import finding_lines, part_table, trust_line, unattributed


def print_whys(out: Console, whys: Sequence[Why], naming: Naming) -> None:
    """The block of each row, then those that have none with the reason; nothing of what was not profiled."""
    for why in whys:
        if isinstance(why.attribution, Attribution):
            _print_one(out, why, why.attribution, naming.name(why.row))
        elif why.findings_a or why.findings_b:
            out.print()
            out.print(Text(f"{naming.name(why.row)}:", style="bold"))
            _print_findings(out, why)
    absent = list(unattributed(whys, naming))
    if absent:
        out.print()
    for line in absent:
        out.print(Text(line))


def _print_one(out: Console, why: Why, found: Attribution, name: str) -> None:
    out.print()
    out.print(Text.assemble((f"why {name}: ", "bold"), sentence(why.row, found)))
    sheet = first_that_fits(out.width, (_sheet(found, with_peak=True), _sheet(found, with_peak=False)))
    made = table(sheet.headings, right=range(1, len(sheet.headings)))
    for cells in sheet.rows:
        add_row(made, *cells)
    out.print(made)
    out.print(Text(f"  {trust_line(found)}"))
    _print_findings(out, why)


def _print_findings(out: Console, why: Why) -> None:
    for line in finding_lines(why):
        out.print(Text(f"  {line}"))


def _sheet(found: Attribution, *, with_peak: bool) -> Sheet:
    words = part_table(found, with_peak=with_peak)
    first, *rest = words.headings
    return Sheet([f"  {first}", *rest], [[f"  {cells[0]}", *cells[1:]] for cells in words.rows])
