"""A difference of traces as a page, and as Markdown."""

from __future__ import annotations

from gputui.document.markup import (
    bullets,
    escaped,
    letter,
    markdown_list,
    markdown_table,
    page_of,
    part,
    safe,
    table,
    with_units,
)
from gputui.services.compare.why import part_table
from gputui.services.traces.difference import (
    TraceDifference,
    kernel_table,
    notes,
    sentences,
    side_lines,
)
from gputui.services.traces.overview import held_back

_ANY_WIDTH = 10_000
_KERNEL_NAME_WIDTH = 160


def difference_as_page(found: TraceDifference) -> str:
    """A page that fetches and runs nothing; names from traces cannot become markup."""
    first, *rest = sentences(found)
    names = " vs ".join(safe(side[0].name) for side in (found.b, found.a))
    lines = [line.partition("  ") for line in side_lines(found)]
    boxes = "".join(
        f'<div class="box {side}">{letter(side)} <b>{safe(words.partition(": ")[0])}</b>'
        f'<p class="dim">{safe(words.partition(": ")[2])}</p></div>'
        for side, _, words in lines
    )
    parts = kernels = ""
    if not found.not_comparable:
        parts = table(part_table(found.attribution, is_drawn=True), "parts")
        differing = kernel_table(found, _KERNEL_NAME_WIDTH)
        kernels = table(differing, "long") if differing.rows else ""
    body = "".join(
        (
            f'<p class="dim">{names}</p><h1>{with_units(safe(first))}</h1>',
            f'<p class="lead">{safe(" ".join(rest))}</p>',
            f'\n<div class="sides">{boxes}</div>',
            part("Where the difference lies", parts),
            part("What slows each down", bullets(held_back(found))),
            part("The kernels that differ most", kernels),
            part("What to know of these traces", bullets(notes(found), "notes")),
        )
    )
    return page_of(names, body)


def difference_as_markdown(found: TraceDifference) -> str:
    """The answer, the sides, and the tables; names from traces cannot become markup."""
    first, *rest = sentences(found)
    kernels, is_compared = kernel_table(found, _ANY_WIDTH), not found.not_comparable
    parts = (
        f"**{escaped(first)}** {escaped(' '.join(rest))}\n",
        markdown_list(side_lines(found)),
        markdown_table(part_table(found.attribution)) if is_compared else "",
        markdown_table(kernels) if kernels.rows and is_compared else "",
        markdown_list(held_back(found)),
        markdown_list(notes(found)),
    )
    return "\n".join(part for part in parts if part)
