"""Why one side's step is shorter: the difference of two steps, divided among what the steps did.

Each side's step is first divided exactly, in integer nanoseconds. Then both divisions are matched part by
part, so that the parts always sum to the difference. This sum proves nothing; coverage and confidence say how
far the parts can be trusted.

The length of a step is that of the timed launches; the profiled pass only says where it went. The profiler's
overhead on a CPU's step is known per trace event and subtracted; the remaining difference to the timed step
is a separate part, NOT_EXPLAINED. A GPU's work takes as long under a profiler as without, so there idle time
is the rest of the timed step.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Hashable, Iterable, Sequence
from dataclasses import dataclass, replace
from fractions import Fraction
from operator import attrgetter

from gputui.analysis.verdict import RatioEstimate
from gputui.analysis.work import flops_of_call
from gputui.model.absent import Missing
from gputui.model.journal import IDLE, ProfiledPass, TimeSlice

BELIEVED_INFLATION = (0.9, 1.3)
"""The profiled step relative to the timed one, without the profiler's known overhead: outside this range
the profiler or a neighbor changed what was measured."""
MOST_INFLATION = 2.0
"""As above, with the profiler's overhead: steps of tiny operators reach it, and beyond it shares are
rough."""
MOST_INFLATION_ON_DEVICE = 3.0
"""As above on a GPU, where the overhead only distorts the causes of idle time."""
MOST_BUSY = 1.05
"""Busy time of a GPU's pass relative to the timed step: beyond it, clocks changed in between."""
NOT_EXPLAINED = "not explained"
CASTS = "cast_copy"
SHOWN_SHARE = 0.9
"""Parts are named until they hold this share of all that moved, in either direction. Parts may cancel, so
shares of the difference itself could exceed 100 %."""
LEAST_SHOWN = 0.02
_FAIR_COVERAGE, _HIGH_COVERAGE = 0.5, 0.8
_OTHERS = "others"
_NO_PEAK = Missing("no peak is known")
_NO_FLOPS = Missing("its floating-point operations are not known")


@dataclass(frozen=True, slots=True)
class ProfiledSide:
    """One side of a comparison, with the division of its step."""

    found: ProfiledPass
    step_ns: int
    """Of the timed launches."""
    is_on_device: bool
    peak_flops: float | Missing = _NO_PEAK
    """FLOP/s of large products at this side's precision: measured, else from the data sheet."""


@dataclass(frozen=True, slots=True)
class Split:
    """A part of a difference, B less A, in nanoseconds a step; the three sum to the part exactly.

    Of calls n and time per call m, the first is (nB - nA)(mA + mB)/2 and the second (mB - mA)(nA + nB)/2.
    """

    more_work_ns: int
    """B calls it more often, or less often if negative."""
    per_call_ns: int
    """A call takes longer on B, or less long if negative."""
    unsplit_ns: int
    """Only one side has it, or its calls cannot be compared."""

    @property
    def total_ns(self) -> int:
        return self.more_work_ns + self.per_call_ns + self.unsplit_ns

    def __add__(self, other: Split) -> Split:
        return Split(
            self.more_work_ns + other.more_work_ns,
            self.per_call_ns + other.per_call_ns,
            self.unsplit_ns + other.unsplit_ns,
        )


@dataclass(frozen=True, slots=True)
class _Difference:
    """Time of some work, or of a cause of idle time, in a step of each side."""

    category: str
    """One of CATEGORIES, `idle: CAUSE`, or NOT_EXPLAINED."""
    time_a_ns: int
    time_b_ns: int
    split: Split
    peak_ns: int | Missing
    """The part of `per_call_ns` that the ratio of the peaks explains, of operators whose floating-point
    operations are known; Missing if there are none, or a peak is not known."""
    efficiency_ns: int | Missing
    """The rest of `per_call_ns` of these: how close a call comes to its peak."""

    @property
    def difference_ns(self) -> int:
        return self.time_b_ns - self.time_a_ns


@dataclass(frozen=True, slots=True)
class OperatorDifference(_Difference):
    """One operator, or one cause of idle time, on both sides."""

    phase: str
    operator: str
    """Empty for idle time."""
    shapes: str
    """Empty if the two sides differ."""
    match: str
    """How the two were matched: by shapes, operator, category, idle, only a, only b or none."""
    calls_a: float
    """Per step."""
    calls_b: float
    flops_per_call: int | Missing
    """Missing if a call does not do the same work on both sides."""


