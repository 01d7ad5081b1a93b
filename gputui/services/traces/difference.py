"""How the steps of two traces differ: described exactly for these traces, and judged where a side has
several."""

from __future__ import annotations

import math
import re
from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from gputui.analysis.attribution import Attribution, ProfiledSide, divide_difference, doubtful
from gputui.analysis.findings import WORTH_A_LINE
from gputui.analysis.judgement import RATE, Judgement, judgements
from gputui.analysis.spread import CONTENTION, LAUNCH_SD, effect_of_waiting
from gputui.analysis.verdict import compare_launches
from gputui.analysis.work import different_work, even_factor, wider_type
from gputui.document.table import Table, table_of
from gputui.errors import GputuiError
from gputui.model.absent import Missing, fields_of, to_plain
from gputui.model.units import (
    format_change,
    format_percent,
    format_seconds,
    listed,
)
from gputui.services.compare.formats import judgement_as_json
from gputui.services.compare.why import part_name, signed, time_text
from gputui.services.results.labels import format_ends
from gputui.services.results.step_answer import (
    FOR_PROGRAMS,
    PROFILED,
    RECORDED,
    answer_of_trace,
    from_to,
    tells_nothing,
    within,
)
from gputui.services.traces.imported import TraceRun
from gputui.services.traces.window import described

JUDGED_FROM = 2
"""Traces a side: steps of one process say nothing about how processes vary."""
_MUCH_OF_IT = 0.3
"""Of a difference: a cause that makes less of it is not named in the first sentence."""
_LEAST_SHARE = 0.2
"""Of all that moved: a part with less is not named in the first sentence."""
_THREADS_THAT_MEET = 2.0
"""Of programs that others slow down most, as far as that was measured."""
_SPREADS = 2
"""Standard deviations between processes: a smaller change of one may be chance."""
_KERNELS_SHOWN = 10
_FIGURES_WIDTH = 48
"""Columns that the figures of a row of kernels take at most."""


@dataclass(frozen=True, slots=True)
class KernelDifference:
    """One kernel of the device, or one kind of copy, on both sides."""

    name: str
    time_a_ns: int
    """Per step, as the others."""
    time_b_ns: int
    calls_a: float
    calls_b: float

    @property
    def difference_ns(self) -> int:
        return self.time_b_ns - self.time_a_ns


@dataclass(frozen=True, slots=True)
class TraceDifference:
    """Two sides, each of one trace or of several."""

    a: tuple[TraceRun, ...]
    b: tuple[TraceRun, ...]
    attribution: Attribution
    """Of the first trace of each side."""
    kernels: tuple[KernelDifference, ...]
    """Largest difference first."""
    judgement: Judgement | Missing
    """Of the time of a step; Missing if a side has fewer than JUDGED_FROM traces."""
    not_comparable: str = ""
    """Why the first traces of the sides say nothing of each other; empty if they do."""


def difference_of(a: Sequence[TraceRun], b: Sequence[TraceRun]) -> TraceDifference:
    """Describe how the first traces differ, and judge the sides if both have several.

    Raises GputuiError if a side has a trace twice.
    """
    for side in (a, b):
        digests = Counter(run.digest for run in side if run.digest)
        twice = next((run for run in side if digests[run.digest] > 1), None)
        if twice is not None:
            raise GputuiError(f"{twice.path} is given twice", "name each trace once: its steps count once")
    first = [ProfiledSide(side[0].found, side[0].step_ns, bool(side[0].device)) for side in (a, b)]
    own = [replace(one, step_ns=one.found.before_ns) for one in first]
    first = own if all(one.step_ns and not doubtful(one) for one in own) else first
    return TraceDifference(
        tuple(a),
        tuple(b),
        divide_difference(*first),
        _kernels(a[0], b[0]),
        _judgement(a, b),
        _not_comparable(a[0], b[0]),
    )


def _not_comparable(a: TraceRun, b: TraceRun) -> str:
    """Why two traces say nothing of each other: windows of different work are no steps, and a profile far
    from its program explains nothing. Empty if they do."""
    unmarked = [run.name for run in (a, b) if not run.window.has_steps]
    is_cut_by_clock = any(note.startswith(PROFILED) for run in (a, b) for note in run.notes)
    if unmarked and (len(unmarked) < 2 or is_cut_by_clock or different_work(a.found, b.found)):
        are = "are not marked, so no step is known to compare"
        return f"the steps of {' and '.join(dict.fromkeys(unmarked))} {are}"
    far = next((run for run in (a, b) if tells_nothing(run.found)), None)
    if far is None:
        return ""
    own, profiled = (format_seconds(ns * 1e-9) for ns in (far.found.before_ns, far.step_ns))
    return f"a step of {far.name} takes {own}, but {profiled} while profiled"


