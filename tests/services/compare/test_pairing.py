from __future__ import annotations

import math
import re
from collections.abc import Sequence
from dataclasses import replace

import pytest
from hand_made import make_case, make_run, measured, steady, three, unmeasured
from hypothesis import given, settings
from hypothesis import strategies as st
from journals import CPU_MACHINE, GPU_MACHINE, RUNTIME, STARTED_US

from gputui.analysis.cost import Cost
from gputui.analysis.spread import RUN_SD, effect_of_waiting
from gputui.analysis.verdict import GeometricMean, RatioEstimate
from gputui.errors import EXIT_USAGE, GputuiError
from gputui.model.absent import Missing
from gputui.model.journal import Figure, Price
from gputui.model.plan import Case
from gputui.model.result import CaseResult, Run
from gputui.services.compare.formats import comparison_as_json
from gputui.services.compare.pairing import (
    Comparison,
    GroupMean,
    Row,
    compare_sides,
    side_of_runs,
    sides_by,
    telling_dimension,
)
from gputui.services.compare.row_text import (
    both_text,
    boxes_text,
    choice_words,
    side_parts,
)
from gputui.services.compare.rows_table import rows_of_sides, rows_table
from gputui.services.compare.tables import Naming, disturbances, remarks, row_table
from gputui.services.results.labels import has_failed, run_notes
from gputui.services.results.run_forms import run_as_json

LATER_US = STARTED_US + 3_600_000_000
GEMM = make_case()
CONV = make_case("conv_train", workload_class="training")
GPU_GEMM = make_case(device_class="gpu", precision="amp")


def compared(*a: CaseResult, b: tuple[CaseResult, ...]) -> Comparison:
    return compare_sides(side_of_runs("a.db", [make_run(*a)]), side_of_runs("b.db", [make_run(*b)]))


def compared_by(dimension: str, *runs: Run) -> Comparison:
    first, second = sides_by(dimension, runs)
    return compare_sides(first, second, ignore=dimension)


def only_row(comparison: Comparison) -> Row:
    (row,) = comparison.rows
    return row


def ratio_of(row: Row) -> RatioEstimate:
    assert isinstance(row.estimate, RatioEstimate), row.estimate
    return row.estimate


def gpu_price(gpu_count: float) -> Price:
    return Price(8.0, gpu_count, "stated", "", "", "", "")


# Machines

ANOTHER = replace(CPU_MACHINE, machine_id="c1c2c3c4c5c6")


def test_a_verdict_of_two_machines_says_whether_it_would_hold_of_others_of_their_names() -> None:
    b = measured(GEMM, *three(0.1))
    for a_s, machine, holds in (
        (0.15, ANOTHER, False),
        (0.25, ANOTHER, True),
        (0.2, CPU_MACHINE, Missing("it is one machine")),
        (0.1, ANOTHER, Missing("nothing is faster or slower")),
    ):
        sides = make_run(measured(GEMM, *three(a_s))), make_run(b, machine=machine)
        comparison = compare_sides(
            *(side_of_runs(name, [run]) for name, run in zip("ab", sides, strict=True))
        )

        row = only_row(comparison)
        assert row.holds_between_models == holds
        lines = list(remarks(comparison, Naming(comparison, "")))
        assert (f"{boxes_text(0.277)}: matmul" in lines) is (holds is False)
        if isinstance(holds, bool):
            assert row.verdict.word == "faster"
            assert row.models_band == pytest.approx(2 * math.sqrt(2) * 0.98 * 0.10, rel=0.01)  # of sd 10 %
    assert "may differ by 28 %" in boxes_text(0.277)


# Which rows pair


def test_rows_pair_on_work_and_variant_and_the_ratio_is_of_b_against_a() -> None:
    one_thread = make_case(threads="1")

    comparison = compared(
        measured(GEMM, steady(0.1)),
        measured(one_thread, steady(0.4)),
        b=(measured(one_thread, steady(0.1)), measured(GEMM, steady(0.2))),
    )

    ratios = {row.case.name: ratio_of(row).ratio for row in comparison.rows}
    assert ratios == {GEMM.name: pytest.approx(0.5), one_thread.name: pytest.approx(4.0)}


