"""A comparison as one self-contained HTML page, to send to somebody who decides: the answer, every case, and
the evidence of each. No script, no style attribute; the style sheet of the page knows the classes."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from gputui.document.markup import (
    bullets,
    command_line,
    folded,
    html_of,
    letter,
    page_of,
    part,
    safe,
    table,
    with_units,
)
from gputui.document.table import table_of
from gputui.model.absent import Missing
from gputui.services.compare.columns import COLUMNS, COST
from gputui.services.compare.evidence import Recorded, evidence_parts, recorded_of
from gputui.services.compare.headline import Headline
from gputui.services.compare.pairing import Comparison, Row, main_row, performance_checks_of_side
from gputui.services.compare.row_text import choice_words, letter_of, no_difference_words
from gputui.services.compare.rows_table import rows_of_sides, rows_table
from gputui.services.compare.session import Answer, Asked
from gputui.services.compare.suggestions import effort_words
from gputui.services.compare.tables import Naming, below_rows, disturbances, row_table, sides_table
from gputui.services.compare.text import price_points
from gputui.services.compare.why import Why

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
        table(made.table, "forest" if is_pair else "forest many")
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
        yield from (f"{condition}: {then}" for condition, then in price_points(main, comparisons[0]))


def _details(asked: Asked, answer: Answer, place: int) -> str:
    """The main case in full, then everything else folded; of several sides all of it."""
    comparison, whys = answer.pairs[place]
    naming, main = Naming(comparison, asked.ignore), main_row(comparison.rows)
    reasons = {id(why.row): why for why in whys}

    def evidence(row: Row, recorded: Recorded | None = None) -> str:
        parts = evidence_parts(row, reasons.get(id(row)), asked.evidence, recorded)
        return "".join(html_of(one) for one in parts if one)

    first = ""
    if main is not None:
        recorded = recorded_of(main, comparison, asked.evidence, pool=asked.pool)
        first = part(f"Evidence of {naming.name(main)}", evidence(main, recorded))
    others = "".join(folded(naming.name(row), evidence(row)) for row in comparison.rows if row is not main)
    found = first + "".join(
        (
            "\n<section><h2>Details</h2>",
            _differences(comparison, asked.ignore),
            folded("The evidence of the other cases", others),
            folded("All figures", _figures(comparison, whys, naming)),
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


def _figures(comparison: Comparison, whys: Sequence[Why], naming: Naming) -> str:
    rows = table(row_table(comparison, naming))  # which numbers the notes
    below = [column for column in COLUMNS if column.table_heading]
    return rows + "".join(html_of(one) for one in below_rows(comparison, whys, naming, below) if one)
