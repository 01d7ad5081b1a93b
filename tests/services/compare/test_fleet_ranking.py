"""Many boxes: each beside its kind."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest
from hand_made import make_case, make_run, measured, steady
from journals import CPU_MACHINE, GPU_MACHINE

from gputui.errors import GputuiError
from gputui.model.journal import Price
from gputui.model.machine import Machine
from gputui.model.result import Run
from gputui.services.compare.fleet import Fleet, fleet_of
from gputui.services.compare.fleet_text import FLEET_FORMATS, box_rows, kind_rows
from gputui.services.compare.pairing import Side, side_of_runs

GEMM = make_case("gemm")
COPY = make_case("membw")
_WOBBLE = (0.0, 0.01, -0.012, 0.004, -0.006, 0.009, -0.003, 0.002, -0.008, 0.011)


def box(
    name: str, gemm_s: float, copy_s: float = 0.02, machine: Machine = CPU_MACHINE, usd: float | None = None
) -> Side:
    price = {} if usd is None else {"price": Price(usd, 1.0, "stated", "", "", "", "")}
    run: Run = make_run(
        measured(GEMM, steady(gemm_s)),
        measured(COPY, steady(copy_s)),
        machine=replace(machine, machine_id=name.encode().hex().rjust(12, "0")[-12:]),
        **price,  # type: ignore[arg-type]
    )
    return side_of_runs(name, [run])


def even(count: int, step_s: float = 0.01, **kind: object) -> list[Side]:
    return [
        box(f"{n}.db", step_s * (1 + _WOBBLE[n % 10]), 0.02 * (1 + _WOBBLE[-1 - n % 10]), **kind)  # type: ignore[arg-type]
        for n in range(count)
    ]


def texts(fleet: Fleet) -> str:
    return " ".join(FLEET_FORMATS["text"](fleet).split())


def test_a_slow_box_is_named_first_with_how_much_and_a_healthy_fleet_has_none() -> None:
    fleet = fleet_of([*even(12), box("bad.db", 0.014, 0.028)])
    assert "One stands out as slower than its kind: bad by 28 %." in fleet.headline
    assert box_rows(fleet, 5)[1][0][1:2] == ["bad"]
    assert "No box stands out from its kind." in fleet_of(even(12)).headline


def test_a_box_that_is_bad_at_one_thing_is_named_with_that_thing() -> None:
    fleet = fleet_of([*even(12), box("bad.db", 0.01, 0.04)])
    (bad,) = [one for one in fleet.boxes if one.stands_out]
    assert bad.name == "bad"
    assert bad.where[0][1] == pytest.approx(0.5, rel=0.02)
    assert "memory" in bad.where[0][0].lower() or "copy" in bad.where[0][0].lower()


def test_kinds_are_ranked_by_their_median_and_no_box_is_judged_by_another_kind() -> None:
    other = replace(CPU_MACHINE, cpu=replace(CPU_MACHINE.cpu, model="Slow Processor 1"))
    slow = [box(f"s{n}.db", 0.1 * (1 + _WOBBLE[n]), 0.2, machine=other) for n in range(8)]
    fleet = fleet_of([*slow, *even(8)])
    assert [kind.spread.boxes for kind in fleet.kinds] == [8, 8]
    assert [len(tier) for tier in fleet.tiers] == [1, 1]
    assert not any(one.stands_out for one in fleet.boxes)
    assert fleet.headline.index("Xeon") < fleet.headline.index("Slow")
    assert len(kind_rows(fleet)[1]) == 2


def test_kinds_whose_intervals_overlap_tie() -> None:
    other = replace(CPU_MACHINE, cpu=replace(CPU_MACHINE.cpu, model="Twin Processor"))
    fleet = fleet_of([*even(6), *[box(f"t{n}.db", 0.01 * (1 + _WOBBLE[n]), machine=other) for n in range(6)]])
    assert [len(tier) for tier in fleet.tiers] == [2]
    assert "(a tie)" in fleet.headline


def test_all_forms_have_the_same_boxes_and_the_same_words() -> None:
    fleet = fleet_of([*even(12), box("bad.db", 0.014, 0.028)])
    found = json.loads(FLEET_FORMATS["json"](fleet))
    assert found["headline"] == fleet.headline
    assert [one["name"] for one in found["boxes"]] == [one.name for one in fleet.boxes]
    assert [one["name"] for one in found["boxes"] if one["stands_out"] == "slower"] == ["bad"]
    text, page = texts(fleet), FLEET_FORMATS["markdown"](fleet)
    for one in fleet.boxes:
        assert f" {one.name} " in text
        assert f"| {one.name} |" in page
    assert fleet.headline in text


def test_what_few_boxes_share_is_no_ground_to_rank_them() -> None:
    with pytest.raises(GputuiError, match="no case was measured on two"):
        fleet_of([side_of_runs("a.db", [make_run(measured(GEMM, steady(0.01)))])])
    assert "Too few boxes of a kind" in fleet_of(even(3)).headline


def test_the_machines_of_gpus_are_kinds_by_their_gpus() -> None:
    fleet = fleet_of([*even(5), *even(5, 0.009, machine=GPU_MACHINE)])
    assert len(fleet.kinds) == 2