@pytest.mark.parametrize(
    "other",
    [
        make_case(version=2),
        make_case(size="base"),
        make_case(precision="amp"),
        make_case(threads="1"),
        make_case(device_class="gpu"),
        replace(GEMM, variant=replace(GEMM.variant, mode="compile")),
    ],
    ids=["version", "size", "precision", "threads", "device", "mode"],
)
def test_what_differs_in_work_or_variant_is_two_rows_that_are_not_comparable(other: Case) -> None:
    comparison = compared(measured(GEMM, steady(0.1)), b=(measured(other, steady(0.1)),))

    assert {(row.case, row.verdict.word, row.verdict.reason) for row in comparison.rows} == {
        (GEMM, "not comparable", "b does not have this case"),
        (other, "not comparable", "a does not have this case"),
    }
    assert comparison.one_sided == ()


@pytest.mark.parametrize(
    ("outcome", "reason", "expected"),
    [
        ("oom", "", "b out of memory"),
        ("unsupported", "no kernel for sm_75", "b unsupported: no kernel for sm_75"),
    ],
)
def test_a_case_that_one_side_could_not_run_says_which_side_and_why(
    outcome: str, reason: str, expected: str
) -> None:
    row = only_row(compared(measured(GEMM, steady(0.1)), b=(unmeasured(GEMM, outcome, reason),)))

    assert (row.verdict.word, row.verdict.reason) == ("not comparable", expected)
    assert isinstance(row.estimate, Missing)
    assert row.b.result is not None
    assert row.b.result.outcome == outcome


def test_what_neither_side_measured_is_named_by_its_reason_and_is_no_row() -> None:
    others = [make_case(w, device_class="gpu") for w in ("gemm", "membw")]
    comparison = compared(
        measured(GEMM, steady(0.1)),
        *(unmeasured(case, "skipped", "no GPU") for case in others),
        b=(measured(GEMM, steady(0.1)), *(unmeasured(case, "skipped", "no driver") for case in others)),
    )

    assert [row.case for row in comparison.rows] == [GEMM]
    assert comparison.unmeasured == (("no GPU", ("matmul mini gpu fp32", "memory copy mini gpu fp32")),)


@pytest.mark.parametrize(
    ("changed", "a", "b", "note"),
    [
        ("layout", ("nhwc", "nhwc"), ("nchw", "nchw"), "layout nhwc on a, nchw on b"),
        ("layout", ("nhwc", "nhwc"), ("nhwc", "nchw"), "layout nhwc on a, nchw and nhwc on b"),
        ("layout", ("nhwc", "nhwc"), ("nhwc", "nhwc"), ""),
        ("layout", ("", ""), ("nhwc", "nhwc"), ""),
        ("is_fork", (False, False), (True, True), "workers started anew on a, forked on b"),
        ("is_fork", (False, True), (False, False), "workers forked and started anew on a, started anew on b"),
        ("is_fork", (True, True), (True, True), ""),
        ("precision_used", ("amp-bf16",) * 2, ("amp-fp16",) * 2, "amp-bf16 on a, amp-fp16 on b"),
        ("precision_used", ("amp-bf16",) * 2, ("amp-bf16",) * 2, ""),
    ],
)
def test_a_row_says_in_what_the_launches_of_its_sides_differ(
    changed: str, a: tuple[object, object], b: tuple[object, object], note: str
) -> None:
    def of(values: tuple[object, object]) -> CaseResult:
        case = measured(GPU_GEMM, steady(0.1), steady(0.1))
        launches = zip(case.measurements, values, strict=True)
        return replace(
            case,
            measurements=tuple(
                replace(one, **{changed: value})  # type: ignore[arg-type]
                for one, value in launches
            ),
        )

    row = only_row(compared(of(a), b=(of(b),)))
    assert row.note == note
    assert ratio_of(row).ratio == pytest.approx(1.0)


# The text of a row


def test_launches_narrow_a_row_and_what_runs_differ_by_remains() -> None:
    rows = [
        ratio_of(only_row(compared(measured(GEMM, *three(0.1)[:n]), b=(measured(GEMM, *three(0.11)[:n]),))))
        for n in (1, 2, 3)
    ]
    assert [(row.launches_a, row.launches_b) for row in rows] == [(1, 1), (2, 2), (3, 3)]
    assert [row.ratio for row in rows] == pytest.approx([1 / 1.1] * 3, rel=2e-3)
    halves = [row.half_width for row in rows]
    assert halves == sorted(halves, reverse=True)
    assert halves[-1] > 1.96 * math.sqrt(2) * RUN_SD["cpu"]