@dataclass(frozen=True, slots=True)
class Part(_Difference):
    """One category of work, or one cause of idle time, on both sides."""

    phases: tuple[tuple[str, int], ...]
    """Phase and its part of the difference, largest magnitude first. They sum to the difference."""
    only_a_ns: int
    """Time of what only A has; included in `time_a_ns`."""
    only_b_ns: int
    matched_ns: int
    """The part of the difference in operators that both sides have; also of idle time."""


@dataclass(frozen=True, slots=True)
class Attribution:
    """How two steps differ; differences are B less A, as everywhere here."""

    step_a_ns: int
    step_b_ns: int
    parts: tuple[Part, ...]
    """Largest magnitude first; their differences sum to that of the steps."""
    operators: tuple[OperatorDifference, ...]
    """What the parts consist of, largest magnitude first; they have the same sum."""
    coverage: float
    """Share of all that moved, in either direction, in what both sides have; 0 to 1."""
    inflation_a: float
    """The profiled step relative to the timed one, including the profiler's overhead."""
    inflation_b: float
    confidence: str
    """`high`, `fair` or `low`."""
    doubts: tuple[str, ...]

    @property
    def difference_ns(self) -> int:
        return self.step_b_ns - self.step_a_ns

    def shown(self) -> tuple[Part, ...]:
        """The parts worth a line; the rest is `difference_ns` minus these.

        As many as hold SHOWN_SHARE of all that moved, plus casts, the cost of a precision, from LEAST_SHOWN
        of it.
        """
        moved = sum(abs(part.difference_ns) for part in self.parts)
        taken, shown = 0, []
        for part in self.parts:
            ns = abs(part.difference_ns)
            if (ns and taken < SHOWN_SHARE * moved) or (part.category == CASTS and ns > LEAST_SHOWN * moved):
                shown.append(part)
            taken += ns
        return tuple(shown)


def attribute(a: ProfiledSide, b: ProfiledSide, estimate: RatioEstimate) -> Attribution | Missing:
    """Divide the difference of two timed steps of one case.

    Missing, with the reason, if the interval of the ratio contains 1 (no known difference) or if a pass
    cannot be trusted.
    """
    if estimate.low <= 1 <= estimate.high:
        return Missing("the interval of the difference holds 0: there is nothing to explain")
    for letter, side in (("a", a), ("b", b)):
        fault = doubtful(side)
        if fault:
            return Missing(f"{letter}: {fault}")
    return divide_difference(a, b)


def divide_difference(a: ProfiledSide, b: ProfiledSide) -> Attribution:
    """Divide the difference of two steps, whether the passes can be trusted or not.

    The passes must be valid, with at least one step each.
    """
    pairs = list(_pairs(divide_step(a), divide_step(b), a.is_on_device == b.is_on_device))
    operators = [_difference(pair, a.peak_flops, b.peak_flops) for pair in pairs]
    operators.sort(key=lambda o: (-abs(o.difference_ns), o.category, o.phase, o.operator, o.shapes))
    parts = tuple(_parts(operators))
    moved = sum(abs(row.difference_ns) for row in operators)
    in_both = sum(abs(row.difference_ns) for row in operators if _is_matched(row))
    coverage = in_both / moved if moved else 1.0
    doubts = tuple(_doubts(a, b, parts, coverage))
    weak = coverage < _FAIR_COVERAGE or _unexplained(parts) > abs(b.step_ns - a.step_ns) / 2
    return Attribution(
        step_a_ns=a.step_ns,
        step_b_ns=b.step_ns,
        parts=parts,
        operators=tuple(operators),
        coverage=coverage,
        inflation_a=inflation(a),
        inflation_b=inflation(b),
        confidence="low" if weak else "fair" if doubts else "high",
        doubts=doubts,
    )


def inflation(side: ProfiledSide) -> float:
    """The profiled step relative to the timed one."""
    return side.found.window_ns / side.found.steps / side.step_ns


def doubtful(side: ProfiledSide) -> str:
    """Why a pass says nothing about the timed steps; empty if it does."""
    found = side.found
    if not found.is_valid:
        return f"not profiled: {found.reason}"
    fault = found.fault()
    if fault:
        return f"its profile cannot be trusted: {fault}"
    if found.steps < 1 or found.window_ns < 1 or side.step_ns < 1:
        return "its profile cannot be trusted: it holds no step"
    low, high = BELIEVED_INFLATION
    seen = inflation(side)
    if side.is_on_device:
        busy = sum(o.time_ns for o in found.operators) / found.steps / side.step_ns
        if busy > MOST_BUSY:
            return f"under the profiler the GPU was busy for {busy:.2f}x the timed step"
        net = seen if seen < 1 else 1.0  # a profiler increases idle time, so nothing is subtracted from it
    else:
        net = (sum(_net_work_ns(found)) + _net_idle_ns(found)) / found.steps / side.step_ns
    if seen > (MOST_INFLATION_ON_DEVICE if side.is_on_device else MOST_INFLATION) or not low <= net <= high:
        return f"the profiled step took {seen:.2f}x as long as the timed one, so its parts do not explain it"
    return ""


