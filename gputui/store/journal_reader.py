"""Reads a journal: everything that is intact, and nothing that is not."""

from __future__ import annotations

import os
import uuid
from collections import Counter
from collections.abc import Callable, Collection, Iterator, Mapping
from dataclasses import dataclass, replace
from io import BufferedReader
from itertools import pairwise
from operator import attrgetter
from pathlib import Path
from typing import Any, TypeVar  # Any: lines of one kind

from gputui.errors import GputuiError, clean_text
from gputui.metrics import CURRENT
from gputui.model.absent import Missing
from gputui.model.journal import (
    JOURNAL_NAME,
    JOURNAL_SCHEMA,
    LINE_KINDS,
    TELEMETRY_NAME,
    Block,
    CaseEnd,
    CasePlanned,
    CaseWarm,
    Figure,
    LaunchEnd,
    LaunchStart,
    Line,
    MachineFound,
    ProfiledPass,
    RunEnd,
    RunStart,
    RuntimeFound,
    WorkerReady,
    check_line,
)
from gputui.model.plan import OfCase
from gputui.model.serving import LoadStep, Requests, ServerFound
from gputui.model.telemetry import Reading, TelemetryFormat, UnreadableHeader
from gputui.model.units import counted
from gputui.store.strict import NotValid, decoded, strict
from gputui.worker.foreign_json import read_json

_KINDS: dict[str, type[Line]] = {kind.__name__: kind for kind in LINE_KINDS}
_ROWS_AT_A_TIME = 4096
_MOST_ROWS_AT_FIRST = 65_536
"""An hour of a GPU under test, read in less than a second."""
_LONGEST_LINE = 16 * 2**20
_LONGEST_HEADER = 2**16
_UNKNOWN_LISTED = 5
_DAMAGE_LISTED = 50
L = TypeVar("L")


@dataclass(frozen=True, slots=True)
class JournalContents:
    """The intact lines of a journal, in the order of their sequence numbers."""

    start: RunStart
    lines: tuple[Line, ...]
    """All lines, including `start`."""
    damage: tuple[str, ...]
    """What was left out and why, one sentence each; empty for an intact journal."""

    def of(self, kind: type[L]) -> tuple[L, ...]:
        return tuple(line for line in self.lines if isinstance(line, kind))

    @property
    def end(self) -> RunEnd | None:
        """The end of the run, or None if it is missing."""
        return next(iter(self.of(RunEnd)), None)

    def utc_us(self, t_ns: int) -> int:
        """Convert a monotonic instant of this run to UTC epoch microseconds."""
        return self.start.started_utc_us + (t_ns - self.start.started_ns) // 1000


_Numbered = tuple[int, Line]
"""With its sequence number."""


def read_journal(run_dir: Path) -> JournalContents:
    """Read the journal of a run directory, even if it is damaged.

    Sorts the lines, drops repeated ones, and leaves out damaged ones, naming them. Raises GputuiError if
    there is no journal, or its first line cannot be read.
    """
    path = run_dir / JOURNAL_NAME
    try:
        raw = path.read_bytes()
    except OSError as error:
        raise GputuiError(
            f"no journal can be read in {run_dir}: {error.strerror or error}",
            f"a run directory holds a file named {JOURNAL_NAME}; name the directory it lies in",
        ) from error
    damage: list[str] = []
    lines = _in_order(_intact(raw, damage), damage)
    start = _start(path, lines)
    lines = _consistent(start, lines, damage)
    if len(damage) > _DAMAGE_LISTED:
        damage[_DAMAGE_LISTED:] = [f"and {len(damage) - _DAMAGE_LISTED} more"]
    return JournalContents(start, tuple(lines), tuple(damage))


class Telemetry:
    """The intact telemetry of a run directory, oldest first; empty if there is none.

    Reads incrementally: memory does not grow with the file.
    """

    def __init__(self, run_dir: Path) -> None:
        self._path = run_dir / TELEMETRY_NAME
        self.damage: tuple[str, ...] = ()
        """What the last iteration left out and why, one sentence each. Complete once it has ended."""
        self.is_readable = True
        """False if the last iteration could not read the file, or only its beginning."""

    def __iter__(self) -> Iterator[Reading]:
        self.damage, self.is_readable = (), True
        try:
            with self._path.open("rb") as file:
                yield from self._readings(file)
        except FileNotFoundError:
            return
        except OSError as error:
            self.is_readable = False
            self._leave_out(f"cannot be read: {error.strerror or error}")
        except UnreadableHeader as error:
            self.is_readable = False
            self._leave_out(f"none of it can be read: {error}")

    def _readings(self, file: BufferedReader) -> Iterator[Reading]:
        form = _format_of(file)
        unknown = form.unknown_keys()
        if unknown:
            names = ", ".join(clean_text(key)[:40] for key in unknown[:_UNKNOWN_LISTED])
            more = f" and {len(unknown) - _UNKNOWN_LISTED} more" if len(unknown) > _UNKNOWN_LISTED else ""
            self._leave_out(f"this gputui does not know {counted(len(unknown), 'metric')}: {names}{more}")
        damaged = total = torn = 0
        while rows := file.read(form.row_bytes * _ROWS_AT_A_TIME):
            for reading in form.decode(rows):
                total += 1
                if reading is None:
                    damaged += 1
                else:
                    yield reading
            torn = len(rows) % form.row_bytes
        if damaged:
            self._leave_out(f"{damaged} of {counted(total, 'row')} damaged")
        if torn:
            self._leave_out("the last row was cut off while it was written")

    def _leave_out(self, what: str) -> None:
        self.damage += (f"telemetry: {what}",)