def test_a_run_beside_itself_is_not_called_different() -> None:
    row = only_row(compared(measured(GPU_GEMM, steady(0.1)), b=(measured(GPU_GEMM, steady(0.1)),)))

    assert row.verdict.word == "inconclusive"
    assert ratio_of(row).ratio == pytest.approx(1.0)


def test_of_a_side_whose_cpus_others_held_the_time_without_the_waiting_is_compared() -> None:
    quiet, crowded = measured(CONV, steady(0.1)), measured(CONV, steady(0.2), waited_share=0.4)
    of_b = 0.5 / 0.6 ** effect_of_waiting("training", threads=2).power
    for a, b, letter, ratio in ((quiet, crowded, "b", of_b), (crowded, quiet, "a", 1 / of_b)):
        row = only_row(compared(a, b=(b,)))
        assert ratio_of(row).ratio == pytest.approx(ratio, rel=1e-3)
        assert (row.verdict.word, row.verdict.reason) == (
            "inconclusive",
            f"CPU contention from other processes for 40 % of {letter}'s time: run again when it is idle",
        )


@pytest.mark.parametrize(("case", "share"), [(GEMM, None), (GEMM, 0.0), (GEMM, 0.04), (GPU_GEMM, 0.4)])
def test_a_difference_on_a_quiet_or_silent_system_or_on_a_gpu_stands(case: Case, share: float | None) -> None:
    slower = measured(case, steady(0.3), waited_share=share)

    assert only_row(compared(measured(case, steady(0.1)), b=(slower,))).verdict.word == "slower"


# Group means


def test_each_class_has_its_mean_over_common_rows_and_none_is_over_all() -> None:
    ceilings = [make_case(), make_case(threads="1"), make_case("membw")]
    decode = make_case("decode", workload_class="inference")
    comparison = compared(
        *(measured(case, steady(0.1)) for case in (*ceilings, CONV, decode)),
        b=(
            measured(ceilings[0], steady(0.05)),
            measured(ceilings[1], steady(0.8)),
            unmeasured(ceilings[2], "oom"),
            measured(CONV, steady(0.025)),
        ),
    )

    groups = {group.group: (group.common, group.rows) for group in comparison.groups}
    assert groups == {"ceilings": (2, 3), "training": (1, 1), "inference": (0, 1)}
    means = {group.group: group.mean for group in comparison.groups}
    assert means.pop("inference") == Missing("no row in common")
    ratios = {name: mean.ratio for name, mean in means.items() if isinstance(mean, GeometricMean)}
    assert ratios == pytest.approx({"ceilings": 0.5, "training": 4.0})  # 0.5 is the mean of 2 and 1/8


def test_rows_of_cpus_and_of_gpus_have_means_of_their_own_and_these_say_of_what() -> None:
    cases = [make_case(size=f"mini-{place}", device_class=of) for of in ("cpu", "gpu") for place in range(2)]
    times_s = (0.2, 0.2, 0.05, 0.05)

    comparison = compared(
        *(measured(case, steady(0.1)) for case in cases),
        b=tuple(measured(case, steady(s)) for case, s in zip(cases, times_s, strict=True)),
    )

    means = {g.device_class: g.mean.ratio for g in comparison.groups if isinstance(g.mean, GeometricMean)}
    assert means == pytest.approx({"gpu": 2.0, "cpu": 0.5})
    table = rows_table([comparison], rows_of_sides([comparison], "", one_sided=False), "")
    names = [row[0] for row in table.rows]
    assert names[-2:] == ["average of 2 GPU peak tests", "average of 2 CPU peak tests"]


def mean_of(comparison: Comparison) -> GroupMean:
    (group,) = comparison.groups
    return group


def test_a_mean_is_judged_by_its_own_interval_as_a_row_is() -> None:
    cases = [make_case(size=f"mini-{place}", device_class="gpu") for place in range(4)]

    def against(*factors: float) -> GroupMean:
        b = tuple(measured(c, *three(0.1 * f)) for c, f in zip(cases, factors, strict=True))
        return mean_of(compared(*(measured(c, *three(0.1)) for c in cases), b=b))

    assert against(2.0, 2.0, 2.0, 2.0).rate.verdict.word == "slower"
    assert against(0.5, 0.5, 0.5, 0.5).rate.verdict.word == "faster"
    assert against(1.0, 1.0, 1.0, 1.0).rate.verdict.word == "inconclusive"
    assert against(2.0, 2.0, 0.5, 0.5).rate.verdict.word == "inconclusive"


