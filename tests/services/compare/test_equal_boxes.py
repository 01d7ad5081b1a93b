"""Boxes of one kind of hardware: which of them is slower than every other."""

from __future__ import annotations

from hand_made import make_case, make_run, measured, steady
from journals import CPU_MACHINE, GPU_MACHINE

from gputui.model.machine import Machine
from gputui.services.compare.pairing import side_of_runs
from gputui.services.compare.ranking import equal_boxes

CASES = [make_case(name, workload_class="training") for name in ("conv_train", "gpt_train")]


def found(*steps_s: tuple[float, float], machine: Machine = CPU_MACHINE) -> tuple[str, ...]:
    """Of boxes whose steps of the two cases take so long, and one of other hardware."""
    runs = [
        make_run(
            *(
                measured(case, *(steady(step_s * (1 + 1e-3 * n)) for n in range(3)))
                for case, step_s in zip(CASES, of_box, strict=True)
            ),
            machine=machine,
        )
        for of_box in steps_s
    ]
    other = make_run(measured(CASES[0], steady(9.0)), machine=GPU_MACHINE)
    sides = [side_of_runs(f"{number}", [run]) for number, run in enumerate((*runs, other))]
    return tuple(equal_boxes(sides, "abcdef"[: len(runs)] + "z"))


def test_the_box_that_is_slower_than_each_of_its_kind_is_named_with_rows_and_how_much() -> None:
    (three,) = found((0.1, 0.1), (0.2, 0.1), (0.1, 0.1))
    assert three.startswith("slow among 3 equal boxes (")
    assert three.endswith("), of 2 rows: b in 1 row by 50 %")


def test_two_slow_boxes_do_not_hide_each_other() -> None:
    (three,) = found((0.1, 0.1), (0.2, 0.1), (0.2, 0.1))
    assert three.endswith(": b in 1 row by 50 %; c in 1 row by 50 %")
    (four,) = found((0.1, 0.1), (0.2, 0.1), (0.4, 0.1), (0.1, 0.1))
    assert four.endswith(": b in 1 row by 50 %; c in 1 row by 75 %")
    (alike,) = found((0.1, 0.1), (0.1, 0.1), (0.1, 0.1))
    assert alike.startswith("a, b and c are equal boxes (")
    assert found((0.1, 0.1)) == ()
