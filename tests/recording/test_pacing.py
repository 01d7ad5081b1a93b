"""How a budget is divided among launches, by a clock that stands still while the supervisor is stopped."""

from __future__ import annotations

import random
from dataclasses import replace

import pytest
from builders import H200, make_interpreter, make_machine

from gputui.model.plan import Plan, PlannedDevice, PlannedLaunch
from gputui.recording.pacing import (
    END_S,
    FIRST_STARTUP_S,
    FIRST_STARTUP_WITHOUT_TORCH_S,
    GRACE,
    LEAST_MEASURING_S,
    STOPPED_S,
    Pace,
    WakingClock,
    least_budget_s,
    profiled_s,
)
from gputui.services.profiles.loader import find_profile
from gputui.services.profiles.planner import CPU_SHARE, Choices, resolve_plan

CPU = PlannedDevice("cpu", "cpu", "CPU", "", "")
GPU = PlannedDevice("gpu", "cuda", "NVIDIA H200", "GPU-0", "")


def _plan(*launches: PlannedLaunch, budget_s: float = 100.0) -> Plan:
    return Plan("p", 1, 0, 1, budget_s, (), launches, ("python3",))


def _launch(
    launch_id: int, weight: float = 1.0, device: PlannedDevice = CPU, *, needs_torch: bool = True
) -> PlannedLaunch:
    return PlannedLaunch(launch_id, 0, (launch_id,), device, 1, weight, needs_torch=needs_torch)


def _aim_s(pace: Pace, launch: PlannedLaunch) -> float:
    allowance = pace.allowance(launch)
    assert allowance is not None
    return allowance[0]


def test_launches_that_spend_their_allowances_spend_the_budget_and_divide_it_by_weight() -> None:
    plan = _plan(_launch(0), _launch(1, 3.0), _launch(2, 2.0, GPU))
    pace, given = Pace(plan), []
    for launch in plan.launches:  # as long to start as expected
        given.append(_aim_s(pace, launch))
        pace.spent_s += given[-1] + END_S
    assert sum(given) + 3 * END_S == pytest.approx(plan.budget_s)
    starts_s = [FIRST_STARTUP_S[launch.device.device_class] for launch in plan.launches]
    first, second, third = (
        allowance_s - start_s for allowance_s, start_s in zip(given, starts_s, strict=True)
    )
    assert [second, third] == pytest.approx([3 * first, 2 * first])


def test_an_observed_start_replaces_the_guess_for_launches_of_its_device() -> None:
    launches = [_launch(number) for number in range(3)]
    observed = Pace(_plan(*launches))
    observed.started(launches[0], 20.0)
    assert _aim_s(observed, launches[0]) == pytest.approx(20.0 + (100.0 - 3 * (20.0 + END_S)) / 3)


def test_without_torch_a_start_costs_almost_nothing_and_says_nothing_of_one_with_torch() -> None:
    light, heavy, last = _launch(0, needs_torch=False), _launch(1), _launch(2)
    assert _aim_s(Pace(_plan(light, budget_s=3.0)), light) == pytest.approx(3.0 - END_S)
    assert FIRST_STARTUP_WITHOUT_TORCH_S < 1.0
    informed, uninformed = Pace(_plan(light, heavy, last)), Pace(_plan(light, heavy, last))
    informed.started(light, 0.05)
    assert informed.allowance(light) == uninformed.allowance(light)
    assert informed.allowance(heavy) == uninformed.allowance(heavy)


def test_when_time_is_short_the_last_launches_are_the_ones_without_an_allowance() -> None:
    launches = [_launch(number) for number in range(24)]
    pace = Pace(_plan(*launches, budget_s=20.0))
    given = []
    for launch in launches:
        allowance = pace.allowance(launch)
        if allowance is not None:
            pace.spent_s += allowance[0] + END_S
        given.append(allowance)
    dropped = [number for number, allowance in enumerate(given) if allowance is None]
    assert dropped == list(range(24 - len(dropped), 24))
    assert 0 < len(dropped) < 24
    assert all(one[0] >= FIRST_STARTUP_S["cpu"] for one in given if one is not None)


def test_a_start_that_proves_quick_brings_back_launches_that_seemed_too_many() -> None:
    launches = [_launch(number) for number in range(6)]
    pace = Pace(_plan(*launches, budget_s=15.0))
    for launch in launches:
        allowance_s = _aim_s(pace, launch)
        pace.started(launch, 0.2)
        assert allowance_s > 0
        pace.spent_s += 2.0 if launch.launch_id == 0 else allowance_s


def test_the_last_launch_may_be_a_little_late_rather_than_be_dropped() -> None:
    pace = Pace(_plan(_launch(0)))
    pace.spent_s = 99.0
    allowance_s = _aim_s(pace, _launch(0))
    assert pace.spent_s + allowance_s + END_S < 100.0 * (1 + GRACE)
    pace.spent_s += 100.0 * GRACE
    assert pace.allowance(_launch(0)) is None


def test_a_case_run_alone_again_gets_its_share_beside_those_that_wait() -> None:
    pace = Pace(_plan(_launch(0), _launch(1)))
    pace.allowance(_launch(0))
    again = _launch(7, 1.0)
    assert _aim_s(pace, again) < 60.0


def _passes(count: int, *, cases: int = 3, budget_s: float = 60.0) -> Plan:
    """So many passes over cases that are launched one by one."""
    launches = [
        replace(_launch(replicate * cases + case), case_ids=(case,), replicate=replicate)
        for replicate in range(count)
        for case in range(cases)
    ]
    return replace(_plan(*launches, budget_s=budget_s), replicates=count)


