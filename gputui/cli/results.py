"""The table of one run, as `run` ends with it and `show` prints it."""

from __future__ import annotations

import math
from collections.abc import Sequence

from rich.console import Console
from rich.text import Text

from gputui.analysis.cost import Cost
from gputui.analysis.verdict import SpeedEstimate
from gputui.cli.tables import add_row, table
from gputui.model.absent import Missing
from gputui.model.result import CaseResult, Run
from gputui.model.units import RATES, format_percent, format_rate, format_seconds, format_usd
from gputui.services.normality import normality_of
from gputui.services.speeds import cost_of, is_crowded, speed_of, waited_share


def print_results(out: Console, run: Run) -> None:
    """Cases with their rates, what was not run and why, and whether the box is normal."""
    priced = not isinstance(run.summary.price, Missing)
    headings = ["case", "rate", "per step", "95 %", "blocks"] + (["$ for"] if priced else [])
    made = table(headings, right=(1, 2, 3))
    unmeasured: dict[str, list[str]] = {}
    for case in run.cases:
        speed = speed_of(case)
        if isinstance(speed, SpeedEstimate):
            add_row(made, *_measured(case, speed), *([_price(case, run)] if priced else []))
        else:
            unmeasured.setdefault(_why(case), []).append(case.case.name)
    if made.row_count:
        out.print(made)
    for reason, names in unmeasured.items():
        shown = ", ".join(names) if len(names) <= 2 else f"{len(names)} {_common_part(names)}cases"
        out.print(Text(f"{shown}: {reason}"))
    for line in _notes(run):
        out.print(Text(line))
    out.print()
    judged = normality_of(run)
    if not judged:
        out.print("NO REFERENCE: no ceiling (gemm, membw) was measured to tell whether this box is normal")
    for normality in judged:
        out.print(Text(normality.text, style="bold" if normality.word != "NO REFERENCE" else ""))


def case_name(case: CaseResult) -> str:
    """The case's name with the type that `amp` became."""
    used = {m.precision_used for m in case.measurements if m.precision_used}
    name = case.case.name
    types = sorted(u.removeprefix("amp-") for u in used if u.startswith("amp-"))
    return name.replace(" amp", f" amp({'/'.join(types)})") if types else name


def half_width(speed: SpeedEstimate) -> float:
    """Half the 95 % interval, relative, taken on the log scale: 0.1 is a factor of 1.1 either way."""
    return math.expm1(math.log(speed.high / speed.low) / 2)


def _measured(case: CaseResult, speed: SpeedEstimate) -> tuple[str, ...]:
    seconds = case.case.units_per_step / speed.units_per_s
    blocks = sum(len(m.blocks) for m in case.measurements if m.outcome == "ok")
    return (
        case_name(case),
        format_rate(speed.units_per_s, case.case.unit),
        format_seconds(seconds),
        f"±{format_percent(half_width(speed))}",
        f"{blocks}" if speed.launches == 1 else f"{blocks} in {speed.launches} launches",
    )


def _price(case: CaseResult, run: Run) -> str:
    cost = cost_of(case, run.summary.price)
    if not isinstance(cost, Cost):
        return "—"
    share = f" (share {format_percent(cost.share)})" if cost.is_share else ""
    return f"{format_usd(cost.usd_per_million)} {RATES[case.case.unit].per_million}{share}"


def _common_part(names: Sequence[str]) -> str:
    """The words that all names share, such as `gpu `."""
    shared = [word for word in names[0].split() if all(word in name.split() for name in names)]
    return "".join(f"{word} " for word in shared)


def _why(case: CaseResult) -> str:
    return f"{case.outcome}: {case.reason}" if case.reason else case.outcome


def _notes(run: Run) -> list[str]:
    """What a reader must know to read the table rightly."""
    notes = []
    launches = {speed.launches for speed in map(speed_of, run.cases) if isinstance(speed, SpeedEstimate)}
    if launches and min(launches) < 3:
        notes.append(
            f"95 %: with {min(launches)} launch{'es' if min(launches) > 1 else ''} most of it is how much "
            "launches vary elsewhere; --launches 3 measures it here."
        )
    unsettled = [
        case_name(c)
        for c in run.cases
        if any(m.outcome == "ok" and m.stable is False for m in c.measurements)
    ]
    if unsettled:
        shown = ", ".join(unsettled[:3]) + (f" and {len(unsettled) - 3} more" if len(unsettled) > 3 else "")
        notes.append(f"not stable after warm-up: {shown}")
    crowded = [f"{case_name(c)} {_waited(c)}" for c in run.cases if is_crowded(c)]
    if crowded:
        shown = ", ".join(crowded[:3]) + (f" and {len(crowded) - 3} more" if len(crowded) > 3 else "")
        notes.append(f"other processes held its CPUs during: {shown} of the time")
    return notes


def _waited(case: CaseResult) -> str:
    share = waited_share(case)
    return "" if isinstance(share, Missing) else format_percent(share)
