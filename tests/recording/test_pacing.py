"""How a budget is divided among launches."""

from __future__ import annotations

from dataclasses import replace

import pytest

from gputui.model.plan import PROFILED, Plan, PlannedDevice, PlannedLaunch
from gputui.recording.pacing import (
    END_S,
    ENOUGH_S,
    FIRST_STARTUP_S,
    FIRST_STARTUP_WITHOUT_TORCH_S,
    GRACE,
    Pace,
    least_budget_s,
)

CPU = PlannedDevice("cpu", "cpu", "CPU", "", "")
GPU = PlannedDevice("gpu", "cuda", "NVIDIA H200", "GPU-0", "")


def _plan(*launches: PlannedLaunch, budget_s: float = 100.0) -> Plan:
    return Plan("p", 1, 0, 1, budget_s, (), launches, ("python3",))


def _launch(
    launch_id: int, weight: float = 1.0, device: PlannedDevice = CPU, *, needs_torch: bool = True
) -> PlannedLaunch:
    return PlannedLaunch(launch_id, 0, (launch_id,), device, 1, weight, needs_torch=needs_torch)


def _all_allowances(plan: Plan) -> list[float]:
    """Allowances of all launches when each spends its share and takes as long to start as expected."""
    pace, given = Pace(plan), []
    for launch in plan.launches:
        allowance_s = pace.allowance_s(launch)
        assert allowance_s is not None
        given.append(allowance_s)
        pace.spent_s += allowance_s + END_S
    return given


def test_launches_that_spend_their_allowances_spend_the_budget_exactly() -> None:
    plan = _plan(_launch(0), _launch(1, 3.0), _launch(2, 2.0, GPU))
    given = _all_allowances(plan)
    assert abs(sum(given) + 3 * END_S - plan.budget_s) < 1e-9


def test_what_is_left_after_all_starts_is_divided_by_weight() -> None:
    given = _all_allowances(_plan(_launch(0), _launch(1, 3.0)))
    measuring = [allowance_s - FIRST_STARTUP_S["cpu"] for allowance_s in given]
    assert abs(measuring[1] - 3 * measuring[0]) < 1e-9


def test_a_light_launch_on_a_gpu_gets_the_time_its_start_takes() -> None:
    heavy = [_launch(i, 10.0) for i in range(1, 4)]
    pace = Pace(_plan(_launch(0, 1.0, GPU), *heavy))
    allowance_s = pace.allowance_s(_launch(0, 1.0, GPU))
    assert allowance_s is not None
    assert allowance_s > FIRST_STARTUP_S["gpu"] + 1.0


def test_an_observed_start_replaces_the_guess_for_launches_of_its_device() -> None:
    first, second = _launch(0), _launch(1)
    guessed, observed = Pace(_plan(first, second)), Pace(_plan(first, second))
    guessed.allowance_s(first)
    observed.allowance_s(first)
    observed.started(first, 20.0)
    late, known = guessed.allowance_s(second), observed.allowance_s(second)
    assert late is not None
    assert known is not None
    assert abs(known - late) < 1e-9, "the last launch gets all that is left either way"
    third = _launch(2)
    observed = Pace(_plan(first, second, third))
    observed.started(first, 20.0)
    allowance_s = observed.allowance_s(first)
    assert allowance_s is not None
    assert abs(allowance_s - (20.0 + (100.0 - 3 * (20.0 + END_S)) / 3)) < 1e-9


def test_without_torch_a_start_costs_almost_nothing() -> None:
    light = _launch(0, needs_torch=False)
    allowance_s = Pace(_plan(light, budget_s=3.0)).allowance_s(light)
    assert allowance_s is not None
    assert abs(allowance_s - (3.0 - END_S)) < 1e-9
    assert FIRST_STARTUP_WITHOUT_TORCH_S < 1.0


def test_the_start_of_a_launch_without_torch_says_nothing_of_one_with_torch() -> None:
    light, heavy, last = _launch(0, needs_torch=False), _launch(1), _launch(2)
    informed, uninformed = Pace(_plan(light, heavy, last)), Pace(_plan(light, heavy, last))
    informed.started(light, 0.05)
    assert informed.allowance_s(light) == uninformed.allowance_s(light)
    assert informed.allowance_s(heavy) == uninformed.allowance_s(heavy)


