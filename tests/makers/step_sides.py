"""Sides of a comparison of steps, of which each has a profiled pass: any, and made by hand."""

from __future__ import annotations

from hypothesis import strategies as st

from gputui.analysis.attribution import (
    Attribution,
    ProfiledSide,
    attribute,
)
from gputui.analysis.verdict import RatioEstimate, compare_launches
from gputui.model.absent import Missing
from gputui.model.journal import CATEGORIES, IDLE_CAUSES, PHASES, Operator, ProfiledPass, TimeSlice

MS = 1_000_000


NS = st.integers(0, 2 * 10**12)


COUNTS = st.integers(0, 10**6)


@st.composite
def operators(draw: st.DrawFn) -> Operator:
    return Operator(
        phase=draw(st.sampled_from(PHASES)),
        category=draw(st.sampled_from(CATEGORIES)),
        operator=draw(st.sampled_from(("aten::mm", "aten::linear", "aten::to", "aten::add", "others"))),
        shapes=draw(st.sampled_from(("", "8x64,64x64", "2x3,3x4"))),
        dtypes=draw(st.sampled_from(("float,float", "c10::BFloat16"))),
        calls=draw(COUNTS),
        events=draw(COUNTS),
        time_ns=draw(NS),
        cpu_ns=draw(NS),
        kernels=draw(COUNTS),
    )


def make_pass(
    rows: tuple[Operator, ...], idle: tuple[TimeSlice, ...] = (), steps: int = 1, cost_ns: int = 0
) -> ProfiledPass:
    """A valid pass with these rows and this idle time."""
    busy = tuple(TimeSlice(row.phase, "compute", "", row.time_ns) for row in rows)
    slices = (*busy, *idle)
    return ProfiledPass(
        launch_id=0,
        case_id=0,
        is_valid=True,
        reason="",
        steps=steps,
        window_ns=sum(s.time_ns for s in slices),
        events=sum(row.events for row in rows),
        event_cost_ns=cost_ns,
        unmatched_ns=0,
        operators=rows,
        slices=slices,
        kernels=(),
        memory=(),
        memory_reason="not asked for",
        trace_bytes=0,
    )


@st.composite
def sides(draw: st.DrawFn) -> ProfiledSide:
    rows = draw(st.lists(operators(), max_size=12))
    idle = draw(
        st.lists(
            st.builds(TimeSlice, st.sampled_from(PHASES), st.just("idle"), st.sampled_from(IDLE_CAUSES), NS),
            max_size=6,
        )
    )
    found = make_pass(tuple(rows), tuple(idle), draw(st.integers(1, 20)), draw(st.integers(0, 5000)))
    peak = st.one_of(st.just(Missing("none")), st.floats(1e9, 1e16))
    return ProfiledSide(found, draw(st.integers(1, 10**12)), draw(st.booleans()), draw(peak))


def row(
    operator: str,
    time_ms: float,
    *,
    calls: int = 1,
    phase: str = "forward",
    category: str = "gemm",
    **more: str,
) -> Operator:
    dtypes, shapes = more.get("dtypes", "float"), more.get("shapes", "8x64,64x64")
    return Operator(phase, category, operator, shapes, dtypes, calls, calls, round(time_ms * MS), 0, 0)


def waits(cause: str, time_ms: float) -> TimeSlice:
    return TimeSlice("forward", "idle", cause, round(time_ms * MS))


def side(
    *rows: Operator,
    idle: tuple[TimeSlice, ...] = (),
    step_ms: float = 0,
    on_gpu: bool = False,
    peak: float = 0,
) -> ProfiledSide:
    """A side of one profiled step; the timed step takes as long by default."""
    found = make_pass(rows, idle)
    step_ns = round(step_ms * MS) or found.window_ns
    return ProfiledSide(found, step_ns, on_gpu, peak or Missing("not measured"))


def estimate_of(a: ProfiledSide, b: ProfiledSide, spread: float = 1e-3) -> RatioEstimate:
    """As if from five launches a side whose steps differ by this much."""
    launches = [[[one.step_ns * (1 + spread * number)] * 5 for number in range(-2, 3)] for one in (a, b)]
    estimate = compare_launches(*launches, prior_sd_a=0.1, prior_sd_b=0.1)
    assert isinstance(estimate, RatioEstimate)
    return estimate


def attributed(a: ProfiledSide, b: ProfiledSide) -> Attribution:
    found = attribute(a, b, estimate_of(a, b))
    assert isinstance(found, Attribution), found
    return found


def differences_ms(found: Attribution) -> dict[str, float]:
    return {part.category: part.difference_ns / MS for part in found.parts if part.difference_ns}