def _judgement(a: Sequence[TraceRun], b: Sequence[TraceRun]) -> Judgement | Missing:
    if min(len(a), len(b)) < JUDGED_FROM:
        return Missing("one trace a side: steps of one process do not show how processes vary")
    unmarked = next((run.name for run in (*a, *b) if not run.window.has_steps), None)
    if unmarked is not None:
        return Missing(f"{unmarked} has no marks of steps")
    launches = [
        [[(end - start) * 1e-9 for start, end in run.window.steps_ns] for run in side] for side in (a, b)
    ]
    sds = [LAUNCH_SD["gpu" if side[0].device else "cpu", "training"] for side in (a, b)]
    estimate = compare_launches(*launches, prior_sd_a=sds[0], prior_sd_b=sds[1])
    return judgements(RATE, [estimate])[0]


def _kernels(a: TraceRun, b: TraceRun) -> tuple[KernelDifference, ...]:
    """Those of both, summed by their names."""
    on_a, on_b = _kernels_per_step(a), _kernels_per_step(b)
    found = []
    for name in {**on_a, **on_b}:
        (ns_a, calls_a), (ns_b, calls_b) = (side.get(name, (0, 0.0)) for side in (on_a, on_b))
        found.append(KernelDifference(name, ns_a, ns_b, calls_a, calls_b))
    return tuple(sorted(found, key=lambda k: (-abs(k.difference_ns), k.name)))


