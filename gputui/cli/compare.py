"""`gputui compare`: result files, or the variants of one, side by side."""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import click

from gputui.analysis.cost import Cost
from gputui.analysis.verdict import RatioEstimate, SpeedEstimate
from gputui.errors import EXIT_DONE, GputuiError
from gputui.model.absent import Missing
from gputui.model.case import WHOLE_BOX
from gputui.model.units import RATES, format_percent, format_rate, format_ratio, format_usd, three_digits
from gputui.services.comparison import (
    DIMENSIONS,
    Cell,
    Comparison,
    Row,
    Side,
    compare_sides,
    side_of_runs,
    sides_by,
    telling_dimension,
)
from gputui.services.evidence import Evidence
from gputui.services.explaining import Why, explain
from gputui.services.selecting import select_runs

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
    selections = [select_runs(text, trust=trust, pool=pool, with_passes=True) for text in files]
    for selection in selections:
        for warning in selection.warnings:
            click.echo(warning, err=True)
    if by is None and len(selections) > 1:
        sides = [side_of_runs(selection.text, selection.runs, pool=pool) for selection in selections]
        ignore = ""
    else:
        runs = [run for selection in selections for run in selection.runs]
        ignore = by or telling_dimension(runs)
        if ignore in ("device", "precision", "threads", "mode"):
            side_of_runs(selections[0].text, runs)  # several machines in one side would be mixed silently
        sides = list(sides_by(ignore, runs, pool=pool))
    evidence = Evidence(selections, trust=trust)
    comparisons = [
        compare_sides(sides[0], side, ignore=ignore, conditions=evidence.conditions) for side in sides[1:]
    ]
    if not any(comparison.rows for comparison in comparisons):
        raise GputuiError(
            "nothing was measured on any side", "gputui show RUN FILE tells why each case was not run"
        )
    whys = [explain(comparison, evidence) for comparison in comparisons]
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
        out.print(Text(f"{letter}  {_describe(side, ignore, out.width - 3)}"))
    if comparison.differs:
        out.print(Text("differs: " + ", ".join(_difference(d) for d in comparison.differs)))
    elif not ignore:
        out.print(Text("differs: nothing that is recorded"))
    out.print()
    common = _common_words(comparison, ignore)
    notes: list[str] = []

    def name(row: Row) -> str:
        return _name(row, common, ignore)

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
            names = ", ".join(dict.fromkeys(_name(row, common, ignore) for row in alone))
            out.print(Text(f"only with {ignore} {side.name}: {names}"))


def _sheet(comparison: Comparison, common: list[str], ignore: str, notes: list[str], form: _Form) -> Sheet:
    """The table in one of its forms; reasons are added to `notes` and referred to by number."""
    from gputui.cli.tables import Sheet

    headings = [f"case ({' '.join(common)})" if common else "case"]
    headings += ["a per s", "b per s"] if form.is_short else ["a", "b"]
    headings += ["b against a", "verdict"]
    with_peak = form.is_wide and any(_of_peak(row.a) or _of_peak(row.b) for row in comparison.rows)
    if form.is_wide:
        headings += ["n", *(["of peak a/b"] if with_peak else [])]
    rows = []
    for row in comparison.rows:
        cells = [_name(row, common, ignore, is_short=form.is_short), _cell(row.a), _cell(row.b)]
        if form.is_short:
            cells = [cell.removesuffix("/s") for cell in cells]
        cells += [_ratio(row, wide=form.is_wide), _verdict(row, notes)]
        if form.is_wide:
            cells += [_counts(row), *([_of_peaks(row)] if with_peak else [])]
        rows.append(cells)
    for group in comparison.groups:
        mean = "—" if isinstance(group.mean, Missing) else _interval(group.mean, wide=form.is_wide)
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


