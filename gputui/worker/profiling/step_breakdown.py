"""The exact partition of a window of steps: pure functions on plain rows of a trace.

Every nanosecond of the window goes to one slice. On a CPU each instant of the stepping thread belongs to the
innermost event that covers it. On a GPU each instant goes to the highest class of work present, shared evenly
between concurrent work; an instant with none is idle, and its cause is what the host did then.
"""

from __future__ import annotations

import bisect
import heapq
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from .op_categories import category_of, is_cast

DEVICE_CLASSES = ("compute", "communication", "copy_h2d", "copy_d2h", "copy_d2d", "memset")
"""In order of precedence: the first class present gets the instant."""
KERNEL_GAP_NS = 5_000
"""A shorter gap before work that was queued already is the device's own. Source: the noise floor of
TraceLens's idle analysis (how-to/analyze-idle-time)."""
MOST_ROWS = 400
_SYNC_WORDS = ("Synchronize", "StreamWait", "EventQuery")
_LAUNCH_WORDS = ("Launch", "Memcpy", "Memset", "launch")


@dataclass(frozen=True)
class TraceEvent:
    """One line of a trace."""

    name: str
    kind: str
    """`op`, `range` (a marked stretch of the host), `runtime` (a call of the driver), `kernel`, `copy` or
    `memset`."""
    start_ns: int
    end_ns: int
    thread: int = 0
    """Of the host; 0 for the device."""
    stream: int = 0
    correlation: int = 0
    """Shared by a runtime call and the work it launched."""
    operator: int = 0
    """The `number` of the operator that launched it; 0 if unknown."""
    number: int = 0
    """Identifies an operator."""
    shapes: str = ""
    dtypes: str = ""


@dataclass(frozen=True)
class OperatorRow:
    """As `profiled.Operator` of the model."""

    phase: str
    category: str
    operator: str
    shapes: str
    dtypes: str
    calls: int
    events: int
    time_ns: int
    cpu_ns: int
    kernels: int


@dataclass(frozen=True)
class Slice:
    """As `profiled.TimeSlice` of the model."""

    phase: str
    time_class: str
    cause: str
    time_ns: int


@dataclass(frozen=True)
class KernelRow:
    """As `profiled.Kernel` of the model."""

    name: str
    time_class: str
    operator: str
    calls: int
    time_ns: int
    longest_ns: int


@dataclass(frozen=True)
class Partition:
    """Where the window went."""

    window_ns: int
    rows: tuple[OperatorRow, ...]
    slices: tuple[Slice, ...]
    kernels: tuple[KernelRow, ...]
    unmatched_ns: int
    """Device time for which no operator was found."""


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


@dataclass
class _Thread:
    """The events of one host thread, flattened to the innermost at each instant."""

    nodes: list[_Node] = field(default_factory=list)
    pieces: list[tuple[int, int, _Node]] = field(default_factory=list)
    """(start, end, innermost event), ordered by time, without overlaps."""


def partition(events: Iterable[TraceEvent], start_ns: int, end_ns: int, thread: int) -> Partition:
    """Divide the window among operators and causes of idleness.

    `thread` is the host thread that does the steps. Events are cut off at the window's edges. If no event is
    of a device, the host's own time is divided. Slices sum to the window; rows sum to the slices that are not
    idle.
    """
    inside = [e for e in events if e.end_ns > start_ns and e.start_ns < end_ns]
    threads = _threads([e for e in inside if e.kind in ("op", "range", "runtime")], start_ns, end_ns)
    device = [e for e in inside if e.kind in ("kernel", "copy", "memset")]
    if device:
        return _of_device(device, threads, start_ns, end_ns)
    return _of_host(threads.get(thread, _Thread()), start_ns, end_ns)


def _threads(events: Sequence[TraceEvent], start_ns: int, end_ns: int) -> dict[int, _Thread]:
    by_thread: dict[int, list[TraceEvent]] = {}
    for event in events:
        by_thread.setdefault(event.thread, []).append(event)
    return {number: _flattened(mine, start_ns, end_ns) for number, mine in by_thread.items()}