def test_a_mean_of_rows_in_doubt_is_none_and_says_why() -> None:
    case = make_case()
    comparison = compared(measured(case, steady(0.1), waited_share=0.7), b=(measured(case, steady(0.02)),))

    group = mean_of(comparison)
    assert only_row(comparison).verdict.word == "inconclusive"
    assert (group.rate.word, group.common, group.rows) == ("not comparable", 0, 1)
    assert group.mean == Missing("each row is in doubt")


def test_a_mean_of_undecided_rows_has_no_figure_in_any_form() -> None:
    cases = [make_case(), make_case("membw")]
    comparison = compared(
        *(measured(case, steady(0.1), waited_share=0.6) for case in cases),
        b=(measured(cases[0], steady(0.03)), measured(cases[1], steady(0.026))),
    )

    group = mean_of(comparison)
    assert [row.verdict.word for row in comparison.rows] == ["inconclusive"] * 2
    assert group.rate.word == "inconclusive"
    assert isinstance(group.mean, GeometricMean)
    naming = Naming(comparison, "")
    cells = row_table(comparison, naming).rows[-1]
    assert re.search(r"^[-+\d.]+ to [-+\d.]+( %|x)$", next(cell for cell in cells[1:] if cell)), cells
    assert "can't tell" in cells
    assert both_text(group.rate) == "can't tell"
    plain = comparison_as_json(comparison)["groups"][0]
    assert (plain["verdict"], plain["reason"]) == ("inconclusive", "the interval is too wide")


def test_contention_of_one_side_widens_its_mean_as_much_as_its_rows() -> None:
    """Its effect on the rows is the same for all of them: averaging does not reduce it."""
    cases = [make_case(size=f"mini-{place}") for place in range(9)]
    quiet = [measured(case, *three(0.1)) for case in cases]
    held = tuple(measured(case, *three(0.1), waited_share=0.4) for case in cases)

    comparison = compared(*quiet, b=held)
    mean, row = mean_of(comparison).mean, ratio_of(comparison.rows[0])

    assert isinstance(mean, GeometricMean)
    assert mean.high > 1 / 0.6
    assert (mean.low, mean.high) == pytest.approx((row.low, row.high), rel=0.03)


# Differences


def differs(a: Run, b: Run) -> tuple[tuple[str, str, str], ...]:
    return compare_sides(side_of_runs("a", [a]), side_of_runs("b", [b])).differs


def test_variables_are_named_where_they_differ_and_both_sides_say_theirs() -> None:
    none, blocking, unknown = (
        make_run(measured(GEMM, steady(0.1)), runtime=replace(RUNTIME, variables=variables))
        for variables in ("", "CUDA_LAUNCH_BLOCKING=1 (cleared)", Missing("not recorded"))
    )

    assert differs(none, blocking) == (("variables", "none set", "CUDA_LAUNCH_BLOCKING=1 (cleared)"),)
    assert differs(blocking, blocking) == differs(unknown, blocking) == ()


def test_what_is_recorded_and_differs_is_named_and_nothing_else() -> None:
    other_machine = replace(
        GPU_MACHINE,
        cpu=replace(GPU_MACHINE.cpu, usable_cores=24),
        instance_type="p5e.48xlarge",
    )
    other_runtime = replace(RUNTIME, torch_version="2.13.0+cu130", torch_cuda="13.0")
    a = make_run(measured(GEMM, steady(0.1)))
    b = make_run(measured(GEMM, steady(0.1)), machine=other_machine, runtime=other_runtime)

    assert differs(a, b) == (
        ("machine", CPU_MACHINE.machine_id, GPU_MACHINE.machine_id),
        ("instance", "—", "p5e.48xlarge"),
        ("GPU", "none", "2x NVIDIA H200"),
        ("driver", "—", "570.86.15"),
        ("cores", "1", "24"),
        ("torch", "2.11.0+cpu", "2.13.0+cu130"),
        ("CUDA", "—", "13.0"),
    )


def test_a_power_limit_is_a_difference_where_both_are_known() -> None:
    capped = replace(GPU_MACHINE, gpus=tuple(replace(gpu, power_limit_w=500.0) for gpu in GPU_MACHINE.gpus))
    silent = replace(capped, gpus=(capped.gpus[0], replace(capped.gpus[1], power_limit_w=Missing("refused"))))
    a, b, c = (
        make_run(measured(GEMM, steady(0.1)), machine=machine) for machine in (GPU_MACHINE, capped, silent)
    )
    assert differs(a, b) == (("power limit", "700 W", "500 W"),)
    assert differs(a, c) == ()


