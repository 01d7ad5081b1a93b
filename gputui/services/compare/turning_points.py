"""What would turn the answer of a comparison round: another price, or another kind of work."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from gputui.model.absent import Missing
from gputui.model.units import RATES, counted, format_hourly, format_percent, three_digits
from gputui.services.compare.headline import change_phrase, main_row, subject
from gputui.services.compare.pairing import Row

_MOST_CASES = 4


TurningPoint = tuple[str, str]
"""A condition, and what holds then: `b at $2.25/h or more`, `a is the cheaper one per token`."""


def turning_points(rows: Sequence[Row]) -> list[TurningPoint]:
    """From the price at which costs are even, and from the cases that are decided the other way.

    They are of the main case; none where it is undecided.
    """
    main = main_row(rows)
    if main is None or not main.rate.differs:
        return []
    return [*_price(main), *_cases(main, rows)]


def break_even_usd_per_hour(row: Row) -> float | None:
    """The hourly price of b at which a unit of work costs the same on both; None where costs are unknown."""
    b = row.b.run
    if b is None or row.cost.ratio is None or isinstance(b.price, Missing):
        return None
    return b.price.usd_per_hour / row.cost.ratio[0]


def _price(main: Row) -> Iterable[TurningPoint]:
    """The hourly price of b at which a unit of work costs the same on both."""
    noun = RATES[main.case.unit].noun
    a, b = main.a.run, main.b.run
    if a is None or b is None or a.run_id == b.run_id or main.rate.ratio is None:
        return
    ratio = main.rate.ratio[0]
    even = break_even_usd_per_hour(main)
    if even is None:
        share = f"{format_percent(ratio)} of" if ratio < 3 else f"{three_digits(ratio)} times"
        yield (f"b below {share} a's price", f"b is the cheaper one per {noun}")
        return
    rounded = format_hourly(float(f"{even:.3g}"))
    if main.cost.word == "cheaper":
        yield (f"b at {rounded} or more", f"a is the cheaper one per {noun}")
    elif main.cost.word == "dearer":
        yield (f"b at {rounded} or less", f"b is the cheaper one per {noun}")


def _cases(main: Row, rows: Sequence[Row]) -> Iterable[TurningPoint]:
    """Cases decided the other way, by cost where costs are known."""
    by_cost = main.cost.differs
    mine = (main.cost if by_cost else main.rate).verdict.word
    against = [
        row
        for row in rows
        if row is not main and (j := row.cost if by_cost else row.rate).differs and j.verdict.word != mine
    ]
    better = "b" if mine == "slower" else "a"
    for row in against[:_MOST_CASES]:
        yield (subject(row, rows), f"b {change_phrase(row)}: take {better}")
    if len(against) > _MOST_CASES:
        yield (counted(len(against) - _MOST_CASES, "more case"), f"take {better}")