def read_telemetry(run_dir: Path) -> Telemetry:
    """The telemetry of a run directory, whichever version of gputui wrote it."""
    return Telemetry(run_dir)


class TelemetryTail:
    """Follows a growing telemetry file. Not thread-safe; one call reads what was added."""

    def __init__(self, run_dir: Path) -> None:
        self._path = run_dir / TELEMETRY_NAME
        self._file = (0, 0)
        """Device and inode: the sampler replaces a file that has become too large."""
        self._form: TelemetryFormat | None = None
        self._offset = 0
        self._last_ns: dict[int, int] = {}

    def poll(self) -> tuple[Reading, ...] | Missing:
        """Readings since the last call, in file order; of a large file, the first call reads only the end.

        Empty as long as there is no file; Missing if its header cannot be read.
        """
        try:
            with self._path.open("rb") as file:
                found = os.fstat(file.fileno())
                if self._form is None or (found.st_dev, found.st_ino) != self._file:
                    if not file.peek(1):
                        return ()
                    self._form = _format_of(file)
                    self._file = found.st_dev, found.st_ino
                    rows = (found.st_size - file.tell()) // self._form.row_bytes
                    self._offset = file.tell() + max(rows - _MOST_ROWS_AT_FIRST, 0) * self._form.row_bytes
                file.seek(self._offset)
                rows_read = file.read()
        except OSError:
            return ()
        except UnreadableHeader as error:
            return Missing(f"no telemetry: {error}")
        self._offset += len(rows_read) // self._form.row_bytes * self._form.row_bytes
        return tuple(r for r in self._form.decode(rows_read) if r is not None and self._is_new(r))

    def _is_new(self, reading: Reading) -> bool:
        """Whether it was not read before, from the file that was replaced."""
        is_new = reading.t_ns > self._last_ns.get(reading.device, -1)
        if is_new:
            self._last_ns[reading.device] = reading.t_ns
        return is_new


def _format_of(file: BufferedReader) -> TelemetryFormat:
    line = file.readline(_LONGEST_HEADER)
    if not line.endswith(b"\n"):
        raise UnreadableHeader("its header is cut off" if line else "it is empty")
    try:
        return CURRENT.described(read_json(line))
    except UnreadableHeader:
        raise
    except ValueError as error:
        raise UnreadableHeader("its header is damaged") from error


class JournalTail:
    """Follows a growing journal. Not thread-safe; one call reads what was added."""

    def __init__(self, run_dir: Path) -> None:
        self._path = run_dir / JOURNAL_NAME
        self._offset = 0

    def poll(self) -> list[Line]:
        """Complete, intact lines since the last call, in file order; blocks for one read.

        An incomplete line waits for the next call; a damaged one is skipped.
        """
        try:
            with self._path.open("rb") as file:
                file.seek(self._offset)
                raw = file.read()
        except FileNotFoundError:
            return []
        complete, newline, _ = raw.rpartition(b"\n")
        if not newline:
            return []
        self._offset += len(complete) + 1
        return [line for _, line in _intact(complete + newline, [])]


def _intact(raw: bytes, damage: list[str]) -> list[_Numbered]:
    """Lines of known kind and correct types; reports the others in `damage`."""
    found: list[_Numbered] = []
    *whole, torn = raw.split(b"\n")
    for number, piece in enumerate([*whole, torn] if torn else whole, 1):
        parsed = _parsed(piece)
        if not isinstance(parsed, str):
            found.append(parsed)
        else:
            damage.append(
                f"line {number}: {parsed if number <= len(whole) else 'cut off while it was written'}"
            )
    return found


def _parsed(piece: bytes) -> _Numbered | str:
    body = check_line(piece) if len(piece) <= _LONGEST_LINE else None
    if body is None:
        return "length or checksum does not hold"
    try:
        plain = decoded(body)
    except NotValid as error:
        return f"not JSON: {error}"
    if not isinstance(plain, dict):
        return "not a JSON object"
    sequence, name = plain.pop("n", None), plain.pop("kind", None)
    if not isinstance(sequence, int) or isinstance(sequence, bool) or sequence < 0:
        return "has no sequence number"
    kind = _KINDS.get(name) if isinstance(name, str) else None
    if kind is None:
        return f"kind {clean_text(str(name))[:40]!r} is not known to this gputui"
    try:
        return sequence, strict(plain, kind)
    except NotValid as error:
        return f"{name}: {clean_text(str(error))[:200]}"