@dataclass(frozen=True, slots=True)
class Piece:
    """One row of the division of a side's timed step."""

    phase: str
    category: str
    operator: str
    shapes: str
    time_ns: int
    calls: Fraction


_Pair = tuple[Piece, Piece, str]
"""A piece of each side, which takes no time where only the other has it, and how the two were matched."""


def divide_step(side: ProfiledSide) -> list[Piece]:
    """The pieces of a timed step; they sum to it exactly."""
    found = side.found
    gaps = [part for part in found.slices if part.time_class == IDLE]
    work_ns = [o.time_ns for o in found.operators] if side.is_on_device else _net_work_ns(found)
    busy_step_ns, idle_step_ns = busy_and_idle_ns(side)
    pieces = [
        Piece(o.phase, o.category, o.operator, o.shapes, ns, Fraction(o.calls, found.steps))
        for o, ns in zip(found.operators, apportioned(work_ns, busy_step_ns), strict=True)
    ]
    idle_ns = apportioned([gap.time_ns for gap in gaps], idle_step_ns)
    pieces += [
        Piece(gap.phase, f"idle: {gap.cause.replace('_', ' ')}", "", "", ns, Fraction(0))
        for gap, ns in zip(gaps, idle_ns, strict=True)
    ]
    rest_ns = side.step_ns - sum(piece.time_ns for piece in pieces)
    return [*_merged(pieces, _BY_SHAPES), Piece("", NOT_EXPLAINED, "", "", rest_ns, Fraction(0))]


def busy_and_idle_ns(side: ProfiledSide) -> tuple[int, int]:
    """How long a step works and how long it is idle; what is left of the timed step is not explained."""
    found = side.found
    if not side.is_on_device:
        nets = sum(_net_work_ns(found)), _net_idle_ns(found)
        busy_ns, idle_ns = (_rounded(Fraction(ns, found.steps)) for ns in nets)
        return busy_ns, idle_ns
    busy_ns = _rounded(Fraction(sum(o.time_ns for o in found.operators), found.steps))
    is_idle = any(s.time_class == IDLE and s.time_ns for s in found.slices)
    return busy_ns, max(0, side.step_ns - busy_ns) if is_idle else 0


def slices_seen(side: ProfiledSide) -> list[tuple[TimeSlice, int]]:
    """The parts of a pass with their time in a step; on a CPU as they were profiled."""
    known: list[tuple[TimeSlice, int]] = []
    for is_idle, total_ns in enumerate(busy_and_idle_ns(_as_seen(side))):
        parts = [part for part in side.found.slices if (part.time_class == IDLE) == is_idle]
        known += zip(parts, apportioned([part.time_ns for part in parts], total_ns), strict=True)
    return known


def pieces_seen(side: ProfiledSide) -> list[Piece]:
    """The pieces of a step in the proportions of `slices_seen`, made as long as the timed step."""
    pieces = [piece for piece in divide_step(_as_seen(side)) if piece.category != NOT_EXPLAINED]
    times_ns = apportioned([piece.time_ns for piece in pieces], side.step_ns)
    return [replace(piece, time_ns=ns) for piece, ns in zip(pieces, times_ns, strict=True)]


def _as_seen(side: ProfiledSide) -> ProfiledSide:
    """With the profiler's overhead where it was seen: operators are listed with it too."""
    return replace(side, found=replace(side.found, event_cost_ns=0))


def apportioned(weights: Sequence[int], total: int) -> list[int]:
    """Integers in proportion to the weights, none negative, that sum to the total: largest remainders first.

    All are 0 if no weight is above 0; `total` must not be negative.
    """
    whole = sum(weights)
    if whole <= 0:
        return [0] * len(weights)
    shares = [divmod(weight * total, whole) for weight in weights]
    left = total - sum(share for share, _ in shares)
    lucky = set(sorted(range(len(weights)), key=lambda i: (-shares[i][1], i))[:left])
    return [share + (i in lucky) for i, (share, _) in enumerate(shares)]


