"""Makes and saves a comparison, or a ranking, in any of its forms."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from gputui.errors import GputuiError
from gputui.services.compare.columns import ENERGY, ComparisonColumn
from gputui.services.compare.fleet import Fleet
from gputui.services.compare.session import Answer, Asked

WITH_ENERGY = ("csv", "json", "html")
"""Forms that also tell what the GPUs drew."""
FORM_OF_ENDING = {".md": "markdown", ".csv": "csv", ".json": "json", ".html": "html"}


def form_of(path: Path) -> str:
    """The form for a file's extension. Raises GputuiError for an unknown one."""
    form = FORM_OF_ENDING.get(path.suffix.lower())
    if form is None:
        raise GputuiError(
            f"{path.name}: unknown file type",
            f"end it in {', '.join(FORM_OF_ENDING)}",
        )
    return form


def save_comparison(path: Path, asked: Asked, baseline: int, columns: Sequence[ComparisonColumn] = ()) -> str:
    """Write a comparison in the form of the file's extension; returns a message that says so.

    `columns` apply to Markdown, empty for its defaults; other forms have all of them.
    Raises GputuiError for another extension, if a file can no longer be read, or this one not be written.
    """
    from gputui.services.support.output_files import write_output  # only who saves needs it

    form = form_of(path)
    answer = asked.compared(baseline, with_energy=form in WITH_ENERGY or ENERGY in columns)
    text = comparison_text(asked, answer, form, columns)
    write_output(path, text)
    return f"saved the comparison in {path}"


def comparison_plain(asked: Asked, answer: Answer) -> dict[str, object]:
    """What `gputui compare --json` prints."""
    from gputui.services.compare.data import comparison_as_json, headline_as_json

    plain = [comparison_as_json(*pair) for pair in answer.pairs]
    headline = headline_as_json(answer.headline)
    return {"schema": 1, "by": asked.ignore, "headline": headline, "comparisons": plain}


def comparison_text(
    asked: Asked,
    answer: Answer,
    form: str,
    columns: Sequence[ComparisonColumn] = (),
    width: int | None = None,
    is_verbose: bool = False,
) -> str:
    """What `gputui compare --format FORM` prints; `columns` apply to text and markdown, the rest to text.

    Each form is loaded when it is asked for.
    """
    if form == "json":
        import json

        return json.dumps(comparison_plain(asked, answer), indent=1) + "\n"
    pairs = answer.pairs
    if form == "csv":
        from gputui.services.compare.data import comparisons_as_csv

        return comparisons_as_csv(pairs, asked.ignore)
    if form == "markdown":
        from gputui.services.compare.tables import comparisons_as_markdown

        return comparisons_as_markdown(pairs, asked.ignore, answer.headline, columns)
    if form == "text":
        from gputui.services.compare.text import comparison_as_text

        return comparison_as_text(asked, answer, columns, width, is_verbose)
    from gputui.services.compare.html import comparisons_as_page

    return comparisons_as_page(pairs, asked.ignore, answer.headline, asked.evidence)


def ranking_text(fleet: Fleet, form: str) -> str:
    """What `gputui compare --format FORM` prints of many sides, with all boxes."""
    from gputui.services.compare import fleet_forms

    made = {
        "text": fleet_forms.fleet_as_text,
        "markdown": fleet_forms.fleet_as_markdown,
        "csv": fleet_forms.fleet_as_csv,
        "json": fleet_forms.fleet_as_json,
        "html": fleet_forms.fleet_as_page,
    }
    return made[form](fleet)
