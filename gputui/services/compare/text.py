"""A comparison as plain text, as wide as where it is shown: its rows, what its intervals rest on, and what
would turn its answer round."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Sequence
from io import StringIO
from typing import Any  # JSON

from gputui.analysis.spread import ASSUMED, RUN_DF, BoxSpread
from gputui.document.page import Console, Page, console_on
from gputui.document.spans import command_spans
from gputui.model.absent import Missing
from gputui.model.serving import SERVE_PROFILE
from gputui.model.units import RATES, counted, format_hourly, format_percent, three_digits
from gputui.services.compare.columns import COLUMNS, ComparisonColumn
from gputui.services.compare.headline import claim, names_of, subject
from gputui.services.compare.pairing import Comparison, Row, Side, SideCase, main_row
from gputui.services.compare.row_text import letter_of
from gputui.services.compare.rows_table import RowOfSides, first_of, rows_of_sides, rows_table
from gputui.services.compare.session import Answer, Asked
from gputui.services.compare.suggestions import effort_words
from gputui.services.compare.tables import (
    Naming,
    about_lines,
    absent_lines,
    below_rows,
    column_table,
    missing_lines,
    sides_table,
)
from gputui.services.compare.why import Why
from gputui.services.results.throughput import run_spread_of
from gputui.services.results.variation import NOTHING_KNOWN

_LEAST_ROWS = 3
_MISSING_SHOWN = 2
_WAYS = ("screen: --tui", "report: -o report.html")


def comparison_as_text(
    asked: Asked,
    answer: Answer,
    columns: Sequence[ComparisonColumn] = (),
    width: int | None = None,
    is_verbose: bool = False,
) -> str:
    """All rows, without escape sequences; without a width in that of the terminal."""
    made = StringIO()
    out = console_on(made, width, is_terminal=False)
    for page in comparison_pages(asked, answer, columns, out, is_verbose):
        page.show()
    return made.getvalue()


def comparison_pages(
    asked: Asked,
    answer: Answer,
    columns: Sequence[ComparisonColumn],
    out: Console,
    is_verbose: bool = False,
    shows_all: bool = False,
    lines_below: int = 0,
) -> Iterator[Page]:
    """The headline, then all sides in one table, or each with its reasons or columns once it is laid out.

    A terminal gets what fits on its screen, unless it is to show all: the main case, then the rows that
    differ most. Anything else gets all rows. Notes, flags, reasons and costs come with `is_verbose`.
    `lines_below` are left free for what the caller prints after it.
    """
    page = Page(out)
    first, *rest = answer.headline.sentences or ("",)
    page.line(first, "title")
    page.part(" ".join(rest) or ())
    page.line()
    is_full = is_verbose or bool(columns)
    most_lines = None if shows_all or is_full or not out.is_terminal else out.height - 1 - lines_below
    groups = [(one,) for one in answer.comparisons] if is_full else [answer.comparisons]
    for place, comparisons in enumerate(groups):
        if place:
            page = Page(out)
            page.line()
        end = Page(out)
        if len(comparisons) == 1:
            _write_next(end, answer, comparisons[0], is_verbose)
        if out.is_terminal:
            end.line()
            more = ["each vs a, with reasons" if len(comparisons) > 1 else "reasons"] * (not is_verbose)
            end.line(" · ".join((*(f"{one}: --verbose" for one in more), *_WAYS)), "dim")
        _write_sides(page, comparisons, asked.ignore, is_verbose, place)
        room = None if most_lines is None else max(most_lines - page.height - end.height - 2, _LEAST_ROWS)
        left = _write_rows(page, comparisons, asked.ignore, columns, is_verbose, room)
        for text in absent_lines(comparisons[0], columns):
            page.line(text)
        if is_verbose:
            _write_more(page, comparisons[0], answer.whys[place], asked.ignore, columns)
        if left:
            page.hint(counted(left, "more row"), "--all")
        page.add(end)
        yield page


def _write_sides(
    page: Page, comparisons: Sequence[Comparison], ignore: str, is_verbose: bool, place: int
) -> None:
    """The sides, what differs, and which rows are missing; of a pair as the comparison at this place."""
    sides = (comparisons[0].a, *(comparison.b for comparison in comparisons))
    page.table(sides_table(sides, ignore), gap=2)
    for line in about_lines(comparisons, ignore, place, None if is_verbose else page.width):
        page.line(line, "dim")
    if not is_verbose:
        missing = dict.fromkeys(
            line
            for number, comparison in enumerate(comparisons)
            for line in missing_lines(comparison, Naming(comparison, ignore), f"a{letter_of(number)}")
        )
        shown = list(missing)[: _MISSING_SHOWN if page.out.is_terminal else None]  # the most serious
        for line in shown:
            page.line(line, "dim")
        if len(missing) > len(shown):
            page.hint(f"{counted(len(missing) - len(shown), 'more reason')} for missing rows", "--verbose")
    page.line()


def _write_next(page: Page, answer: Answer, comparison: Comparison, is_verbose: bool) -> None:
    """What would settle the main case, as a command for each box; else what would turn the answer round, and
    how to get costs."""
    width = page.width if page.out.is_terminal else None
    if steps := answer.headline.steps:
        page.line()
        page.line(f"{answer.headline.purpose}, {effort_words(steps)}:", "dim")
        for step in steps:
            for spans in command_spans(step.command, width, f"{step.box}$ "):
                page.spans(spans)
        return
    found = [] if is_verbose else turning_points(comparison)[:_MISSING_SHOWN]
    hints = [(f"{condition}: {then}", "dim") for condition, then in found]
    sides = zip(names_of(comparison), (comparison.a.run, comparison.b.run), strict=True)
    lacks = [(name, run) for name, run in sides if isinstance(run.price, Missing)]
    if len(lacks) == 1:
        ((name, run),) = lacks
        command = "serve-bench" if run.profile == SERVE_PROFILE else "run"
        typed = f"gputui {command} --price USD or --instance TYPE"
        hints.append((f"no cost: {name} has no price: {typed}", "dim"))
    if hints:
        page.line()
    for text, style in hints:
        page.line(text, style)


def chosen_rows(rows: Sequence[RowOfSides], room: int | None) -> Sequence[RowOfSides]:
    """As many as there is room for: the main case, the largest decided differences, then the undecided; None
    is room for all: the main case, the others of GPUs, then those of CPUs, each as they were measured."""
    main, is_short = main_row([first_of(of) for of in rows]), room is not None

    def place(of: RowOfSides) -> tuple[bool, int, bool, float]:
        row = first_of(of)
        is_one_sided = row.a.result is None or row.b.result is None
        kind = 0 if row.rate.differs else 1 if row.rate.word == "inconclusive" else 3 if is_one_sided else 2
        size = 0.0 if row.rate.ratio is None else abs(math.log(row.rate.ratio[0]))
        return row is not main, kind * is_short, row.case.variant.device_class != "gpu", -size * is_short

    return sorted(rows, key=place)[:room]


def _write_rows(
    page: Page,
    comparisons: Sequence[Comparison],
    ignore: str,
    columns: Sequence[ComparisonColumn],
    is_verbose: bool,
    room: int | None,
) -> int:
    """As many rows as there is room for, of a pair on a terminal with their intervals drawn; chosen columns
    that do not fit have a table each, below. How many rows are left."""
    is_pair, is_full = len(comparisons) == 1, is_verbose or bool(columns)
    naming = Naming(comparisons[0], ignore)
    rows = rows_of_sides(comparisons, ignore, one_sided=False)
    shown = chosen_rows(rows, room)
    made = rows_table(
        comparisons,
        shown,
        ignore,
        columns or None,
        note=naming.note if is_verbose else lambda row: "",
        is_drawn=is_pair and page.out.is_terminal and not is_full,
        has_costs=not is_full,
        has_means=is_pair and (room is None or room >= len(shown) + len(comparisons[0].groups)),
    )
    headings = page.table(made.table)
    for column in columns:
        if column.table_heading and column.headings[0] not in headings:
            page.part(column_table(column, comparisons[0], naming) or ())
    return len(rows) - len(shown)


def _write_more(
    page: Page,
    comparison: Comparison,
    whys: Sequence[Why],
    ignore: str,
    columns: Sequence[ComparisonColumn],
) -> None:
    """Notes, flags, what could have been seen, reasons, metrics, costs, and what was left out."""
    naming = Naming(comparison, ignore)
    for of in chosen_rows(rows_of_sides((comparison,), ignore, one_sided=False), None):
        naming.note(first_of(of))
    below = [column for column in COLUMNS if column.default == "below" and not columns]
    for part in below_rows(comparison, whys, naming, below, spread_lines(comparison)):
        page.part(part)


_MOST_CASES = 4


def turning_points(comparison: Comparison) -> list[tuple[str, str]]:
    """Conditions, and what holds then: `if L4 costs $2.25/h or more`, `H200 is cheaper per token`.

    From the price at which costs are even, and from the cases that are decided the other way.

    They are of the main case; none where it is undecided.
    """
    main = main_row(comparison.rows)
    if main is None or not main.rate.differs:
        return []
    return [*price_points(main, comparison), *_cases(main, comparison)]


def price_points(main: Row, comparison: Comparison) -> Iterable[tuple[str, str]]:
    """The hourly price of b at which a unit of work costs the same on both."""
    noun, (name_a, name_b) = RATES[main.case.unit].noun, names_of(comparison)
    a, b = main.a.run, main.b.run
    if a is None or b is None or a.run_id == b.run_id or main.rate.ratio is None:
        return
    ratio = main.rate.ratio[0]
    if main.cost.ratio is None or isinstance(b.price, Missing):
        share = f"{format_percent(ratio)} of" if ratio < 1 else f"{three_digits(ratio)} times"
        yield (f"if {name_b} costs less than {share} {name_a}", f"{name_b} is cheaper per {noun}")
        return
    even = format_hourly(float(f"{b.price.usd_per_hour / main.cost.ratio[0]:.3g}"))
    if main.cost.word == "cheaper":
        yield (f"if {name_b} costs {even} or more", f"{name_a} is cheaper per {noun}")
    elif main.cost.word == "dearer":
        yield (f"if {name_b} costs {even} or less", f"{name_b} is cheaper per {noun}")


def _cases(main: Row, comparison: Comparison) -> Iterable[tuple[str, str]]:
    """Cases decided the other way, by cost where costs are known."""
    by_cost = main.cost.differs
    mine = (main.cost if by_cost else main.rate).verdict.word
    against = [
        row
        for row in comparison.rows
        if row is not main
        and not row.is_host_bound
        and (j := row.cost if by_cost else row.rate).differs
        and j.verdict.word != mine
    ]
    better = names_of(comparison)[mine == "slower"]
    for row in against[:_MOST_CASES]:
        yield (f"for {subject(row, comparison.rows)}", f"{claim(row, comparison)}: take {better}")
    if len(against) > _MOST_CASES:
        yield (counted(len(against) - _MOST_CASES, "more case"), f"take {better}")


def spread_lines(comparison: Comparison) -> Iterator[str]:
    """A line for each side and device; one for both sides if they are one run."""
    is_one_run = comparison.a.run.run_id == comparison.b.run.run_id
    sides = (("", comparison.a),) if is_one_run else (("a: ", comparison.a), ("b: ", comparison.b))
    for name, side in sides:
        for device, case in _devices(side).items():
            prior, runs = _box_spread(side, case), run_spread_of(case.result)
            launches = "as much as assumed"
            if prior.rows:
                known = f"{counted(prior.launches, 'launch')} of {counted(prior.rows, 'row')}"
                launches = f"{math.sqrt(prior.factor):.2g} times as much as assumed, as {known} show"
            how = "assumed" if runs.df <= RUN_DF else "as its runs show"
            of_runs = f"; its runs vary by {format_percent(math.sqrt(runs.variance))}, {how}"
            yield f"{name}launches on the {device.upper()} vary {launches}{'' if is_one_run else of_runs}"


def spread_as_json(side: Side) -> list[dict[str, Any]]:
    """The same as numbers, for one side."""
    found = []
    for device, case in _devices(side).items():
        prior = _box_spread(side, case)
        runs = run_spread_of(case.result)
        found.append(
            {
                "device_class": device,
                "launch_sd_over_assumed": math.sqrt(prior.factor) if prior.rows else None,
                "prior_df": prior.df,
                "rows": prior.rows,
                "launches": prior.launches,
                "run_sd": math.sqrt(runs.variance),
                "run_df": None if math.isinf(runs.df) else runs.df,
            }
        )
    return found


def _box_spread(side: Side, case: SideCase) -> BoxSpread:
    known = side.variations.get(case.run.machine.machine_id, NOTHING_KNOWN)
    return known.launches.get(case.result.case.variant.device_class, ASSUMED)


def _devices(side: Side) -> dict[str, SideCase]:
    """A measured case of each class of device."""
    measured = [case for case in side.cases if case.result.outcome == "ok"]
    return {case.result.case.variant.device_class: case for case in reversed(measured)}
