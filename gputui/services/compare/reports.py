"""A comparison as somebody reads it: as plain text, as wide as where it is shown; as Markdown, to paste into
a pull request; and as one self-contained HTML page, to send to somebody who decides: the answer, every case,
and the evidence of each. No script, no style attribute; the style sheet of the page knows the classes."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from itertools import islice
from typing import Any  # JSON

from gputui.analysis.spread import ASSUMED, RUN_DF, BoxSpread
from gputui.document.markup import (
    bullets,
    command_line,
    escaped,
    folded,
    html_of,
    letter,
    markdown_of,
    page_of,
    part,
    safe,
    table,
    with_units,
)
from gputui.document.page import Console, Page
from gputui.document.spans import command_spans
from gputui.document.table import table_of
from gputui.model.absent import Missing
from gputui.model.result import Spread
from gputui.model.serving import SERVE_PROFILE
from gputui.model.units import RATES, counted, format_hourly, format_percent, three_digits
from gputui.services.compare.columns import COLUMNS, COST, ComparisonColumn
from gputui.services.compare.headline import Headline, claim, names_of, subject
from gputui.services.compare.pairing import Comparison, Row, Side, main_row, performance_checks_of_side
from gputui.services.compare.row_text import choice_words, letter_of, no_difference_words
from gputui.services.compare.rows_table import RowOfSides, first_of, rows_of_sides, rows_table
from gputui.services.compare.session import Answer, Asked
from gputui.services.compare.suggestions import effort_words
from gputui.services.compare.tables import (
    BELOW,
    Naming,
    about_lines,
    absent_lines,
    below_rows,
    column_table,
    disturbances,
    missing_lines,
    pair_parts,
    row_table,
    sides_table,
)
from gputui.services.results.throughput import is_undecidable, run_spread_of
from gputui.services.results.variation import NOTHING_KNOWN

_LEAST_ROWS = 3
_MISSING_SHOWN = 2
_WAYS = ("screen: --tui", "report: -o report.html")


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
    ignore, is_full = asked.ignore, is_verbose or bool(columns)
    most_lines = None if shows_all or is_full or not out.is_terminal else out.height - 1 - lines_below
    groups = [(one,) for one in answer.comparisons] if is_full else [answer.comparisons]
    for place, comparisons in enumerate(groups):
        if place:
            page = Page(out)
            page.line()
        first_one, is_pair = comparisons[0], len(comparisons) == 1
        naming, end = Naming(first_one, ignore), _end(out, answer, comparisons, is_verbose)
        _write_sides(page, comparisons, ignore, is_verbose, place)
        room = None if most_lines is None else max(most_lines - page.height - end.height - 2, _LEAST_ROWS)
        rows = rows_of_sides(comparisons, ignore, one_sided=False)
        shown = chosen_rows(rows, room)
        made = rows_table(
            comparisons,
            shown,
            ignore,
            columns or None,
            note=naming.note if is_verbose else _whose_box_was_busy,
            is_drawn=is_pair and out.is_terminal and not is_full,
            has_costs=not is_full,
            has_means=is_pair and (room is None or room >= len(shown) + len(first_one.groups)),
        )
        headings = page.table(made)
        for column in columns:
            if column.table_heading and column.headings[0] not in headings:
                page.part(column_table(column, first_one, naming) or ())
        for text in absent_lines(first_one, columns):
            page.line(text)
        if is_verbose:
            for part in below_rows(first_one, naming, () if columns else BELOW, spread_lines(first_one)):
                page.part(part)
        if len(shown) < len(rows):
            page.hint(counted(len(rows) - len(shown), "more row"), "--all")
        page.lines += end.lines
        yield page


def _whose_box_was_busy(row: Row) -> str:
    """` (b busy)`: whose rate holds the waiting for CPUs that others had, unlike those in the other rows."""
    compared = row.results if row.rate.ratio is not None else ()
    sides = [letter for letter, result in compared if is_undecidable(result)]
    return f" ({', '.join(sides)} busy)" if sides else ""


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


def _end(out: Console, answer: Answer, comparisons: Sequence[Comparison], is_verbose: bool) -> Page:
    """Of a pair what would settle the main case, as a command for each box; else what would turn the answer
    round, and how to get costs. On a terminal what else could be typed."""
    page, is_pair = Page(out), len(comparisons) == 1
    steps = answer.headline.steps if is_pair else ()
    if steps:
        page.line()
        page.line(f"{answer.headline.purpose}, {effort_words(steps)}:", "dim")
    for step in steps:
        for spans in command_spans(step.command, out.width if out.is_terminal else None, f"{step.box}$ "):
            page.spans(spans)
    hints = _hints(comparisons[0], is_verbose) if is_pair and not steps else ()
    for place, text in enumerate(hints):
        if not place:
            page.line()
        page.line(text, "dim")
    if out.is_terminal:
        page.line()
        more = [] if is_verbose else ["reasons" if is_pair else "each vs a, with reasons"]
        page.line(" · ".join((*(f"{one}: --verbose" for one in more), *_WAYS)), "dim")
    return page


def _hints(comparison: Comparison, is_verbose: bool) -> Iterator[str]:
    """What would turn the answer round, and how to get the cost that one side lacks."""
    if not is_verbose:
        yield from islice(turning_points(comparison), _MISSING_SHOWN)
    sides = zip(names_of(comparison), (comparison.a.run, comparison.b.run), strict=True)
    lacks = [(name, run) for name, run in sides if isinstance(run.price, Missing)]
    if len(lacks) == 1:
        ((name, run),) = lacks
        command = "serve-bench" if run.profile == SERVE_PROFILE else "run"
        yield f"no cost: {name} has no price: gputui {command} --price USD or --instance TYPE"


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


def turning_points(comparison: Comparison) -> Iterator[str]:
    """Conditions, and what holds then: `if L4 costs $2.25/h or more: H200 is cheaper per token`.

    The price at which costs are even, and the cases that are decided the other way, by cost where costs are
    known. They are of the main case; none where it is undecided.
    """
    main = main_row(comparison.rows)
    if main is None or not main.rate.differs:
        return
    yield from price_points(main, comparison)
    by_cost = main.cost.differs
    mine = (main.cost if by_cost else main.rate).verdict.word
    better = names_of(comparison)[mine == "slower"]
    for row in comparison.rows:
        judged = row.cost if by_cost else row.rate
        if row is not main and not row.is_host_bound and judged.differs and judged.verdict.word != mine:
            yield f"for {subject(row, comparison.rows)}: {claim(row, comparison)}: take {better}"


def price_points(main: Row, comparison: Comparison) -> Iterator[str]:
    """The hourly price of b at which a unit of work costs the same on both."""
    noun, (name_a, name_b) = RATES[main.case.unit].noun, names_of(comparison)
    a, b = main.a.run, main.b.run
    if a is None or b is None or a.run_id == b.run_id or main.rate.ratio is None:
        return
    ratio = main.rate.ratio[0]
    if main.cost.ratio is None or isinstance(b.price, Missing):
        share = f"{format_percent(ratio)} of" if ratio < 1 else f"{three_digits(ratio)} times"
        yield f"if {name_b} costs less than {share} {name_a}: {name_b} is cheaper per {noun}"
        return
    even = format_hourly(float(f"{b.price.usd_per_hour / main.cost.ratio[0]:.3g}"))
    if main.cost.word == "cheaper":
        yield f"if {name_b} costs {even} or more: {name_a} is cheaper per {noun}"
    elif main.cost.word == "dearer":
        yield f"if {name_b} costs {even} or less: {name_b} is cheaper per {noun}"


def spread_lines(comparison: Comparison) -> Iterator[str]:
    """A line for each side and device; one for both sides if they are one run."""
    is_one_run = comparison.a.run.run_id == comparison.b.run.run_id
    sides = (("", comparison.a),) if is_one_run else (("a: ", comparison.a), ("b: ", comparison.b))
    for name, side in sides:
        for device, (prior, runs) in _spreads(side).items():
            launches = "as much as assumed"
            if prior.rows:
                known = f"{counted(prior.launches, 'launch')} of {counted(prior.rows, 'row')}"
                launches = f"{math.sqrt(prior.factor):.2g} times as much as assumed, as {known} show"
            how = "assumed" if runs.df <= RUN_DF else "as its runs show"
            of_runs = f"; its runs vary by {format_percent(math.sqrt(runs.variance))}, {how}"
            yield f"{name}launches on the {device.upper()} vary {launches}{'' if is_one_run else of_runs}"


def spread_as_json(side: Side) -> list[dict[str, Any]]:
    """The same as numbers, for one side."""
    return [
        {
            "device_class": device,
            "launch_sd_over_assumed": math.sqrt(prior.factor) if prior.rows else None,
            "prior_df": prior.df,
            "rows": prior.rows,
            "launches": prior.launches,
            "run_sd": math.sqrt(runs.variance),
            "run_df": None if math.isinf(runs.df) else runs.df,
        }
        for device, (prior, runs) in _spreads(side).items()
    ]


def _spreads(side: Side) -> dict[str, tuple[BoxSpread, Spread]]:
    """By class of device, how much launches of its box vary, and its runs, as a measured case tells."""
    found = {}
    for case in reversed([case for case in side.cases if case.result.outcome == "ok"]):
        device = case.result.case.variant.device_class
        known = side.variations.get(case.run.machine.machine_id, NOTHING_KNOWN)
        found[device] = known.launches.get(device, ASSUMED), run_spread_of(case.result)
    return found


def comparisons_as_markdown(answer: Answer, ignore: str, columns: Sequence[ComparisonColumn] = ()) -> str:
    """The headline, then each comparison; names from files cannot become markup."""
    steps = "".join(f"    {step.command}\n" for step in answer.headline.steps)
    first = f"**{escaped(answer.headline.text)}**\n\n" + (
        f"{answer.headline.purpose.capitalize()}:\n\n{steps}\n" if steps else ""
    )
    pages = []
    for place, comparison in enumerate(answer.comparisons):
        parts = pair_parts(comparison, ignore, columns, place)
        pages.append("\n".join(markdown_of(part) for part in parts if part))
    return first + "\n---\n\n".join(pages)


_HOW_TO_READ = (
    "Above zero, b does more work than a in the same time. From half as much again on, a change is a factor.",
    "Intervals are 95 %. Faster and slower: the whole interval lies beyond 1 %. Same: it lies within.",
    "A hollow mark is undecided. A diamond is the average of a class of cases, their geometric mean.",
    "The axis is logarithmic: twice as fast and half as fast are equally far from zero.",
    "Cost is the price of the box for the time that the work takes; its interval is that of the rate.",
)


def comparisons_as_page(asked: Asked, answer: Answer) -> str:
    """A page that fetches and runs nothing; names from files cannot become markup.

    Raises GputuiError if the telemetry of a file can no longer be read.
    """
    comparisons, ignore = answer.comparisons, asked.ignore
    sides = (comparisons[0].a, *(comparison.b for comparison in comparisons))
    names = " vs ".join(safe(side.name) for side in (*sides[1:], sides[0]))
    first, *rest = answer.headline.sentences
    body = "".join(
        (
            f'<p class="dim">{names}</p><h1>{with_units(safe(first))}</h1>',
            f'<p class="lead">{safe(" ".join(rest))}</p>' if rest else "",
            table(sides_table(sides, ignore), "about"),
            _to_tell(answer.headline),
            part("Every case" if len(comparisons) > 1 else "b vs a, every case", _rows(comparisons, ignore)),
            *(_details(asked, answer, place) for place in range(len(comparisons))),
            folded("How to read this page", bullets(_HOW_TO_READ)),
        )
    )
    return page_of(names, body)


def _to_tell(headline: Headline) -> str:
    if not headline.steps:
        return ""
    commands = "".join(command_line(f"{step.box}$ {step.command}") for step in headline.steps)
    purpose, effort = safe(headline.purpose.capitalize()), safe(effort_words(headline.steps))
    return f'\n<div class="tell"><p><b>{purpose}</b>, {effort}:</p>{commands}</div>'


def _rows(comparisons: Sequence[Comparison], ignore: str) -> str:
    """The table of rows with their intervals drawn, and what is to know of it."""
    is_pair = len(comparisons) == 1
    rows = rows_of_sides(comparisons, ignore, one_sided=False)
    if not rows:
        return ""
    made = rows_table(
        comparisons,
        rows,
        ignore,
        note=lambda row: f": {row.rate.reason}" if row.rate.ratio is None else "",
        is_drawn=True,
        has_means=is_pair,
    )
    doubts = [
        line
        for place, comparison in enumerate(comparisons)
        for line in disturbances(comparison, Naming(comparison, ignore), letter_of(place))
    ]
    return (
        table(made, "forest" if is_pair else "forest many")
        + bullets(dict.fromkeys(doubts), "doubts")
        + bullets(_notes(comparisons, ignore), "notes")
    )


def _notes(comparisons: Sequence[Comparison], ignore: str) -> Iterator[str]:
    """Which runs were chosen, whether each device performs as elsewhere, and what is to know of costs."""
    of_sides = [("a", comparisons[0].a)]
    cells = [("a", row.a) for row in comparisons[0].rows]
    for place, comparison in enumerate(comparisons):
        side = letter_of(place)
        of_pair = f"{side} vs a: " if len(comparisons) > 1 else ""
        yield from (f"{of_pair}{line}" for line in choice_words(comparison, ignore))
        of_sides.append((side, comparison.b))
        cells += [(side, row.b) for row in comparison.rows]
    for side, of in of_sides:
        yield from (f"{side} {found.text}" for found in performance_checks_of_side(of))
    if any(not isinstance(cell.cost, Missing) for _, cell in cells):
        for reason, sides in COST.reasons(cells).items():
            yield f"{', '.join(dict.fromkeys(sides))}: {reason}"
    main = main_row(comparisons[0].rows)
    if main is not None and len(comparisons) == 1:
        yield from price_points(main, comparisons[0])


def _details(asked: Asked, answer: Answer, place: int) -> str:
    """The main case in full, then everything else folded; of several sides all of it."""
    from gputui.services.compare.evidence import Curves, Loads, evidence_parts, recorded_of  # long to import

    comparison = answer.comparisons[place]
    naming, main = Naming(comparison, asked.ignore), main_row(comparison.rows)

    def evidence(row: Row, curves: Curves = (), loads: Loads = ()) -> str:
        parts = evidence_parts(row, asked.evidence, curves, loads)
        return "".join(html_of(one) for one in parts if one)

    first = ""
    if main is not None:
        recorded = recorded_of(main, comparison, asked.evidence, pool=asked.pool)
        first = part(f"Evidence of {naming.name(main)}", evidence(main, *recorded))
    others = "".join(folded(naming.name(row), evidence(row)) for row in comparison.rows if row is not main)
    found = first + "".join(
        (
            "\n<section><h2>Details</h2>",
            _differences(comparison, asked.ignore),
            folded("The evidence of the other cases", others),
            folded("All figures", _figures(comparison, naming)),
            "</section>",
        )
    )
    if len(answer.comparisons) == 1:
        return found
    side, name = letter_of(place), safe(comparison.b.name)
    about = f'<p class="dim">In this part {letter("b")} is {letter(side)}, {name}.</p>'
    return folded(f"{side}, {comparison.b.name}, vs a in detail", about + found)


def _differences(comparison: Comparison, ignore: str) -> str:
    """What is recorded and differs; a machine's id says nothing to a reader but that it is another one."""
    recorded = [(what, *(("", "") if what == "machine" else values)) for what, *values in comparison.differs]
    words = ", ".join(what for what, *_ in recorded)
    if recorded:
        return folded(f"Recorded differences: {words}", table(table_of(("", "a", "b"), recorded)))
    nothing = "" if ignore else no_difference_words(comparison)
    return f"<p>{safe(nothing[0].upper())}{safe(nothing[1:])}.</p>" if nothing else ""


def _figures(comparison: Comparison, naming: Naming) -> str:
    rows = table(row_table(comparison, naming))  # which numbers the notes
    below = [column for column in COLUMNS if column.table_heading]
    return rows + "".join(html_of(one) for one in below_rows(comparison, naming, below) if one)
