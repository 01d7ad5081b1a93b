"""The exact partition of a window of steps: pure functions on plain rows of a trace.

Every nanosecond of the window goes to one slice. On a CPU each instant of the stepping thread belongs to the
innermost event that covers it. On a GPU each instant goes to the highest class of work present, shared evenly
between concurrent work; an instant with none is idle, and its cause is what the host did then. Time outside
of all events belongs to no phase: it lies `between` them.
"""

from __future__ import annotations

import bisect
import heapq
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TypeVar

from .op_categories import category_of, category_of_kernel, is_cast, is_of_backward
from .rows import Kernel, LineTime, LineTimes, Operator, TimeSlice, added_up

DEVICE_CLASSES = ("compute", "communication", "copy_h2d", "copy_d2h", "copy_d2d", "memset")
"""In order of precedence: the first class present gets the instant."""
KERNEL_GAP_NS = 5_000
"""A shorter gap before work that was queued already is the device's own. Source: the noise floor of
TraceLens's idle analysis (how-to/analyze-idle-time)."""
MOST_ROWS = 400
_ROUNDED_NS = 2
"""Traces have microseconds with three digits: neighbours may overlap by what rounding does to each."""
_Cover = TypeVar("_Cover")
_EVER_NS = (-(2**63), 2**63)
LAUNCH_LATENCY_NS = 20_000
"""Work that begins later than this after its launch returned waited for something else than the host.
Launches take 2 to 15 us to arrive on the GPUs of the traces that were looked at (V100 to MI300X)."""
TRANSFERS = ("gloo:", "mpi:", "ucc:", "nccl:", "xccl:", "ccl:")
"""Ranges of the host in which torch.distributed sends and receives, by the beginnings of their names."""
WAKES_NS, WAKES_SHARE = 300_000, 0.05
"""Within this, or this share of its waiting, a thread goes on before or after what it waited for ends."""
_ENGINE_FRAME = "autograd::engine::evaluate_function: "
_SYNC_WORDS = ("Synchronize", "StreamWait", "EventQuery")
_OF_MEMORY = ("cudaMalloc", "cudaFree", "hipMalloc", "hipFree", "cuMem")
"""How calls begin that the thread makes itself, whether or not they name an operator."""
_LAUNCH_WORDS = ("Launch", "Memcpy", "Memset", "launch")


@dataclass(frozen=True)
class TraceEvent:
    """One line of a trace."""

    name: str
    kind: str
    """`op`, `range` (a marked stretch of the host), `runtime` (a call of the driver), `overhead` (of the
    profiler, on the host), `kernel`, `copy` or `memset`."""
    start_ns: int
    end_ns: int
    thread: int = 0
    """Of the host; 0 for the device."""
    stream: int = 0
    correlation: int = 0
    """Shared by a runtime call and the work it launched."""
    operator: int = 0
    """The `number` of the operator or range that launched it; 0 if unknown."""
    number: int = 0
    """Identifies an operator or range."""
    shapes: str = ""
    dtypes: str = ""


@dataclass(frozen=True)
class Partition:
    """Where the window went."""

    window_ns: int
    rows: tuple[Operator, ...]
    slices: tuple[TimeSlice, ...]
    kernels: tuple[Kernel, ...]
    unmatched_ns: int
    """Device time of work whose launch is not in the trace."""
    stand_in_ns: int = 0
    """Device time of work whose launch is known, but lies in no operator: launches of graphs, custom backward
    functions, fused optimizers, kernels of other compilers. A row stands in for the operator."""
    communication_ns: int = 0
    """How long the device communicates, whatever else it does then: its slices are what compute does not
    hide."""
    transfers: tuple[tuple[TraceEvent, int], ...] = ()
    """Each piece of communication, and how much of those slices is its own; 0 on a CPU."""
    lines: tuple[LineTime, ...] = ()
    """Where the program was meanwhile, if that is known."""


@dataclass
class _Node:
    """A host event, nested within the events around it on its thread."""

    event: TraceEvent
    start_ns: int
    end_ns: int
    phase: str
    cause: str
    """What the device waits for if it is idle while this event has the host."""
    owner: _Node | None
    """The operator that its time counts toward, possibly itself; None outside of all operators."""
    frame: _Node | None
    """The innermost range or frame of autograd around it, possibly itself."""
    own_ns: int = 0
    below: int = 1
    """If it is an owner: the number of events that count toward it, itself included."""


