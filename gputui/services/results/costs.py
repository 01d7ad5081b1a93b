"""What a unit of work costs, for the tables of one run."""

from __future__ import annotations

from gputui.analysis.cost import Cost
from gputui.model.absent import Missing
from gputui.model.journal import Price
from gputui.model.units import cost_unit, format_percent, format_usd
from gputui.services.results.throughput import Speeds, cost_of


def cost_cells(measured: Speeds, price: Price | Missing) -> list[str]:
    """Heading and `$4.52 per Gtok`, one unit per workload; empty where there is no price."""
    found = [(case.case, cost_of(case, price)) for case, _ in measured]
    priced = [(case, cost) for case, cost in found if isinstance(cost, Cost)]
    least: dict[str, float] = {}
    for case, cost in priced:
        name = case.work.workload
        least[name] = min(least.get(name, cost.usd_per_million), cost.usd_per_million)
    shares = {cost.share for _, cost in priced}
    is_one_share = len(shares) == 1 and shares != {1.0}
    cells = [f"cost ({format_percent(min(shares))} share)" if is_one_share else "cost"]
    for case, known in found:
        if not isinstance(known, Cost):
            cells.append("")
            continue
        millions, name = cost_unit(least[case.work.workload], case.unit)
        share = f" ({format_percent(known.share)} share)" if known.is_share and not is_one_share else ""
        cells.append(f"{format_usd(known.usd_per_million * millions)} per {name}{share}")
    return cells