def _describe(side: Side, ignore: str, width: int) -> str:
    """A side in one line: name, box, torch, price, launches, day; the last ones fall away if it is narrow."""
    from gputui.cli.tables import day, device_words, torch_words

    run = side.run
    launches = max(
        (len([m for m in c.result.measurements if m.outcome == "ok"]) for c in side.cases), default=0
    )
    platforms = [layer.name for layer in run.machine.layers if layer.layer in ("platform", "scheduler", "vm")]
    where = f"{platforms[0]} " if platforms and platforms[0] != "virtual-machine" else ""
    parts = [
        f"{ignore} {side.name}" if ignore else side.name,
        where + device_words(run),
        torch_words(run),
        "" if isinstance(run.price, Missing) else f"${run.price.usd_per_hour:g}/h",
        f"{launches} launch{'es' if launches != 1 else ''}",
        day(run),
    ]
    parts = [part for part in parts if part]
    while len(parts) > 2 and sum(map(len, parts)) + 2 * (len(parts) - 1) > width:
        parts.pop()
    return "  ".join(parts)


def _difference(difference: tuple[str, str, str]) -> str:
    what, on_a, on_b = difference
    return what if what == "machine" else f"{what} {on_a} / {on_b}"


def _words(row: Row) -> dict[str, str]:
    variant = row.case.variant
    if row.case.is_program:
        device = "" if variant.device_class == WHOLE_BOX else variant.device_class
        return {"size": "", "device": device, "precision": "", "mode": "", "threads": ""}
    threads = {"1": "1t", "all": "all", "host": ""}.get(variant.threads, variant.threads)
    words = {"size": row.case.work.size, "device": variant.device_class, "precision": variant.precision}
    return {**words, "mode": "" if variant.mode == "eager" else variant.mode, "threads": threads}


def _common_words(comparison: Comparison, ignore: str) -> list[str]:
    """What all rows share, to be said once in the heading."""
    rows = [_words(row) for row in comparison.rows]
    keys = [key for key in ("size", "device", "precision", "mode", "threads") if key != ignore]
    values = [{row[key] for row in rows} for key in keys]
    return [next(iter(value)) for value in values if len(value) == 1 and "" not in value]


def _name(row: Row, common: list[str], ignore: str, *, is_short: bool = False) -> str:
    unsaid = ("", "all", *common) if is_short else ("", *common)
    words = [word for key, word in _words(row).items() if key != ignore and word not in unsaid]
    return " ".join((row.case.work.workload, *words))


def _cell(cell: Cell) -> str:
    if isinstance(cell.speed, SpeedEstimate) and cell.result is not None:
        return format_rate(cell.speed.units_per_s, cell.result.case.unit)
    return "—" if cell.result is None else cell.result.outcome


def _ratio(row: Row, *, wide: bool) -> str:
    return "—" if isinstance(row.estimate, Missing) else _interval(row.estimate, wide=wide)


def _interval(estimate: object, *, wide: bool) -> str:
    """A ratio told from the side of the larger: `10.8x ±0.2 less`, or with both ends."""
    ratio, low, high = (getattr(estimate, name) for name in ("ratio", "low", "high"))
    word = "more"
    if ratio < 1:
        ratio, low, high, word = 1 / ratio, 1 / high, 1 / low, "less"
    if wide:
        return f"{three_digits(ratio)}x ({three_digits(low)}–{three_digits(high)}) {word}"
    half = ratio * math.expm1(math.log(high / low) / 2)
    return f"{three_digits(ratio)}x ±{three_digits(half)} {word}"


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


def _of_peaks(row: Row) -> str:
    sides = (_of_peak(row.a), _of_peak(row.b))
    return "/".join(side or "—" for side in sides) if any(sides) else ""


def _of_peak(cell: Cell) -> str:
    """Share of the data sheet's peak, of FLOPs before bytes; empty where none is known."""
    shares = [use.of_sheet for use in cell.uses if not isinstance(use.of_sheet, Missing)]
    return format_percent(shares[0]) if shares else ""


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
            rows.append((_name(row, common, ignore), "", ""))
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
        add_row(made, _name(row, common, ignore), _cost(row.a), _cost(row.b), unit)
    out.print()
    out.print(made)


def _cost(cell: Cell) -> str:
    if not isinstance(cell.cost, Cost):
        return "—"
    cost = cell.cost
    share = f" ({format_percent(cost.share)} share)" if cost.is_share else ""
    half = math.expm1(math.log(cost.high / cost.low) / 2) if cost.low > 0 else 0.0
    interval = f" ±{format_percent(half)}" if half else ""
    return format_usd(cost.usd_per_million) + interval + share
