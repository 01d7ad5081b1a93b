from __future__ import annotations

from dataclasses import replace
from fractions import Fraction

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from step_sides import (
    MS,
    NS,
    attributed,
    differences_ms,
    estimate_of,
    make_pass,
    row,
    side,
    sides,
    waits,
)

from gputui.analysis.attribution import (
    NOT_EXPLAINED,
    ProfiledSide,
    _net_work_ns,
    _rounded,
    apportioned,
    attribute,
    divide_difference,
    doubtful,
    inflation,
    split_by_calls,
)
from gputui.model.absent import Missing
from gputui.model.journal import ProfiledPass


@settings(max_examples=75, deadline=None)
@given(sides(), sides())
def test_whatever_the_rows_the_parts_sum_to_the_difference_to_the_nanosecond_and_turn_with_the_sides(
    a: ProfiledSide, b: ProfiledSide
) -> None:
    found, back = divide_difference(a, b), divide_difference(b, a)

    for rows in (found.parts, found.operators):
        assert sum(one.time_a_ns for one in rows) == a.step_ns
        assert sum(one.time_b_ns for one in rows) == b.step_ns
        assert sum(one.difference_ns for one in rows) == found.difference_ns == b.step_ns - a.step_ns
        assert all(one.split.total_ns == one.difference_ns for one in rows)
    assert all(sum(ns for _, ns in part.phases) == part.difference_ns for part in found.parts)
    assert all(isinstance(one.time_a_ns, int) and isinstance(one.difference_ns, int) for one in found.parts)
    assert 0 <= found.coverage <= 1
    assert found.confidence in ("high", "fair", "low")
    ways = {"shapes", "operator", "category", "idle", "only a", "only b", "none"}
    assert {one.match for one in found.operators} <= ways
    for one in found.operators:
        assert isinstance(one.peak_ns, Missing) == isinstance(one.efficiency_ns, Missing)
        if not isinstance(one.peak_ns, Missing) and not isinstance(one.efficiency_ns, Missing):
            assert one.peak_ns + one.efficiency_ns == one.split.per_call_ns
            assert not isinstance(one.flops_per_call, Missing)

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


def test_halves_of_a_nanosecond_are_rounded_away_from_0() -> None:
    assert [_rounded(Fraction(n, 2)) for n in (5, 1, -1, -5, 4)] == [3, 1, -1, -3, 2]


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
