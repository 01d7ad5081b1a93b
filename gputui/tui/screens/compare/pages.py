"""What stands around the rows of a comparison: its sides, what differs, and how one is begun."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from gputui.document.table import Column, Table
from gputui.model.absent import Missing
from gputui.model.units import format_hourly
from gputui.services.compare.candidates import Candidate
from gputui.services.compare.pairing import Comparison, Side
from gputui.services.compare.row_text import (
    LABEL_CELLS,
    called,
    difference_words,
    label_of,
    launches_words,
    letter_of,
    no_difference_words,
    short_name,
    unmeasured_words,
)
from gputui.services.results.browser import ListedRun
from gputui.services.results.labels import day, device_words, torch_words
from gputui.services.results.references import PREFIX, known_references
from gputui.store.text import clean_text
from gputui.tui.screens.compare.loaded import Loaded
from gputui.tui.terminal.lines import Line, Span
from gputui.tui.widgets.cells import cut, wrapped
from gputui.tui.widgets.sections import paragraph, section, table_lines

_PLAIN = (0, 2, 3)
"""Of the parts of a side: name, box and price; the others are dim."""
_NAME = 28
"""Cells of a stored run's label."""


def pair_lines(comparison: Comparison, place: int, ignore: str, width: int) -> tuple[Line, ...]:
    """Both sides of a pair, a line each; of a later side also its letter in the table."""
    letters = ("a", "b" if place == 0 else f"b ({letter_of(place)} in the table)")
    sides = [_parts(side, ignore) for side in (comparison.a, comparison.b)]
    return tuple(_sides(letters, sides, width, margin=0))


def top_lines(
    loaded: Loaded, place: int, width: int, most_sides: int, most_headline: int, *, is_tall: bool
) -> tuple[Line, ...]:
    """The headline, and a line for each side, with `▸` before the one that is looked at.

    At most `most_sides` are shown; the rest are counted. A tall screen has blank lines between.
    """
    comparisons = loaded.answer.comparisons
    lines = headline_lines(loaded, width, most_headline)
    sides = [comparisons[0].a, *(one.b for one in comparisons)]
    order = list(range(len(sides)))
    if len(sides) > most_sides:
        order = [0, place + 1, *(n for n in order if n not in (0, place + 1))][: max(most_sides - 1, 2)]
        order.sort()
    is_many = len(sides) > 2
    side_rows = _sides(
        ["a" if number == 0 else letter_of(number - 1) for number in order],
        [_parts(sides[number], loaded.ignore) for number in order],
        width,
        margin=2 * is_many,
        marks=[is_many and number == place + 1 for number in order],
    )
    if len(order) < len(sides):
        side_rows.append((Span(f"   {len(sides) - len(order)} more sides: n goes on to them", "dim"),))
    gap: tuple[Line, ...] = ((),) if is_tall else ()
    return (*gap, *lines, *gap, *side_rows, *gap)


def headline_lines(loaded: Loaded, width: int, most: int) -> list[Line]:
    """The answer in at most so many lines; its first sentence stands out."""
    sentences = loaded.answer.headline.sentences
    first, rest = clean_text(sentences[0]), clean_text(" ".join(sentences[1:]))
    lines: list[Line] = [*paragraph(first, width, "title")]
    lines += paragraph(rest, width) if rest else ()
    if len(lines) > most:
        (kept,) = lines[most - 1]
        lines[most - 1 :] = [(Span(cut(kept.text + " …", width), kept.style),)]
    return lines


def _parts(side: Side, ignore: str) -> list[str]:
    """What is known of a side: its name, what tells it apart, and the rest, the last of which go first."""
    run = side.run
    name, short = called(side), short_name(side.name)
    return [
        clean_text(part)
        for part in (
            name if not ignore or name.startswith(ignore) else f"{ignore} {name}",
            short if short != name else "",
            device_words(run),
            "" if isinstance(run.price, Missing) else format_hourly(run.price.usd_per_hour),
            cut(label_of(side), LABEL_CELLS) if not ignore and name == short else "",
            torch_words(run),
            launches_words(side),
            day(run),
        )
    ]


def _sides(
    letters: Sequence[str],
    rows: Sequence[Sequence[str]],
    width: int,
    *,
    margin: int = 2,
    marks: Sequence[bool] = (),
) -> list[Line]:
    """Sides with their letters, and of what is known of them as much as fits, the first two at least."""
    known = [(place, texts) for place, texts in enumerate(zip(*rows, strict=True)) if any(texts)]
    columns = [
        Column(
            "", [Span(text, "" if place in _PLAIN else "dim") for text in texts], priority=rank * (rank > 1)
        )
        for rank, (place, texts) in enumerate(known)
    ]
    table = Table((Column("", [Span(letter, "title") for letter in letters]), *columns))
    return list(table_lines(table, width, margin=margin, marks=marks, has_headings=False))


def teaching(found: Sequence[Candidate], width: int) -> tuple[Line, ...]:
    """How to begin, and which stored runs would make a pair."""
    references = sorted(f"{PREFIX}{one.name}" for one in known_references())
    return (
        *paragraph("Nothing is compared yet.", width, "title"),
        (),
        *paragraph("Press 3, mark two runs with space, then c. The first is the baseline.", width),
        *paragraph("Or press o and type files as for gputui compare: a.db b.db, a.db@label, a.db", width),
        (),
        *_candidates(found, width),
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


def _candidates(found: Sequence[Candidate], width: int) -> Iterator[Line]:
    """A table of pairs, each with its command."""
    if not found:
        return
    hint = (Span("enter: the first pair", "dim"),)
    yield section((Span("what could be compared", "title"),), width - 1, hint)
    sides = [side for pair in found for side in (pair.a, pair.b)]
    rows = [[clean_text(text) for text in _stored(side)] for side in sides]
    drawn = _sides("ab" * len(found), rows, width - 1)
    for number, pair in enumerate(found):
        whose = "two runs of one box" if pair.is_one_box else "two boxes"
        yield (Span(f"  {clean_text(pair.b.summary.profile)}", "title"), Span(f"  {whose}", "dim"))
        yield from drawn[2 * number : 2 * number + 2]
        for place, text in enumerate(wrapped(f"$ {clean_text(pair.command)}", width - 4, 3)):
            yield (Span("  " + "  " * (place > 0)), Span(text, "accent"))
        yield ()


def _stored(side: ListedRun) -> tuple[str, ...]:
    """What is known of a stored run, as `_parts`."""
    run = side.summary
    price = "" if isinstance(run.price, Missing) else format_hourly(run.price.usd_per_hour)
    name = cut(clean_text(run.label or side.name), _NAME)
    return name, day(run), device_words(run), price, torch_words(run)


def differing(comparison: Comparison, ignore: str, width: int) -> tuple[Line, ...]:
    """What differs, a line each, and what was measured on neither side."""
    lines: list[Line] = []
    lines += pair_lines(comparison, 0, ignore, width)
    lines += [(), (Span("differs", "title"),)]
    for difference in comparison.differs:
        lines += paragraph(f"  {clean_text(difference_words(difference))}", width, indent=4)
    if not comparison.differs:
        lines += paragraph(f"  {no_difference_words(comparison)}", width)
    for text in unmeasured_words(comparison):
        lines += paragraph(clean_text(text), width, "dim")
    return tuple(lines)