@dataclass
class _Sums:
    calls: int = 0
    events: int = 0
    time_ns: int = 0
    cpu_ns: int = 0
    kernels: int = 0
    kernel_ns: int = 0


_Key = tuple[str, str, str, str]
"""Phase, name, shapes, dtypes."""
_Rank = tuple[int, int, int]
"""Decides who gets an instant that several cover; the last number identifies it."""


@dataclass
class _Thread:
    """The events of one host thread, flattened to the innermost at each instant."""

    nodes: list[_Node] = field(default_factory=list)
    pieces: list[tuple[int, int, _Node]] = field(default_factory=list)
    """(start, end, innermost event), ordered by time, without overlaps."""
    elsewhere: list[_Node] = field(default_factory=list)
    """Driver calls filed under this thread that another one made."""


def partition(events: Iterable[TraceEvent], start_ns: int, end_ns: int, thread: int) -> Partition:
    """Divide the window among operators and causes of idleness.

    `thread` is the host thread that does the steps. Events are cut off at the window's edges. If no event is
    of a device, the host's own time is divided. Slices sum to the window; rows sum to the slices that are not
    idle.
    """
    parts = PartitionInParts(thread)
    parts.add(events, start_ns, end_ns)
    return parts.result()


class PartitionInParts:
    """A partition of a window that is too long to be held at once: parts are added in order of time.

    Where a device lags behind its host, the steps are at another time on each: `device_ns` is the window of
    the device, which is divided, and `host_ns` that of the host, whose calls are counted. Both are all that
    is added if not given. `lines` are those of the stepping thread.
    """

    def __init__(
        self,
        thread: int,
        device_ns: tuple[int, int] = _EVER_NS,
        host_ns: tuple[int, int] = _EVER_NS,
        lines: LineTimes | None = None,
    ) -> None:
        self._thread = thread
        self._lines = lines or LineTimes(())
        self._device_ns = device_ns
        self._host_ns = host_ns
        self._window_ns = 0
        self._unmatched_ns = 0
        self._stand_in_ns = 0
        self._communication_ns = 0
        self._transfers: Counter[TraceEvent] = Counter()
        self._slices: Counter[tuple[str, str, str]] = Counter()
        self._time: dict[_Key, dict[str, _Sums]] = {}
        self._host: dict[_Key, _Sums] = {}
        self._kernels: dict[tuple[str, str], list[int]] = {}
        self._kernels_by: dict[tuple[str, str], Counter[str]] = {}
        self._pending: dict[int, _Node] = {}
        """Calls that launched work, by correlation."""
        self._is_first = True

    def add(
        self, events: Iterable[TraceEvent], start_ns: int, end_ns: int, following: TraceEvent | None = None
    ) -> None:
        """Divide one part.

        `events` holds all that overlap it. `following` is the first work of the device that begins after it.
        Events of negative length, which some profilers report, are left out.
        """
        inside = [e for e in events if e.end_ns > start_ns and e.start_ns < end_ns and e.start_ns <= e.end_ns]
        host = [e for e in inside if e.kind in ("op", "range", "runtime", "overhead")]
        device = [e for e in inside if e.kind in ("kernel", "copy", "memset")]
        is_on_device = device or self._kernels or following is not None
        if not is_on_device:
            self._transfers.update(dict.fromkeys(filter(_is_transfer, host), 0))
            host = [*host, *_waits(host, self._thread, start_ns, end_ns)]
        threads = _threads(host, start_ns, end_ns)
        if is_on_device:
            self._launched(threads.values(), start_ns)
            from_ns, until_ns = max(start_ns, self._device_ns[0]), min(end_ns, self._device_ns[1])
            if until_ns > from_ns:
                counted = [e for e in device if e.end_ns > from_ns and e.start_ns < until_ns]
                self._add_device(counted, threads, from_ns, until_ns, following)
        else:
            self._add_host(threads, start_ns, end_ns)
        self._is_first = False

    def result(self) -> Partition:
        """The partition of all parts."""
        kernels = [
            Kernel(*work, self._kernels_by[work].most_common(1)[0][0], len(ns), sum(ns), max(ns))
            for work, ns in self._kernels.items()
        ]
        slices = sorted(self._slices.items(), key=lambda item: -item[1])
        return Partition(
            self._window_ns,
            _rows(self._time, self._host),
            tuple(TimeSlice(*place, time_ns) for place, time_ns in slices if time_ns),
            tuple(sorted(kernels, key=lambda row: (-row.time_ns, row.name))[:MOST_ROWS]),
            self._unmatched_ns,
            self._stand_in_ns,
            self._communication_ns,
            tuple(self._transfers.items()),
            self._lines.rows(),
        )

    def _add_host(self, threads: Mapping[int, _Thread], start_ns: int, end_ns: int) -> None:
        """A part of a CPU's window: the exclusive time of each event of the stepping thread, and the gaps
        between them."""
        thread = threads.get(self._thread, _Thread())
        sent = [(n.start_ns, n.end_ns, n) for t in threads.values() for n in t.nodes if _is_transfer(n.event)]
        for node in thread.nodes:
            if _is_transfer(node.event):
                node.owner = node  # whatever operator it is in
            if node.owner is None:
                self._slices[node.phase, "idle", node.cause] += node.own_ns
                continue
            key, category = _key(node.owner), category_of(node.owner.event.name)
            time_class = "communication" if category == "communication" else "compute"
            self._slices[node.owner.phase, time_class, ""] += node.own_ns
            self._sums(key, category).time_ns += node.own_ns
            self._count_host(node, start_ns)
        self._window_ns += end_ns - start_ns
        covered_ns = sum(node.own_ns for node in thread.nodes)
        self._slices["between", "idle", "python"] += end_ns - start_ns - covered_ns
        for begin_ns, until_ns, node in thread.pieces:
            if node.owner is None:
                self._lines.add(node.phase, "", node.cause, begin_ns, until_ns)
                continue
            name = node.owner.event.name
            self._lines.add(node.owner.phase, name, "", begin_ns, until_ns)
            if category_of(name) == "communication":
                sent.append((begin_ns, until_ns, node))
        self._communication_ns += _covered_ns(sent, start_ns, end_ns)
        for begin_ns, until_ns, _ in _uncovered(thread.pieces, start_ns, end_ns, None):
            self._lines.add("between", "", "python", begin_ns, until_ns)

    def _launched(self, threads: Iterable[_Thread], start_ns: int) -> None:
        """What the host launched, and which operators it called."""
        for thread in threads:
            for node in (*thread.nodes, *thread.elsewhere):
                if node.event.kind == "runtime":
                    self._pending[node.event.correlation] = node
            for node in thread.nodes:
                if node.owner is not None and self._host_ns[0] <= node.start_ns < self._host_ns[1]:
                    self._count_host(node, start_ns)

    def _add_device(
        self,
        device: Sequence[TraceEvent],
        threads: Mapping[int, _Thread],
        start_ns: int,
        end_ns: int,
        following: TraceEvent | None,
    ) -> None:
        """A part of a GPU's window: what ran on it, and what the host did while nothing ran."""
        nodes = {n.event.number: n for t in threads.values() for n in t.nodes if n.event.number}
        launches, is_first = self._pending, not self._window_ns
        self._window_ns += end_ns - start_ns
        phase = "forward"
        for event, taken_ns in zip(device, _shares(device, start_ns, end_ns), strict=True):
            launch, called_ns = _launch_of(event, nodes, launches)
            operator = shapes = dtypes = ""
            if launch is not None:
                phase, operator, shapes, dtypes = _credited(launch)
            elif is_of_backward(event.name):  # launched before the trace began; its name is all there is
                phase = "backward"
            category = category_of(operator) if operator else "other"
            if category in ("other", "fused", "view_alloc"):  # the operator's name does not tell
                of_kernel = category_of_kernel(event.name, event.kind)
                category = category if of_kernel == "other" else of_kernel
            if launch is None:
                self._unmatched_ns += taken_ns
            elif launch.owner is None or _is_in_graph(launch):
                self._stand_in_ns += taken_ns
            name = operator or (event.name if event.kind == "kernel" else event.kind)
            time_class = class_of(event)
            self._slices[phase, time_class, ""] += taken_ns
            if launch is not None:
                self._lines.add_launched(phase, name, called_ns, taken_ns)
            sums = self._sums((phase, name, shapes, dtypes), category)
            sums.time_ns += taken_ns
            if time_class == "communication":
                self._transfers[event] += taken_ns
            if is_first or event.start_ns >= start_ns:
                sums.kernels += 1
                sums.kernel_ns += event.end_ns - event.start_ns
                work = (event.name, time_class)
                self._kernels.setdefault(work, []).append(event.end_ns - event.start_ns)
                self._kernels_by.setdefault(work, Counter())[operator] += 1
        transfers = [(e.start_ns, e.end_ns, e) for e in device if class_of(e) == "communication"]
        self._communication_ns += _covered_ns(transfers, start_ns, end_ns)
        for phase, cause, begin_ns, until_ns in _idle(device, launches, threads, start_ns, end_ns, following):
            self._slices[phase, "idle", cause] += until_ns - begin_ns
            self._lines.add(phase, "", cause, begin_ns, until_ns)
        for event in device:
            launch = launches.get(event.correlation)
            if event.end_ns <= end_ns and launch is not None and not _is_in_graph(launch):
                del launches[event.correlation]  # a graph's launch has more to come

    def _sums(self, key: _Key, category: str) -> _Sums:
        return self._time.setdefault(key, {}).setdefault(category, _Sums())

    def _count_host(self, node: _Node, start_ns: int) -> None:
        owner = node.owner
        assert owner is not None
        sums = self._host.setdefault(_key(owner), _Sums())
        sums.cpu_ns += node.own_ns
        if owner is node and (self._is_first or node.event.start_ns >= start_ns):
            sums.calls += 1
            sums.events += node.below


