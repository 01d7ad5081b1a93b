"""A row whose host holds its GPU back stays, says so, and counts nowhere as the speed of a GPU."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
from hand_made import make_case, make_run, measured, steady, with_step_times
from journals import GPU_MACHINE
from quick_runs import add_boxes, box, quick_run

from gputui.analysis.job import parse_job
from gputui.analysis.verdict import GeometricMean
from gputui.errors import GputuiError, NoResult
from gputui.model.absent import Missing
from gputui.model.journal import Price
from gputui.model.plan import Case
from gputui.model.result import CaseResult, Run
from gputui.services.advise.rent import PricedSide, advise
from gputui.services.compare.fleet import fleet_of
from gputui.services.compare.formats import comparison_as_json
from gputui.services.compare.headline import headline_of
from gputui.services.compare.pairing import Comparison, compare_sides, main_row, side_of_runs, sides_by
from gputui.services.compare.reports import turning_points
from gputui.services.compare.rows_table import rows_of_sides, rows_table
from gputui.services.compare.tables import Naming, disturbances
from gputui.services.results.conditions import Evidence
from gputui.services.results.expected import measured_peak, performance_checks
from gputui.services.results.headline import main_case, run_headline
from gputui.services.results.labels import run_notes
from gputui.services.results.reference_making import reference_of
from gputui.services.results.run_forms import brief_table, metric_rows, run_as_json
from gputui.services.results.throughput import (
    HOST_BOUND,
    LIFTS,
    NOT_OF_GPU,
    STEP_KEYS,
    busy_share,
    busy_words,
    cost_of,
    is_host_bound,
    speeds_of,
)

PRICE = Price(2.0, 1.0, "stated", "", "", "", "")
UNKNOWN = Missing("a step waits for the device")
TRAIN = replace(
    make_case("gpt_train", workload_class="training", device_class="gpu", precision="amp", size="base"),
    unit="tok",
)
DECODE = make_case("decode", workload_class="inference", device_class="gpu", precision="amp", size="base")
GEMM = make_case("gemm", device_class="gpu", precision="amp", size="large")


def held_back(case: Case = TRAIN, step_s: float = 8e-3, device_s: float = 4e-3) -> CaseResult:
    return with_step_times(measured(case, *[steady(step_s)] * 3), device_s, step_s)


def busy(case: Case = DECODE, step_s: float = 5e-3) -> CaseResult:
    return with_step_times(measured(case, *[steady(step_s)] * 3), step_s * 0.99, step_s * 0.4)


def two_sides(a: Run, b: Run) -> Comparison:
    return compare_sides(side_of_runs("a.db", [a]), side_of_runs("b.db", [b]))


def on_box(number: int, *cases: CaseResult) -> Run:
    return make_run(*cases, machine=box(number, GPU_MACHINE), price=PRICE)


ODD = (8e-3, 8e-3, 8e-3, 3.1e-3, 8e-3)


@pytest.mark.parametrize(
    ("launches", "device_s", "host_s", "expected"),
    [
        ([steady(8e-3)], 3e-3, 8e-3, True),
        ([steady(8e-3)], 7.1e-3, 8e-3, True),
        ([steady(8e-3)], 7.3e-3, 7.9e-3, False),  # busy for more than nine tenths
        ([steady(8e-3)], 8e-3, 2e-3, False),
        # a single step at a higher clock: the host is not what takes longer
        ([steady(8e-3)], 6e-3, 2e-3, False),
        ([steady(8e-3)], UNKNOWN, UNKNOWN, False),
        ([ODD], 3e-3, 8e-3, False),  # the GPU was busy in one of the blocks
        ([steady(8e-3), steady(3e-3), steady(3e-3)], 3e-3, 8e-3, False),  # one odd launch
    ],
)
def test_a_case_is_host_bound_where_the_gpu_needs_clearly_less_than_a_step_and_the_host_more(
    launches: list[tuple[float, ...]], device_s: float | Missing, host_s: float | Missing, expected: bool
) -> None:
    assert is_host_bound(with_step_times(measured(TRAIN, *launches), device_s, host_s)) is expected


def test_what_was_not_measured_and_what_is_the_hosts_own_work_are_not_host_bound() -> None:
    loader = make_case("loader", workload_class="host", device_class="gpu")
    assert not is_host_bound(measured(TRAIN, steady(8e-3)))
    assert not is_host_bound(held_back(loader))
    assert isinstance(busy_share(measured(TRAIN, steady(8e-3))), Missing)


def test_the_gpu_is_busy_for_its_share_of_the_step() -> None:
    assert busy_share(held_back()) == pytest.approx(1 / 2, rel=1e-3)
    assert busy_words(held_back()) == "GPU busy 50 %"
    assert busy_words(busy()) == ""


def test_a_host_bound_row_stays_with_device_and_host_time_and_is_in_no_mean_and_no_headline() -> None:
    a, b = on_box(1, held_back(), busy()), on_box(2, held_back(step_s=4e-3, device_s=1e-3), busy(step_s=2e-3))
    comparison = two_sides(a, b)

    training, decode = comparison.rows
    assert (training.rate.word, training.is_host_bound) == ("faster", True)
    assert [(flag.side, flag.word, round(flag.share, 2)) for flag in training.flags] == [
        ("a", HOST_BOUND, 0.5),
        ("b", HOST_BOUND, 0.75),
    ]
    assert main_row(comparison.rows) is decode
    device, host = training.figures
    assert (device.key, host.key) == STEP_KEYS
    assert (device.judgement.word, host.judgement.word) == ("lower", "lower")
    assert decode.figures == ()
    means = {group.group: group for group in comparison.groups}
    assert means["training"].mean == Missing("each row is in doubt")
    assert (means["training"].common, means["training"].rows) == (0, 1)
    assert isinstance(means["inference"].mean, GeometricMean)
    lines = list(disturbances(comparison, Naming(comparison, "")))
    assert [line for line in lines if HOST_BOUND in line and line.endswith(LIFTS)]


def test_where_one_side_is_host_bound_the_row_compares_no_gpus_and_json_names_the_side() -> None:
    comparison = two_sides(on_box(1, held_back()), on_box(2, busy(TRAIN)))
    (row,) = comparison.rows
    assert row.is_host_bound
    assert isinstance(comparison.groups[0].mean, Missing)
    (told,) = comparison_as_json(comparison)["rows"]
    assert [(flag["side"], flag["word"]) for flag in told["flags"]] == [("a", HOST_BOUND)]


def test_a_headline_about_host_bound_rows_alone_says_that_it_compares_hosts() -> None:
    comparison = two_sides(on_box(1, held_back()), on_box(2, held_back(step_s=4e-3, device_s=1e-3)))
    text = headline_of([comparison], "", Evidence([])).text
    assert "Host-bound, the GPU waits for its host" in text
    assert f"this compares hosts. {LIFTS}." in text


def test_whether_amp_is_worth_it_is_not_answered_with_host_bound_rows() -> None:
    single = replace(TRAIN, variant=replace(TRAIN.variant, precision="fp32"))
    decode = replace(DECODE, variant=replace(DECODE.variant, precision="fp32"))
    run = on_box(1, held_back(single, 4e-3, 1e-3), held_back(step_s=8e-3), busy(decode, 9e-3), busy())
    comparison = compare_sides(*sides_by("precision", [run]), ignore="precision")
    text = headline_of([comparison], "precision", Evidence([])).text
    assert text.startswith("Text generation runs 1.80x as fast with amp as with fp32")
    assert "GPT training" not in text


def test_a_host_bound_case_has_no_price_and_answers_no_job() -> None:
    result = held_back()
    assert cost_of(result, PRICE) == Missing(NOT_OF_GPU)
    assert not isinstance(cost_of(busy(), PRICE), Missing)

    boxes = [
        PricedSide(side_of_runs(name, [on_box(number, case)]), PRICE, Missing("none"))
        for number, (name, case) in enumerate((("a.db", result), ("b.db", busy(TRAIN))))
    ]
    advice = advise(parse_job("36M tok train"), boxes)
    assert [offer.box for offer in advice.offers] == ["b.db"]
    assert advice.left_out == (("a.db gpu", f"gpt_train base: {NOT_OF_GPU}"),)
    with pytest.raises(GputuiError, match=HOST_BOUND):
        advise(parse_job("36M tok train"), boxes[:1])


def test_a_ranking_of_boxes_leaves_host_bound_cases_out() -> None:
    sides = [side_of_runs(f"{n}.db", [on_box(n, held_back(), busy())]) for n in range(5)]
    assert fleet_of(sides).case == DECODE
    with pytest.raises(NoResult):
        fleet_of([side_of_runs(f"{n}.db", [on_box(n, held_back())]) for n in range(5)])


def with_slow_host(run: Run, name: str) -> Run:
    """The run with one case host-bound, whose speed stays."""

    def told(case: CaseResult) -> CaseResult:
        step_s = case.measurements[0].blocks[0].block_ns * 1e-9 / 10
        return with_step_times(case, 0.3 * step_s, step_s) if case.case.name == name else case

    return Run(run.summary, tuple(map(told, run.cases)))


def test_references_neither_learn_from_host_bound_cases_nor_judge_them(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("GPUTUI_STATE", str(tmp_path))
    names = [case.case.name for case in quick_run(1, on_gpu=True).cases]
    slow = quick_run(1, on_gpu=True, factors={names[-1]: 0.3})
    bound = with_slow_host(slow, names[-1])
    assert len(reference_of(bound).cases) == len(names) - 1

    add_boxes(18, on_gpu=True)
    assert "below normal" in performance_checks(slow)[0].text.lower()
    assert "below normal" not in performance_checks(bound)[0].text.lower()


def test_a_host_bound_product_is_no_peak_of_its_box() -> None:
    run = on_box(1, busy(TRAIN), held_back(GEMM))
    assert isinstance(measured_peak("flop", run.cases[0], run.cases), Missing)
    run = on_box(1, busy(TRAIN), busy(GEMM))
    assert isinstance(measured_peak("flop", run.cases[0], run.cases), float)


def test_a_run_answers_with_a_case_of_its_gpu_and_notes_those_that_are_host_bound() -> None:
    run = on_box(1, held_back(), busy())
    assert main_case(run) == run.cases[1]
    assert HOST_BOUND not in run_headline(run)
    (note,) = [note for note in run_notes(run) if HOST_BOUND in note]
    assert "GPU busy 50 %" in note
    assert note.endswith(LIFTS)

    alone = on_box(1, held_back())
    assert f"Host-bound: the rate is not the GPU's (GPU busy 50 %). {LIFTS}." in run_headline(alone)


def test_every_form_of_a_run_marks_the_host_bound_case_and_no_other() -> None:
    run = on_box(1, held_back(), busy())
    marked = [case["is_host_bound"] for case in run_as_json(run)["cases"]]
    assert marked == [True, False]
    assert [HOST_BOUND in row for row in brief_table(run, speeds_of(run)).rows] == [True, False]
    brief = [text for text, _, _ in metric_rows(run, is_brief=True)]
    assert brief.count("  device time of a step") == 1
    assert [text for text, _, _ in metric_rows(run)].count("  device time of a step") == 2


def test_the_table_names_a_host_bound_row_and_no_sentence_is_about_it() -> None:
    conv = make_case(
        "conv_train", workload_class="training", device_class="gpu", precision="amp", size="base"
    )
    a = on_box(1, busy(), busy(conv), held_back(device_s=1e-3))
    b = on_box(2, busy(step_s=4e-3), busy(conv, 4e-3), held_back(step_s=80e-3, device_s=1e-3))
    comparison = two_sides(a, b)
    names = [row[0] for row in rows_table([comparison], rows_of_sides([comparison], ""), "").rows]
    assert [HOST_BOUND in name for name in names[:3]] == [False, True, False]
    text = headline_of([comparison], "", Evidence([])).text
    assert "GPT training" not in text
    assert all("GPT training" not in turn for turn in turning_points(comparison))
