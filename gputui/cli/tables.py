"""Tables and lines of plain output: rich draws them, nothing from a file is taken for markup."""

from __future__ import annotations

import sys
from collections.abc import Iterable, Sequence
from datetime import datetime, timedelta, timezone

from rich.console import Console
from rich.table import Table
from rich.text import Text

from gputui.model.absent import Missing
from gputui.model.result import RunSummary


def console(*, to_stderr: bool = False) -> Console:
    """A console of the terminal's width, or of 80 columns (or $COLUMNS) where there is none."""
    return Console(highlight=False, soft_wrap=False, file=sys.stderr if to_stderr else sys.stdout)


def table(headings: Sequence[str], right: Iterable[int] = ()) -> Table:
    """An empty table without lines; the columns in `right` are aligned to the right."""
    made = Table(box=None, pad_edge=False, padding=(0, 1, 0, 0), collapse_padding=True, header_style="bold")
    numeric = set(right)
    for index, heading in enumerate(headings):
        made.add_column(Text(heading), justify="right" if index in numeric else "left", no_wrap=True)
    return made


def add_row(to: Table, *cells: str, style: str = "") -> None:
    """One row of plain text."""
    to.add_row(*(Text(cell) for cell in cells), style=style)


def day(run: RunSummary) -> str:
    """When a run was, in the time zone it was measured in: `20 Nov 14:02`; the year where it is another."""
    zone = timezone(timedelta(minutes=run.utc_offset_min))
    moment = datetime.fromtimestamp(run.started_utc_us / 1e6, zone)
    year = "" if moment.year == datetime.now(zone).year else f" {moment.year}"
    return f"{moment.day} {_MONTHS[moment.month - 1]}{year} {moment:%H:%M}"


def device_words(run: RunSummary) -> str:
    """The box in a few words: its GPUs, or its processor and the cores a run may use."""
    machine = run.machine
    if machine.gpus:
        names = [gpu.name.removeprefix("NVIDIA ") for gpu in machine.gpus]
        return ", ".join(f"{names.count(name)}x {name}" for name in dict.fromkeys(names))
    model = "CPU" if isinstance(machine.cpu.model, Missing) else machine.cpu.model
    model = model.replace("(R)", "").replace("(TM)", "").replace(" Processor", "")
    cores = machine.cpu.usable_cores
    return f"{model}, {cores} core{'s' if cores > 1 else ''}"


def torch_words(run: RunSummary) -> str:
    """`torch 2.13.0+cpu`, or that there is none."""
    version = run.runtime.torch_version
    return "no torch" if isinstance(version, Missing) else f"torch {version}"


_MONTHS = ("Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec")