def _threads(events: Sequence[TraceEvent], start_ns: int, end_ns: int) -> dict[int, _Thread]:
    by_thread: dict[int, list[TraceEvent]] = {}
    for event in events:
        by_thread.setdefault(event.thread, []).append(event)
    return {number: _flattened(mine, start_ns, end_ns) for number, mine in by_thread.items()}


def _is_elsewhere(call: TraceEvent, open_nodes: Sequence[_Node]) -> bool:
    """Whether a driver call was made by another thread than the one it is filed under.

    In the profiler's own lists, calls of threads without operators carry the number of the thread that
    profiles. A call in an operator names that operator.
    """
    is_linked = call.operator or call.name.startswith(_OF_MEMORY)
    return call.kind == "runtime" and not is_linked and any(node.event.kind == "op" for node in open_nodes)


def _flattened(events: list[TraceEvent], start_ns: int, end_ns: int) -> _Thread:
    """Nest the events of one thread; an event that extends beyond its parent is cut off there."""
    events.sort(key=lambda e: (e.start_ns, -e.end_ns))
    links_calls = any(e.operator for e in events if e.kind == "runtime")
    found = _Thread()
    open_nodes: list[_Node] = []
    at_ns, begun = start_ns, 0

    def close_until(t_ns: int) -> None:
        nonlocal at_ns
        while open_nodes:
            node = open_nodes[-1]
            until_ns = min(node.end_ns, t_ns)
            if until_ns > at_ns:
                found.pieces.append((at_ns, until_ns, node))
                node.own_ns += until_ns - at_ns
                at_ns = until_ns
            if node.end_ns > t_ns:
                break
            open_nodes.pop()
        at_ns = max(at_ns, t_ns)

    for event in events:
        begin_ns = max(event.start_ns, start_ns)
        close_until(begin_ns)
        if open_nodes and begin_ns + _ROUNDED_NS >= open_nodes[-1].end_ns < event.end_ns:
            begin_ns = open_nodes[-1].end_ns  # it follows; rounded, the two overlap
            close_until(begin_ns)
        if links_calls and _is_elsewhere(event, open_nodes):
            found.elsewhere.append(_node(event, begin_ns, min(event.end_ns, end_ns), None, "forward"))
            continue
        parent = open_nodes[-1] if open_nodes else None
        last_ns = min(event.end_ns, end_ns if parent is None else parent.end_ns)
        node = _node(event, begin_ns, last_ns, parent, found.nodes[-1].phase if found.nodes else "forward")
        around = "" if parent is None else parent.phase
        if (around, node.phase) == ("optimizer", "backward"):
            for earlier in found.nodes[begun:]:  # called by its closure, not by the optimizer
                earlier.phase = "forward" if earlier.phase == "optimizer" else earlier.phase
        if node.phase == "backward" or (node.phase == "optimizer" and around != "optimizer"):
            begun = len(found.nodes) + 1
        found.nodes.append(node)
        open_nodes.append(node)
    close_until(end_ns)
    return found