def _flattened(events: list[TraceEvent], start_ns: int, end_ns: int) -> _Thread:
    """Nest the events of one thread; an event that extends beyond its parent is cut off there."""
    events.sort(key=lambda e: (e.start_ns, -e.end_ns))
    found = _Thread()
    open_nodes: list[_Node] = []
    at_ns = start_ns

    def close_until(t_ns: int) -> None:
        nonlocal at_ns
        while open_nodes and open_nodes[-1].end_ns <= t_ns:
            node = open_nodes.pop()
            take(node, node.end_ns)
        if open_nodes:
            take(open_nodes[-1], t_ns)
        at_ns = max(at_ns, t_ns)

    def take(node: _Node, until_ns: int) -> None:
        nonlocal at_ns
        if until_ns > at_ns:
            found.pieces.append((at_ns, until_ns, node))
            node.own_ns += until_ns - at_ns
            at_ns = until_ns

    for event in events:
        begin_ns = max(event.start_ns, start_ns)
        close_until(begin_ns)
        parent = open_nodes[-1] if open_nodes else None
        last_ns = min(event.end_ns, end_ns if parent is None else parent.end_ns)
        if last_ns < begin_ns:
            continue
        node = _node(event, begin_ns, last_ns, parent, found.nodes[-1].phase if found.nodes else "forward")
        found.nodes.append(node)
        open_nodes.append(node)
    close_until(end_ns)
    return found


def _node(event: TraceEvent, start_ns: int, end_ns: int, parent: _Node | None, before: str) -> _Node:
    """`before` is the phase of the previous event: a bare driver call belongs to it."""
    alone = before if event.kind == "runtime" else "forward"
    phase = _phase_of(event.name) or (parent.phase if parent else alone)
    node = _Node(event, start_ns, end_ns, phase, _cause_of(event), None)
    around = parent.owner if parent else None
    starts = event.kind == "op" and not _is_engine(event.name)
    if starts and (around is None or (is_cast(event.name) and not is_cast(around.event.name))):
        node.owner = node
    else:
        node.owner = around
        if around is not None:
            around.below += 1
    return node


def _phase_of(name: str) -> str:
    """The phase that an event begins; empty if it belongs to the phase around it."""
    if name.startswith("autograd::engine::"):
        return "backward"
    if name.startswith("Optimizer.") or "_amp_" in name:  # the scaler inspects the gradients
        return "optimizer"
    return "data" if name.startswith("enumerate(DataLoader)") else ""


def _cause_of(event: TraceEvent) -> str:
    if event.kind == "runtime":
        if any(word in event.name for word in _SYNC_WORDS):
            return "sync"
        return "launch" if any(word in event.name for word in _LAUNCH_WORDS) else "runtime_api"
    if event.name.startswith("enumerate(DataLoader)"):
        return "data_wait"
    return "python" if event.kind == "range" else "dispatch"


def _is_engine(name: str) -> bool:
    """Whether an operator is a frame of autograd around the real ones."""
    return name.startswith(("autograd::", "torch::autograd::")) or (
        "::" not in name and name.rstrip("0123456789").endswith("Backward")
    )


def _of_host(thread: _Thread, start_ns: int, end_ns: int) -> Partition:
    """The window of a CPU: the exclusive time of each event of the stepping thread, and the gaps between
    them."""
    slices: Counter[tuple[str, str, str]] = Counter()
    rows: dict[tuple[str, str, str, str], _Sums] = {}
    for node in thread.nodes:
        if node.owner is None:
            slices[node.phase, "idle", node.cause] += node.own_ns
            continue
        sums = rows.setdefault(_key(node.owner), _Sums())
        time_class = "communication" if category_of(node.owner.event.name) == "communication" else "compute"
        slices[node.owner.phase, time_class, ""] += node.own_ns
        sums.time_ns += node.own_ns
        sums.cpu_ns += node.own_ns
        if node.owner is node:
            sums.calls += 1
            sums.events += node.below
    for phase, gap_ns in _gaps(thread.pieces, start_ns, end_ns):
        slices[phase, "idle", "python"] += gap_ns
    return Partition(end_ns - start_ns, _rows(rows), _slices(slices), (), 0)


def _gaps(pieces: Sequence[tuple[int, int, _Node]], start_ns: int, end_ns: int) -> Iterator[tuple[str, int]]:
    """Stretches that no event covers, each with the phase that follows, or at the end the preceding one."""
    at_ns = start_ns
    for piece_start_ns, piece_end_ns, node in pieces:
        if piece_start_ns > at_ns:
            yield node.phase, piece_start_ns - at_ns
        at_ns = piece_end_ns
    if end_ns > at_ns:
        yield pieces[-1][2].phase if pieces else "forward", end_ns - at_ns