# Sides


def test_of_each_case_the_latest_run_that_measured_it_wins() -> None:
    old = make_run(measured(GEMM, steady(0.1)), measured(CONV, steady(0.1)))
    new = make_run(
        measured(GEMM, steady(0.2)), unmeasured(CONV, "skipped", "no time"), started_utc_us=LATER_US
    )

    side = side_of_runs("a.db", [new, old])

    chosen = {case.result.case: case.run.run_id for case in side.cases}
    assert chosen == {GEMM: new.summary.run_id, CONV: old.summary.run_id}
    assert side.run == new.summary
    assert side.chosen_of == 2
    (message,) = choice_words(compare_sides(side, side_of_runs("b.db", [new])), "")
    assert message == (
        f"a: of each case the newest of 2 runs ({new.summary.short_id}, {old.summary.short_id}):"
        " a.db@RUN takes another, --pool all"
    )


def test_a_file_of_two_machines_or_runtimes_is_refused_with_the_list_and_by_compares_them() -> None:
    here = make_run(measured(GEMM, steady(0.1)))
    there = make_run(measured(GEMM, steady(0.1)), machine=GPU_MACHINE)
    newer = make_run(measured(GEMM, steady(0.05)), runtime=replace(RUNTIME, torch_version="2.13.0+cpu"))

    with pytest.raises(GputuiError) as caught:
        side_of_runs("both.db", [here, there])
    assert caught.value.exit_code == EXIT_USAGE
    for run in (here, there):
        assert run.summary.short_id in caught.value.message
        assert run.summary.machine.machine_id in caught.value.message
    assert "F@RUN" in caught.value.hint
    assert "--by machine" in caught.value.hint
    with pytest.raises(GputuiError, match="2 machines or runtimes"):
        side_of_runs("both.db", [here, newer])
    comparison = compared_by("runtime", here, newer)
    assert ratio_of(only_row(comparison)).ratio == pytest.approx(2.0)
    assert [what for what, _, _ in comparison.differs] == ["torch"]


@pytest.mark.parametrize(
    ("dimension", "cases", "order"),
    [
        ("device", [make_case(device_class="gpu"), make_case()], ["cpu", "gpu"]),
        ("threads", [make_case(threads="all"), make_case(threads="1"), GPU_GEMM], ["1", "all"]),
        (
            "precision",
            [make_case(precision=p, device_class="gpu") for p in ("amp", "tf32", "fp32")],
            ["fp32", "tf32", "amp"],
        ),
    ],
)
def test_sides_stand_in_a_plain_order_without_values_that_were_not_chosen_or_measured(
    dimension: str, cases: list[Case], order: list[str]
) -> None:
    unable = unmeasured(make_case(precision="amp-fp16"), "unsupported", "no such mode")
    run = make_run(*(measured(case, steady(0.1)) for case in cases), unable)

    assert [side.name for side in sides_by(dimension, [run])] == order
    runs = [
        make_run(measured(GEMM, steady(0.1)), machine=replace(CPU_MACHINE, machine_id=name * 12))
        for name in ("f", "a")
    ]
    assert [side.name for side in sides_by("machine", runs)] == ["machine " + "f" * 12, "machine " + "a" * 12]


@pytest.mark.parametrize(
    ("case", "expected"),
    [
        (make_case(threads="1"), "--by threads: two values are needed, and the measured cases have 1"),
        (GPU_GEMM, "the measured cases have none"),
    ],
)
def test_one_value_alone_or_none_is_refused_and_named(case: Case, expected: str) -> None:
    with pytest.raises(GputuiError, match=expected) as caught:
        sides_by("threads", [make_run(measured(case, steady(0.1)))])
    assert caught.value.exit_code == EXIT_USAGE


def test_a_side_whose_cases_have_unequal_launches_says_so() -> None:
    run = make_run(
        measured(make_case(), *[steady(0.1)] * 3),
        measured(make_case(precision="amp"), steady(0.1)),
        unmeasured(GPU_GEMM, "skipped", "no GPU"),
    )

    assert "1 to 3 launches" in side_parts(side_of_runs("a.db", [run]), "")


