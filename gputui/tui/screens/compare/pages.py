"""What stands around the rows of a comparison: its sides, what differs, and how one is begun."""

from __future__ import annotations

from dataclasses import replace

from gputui.services.compare.pairing import Comparison, Side
from gputui.services.compare.row_text import (
    difference_words,
    no_difference_words,
    side_words,
    unmeasured_words,
)
from gputui.services.results.references import PREFIX, reference_directory, reference_names
from gputui.store.text import clean_text
from gputui.tui.screens.compare.loaded import Loaded, called, short_name
from gputui.tui.screens.compare.rows_table import SidesTable
from gputui.tui.terminal.lines import Line, Span
from gputui.tui.widgets.cells import cut, fitted
from gputui.tui.widgets.paragraphs import paragraph

_ANY_WIDTH = 10_000
_HEADLINE_LINES = 3
_LETTER = 3
"""Cells of a side's letter."""


def named(side: Side, ignore: str, width: int) -> str:
    """A side in one line of at most this width: its label, and the short name of its file."""
    name, short = called(side), short_name(side.name)
    name = name if name == short else f"{name}  {short}"
    return cut(clean_text(side_words(replace(side, name=name), ignore, width)), width)


def side_lines(comparison: Comparison, ignore: str, width: int) -> tuple[Line, ...]:
    """Both sides of a pair, a line each."""
    return tuple(
        (Span(f"{letter}  ", "title"), Span(named(side, ignore, width - _LETTER), "dim"))
        for letter, side in (("a", comparison.a), ("b", comparison.b))
    )


def sides_lines(
    loaded: Loaded, place: int, sheet: SidesTable, command: str, width: int, most: int
) -> tuple[Line, ...]:
    """Every side, the one that is looked at as `b`; what is out of sight, and the command line.

    At most `most` lines are of sides; those that are left out are counted.
    """
    comparisons = loaded.answer.comparisons
    headline = paragraph(clean_text(loaded.answer.headline.text), width, "title")[:_HEADLINE_LINES]
    lines: list[Line] = [*headline, *side_lines(comparisons[place], loaded.ignore, width)]
    others = [number for number in range(len(comparisons)) if number != place]
    shown = others[: max(most - 2, 0)]
    for number in shown:
        side = comparisons[number].b
        lines.append((Span(f"   {named(side, loaded.ignore, width - _LETTER)}", "dim"),))
    told = [sheet.unsaid] if sheet.unsaid else []
    if len(shown) < len(others):
        told.append(f"{len(others) - len(shown)} more sides")
    if sheet.shown < len(comparisons):
        told.append(f"in sight: {sheet.shown} of {len(comparisons)} beside a")
    if len(comparisons) > 1:
        told.append("n: the next is b, p: the one before")
        lines.append((Span(f"   {'; '.join(told)}", "warn"),))
    lines.append((Span("$  ", "accent"), Span(clean_text(command))))
    return tuple(fitted(line, width) for line in lines)


def teaching(width: int) -> tuple[Line, ...]:
    """How to begin."""
    references = [f"{PREFIX}{name}" for name in reference_names(reference_directory())]
    return (
        *paragraph("Nothing is compared yet.", width, "title"),
        (),
        *paragraph("Press 3, mark two runs with space, then c. The first is the baseline.", width),
        *paragraph("Or press o and type files as for gputui compare: a.db b.db, a.db@label, a.db", width),
        (),
        *paragraph(
            "One file alone: its devices, precisions or threads against each other; g chooses which.",
            width,
            "dim",
        ),
        *(
            paragraph(f"References to compare with: {', '.join(references)}", width, "dim")
            if references
            else ()
        ),
        *paragraph("Nothing measured so far? Press 2: a profile, on each box that matters.", width, "dim"),
    )


def differing(comparison: Comparison, ignore: str, width: int) -> tuple[Line, ...]:
    """What differs, a line each, and what was measured on neither side."""
    lines: list[Line] = []
    for letter, side in (("a", comparison.a), ("b", comparison.b)):
        lines += paragraph(f"{letter}  {named(side, ignore, _ANY_WIDTH)}", width, indent=3)
    lines += [(), (Span("differs", "title"),)]
    for difference in comparison.differs:
        lines += paragraph(f"  {clean_text(difference_words(difference))}", width, indent=4)
    if not comparison.differs:
        lines += paragraph(f"  {no_difference_words(comparison)}", width)
    for text in unmeasured_words(comparison):
        lines += paragraph(clean_text(text), width, "dim")
    return tuple(lines)
