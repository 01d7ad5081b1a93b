"""A comparison in Python: what it says, as text, HTML or a DataFrame."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from gputui.document.markup import html_of, safe
from gputui.errors import GputuiError, NoResult
from gputui.services.compare.formats import comparison_records, comparison_text, save_comparison
from gputui.services.compare.pairing import DIMENSIONS
from gputui.services.compare.session import Answer, Asked, ask
from gputui.services.compare.tables import pair_parts

if TYPE_CHECKING:
    from pandas import DataFrame

_WIDTH = 80


@dataclass(frozen=True, slots=True, repr=False)
class ComparisonResult:
    """Every other side against the baseline. Printed, it is what `gputui compare` prints."""

    asked: Asked
    answer: Answer
    baseline: int

    @property
    def headline(self) -> str:
        """The answer in a sentence or two."""
        return self.answer.headline.text

    def to_frame(self) -> DataFrame:
        """One row per case and pair of sides, and one per figure, with the columns of the CSV."""
        import pandas as pd

        return pd.DataFrame(comparison_records(self.answer.pairs, self.asked.ignore))

    def save(self, path: str | Path) -> None:
        """Write it as .html, .md, .csv or .json. Raises GputuiError for another extension, or a full disk."""
        save_comparison(Path(path), self.asked, self.baseline)

    def __repr__(self) -> str:
        return comparison_text(self.asked, self.answer, "text", width=_WIDTH).rstrip()

    def _repr_html_(self) -> str:
        steps = "".join(f"<pre>{safe(step.command)}</pre>" for step in self.answer.headline.steps)
        parts = [one for pair in self.answer.pairs for one in pair_parts(*pair, self.asked.ignore) if one]
        told = f"<p><b>{safe(self.headline)}</b></p>{''.join(map(html_of, parts))}"
        return told + (f"<p>To tell:</p>{steps}" if steps else "")


def compare(
    *files: str | Path, by: str | None = None, baseline: str = "", pool: bool = False, trust: bool = False
) -> ComparisonResult:
    """Compare result files, the first as the baseline; of one file, its variants. As `gputui compare`.

    Each is a file or `F@RUN`. `by`: one of device, precision, threads, mode, machine, runtime. Raises
    NoResult if nothing can be compared, GputuiError if a file cannot be read.
    """
    if by is not None and by not in DIMENSIONS:
        raise GputuiError(f"by={by!r}: is not a dimension", f"one of {', '.join(DIMENSIONS)}")
    if not files:
        raise GputuiError("no file is named", "name two, such as 'a.db', 'b.db'; one alone: its variants")
    asked = ask([str(file) for file in files], by=by, pool=pool, trust=trust)
    first = asked.baseline(baseline) if baseline else 0
    answer = asked.compared(first, with_energy=True)
    if answer.headline.is_empty:
        message, *rest = answer.headline.sentences
        raise NoResult(message, "; ".join((*rest, *(step.command for step in answer.headline.steps))))
    return ComparisonResult(asked, answer, first)
