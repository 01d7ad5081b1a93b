"""The columns of `compare`: a new one is an object here and its name in COLUMNS."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Literal

from gputui.analysis.cost import Cost, Energy
from gputui.analysis.verdict import SpeedEstimate
from gputui.document.spans import Span
from gputui.errors import GputuiError
from gputui.model.absent import Missing, known
from gputui.services.compare.pairing import Cell, Row
from gputui.services.compare.row_text import (
    change_text,
    cost_text,
    cost_unit_of,
    energy_text,
    rate_cells,
    rate_text,
    time_text,
)
from gputui.services.results.expected import share_of_sheet, share_text
from gputui.services.results.throughput import GAVE, gave_text, rate_of
from gputui.services.support.output_files import Value


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class ComparisonColumn:
    """One column; `--columns`, its help, all formats and the Compare screen read COLUMNS."""

    name: str
    headings: tuple[str, ...]
    cells: Callable[[Row], tuple[str | Span, ...]] | None = None
    """One for each heading; without it the values of both sides are one text."""
    between: str = ", "
    """Those two."""
    default: Literal["always", "wide", "below", "never"] = "never"
    """Where it is without `--columns`; `below` is a table after the rows."""
    is_before_verdict: bool = False
    """Then it is also aligned to the right."""
    value: Callable[[Cell, bool, Sequence[Cell]], str | Missing] | None = None
    """Of one measured side, in full or without its interval, in a unit that fits all sides of the row;
    Missing says what would give one. The Compare screen shows it, and it explains an empty column."""
    title: str = ""
    """Behind the name of a side on the Compare screen, as in `a per step`."""
    unit: Callable[[Row], str] | None = None
    """What the value is for, where the value does not say it."""
    absent: str = ""
    """What to call it where no row has a value. Without this, an empty column stays."""
    table_heading: str = ""
    """Of its table after the rows, for where the rows have no room for it."""
    csv: Callable[[Cell], dict[str, Value]] = lambda cell: {}
    """One side by names of CSV columns; the same names for every cell."""

    def __post_init__(self) -> None:
        if self.value is None and (
            self.cells is None or self.title or self.unit or self.absent or self.table_heading
        ):
            raise ValueError(f"column {self.name}: title, unit, absent and table_heading need a value")

    def on_side(self, cell: Cell, beside: Sequence[Cell] = (), *, in_full: bool = True) -> str | Missing:
        """The value of one side in words; Missing with the reason. Raises ValueError if it has none.

        `beside`: all sides of the row, of which a cost takes one unit.
        """
        if self.value is None:
            raise ValueError(f"column {self.name} has no value of one side")
        if cell.result is None:
            return Missing("it lacks this case")
        if isinstance(cell.speed, Missing) and self is not RATE:
            return Missing("it was not measured")
        return self.value(cell, in_full, beside)

    def of_both(self, row: Row, *, in_full: bool = True) -> list[str]:
        """The values of both sides in words, `—` where there is none."""
        sides = row.a, row.b
        values = [self.on_side(cell, sides, in_full=in_full) for cell in sides]
        return ["—" if isinstance(value, Missing) else value for value in values]

    @property
    def cells_of(self) -> Callable[[Row], tuple[str | Span, ...]]:
        """One for each heading."""
        return self.cells or self._joined

    def _joined(self, row: Row) -> tuple[str]:
        both, unit = self.of_both(row), self.unit(row) if self.unit else ""
        per = f" per {unit}" if unit else ""
        return ("" if set(both) == {"—"} else f"{self.between.join(both)}{per}",)

    def reasons(self, cells: Sequence[tuple[str, Cell]]) -> dict[str, list[str]]:
        """Why measured cells, given with their names, have no value: the names by reason."""
        found: dict[str, list[str]] = {}
        for name, cell in cells:
            value = self.on_side(cell)
            is_time = cell.result is not None and cell.result.case.is_time
            if isinstance(value, Missing) and isinstance(cell.speed, SpeedEstimate) and not is_time:
                found.setdefault(value.reason, []).append(name)
        return found


def _gave(cell: Cell) -> str:
    return "" if cell.result is None else gave_text(cell.result)


def _clocks(row: Row) -> tuple[str]:
    """Without the unit that stands behind the rates."""
    unit = rate_cells(row)[2].text
    both = [_gave(cell).removesuffix(f" {unit}") or "—" for cell in (row.a, row.b)]
    return ("" if set(both) == {"—"} else ", ".join(both),)


def _blocks(row: Row) -> tuple[str]:
    known = row.estimate
    # a reference has boxes, and no blocks
    return ("" if isinstance(known, Missing) else f"{known.blocks_a or '—'}/{known.blocks_b or '—'}",)


def _peak(cell: Cell, in_full: bool, beside: Sequence[Cell]) -> str | Missing:
    reasons = [use.of_sheet.reason for use in cell.uses if isinstance(use.of_sheet, Missing)]
    if cell.result is not None and cell.result.case.variant.device_class == "cpu":
        reasons = ["no peak is known for a CPU"]
    return share_text(share_of_sheet(cell.uses)) or Missing(
        reasons[0] if reasons else "its operations and bytes are not counted"
    )


def _cost(cell: Cell, in_full: bool, beside: Sequence[Cell]) -> str | Missing:
    if isinstance(cell.cost, Cost):
        return cost_text(cell, beside, with_interval=in_full)
    if cell.cost.reason.startswith("no price"):
        return Missing("no price is stored: gputui run --price USD_PER_H stores one")
    return cell.cost


def _with_ends(name: str, found: SpeedEstimate | Cost | Energy | Missing) -> dict[str, Value]:
    """A value and its interval by names of columns; all None where it is missing."""
    fields = {name: name, f"{name}_low": "low", f"{name}_high": "high"}
    return {column: getattr(found, field, None) for column, field in fields.items()}


RATE = ComparisonColumn(
    name="rate",
    headings=("a", "b", "unit"),
    cells=rate_cells,
    default="always",
    is_before_verdict=True,
    value=lambda cell, in_full, beside: rate_text(cell) if in_full else rate_text(cell).removesuffix("/s"),
    csv=lambda cell: _with_ends("units_per_s", cell.speed),
)
CLOCK = ComparisonColumn(
    name="clock",
    headings=(GAVE,),
    cells=_clocks,
    default="always",
    is_before_verdict=True,
    value=lambda cell, in_full, beside: _gave(cell) or Missing("no rate is far from what the clock saw"),
    title=GAVE,
    absent="rate by the clock",
    csv=lambda cell: {
        "clock_units_per_s": None if cell.result is None else known(rate_of(cell.result, by_clock=True))
    },
)
TIME = ComparisonColumn(
    name="time",
    headings=("a per step", "b per step"),
    cells=lambda row: (time_text(row.a), time_text(row.b)),
    is_before_verdict=True,
    value=lambda cell, in_full, beside: time_text(cell),
    title="per step",
)
RATIO = ComparisonColumn(
    name="ratio",
    headings=("b vs a",),
    cells=lambda row: (change_text(row.rate),),
    default="always",
    is_before_verdict=True,
)
BLOCKS = ComparisonColumn(
    name="n",
    headings=("n",),
    cells=_blocks,
    default="wide",
    csv=lambda cell: {name: getattr(cell.speed, name, None) for name in ("blocks", "launches")},
)
PEAK = ComparisonColumn(
    name="peak",
    headings=("% of spec a/b",),
    between="/",
    default="wide",
    value=_peak,
    title="of the peak",
    absent="share of the peak",
    csv=lambda cell: {"of_peak": share_of_sheet(cell.uses)},
)
COST = ComparisonColumn(
    name="cost",
    headings=("cost a, b",),
    default="below",
    value=_cost,
    title="cost",
    unit=lambda row: cost_unit_of((row.a, row.b))[1],
    absent="cost",
    table_heading="cost",
    csv=lambda cell: _with_ends("usd_per_million", cell.cost),
)
ENERGY = ComparisonColumn(
    name="energy",
    headings=("energy a, b",),
    value=lambda cell, in_full, beside: (
        cell.energy if isinstance(cell.energy, Missing) else energy_text(cell, with_interval=in_full)
    ),
    title="energy",
    absent="energy",
    table_heading="energy of the GPU",
    csv=lambda cell: _with_ends("joules_per_unit", cell.energy),
)

COLUMNS: tuple[ComparisonColumn, ...] = (RATE, CLOCK, TIME, RATIO, BLOCKS, PEAK, COST, ENERGY)
"""In the order of every table; a row's name and verdict are always there."""
COLUMNS_OF_SIDES = (*(c for c in COLUMNS if c.value is not None and c not in (CLOCK, PEAK)), PEAK)
"""In the order in which the Compare screen goes through them; what the box gave stands beside its rate."""


def columns_of(text: str) -> tuple[ComparisonColumn, ...]:
    """Columns from a list with commas. Raises GputuiError, with those there are, for any other."""
    chosen = tuple(filter(None, (word.strip() for word in text.split(","))))
    by_name = {column.name: column for column in COLUMNS}
    unknown = [word for word in chosen if word not in by_name]
    if unknown or not chosen:
        raise GputuiError(
            f"--columns {text}: {f'{unknown[0]} is not a column' if unknown else 'names none'}",
            f"one or more of {', '.join(by_name)}, separated by commas",
        )
    return tuple(by_name[word] for word in chosen)