def _node(event: TraceEvent, start_ns: int, end_ns: int, parent: _Node | None, before: str) -> _Node:
    """`before` is the phase of the previous event: a bare driver call belongs to it."""
    alone = before if event.kind == "runtime" or _is_transfer(event) else "forward"
    phase = _phase_of(event) or (parent.phase if parent else alone)
    cause = "data_wait" if phase == "data" else _cause_of(event)
    node = _Node(event, start_ns, end_ns, phase, cause, None, parent.frame if parent else None)
    if event.kind == "overhead":
        return node
    around = parent.owner if parent else None
    is_frame = event.kind == "range" or _is_engine(event.name)
    if is_frame:
        node.frame = node
    starts = _is_graph_launch(event) or (event.kind == "op" and not is_frame)
    if starts and (
        around is None or _is_graph_launch(event) or (is_cast(event.name) and not is_cast(around.event.name))
    ):
        node.owner = node
    else:
        node.owner = around
        if around is not None:
            around.below += 1
    return node


def _is_graph_launch(event: TraceEvent) -> bool:
    return event.kind == "runtime" and "GraphLaunch" in event.name


def _phase_of(event: TraceEvent) -> str:
    """The phase that an event begins; empty if it belongs to the phase around it."""
    name = event.name
    if event.kind != "runtime" and _is_engine(name):
        return "backward"
    if name.startswith("Optimizer.") or "_amp_" in name:  # the scaler inspects the gradients
        return "optimizer"
    return "data" if name.startswith("enumerate(DataLoader)") else ""


