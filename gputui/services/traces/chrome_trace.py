"""Reads a Chrome trace of torch.profiler, whatever its age and vendor, without holding the file in memory."""

from __future__ import annotations

import codecs
import re
import zlib
from array import array
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from decimal import Decimal, InvalidOperation
from io import BufferedReader
from json.decoder import JSONDecodeError
from pathlib import Path
from typing import Any, TypeVar  # Any: JSON that is not yet checked

from gputui.analysis.work import told_of_results
from gputui.errors import GputuiError
from gputui.model.units import counted, format_seconds
from gputui.services.traces.lines import COLLECTS, LEAST_NS, MARK, MEMBER, Frames, place_of_frame
from gputui.worker.foreign_json import scan_json
from gputui.worker.profiling.profiled_pass import LONGEST_SHAPES, tensors_among
from gputui.worker.profiling.step_breakdown import TraceEvent

MOST_BYTES = 64 * 2**30
"""Of a decompressed trace; a compressed bomb ends here."""
_MOST_TIMES = 300
_BOMB_BYTES = 64 * 2**20
"""A compressed file that has given so many bytes, and _MOST_TIMES its size, is no trace: traces give 10 to 40
times."""
_CHUNK_BYTES = 4 * 2**20
_LONGEST_EVENT = 64 * 2**20
_LONGEST_NAME = 2000
_MOST_SPACES = 64 * 2**20
_MOST_NS = 2**61
_KINDS = {
    "cpu_op": "op",
    "Operator": "op",  # torch 1.8 to 1.12
    "user_annotation": "range",
    "cuda_runtime": "runtime",
    "cuda_driver": "runtime",
    "Runtime": "runtime",
    "xpu_runtime": "runtime",
    "xpu_driver": "runtime",
    "privateuse1_runtime": "runtime",
    "privateuse1_driver": "runtime",
    "mtia_runtime": "runtime",
    "kernel": "kernel",
    "concurrent_kernel": "kernel",
    "Kernel": "kernel",
    "gpu_memcpy": "copy",
    "Memcpy": "copy",
    "gpu_memset": "memset",
    "Memset": "memset",
    "overhead": "overhead",
}
"""Categories of Kineto whose events are counted."""
_STACK = "python_function"
_Key = TypeVar("_Key")
_TOLD_TWICE = frozenset(
    (_STACK, "gpu_user_annotation", "cuda_sync", "cuda_profiler_range", "Trace", "ac2g", "fwdbwd")
)
"""Categories that say once more what others say, such as a range's copy on the device's track. Events of any
other category are left out by name."""
KINDS = ("op", "range", "runtime", "kernel", "copy", "memset", "overhead")
_ON_HOST = ("op", "range", "runtime", "overhead")
_OLD_RANGES = (
    "ProfilerStep#",
    "Optimizer.",
    "enumerate(DataLoader)",
    "DistributedDataParallel.forward",
    "nccl:",
)
"""Ranges that old traces list among the operators."""
_OF_MESSAGES = ("Collective name", "In msg nelems", "Out msg nelems", "dtype", "Group size")


@dataclass
class Trace:
    """The events of a trace in columns, one entry each; times are nanoseconds since `base_ns`."""

    base_ns: int = 0
    """The earliest start, on the clock of the trace."""
    epoch_ns: int = 0
    """What that clock lacks to nanoseconds since 1970."""
    kind: array[int] = field(default_factory=lambda: array("b"))
    """Index into KINDS."""
    name: array[int] = field(default_factory=lambda: array("i"))
    """Index into `names`."""
    start_ns: array[int] = field(default_factory=lambda: array("q"))
    end_ns: array[int] = field(default_factory=lambda: array("q"))
    thread: array[int] = field(default_factory=lambda: array("i"))
    """Index into `threads`; 0 for a device."""
    device: array[int] = field(default_factory=lambda: array("h"))
    """Number of the device; -1 for the host."""
    stream: array[int] = field(default_factory=lambda: array("q"))
    correlation: array[int] = field(default_factory=lambda: array("q"))
    operator: array[int] = field(default_factory=lambda: array("q"))
    """The external id."""
    inputs: array[int] = field(default_factory=lambda: array("i"))
    """Index into `shapes`."""
    messages: dict[int, dict[str, Any]] = field(default_factory=dict)
    """What newer traces say of a collective, by the correlation of its kernel: JSON under _OF_MESSAGES."""
    names: list[str] = field(default_factory=list)
    shapes: list[tuple[str, ...]] = field(default_factory=list)
    """Shapes and types of inputs."""
    threads: list[tuple[str, str]] = field(default_factory=list)
    """Process and thread."""
    devices: dict[int, str] = field(default_factory=dict)
    """The names of devices, by their numbers."""
    rank: int | None = None
    ranks: int | None = None
    read_bytes: int = 0
    damage: tuple[str, ...] = ()
    """What was left out, one sentence each."""
    frames: Frames = field(default_factory=Frames)
    """Where the program was, as far as the trace tells."""
    foreign_work: str = ""
    """A category that is not known, of events on streams: work of another kind of device."""

    def __len__(self) -> int:
        return len(self.kind)

    def event(self, index: int) -> TraceEvent:
        kind = KINDS[self.kind[index]]
        shapes, dtypes = self.shapes[self.inputs[index]]
        external = self.operator[index]
        return TraceEvent(
            name=self.names[self.name[index]],
            kind=kind,
            start_ns=self.start_ns[index],
            end_ns=self.end_ns[index],
            thread=self.thread[index],
            stream=self.stream[index],
            correlation=self.correlation[index],
            operator=0 if kind in ("op", "range") else external,
            number=external if kind in ("op", "range") else 0,
            shapes=shapes,
            dtypes=dtypes,
        )


