"""What one side of a row says in the columns of the sides: one of several values, or why it has none."""

from __future__ import annotations

from dataclasses import dataclass

from gputui.analysis.cost import Cost
from gputui.analysis.energy import Energy
from gputui.analysis.verdict import SpeedEstimate
from gputui.model.absent import Missing
from gputui.services.compare.pairing import Cell
from gputui.services.compare.row_text import cost_text, energy_text, peak_text, rate_text, time_text


@dataclass(frozen=True, slots=True)
class Value:
    """One thing that the columns of the sides can show."""

    column: str
    """Its name in `gputui compare --columns`."""
    title: str
    """Behind the name of a side, as in `a per step`; empty for rates."""
    said: str
    """As it is called in a sentence."""


VALUES: tuple[Value, ...] = (
    Value("rate", "", "rates"),
    Value("time", "per step", "times of a step"),
    Value("cost", "cost", "what work costs"),
    Value("energy", "energy", "energy of the GPU for a unit of work"),
    Value("peak", "of the peak", "shares of the data sheet's peak"),
)
"""In the order they are gone through."""


def value_of(cell: Cell, column: str, *, is_wide: bool = True) -> str | Missing:
    """A value of VALUES in words; Missing with what would give one.

    `is_wide`: costs and energies with their intervals. The words are those of `gputui compare --columns`.
    """
    if cell.result is None:
        return Missing("it does not have this case")
    if not isinstance(cell.speed, SpeedEstimate):
        return rate_text(cell) if column == "rate" else Missing("it was not measured")
    match column:
        case "time":
            return time_text(cell)
        case "cost":
            return (
                cost_text(cell, with_interval=is_wide) if isinstance(cell.cost, Cost) else _no_cost(cell.cost)
            )
        case "energy":
            if isinstance(cell.energy, Energy):
                return energy_text(cell, with_interval=is_wide)
            return cell.energy
        case "peak":
            return peak_text(cell) or _no_peak(cell)
    return rate_text(cell)


def absences(sides: tuple[tuple[str, Cell], ...], column: str) -> str:
    """Why values of measured sides of a row are absent, the sides named; empty if all are there."""
    reasons: dict[str, list[str]] = {}
    for name, cell in sides:
        value = value_of(cell, column)
        if isinstance(value, Missing) and isinstance(cell.speed, SpeedEstimate):
            reasons.setdefault(value.reason, []).append(name)
    return "; ".join(f"{' and '.join(names)}: {reason}" for reason, names in reasons.items())


def _no_cost(cost: Missing) -> Missing:
    if cost.reason.startswith("no price"):
        return Missing("no price is stored: gputui run --price USD_PER_H stores one")
    return cost


def _no_peak(cell: Cell) -> Missing:
    reasons = [use.of_sheet.reason for use in cell.uses if isinstance(use.of_sheet, Missing)]
    if cell.result is not None and cell.result.case.variant.device_class == "cpu":
        return Missing("no peak is known for a CPU")
    return Missing(reasons[0] if reasons else "its operations and bytes are not counted")
