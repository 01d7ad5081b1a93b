"""A comparison as markdown, to be pasted into a pull request."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Sequence

from gputui.analysis.attribution import Attribution
from gputui.services.compare.columns import (
    Form,
    Naming,
    Words,
    absent_lines,
    cost_table,
    left_out,
    metric_table,
    performance_lines,
    remarks,
    row_table,
)
from gputui.services.compare.pairing import Comparison
from gputui.services.compare.row_text import choice_words, difference_words, no_difference_words, side_words
from gputui.services.compare.why import Why, sentence
from gputui.services.compare.why_text import finding_lines, part_table, trust_line, unattributed
from gputui.store.text import clean_text

_SPECIAL = re.compile(r"[\\`*<>|~&\[\]$]|(?<!\w)_|_(?!\w)")
_NUMBERED = re.compile(r"\\\[(\d+)\\\](?![(\[:])")
_LINKS = re.compile(r"(?<!\w)([@#])(?=\w)|(:)(?=//)|(?i:(\bwww)(?=\.))")
"""What GitHub would make a mention, a reference or a link of."""
_ANY_WIDTH = 10_000


def comparisons_as_markdown(
    pairs: Sequence[tuple[Comparison, Sequence[Why]]], ignore: str, columns: Collection[str] | None = None
) -> str:
    """Each comparison with the tables that the text has; names from files cannot become markup."""
    return "\n---\n\n".join(_one(*pair, ignore, columns) for pair in pairs)


def escaped(text: str) -> str:
    """Text that markdown shows as it is, within a line or a cell of a table."""
    plain = _SPECIAL.sub(lambda found: f"\\{found.group()}", " ".join(clean_text(text).split()))
    plain = _NUMBERED.sub(r"[\1]", plain)
    return _LINKS.sub(lambda found: f"{found.group()}<!-- -->", plain)


def _one(comparison: Comparison, whys: Sequence[Why], ignore: str, columns: Collection[str] | None) -> str:
    naming = Naming(comparison, ignore)
    told = "; ".join(map(difference_words, comparison.differs)) or (
        "" if ignore else no_difference_words(comparison)
    )
    parts = [
        _list(
            [
                *(
                    f"{letter}: {side_words(side, ignore, _ANY_WIDTH)}"
                    for letter, side in (("a", comparison.a), ("b", comparison.b))
                ),
                *choice_words(comparison, ignore),
                *([f"differs: {told}"] if told else []),
            ]
        ),
        _table(row_table(comparison, naming, Form(), columns)),
        _list(f"[{number}] {note}" for number, note in enumerate(naming.notes, 1)),
        _list(
            (
                *remarks(comparison, naming),
                *absent_lines(comparison, columns or ()),
                *performance_lines(comparison),
            )
        ),
        *(_why(why, naming) for why in whys),
        _list(unattributed(whys, naming)),
        _table(metric_table(comparison, naming)),
        _table(cost_table(comparison, naming) if columns is None else None),
        _list(left_out(comparison, naming)),
    ]
    return "\n".join(part for part in parts if part)


def _why(why: Why, naming: Naming) -> str:
    name = escaped(naming.name(why.row))
    found = why.attribution
    if not isinstance(found, Attribution):
        lines = list(finding_lines(why))
        return f"**{name}**\n\n{_list(lines)}" if lines else ""
    table = _table(part_table(found, with_peak=True))
    return (
        f"**why {name}:** {escaped(sentence(why.row, found))}\n\n{table}\n"
        f"{_list((trust_line(found), *finding_lines(why)))}"
    )


def _table(words: Words | None) -> str:
    if words is None:
        return ""
    ruler = ["---:" if place in words.numeric else "---" for place in range(len(words.headings))]
    lines = [[escaped(cell) for cell in cells] for cells in (words.headings, *words.rows)]
    return "".join(f"| {' | '.join(cells)} |\n" for cells in (lines[0], ruler, *lines[1:]))


def _list(lines: Iterable[str]) -> str:
    return "".join(f"- {escaped(line)}\n" for line in lines)