def read_trace(path: Path, seen: Callable[[int, int], object] | None = None) -> Trace:
    """The events of a trace file, gzipped or not.

    `seen` is called with the bytes of the file that were read and all there are. A file that ends in the
    middle is read as far as it is whole. Raises GputuiError if it cannot be read or is no trace.
    """
    reading = _Reading(path)
    try:
        for event in _events_of(path, reading, seen):
            reading.take(event)
    except OSError as error:
        raise GputuiError(
            f"{path} cannot be read: {error.strerror or error}", "check its path and rights"
        ) from error
    return reading.finished()


class _Numbers(dict[_Key, int]):
    """Numbers keys in the order in which they come first."""

    def __missing__(self, key: _Key) -> int:
        number = self[key] = len(self)
        return number


class _Reading:
    def __init__(self, path: Path) -> None:
        self.path = path
        self.trace = Trace()
        self.head: dict[str, Any] = {}
        self.damage: list[str] = []
        self._name: _Numbers[str] = _Numbers()
        self._thread: _Numbers[tuple[str, str]] = _Numbers({("", ""): 0})
        self._shape: _Numbers[tuple[str, ...]] = _Numbers({("", ""): 0})
        self._place: dict[str, int | None] = {}
        self._dropped = Counter[str]()
        self._unknown, self._unknown_ns = Counter[str](), Counter[str]()
        self._lines = 0

    def take(self, event: Any) -> None:  # Any: JSON
        self._lines += 1
        if not isinstance(event, dict):
            self._dropped["is not an object"] += 1
            return
        if event.get("ph") in ("B", "E"):
            self._dropped["is only the beginning or the end of a stretch"] += 1
        if event.get("ph") != "X":
            return
        category = event.get("cat")
        if category == _STACK:
            self._take_frame(event)
            return
        kind = _KINDS.get(category) if isinstance(category, str) else None
        if kind is None:
            self._leave_out(category, event)
            return
        name = event.get("name")
        start_ns, length_ns = _ns(event.get("ts")), _ns(event.get("dur", 0))
        if not isinstance(name, str) or start_ns is None or length_ns is None:
            self._dropped["lacks a name or a time"] += 1
            return
        if length_ns < 0:
            self._dropped["has a negative duration"] += 1
            return
        if kind == "op" and category == "Operator" and name.startswith(_OLD_RANGES):
            kind = "range"
        given = event.get("args")
        arguments: dict[str, Any] = given if isinstance(given, dict) else {}
        trace, on_host = self.trace, kind in _ON_HOST
        trace.kind.append(KINDS.index(kind))
        trace.name.append(self._name[name])
        trace.start_ns.append(start_ns)
        trace.end_ns.append(start_ns + length_ns)
        trace.thread.append(self._thread_of(event) if on_host else 0)
        trace.device.append(-1 if on_host else _small(arguments.get("device", event.get("pid"))))
        trace.stream.append(0 if on_host else _whole(arguments.get("stream")))
        correlation = 0 if kind in ("op", "range", "overhead") else _whole(arguments.get("correlation"))
        trace.correlation.append(correlation)
        trace.operator.append(_whole(arguments.get("External id", arguments.get("external id"))))
        trace.inputs.append(self._inputs(name, arguments) if kind == "op" else 0)
        if kind == "kernel" and "Collective name" in arguments and correlation:
            trace.messages[correlation] = {key: arguments.get(key) for key in _OF_MESSAGES}

    def _take_frame(self, event: dict[str, Any]) -> None:
        """Keep a call of the user's own code that is not too short to matter."""
        name = event.get("name")
        if not isinstance(name, str) or (name not in COLLECTS and name.startswith(("<", "nn.Module: "))):
            return
        if name not in self._place:
            place, places = place_of_frame(_storable(name)), self.trace.frames.places
            self._place[name] = None if place is None else len(places)
            places += () if place is None else (place,)
        number = self._place[name]
        if number is None:
            return
        start_ns, length_ns = _ns(event.get("ts")), _ns(event.get("dur", 0))
        if start_ns is not None and length_ns is not None and length_ns >= LEAST_NS:
            self.trace.frames.add(self._thread_of(event), start_ns, start_ns + length_ns, number)

    def _thread_of(self, event: dict[str, Any]) -> int:
        return self._thread[str(event.get("pid")), str(event.get("tid"))]

    def _leave_out(self, category: object, event: dict[str, Any]) -> None:
        """Count an event of a category that is not known, if it takes time."""
        length_ns, arguments = _ns(event.get("dur", 0)), event.get("args")
        category = category if isinstance(category, str) else "no category"
        if category in _TOLD_TWICE or not length_ns or length_ns < 0:
            return
        self._unknown[category] += 1
        self._unknown_ns[category] += length_ns
        if isinstance(arguments, dict) and "stream" in arguments:
            self.trace.foreign_work = category

    def _inputs(self, name: str, arguments: dict[str, Any]) -> int:
        dims = arguments.get("Input Dims", arguments.get("Input dims"))
        types = arguments.get("Input type")
        if not isinstance(dims, list) or not isinstance(types, list):
            return 0
        shapes, dtypes = tensors_among((d if isinstance(d, list) else () for d in dims), types)
        given = arguments.get("Concrete Inputs")
        told = told_of_results(name, dims, given) if isinstance(given, list) else ""
        key = tuple(_storable(text[:LONGEST_SHAPES]) for text in (shapes + told, dtypes))
        return self._shape[key]

    def finished(self) -> Trace:
        """The trace with what its head says. Raises GputuiError if it holds no event at all."""
        trace = self.trace
        if not trace.kind:
            what = "it holds no events" if not self._lines else "none of its events is of torch.profiler"
            raise GputuiError(
                f"{self.path} is not a trace of torch.profiler: {what}",
                "make one with torch.profiler.profile(...).export_chrome_trace(FILE)",
            )
        trace.base_ns = min(trace.start_ns)
        for column in (trace.start_ns, trace.end_ns, trace.frames.start_ns, trace.frames.end_ns):
            for index, t_ns in enumerate(column):
                column[index] = t_ns - trace.base_ns
        trace.names = [_storable(name[:_LONGEST_NAME]) for name in self._name]
        trace.shapes, trace.threads = list(self._shape), list(self._thread)
        self._take_head()
        member, marks = self.head.get(MEMBER), {n for n, name in enumerate(trace.names) if name == MARK}
        begins_ns = [trace.start_ns[i] for i in range(len(trace)) if trace.name[i] in marks]
        if member is not None and begins_ns:  # samples that `why --` adds to the trace that it makes
            try:
                trace.frames.add_samples(member, begins_ns[0])
            except (ValueError, TypeError, LookupError):
                self.damage.append("lines of the program left out: they cannot be read")
        for why, count in self._dropped.items():
            who = "each" if count > 1 else "it"
            self.damage.append(f"{counted(count, 'event')} left out: {who} {why}")
        for category, events in self._unknown.items():
            what = f"{counted(events, 'event')} of {_storable(category)!r}"
            took = format_seconds(self._unknown_ns[category] * 1e-9)
            self.damage.append(f"{what}, {took} in all, left out: it is not known what they are")
        trace.damage = tuple(self.damage)
        return trace

    def _take_head(self) -> None:
        trace, head = self.trace, self.head
        described = head.get("deviceProperties")
        if isinstance(described, list):
            trace.devices = {
                _small(one.get("id")): _storable(str(one.get("name") or ""))
                for one in described
                if isinstance(one, dict)
            }
        distributed = head.get("distributedInfo")
        if isinstance(distributed, dict):
            rank, ranks = distributed.get("rank"), distributed.get("world_size")
            trace.rank = rank if isinstance(rank, int) else None
            trace.ranks = ranks if isinstance(ranks, int) else None
        epoch_ns = head.get("baseTimeNanoseconds")
        trace.epoch_ns = epoch_ns if isinstance(epoch_ns, int) and 0 < epoch_ns < 2**62 else 0


