"""Profiled passes as `show` prints them: breakdown of a step, its operators, and its memory."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from rich.console import Console
from rich.text import Text

from gputui.model.absent import Missing
from gputui.model.profiled import MemoryPoint, Operator, ProfiledPass
from gputui.model.result import Run
from gputui.model.units import format_bytes, format_percent, format_ratio, format_seconds
from gputui.services.results.labels import case_name
from gputui.services.results.step_breakdown import StepBreakdown, breakdown_of, is_believed
from gputui.services.support.text_tables import add_row, table

_LEAST_SHARE = 0.005
_POINTS = {
    "start": "at start",
    "after_forward": "+ forward",
    "after_backward": "+ backward",
    "after_optimizer": "+ optimizer",
    "peak": "at peak",
}


def print_breakdowns(out: Console, run: Run, passes: Mapping[int, ProfiledPass], top: int) -> None:
    """Print each profiled case; nothing if none was profiled."""
    for case in run.cases:
        found = passes.get(case.case_id)
        if found is None:
            continue
        out.print()
        breakdown = breakdown_of(found, case)
        if isinstance(breakdown, Missing):
            out.print(Text(f"{case_name(case)}: not profiled: {breakdown.reason}"))
            continue
        out.print(Text(f"a step of {case_name(case)}: {_heading(breakdown, found)}", style="bold"))
        for line in _breakdown(breakdown):
            out.print(Text(f"  {line}"))
        _print_operators(out, breakdown.operators[:top], found)
        _print_memory(out, found)


def _heading(breakdown: StepBreakdown, found: ProfiledPass) -> str:
    text = f"{format_seconds(breakdown.step_ns * 1e-9)} in {found.steps} profiled steps"
    if isinstance(breakdown.inflation, Missing):
        return text
    doubt = "" if is_believed(breakdown) else ", so shares are rough"
    return f"{text}, {format_ratio(breakdown.inflation)} as long as the timed one{doubt}"


def _breakdown(breakdown: StepBreakdown) -> Iterator[str]:
    """`compute 94 %: backward 66 %, forward 24 %, optimizer 4 %`."""
    for share in breakdown.shares:
        if share.share >= _LEAST_SHARE:
            parts = [
                f"{phase} {format_percent(part)}" for phase, part in share.phases if part >= _LEAST_SHARE
            ]
            where = f": {', '.join(parts)}" if len(share.phases) > 1 else f" ({share.phases[0][0]})"
            yield f"{share.name} {format_percent(share.share)}{where}"
    rest = sum(share.share for share in breakdown.shares if share.share < _LEAST_SHARE)
    if rest > 0:
        yield f"others {format_percent(rest)}"


def _print_operators(out: Console, operators: Sequence[Operator], found: ProfiledPass) -> None:
    if not operators:
        return
    made = table(["  operator", "phase", "on", "calls", "per step", "share"], right=(3, 4, 5))
    for row in operators:
        add_row(
            made,
            f"  {_cut(row.operator.removeprefix('aten::'), 28)}",
            row.phase,
            _shapes(row.shapes),
            f"{row.calls / found.steps:g}" if row.calls else "",
            format_seconds(row.time_ns * 1e-9 / found.steps),
            format_percent(row.time_ns / found.window_ns),
        )
    out.print(made)


def _shapes(shapes: str) -> str:
    """The first input, and the second if both are short."""
    first, _, rest = shapes.partition(",")
    second = rest.partition(",")[0]
    both = f"{first} {second}".strip()
    return both if len(both) <= 18 else _cut(first, 18)


def _cut(text: str, width: int) -> str:
    return text if len(text) <= width else f"{text[: width - 1]}…"


def _print_memory(out: Console, found: ProfiledPass) -> None:
    if not found.memory:
        out.print(Text(f"  memory: not known: {found.memory_reason}"))
        return
    headings = ["  memory", "weights", "gradients", "optimizer", "activations", "inputs", "other", "sum"]
    made = table(headings, right=range(1, len(headings)))
    for point in found.memory:
        add_row(
            made,
            f"  {_POINTS[point.point]}",
            *map(_bytes, _parts(point)),
            format_bytes(point.allocated_bytes),
        )
    out.print(made)


def _parts(point: MemoryPoint) -> tuple[int, ...]:
    return (
        point.weights_bytes,
        point.gradients_bytes,
        point.optimizer_bytes,
        point.activations_bytes,
        point.inputs_bytes,
        point.other_bytes,
    )


def _bytes(count: int) -> str:
    return format_bytes(count) if count else "0"
