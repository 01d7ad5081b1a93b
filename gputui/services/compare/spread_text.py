"""What the intervals of a comparison rest on: how much the launches and runs of each box vary."""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Any  # JSON

from gputui.analysis.spread import ASSUMED, RUN_DF, BoxSpread
from gputui.model.units import counted, format_percent
from gputui.services.compare.pairing import Comparison, Side, SideCase
from gputui.services.results.throughput import run_spread_of
from gputui.services.results.variation import NOTHING_KNOWN


def spread_lines(comparison: Comparison) -> Iterator[str]:
    """A line for each side and device; one for both sides if they are one run."""
    is_one_run = comparison.a.run.run_id == comparison.b.run.run_id
    sides = (("", comparison.a),) if is_one_run else (("a: ", comparison.a), ("b: ", comparison.b))
    for name, side in sides:
        for device, case in _devices(side).items():
            if (spread := case.result.between_boxes) is not None:
                boxes = counted(case.run.replicates, "box")
                few = "too few to show how much such boxes vary, so an assumed spread is taken"
                many = "how much they vary, each row shows"
                is_few = math.isinf(spread.df)
                yield f"{name}{boxes}: {few}" if is_few else f"{name}{boxes} and one more: {many}"
                continue
            prior, runs = _box_spread(side, case), run_spread_of(case.result)
            launches = "as much as assumed"
            if prior.rows:
                known = f"{counted(prior.launches, 'launch')} of {counted(prior.rows, 'row')}"
                launches = f"{math.sqrt(prior.factor):.2g} times as much as assumed, as {known} show"
            how = "assumed" if runs.df <= RUN_DF else "as its runs show"
            of_runs = f"; its runs vary by {format_percent(math.sqrt(runs.variance))}, {how}"
            yield f"{name}launches on the {device.upper()} vary {launches}{'' if is_one_run else of_runs}"


def spread_as_json(side: Side) -> list[dict[str, Any]]:
    """The same as numbers, for one side."""
    found = []
    for device, case in _devices(side).items():
        prior = _box_spread(side, case)
        runs = case.result.between_boxes or run_spread_of(case.result)
        found.append(
            {
                "device_class": device,
                "launch_sd_over_assumed": math.sqrt(prior.factor) if prior.rows else None,
                "prior_df": prior.df,
                "rows": prior.rows,
                "launches": prior.launches,
                "run_sd": math.sqrt(runs.variance),
                "run_df": None if math.isinf(runs.df) else runs.df,
            }
        )
    return found


def _box_spread(side: Side, case: SideCase) -> BoxSpread:
    known = side.variations.get(case.run.machine.machine_id, NOTHING_KNOWN)
    return known.launches.get(case.result.case.variant.device_class, ASSUMED)


def _devices(side: Side) -> dict[str, SideCase]:
    """A measured case of each class of device."""
    measured = [case for case in side.cases if case.result.outcome == "ok"]
    return {case.result.case.variant.device_class: case for case in reversed(measured)}
