from __future__ import annotations

from dataclasses import replace
from fractions import Fraction

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gputui.analysis.attribution import (
    NOT_EXPLAINED,
    Attribution,
    ProfiledSide,
    _net_work_ns,
    apportioned,
    attribute,
    divide_difference,
    doubtful,
    inflation,
    split_by_calls,
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


@settings(max_examples=75, deadline=None)
@given(sides(), sides())
def test_whatever_the_rows_the_parts_sum_to_the_difference_to_the_nanosecond_and_turn_with_the_sides(
    a: ProfiledSide, b: ProfiledSide
) -> None:
    found, back = divide_difference(a, b), divide_difference(b, a)

    for rows in (found.parts, found.operators):
        assert sum(row.time_a_ns for row in rows) == a.step_ns
        assert sum(row.time_b_ns for row in rows) == b.step_ns
        assert sum(row.difference_ns for row in rows) == found.difference_ns == b.step_ns - a.step_ns
        assert all(row.split.total_ns == row.difference_ns for row in rows)
    assert all(sum(ns for _, ns in part.phases) == part.difference_ns for part in found.parts)
    assert all(isinstance(row.time_a_ns, int) and isinstance(row.difference_ns, int) for row in found.parts)
    assert 0 <= found.coverage <= 1
    assert found.confidence in ("high", "fair", "low")
    ways = {"shapes", "operator", "category", "idle", "only a", "only b", "none"}
    assert {row.match for row in found.operators} <= ways
    for row in found.operators:
        assert isinstance(row.peak_ns, Missing) == isinstance(row.efficiency_ns, Missing)
        if not isinstance(row.peak_ns, Missing) and not isinstance(row.efficiency_ns, Missing):
            assert row.peak_ns + row.efficiency_ns == row.split.per_call_ns
            assert not isinstance(row.flops_per_call, Missing)

    assert found.coverage == pytest.approx(back.coverage)
    assert found.confidence == back.confidence
    assert [part.category for part in found.shown()] == [part.category for part in back.shown()]
    mirrored = {part.category: part for part in back.parts}
    assert mirrored.keys() == {part.category for part in found.parts}
    for part in found.parts:
        other = mirrored[part.category]
        assert part.split.more_work_ns == -other.split.more_work_ns
        for name in ("difference_ns", "matched_ns", "peak_ns", "efficiency_ns"):
            one, turned = getattr(part, name), getattr(other, name)
            assert isinstance(turned, Missing) if isinstance(one, Missing) else one == -turned


@settings(deadline=None)
@given(st.lists(NS, max_size=30), NS)
def test_what_is_apportioned_sums_to_the_total_and_follows_the_weights(
    weights: list[int], total: int
) -> None:
    shares = apportioned(weights, total)

    if sum(weights):
        assert sum(shares) == total
        exact = [Fraction(weight * total, sum(weights)) for weight in weights]
        assert all(abs(share - to) < 1 for share, to in zip(shares, exact, strict=True))
    else:
        assert shares == [0] * len(weights)


@settings(deadline=None)
@given(NS, NS, st.integers(1, 999), st.integers(1, 999), st.integers(1, 20))
def test_the_split_by_calls_is_exact_and_of_one_kind_where_the_other_did_not_change(
    time_a: int, time_b: int, calls_a: int, calls_b: int, steps: int
) -> None:
    split = split_by_calls(time_a, time_b, Fraction(calls_a, steps), Fraction(calls_b, steps))

    assert split.total_ns == time_b - time_a
    if calls_a == calls_b:
        assert split.more_work_ns == 0
    if time_a * calls_b == time_b * calls_a:
        assert split.per_call_ns == 0


# By hand


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


def test_operators_pair_whatever_their_types_and_casts_stand_alone() -> None:
    fp32 = side(row("aten::linear", 80), row("aten::mm", 20, phase="backward"))
    amp = side(
        row("aten::linear", 10, dtypes="c10::BFloat16"),
        row("aten::mm", 5, phase="backward", dtypes="c10::BFloat16"),
        row("aten::to", 4, category="cast_copy"),
    )

    found = attributed(fp32, amp)

    assert differences_ms(found) == {"gemm": -85, "cast_copy": 4}
    gemm, casts = found.parts[:2]
    assert gemm.phases == (("forward", -70 * MS), ("backward", -15 * MS))
    assert (casts.only_b_ns, casts.split.unsplit_ns, casts.matched_ns) == (4 * MS, 4 * MS, 0)
    assert found.coverage == pytest.approx(85 / 89)
    assert (found.confidence, found.doubts) == ("high", ())


def test_more_calls_and_longer_calls_are_distinguished() -> None:
    # 4 calls of 2 ms against 6 of 3 ms: 2 more at 2.5 ms, and 1 ms longer at 5 calls
    found = attributed(side(row("aten::mm", 8, calls=4)), side(row("aten::mm", 18, calls=6)))

    (part, _) = found.parts
    assert (part.split.more_work_ns, part.split.per_call_ns) == (5 * MS, 5 * MS)


def test_a_pair_of_rows_has_the_shapes_that_both_or_its_only_side_had() -> None:
    small, large = row("aten::mm", 4), row("aten::mm", 8, shapes="9x64,64x64")
    for a, b, shapes in (
        (side(small), side(replace(small, time_ns=8 * MS)), "8x64,64x64"),
        (side(small), side(large), ""),
        (side(small), side(small, row("aten::to", 4, category="cast_copy", shapes="5")), "5"),
    ):
        assert [one.shapes for one in attributed(a, b).operators if one.difference_ns] == [shapes]


def test_the_profiled_step_is_the_window_shared_by_its_steps() -> None:
    found = make_pass((row("aten::mm", 60),), steps=3)
    assert inflation(ProfiledSide(found, 16 * MS, False, Missing("not measured"))) == 1.25


def test_an_operator_whose_trace_events_cost_more_than_it_took_did_no_work() -> None:
    brief = replace(row("aten::mm", 0), time_ns=10, events=5)
    assert _net_work_ns(make_pass((brief,), cost_ns=4)) == [0]


def test_a_product_that_gained_less_than_its_peak_did_has_lost_efficiency() -> None:
    # The peak is 8 times as high, so 80 ms should become 10; they became 20.
    # Expected at a's efficiency -70, at b's 20 - 160 = -140: their mean is -105; -60 was seen.
    found = attributed(side(row("aten::mm", 80), peak=1e12), side(row("aten::mm", 20), peak=8e12))

    (part, _) = found.parts
    assert (part.peak_ns, part.efficiency_ns) == (-105 * MS, 45 * MS)


def test_names_of_two_kinds_of_device_pair_by_category_and_their_idle_time_does_not() -> None:
    cpu = side(row("aten::_flash_for_cpu_backward", 50, category="attention"), idle=(waits("python", 10),))
    gpu = side(
        row("aten::_efficient_backward", 2, category="attention"), idle=(waits("python", 1),), on_gpu=True
    )

    found = attributed(cpu, gpu)

    match = {row.category: row.match for row in found.operators}
    assert match["attention"] == "category"
    idle = next(part for part in found.parts if part.category == "idle: python")
    assert (idle.only_a_ns, idle.only_b_ns, idle.matched_ns) == (10 * MS, 1 * MS, 0)


def test_what_the_profiler_costs_a_cpu_is_taken_out_line_by_line() -> None:
    rows = (row("aten::mm", 10, calls=1000), row("aten::add", 12, calls=4000, category="elementwise"))
    watched = replace(make_pass(rows), event_cost_ns=2000)
    a = ProfiledSide(watched, 13 * MS, is_on_device=False)
    b = side(row("aten::mm", 28, calls=1000))

    found = divide_difference(a, b)

    times = {part.category: part.time_a_ns / MS for part in found.parts}
    assert times == {"gemm": 8, "elementwise": 4, NOT_EXPLAINED: 1}
    assert found.inflation_a == pytest.approx(22 / 13)


def test_the_idle_time_of_a_gpu_is_what_its_work_leaves_of_the_timed_step() -> None:
    idle = (waits("dispatch", 30), waits("launch", 10))
    gpu = side(row("aten::mm", 60), idle=idle, step_ms=80, on_gpu=True)

    found = divide_difference(gpu, side(row("aten::mm", 10), on_gpu=True))

    times = {part.category: part.time_a_ns / MS for part in found.parts}
    assert times == {"gemm": 60, "idle: dispatch": 15, "idle: launch": 5, NOT_EXPLAINED: 0}


# Nothing to attribute


def test_nothing_is_attributed_where_the_interval_of_the_difference_holds_0() -> None:
    a, b = side(row("aten::mm", 10)), side(row("aten::mm", 10.2))

    found = attribute(a, b, estimate_of(a, b, spread=0.05))

    assert found == Missing("the interval of the difference holds 0: there is nothing to explain")


@pytest.mark.parametrize(
    ("spoilt", "expected"),
    [
        (replace(make_pass(()), is_valid=False, reason="the trace holds no operator"), "no operator"),
        (replace(make_pass((row("aten::mm", 10),)), window_ns=5), "do not sum to the window"),
        (replace(make_pass(()), steps=0), "holds no step"),
        (make_pass((row("aten::mm", 14),)), "took 1.40x as long as the timed one"),
        (make_pass((row("aten::mm", 8),)), "took 0.80x as long as the timed one"),
    ],
)
def test_a_pass_that_is_not_believed_attributes_nothing_and_says_why(
    spoilt: ProfiledPass, expected: str
) -> None:
    a, b = ProfiledSide(spoilt, 10 * MS, is_on_device=False), side(row("aten::mm", 40))

    found = attribute(a, b, estimate_of(a, b))

    assert isinstance(found, Missing)
    assert found.reason.startswith("a: ")
    assert expected in found.reason
    assert isinstance(attribute(b, a, estimate_of(b, a)), Missing)


def test_a_gpu_that_idles_longer_under_the_profiler_is_believed_and_one_that_works_longer_is_not() -> None:
    waited = side(row("aten::mm", 9), idle=(waits("dispatch", 9),), step_ms=10, on_gpu=True)
    worked = side(row("aten::mm", 11), step_ms=10, on_gpu=True)
    crawled = side(row("aten::mm", 9), idle=(waits("dispatch", 22),), step_ms=10, on_gpu=True)

    assert doubtful(waited) == ""
    assert "took 3.10x as long as the timed one" in doubtful(crawled)
    assert "busy for 1.10x" in doubtful(worked)


def test_confidence_is_low_where_most_of_the_difference_is_not_explained() -> None:
    a, b = side(row("aten::mm", 10)), side(row("aten::mm", 10.5), step_ms=11.5)

    found = attributed(a, b)

    assert found.confidence == "low"
    assert "much is not explained" in found.doubts
