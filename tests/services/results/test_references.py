"""References: made of runs, kept as files, and what they say of a run."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest
from hand_made import unmeasured
from journals import CPU_MACHINE
from quick_runs import add_boxes, box, candidate, like_boxes, quick_run

from gputui.analysis.peak_tests import BELOW_NORMAL, NO_REFERENCE, NORMAL
from gputui.errors import GputuiError
from gputui.model.absent import Missing
from gputui.model.result import Run
from gputui.services.results.expected import performance_checks
from gputui.services.results.headline import run_headline
from gputui.services.results.reference_making import (
    Candidate,
    add_to_reference,
    problems_of_reference,
    problems_of_run,
)
from gputui.services.results.references import (
    MOST_BYTES,
    Reference,
    known_references,
    read_reference,
    reference_text,
    shipped_directory,
)
from gputui.services.results.run_forms import next_steps
from gputui.store.reading import CaseConditions

SECRETS = ("my label", "a1b2c3d4e5f6", "0.42", "europe-west4", "n2-standard-2", "aaaaaaaaaaaa")


def add(*runs: Run, name: str = "", note: str = "") -> str:
    return add_to_reference([candidate(run) for run in runs], name=name, note=note).reference.name


def reference_named(name: str) -> Reference:
    (found,) = (one for one in known_references() if one.name == name)
    return found


# Making


def test_a_run_makes_a_reference_of_one_box_that_is_named_after_its_model_or_its_gpu() -> None:
    found, of_gpu = (
        reference_named(add(quick_run(1, on_gpu=on_gpu), note="rack 3")) for on_gpu in (False, True)
    )

    assert (found.name, found.boxes, found.profile, found.note) == ("xeon-8481c-1-core", 1, "quick", "rack 3")
    assert len(found.cases) == 12
    assert found.versions["torch"] == ("2.11.0", "2.11.0")
    assert problems_of_reference(found) == []
    assert (of_gpu.name, of_gpu.model.words) == ("h200-sxm", "H200 SXM")
    assert of_gpu.power_limit_w == (700.0, 700.0)
    assert {case.threads for case in of_gpu.cases} == {"host"}


def test_boxes_count_and_runs_of_one_box_do_not_and_some_of_these_are_named() -> None:
    newest = 1_793_000_000_000_000
    one, again = quick_run(1), quick_run(1, factor=2.0, started_utc_us=newest)
    added = add_to_reference([candidate(one), candidate(again), candidate(quick_run(2))])
    assert (added.boxes, added.reference.boxes) == (2, 2)
    assert added.left_out == (f"{candidate(one).text}: its box is counted already",)
    slowest, fastest = added.reference.cases[0].rates.quantiles_per_s
    assert fastest == pytest.approx(2 * slowest, rel=1e-3)

    with pytest.raises(GputuiError, match="its box is counted already"):
        add(quick_run(1, started_utc_us=newest))
    add(quick_run(3))
    assert reference_named("xeon-8481c-1-core").boxes == 3

    many = [candidate(quick_run(4, factor=1 + n / 10, started_utc_us=newest - n)) for n in range(6)]
    named = ", ".join(one.text for one in many[1:4])
    assert add_to_reference(many).left_out == (f"{named} and 2 more: its box is counted already",)


def test_a_reference_file_has_no_ids_labels_paths_or_prices() -> None:
    run = quick_run(0xAAAAAAAAAAAA)
    named = replace(
        run,
        summary=replace(run.summary, label="my label", machine=box(0xAAAAAAAAAAAA, CPU_MACHINE)),
    )
    added = add_to_reference([Candidate("/home/me/a.db@1", named, {})])

    text = added.path.read_text(encoding="utf-8")
    assert [secret for secret in (*SECRETS, "/home/me", run.summary.run_id) if secret in text] == []


def test_what_is_written_is_what_is_read_and_of_many_boxes_small_enough() -> None:
    made = add_boxes(30, on_gpu=True)

    assert made.reference.boxes == 30
    assert read_reference(made.path) == made.reference
    assert reference_text(made.reference) == made.path.read_text(encoding="utf-8")
    assert made.path.stat().st_size < MOST_BYTES / 1.5


def capped(run: Run) -> Run:
    gpus = tuple(replace(gpu, power_limit_w=500.0) for gpu in run.summary.machine.gpus)
    return replace(run, summary=replace(run.summary, machine=replace(run.summary.machine, gpus=gpus)))


def with_summary(run: Run, **changes: object) -> Run:
    return replace(run, summary=replace(run.summary, **changes))  # type: ignore[arg-type]


def lacking_a_case(run: Run) -> Run:
    return replace(run, cases=(unmeasured(run.cases[0].case, "failed", "it died"), *run.cases[1:]))


@pytest.mark.parametrize(
    ("run", "reason"),
    [
        (capped(quick_run(1, on_gpu=True)), "power-capped at 500 of 700 W"),
        (with_summary(quick_run(1), profile="mine"), "'mine' is not a built-in profile"),
        (with_summary(quick_run(1), profile_version=1), "quick is at version 3, this was 1"),
        (with_summary(quick_run(1), status="interrupted"), "the run was interrupted"),
        (quick_run(1, waited_share=0.2), "other processes had the CPUs in gemm mini cpu fp32 1 thread"),
        (lacking_a_case(quick_run(1)), "gemm mini cpu fp32 1 thread was not measured"),
        (quick_run(1, on_gpu=True, factors={"gemm large gpu amp": 2.0}), "above the physical limit"),
    ],
)
def test_a_run_that_shows_less_than_its_box_can_do_or_more_is_no_reference(run: Run, reason: str) -> None:
    assert any(reason in problem for problem in problems_of_run(candidate(run)))
    with pytest.raises(GputuiError, match="no run qualifies"):
        add(run)


def test_a_gpu_that_was_slowed_or_shared_is_no_reference() -> None:
    run = quick_run(1, on_gpu=True)
    none = Missing("not asked")
    seen = CaseConditions(0, 100, none, none, 0.3, none, none, 0.5)

    problems = list(problems_of_run(Candidate("a.db", run, {0: seen})))

    assert problems == [
        "the GPU was slowed by heat or a power brake for 30 % of the time",
        "the GPU was shared with another process for 50 % of the time",
    ]


def test_runs_of_two_models_make_no_reference() -> None:
    with pytest.raises(GputuiError, match=r"cover H200 SXM \(quick\) and Xeon 8481C, 1 core \(quick\)"):
        add(quick_run(1), quick_run(2, on_gpu=True))


# Files


def test_a_file_that_is_none_is_refused_with_the_reason_and_judges_nothing() -> None:
    made = add_boxes(5)
    plain = json.loads(made.path.read_text(encoding="utf-8"))
    for change, reason in (
        ({"schema": 2}, "schema is not 1"),
        ({"last_month": "soon"}, "months are written"),
        ({"cases": [{**plain["cases"][0], "rates": {**plain["cases"][0]["rates"], "boxes": -1}}]}, "boxes"),
        ({"cases": [{**plain["cases"][0], "rates": {}}]}, "missing required field"),
    ):
        made.path.write_text(json.dumps({**plain, **change}), encoding="utf-8")
        with pytest.raises(GputuiError, match=reason):
            read_reference(made.path)
        assert known_references() == ()
    made.path.write_text(" " * MOST_BYTES + "{}", encoding="utf-8")
    with pytest.raises(GputuiError, match="too large for a reference"):
        read_reference(made.path)


def test_of_two_references_of_one_name_the_one_of_more_boxes_counts(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("GPUTUI_REFERENCES", str(tmp_path))
    made = add_boxes(6)
    (tmp_path / made.path.name).write_text(reference_text(made.reference), encoding="utf-8")
    made.path.write_text(reference_text(add_boxes(2, name="other").reference), encoding="utf-8")

    assert reference_named("xeon-8481c-1-core").boxes == 6
    assert {one.name for one in known_references()} == {"xeon-8481c-1-core", "other"}


def test_shipped_references_are_recent_and_not_capped() -> None:
    paths = list(shipped_directory({}).glob("*.json"))
    assert paths
    for path in paths:
        found = read_reference(path)
        assert problems_of_reference(found) == []
        assert path.read_text(encoding="utf-8") == reference_text(found), "written by `gputui gpu --add`"
        assert path.stem.startswith(found.model.slug)


def test_an_old_and_a_capped_reference_are_not_fit_to_be_sent() -> None:
    found = add_boxes(1, on_gpu=True).reference

    assert problems_of_reference(replace(found, profile_version=1)) == [
        "measured with version 1 of quick, now at version 3"
    ]
    assert problems_of_reference(replace(found, power_limit_w=(500.0, 700.0))) == [
        "power-capped: a limit of 500 W, 700 W is the default"
    ]


# Judging


@pytest.mark.parametrize(
    ("boxes", "word"), [(1, NO_REFERENCE), (4, NO_REFERENCE), (5, BELOW_NORMAL), (18, BELOW_NORMAL)]
)
def test_from_five_boxes_on_half_the_rate_is_below_normal(boxes: int, word: str) -> None:
    add_boxes(boxes)
    run = quick_run(1, factor=0.5)

    assert [check.word for check in performance_checks(run)] == [word]
    assert ("BELOW NORMAL" in run_headline(run)) == (word == BELOW_NORMAL)
    commands = [step.command for step in next_steps([run], Path("a.db"))]
    sent = ["gputui doctor", f"gputui share a.db@{run.summary.short_id} -o report.md"]
    assert (commands[:2] == sent) == (word == BELOW_NORMAL)


def test_a_healthy_box_is_normal_and_its_place_among_the_boxes_is_given() -> None:
    add_boxes(18, on_gpu=True)
    run = like_boxes(19, on_gpu=True, seed=2)[-1]

    (check,) = performance_checks(run)

    assert check.word == NORMAL
    assert check.standing is not None
    assert 0.2 < check.standing.share_slower < 0.8
    headline = run_headline(run)
    assert ". This H200 is normal in all 12 cases. Faster than " in headline
    assert " of 18 H200 SXM (reference of 2026-09, 12 cases): " in headline


def test_several_gpus_of_a_run_are_judged_together_so_that_false_alarms_are_those_of_the_run() -> None:
    add_boxes(18, on_gpu=True)
    alone = quick_run(1, on_gpu=True, factors={"gemm large gpu amp": 0.925})
    second = tuple(replace(case, device_index=1) for case in quick_run(1, on_gpu=True).cases)
    limits = []
    for run in (alone, replace(alone, cases=(*alone.cases, *second))):
        first, *_ = performance_checks(run)
        expectation = next(o.expectation for o in first.peak_tests if o.label == "matmul large amp")
        assert expectation is not None
        limits.append(expectation.warn_below)
    assert limits[1] < limits[0]


def test_the_case_that_is_named_is_one_that_is_below_normal() -> None:
    wide, narrow = "decode mini cpu amp all cores", "gemm mini cpu fp32 all cores"
    ends = [0.9, 1.1] * 5
    add(*(quick_run(number, factors={wide: ends[number - 1]}) for number in range(1, 11)))

    run = quick_run(50, factors={wide: 0.88, narrow: 0.7})

    assert "in 1 of 12 cases (reference of 2026-09): matmul fp32 " in run_headline(run)


def test_a_power_cap_is_named_where_it_makes_a_box_below_normal() -> None:
    add_boxes(18, on_gpu=True)
    run = capped(quick_run(1, on_gpu=True, factors={"gemm large gpu amp": 0.8}))

    (check,) = performance_checks(run)

    assert check.word == BELOW_NORMAL
    assert [one.word for one in check.peak_tests].count(BELOW_NORMAL) == 1
    assert run_headline(run).startswith(
        "BELOW NORMAL: slower than 18 H200 SXM in 1 of 12 cases (reference of 2026-09): "
        "matmul large amp 624 of 757–812 TFLOP/s, power-capped at 500 of 700 W. "
    )


def test_where_five_boxes_judge_the_published_range_does_not() -> None:
    factor = 0.45  # 351 TFLOP/s: below half of the public figures, and as these boxes are
    runs = [quick_run(n, on_gpu=True, factors={"gemm large gpu amp": factor + n / 1000}) for n in range(6)]
    run = quick_run(99, on_gpu=True, factors={"gemm large gpu amp": factor})

    add(*runs[:4])
    (check,) = performance_checks(run)
    assert check.word == BELOW_NORMAL
    assert "of the lowest of 2 public figures" in check.text
    add(*runs[4:])
    assert [check.word for check in performance_checks(replace(run))] == [NORMAL]


def test_another_torch_than_that_of_the_boxes_is_not_judged_by_them() -> None:
    add_boxes(18)
    slow = quick_run(1, factor=0.5)
    other = with_summary(slow, runtime=replace(slow.summary.runtime, torch_version="2.12.1"))

    (check,) = performance_checks(other)

    assert check.word == NO_REFERENCE
    assert "measured with torch 2.12.1, the reference with 2.11.0" in check.text
    (disturbed,) = performance_checks(quick_run(1, factor=0.5, waited_share=0.3))
    assert (disturbed.standing, disturbed.word) == (None, NO_REFERENCE)


def test_another_model_with_the_same_name_and_a_slice_of_a_gpu_are_of_another_model() -> None:
    add_boxes(18)
    cpu = replace(CPU_MACHINE.cpu, features=("avx2",))
    (check,) = performance_checks(quick_run(1, machine=replace(box(1), cpu=cpu)))
    assert check.standing is None

    add_boxes(18, on_gpu=True)
    run = quick_run(1, on_gpu=True)
    assert [check.standing is None for check in performance_checks(run)] == [False]
    cases = tuple(replace(case, device_name="NVIDIA H200 MIG 1g.18gb") for case in run.cases)
    assert all(check.standing is None for check in performance_checks(replace(run, cases=cases)))