def _net_work_ns(found: ProfiledPass) -> list[int]:
    """Time in the window of each operator, minus the overhead of its trace events."""
    return [max(0, o.time_ns - o.events * found.event_cost_ns) for o in found.operators]


def _net_idle_ns(found: ProfiledPass) -> int:
    """Time outside of operators, minus the overhead of the trace events there."""
    idle_ns = sum(s.time_ns for s in found.slices if s.time_class == IDLE)
    outside = max(0, found.events - sum(o.events for o in found.operators))
    return max(0, idle_ns - outside * found.event_cost_ns)


Key = Callable[[Piece], Hashable]
_BY_SHAPES: Key = attrgetter("phase", "category", "operator", "shapes")
_BY_CAUSE: Key = attrgetter("category")


def _merged(pieces: Iterable[Piece], key: Key) -> list[Piece]:
    """Sum of the pieces that share a key; attributes in which they differ are left empty."""
    found: dict[Hashable, Piece] = {}
    for piece in pieces:
        same = found.get(key(piece))
        found[key(piece)] = (
            piece
            if same is None
            else Piece(
                phase=same.phase if same.phase == piece.phase else "",
                category=same.category,
                operator=same.operator if same.operator == piece.operator else "",
                shapes=same.shapes if same.shapes == piece.shapes else "",
                time_ns=same.time_ns + piece.time_ns,
                calls=same.calls + piece.calls,
            )
        )
    return list(found.values())


def _pairs(a: Sequence[Piece], b: Sequence[Piece], is_one_kind: bool) -> Iterable[_Pair]:
    """Put each piece of either side into exactly one pair.

    Operators pair by phase, name and shapes, whatever their dtypes, which AMP changes; the rest by phase and
    name, then by phase and category, since names differ between CPU and GPU. Casts stay unpaired, as AMP adds
    them, and so does `other`, which is not one kind of work. Causes of idle time pair only between devices of
    one kind, since on a CPU they mean something else.
    """
    left_a, left_b = list(a), list(b)
    for match, key, fits in (
        ("shapes", _BY_SHAPES, lambda p: _is_work(p) and p.operator != _OTHERS),
        (
            "operator",
            attrgetter("phase", "category", "operator"),
            lambda p: _is_work(p) and p.operator != _OTHERS,
        ),
        (
            "category",
            attrgetter("phase", "category"),
            lambda p: _is_work(p) and p.category not in (CASTS, "other"),
        ),
        ("idle", _BY_CAUSE, lambda p: is_one_kind and p.category.startswith(IDLE)),
        ("none", _BY_CAUSE, lambda p: p.category == NOT_EXPLAINED),
    ):
        found, left_a, left_b = _matched(left_a, left_b, match, key, fits)
        yield from found
    yield from ((piece, _absent(piece), "only a") for piece in left_a)
    yield from ((_absent(piece), piece, "only b") for piece in left_b)


def _is_work(piece: Piece) -> bool:
    return piece.category != NOT_EXPLAINED and not piece.category.startswith(IDLE)


def _matched(
    a: Sequence[Piece], b: Sequence[Piece], match: str, key: Key, fits: Callable[[Piece], bool]
) -> tuple[list[_Pair], list[Piece], list[Piece]]:
    """Pairs that share a key and may be paired, and the unpaired pieces of each side."""
    common = {key(piece) for piece in a if fits(piece)} & {key(piece) for piece in b if fits(piece)}

    def is_taken(piece: Piece) -> bool:
        return fits(piece) and key(piece) in common

    mine = {key(piece): piece for piece in _merged(filter(is_taken, a), key)}
    theirs = {key(piece): piece for piece in _merged(filter(is_taken, b), key)}
    return (
        [(piece, theirs[which], match) for which, piece in mine.items()],
        [piece for piece in a if not is_taken(piece)],
        [piece for piece in b if not is_taken(piece)],
    )


def _absent(piece: Piece) -> Piece:
    return replace(piece, time_ns=0, calls=Fraction(0))