def test_when_time_is_short_the_last_launches_are_the_ones_without_an_allowance() -> None:
    launches = [_launch(number) for number in range(12)]
    pace = Pace(_plan(*launches, budget_s=20.0))
    given = []
    for launch in launches:
        allowance_s = pace.allowance_s(launch)
        if allowance_s is not None:
            pace.spent_s += allowance_s + END_S
        given.append(allowance_s)
    dropped = [number for number, allowance_s in enumerate(given) if allowance_s is None]
    assert dropped == list(range(12 - len(dropped), 12))
    assert 0 < len(dropped) < 12
    assert all(allowance_s >= FIRST_STARTUP_S["cpu"] for allowance_s in given if allowance_s is not None)


def test_a_start_that_proves_quick_brings_back_launches_that_seemed_too_many() -> None:
    launches = [_launch(number) for number in range(6)]
    pace = Pace(_plan(*launches, budget_s=15.0))
    for launch in launches:
        allowance_s = pace.allowance_s(launch)
        assert allowance_s is not None
        pace.started(launch, 0.5)
        pace.spent_s += 2.0 if launch.launch_id == 0 else allowance_s


def test_a_spent_budget_gives_no_allowance() -> None:
    pace = Pace(_plan(_launch(0)))
    pace.spent_s = 97.0 + 100.0 * GRACE
    assert pace.allowance_s(_launch(0)) is None


def test_the_last_launch_may_be_a_little_late_rather_than_be_dropped() -> None:
    pace = Pace(_plan(_launch(0)))
    pace.spent_s = 99.0
    allowance_s = pace.allowance_s(_launch(0))
    assert allowance_s is not None
    assert pace.spent_s + allowance_s + END_S < 100.0 * (1 + GRACE)


def test_a_case_run_alone_again_gets_its_share_beside_those_that_wait() -> None:
    pace = Pace(_plan(_launch(0), _launch(1)))
    pace.allowance_s(_launch(0))
    again = _launch(7, 1.0)
    alone_s = pace.allowance_s(again)
    assert alone_s is not None
    assert alone_s < 60.0


def _repeated(share: float | None = 0.4, *, cases: int = 7, budget_s: float = 140.0) -> Plan:
    """Three launches each of several cases, then a profiled pass."""
    launches = [
        replace(_launch(replicate * cases + case), case_ids=(case,), replicate=replicate)
        for replicate in range(3)
        for case in range(cases)
    ]
    profiled = replace(_launch(3 * cases, 0.4), case_ids=(0,), purpose=PROFILED)
    plan = _plan(*launches, profiled, budget_s=budget_s)
    return replace(plan, replicates=3, startup_share=share)


@pytest.mark.parametrize(("startup_s", "launches"), [(1.8, 3), (3.0, 2), (5.0, 1), (30.0, 1)])
def test_cases_get_as_many_launches_as_start_within_their_share_of_the_budget(
    startup_s: float, launches: int
) -> None:
    plan = _repeated()
    pace = Pace(plan)
    pace.allowance_s(plan.launches[0])
    pace.started(plan.launches[0], startup_s)
    left_out, message = pace.settle(plan.launches[0])

    executed = [launch for launch in plan.launches[1:] if pace.to_execute(launch) is not None]
    assert {launch.replicate for launch in executed} == set(range(launches))
    later = [launch.launch_id for launch in plan.launches if launch.replicate >= launches]
    assert list(left_out) == later
    assert any(launch.purpose == PROFILED for launch in executed)
    assert message.startswith(f"{launches} launch") is (launches < 3)
    starts_s = (7 * launches + 1) * (startup_s + END_S)
    assert starts_s <= 0.4 * plan.budget_s or launches == 1


def test_why_launches_are_left_out_is_reported_once_with_what_starting_them_would_cost() -> None:
    plan = _repeated()
    pace = Pace(plan)
    pace.allowance_s(plan.launches[0])
    pace.started(plan.launches[0], 3.0)
    assert pace.settle(plan.launches[0])[1] == (
        "2 launches per case instead of 3, whose starts alone would take 50 % of the 140 s"
    )
    pace.started(plan.launches[1], 30.0)
    assert pace.settle(plan.launches[7]) == ((), ""), "it is decided once"
    assert pace.to_execute(plan.launches[7]) is not None


