"""Tables and lines of plain output: rich draws them, nothing from a file is taken for markup."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import IO, Literal

from rich.cells import cell_len
from rich.console import Console
from rich.table import Table
from rich.text import Text


def console(file: IO[str] | None = None) -> Console:
    """A console of the terminal's width, or of 80 columns (or $COLUMNS) where there is none.

    It writes to `file` instead of stdout where one is given.
    """
    return Console(
        file=file,
        highlight=False,
        markup=False,
        emoji=False,
        soft_wrap=False,
    )


@dataclass(frozen=True, slots=True)
class Sheet:
    """The text of a table before it is drawn, so that a shorter form can be taken where it is too wide."""

    headings: Sequence[str]
    rows: Sequence[Sequence[str]]

    @property
    def width(self) -> int:
        """Columns it takes without breaking a cell."""
        lines = [self.headings, *self.rows]
        return sum(max(map(cell_len, column)) + 1 for column in zip(*lines, strict=True)) - 1


def first_that_fits(width: int, forms: Iterable[Sheet]) -> Sheet:
    """The first form that is narrow enough, else the last."""
    *longer, shortest = forms
    return next((form for form in longer if form.width <= width), shortest)


def table(headings: Sequence[str], right: Iterable[int] = (), breaks: Iterable[int] = (0,)) -> Table:
    """An empty table without lines; the columns in `right` are aligned to the right.

    Where it is too wide, cells of the columns in `breaks` go on in a second line; nothing is cut.
    """
    made = Table(box=None, pad_edge=False, padding=(0, 1, 0, 0), collapse_padding=True, header_style="bold")
    numeric, broken = set(right), set(breaks)
    for index, heading in enumerate(headings):
        side: Literal["left", "right"] = "right" if index in numeric else "left"
        made.add_column(
            Text(heading),
            justify=side,
            no_wrap=index not in broken,
            overflow="fold" if index in broken else "ellipsis",
        )
    return made


def add_row(to: Table, *cells: str, style: str = "") -> None:
    """One row of plain text."""
    to.add_row(*(Text(cell) for cell in cells), style=style)
