"""A comparison as plain text, as wide as where it is shown: its rows, what its intervals rest on, and what
would turn its answer round."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Sequence
from io import StringIO
from typing import Any  # JSON

from gputui.analysis.spread import ASSUMED, RUN_DF, BoxSpread
from gputui.document.page import Console, Page, console_on
from gputui.document.spans import Line, Span, command_spans, wrapped
from gputui.model.absent import Missing
from gputui.model.serving import SERVE_PROFILE
from gputui.model.units import RATES, counted, format_hourly, format_percent, three_digits
from gputui.services.compare.columns import COLUMNS, ComparisonColumn
from gputui.services.compare.headline import claim, names_of, subject
from gputui.services.compare.pairing import Comparison, Row, Side, SideCase, main_row
from gputui.services.compare.row_text import (
    choice_words,
    difference_words,
    letter_of,
    no_difference_words,
    part_words,
)
from gputui.services.compare.rows_table import RowOfSides, first_of, rows_of_sides, rows_table
from gputui.services.compare.session import Answer, Asked
from gputui.services.compare.suggestions import effort_words
from gputui.services.compare.tables import (
    Naming,
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
_LINES_AROUND = 4
"""A heading, two blank lines, and the last one."""
_MISSING_SHOWN = 2


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
    """The headline, then each comparison once it is laid out.

    A terminal gets what fits on its screen, unless it is to show all: the main case, then the rows that
    differ most. Anything else gets all rows. Notes, flags, reasons and costs come with `is_verbose`.
    `lines_below` are left free for what the caller prints after it.
    """
    page = Page(out)
    first, *rest = answer.headline.sentences or ("",)
    page.line(first, "title")
    page.part(" ".join(rest) or ())
    page.line()
    most_lines = None if shows_all or is_verbose or not out.is_terminal else out.height - 1 - lines_below
    if len(answer.pairs) > 1 and not (is_verbose or columns):
        _write_sides(page, answer.comparisons, asked.ignore)
        left = _write_shown(page, answer.comparisons, asked.ignore, most_lines)
        if out.is_terminal:
            page.line()
            write_options(page, (*_all(left), "each vs a, with reasons: --verbose", "screen: --tui"))
        yield page
        return
    for place, (comparison, whys) in enumerate(answer.pairs):
        if place:
            page = Page(out)
            page.line()
        end = Page(out)
        for line in _next_lines(answer, comparison, out, is_verbose):
            end.spans(line)
        _write_sides(page, (comparison,), asked.ignore, is_verbose, place)
        left = 0
        if columns or is_verbose or not out.is_terminal:
            _write_rows(page, comparison, asked.ignore, columns, is_verbose)
        else:
            room = None if most_lines is None else most_lines - end.height
            left = _write_shown(page, (comparison,), asked.ignore, room)
        if is_verbose or columns:
            for text in absent_lines(comparison, columns):
                page.line(text)
        if is_verbose:
            _write_more(page, comparison, whys, asked.ignore, columns)
        if end.height:
            page.line()
            page.add(end)
        if out.is_terminal:
            more = _all(left) if is_verbose else [*_all(left), "reasons: --verbose"]
            if not end.height:
                page.line()
            write_options(page, (*more, "screen: --tui", "report: -o report.html"))
        yield page


def _all(left: int) -> list[str]:
    """How to see the rows that are left, if there are any."""
    return [f"{counted(left, 'more row')}: --all"] if left else []


def _write_sides(
    page: Page, comparisons: Sequence[Comparison], ignore: str, is_verbose: bool = False, place: int = 0
) -> None:
    """The sides, and what differs; of a pair as the comparison at this place, and with the runs chosen."""
    letters = [letter_of(number) for number in range(len(comparisons))]
    sides = (comparisons[0].a, *(comparison.b for comparison in comparisons))
    page.table(sides_table(sides, ignore), gap=2)
    if place:
        page.line(part_words(place))
    for line in choice_words(comparisons[0], ignore) if len(comparisons) == 1 else ():
        page.line(line, "dim")
    differs = _differs(letters, comparisons)
    if differs:
        page.line(differs if is_verbose else _one_line(differs, page.width), "dim")
    elif not ignore:
        is_pair = len(comparisons) == 1
        none = no_difference_words(comparisons[0]) if is_pair else "no recorded differences"
        page.line(none, "dim")
    if not is_verbose:
        missing = [
            line
            for letter, comparison in zip(letters, comparisons, strict=True)
            for line in missing_lines(comparison, Naming(comparison, ignore), f"a{letter}")
        ]
        lines = list(dict.fromkeys(missing))  # of which a terminal gets the most serious
        shown = lines[:_MISSING_SHOWN] if page.out.is_terminal else lines
        for line in shown:
            page.line(line, "dim")
        if len(lines) > len(shown):
            page.hint(f"{counted(len(lines) - len(shown), 'more reason')} for missing rows", "--verbose")
    page.line()


def write_options(page: Page, options: Sequence[str]) -> None:
    """As many as fit in one line."""
    fitting = [
        options[:count] for count in range(1, len(options)) if len(" · ".join(options[:count])) <= page.width
    ]
    shown = options if len(" · ".join(options)) <= page.width or not fitting else fitting[-1]
    spans: list[Span] = []
    for option in shown:
        what, _, typed = option.partition(": ")
        spans += [Span(f"{' · ' if spans else ''}{what}: ", "dim"), Span(typed, "accent")]
    page.spans(spans)


def _one_line(text: str, width: int) -> str:
    """As many of its parts as fit, and how many more there are."""
    parts = text.split(", ")
    lines = [", ".join((*parts[:kept], f"{len(parts) - kept} more")) for kept in range(len(parts) - 1, 0, -1)]
    return next((line for line in (text, *lines) if len(line) <= width), (text, *lines)[-1])


def _next_lines(
    answer: Answer, comparison: Comparison, out: Console, is_verbose: bool = False
) -> Iterator[Line]:
    """What would settle the main case, as a command for each box; else how many rows are
    open."""
    if steps := answer.headline.steps:
        yield (Span(f"{answer.headline.purpose}, {effort_words(steps)}:", "dim"),)
        for step in steps:
            yield from command_spans(step.command, out.width if out.is_terminal else None, f"{step.box}$ ")
        return
    turns = [] if is_verbose else turning_points(comparison)
    for condition, then in turns[:_MISSING_SHOWN]:
        lines = wrapped(f"{condition}: {then}", out.width)
        if len(lines) == 1:
            yield Span(f"{condition}: ", "dim"), Span(then)
        elif not out.is_terminal:
            yield from ((Span(line),) for line in lines)
    undecided = sum(
        row.rate.word == "inconclusive"
        and (row.a.run, row.a.result) != (row.b.run, row.b.result)  # nothing tells a measurement from itself
        for row in comparison.rows
    )
    if undecided and not is_verbose:
        rows = f"{undecided} of {counted(len(comparison.rows), 'row')}"
        yield (
            Span(f"can't tell {rows}", "accent"),
            Span(": "),
            Span("--verbose", "accent"),
            Span(" says what would settle them", "dim"),
        )
    sides = zip(names_of(comparison), (comparison.a.run, comparison.b.run), strict=True)
    lacks = [(name, run) for name, run in sides if isinstance(run.price, Missing)]
    if len(lacks) == 1:
        ((name, run),) = lacks
        command = "serve-bench" if run.profile == SERVE_PROFILE else "run"
        why, typed = f"no cost: {name} has no price: ", f"gputui {command} --price USD"
        yield Span(why, "dim"), Span(typed, "accent"), Span(" or --instance TYPE", "dim")


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
    comparison: Comparison,
    ignore: str,
    columns: Sequence[ComparisonColumn],
    is_verbose: bool,
) -> None:
    """The table of rows; chosen columns that do not fit in it have a table each, below."""
    naming = Naming(comparison, ignore)
    made = rows_table(
        (comparison,),
        chosen_rows(rows_of_sides((comparison,), ignore, one_sided=False), None),
        ignore,
        columns or None,
        note=naming.note if is_verbose else lambda row: "",
        has_costs=not (is_verbose or columns),
    )
    shown = page.table(made.table)
    for column in columns:
        if column.table_heading and column.headings[0] not in shown:
            table = column_table(column, comparison, naming)
            page.part(table or ())


def _write_shown(page: Page, comparisons: Sequence[Comparison], ignore: str, most_lines: int | None) -> int:
    """As many rows as there is room for, of a pair with their intervals drawn; how many are left."""
    is_pair = len(comparisons) == 1
    rows = rows_of_sides(comparisons, ignore, one_sided=False)
    room = None if most_lines is None else max(most_lines - page.height - _LINES_AROUND, _LEAST_ROWS)
    shown = chosen_rows(rows, room)
    has_means = is_pair and (room is None or room >= len(shown) + len(comparisons[0].groups))
    page.table(rows_table(comparisons, shown, ignore, is_drawn=is_pair, has_means=has_means).table)
    return len(rows) - len(shown)


def _differs(letters: Sequence[str], comparisons: Sequence[Comparison]) -> str:
    """`differs: driver 550 / 570`, `differs from a: machine, driver (c)`: what, and of several sides of which
    if not of all; empty for nothing."""
    if len(comparisons) == 1:
        words = ", ".join(map(difference_words, comparisons[0].differs))
        return f"differs: {words}" if words else ""
    found: dict[str, list[str]] = {}
    for letter, comparison in zip(letters, comparisons, strict=True):
        for what, _, _ in comparison.differs:
            found.setdefault(what, []).append(letter)
    parts = (
        what if len(of) == len(letters) else f"{what} ({' and '.join(of)})" for what, of in found.items()
    )
    return f"differs from a: {', '.join(parts)}" if found else ""


def _write_more(
    page: Page,
    comparison: Comparison,
    whys: Sequence[Why],
    ignore: str,
    columns: Sequence[ComparisonColumn],
) -> None:
    """Notes, flags, what could have been seen, reasons, metrics, costs, and what was left out."""
    naming = Naming(comparison, ignore)
    for row in comparison.rows:
        naming.note(row)
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
