"""What would turn the answer of a comparison round: another price, or another kind of work."""

from __future__ import annotations

from collections.abc import Iterable

from gputui.model.absent import Missing
from gputui.model.units import RATES, counted, format_hourly, format_percent, three_digits
from gputui.services.compare.headline import claim, main_row, names_of, subject
from gputui.services.compare.pairing import Comparison, Row

_MOST_CASES = 4


TurningPoint = tuple[str, str]
"""A condition, and what holds then: `if L4 costs $2.25/h or more`, `H200 is cheaper per token`."""


def turning_points(comparison: Comparison) -> list[TurningPoint]:
    """From the price at which costs are even, and from the cases that are decided the other way.

    They are of the main case; none where it is undecided.
    """
    main = main_row(comparison.rows)
    if main is None or not main.rate.differs:
        return []
    return [*_price(main, *names_of(comparison)), *_cases(main, comparison)]


def break_even_usd_per_hour(row: Row) -> float | None:
    """The hourly price of b at which a unit of work costs the same on both; None where costs are unknown."""
    b = row.b.run
    if b is None or row.cost.ratio is None or isinstance(b.price, Missing):
        return None
    return b.price.usd_per_hour / row.cost.ratio[0]


def _price(main: Row, name_a: str, name_b: str) -> Iterable[TurningPoint]:
    """The hourly price of b at which a unit of work costs the same on both."""
    noun = RATES[main.case.unit].noun
    a, b = main.a.run, main.b.run
    if a is None or b is None or a.run_id == b.run_id or main.rate.ratio is None:
        return
    ratio = main.rate.ratio[0]
    even = break_even_usd_per_hour(main)
    if even is None:
        share = f"{format_percent(ratio)} of" if ratio < 1 else f"{three_digits(ratio)} times"
        yield (f"if {name_b} costs less than {share} {name_a}", f"{name_b} is cheaper per {noun}")
        return
    rounded = format_hourly(float(f"{even:.3g}"))
    if main.cost.word == "cheaper":
        yield (f"if {name_b} costs {rounded} or more", f"{name_a} is cheaper per {noun}")
    elif main.cost.word == "dearer":
        yield (f"if {name_b} costs {rounded} or less", f"{name_b} is cheaper per {noun}")


def _cases(main: Row, comparison: Comparison) -> Iterable[TurningPoint]:
    """Cases decided the other way, by cost where costs are known."""
    by_cost = main.cost.differs
    mine = (main.cost if by_cost else main.rate).verdict.word
    against = [
        row
        for row in comparison.rows
        if row is not main and (j := row.cost if by_cost else row.rate).differs and j.verdict.word != mine
    ]
    better = names_of(comparison)[mine == "slower"]
    for row in against[:_MOST_CASES]:
        yield (f"for {subject(row, comparison.rows)}", f"{claim(row, comparison)}: take {better}")
    if len(against) > _MOST_CASES:
        yield (counted(len(against) - _MOST_CASES, "more case"), f"take {better}")
