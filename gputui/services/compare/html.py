"""A comparison as one self-contained HTML page, to send to somebody who decides."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from gputui.analysis.cost import Cost
from gputui.document.markup import (
    bullets,
    command_line,
    folded,
    letter,
    page_of,
    part,
    safe,
    table,
    with_units,
)
from gputui.model.units import format_percent
from gputui.services.compare.columns import COST
from gputui.services.compare.headline import (
    Headline,
)
from gputui.services.compare.html_details import pair_details
from gputui.services.compare.pairing import (
    Comparison,
    Side,
    main_row,
    performance_checks_of_side,
)
from gputui.services.compare.row_text import (
    choice_words,
    letter_of,
    side_parts,
)
from gputui.services.compare.rows_table import rows_of_sides, rows_table
from gputui.services.compare.suggestions import effort_words
from gputui.services.compare.tables import Naming, disturbances
from gputui.services.compare.text import price_points
from gputui.services.compare.why import Why
from gputui.services.results.conditions import Evidence

_HOW_TO_READ = (
    "Above zero, b does more work than a in the same time. From half as much again on, a change is a factor.",
    "Intervals are 95 %. Faster and slower: the whole interval lies beyond 1 %. Same: it lies within.",
    "A hollow mark is undecided. A diamond is the average of a class of cases, their geometric mean.",
    "The axis is logarithmic: twice as fast and half as fast are equally far from zero.",
    "Cost is the price of the box for the time that the work takes; its interval is that of the rate.",
)


def comparisons_as_page(
    pairs: Sequence[tuple[Comparison, Sequence[Why]]], ignore: str, headline: Headline, evidence: Evidence
) -> str:
    """A page that fetches and runs nothing; names from files cannot become markup.

    Raises GputuiError if the telemetry of a file can no longer be read.
    """
    comparisons = [comparison for comparison, _ in pairs]
    sides = (comparisons[0].a, *(comparison.b for comparison in comparisons))
    names = " vs ".join(safe(side.name) for side in (*sides[1:], sides[0]))
    first, *rest = headline.sentences
    body = "".join(
        (
            f'<p class="dim">{names}</p><h1>{with_units(safe(first))}</h1>',
            f'<p class="lead">{safe(" ".join(rest))}</p>' if rest else "",
            _sides(sides, ignore),
            _to_tell(headline),
            part("Every case" if len(pairs) > 1 else "b vs a, every case", _rows(comparisons, ignore)),
            _details(pairs, ignore, evidence),
            folded("How to read this page", bullets(_HOW_TO_READ)),
        )
    )
    return page_of(names, body)


def _sides(sides: Sequence[Side], ignore: str) -> str:
    """A box for each side, named after its device where these differ."""
    parts = [side_parts(side, ignore) for side in sides]
    by_device = len({device for _, device, *_ in parts}) == len(sides)
    boxes = []
    for place, (name, device, torch, price, launches, day) in enumerate(parts, -1):
        side = "a" if place < 0 else letter_of(place)
        title, more = (device, name) if by_device else (name, device)
        words = ", ".join(filter(None, (title, price)))
        baseline = "baseline" if side == "a" else ""
        about = " · ".join(filter(None, (baseline, more, torch, launches, day)))
        boxes.append(
            f'<div class="box {side}">{letter(side)} <b>{safe(words)}</b>'
            f'<p class="dim">{safe(about)}</p></div>'
        )
    return f'\n<div class="sides">{"".join(boxes)}</div>'


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
    doubts, notes = _notes(comparisons, ignore)
    return (
        table(made.table, "forest" if is_pair else "forest many")
        + bullets(doubts, "doubts")
        + bullets((*notes, *_about_costs(comparisons)), "notes")
    )


def _notes(comparisons: Sequence[Comparison], ignore: str) -> tuple[list[str], list[str]]:
    """What makes rows doubtful; which runs were chosen, and whether each device performs as elsewhere."""
    doubts: list[str] = []
    notes: list[str] = []
    of_sides = [("a", comparisons[0].a)]
    for place, comparison in enumerate(comparisons):
        side = letter_of(place)
        of_pair = f"{side} vs a: " if len(comparisons) > 1 else ""
        doubts += disturbances(comparison, Naming(comparison, ignore), side)
        notes += [f"{of_pair}{line}" for line in choice_words(comparison, ignore)]
        of_sides.append((side, comparison.b))
    notes += [f"{side} {found.text}" for side, of in of_sides for found in performance_checks_of_side(of)]
    return list(dict.fromkeys(doubts)), notes


def _about_costs(comparisons: Sequence[Comparison]) -> Iterable[str]:
    """What is to know of costs, where a side has a price."""
    cells = [("a", row.a) for row in comparisons[0].rows]
    cells += [(letter_of(place), row.b) for place, one in enumerate(comparisons) for row in one.rows]
    paid = [(side, cell.cost.share) for side, cell in cells if isinstance(cell.cost, Cost)]
    if not paid:
        return
    of_sides: dict[str, list[str]] = {}
    for side in dict.fromkeys(side for side, _ in paid):
        shares = sorted({share for other, share in paid if other == side} - {1.0})
        of_sides.setdefault(" or ".join(map(format_percent, shares)), []).append(side)
    for words, sides in of_sides.items():
        if words:
            yield f"{', '.join(sides)}: {words} of the price of the box, for the GPUs that a case uses"
    for reason, sides in COST.reasons(cells).items():
        yield f"{', '.join(dict.fromkeys(sides))}: {reason}"
    main = main_row(comparisons[0].rows)
    if main is not None and len(comparisons) == 1:
        yield from (f"{condition}: {then}" for condition, then in price_points(main, comparisons[0]))


def _details(pairs: Sequence[tuple[Comparison, Sequence[Why]]], ignore: str, evidence: Evidence) -> str:
    if len(pairs) == 1:
        ((comparison, whys),) = pairs
        return pair_details(comparison, whys, main_row(comparison.rows), ignore, evidence)
    return "".join(
        folded(
            f"{letter_of(place)}, {comparison.b.name}, vs a in detail",
            f'<p class="dim">In this part {letter("b")} is {letter(letter_of(place))},'
            f" {safe(comparison.b.name)}.</p>"
            + pair_details(comparison, whys, main_row(comparison.rows), ignore, evidence),
        )
        for place, (comparison, whys) in enumerate(pairs)
    )
