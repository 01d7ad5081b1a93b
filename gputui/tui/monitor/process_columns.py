"""The columns of the process table: contents, widths and sort keys."""

from __future__ import annotations

from collections.abc import Callable, Container
from dataclasses import dataclass

from gputui.metrics import ABSENT, Units, with_unit
from gputui.model.absent import Missing
from gputui.model.telemetry import (
    ENDED,
    FOREIGN,
    HIDDEN,
    MIG_PER_GPU,
    ProcessSample,
    device_label,
    device_order,
)
from gputui.tui.widgets.cells import clean

Key = float | str | None
"""A sort key; None always comes last."""


@dataclass(frozen=True, slots=True)
class ProcessColumn:
    """One column; to add one, add a line to COLUMNS."""

    id: str
    """As in the settings."""
    title: str
    width: int
    """0: the remaining width."""
    is_right: bool
    dropped: int
    """Columns with higher values are dropped first in a narrow terminal; 0 is never dropped."""
    show: Callable[[ProcessSample, Units], str]
    key: Callable[[ProcessSample], Key]
    is_descending: bool
    """The default sort direction."""
    needs: str = ""
    """What no process has a value without: `a GPU`, `MIG`, `a job`."""


def time_text(seconds: float) -> str:
    """`12 s`, `35 min`, `5.2 h`, `3.1 d`: at most seven cells, and seldom changing."""
    if seconds < 60:
        return f"{max(seconds, 0):.0f} s"
    if seconds < 3600:
        return f"{seconds // 60:.0f} min"
    return f"{seconds / 3600:.1f} h" if seconds < 86400 else f"{seconds / 86400:.1f} d"


def is_of_here(process: ProcessSample) -> bool:
    """False if its PID belongs to the host or another container, and is meaningless here."""
    return process.command in (ENDED, FOREIGN, HIDDEN) or not (
        isinstance(process.start_ticks, Missing)
        and isinstance(process.command, Missing)
        and isinstance(process.parent_pid, Missing)
    )


def gpu_memory(process: ProcessSample) -> tuple[float | None, bool]:
    """Memory on all its GPUs, and whether that is all of it; None if nothing is known."""
    known = [use.memory_bytes for use in process.uses if not isinstance(use.memory_bytes, Missing)]
    return (float(sum(known)) if known else None), len(known) == len(process.uses)


def sm_share(process: ProcessSample) -> float | None:
    """The sum of SM % over its GPUs; None if nothing is known."""
    known = [use.sm_pct for use in process.uses if not isinstance(use.sm_pct, Missing)]
    return sum(known) if known else None


def devices_text(process: ProcessSample) -> str:
    """`3`, `0-7`, `0,2`; `0:1` for a MIG instance."""
    devices = sorted({use.device for use in process.uses}, key=device_order)
    is_range = len(devices) > 2 and devices[-1] - devices[0] == len(devices) - 1
    if is_range and not is_on_mig(process):
        return f"{devices[0]}-{devices[-1]}"
    return ",".join(device_label(device) for device in devices)


def is_on_mig(process: ProcessSample) -> bool:
    """Whether any device that it uses is a MIG instance."""
    return any(use.is_on_mig for use in process.uses)


def slices_text(process: ProcessSample) -> str:
    """`1g.10gb`, or `whole`."""
    slices = {use.mig_profile or "slice" if use.is_on_mig else "whole" for use in process.uses}
    return clean(",".join(sorted(slices)))


def _first_device(process: ProcessSample) -> Key:
    places = [device_order(use.device) for use in process.uses]
    if not places:
        return None
    gpu, index = min(places)
    return gpu + (index + 1) / MIG_PER_GPU


def command_text(process: ProcessSample) -> str:
    """The command line, cleaned; in brackets why there is none."""
    if isinstance(process.command, Missing):
        if not is_of_here(process):
            return f"[PID of the host: {clean(process.command.reason)}]"
        return f"[{clean(process.command.reason)}]"
    return clean(process.command[:4096]).strip() or "[no command line]"


