"""The process table: its columns, sorted, filtered, with a selection that follows its process;
and its users."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Container, Sequence
from dataclasses import dataclass

from gputui.document.spans import Line, Span, ranges
from gputui.metrics import ABSENT, GIB, three_digits_of, with_unit
from gputui.model.absent import Missing
from gputui.model.telemetry import (
    ENDED,
    FOREIGN,
    HIDDEN,
    MIG_PER_GPU,
    ProcessSample,
    device_label,
    device_order,
    mig_place,
)
from gputui.model.units import format_usd
from gputui.tui.monitor.frame import Frame
from gputui.tui.widgets.cells import clean, filled, fitted, left, right

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
    show: Callable[[ProcessSample], str]
    key: Callable[[ProcessSample], Key]
    is_descending: bool
    """The default sort direction."""
    needs: str = ""
    """What no process has a value without: `a GPU`, `MIG`."""

    def fitted(self, text: str) -> str:
        if not self.width:
            return text
        return right(text, self.width) if self.is_right else left(text, self.width)


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
    return ABSENT if isinstance(process.user, Missing) else clean(process.user[:256])


def _optional(value: float | Missing) -> float | None:
    return None if isinstance(value, Missing) else value


def _share(value: float | None) -> str:
    return ABSENT if value is None else f"{value:.0f}"


def _show_gpu_memory(process: ProcessSample) -> str:
    amount, is_all = gpu_memory(process)
    return with_unit(amount, "B") + ("" if is_all or amount is None else "+")


def _types(process: ProcessSample) -> str:
    kinds = {letter for use in process.uses for letter in use.kind}
    return clean("".join(sorted(kinds)))


COLUMNS: tuple[ProcessColumn, ...] = (
    ProcessColumn("pid", "PID", 7, True, 0, lambda p: str(p.pid), lambda p: p.pid, False),
    ProcessColumn("user", "USER", 8, False, 3, user_text, user_text, False),
    ProcessColumn("gpu", "GPU", 4, True, 0, devices_text, _first_device, False, "a GPU"),
    ProcessColumn("slice", "SLICE", 10, False, 1, slices_text, slices_text, False, "MIG"),
    ProcessColumn("type", "TYPE", 4, False, 9, _types, _types, False, "a GPU"),
    ProcessColumn("sm", "SM%", 4, True, 2, lambda p: _share(sm_share(p)), sm_share, True, "a GPU"),
    ProcessColumn(
        "gpu-mem", "GPU-MEM", 10, True, 0, _show_gpu_memory, lambda p: gpu_memory(p)[0], True, "a GPU"
    ),
    ProcessColumn(
        "cpu",
        "CPU%",
        5,
        True,
        7,
        lambda p: _share(_optional(p.cpu_pct)),
        lambda p: _optional(p.cpu_pct),
        True,
    ),
    ProcessColumn(
        "host-mem",
        "HOST-MEM",
        9,
        True,
        8,
        lambda p: with_unit(_optional(p.memory_bytes), "B"),
        lambda p: _optional(p.memory_bytes),
        True,
    ),
    ProcessColumn(
        "time",
        "TIME",
        7,
        True,
        5,
        lambda p: ABSENT if isinstance(p.elapsed_s, Missing) else time_text(p.elapsed_s),
        lambda p: _optional(p.elapsed_s),
        True,
    ),
    ProcessColumn("command", "COMMAND", 0, False, 0, command_text, command_text, False),
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


Identity = tuple[int, int | None]
"""PID and start time, which together identify a process."""
LONGEST_FILTER = 200


def identity(process: ProcessSample) -> Identity:
    return process.pid, None if isinstance(process.start_ticks, Missing) else process.start_ticks


class ProcessList:
    def __init__(self, sort: str, *, descending: bool) -> None:
        self.sort = sort
        self.descending = descending
        self.filter = ""
        self.rows: tuple[ProcessSample, ...] = ()
        self.total = 0
        self._there: frozenset[str] = frozenset(("a GPU",))
        """What the columns may need: `MIG`, if a process is on an instance."""
        self.selected: Identity | None = None
        self.top = 0
        """The first visible row."""
        self.in_sight = 0
        self._place = 0
        self._made_of: tuple[object, ...] = ()
        self._drawn_of: tuple[object, ...] = ()
        self._drawn: Sequence[Line] = ()

    def take(self, processes: tuple[ProcessSample, ...] | Missing) -> None:
        """Sort and filter the processes, if anything has changed."""
        made_of = (processes, self.sort, self.descending, self.filter)
        if made_of == self._made_of:
            return
        self._made_of = made_of
        known = () if isinstance(processes, Missing) else processes
        self.total = len(known)
        has_gpus = not known or any(process.uses for process in known)
        self._there = frozenset(["a GPU"] * has_gpus + ["MIG"] * any(map(is_on_mig, known)))
        wanted = self.filter.casefold()
        kept = [process for process in known if not wanted or _matches(process, wanted)]
        self.rows = tuple(self._ordered(kept))
        self._find_selected()

    def _ordered(self, processes: list[ProcessSample]) -> list[ProcessSample]:
        column = column_named(self.sort)
        key = column_named("cpu").key if column.needs and column.needs not in self._there else column.key
        by_pid = sorted(processes, key=lambda process: process.pid)
        keyed = [(key(process), process) for process in by_pid]
        known = [pair for pair in keyed if pair[0] is not None]
        known.sort(key=_by_key, reverse=self.descending)
        return [process for _, process in known] + [process for value, process in keyed if value is None]

    def _find_selected(self) -> None:
        if self.selected is None:
            return
        for place, process in enumerate(self.rows):
            if identity(process) == self.selected:
                self._place = place
                return
        if not self.rows or self.filter:
            return  # keeps the selection for when the filter is removed
        self._place = min(self._place, len(self.rows) - 1)
        self.selected = identity(self.rows[self._place])

    def selected_process(self) -> ProcessSample | None:
        return next((process for process in self.rows if identity(process) == self.selected), None)

    def move(self, by: int) -> None:
        """Move the selection; the first movement selects the first visible row."""
        self.select(self.top if self.selected_process() is None else self._place + by)

    def select(self, place: int) -> None:
        if not self.rows:
            return
        self._place = min(max(place, 0), len(self.rows) - 1)
        self.selected = identity(self.rows[self._place])

    def sort_by(self, name: str) -> None:
        """Sort by this column; if already sorted by it, reverse the order."""
        if name == self.sort:
            self.descending = not self.descending
        else:
            self.sort, self.descending = name, column_named(name).is_descending

    def sort_by_next(self, width: int) -> None:
        """Sort by the next column that is visible at this width."""
        shown = [column.id for column in columns_for(width, self._there)]
        names = [column.id for column in COLUMNS]
        at = names.index(self.sort) if self.sort in names else -1
        after = [*names[at + 1 :], *names[: at + 1]]
        self.sort_by(next((name for name in after if name in shown and name != self.sort), self.sort))

    def drawn(self, width: int, height: int) -> Sequence[Line]:
        """The heading and the visible rows; exactly `height` lines."""
        room = height - 1
        self.in_sight = max(room, 0)
        if self._place < len(self.rows) and identity(self.rows[self._place]) == self.selected:
            if self._place < self.top:
                self.top = self._place
            elif self._place >= self.top + room:
                self.top = self._place - room + 1
        self.top = min(max(self.top, 0), max(len(self.rows) - max(room, 1), 0))
        order = (self.sort, self.descending, bool(self.filter), self._there)
        drawn_of = (self.rows, width, height, self.top, self.selected, order)
        if drawn_of == self._drawn_of:
            return self._drawn
        self._drawn_of = drawn_of
        columns = columns_for(width, self._there)
        shown = self.rows[self.top : self.top + max(room, 0)]
        lines = [self._heading(columns, width), *(self._row(row, columns, width) for row in shown)]
        if not self.rows and room > 0:
            text = "no process matches" if self.filter else "no process uses a GPU"
            lines.append(fitted((Span(text, "dim"),), width))
        self._drawn = filled(lines, width, height)
        return self._drawn

    def column_at(self, x: int, width: int) -> str:
        """The column at a cell of the heading, empty if there is none."""
        start = 0
        for column in columns_for(width, self._there):
            end = start + column.width if column.width else width
            if start <= x < end:
                return column.id
            start = end + 1
        return ""

    def _heading(self, columns: tuple[ProcessColumn, ...], width: int) -> Line:
        spans = []
        for number, column in enumerate(columns):
            is_sorted = column.id == self.sort
            title = column.title + (("▼" if self.descending else "▲") if is_sorted else "")
            if column.width and len(title) > column.width:
                title = title[: column.width - 1] + title[-1]
            spans += [Span(" " * bool(number)), Span(column.fitted(title), "accent" if is_sorted else "dim")]
        return fitted(spans, width)

    def _row(self, process: ProcessSample, columns: tuple[ProcessColumn, ...], width: int) -> Line:
        texts = [column.fitted(column.show(process)) for column in columns]
        text = " ".join(texts)
        if identity(process) == self.selected:
            marked = f"▸{text[1:]}" if text.startswith(" ") else text
            return fitted((Span(left(marked, width), "selected"),), width)
        is_ours = is_of_here(process) and not isinstance(process.command, Missing)
        return fitted((Span(" ".join(texts[:-1]) + " "), Span(texts[-1], "" if is_ours else "dim")), width)


def _by_key(pair: tuple[float | str | None, ProcessSample]) -> tuple[float, str]:
    value = pair[0]
    return (0.0, value.casefold()) if isinstance(value, str) else (value or 0.0, "")


def _matches(process: ProcessSample, wanted: str) -> bool:
    return (
        wanted in str(process.pid)
        or wanted in user_text(process).casefold()
        or wanted in command_text(process).casefold()
        or (is_on_mig(process) and wanted in f"{devices_text(process)} {slices_text(process)}".casefold())
    )


USERS_WIDTH = 46
USERS_FROM = 170
"""From this width on, users stand beside the processes."""
_GPUS_CELLS = 8


def users_lines(frame: Frame, height: int) -> list[Line]:
    """A row for each user, most expensive first, and one for GPUs without any; exactly `height` lines."""
    processes, price, gpus = frame.sample.processes, frame.ledger.usd_per_hour, len(frame.gpus)
    known = () if isinstance(processes, Missing) else processes
    counts = Counter(map(user_text, known))
    held: dict[int, list[tuple[str, float | None]]] = {}
    for process in known:
        for use in process.uses:
            place = mig_place(use.device)
            amount = None if isinstance(use.memory_bytes, Missing) else float(use.memory_bytes)
            held.setdefault(use.device if place is None else place[0], []).append(
                (user_text(process), amount)
            )
    used: dict[str, set[int]] = {name: set() for name in counts}
    memory, shares = dict.fromkeys(counts, 0.0), dict.fromkeys(counts, 0.0)
    for gpu, parts in held.items():  # split by the memory that processes hold, evenly if that is unknown
        total = sum(amount or 0.0 for _, amount in parts)
        is_known = total > 0 and all(amount is not None for _, amount in parts)
        for name, amount in parts:
            used[name].add(gpu)
            memory[name] += amount or 0.0
            shares[name] += ((amount or 0.0) / total if is_known else 1 / len(parts)) / max(gpus, 1)
    rows = [
        (name, str(counts[name]), used[name], three_digits_of(memory[name] / GIB), shares[name], "")
        for name in sorted(counts, key=lambda name: (-shares[name], name))
    ]
    free = {gpu.device for gpu in frame.gpus} - set(held)
    if free:
        rows.append(("nobody", "0", free, "", len(free) / gpus, "warn"))
    heading = left("USER", 12) + right("PROCS", 6) + "  " + left("GPUS", _GPUS_CELLS) + right("GiB", 7)
    lines = [fitted((Span(heading + right("COST NOW", 11) if price else heading, "dim"),), USERS_WIDTH)]
    for name, count, of, amount_text, share, style in rows:
        text = (
            left(name, 12) + right(count, 6) + "  " + left(_ranges(of), _GPUS_CELLS) + right(amount_text, 7)
        )
        cost = right(f"{format_usd(price * share)}/h", 11) if price else ""
        lines.append(fitted((Span(text + cost, style),), USERS_WIDTH))
    return filled(lines, USERS_WIDTH, height)


def _ranges(numbers: set[int]) -> str:
    """`0-4 6`; where there is no room for that, how many: `26 GPUs`."""
    text = " ".join(ranges(numbers))
    return text if len(text) <= _GPUS_CELLS else f"{len(numbers)} GPUs"