def _in_order(found: list[_Numbered], damage: list[str]) -> list[Line]:
    by_sequence: dict[int, Line] = {}
    for sequence, line in found:
        first = by_sequence.setdefault(sequence, line)
        if first is not line:
            what = "repeated, taken once" if first == line else "used twice, the first is taken"
            damage.append(f"sequence number {sequence}: {what}")
    ordered = sorted(by_sequence)
    if list(by_sequence) != ordered:
        damage.append("lines out of order, put in order of their sequence numbers")
    for before, after in pairwise([-1, *ordered]):
        if after > before + 1:
            span = f"{before + 1}" if after == before + 2 else f"{before + 1} to {after - 1}"
            damage.append(f"sequence numbers {span} are missing")
    return [by_sequence[sequence] for sequence in ordered]


def _start(path: Path, lines: list[Line]) -> RunStart:
    start = next((line for line in lines if isinstance(line, RunStart)), None)
    if start is None:
        raise GputuiError(
            f"the journal {path} has no readable first line, so it cannot be told which run it is",
            "nothing can be stored from it; measure again",
        )
    if start.schema != JOURNAL_SCHEMA:
        raise GputuiError(
            f"the journal {path} has schema {start.schema}, this gputui reads {JOURNAL_SCHEMA}",
            "use the version of gputui that wrote it",
        )
    try:
        return replace(start, run_id=str(uuid.UUID(start.run_id)))
    except ValueError as error:
        raise GputuiError(
            f"the journal {path} has the run id {clean_text(start.run_id)[:60]!r}, which is no UUID",
            "nothing can be stored from it; measure again",
        ) from error


def _consistent(start: RunStart, lines: list[Line], damage: list[str]) -> list[Line]:
    """Drop lines that repeat what may occur once, or refer to a case or launch that was not announced."""
    kept: list[Line] = []
    said: set[object] = set()
    cases = {line.planned.case_id for line in lines if isinstance(line, CasePlanned)}
    launches = {line.launch_id: frozenset(line.case_ids) for line in lines if isinstance(line, LaunchStart)}
    for line in lines:
        key = _said_once(line)
        why = ""
        if key is not None and key in said:
            why = "said a second time"
        elif isinstance(line, OfCase):
            why = _stray(line, cases, launches)
        if why:
            damage.append(f"{type(line).__name__} left out: {why}")
            continue
        said.add(key)
        kept.append(start if isinstance(line, RunStart) else line)
    _count_blocks(kept, damage)
    return kept


def _stray(line: OfCase, cases: Collection[int], launches: Mapping[int, Collection[int]]) -> str:
    """Why a line does not belong to the run; empty if it does."""
    if line.case_id not in cases:
        return f"case {line.case_id} was never planned"
    if isinstance(line, ProfiledPass) and not line.is_valid and line.launch_id not in launches:
        return ""  # it explains why its launch never started
    if isinstance(line, CaseEnd) or line.case_id in launches.get(line.launch_id, ()):
        return ""
    return f"case {line.case_id} does not belong to launch {line.launch_id}"


def _said_once(line: Line) -> object:
    """What no other line of its kind may have again; None if it may be repeated."""
    of = _SAID_ONCE.get(type(line))
    key = None if of is None else of(line)
    return None if key is None else (type(line), key)


_OF_CASE = ("launch_id", "case_id")
_STEP = attrgetter(*_OF_CASE, "step_index")
_SAID_ONCE: dict[type[Line], Callable[[Any], object]] = {
    **dict.fromkeys((RunStart, MachineFound, RuntimeFound, RunEnd), lambda line: ()),
    CasePlanned: attrgetter("planned.case_id"),
    **dict.fromkeys((LaunchStart, WorkerReady, LaunchEnd), attrgetter("launch_id")),
    **dict.fromkeys((CaseWarm, CaseEnd, ProfiledPass, ServerFound), attrgetter(*_OF_CASE)),
    Block: attrgetter(*_OF_CASE, "index"),
    LoadStep: _STEP,
    Requests: lambda some: (*_STEP(some), some.rows[0].request_index) if some.rows else None,
    Figure: attrgetter(*_OF_CASE, "key"),
}
"""What tells a line of a kind from the others."""


def _count_blocks(lines: list[Line], damage: list[str]) -> None:
    counts = Counter((line.launch_id, line.case_id) for line in lines if isinstance(line, Block))
    for line in lines:
        if isinstance(line, CaseEnd) and (found := counts[line.launch_id, line.case_id]) != line.blocks:
            where = f"case {line.case_id} in launch {line.launch_id}"
            damage.append(f"{where}: {found} of {line.blocks} blocks are there")
