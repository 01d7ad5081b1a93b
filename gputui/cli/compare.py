"""`gputui compare`: result files, or the variants of one, side by side."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import click

from gputui.analysis.cost import Cost
from gputui.analysis.verdict import RatioEstimate
from gputui.errors import EXIT_DONE
from gputui.model.absent import Missing
from gputui.model.units import RATES, format_percent, format_ratio
from gputui.services.comparing import ask
from gputui.services.comparison import (
    DIMENSIONS,
    Comparison,
    Row,
)
from gputui.services.explaining import Why
from gputui.services.row_wording import (
    common_words,
    cost_text,
    difference_words,
    interval_text,
    peak_text,
    peaks_text,
    rate_text,
    ratio_text,
    row_name,
    side_words,
)

if TYPE_CHECKING:
    from rich.console import Console

    from gputui.cli.tables import Sheet


@dataclass(frozen=True, slots=True)
class _Form:
    """How much a table says; the first that fits is taken."""

    is_wide: bool
    """The interval is printed with both ends, and the number of blocks beside it."""
    is_short: bool
    """Rates are said to be per second in the heading, and all cores of a CPU are not said."""
    from_width: int
    """Columns of the terminal from which it is tried."""


_FORMS = (_Form(True, False, 100), _Form(False, False, 0), _Form(False, True, 0))


@click.command()
@click.argument("files", nargs=-1, required=True, metavar="F[@RUN]...")
@click.option(
    "--by", type=click.Choice(list(DIMENSIONS)), help="Compare the values of this within the files."
)
@click.option("--pool", is_flag=True, help="Take the launches of all runs of a side together.")
@click.option("--format", "form", type=click.Choice(["text", "json"]), default="text", show_default=True)
@click.option("--trust", is_flag=True, help="Also read files that hold views or macros.")
def command(files: tuple[str, ...], by: str | None, pool: bool, form: str, trust: bool) -> int:
    """Compare result files; the first is the baseline. One file: its variants against each other."""
    asked = ask(files, by=by, pool=pool, trust=trust)
    for warning in asked.warnings:
        click.echo(warning, err=True)
    answer = asked.compared()
    comparisons, whys, ignore = answer.comparisons, answer.whys, asked.ignore
    if form == "json":
        from gputui.services.export import comparison_as_json

        plain = [comparison_as_json(*pair) for pair in zip(comparisons, whys, strict=True)]
        click.echo(json.dumps({"schema": 1, "by": ignore, "comparisons": plain}, indent=1))
    else:
        for index, comparison in enumerate(comparisons):
            if index:
                click.echo()
            _print(comparison, whys[index], ignore)
    return EXIT_DONE


def _print(comparison: Comparison, whys: Sequence[Why], ignore: str) -> None:
    from rich.text import Text

    from gputui.cli.tables import add_row, console, first_that_fits, table
    from gputui.cli.why import print_whys

    out = console()
    for letter, side in (("a", comparison.a), ("b", comparison.b)):
        out.print(Text(f"{letter}  {side_words(side, ignore, out.width - 3)}"))
    if comparison.differs:
        out.print(Text("differs: " + ", ".join(difference_words(d) for d in comparison.differs)))
    elif not ignore:
        out.print(Text("differs: nothing that is recorded"))
    out.print()
    common = common_words(comparison, ignore)
    notes: list[str] = []

    def name(row: Row) -> str:
        return row_name(row, common, ignore)

    forms = [
        _sheet(comparison, common, ignore, notes, form) for form in _FORMS if out.width >= form.from_width
    ]
    sheet = first_that_fits(out.width, forms)
    made = table(sheet.headings, right=(1, 2, 3))
    for index, cells in enumerate(sheet.rows):
        is_mean = index >= len(comparison.rows)
        told = is_mean or comparison.rows[index].verdict.word in ("faster", "slower")
        add_row(made, *cells, style="italic" if is_mean else "bold" if told else "")
    out.print(made)
    for number, note in enumerate(notes, 1):
        out.print(Text(f"[{number}] {note}"))
    for line in (*_resolvable(comparison, name), *_flags(comparison, name)):
        out.print(Text(line))
    print_whys(out, whys, name)
    _print_figures(out, comparison, common, ignore)
    _print_costs(out, comparison, common, ignore)
    for reason, count in comparison.unmeasured:
        out.print(Text(f"{count} case{'s' if count > 1 else ''} on neither side: {reason}"))
    for side, letter in ((comparison.a, "a"), (comparison.b, "b")):
        alone = [
            row for row in comparison.one_sided if (row.a if letter == "a" else row.b).result is not None
        ]
        if alone:
            names = ", ".join(dict.fromkeys(row_name(row, common, ignore) for row in alone))
            out.print(Text(f"only with {ignore} {side.name}: {names}"))


def _sheet(comparison: Comparison, common: list[str], ignore: str, notes: list[str], form: _Form) -> Sheet:
    """The table in one of its forms; reasons are added to `notes` and referred to by number."""
    from gputui.cli.tables import Sheet

    headings = [f"case ({' '.join(common)})" if common else "case"]
    headings += ["a per s", "b per s"] if form.is_short else ["a", "b"]
    headings += ["b against a", "verdict"]
    with_peak = form.is_wide and any(peak_text(row.a) or peak_text(row.b) for row in comparison.rows)
    if form.is_wide:
        headings += ["n", *(["of peak a/b"] if with_peak else [])]
    rows = []
    for row in comparison.rows:
        cells = [row_name(row, common, ignore, is_short=form.is_short), rate_text(row.a), rate_text(row.b)]
        if form.is_short:
            cells = [cell.removesuffix("/s") for cell in cells]
        cells += [ratio_text(row, wide=form.is_wide), _verdict(row, notes)]
        if form.is_wide:
            cells += [_counts(row), *([peaks_text(row)] if with_peak else [])]
        rows.append(cells)
    for group in comparison.groups:
        mean = "—" if isinstance(group.mean, Missing) else interval_text(group.mean, wide=form.is_wide)
        cells = [f"mean of {group.common}/{group.rows} {group.group}", "", "", mean, ""]
        rows.append(cells + [""] * (len(headings) - len(cells)))
    return Sheet(headings, rows)


def _resolvable(comparison: Comparison, name: Callable[[Row], str]) -> Iterable[str]:
    """What would have shown where nothing did: `would have shown: gemm 1.31x, gpt_train 1.05x`."""
    told = [
        f"{name(row)} {format_ratio(row.estimate.resolvable)}"
        for row in comparison.rows
        if row.verdict.word in ("same", "inconclusive") and isinstance(row.estimate, RatioEstimate)
    ]
    if told:
        yield f"smallest ratio that would have shown: {', '.join(told)}"


def _flags(comparison: Comparison, name: Callable[[Row], str]) -> Iterable[str]:
    """`! b power-capped: gpt_train 34 %, gemm 12 % of the time`, one line for each side and word."""
    found: dict[tuple[str, str], list[str]] = {}
    for row in comparison.rows:
        for flag in row.flags:
            said = f"{name(row)} {format_percent(flag.share)}"
            found.setdefault((flag.side, flag.word), []).append(said)
    for (side, word), rows in sorted(found.items()):
        yield f"! {side} {word}: {', '.join(rows)} of the time"


def _verdict(row: Row, notes: list[str]) -> str:
    said = "; ".join(filter(None, (row.verdict.reason, row.note)))
    if not said:
        return row.verdict.word
    if said not in notes:
        notes.append(said)
    return f"{row.verdict.word} [{notes.index(said) + 1}]"


def _counts(row: Row) -> str:
    if isinstance(row.estimate, RatioEstimate):
        return f"{row.estimate.n_a}/{row.estimate.n_b}"
    return ""


def _print_figures(out: Console, comparison: Comparison, common: list[str], ignore: str) -> None:
    """What the cases gave besides their speed, side by side and without a verdict."""
    from gputui.cli.tables import add_row, table
    from gputui.model.units import format_figure
    from gputui.services.figures import figures_of

    rows: list[tuple[str, str, str]] = []
    for row in comparison.rows:
        sides = [
            {f.key: f for f in figures_of(cell.result)} if cell.result else {} for cell in (row.a, row.b)
        ]
        found = {**sides[1], **sides[0]}
        if found:
            rows.append((row_name(row, common, ignore), "", ""))
        for key, figure in found.items():
            told = [side.get(key) for side in sides]
            said = [
                "—" if f is None or isinstance(f.value, Missing) else format_figure(f.value, f.unit)
                for f in told
            ]
            rows.append((f"  {figure.title}", said[0], said[1]))
    if not rows:
        return
    made = table(["figures, not judged", "a", "b"], right=(1, 2))
    for cells in rows:
        add_row(made, *cells)
    out.print()
    out.print(made)


def _print_costs(out: Console, comparison: Comparison, common: list[str], ignore: str) -> None:
    """What a million units of each row's work cost, if a price is known on either side."""
    from gputui.cli.tables import add_row, table

    priced = [r for r in comparison.rows if isinstance(r.a.cost, Cost) or isinstance(r.b.cost, Cost)]
    if not priced:
        return
    made = table(["cost", "a", "b", "for"], right=(1, 2))
    for row in priced:
        unit = RATES[row.case.unit].per_million
        add_row(made, row_name(row, common, ignore), cost_text(row.a), cost_text(row.b), unit)
    out.print()
    out.print(made)
