"""What would turn the answer of a comparison round: another price, or another kind of work."""

from __future__ import annotations

from collections.abc import Iterable

from gputui.model.absent import Missing
from gputui.model.units import RATES, counted, format_hourly, format_percent, three_digits
from gputui.services.compare.headline import claim, names_of, subject
from gputui.services.compare.pairing import Comparison, Row, main_row

_MOST_CASES = 4


def turning_points(comparison: Comparison) -> list[tuple[str, str]]:
    """Conditions, and what holds then: `if L4 costs $2.25/h or more`, `H200 is cheaper per token`.

    From the price at which costs are even, and from the cases that are decided the other way.

    They are of the main case; none where it is undecided.
    """
    main = main_row(comparison.rows)
    if main is None or not main.rate.differs:
        return []
    return [*price_points(main, comparison), *_cases(main, comparison)]


def price_points(main: Row, comparison: Comparison) -> Iterable[tuple[str, str]]:
    """The hourly price of b at which a unit of work costs the same on both."""
    noun, (name_a, name_b) = RATES[main.case.unit].noun, names_of(comparison)
    a, b = main.a.run, main.b.run
    if a is None or b is None or a.run_id == b.run_id or main.rate.ratio is None:
        return
    ratio = main.rate.ratio[0]
    if main.cost.ratio is None or isinstance(b.price, Missing):
        share = f"{format_percent(ratio)} of" if ratio < 1 else f"{three_digits(ratio)} times"
        yield (f"if {name_b} costs less than {share} {name_a}", f"{name_b} is cheaper per {noun}")
        return
    even = format_hourly(float(f"{b.price.usd_per_hour / main.cost.ratio[0]:.3g}"))
    if main.cost.word == "cheaper":
        yield (f"if {name_b} costs {even} or more", f"{name_a} is cheaper per {noun}")
    elif main.cost.word == "dearer":
        yield (f"if {name_b} costs {even} or less", f"{name_b} is cheaper per {noun}")


def _cases(main: Row, comparison: Comparison) -> Iterable[tuple[str, str]]:
    """Cases decided the other way, by cost where costs are known."""
    by_cost = main.cost.differs
    mine = (main.cost if by_cost else main.rate).verdict.word
    against = [
        row
        for row in comparison.rows
        if row is not main
        and not row.is_host_bound
        and (j := row.cost if by_cost else row.rate).differs
        and j.verdict.word != mine
    ]
    better = names_of(comparison)[mine == "slower"]
    for row in against[:_MOST_CASES]:
        yield (f"for {subject(row, comparison.rows)}", f"{claim(row, comparison)}: take {better}")
    if len(against) > _MOST_CASES:
        yield (counted(len(against) - _MOST_CASES, "more case"), f"take {better}")