@pytest.mark.parametrize(("launches", "expected"), [(1, "--launches 3"), (3, "raise --budget")])
def test_a_user_who_asked_for_three_launches_without_enough_time_is_told_to_give_more(
    launches: int, expected: str
) -> None:
    result = measured(make_case(), *[steady(0.1)] * launches)
    ended = tuple(replace(m, outcome="skipped", blocks=()) for m in result.measurements[1:])
    run = make_run(replace(result, measurements=(result.measurements[0], *ended)))

    (note,) = run_notes(run)
    assert expected in note


def _with_a_killed_launch(case: Case) -> CaseResult:
    """Three launches of a case, the second of which the system killed."""
    result = measured(case, *[steady(0.1)] * 3)
    first, second, third = result.measurements
    killed = replace(second, outcome="failed", reason="the worker died of SIGKILL", blocks=())
    return replace(result, measurements=(first, killed, third))


def test_a_launch_that_failed_is_named_with_its_reason_and_no_time_is_blamed() -> None:
    lost = _with_a_killed_launch(make_case())
    run = make_run(lost)
    run = replace(run, summary=replace(run.summary, replicates=3))
    name = "matmul mini cpu fp32 all cores"

    failed, assumed = run_notes(run, is_brief=True)
    assert failed == f"1 of 3 launches of {name} failed: the worker died of SIGKILL"
    assert assumed == "measured in 2 launches: the spread is assumed; a launch failed: run again"
    assert has_failed(run)
    assert run_as_json(run)["notes"] == [failed, assumed]

    whole = make_run(measured(make_case(), *[steady(0.1)] * 3))
    comparison = compare_sides(side_of_runs("a.db", [whole]), side_of_runs("b.db", [run]))
    (words,) = disturbances(comparison, Naming(comparison, ""))
    assert words == "! b: 1 of 3 launches of matmul failed: the worker died of SIGKILL"


def test_a_lost_launch_is_named_however_the_case_ended_unless_another_made_up_for_it() -> None:
    lost = _with_a_killed_launch(make_case())
    first, killed, third = lost.measurements
    oom = replace(killed, outcome="oom")
    full = replace(lost, measurements=(first, oom, replace(oom, launch_id=7), third))
    slow = [replace(one, outcome="skipped", reason="too slow", blocks=()) for one in (first, third)]
    never = make_run(replace(lost, outcome="skipped", measurements=(slow[0], killed, slow[1])))
    assert run_notes(never) == [
        "1 of 3 launches of matmul mini cpu fp32 all cores failed: the worker died of SIGKILL"
    ]
    assert has_failed(never)
    again = replace(lost, measurements=(first, killed, replace(first, replicate=killed.replicate), third))
    assert (
        run_notes(make_run(full))[0] == "1 of 3 launches of matmul mini cpu fp32 all cores ran out of memory"
    )
    assert not has_failed(make_run(full))
    assert run_notes(make_run(again)) == []
    assert not has_failed(make_run(again))


def test_a_case_that_never_had_time_is_named_with_what_gives_it_some() -> None:
    result = measured(make_case(), steady(0.1))
    skipped = replace(
        result.measurements[0],
        outcome="skipped",
        reason="the first step took 2 s, more than its budget, 1 s",
        blocks=(),
    )
    starved = replace(result, outcome="skipped", measurements=(skipped,))

    (note,) = run_notes(make_run(starved))
    assert note.startswith("too little time for matmul mini cpu fp32")
    assert "--budget" in note
    assert run_notes(make_run(unmeasured(GPU_GEMM, "skipped", "no GPU"))) == []


def test_by_device_a_gpu_stands_beside_all_cores_of_the_cpu() -> None:
    run = make_run(
        measured(make_case(precision="amp"), steady(0.1)),
        measured(make_case(precision="amp", threads="1"), steady(0.4)),
        measured(GPU_GEMM, steady(0.001)),
    )

    comparison = compared_by("device", run)

    assert ratio_of(only_row(comparison)).ratio == pytest.approx(100, rel=1e-3)
    assert [row.case.variant.threads for row in comparison.one_sided] == ["1"]
    assert [(group.common, group.rows) for group in comparison.groups] == [(1, 1)]


