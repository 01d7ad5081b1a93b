"""A comparison as Markdown, to paste into a pull request."""

from __future__ import annotations

from collections.abc import Sequence

from gputui.analysis.attribution import Attribution
from gputui.document.markdown import escaped, markdown_list, markdown_table
from gputui.services.compare.columns import COLUMNS, ComparisonColumn
from gputui.services.compare.headline import Headline
from gputui.services.compare.pairing import Comparison
from gputui.services.compare.row_text import (
    choice_words,
    difference_words,
    no_difference_words,
    part_words,
    side_words,
)
from gputui.services.compare.tables import (
    Naming,
    absent_lines,
    column_table,
    left_out,
    metric_table,
    performance_lines,
    remarks,
    row_table,
)
from gputui.services.compare.why import Why, sentence
from gputui.services.compare.why_text import finding_lines, part_table, trust_line, unattributed

_ANY_WIDTH = 10_000


def comparisons_as_markdown(
    pairs: Sequence[tuple[Comparison, Sequence[Why]]],
    ignore: str,
    headline: Headline,
    columns: Sequence[ComparisonColumn] = (),
) -> str:
    """The headline, then each comparison; names from files cannot become markup."""
    steps = "".join(f"    {step.command}\n" for step in headline.steps)
    first = f"**{escaped(headline.text)}**\n\n" + (
        f"{headline.purpose.capitalize()}:\n\n{steps}\n" if steps else ""
    )
    return first + "\n---\n\n".join(_one(*pair, ignore, columns, place) for place, pair in enumerate(pairs))


def _one(
    comparison: Comparison,
    whys: Sequence[Why],
    ignore: str,
    columns: Sequence[ComparisonColumn],
    place: int,
) -> str:
    naming = Naming(comparison, ignore)
    differs = "; ".join(map(difference_words, comparison.differs))
    told = f"differs: {differs}" if differs else "" if ignore else no_difference_words(comparison)
    parts = [
        markdown_list(
            [
                *(
                    f"{letter}: {side_words(side, ignore, _ANY_WIDTH)}"
                    for letter, side in (("a", comparison.a), ("b", comparison.b))
                ),
                *([part_words(place)] if place else []),
                *choice_words(comparison, ignore),
                *([told] if told else []),
            ]
        ),
        markdown_table(row_table(comparison, naming, columns or None)),
        markdown_list(f"[{number}] {note}" for number, note in enumerate(naming.notes, 1)),
        markdown_list(
            (
                *remarks(comparison, naming),
                *absent_lines(comparison, columns),
                *performance_lines(comparison),
            )
        ),
        *(_why(why, naming) for why in whys),
        markdown_list(unattributed(whys, naming)),
        markdown_table(metric_table(comparison, naming)),
        *(
            markdown_table(column_table(column, comparison, naming))
            for column in COLUMNS
            if column.default == "below" and not columns
        ),
        markdown_list(left_out(comparison, naming)),
    ]
    return "\n".join(part for part in parts if part)


def _why(why: Why, naming: Naming) -> str:
    name = escaped(naming.name(why.row))
    found = why.attribution
    if not isinstance(found, Attribution):
        lines = list(finding_lines(why))
        return f"**{name}**\n\n{markdown_list(lines)}" if lines else ""
    table = markdown_table(part_table(found))
    return (
        f"**why {name}:** {escaped(sentence(why.row, found))}\n\n{table}\n"
        f"{markdown_list((trust_line(found), *finding_lines(why)))}"
    )