def _of_device(
    device: Sequence[TraceEvent], threads: Mapping[int, _Thread], start_ns: int, end_ns: int
) -> Partition:
    """The window of a GPU: what ran on it, and what the host did while nothing ran."""
    nodes = {n.event.number: n for t in threads.values() for n in t.nodes if n.event.number}
    calls = {n.event.correlation: n for t in threads.values() for n in t.nodes if n.event.kind == "runtime"}
    slices: Counter[tuple[str, str, str]] = Counter()
    rows: dict[tuple[str, str, str, str], _Sums] = {}
    unmatched_ns = 0
    share_ns = _shares(device, start_ns, end_ns)
    makers = [_maker(event, nodes, calls) for event in device]
    for event, maker, taken_ns in zip(device, makers, share_ns, strict=True):
        if maker is None:
            unmatched_ns += taken_ns
            phase, key = "forward", ("forward", event.name if event.kind == "kernel" else event.kind, "", "")
        else:
            phase, key = maker.phase, _key(maker)
        slices[phase, class_of(event), ""] += taken_ns
        sums = rows.setdefault(key, _Sums())
        sums.time_ns += taken_ns
        sums.kernels += 1
    for thread in threads.values():
        for node in thread.nodes:
            if node.owner is not None:
                sums = rows.setdefault(_key(node.owner), _Sums())
                sums.cpu_ns += node.own_ns
                if node.owner is node:
                    sums.calls += 1
                    sums.events += node.below
    for phase, cause, idle_ns in _idle(device, calls, threads, start_ns, end_ns):
        slices[phase, "idle", cause] += idle_ns
    return Partition(end_ns - start_ns, _rows(rows), _slices(slices), _kernels(device, makers), unmatched_ns)


def class_of(event: TraceEvent) -> str:
    """The class of device work that an event belongs to."""
    if event.kind == "memset":
        return "memset"
    if event.kind == "copy":
        name = event.name.replace(" ", "")
        if "HtoD" in name:
            return "copy_h2d"
        return "copy_d2h" if "DtoH" in name else "copy_d2d"
    return "communication" if category_of(event.name) == "communication" else "compute"


def _maker(event: TraceEvent, nodes: Mapping[int, _Node], calls: Mapping[int, _Node]) -> _Node | None:
    """The operator that launched it: from the trace, else the one around the launching call."""
    found = nodes.get(event.operator) if event.operator else None
    if found is None and event.correlation:
        found = calls.get(event.correlation)
    return None if found is None else found.owner


def _shares(device: Sequence[TraceEvent], start_ns: int, end_ns: int) -> list[int]:
    """Nanoseconds of the window attributed to each event, in the order given.

    An instant goes to the highest class present and is shared within it; the earliest event gets the
    remainder.
    """
    rank = {name: number for number, name in enumerate(DEVICE_CLASSES)}
    changes: list[tuple[int, int, tuple[int, int, int]]] = []
    for index, event in enumerate(device):
        begin_ns, last_ns = max(event.start_ns, start_ns), min(event.end_ns, end_ns)
        if last_ns > begin_ns:
            entry = (rank[class_of(event)], begin_ns, index)
            changes += [(begin_ns, 1, entry), (last_ns, 0, entry)]
    shares = [0] * len(device)
    active: list[tuple[int, int, int]] = []
    at_ns = start_ns
    for t_ns, is_start, entry in sorted(changes):
        if active and t_ns > at_ns:
            present = [index for r, _, index in active if r == active[0][0]]
            each, rest = divmod(t_ns - at_ns, len(present))
            for place, index in enumerate(present):
                shares[index] += each + (place < rest)
        at_ns = t_ns
        if is_start:
            bisect.insort(active, entry)
        else:
            active.remove(entry)
    return shares


def _idle(
    device: Sequence[TraceEvent],
    calls: Mapping[int, _Node],
    threads: Mapping[int, _Thread],
    start_ns: int,
    end_ns: int,
) -> Iterator[tuple[str, str, int]]:
    """Phase, cause and length of each stretch in which nothing ran on the device."""
    host = _host_states(threads.values(), start_ns, end_ns)
    at_host = 0
    for gap_start_ns, gap_end_ns, following in _device_gaps(device, start_ns, end_ns):
        call = calls.get(following.correlation) if following is not None and following.correlation else None
        while at_host < len(host) and host[at_host][1] <= gap_start_ns:
            at_host += 1
        was_queued = call is not None and call.end_ns <= gap_start_ns
        if call is not None and was_queued and gap_end_ns - gap_start_ns < KERNEL_GAP_NS:
            yield call.phase, "kernel_gap", gap_end_ns - gap_start_ns
            continue
        index = at_host
        while index < len(host) and host[index][0] < gap_end_ns:
            piece_start_ns, piece_end_ns, phase, cause = host[index]
            yield phase, cause, min(piece_end_ns, gap_end_ns) - max(piece_start_ns, gap_start_ns)
            index += 1


def _device_gaps(
    device: Sequence[TraceEvent], start_ns: int, end_ns: int
) -> Iterator[tuple[int, int, TraceEvent | None]]:
    """Stretches without any device work, each with the work that follows."""
    at_ns = start_ns
    for event in sorted(device, key=lambda e: e.start_ns):
        if event.start_ns > at_ns:
            yield at_ns, min(event.start_ns, end_ns), event
        at_ns = max(at_ns, event.end_ns)
    if at_ns < end_ns:
        yield at_ns, end_ns, None


