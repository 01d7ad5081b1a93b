"""The word for a GPU: what decides, and what comes first."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
from checked_boxes import box_of, measured_box, measured_gpu
from hand_made import make_case, make_run, measured, steady
from quick_runs import add_boxes

from gputui.services.check import BoxCheck, Measured, checked
from gputui.services.doctor.disturbances import Check

SLOW_PRODUCTS = {"amp": 0.85, "fp32": 0.87}
"""As of a chip with lower clocks."""


def box(gpus: int, factors: dict[int, dict[str, float]], *checks: Check) -> BoxCheck:
    machine = box_of(gpus)
    return checked(machine, checks, measured_box(machine, factors))


@pytest.mark.parametrize("gpus", [2, 3, 4, 5, 8])
def test_a_gpu_that_is_15_percent_slower_than_its_neighbors_is_named_and_they_are_not(gpus: int) -> None:
    found = box(gpus, {1: SLOW_PRODUCTS})
    assert [one.word for one in found.devices] == ["SLOW" if n == 1 else "OK" for n in range(gpus)]
    assert found.headline == "GPU 1 by 15 %: in matmul amp, and nothing here says why"
    low = [rate.case for rate in found.devices[1].rates if rate.is_low]
    assert low == ["matmul fp32", "matmul amp"]


def test_three_of_eight_that_are_equally_slow_are_named_together() -> None:
    found = box(8, dict.fromkeys((2, 5, 6), SLOW_PRODUCTS))
    assert [n for n, one in enumerate(found.devices) if one.word == "SLOW"] == [2, 5, 6]
    assert found.headline.startswith("GPU 2, 5-6 by 15 %")


def test_neighbors_that_are_equally_far_below_what_is_published_are_not_called_ok() -> None:
    found = box(8, {n: {"amp": 0.8, "fp32": 0.8} for n in range(8)})
    assert {one.word for one in found.devices} == {"CAN'T TELL"}
    assert found.headline.startswith("GPU 0-7: matmul fp32 40.0 TFLOP/s")


def test_without_neighbors_and_boxes_of_its_model_nothing_is_called_ok_or_slow_but_below_half() -> None:
    machine = replace(box_of(1), gpus=(replace(box_of(1).gpus[0], name="NVIDIA Unheard-of 9"),))
    alone = measured_gpu(machine, 0)
    cases = tuple(replace(case, device_name="NVIDIA Unheard-of 9") for case in alone.run.cases)
    found = checked(machine, (), [replace(alone, run=replace(alone.run, cases=cases))])
    assert (found.word, found.devices[0].reason) == (
        "CAN'T TELL",
        "no public figures, and no neighbor to compare it with",
    )
    assert box(1, {0: {"amp": 0.4, "fp32": 0.4}}).word == "SLOW"
    assert box(1, {0: {"amp": 1.5}}).word == "CAN'T TELL", "faster than its data sheet allows"


def test_boxes_of_its_model_decide_where_there_are_five(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("GPUTUI_STATE", str(tmp_path))
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path))
    add_boxes(8, on_gpu=True, sd=0.01)
    assert box(1, {0: SLOW_PRODUCTS}).word == "SLOW"


def test_the_reason_comes_before_the_word_slow() -> None:
    capped = box_of(8, power_limit_w=500.0)
    power = Check(
        "GPU 0 power", "note", "limited to 500 W (factory 700 W)", "to lift the limit:", "sudo nvidia-smi"
    )
    found = checked(capped, (power,), measured_box(capped, {0: SLOW_PRODUCTS}))
    assert found.headline == "GPU 0 by 15 %: power-capped at 500 of 700 W"
    others = [measured_gpu(capped, n) for n in range(1, 8)]
    hot = measured_gpu(capped, 0, SLOW_PRODUCTS, slowed_share=0.4)
    assert "held the clocks down for 40 % of the time" in checked(box_of(8), (), [hot, *others]).headline
    locked = measured_gpu(capped, 0, SLOW_PRODUCTS, clock_mhz=1410.0)
    found = checked(box_of(8), (), [locked, *others])
    assert "clock at 1410 MHz, its neighbors at 1980 MHz" in found.headline
    assert found.devices[0].command == "sudo nvidia-smi -i 0 -rgc"
    assert found.text == "", "a clock that this box may have locked is no matter for the provider"


def test_a_gpu_that_somebody_uses_is_not_measured_and_not_called_slow() -> None:
    machine = box_of(2)
    use = Check(
        "GPU 0 use", "note", "busy with other work (60 %)", "to see it:", "gputui snapshot --processes"
    )
    found = checked(machine, (use,), [measured_gpu(machine, 1)])
    assert found.devices[0].verdict() == "CAN'T TELL: busy with other work (60 %); its speed was not measured"
    assert found.devices[0].command == "gputui snapshot --processes"


def test_a_box_that_doctor_would_not_measure_now_is_not_called_ok_without_a_measurement() -> None:
    going = Check("another run", "note", "another gputui run is going: pid 7", "", "gputui attach 3f2a91c0")
    found = checked(box_of(2), (going,), [])
    assert found.headline == f"GPU 0-1: {going.found}; its speed was not measured"
    assert (found.word, found.devices[0].command) == ("CAN'T TELL", going.command)
    others = Check("other programs", "note", "busy with other work for 7.3 threads, and this box has 8")
    assert checked(replace(box_of(1), gpus=()), (others,), []).word == "CAN'T TELL"
    assert checked(box_of(1), (others,), []).word == "OK", "a GPU does not wait for the CPUs"


def test_a_fault_comes_before_any_speed() -> None:
    ecc = Check("GPU 1", "problem", "ECC errors 3: 3 memory errors could not be corrected", "reset it")
    found = box(8, {1: SLOW_PRODUCTS}, ecc)
    assert (found.word, found.devices[1].word) == ("FAULT", "FAULT")
    assert "GPU 1: FAULT: ECC errors 3" in found.text


def test_a_gpu_on_which_the_measurement_fails_is_a_fault_and_one_without_time_is_none() -> None:
    machine = box_of(2)
    for outcome, word in (("failed", "FAULT"), ("skipped", "CAN'T TELL")):
        broken = measured_gpu(machine, 1)
        cases = tuple(
            replace(case, outcome=outcome, reason="CUDA error", measurements=()) for case in broken.run.cases
        )
        broken = replace(broken, run=replace(broken.run, cases=cases))
        found = checked(machine, (), [measured_gpu(machine, 0), broken]).devices[1]
        assert (found.word, found.reason) == (word, f"its measurement {outcome}: CUDA error")


def test_a_cpu_whose_cores_others_had_says_so_and_not_that_figures_are_missing() -> None:
    alone = replace(box_of(1), gpus=())
    case = make_case("gemm", device_class="cpu")
    run = make_run(measured(case, steady(0.1), waited_share=0.5), machine=alone)
    found = checked(alone, (), [Measured(run, {})])
    assert found.headline == "CPU: other programs had the CPU for 50 % of the time"
    assert found.devices[0].next_step == "check again when they are done"