def test_without_a_share_for_starts_every_planned_launch_is_executed() -> None:
    plan = _repeated(None)
    pace = Pace(plan)
    pace.started(plan.launches[0], 30.0)
    assert pace.settle(plan.launches[7]) == ((), "")
    assert all(pace.to_execute(launch) is launch for launch in plan.launches)


def test_the_start_of_a_device_that_was_not_seen_yet_is_waited_for_until_the_first_repetition() -> None:
    plan = _repeated()
    launches = (replace(plan.launches[0], device=GPU), *plan.launches[1:])
    pace = Pace(replace(plan, launches=launches))
    pace.started(launches[1], 3.0)
    assert pace.settle(launches[2]) == ((), "")
    left_out, _ = pace.settle(launches[7])
    assert list(left_out) == list(range(14, 21))


def test_the_launches_that_are_kept_spend_the_budget_exactly() -> None:
    plan = _repeated()
    pace, spent_s = Pace(plan), []
    for launch in plan.launches:
        if pace.to_execute(launch) is None:
            continue
        allowance_s = pace.allowance_s(launch)
        assert allowance_s is not None
        pace.started(launch, 3.0)
        pace.settle(launch)
        pace.spent_s += allowance_s + END_S
        spent_s.append(allowance_s)
    assert len(spent_s) == 15
    assert abs(pace.spent_s - plan.budget_s) < 1e-9


def test_a_case_too_slow_for_its_share_gets_one_launch_and_all_others_one_less() -> None:
    both = [replace(_launch(number, 2.0), case_ids=(0, 1), replicate=number) for number in range(3)]
    pace = Pace(replace(_plan(*both), replicates=3, startup_share=0.9))
    pace.allowance_s(both[0])
    assert pace.too_slow(both[0], 1) == (
        2.0,
        (2,),
        "too slow: it will run once more, for longer, and the others in 2 launches",
    )
    assert pace.to_execute(both[1]) == replace(both[1], case_ids=(0,), weight=1.0)
    assert pace.too_slow(both[0], 0)[:2] == (2.0, (1,)), "of the same launch: nobody loses another"
    assert pace.to_execute(both[1]) is None


def test_a_case_too_slow_in_a_later_launch_or_in_its_only_one_is_not_repeated() -> None:
    plan = _repeated()
    pace = Pace(plan)
    pace.allowance_s(plan.launches[0])
    assert pace.too_slow(plan.launches[7], 0) == (0.0, (), "")
    assert pace.too_slow(replace(plan.launches[0], launch_id=99), 0) == (0.0, (), "")
    assert [pace.too_slow(plan.launches[number], number)[0] for number in (0, 1, 2)] == [2.0, 1.0, 0.0]


def test_closing_cases_leaves_out_only_the_launches_that_hold_no_other() -> None:
    together = replace(_launch(1), case_ids=(1, 2))
    launches = (_launch(0), together, _launch(3))
    pace, all_open = Pace(_plan(*launches)), Pace(_plan(*launches))
    assert pace.close({0, 1}) == (0,)
    assert pace.close({0, 1}) == ()
    assert [pace.to_execute(launch) for launch in launches] == [None, together, launches[2]]
    assert pace.allowance_s(together) == all_open.allowance_s(together), "its time stays what it was"


def test_with_too_little_time_for_all_cases_the_first_get_enough_and_the_last_are_dropped() -> None:
    launches = [_launch(number) for number in range(8)]
    least_s = least_budget_s(_plan(*launches))
    plan = _plan(*launches, budget_s=least_s - 5)
    pace = Pace(plan)
    for launch in launches[:3]:
        allowance_s = pace.allowance_s(launch)
        assert allowance_s is not None
        assert allowance_s - FIRST_STARTUP_S["cpu"] >= ENOUGH_S
        pace.spent_s += allowance_s + END_S
    while pace.allowance_s(launches.pop()) is not None:
        pace.spent_s += 10

    roomy = Pace(_plan(*[_launch(number) for number in range(8)], budget_s=least_s))
    allowance_s = roomy.allowance_s(_launch(0))
    assert allowance_s is not None
    assert allowance_s - FIRST_STARTUP_S["cpu"] < ENOUGH_S