def user_text(process: ProcessSample) -> str:
    """The user, cleaned."""
    return ABSENT if isinstance(process.user, Missing) else clean(process.user[:256])


def _optional(value: float | Missing) -> float | None:
    return None if isinstance(value, Missing) else value


def _share(value: float | None) -> str:
    return ABSENT if value is None else f"{value:.0f}"


def _show_gpu_memory(process: ProcessSample, units: Units) -> str:
    amount, is_all = gpu_memory(process)
    return with_unit(amount, "B", units) + ("" if is_all or amount is None else "+")


def _show_time(process: ProcessSample, units: Units) -> str:
    return ABSENT if isinstance(process.elapsed_s, Missing) else time_text(process.elapsed_s)


def _types(process: ProcessSample, units: Units) -> str:
    kinds = {letter for use in process.uses for letter in use.kind}
    return clean("".join(sorted(kinds)))


def job_text(process: ProcessSample) -> str:
    """`slurm 4711`, `pod train-0`, `docker 3f9c2a17b0de`; empty outside of any."""
    return "" if isinstance(process.job, Missing) else clean(process.job[:256])


COLUMNS: tuple[ProcessColumn, ...] = (
    ProcessColumn("pid", "PID", 7, True, 0, lambda p, u: str(p.pid), lambda p: p.pid, False),
    ProcessColumn("user", "USER", 8, False, 3, lambda p, u: user_text(p), user_text, False),
    ProcessColumn("gpu", "GPU", 4, True, 0, lambda p, u: devices_text(p), _first_device, False, "a GPU"),
    ProcessColumn("slice", "SLICE", 10, False, 1, lambda p, u: slices_text(p), slices_text, False, "MIG"),
    ProcessColumn("type", "TYPE", 4, False, 9, _types, lambda p: _types(p, Units()), False, "a GPU"),
    ProcessColumn("sm", "SM%", 4, True, 2, lambda p, u: _share(sm_share(p)), sm_share, True, "a GPU"),
    ProcessColumn(
        "gpu-mem",
        "GPU-MEM",
        10,
        True,
        0,
        _show_gpu_memory,
        lambda p: gpu_memory(p)[0],
        True,
        "a GPU",
    ),
    ProcessColumn(
        "cpu",
        "CPU%",
        5,
        True,
        7,
        lambda p, u: _share(_optional(p.cpu_pct)),
        lambda p: _optional(p.cpu_pct),
        True,
    ),
    ProcessColumn(
        "host-mem",
        "HOST-MEM",
        9,
        True,
        8,
        lambda p, u: with_unit(_optional(p.memory_bytes), "B", u),
        lambda p: _optional(p.memory_bytes),
        True,
    ),
    ProcessColumn("time", "TIME", 7, True, 5, _show_time, lambda p: _optional(p.elapsed_s), True),
    ProcessColumn("job", "JOB", 16, False, 6, lambda p, u: job_text(p), job_text, False, "a job"),
    ProcessColumn("command", "COMMAND", 0, False, 0, lambda p, u: command_text(p), command_text, False),
)
_LEAST_COMMAND = 12
_COMMAND_SHARE = 3 / 8
"""Of the width that the command keeps; other columns are dropped for it."""


def column_named(name: str) -> ProcessColumn:
    """The column with this id; the first if there is none."""
    return next((column for column in COLUMNS if column.id == name), COLUMNS[0])


def columns_for(width: int, there: Container[str] = ("a GPU",)) -> tuple[ProcessColumn, ...]:
    """The columns that fit; the command has the rest of the width. `there` is what columns may need."""
    shown = [column for column in COLUMNS if not column.needs or column.needs in there]
    least = max(_LEAST_COMMAND, round(width * _COMMAND_SHARE))
    while sum(column.width + 1 for column in shown) + least - 1 > width:
        giving_way = max(shown, key=lambda column: column.dropped)
        if giving_way.dropped == 0:
            break
        shown.remove(giving_way)
    return tuple(shown)