def _difference(pair: _Pair, peak_a: float | Missing, peak_b: float | Missing) -> OperatorDifference:
    a, b, match = pair
    has_calls = match in ("shapes", "operator") and a.calls > 0 and b.calls > 0
    times = a.time_ns, b.time_ns, a.calls, b.calls
    split = split_by_calls(*times) if has_calls else Split(0, 0, b.time_ns - a.time_ns)
    flops = _NO_FLOPS if match != "shapes" else flops_of_call(a.operator, a.shapes)
    peak_ns: int | Missing = _NO_FLOPS
    efficiency_ns: int | Missing = _NO_FLOPS
    if has_calls and not isinstance(flops, Missing):
        if isinstance(peak_a, Missing) or isinstance(peak_b, Missing):
            peak_ns = efficiency_ns = Missing("a peak is not known")
        else:
            # A call takes work / (peak x efficiency): the mean effect of exchanging the peaks at either
            # side's efficiency, as in `split_by_calls`, times the mean number of calls.
            ratio = Fraction(peak_a) / Fraction(peak_b)
            expected = (a.time_ns / a.calls * (ratio - 1) + b.time_ns / b.calls * (1 - 1 / ratio)) / 2
            peak_ns = _rounded(expected * (a.calls + b.calls) / 2)
            efficiency_ns = split.per_call_ns - peak_ns
    return OperatorDifference(
        phase=a.phase if a.phase == b.phase else "",
        category=a.category,
        operator=a.operator if a.operator == b.operator else "",
        shapes=a.shapes if a.shapes == b.shapes else "",
        match=match,
        time_a_ns=a.time_ns,
        time_b_ns=b.time_ns,
        calls_a=float(a.calls),
        calls_b=float(b.calls),
        split=split,
        peak_ns=peak_ns,
        efficiency_ns=efficiency_ns,
        flops_per_call=flops,
    )


def split_by_calls(time_a_ns: int, time_b_ns: int, calls_a: Fraction, calls_b: Fraction) -> Split:
    """The difference as more calls and longer calls; both counts must be above 0.

    The split does not depend on which of the two is assumed to change first (Shapley), and is exact.
    """
    per_a, per_b = time_a_ns / calls_a, time_b_ns / calls_b
    more_work_ns = _rounded((calls_b - calls_a) * (per_a + per_b) / 2)
    return Split(more_work_ns, time_b_ns - time_a_ns - more_work_ns, 0)


def _rounded(value: Fraction) -> int:
    """Rounded to the nearest; halves away from 0, so that exchanging the sides exchanges the signs."""
    whole = abs(value) + Fraction(1, 2)
    return (1 if value >= 0 else -1) * (whole.numerator // whole.denominator)


def _parts(operators: Sequence[OperatorDifference]) -> list[Part]:
    by_category: dict[str, list[OperatorDifference]] = {}
    for row in operators:
        by_category.setdefault(row.category, []).append(row)
    parts = [_part(category, rows) for category, rows in by_category.items()]
    return sorted(parts, key=lambda part: (-abs(part.difference_ns), part.category))


def _part(category: str, rows: Sequence[OperatorDifference]) -> Part:
    phases: Counter[str] = Counter()
    for row in rows:
        phases[row.phase] += row.difference_ns
    peaks = [row.peak_ns for row in rows if not isinstance(row.peak_ns, Missing)]
    rests = [row.efficiency_ns for row in rows if not isinstance(row.efficiency_ns, Missing)]
    why = next((row.peak_ns for row in rows if isinstance(row.peak_ns, Missing)), _NO_FLOPS)
    return Part(
        category=category,
        time_a_ns=sum(row.time_a_ns for row in rows),
        time_b_ns=sum(row.time_b_ns for row in rows),
        split=sum((row.split for row in rows), Split(0, 0, 0)),
        phases=tuple(sorted(phases.items(), key=lambda item: (-abs(item[1]), item[0]))),
        only_a_ns=sum(row.time_a_ns for row in rows if row.match == "only a"),
        only_b_ns=sum(row.time_b_ns for row in rows if row.match == "only b"),
        matched_ns=sum(row.difference_ns for row in rows if _is_matched(row)),
        peak_ns=sum(peaks) if peaks else why,
        efficiency_ns=sum(rests) if rests else why,
    )


def _is_matched(row: OperatorDifference) -> bool:
    return row.match in ("shapes", "operator", "category", "idle")


def _unexplained(parts: Sequence[Part]) -> int:
    return sum(abs(part.difference_ns) for part in parts if part.category == NOT_EXPLAINED)


def _doubts(a: ProfiledSide, b: ProfiledSide, parts: Sequence[Part], coverage: float) -> Iterable[str]:
    if coverage < _HIGH_COVERAGE:
        yield f"only {coverage:.0%} lies in what both sides have"
    difference_ns = abs(b.step_ns - a.step_ns)
    if _unexplained(parts) > difference_ns * (1 - _HIGH_COVERAGE):
        yield "much is not explained"
    for letter, side in (("a", a), ("b", b)):
        low, high = BELIEVED_INFLATION
        if not low <= inflation(side) <= high:
            yield f"the profiled step of {letter} took {inflation(side):.2f} x the timed one"