def _events_of(path: Path, reading: _Reading, seen: Callable[[int, int], object] | None) -> Iterator[Any]:
    """Each entry of `traceEvents`, and the rest of the document into `reading.head`."""
    text = _Text(path, reading, seen)
    if not text.more():
        what = f"cannot be read: {text.cut_reason}" if text.cut_reason else "is empty"
        raise GputuiError(f"{path} {what}", "name a trace written by export_chrome_trace")
    first = text.past_space(0)
    opening = text.buffer[first : first + 1]
    if opening not in ("[", "{"):
        raise GputuiError(
            f"{path} is not JSON: it begins with {text.buffer[first : first + 20]!r}",
            "name a trace written by export_chrome_trace: .json, or .json.gz",
        )
    begin = first + 1 if opening == "[" else _members(text, first + 1, reading.head)
    if begin is None:
        raise GputuiError(
            f"{path} is not a trace of torch.profiler: it has no traceEvents",
            "make one with torch.profiler.profile(...).export_chrome_trace(FILE)",
        )
    at, count = begin, 0
    while True:
        at = text.past_space(at, ",")
        if text.buffer[at : at + 1] == "]":
            _members(text, at + 1, reading.head)
            return
        found = text.scanned(at)
        if found is None:
            if text.broken_at is not None:
                raise GputuiError(
                    f"{path} is not JSON: event {count + 1} cannot be read, near byte {text.broken_at:,}",
                    "export the trace once more",
                )
            how = text.cut_reason or (
                "the file ends in the middle of an event" if text.is_cut else "the next event is not JSON"
            )
            reading.damage.append(f"{how}, after {count:,} entries: what follows is missing")
            return
        event, at = found
        count += 1
        yield event
        at = text.forgotten(at)