def test_a_slow_case_may_take_what_the_rest_of_the_first_pass_does_not_need() -> None:
    plan = _passes(8)
    allowance = Pace(plan).allowance(plan.launches[0])
    assert allowance is not None
    others_s = 2 * (FIRST_STARTUP_S["cpu"] + LEAST_MEASURING_S + END_S)
    aim_s, limit_s = allowance
    assert limit_s == pytest.approx(60.0 - others_s - END_S)
    assert aim_s < 60.0 / 8


def test_a_case_that_was_slow_costs_late_passes_and_no_other_case() -> None:
    plan = _passes(8)
    pace, done = Pace(plan), []
    for launch in plan.launches:
        allowance = pace.allowance(launch)
        if allowance is None:
            continue
        aim_s, limit_s = allowance
        took_s = max(14.0, aim_s) if launch.case_ids == (0,) else aim_s
        assert took_s <= limit_s
        pace.ended(launch, aim_s, took_s + END_S)
        done.append(launch)
    assert {launch.case_ids for launch in done if not launch.replicate} == {(0,), (1,), (2,)}
    assert 2 <= sum(launch.case_ids == (0,) for launch in done) <= 4
    assert pace.spent_s <= 60.0 * (1 + GRACE)


def test_time_for_a_profiled_pass_is_set_aside_before_the_first_launch() -> None:
    plan = _passes(8, budget_s=140.0)
    with_pass = replace(plan.launches[2], profiled=(2,))
    watched = replace(plan, launches=(*plan.launches[:2], with_pass, *plan.launches[3:]))
    without, found = Pace(plan).allowance(plan.launches[0]), Pace(watched).allowance(plan.launches[0])
    assert without is not None
    assert found is not None
    assert without[1] - found[1] == pytest.approx(7.0)
    assert profiled_s(watched, plan.launches[0]) == 0.0
    assert profiled_s(watched, with_pass) == pytest.approx(7.0)


def _simulated(plan: Plan, startup_s: float, seed: int) -> tuple[list[PlannedLaunch], float]:
    """The launches that a supervisor would execute on a box whose GPU launches take so long to start, and
    the seconds that they take. Those of the CPU are forks."""
    chance = random.Random(seed)
    pace, done = Pace(plan), []
    for launch in plan.launches:
        is_gpu = launch.device.device_class == "gpu"
        allowance = pace.allowance(launch)
        if allowance is None:
            continue
        start_s = (startup_s if is_gpu else 0.2) * chance.lognormvariate(0, 0.2)
        pace.started(launch, start_s)
        least_s = len(launch.case_ids) * chance.uniform(0.3, 1.2)
        took_s = max(allowance[0], start_s + least_s)
        took_s += chance.uniform(0.3, 1.0) * profiled_s(plan, launch)
        pace.ended(launch, allowance[0], took_s + chance.uniform(0.05, 0.3))
        done.append(launch)
    return done, pace.spent_s


@pytest.mark.parametrize("startup_s", [0.5, 4.0, 6.0, 9.0])
def test_however_slowly_a_gpu_starts_every_case_on_it_is_measured_and_one_is_profiled(
    startup_s: float,
) -> None:
    gpu_box = make_machine("NVIDIA H200", memory_gib=256)
    for seed in range(20):
        choices = Choices(seed=seed)
        plan = resolve_plan(find_profile("quick"), make_interpreter(H200), gpu_box, choices)
        done, seconds = _simulated(plan, startup_s, seed)
        measured = {case_id for launch in done for case_id in launch.case_ids}
        on_gpu = {one.case_id for one in plan.cases if one.case.variant.device_class == "gpu"}
        assert on_gpu <= measured
        assert any(launch.profiled for launch in done if launch.device.device_class == "gpu")
        assert seconds <= plan.budget_s * (1 + GRACE) + 0.5


def test_cases_of_the_cpu_take_at_most_their_share_of_a_run_that_measures_a_gpu() -> None:
    gpu_box = make_machine("NVIDIA H200", memory_gib=256)
    plan = resolve_plan(find_profile("quick"), make_interpreter(H200), gpu_box)
    weights = {"cpu": 0.0, "gpu": 0.0}
    for launch in plan.launches:
        weights[launch.device.device_class] += launch.weight
    assert weights["cpu"] / sum(weights.values()) == pytest.approx(CPU_SHARE)
    alone = resolve_plan(find_profile("quick"), make_interpreter(cuda=None), make_machine())
    assert min(launch.weight for launch in alone.launches) >= 1.0


def test_with_too_little_time_for_all_cases_the_last_of_the_first_pass_are_dropped() -> None:
    launches = [_launch(number) for number in range(8)]
    plan = _plan(*launches, budget_s=least_budget_s(_plan(*launches)) - 4)
    pace, given = Pace(plan), []
    for launch in launches:
        allowance = pace.allowance(launch)
        given.append(allowance)
        if allowance is not None:
            pace.ended(launch, allowance[0], allowance[0] + END_S)
    assert [one is None for one in given] == [False] * 5 + [True] * 3


def test_a_long_gap_between_two_looks_is_no_time_and_a_short_one_is() -> None:
    instants = iter([100.0, 101.0, 101.0 + STOPPED_S / 2, 5000.0, 5001.5])
    clock = WakingClock(lambda: next(instants))
    assert clock.now_s() == 101.0
    assert clock.now_s() == 101.0 + STOPPED_S / 2
    assert clock.stopped_s == 0.0
    assert clock.now_s() == 101.0 + STOPPED_S / 2
    assert clock.stopped_s == 5000.0 - 101.0 - STOPPED_S / 2
    assert clock.now_s() == 101.0 + STOPPED_S / 2 + 1.5