@pytest.mark.parametrize(
    ("others", "dimension"),
    [
        ([make_case(device_class="gpu"), make_case(precision="amp"), make_case(threads="1")], "device"),
        ([make_case(precision="amp"), make_case(threads="1")], "precision"),
        ([make_case(threads="1")], "threads"),
        ([make_case("membw", device_class="gpu"), make_case(threads="1")], "threads"),
    ],
)
def test_one_file_is_compared_by_the_first_dimension_in_which_measured_cases_differ(
    others: list[Case], dimension: str
) -> None:
    cases = [measured(case, steady(0.1)) for case in (GEMM, *others)]
    listed = unmeasured(make_case("membw", device_class="gpu"), "skipped", "no GPU")

    assert telling_dimension([make_run(*cases, listed)]) == dimension
    with pytest.raises(GputuiError) as caught:
        telling_dimension([make_run(cases[0], listed)])
    assert "second file" in caught.value.hint


# Costs


def test_a_gpu_of_four_carries_its_share_of_the_price_and_a_cpu_row_has_none() -> None:
    run = make_run(
        measured(GPU_GEMM, steady(0.1)), measured(GEMM, steady(0.1)), machine=GPU_MACHINE, price=gpu_price(4)
    )
    side = side_of_runs("a.db", [run])

    rows = {row.case.variant.device_class: row.a.cost for row in compare_sides(side, side).rows}

    on_gpu = rows["gpu"]
    assert isinstance(on_gpu, Cost)
    assert on_gpu.is_share
    assert on_gpu.share == 0.25
    # 8 $/h, of it a quarter; a million TFLOP at 2 x 1024^3 FLOP in 0.1 s
    assert on_gpu.usd_per_million == pytest.approx(8 / 4 / 3600 * 1e18 / (2 * 1024**3 / 0.1), rel=1e-3)
    assert isinstance(rows["cpu"], Missing)
    assert "4 GPUs" in rows["cpu"].reason


@pytest.mark.parametrize(
    ("workload", "ranks", "gpus", "share"),
    [
        ("ddp", 4, 8, 0.5),
        ("ddp", -4, 8, 0.125),
        ("ddp", "many", 8, 0.125),
        ("step:lora", 16, 8, 0.125),
        ("gemm", 1, 1, 1.0),
    ],
)
def test_only_ddp_says_by_its_ranks_how_many_gpus_of_a_box_it_used(
    workload: str, ranks: int | str, gpus: int, share: float
) -> None:
    case = make_case(workload, device_class="gpu", workload_class="training")
    case = replace(case, work=replace(case.work, parameters=(("ranks", ranks),)))
    run = make_run(measured(case, steady(0.1)), machine=GPU_MACHINE, price=gpu_price(gpus))

    row = only_row(compare_sides(side_of_runs("a", [run]), side_of_runs("b", [run])))

    assert isinstance(row.a.cost, Cost)
    assert (row.a.cost.share, row.a.cost.is_share) == (share, gpus > 1)


def test_pairs_that_disagree_with_the_speeds_beside_them_decide_nothing() -> None:
    eager = make_case("gpt_train", workload_class="training")
    compiled = replace(eager, variant=replace(eager.variant, mode="compile"))
    taken = Figure(0, 0, "compile_s", "compiling", "s", "less", "median", 20.0, 1)

    def alternating(case: Case, step_s: Sequence[float], first_ns: int) -> CaseResult:
        """Blocks that end before those of the other begin; a last stretch has no neighbour."""
        result = measured(case, step_s)
        (launch,) = result.measurements
        blocks = tuple(
            replace(block, start_ns=place * 10**11 + first_ns) for place, block in enumerate(launch.blocks)
        )
        return replace(result, measurements=(replace(launch, blocks=blocks, figures=(taken,)),))

    run = make_run(
        alternating(eager, steady(1.0, 8), 0),
        alternating(compiled, (*steady(0.5, 8), *steady(2.0, 40)), 5 * 10**10),
    )

    row = only_row(compared_by("mode", run))

    estimate = ratio_of(row)
    assert estimate.paired
    assert estimate.low < 1 < estimate.high
    assert row.verdict.word == "inconclusive"


# Edges


def test_what_is_counted_in_another_unit_or_was_cut_short_in_each_launch_is_not_comparable() -> None:
    whole, cut = measured(GEMM, steady(0.1)), measured(GEMM, steady(0.1, 4))
    images = measured(replace(GEMM, unit="img"), steady(0.1))

    row = only_row(compared(whole, b=(images,)))
    assert (row.verdict.word, row.verdict.reason) == ("not comparable", "a counts flop, b img")
    row = only_row(compared(whole, b=(cut,)))
    assert row.verdict.word == "not comparable"
    assert row.b.speed == Missing("every launch was cut short: none has 5 blocks")
    row = only_row(compared(measured(GEMM, steady(0.1), steady(9.0, blocks=4)), b=(whole,)))
    assert ratio_of(row).launches_a == 1
    assert ratio_of(row).ratio == pytest.approx(1.0)