def _members(text: _Text, at: int, head: dict[str, Any]) -> int | None:
    """The members of the document, up to the first entry of `traceEvents`, whose place it returns.

    None where there are no more that can be read.
    """
    while True:
        at = text.past_space(at, ",")
        key = text.scanned(at) if text.buffer[at : at + 1] == '"' else None
        if key is None:
            return None
        at = text.past_space(key[1], ":")
        if key[0] == "traceEvents" and text.buffer[at : at + 1] == "[":
            return at + 1
        value = text.scanned(at)
        if value is None:
            return None
        head[str(key[0])] = value[0]
        at = text.forgotten(value[1])


_SPACE = {also: re.compile(rf"[ \t\r\n\ufeff{also}]*") for also in ("", ",", ":")}
_CUT_CHARACTERS = 16
"""So close to its end, a file that cannot be read on is cut: in an escape, a number or a word."""


class _Text:
    """The characters of a file from the first that is still needed, more on demand."""

    def __init__(self, path: Path, reading: _Reading, seen: Callable[[int, int], object] | None) -> None:
        self.buffer = ""
        self.broken_at: int | None = None
        """Where the JSON cannot be read although there is more of it."""
        self.cut_reason = ""
        self.is_cut = True
        """Of a value that is not whole: whether the file ends in it. Else it is not JSON."""
        self._path = path
        self._reading = reading
        self._seen = seen
        self._file = path.open("rb")
        self._size = path.stat().st_size
        is_gzip = self._file.peek(2)[:2] == b"\x1f\x8b"
        self._inflater = _Inflater() if is_gzip else None
        self._decoder = codecs.getincrementaldecoder("utf-8")("replace")
        self._is_over = False

    def more(self) -> bool:
        """Read on; whether there was anything."""
        if self._is_over:
            return False
        raw = self._raw()
        self._reading.trace.read_bytes += len(raw)
        if self._reading.trace.read_bytes > MOST_BYTES:
            raise GputuiError(
                f"{self._path} holds more than {MOST_BYTES // 2**30} GiB when decompressed",
                "record fewer steps, or without stacks",
            )
        is_likely = self._reading.trace.read_bytes <= max(_BOMB_BYTES, _MOST_TIMES * self._file.tell())
        if self._inflater is not None and not is_likely:
            raise GputuiError(
                f"{self._path} is no trace: decompressed, it has over {_MOST_TIMES} times its size",
                "name a trace written by export_chrome_trace",
            )
        if self._seen is not None:
            self._seen(self._file.tell(), self._size)
        if not raw:
            self._is_over = True
            self._file.close()
            return False
        self.buffer += self._decoder.decode(raw)
        return True

    def _raw(self) -> bytes:
        """The next bytes, decompressed; empty at the end."""
        if self._inflater is None:
            return self._file.read(_CHUNK_BYTES)
        try:
            return self._inflater.read(self._file, _CHUNK_BYTES)
        except EOFError:
            self.cut_reason = "the compressed file is cut"
        except zlib.error:
            self.cut_reason = "the compressed file is damaged"
        return b""

    def past_space(self, at: int, also: str = "") -> int:
        """The place of the first character from `at` on that is neither space nor in `also`."""
        spaces = 0
        while True:
            found = _SPACE[also].match(self.buffer, at)
            assert found is not None  # it matches nothing at all, too
            spaces += found.end() - at
            at = found.end()
            if at < len(self.buffer):
                return at
            if spaces > _MOST_SPACES:
                raise GputuiError(
                    f"{self._path} is no trace: it has over {_MOST_SPACES // 2**20} MiB of blanks",
                    "name a trace written by export_chrome_trace",
                )
            self.buffer, at = "", 0
            if not self.more():
                return at

    def scanned(self, at: int) -> tuple[Any, int] | None:
        """The value at `at` and the place behind it; None if it is not whole."""
        while True:
            try:
                found = scan_json(self.buffer, at)
            except JSONDecodeError as error:
                found = None
                is_open = error.msg.startswith("Unterminated")
                self.is_cut = is_open or len(self.buffer) - error.pos < _CUT_CHARACTERS
            except (StopIteration, ValueError):
                found = None
            if found is not None and (found[1] < len(self.buffer) or self._is_over):
                return found
            if len(self.buffer) - at > _LONGEST_EVENT:
                self.broken_at = self._reading.trace.read_bytes - (len(self.buffer) - at)
                return None
            if not self.more():
                return found

    def forgotten(self, at: int) -> int:
        """Drop what lies before `at`, now and then; the new place of `at`."""
        if at < _CHUNK_BYTES:
            return at
        self.buffer = self.buffer[at:]
        return 0