def _cause_of(event: TraceEvent) -> str:
    if event.kind == "overhead":
        return "profiler"
    if event.kind == "runtime":
        if any(word in event.name for word in _SYNC_WORDS):
            return "sync"
        return "launch" if any(word in event.name for word in _LAUNCH_WORDS) else "runtime_api"
    return "python" if event.kind == "range" else "dispatch"


def _is_engine(name: str) -> bool:
    """Whether an operator is a frame of autograd around the real ones."""
    return name.startswith(("autograd::", "torch::autograd::")) or (
        "::" not in name and name.rstrip("0123456789").endswith("Backward")
    )


def _uncovered(
    pieces: Iterable[tuple[int, int, _Cover]], start_ns: int, end_ns: int, at_end: _Cover | None
) -> Iterator[tuple[int, int, _Cover | None]]:
    """Stretches without any piece: begin, end, and what follows, or `at_end`. The starts of pieces ascend."""
    at_ns = start_ns
    for piece_start_ns, piece_end_ns, covers in pieces:
        if piece_start_ns > at_ns:
            yield at_ns, min(piece_start_ns, end_ns), covers
        at_ns = max(at_ns, piece_end_ns)
    if at_ns < end_ns:
        yield at_ns, end_ns, at_end


def _covered_ns(pieces: Iterable[tuple[int, int, _Cover]], start_ns: int, end_ns: int) -> int:
    """How long any of them lasts."""
    bare = _uncovered(sorted(pieces, key=lambda piece: piece[0]), start_ns, end_ns, None)
    return end_ns - start_ns - sum(until_ns - begin_ns for begin_ns, until_ns, _ in bare)


def _is_transfer(event: TraceEvent) -> bool:
    return event.kind == "range" and event.name.startswith(TRANSFERS)


def _waits(host: Sequence[TraceEvent], thread: int, start_ns: int, end_ns: int) -> Iterator[TraceEvent]:
    """The transfers of other threads for which a thread waits: it calls no operator meanwhile, and goes on as
    the last of them ends, whichever thread hears first. In DDP that wait has no event."""
    transfers = sorted((e for e in host if _is_transfer(e) and e.thread != thread), key=lambda e: e.end_ns)
    calls = [(e.start_ns, e.end_ns, e) for e in host if e.thread == thread and e.kind == "op"]
    ordered = sorted(calls, key=lambda call: call[0]) if transfers else ()
    for at_ns, until_ns, _ in _uncovered(ordered, start_ns, end_ns, None) if transfers else ():
        slack_ns = min(until_ns - at_ns, max(WAKES_NS, WAKES_SHARE * (until_ns - at_ns)))
        ended = [e for e in transfers if at_ns < e.end_ns <= until_ns + slack_ns and e.start_ns < until_ns]
        if ended and until_ns - ended[-1].end_ns <= slack_ns:
            for event in ended:
                begin_ns, at_ns = max(at_ns, event.start_ns), min(event.end_ns, until_ns)
                yield replace(event, start_ns=begin_ns, end_ns=at_ns, thread=thread, number=0)


