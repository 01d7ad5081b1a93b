"""Who uses the box, and what of its price each user's processes take up."""

from __future__ import annotations

from dataclasses import dataclass, field

from gputui.document.spans import ranges
from gputui.metrics import memory_scale, three_digits_of
from gputui.model.absent import Missing
from gputui.model.telemetry import ProcessSample, mig_place
from gputui.model.units import format_usd
from gputui.tui.monitor.frame import Frame
from gputui.tui.monitor.process_columns import user_text
from gputui.tui.terminal.lines import Line, Span
from gputui.tui.widgets.cells import filled, fitted, left, right

USERS_WIDTH = 46
USERS_FROM = 170
"""From this width on, users stand beside the processes."""
_GPUS_CELLS = 8


@dataclass(slots=True)
class _User:
    processes: int = 0
    gpus: set[int] = field(default_factory=set)
    memory_bytes: float = 0.0
    share: float = 0.0
    """Of the box: a GPU is split by the memory that processes hold on it, evenly where that is unknown."""


def users_lines(frame: Frame, height: int) -> list[Line]:
    """A row for each user, most expensive first, and one for GPUs without any; exactly `height` lines."""
    processes = frame.sample.processes
    users, used = _users(() if isinstance(processes, Missing) else processes, len(frame.gpus))
    price = frame.ledger.usd_per_hour
    heading = (
        left("USER", 12) + right("PROCS", 6) + "  " + left("GPUS", _GPUS_CELLS) + right(frame.units.memory, 7)
    )
    lines = [fitted((Span(heading + right("COST NOW", 11) if price else heading, "dim"),), USERS_WIDTH)]
    scale = memory_scale(frame.units)
    rows = [
        (name, str(user.processes), user.gpus, three_digits_of(user.memory_bytes / scale), user.share, "")
        for name, user in sorted(users.items(), key=lambda pair: (-pair[1].share, pair[0]))
    ]
    free = {gpu.device for gpu in frame.gpus} - used
    if free:
        rows.append(("nobody", "0", free, "", len(free) / len(frame.gpus), "warn"))
    for name, count, gpus, memory, share, style in rows:
        text = left(name, 12) + right(count, 6) + "  " + left(_ranges(gpus), _GPUS_CELLS) + right(memory, 7)
        cost = right(f"{format_usd(price * share)}/h", 11) if price else ""
        lines.append(fitted((Span(text + cost, style),), USERS_WIDTH))
    return filled(lines, USERS_WIDTH, height)


def _users(processes: tuple[ProcessSample, ...], gpus: int) -> tuple[dict[str, _User], set[int]]:
    users: dict[str, _User] = {}
    held: dict[int, list[tuple[str, float | None]]] = {}
    for process in processes:
        name = user_text(process)
        user = users.setdefault(name, _User())
        user.processes += 1
        for use in process.uses:
            place = mig_place(use.device)
            gpu = use.device if place is None else place[0]
            amount = None if isinstance(use.memory_bytes, Missing) else float(use.memory_bytes)
            user.gpus.add(gpu)
            user.memory_bytes += amount or 0.0
            held.setdefault(gpu, []).append((name, amount))
    for parts in held.values():
        total = sum(amount or 0.0 for _, amount in parts)
        is_known = total > 0 and all(amount is not None for _, amount in parts)
        for name, amount in parts:
            users[name].share += ((amount or 0.0) / total if is_known else 1 / len(parts)) / max(gpus, 1)
    return users, set(held)


def _ranges(numbers: set[int]) -> str:
    """`0-4 6`; where there is no room for that, how many: `26 GPUs`."""
    text = " ".join(ranges(numbers))
    return text if len(text) <= _GPUS_CELLS else f"{len(numbers)} GPUs"