def test_pooled_launches_are_paired_within_their_run_though_one_of_them_failed() -> None:
    amp = make_case(precision="amp")
    whole = [measured(GEMM, steady(0.2), steady(0.4)), measured(amp, steady(0.1), steady(0.2))]
    first, second = whole[0].measurements
    failed = replace(whole[0], measurements=(replace(first, outcome="failed", blocks=()), second))
    runs = [make_run(failed, whole[1]), make_run(*whole, started_utc_us=LATER_US)]

    sides = sides_by("precision", runs, pool=True)

    wall_ns = [
        {m.launch_id: m.blocks[0].wall_ns for m in side.cases[0].result.measurements} for side in sides
    ]
    assert [len(launches) for launches in wall_ns] == [3, 4]
    assert all(ns == 2 * wall_ns[1][launch] for launch, ns in wall_ns[0].items())


# Swapped sides

MIRRORED = {"faster": "slower", "slower": "faster"}
step_times = st.lists(st.floats(0.05, 0.2), min_size=4, max_size=12)
results = st.lists(step_times, min_size=1, max_size=4)
files = st.tuples(
    results, results, results, st.sampled_from((0.0, 0.03, 0.2)), st.sampled_from(("Xeon", "EPYC"))
)


def side_cases(
    drawn: tuple[list[list[float]], list[list[float]], list[list[float]], float, str],
) -> tuple[CaseResult, ...]:
    """A product on the CPU, one on a GPU, and a training; a launch of 4 blocks does not count."""
    gemm, gpu, conv, waited, name = drawn
    return (
        measured(GEMM, *gemm, waited_share=waited, device_name=name),
        measured(GPU_GEMM, *gpu, precision_used="amp-bf16"),
        measured(CONV, *conv, waited_share=waited, device_name=name),
    )


@settings(max_examples=20, deadline=None, derandomize=True)
@given(files, files)
def test_exchanging_the_files_mirrors_the_whole_comparison(
    a: tuple[list[list[float]], list[list[float]], list[list[float]], float, str],
    b: tuple[list[list[float]], list[list[float]], list[list[float]], float, str],
) -> None:
    there = compared(*side_cases(a), b=side_cases(b))
    back = compared(*side_cases(b), b=side_cases(a))

    assert [row.case for row in there.rows] == [row.case for row in back.rows]
    for row, other in zip(there.rows, back.rows, strict=True):
        assert other.verdict.word == MIRRORED.get(row.verdict.word, row.verdict.word)
        assert (row.a.speed, row.b.speed) == (other.b.speed, other.a.speed)
        assert {(f.side, f.word, f.share) for f in row.flags} == {
            ("ab"["ba".index(f.side)], f.word, f.share) for f in other.flags
        }
        if isinstance(row.estimate, RatioEstimate):
            found = ratio_of(other)
            assert (1 / found.ratio, 1 / found.high, 1 / found.low) == pytest.approx(
                (row.estimate.ratio, row.estimate.low, row.estimate.high), rel=1e-9
            )
            assert found.resolvable == pytest.approx(row.estimate.resolvable, rel=1e-9)
    for group, mirror in zip(there.groups, back.groups, strict=True):
        assert (group.group, group.common, group.rows) == (mirror.group, mirror.common, mirror.rows)
        if isinstance(group.mean, GeometricMean):
            assert isinstance(mirror.mean, GeometricMean)
            assert mirror.mean.ratio == pytest.approx(1 / group.mean.ratio)
    assert there.unmeasured == back.unmeasured


def test_pooled_runs_of_several_gpus_hold_the_launches_of_the_first() -> None:
    case = make_case(device_class="gpu")
    on_two = [
        replace(measured(case, steady(0.1), steady(0.1)), case_id=index, device_index=index)
        for index in range(2)
    ]
    (pooled,) = side_of_runs("a.db", [make_run(*on_two), make_run(*on_two)], pool=True).cases
    assert (pooled.result.device_index, len(pooled.result.measurements)) == (0, 4)
