"""A comparison as Markdown, to paste into a pull request."""

from __future__ import annotations

from collections.abc import Sequence

from gputui.document.markdown import escaped, markdown_of
from gputui.services.compare.columns import COLUMNS, ComparisonColumn
from gputui.services.compare.headline import Headline
from gputui.services.compare.pairing import Comparison
from gputui.services.compare.tables import Naming, about_lines, absent_lines, below_rows, row_table
from gputui.services.compare.why import Why


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
    rows = row_table(comparison, naming, columns or None)
    below = [column for column in COLUMNS if column.default == "below" and not columns]
    absent = absent_lines(comparison, columns)
    parts = (
        about_lines(comparison, ignore, place),
        rows,
        *below_rows(comparison, whys, naming, below, absent),
    )
    return "\n".join(markdown_of(part) for part in parts if part)