_CAUSE_RANK = {"data_wait": 0, "launch": 1, "runtime_api": 2, "dispatch": 3, "sync": 4, "python": 5}


def _host_states(threads: Iterable[_Thread], start_ns: int, end_ns: int) -> list[tuple[int, int, str, str]]:
    """(start, end, phase, cause) of the host over the whole window, ordered by time.

    If several threads are active, the one that drives the device counts: autograd's own thread launches while
    the stepping thread waits for it. Where there is no event, the host is in Python.
    """
    pieces = heapq.merge(*(t.pieces for t in threads), key=lambda p: p[0])
    edges: list[tuple[int, int, str, str]] = []
    changes: list[tuple[int, int, int]] = []
    kept: list[_Node] = []
    for piece_start_ns, piece_end_ns, node in pieces:
        number = len(kept)
        kept.append(node)
        changes += [(piece_start_ns, 1, number), (piece_end_ns, 0, number)]
    active: set[int] = set()
    at_ns = start_ns
    for t_ns, is_start, number in sorted(changes):
        if t_ns > at_ns:
            best = min(active, key=lambda n: (_CAUSE_RANK[kept[n].cause], n), default=None)
            edges.append(
                (at_ns, t_ns, *(("", "python") if best is None else (kept[best].phase, kept[best].cause)))
            )
            at_ns = t_ns
        (active.add if is_start else active.discard)(number)
    if end_ns > at_ns:
        edges.append((at_ns, end_ns, "", "python"))
    return _with_phases(edges)


def _with_phases(edges: Sequence[tuple[int, int, str, str]]) -> list[tuple[int, int, str, str]]:
    """Give each stretch outside of all events the phase that follows, at the end the preceding one."""
    known = [phase for _, _, phase, _ in edges if phase]
    phase = known[-1] if known else "forward"
    found = []
    for begin_ns, last_ns, own, cause in reversed(edges):
        phase = own or phase
        found.append((begin_ns, last_ns, phase, cause))
    return found[::-1]


def _key(owner: _Node) -> tuple[str, str, str, str]:
    return owner.phase, owner.event.name, owner.event.shapes, owner.event.dtypes


def _rows(found: Mapping[tuple[str, str, str, str], _Sums]) -> tuple[OperatorRow, ...]:
    """The rows with the most time first; beyond MOST_ROWS, rows of the same phase and category are merged."""
    ordered = sorted(found.items(), key=lambda item: (-item[1].time_ns, -item[1].cpu_ns, item[0]))
    rows = [
        OperatorRow(
            phase, category_of(name), name, shapes, dtypes, s.calls, s.events, s.time_ns, s.cpu_ns, s.kernels
        )
        for (phase, name, shapes, dtypes), s in ordered
    ]
    others: dict[tuple[str, str], _Sums] = {}
    for row in rows[MOST_ROWS:]:
        sums = others.setdefault((row.phase, row.category), _Sums())
        sums.calls += row.calls
        sums.events += row.events
        sums.time_ns += row.time_ns
        sums.cpu_ns += row.cpu_ns
        sums.kernels += row.kernels
    return (
        *rows[:MOST_ROWS],
        *(
            OperatorRow(phase, category, "others", "", "", s.calls, s.events, s.time_ns, s.cpu_ns, s.kernels)
            for (phase, category), s in sorted(others.items())
        ),
    )


def _slices(found: Mapping[tuple[str, str, str], int]) -> tuple[Slice, ...]:
    return tuple(
        Slice(phase, time_class, cause, time_ns)
        for (phase, time_class, cause), time_ns in sorted(found.items(), key=lambda item: -item[1])
        if time_ns
    )


def _kernels(device: Sequence[TraceEvent], makers: Sequence[_Node | None]) -> tuple[KernelRow, ...]:
    found: dict[tuple[str, str], list[int]] = {}
    by: dict[tuple[str, str], Counter[str]] = {}
    for event, maker in zip(device, makers, strict=True):
        key = (event.name, class_of(event))
        found.setdefault(key, []).append(event.end_ns - event.start_ns)
        by.setdefault(key, Counter())["" if maker is None else maker.event.name] += 1
    rows = [
        KernelRow(name, time_class, by[name, time_class].most_common(1)[0][0], len(ns), sum(ns), max(ns))
        for (name, time_class), ns in found.items()
    ]
    return tuple(sorted(rows, key=lambda row: (-row.time_ns, row.name))[:MOST_ROWS])