def _sweep(
    pieces: Iterable[tuple[int, int, _Rank]], start_ns: int, end_ns: int
) -> Iterator[tuple[int, int, Sequence[_Rank]]]:
    """Stretches between the edges of pieces: begin, end, and the ranks of all that cover it, ascending."""
    changes: list[tuple[int, int, _Rank]] = []
    for piece_start_ns, piece_end_ns, rank in pieces:
        changes += [(piece_start_ns, 1, rank), (piece_end_ns, 0, rank)]
    active: list[_Rank] = []
    at_ns = start_ns
    for t_ns, is_start, rank in sorted(changes):
        if t_ns > at_ns:
            yield at_ns, t_ns, active
        at_ns = t_ns
        if is_start:
            bisect.insort(active, rank)
        else:
            active.remove(rank)
    if at_ns < end_ns:
        yield at_ns, end_ns, active


def class_of(event: TraceEvent) -> str:
    """The class of device work that an event belongs to."""
    if event.kind == "memset":
        return "memset"
    if event.kind == "copy":
        name = event.name.replace(" ", "")
        if "HtoD" in name:
            return "copy_h2d"
        return "copy_d2h" if "DtoH" in name else "copy_d2d"
    is_communication = "communication" in (category_of(event.name), category_of_kernel(event.name))
    return "communication" if is_communication else "compute"


def _credited(launch: _Node) -> _Key:
    """What the work launched in a host event is credited to: the operator around it, else the nearest frame
    of autograd or range."""
    if launch.owner is not None:
        return _key(launch.owner)
    name = "" if launch.frame is None else launch.frame.event.name.removeprefix(_ENGINE_FRAME)
    return launch.phase, name, "", ""


def _launch_of(
    event: TraceEvent, nodes: Mapping[int, _Node], launches: Mapping[int, _Node]
) -> tuple[_Node | None, int]:
    """Of a piece of device work, and when that call returned: its graph's launch, else the operator that the
    trace names, else the call that launched it."""
    call = launches.get(event.correlation) if event.correlation else None
    named = nodes.get(event.operator) if event.operator else None
    if named is not None and (call is None or (named.owner is not None and not _is_in_graph(call))):
        return named, (call or named).end_ns
    return call, 0 if call is None else call.end_ns


def _is_in_graph(launch: _Node) -> bool:
    return launch.owner is not None and _is_graph_launch(launch.owner.event)


def _shares(device: Sequence[TraceEvent], start_ns: int, end_ns: int) -> list[int]:
    """Nanoseconds of the window attributed to each event, in the order given.

    An instant goes to the highest class present and is shared within it; the earliest event gets the
    remainder.
    """
    rank = {name: number for number, name in enumerate(DEVICE_CLASSES)}
    pieces: list[tuple[int, int, _Rank]] = []
    for index, event in enumerate(device):
        begin_ns, last_ns = max(event.start_ns, start_ns), min(event.end_ns, end_ns)
        if last_ns > begin_ns:
            pieces.append((begin_ns, last_ns, (rank[class_of(event)], begin_ns, index)))
    shares = [0] * len(device)
    for begin_ns, last_ns, active in _sweep(pieces, start_ns, end_ns):
        present = [index for r, _, index in active if r == active[0][0]]
        each, rest = divmod(last_ns - begin_ns, max(len(present), 1))
        for place, index in enumerate(present):
            shares[index] += each + (place < rest)
    return shares