def _kernels_per_step(run: TraceRun) -> dict[str, tuple[int, float]]:
    """Time and calls by name."""
    times_ns, calls = Counter[str](), Counter[str]()
    for kernel in run.found.kernels:
        times_ns[kernel.name] += kernel.time_ns
        calls[kernel.name] += kernel.calls
    steps = run.found.steps
    return {name: (time_ns // steps, calls[name] / steps) for name, time_ns in times_ns.items()}


def sentences(found: TraceDifference) -> tuple[str, ...]:
    """The answer, what is known of its cause, and how far it goes; first of all whether the work differs.

    `b's steps take 26.5 ms less than a's (128 vs 155 ms, 6 and 6 steps): waiting for the loader -30.8 ms, all
    else +4.3 ms.`
    """
    if found.not_comparable:
        return (f"Can't tell how they differ: {found.not_comparable}.", _how_sure(found))
    a, b = found.a[0], found.b[0]
    are_steps = a.window.has_steps and b.window.has_steps
    steps = f", {a.found.steps} and {b.found.steps} steps" if are_steps else ""
    subject = "b's steps take" if are_steps else "b's window takes"
    told = _told(found, subject, "a's", steps, _cause(found))
    different = different_work(a.found, b.found)
    if different:
        return (f"{different}.", *told, _how_sure(found))
    even = even_factor(a.found, b.found) if a.device == b.device else ""
    causes = [f"{cause[0].upper()}{cause[1:]}." for cause in (wider_type(a.found, b.found), even) if cause]
    return (*told, *causes, _how_sure(found))


def _told(found: TraceDifference, subject: str, other: str, more: str = "", cause: str = "") -> list[str]:
    """How much longer or shorter the steps are, why, and in which of their parts the difference lies."""
    attribution = found.attribution
    seen_ns, own_ns = (attribution.step_a_ns, attribution.step_b_ns), _own_ns(found.a[0], found.b[0])
    told = [f"{subject} {_amount(*(own_ns or seen_ns), other, more)}"]
    is_explained = own_ns is None or (own_ns[0] < own_ns[1]) == (seen_ns[0] < seen_ns[1])
    if cause and is_explained:
        told[0] += f": {cause}"
    if own_ns not in (None, seen_ns):
        told.append(f"While profiled: {_amount(*seen_ns, other)}")
    moved = sum(abs(part.difference_ns) for part in attribution.parts)
    named = [part for part in attribution.parts[:3] if abs(part.difference_ns) >= _LEAST_SHARE * moved > 0]
    if not is_explained:
        told[-1] += ", which does not explain it"
    elif named:
        rest_ns = attribution.difference_ns - sum(part.difference_ns for part in named)
        parts = ", ".join(f"{part_name(part)} {signed(part.difference_ns)}" for part in named)
        told[-1] += f"{'; ' if told[-1].endswith(cause or ':') else ': '}{parts}, all else {signed(rest_ns)}"
    return [f"{one}." for one in told]


def _own_ns(a: TraceRun, b: TraceRun) -> tuple[int, int] | None:
    """A step of each without the profiler, if both are known."""
    own_ns = a.found.before_ns, b.found.before_ns
    return own_ns if all(own_ns) else None


def _amount(a_ns: int, b_ns: int, other: str, more: str = "") -> str:
    """`26.5 ms less than a's (128 vs 155 ms, 6 and 6 steps)`."""
    on_a, on_b = (format_seconds(ns * 1e-9) for ns in (a_ns, b_ns))
    unit = f" {on_a.rpartition(' ')[2]}"
    times = f"({on_b.removesuffix(unit)} vs {on_a}{more})"
    if a_ns == b_ns:
        return f"as long as {other} {times}"
    less = "less" if b_ns < a_ns else "more"
    return f"{format_seconds(abs(b_ns - a_ns) * 1e-9)} {less} than {other} {times}"


def _cause(found: TraceDifference) -> str:
    """`in b the GPU waits for data`: what holds up the slower side more, if that is much of the
    difference; else empty."""
    ns = found.attribution.difference_ns
    longer_ns = max(found.attribution.step_a_ns, found.attribution.step_b_ns)
    gains: dict[str, float] = {}
    titles: dict[str, str] = {}
    for sign, side in ((-1, found.a[0]), (1, found.b[0])):
        answer = answer_of_trace(side.found, side.device, "", side.notes)
        for cause in answer.causes:
            # Other programs prolong both sides: as much of each as of the longer one.
            whole_ns = longer_ns if cause.kind == CONTENTION else cause.step_ns
            gain_ns = whole_ns * cause.gain_ns / cause.step_ns
            gains[cause.kind] = gains.get(cause.kind, 0) + sign * gain_ns
            if (sign > 0) == (ns > 0):
                titles[cause.kind] = within(cause.title)
    kind = max(titles, key=lambda one: abs(gains[one]), default="")
    if not kind or abs(gains[kind]) < _MUCH_OF_IT * abs(ns) or (gains[kind] > 0) != (ns > 0):
        return ""
    return f"in {'b' if ns > 0 else 'a'} {titles[kind]}"


def change_sentence(before: TraceRun, after: TraceRun) -> str:
    """What a change of a program did, from a step of each.

    `A step takes 98.0 ms less than before (314 vs 412 ms): waiting for the loader -98.0 ms, all else +0 s.`
    """
    found = difference_of([before], [after])
    if found.not_comparable:
        return f"Can't tell what changed: {found.not_comparable}."
    seen_ns = found.attribution.step_a_ns, found.attribution.step_b_ns
    told_ns = _own_ns(before, after) or seen_ns
    least = _SPREADS * LAUNCH_SD["gpu" if after.device else "cpu", "training"]
    waits = [run.found.waited_share or 0.0 for run in (before, after)]
    are_sure = all(_is_beyond_waiting(ns, waits, least) for ns in (seen_ns, told_ns))
    if max(waits) >= WORTH_A_LINE and not are_sure:
        share = format_percent(max(waits))
        return f"Can't tell what changed: other programs had the cores for {share} of one window."
    if abs(math.log(told_ns[1] / told_ns[0])) < least:
        return f"As fast as before, or nearly ({from_to(*told_ns)}): runs of one program differ as much."
    is_other_work = different_work(before.found, after.found)
    more = ["Its products are not the same, in size or number."] if is_other_work else []
    return " ".join((*_told(found, "A step takes", "before"), *more))


def _is_beyond_waiting(steps_ns: tuple[int, int], waits: Sequence[float], least: float) -> bool:
    """Whether two steps differ by more than their waiting for other programs can make them."""
    (faster_ns, _), (slower_ns, waited) = sorted(zip(steps_ns, waits, strict=True))
    effect = effect_of_waiting("training", _THREADS_THAT_MEET)
    if waited > effect.decidable_share:
        return False
    own_share = replace(effect, power=effect.power + 2 * effect.sd).own_share(waited)
    return math.log(own_share * slower_ns / faster_ns) >= least


def _how_sure(found: TraceDifference) -> str:
    if isinstance(found.judgement, Missing):
        return "This describes two traces; several of each, --a X1 X2 X3 --b Y1 Y2 Y3, are judged."
    estimate = found.judgement.estimate
    if isinstance(estimate, Missing):
        return f"Not judged: {estimate.reason}."
    words = {"same": "both do as many", "inconclusive": "can't tell which does more"}
    says = words.get(found.judgement.word, f"b does {format_change(estimate.ratio)}")
    interval = format_ends(estimate.low, estimate.high, estimate.ratio)
    return f"Over {len(found.a)} and {len(found.b)} traces: {says} steps a second ({interval})."


def side_lines(found: TraceDifference) -> list[str]:
    """A line for each trace: what it is of, its steps, how busy the device was."""
    lines = []
    for letter, side in (("a", found.a), ("b", found.b)):
        for run in side:
            busy_ns = sum(s.time_ns for s in run.found.slices if s.time_class != "idle")
            where = run.device or "CPU"
            busy = f"busy {format_percent(busy_ns / run.found.window_ns)}"
            lines.append(f"{letter}  {run.name}: {where}, {described(run.window)}, {busy}")
    return lines


def notes(found: TraceDifference) -> list[str]:
    """What to know of the traces before believing it, each thing once."""
    names = defaultdict[str, list[str]](list)
    for run in (*found.a, *found.b):
        for note in run.notes:
            names[note].append(run.name)
    return [
        f"{listed(names[note])}: {note}" for note in names if not note.startswith((*FOR_PROGRAMS, RECORDED))
    ]


def kernel_table(found: TraceDifference, width: int = 120, most: int = _KERNELS_SHOWN) -> Table:
    """The kernels that differ most, in a table at most `width` columns wide."""
    rows = [
        (
            short_kernel(kernel.name, max(20, width - _FIGURES_WIDTH)),
            time_text(kernel.time_a_ns),
            time_text(kernel.time_b_ns),
            signed(kernel.difference_ns),
            f"{kernel.calls_a:.3g}",
            f"{kernel.calls_b:.3g}",
        )
        for kernel in found.kernels[:most]
    ]
    return table_of(("kernel, per step", "a", "b", "b - a", "calls a", "calls b"), rows, (1, 2, 3, 4, 5))


def short_kernel(name: str, width: int = 60) -> str:
    """The name of a kernel without its return type and arguments, cut in the middle where it is too long.

    What many names share goes first. Of those that Tensile makes, the end is the size of the tile.
    """
    bare = re.sub(r"^(void|std::enable_if<.*>::type) ", "", name).replace("(anonymous namespace)::", "")
    bare = bare.partition("(")[0] or name
    if len(bare) <= width:
        return bare
    bare = re.sub(r"at::native::|c10::", "", re.sub(r">( >)+$", ">", bare))
    if tile := re.search(r"^Cijk_.*_(MT\d+x\d+x\d+)", bare):
        return f"{bare[: width - 1 - len(tile[1])]}…{tile[1]}"
    if len(bare) <= width:
        return bare
    return f"{bare[: width // 2 - 1]}…{bare[-(width // 2) :]}"


def as_json(found: TraceDifference) -> Mapping[str, object]:
    judgement, is_comparable = found.judgement, not found.not_comparable
    return {
        "headline": sentences(found),
        "sides": {
            letter: [
                {
                    "name": run.name,
                    "device": run.device or None,
                    "rank": run.rank,
                    "steps": run.found.steps,
                    "steps_found_by": run.window.found_by,
                    **fields_of(run.found, "window_ns", "unmatched_ns"),
                    "notes": run.notes,
                }
                for run in side
            ]
            for letter, side in (("a", found.a), ("b", found.b))
        },
        "step_a_ns": found.attribution.step_a_ns if is_comparable else None,
        "step_b_ns": found.attribution.step_b_ns if is_comparable else None,
        "parts": [
            {
                "part": part.category,
                **fields_of(part, "time_a_ns", "time_b_ns", "difference_ns"),
                "phases": dict(part.phases),
            }
            for part in (found.attribution.parts if is_comparable else ())
        ],
        "kernels": to_plain(found.kernels) if is_comparable else [],
        "judgement": to_plain(judgement) if isinstance(judgement, Missing) else judgement_as_json(judgement),
    }