class _Inflater:
    """Decompresses gzip as far as it is whole, where the library's own reader would drop what it has."""

    def __init__(self) -> None:
        self._stream = zlib.decompressobj(wbits=31)
        self._ahead = b""

    def read(self, file: BufferedReader, most: int) -> bytes:
        """Up to `most` bytes; empty at the end. Raises EOFError for a cut file, zlib.error if it is
        damaged."""
        while True:
            data = self._ahead or file.read(_CHUNK_BYTES // 4)
            if self._stream.eof:  # another member may follow
                if not data.strip(b"\0"):
                    return b""
                self._stream = zlib.decompressobj(wbits=31)
            elif not data:
                raise EOFError
            found = self._stream.decompress(data, most)
            self._ahead = self._stream.unused_data if self._stream.eof else self._stream.unconsumed_tail
            if found:
                return found


def _storable(text: str) -> str:
    """Without halves of surrogate pairs, which no file can hold."""
    return text.encode("utf-8", "replace").decode()


def _ns(microseconds: object) -> int | None:
    """Microseconds, as Kineto writes them, in nanoseconds; None for anything else, and beyond 73 years.

    A float has no room for nanoseconds since 1970, so the digits are read as they stand.
    """
    found = None
    if isinstance(microseconds, int):
        found = microseconds * 1000
    elif isinstance(microseconds, str):
        whole, _, part = microseconds.partition(".")
        try:
            if len(part) <= 3 and "e" not in part and "E" not in whole:
                sign = -1 if whole.startswith("-") else 1
                found = int(whole) * 1000 + sign * int((part + "000")[:3])
            else:
                found = int((Decimal(microseconds) * 1000).to_integral_value())
        except (ValueError, InvalidOperation, OverflowError):
            return None
    return found if found is not None and -_MOST_NS < found < _MOST_NS else None


def _whole(value: object) -> int:
    """A number as a whole one that a column can hold; 0 for anything else."""
    if isinstance(value, str):
        value = int(value) if value.isascii() and value.isdigit() and len(value) < 19 else 0
    return value if isinstance(value, int) and -(2**62) < value < 2**62 else 0


def _small(value: object) -> int:
    number = _whole(value)
    return number if -1 <= number < 2**15 else -1