def _idle(
    device: Sequence[TraceEvent],
    launches: Mapping[int, _Node],
    threads: Mapping[int, _Thread],
    start_ns: int,
    end_ns: int,
    following: TraceEvent | None,
) -> Iterator[tuple[str, str, int, int]]:
    """Phase, cause, begin and end of each stretch in which nothing ran on the device.

    If the launch of the next work returned long before it began, the host had done its part: the device
    waited for another stream, a peer or its own queue.
    """
    host = _host_states(threads.values(), start_ns, end_ns)
    at_host = 0
    work = [(event.start_ns, event.end_ns, event) for event in sorted(device, key=lambda e: e.start_ns)]
    for gap_start_ns, gap_end_ns, next_work in _uncovered(work, start_ns, end_ns, following):
        launch = (
            launches.get(next_work.correlation) if next_work is not None and next_work.correlation else None
        )
        while host[at_host][1] <= gap_start_ns:  # the last one lasts until the end of the window
            at_host += 1
        by_host_until_ns = gap_end_ns
        if launch is not None:
            phase, called_ns = _credited(launch)[0], launch.end_ns
            if called_ns <= gap_start_ns and gap_end_ns - gap_start_ns < KERNEL_GAP_NS:
                yield phase, "kernel_gap", gap_start_ns, gap_end_ns
                continue
            if gap_end_ns - called_ns > LAUNCH_LATENCY_NS:
                by_host_until_ns = min(max(called_ns, gap_start_ns), gap_end_ns)
                yield phase, "queue", by_host_until_ns, gap_end_ns
        index = at_host
        while index < len(host) and host[index][0] < by_host_until_ns:
            piece_start_ns, piece_end_ns, phase, cause = host[index]
            begin_ns, until_ns = max(piece_start_ns, gap_start_ns), min(piece_end_ns, by_host_until_ns)
            if until_ns > begin_ns:
                yield phase, cause, begin_ns, until_ns
            index += 1


_CAUSE_RANK = {
    "profiler": 0,
    "data_wait": 1,
    "launch": 2,
    "runtime_api": 3,
    "dispatch": 4,
    "sync": 5,
    "python": 6,
}


def _host_states(threads: Iterable[_Thread], start_ns: int, end_ns: int) -> list[tuple[int, int, str, str]]:
    """(start, end, phase, cause) of the host over the whole window, ordered by time.

    If several threads are active, the one that drives the device counts: autograd's own thread launches while
    the stepping thread waits for it. Where there is no event, the host is in Python, between the phases.
    """
    states: list[tuple[int, int, str, str]] = []
    pieces = list(heapq.merge(*(t.pieces for t in threads), key=lambda p: p[0]))
    ranked = (
        (begin_ns, last_ns, (_CAUSE_RANK[n.cause], at, at))
        for at, (begin_ns, last_ns, n) in enumerate(pieces)
    )
    for begin_ns, last_ns, active in _sweep(ranked, start_ns, end_ns):
        node = pieces[active[0][2]][2] if active else None
        state = ("between", "python") if node is None else (node.phase, node.cause)
        states.append((begin_ns, last_ns, *state))
    return states


def _key(owner: _Node) -> _Key:
    return owner.phase, owner.event.name, owner.event.shapes, owner.event.dtypes


def _rows(found: Mapping[_Key, Mapping[str, _Sums]], host: Mapping[_Key, _Sums]) -> tuple[Operator, ...]:
    """The rows with the most time first; beyond MOST_ROWS, rows of the same phase and category are merged.

    Work of several categories, as a graph's, has a row for each; the host's part is in the first of them.
    """
    rows: list[Operator] = []
    for key in {**found, **host}:
        phase, name, shapes, dtypes = key
        by_category = found.get(key) or {category_of(key[1]): _Sums()}
        of_host = host.get(key, _Sums())
        first = max(by_category, key=lambda category: by_category[category].time_ns)
        for category, sums in by_category.items():
            own = of_host if category == first else _Sums()
            numbers = (own.calls, own.events, sums.time_ns, own.cpu_ns, sums.kernels, sums.kernel_ns)
            rows.append(Operator(phase, category, name, shapes, dtypes, *numbers))
    rows.sort(key=lambda r: (-r.time_ns, -r.cpu_ns, r.phase, r.operator, r.shapes, r.dtypes, r.category))
    others: dict[tuple[str, str], list[Operator]] = {}
    for row in rows[MOST_ROWS:]:
        others.setdefault((row.phase, row.category), []).append(row)
    return (
        *rows[:MOST_ROWS],
        *(
            replace(added_up(alike), operator="others", shapes="", dtypes="")
            for _, alike in sorted(others.items())
        ),
    )
