"""What to type after a run."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
from hand_made import make_run, measured, recording, steady, unmeasured
from journals import GPU_MACHINE, STARTED_US, make_case
from test_expected import copy, gemm

from gputui.model.journal import without_result
from gputui.model.result import CaseResult, Run
from gputui.services.profiles.loader import Profile, ProfileCase
from gputui.services.results.next_steps import NextStep, next_steps

FILE = Path("a.db")
GPT = make_case("gpt_train")
RUN = make_run(measured(GPT, steady(0.1)))
ID = RUN.summary.short_id


def with_budget(run: Run, budget_s: float) -> Run:
    return replace(run, summary=replace(run.summary, budget_s=budget_s, replicates=8))


def test_after_the_first_run_of_a_box_comes_why_it_is_as_fast_and_another_box() -> None:
    unread = without_result(0, 0, "no time was left")
    read = replace(unread, is_valid=True)
    commands = [one.command for one in next_steps([RUN], FILE, [RUN.summary], passes=[unread])]
    assert commands == ["gputui compare a.db OTHER.db"], "a pass without a result shows nothing"
    assert list(next_steps([RUN], FILE, [RUN.summary], passes=[unread, read])) == [
        NextStep(f"gputui show {ID} a.db -v", "a step by operator, efficiency, the box"),
        NextStep("gputui compare a.db OTHER.db", "once another box has run the same"),
    ]


def test_a_run_of_a_file_with_other_boxes_is_named_where_it_is_compared() -> None:
    other = replace(RUN.summary, machine=replace(RUN.summary.machine, machine_id="other"), profile="llm")
    (step,) = next_steps([RUN], FILE, [RUN.summary, other])

    assert step.command == f"gputui compare a.db@{ID} OTHER.db"


def test_a_second_run_is_compared_with_the_newest_finished_one_of_its_profile_before_it() -> None:
    old, cut, later = (
        make_run(measured(GPT, steady(0.1)), started_utc_us=STARTED_US - us) for us in (9, 5, -9)
    )
    broken = replace(cut.summary, status="interrupted")
    (step,) = next_steps([RUN], FILE, [RUN.summary, old.summary, broken, later.summary])

    assert step.command == f"gputui compare a.db@{old.summary.short_id} a.db@{ID}"


@pytest.mark.parametrize(
    ("labels", "is_compared"), [(("a", "a"), True), (("a", "b"), False), (("", ""), False)]
)
def test_a_recording_is_compared_only_with_one_of_the_same_label(
    labels: tuple[str, str], is_compared: bool
) -> None:
    old, new = (
        replace(run, summary=replace(run.summary, profile="record", label=label))
        for run, label in zip(
            (make_run(measured(GPT, steady(0.1)), started_utc_us=STARTED_US - 9), RUN), labels, strict=True
        )
    )
    commands = [step.command for step in next_steps([new], FILE, [new.summary, old.summary])]
    assert (f"gputui compare a.db@{old.summary.short_id} a.db@{ID}" in commands) == is_compared


def test_runs_that_ended_together_and_a_repeated_one_are_compared() -> None:
    other = make_run(measured(GPT, steady(0.2)))
    both = next_steps([RUN, other], FILE)
    assert [step.command for step in both] == [f"gputui compare a.db@{ID} a.db@{other.summary.short_id}"]

    like = next_steps([RUN], FILE, like="their file.db@12345678")
    assert [step.command for step in like] == [f"gputui compare 'their file.db@12345678' a.db@{ID}"]


def test_a_box_below_normal_is_looked_at_first() -> None:
    slow = make_run(gemm(300), copy(2.62), machine=GPU_MACHINE)

    look, report, *_ = (step.command for step in next_steps([slow], FILE))
    assert look == "gputui doctor"
    assert report == f"gputui share a.db@{slow.summary.short_id} -o report.md"


LIMITED = "gputui run quick --device cpu --only conv_train --only gpt_train --only decode --precision fp32"
"""To the cases that the run was limited to."""


@pytest.mark.parametrize(
    "reason",
    [
        "the budget of 15 s is spent",
        "too little was left of the 15 s",
        "its first step took 7.52 s, and the launch had 5 s",
        "5 steps of 1.2 s do not fit into the 3 s left",
    ],
)
def test_a_budget_that_was_too_small_for_most_cases_leads_to_one_that_is_not(reason: str) -> None:
    lost = [unmeasured(make_case(name), "skipped", reason) for name in ("conv_train", "decode")]
    step = next(next_steps([with_budget(make_run(measured(GPT, steady(0.1)), *lost), 15)], FILE))
    assert step == NextStep(f"{LIMITED} --db a.db --budget 50", "with time for all 3 cases")

    step, *_ = next_steps([with_budget(make_run(*lost), 15)], FILE)
    limited = "gputui run quick --device cpu --only conv_train --only decode --precision fp32"
    assert step == NextStep(f"{limited} --db a.db", "with the usual 140 s")

    step = next(next_steps([with_budget(make_run(measured(GPT, steady(0.1)), *lost), 1500)], FILE))
    assert step.command == f"{LIMITED} --db a.db --budget 4500"


def test_a_run_on_a_busy_box_is_to_be_done_again_when_the_box_is_idle() -> None:
    lost = unmeasured(make_case("decode"), "skipped", "too slow for its share: raise --budget")
    busy = make_run(measured(GPT, steady(0.1), waited_share=0.4), lost)
    limited = "gputui run quick --device cpu --only gpt_train --only decode --precision fp32"

    again = NextStep(f"{limited} --launches 1 --db a.db --budget 180", "again, once the box is idle")
    assert list(next_steps([busy], FILE)) == [again]
    assert next(next_steps([busy], FILE, like="b.db@12345678")).command == (
        "gputui run --like b.db@12345678 --db a.db"
    )
    mine = replace(busy, summary=replace(busy.summary, profile="mine"))
    assert next(next_steps([mine], FILE)).command == (
        f"gputui run --like a.db@{mine.summary.short_id} --db a.db"
    )


def test_a_stopped_run_is_done_again_to_the_end_on_the_device_it_was_limited_to() -> None:
    stop = unmeasured(make_case("gemm"), "interrupted", "stopped by SIGTERM")
    on_gpu = unmeasured(make_case("gemm", device_class="gpu"), "skipped", "no GPU")

    def again(*cases: CaseResult) -> NextStep:
        run = with_budget(make_run(*cases, status="interrupted"), 140)
        reason = replace(run.summary, status_reason="stopped by SIGTERM")
        return next(next_steps([replace(run, summary=reason)], FILE))

    on_cpu = "gputui run quick --device cpu --only gemm --precision fp32 --db a.db"
    assert again(stop) == NextStep(on_cpu, "again, to the end")
    only = "--only gemm:mini:fp32 --db a.db"
    assert again(stop, on_gpu).command == f"gputui run quick {only}"
    for indexes, option in (((0,), "gpu"), ((3,), "gpu:3"), ((0, 1), "all")):
        gpus = [
            replace(unmeasured(make_case("gemm", device_class="gpu"), "interrupted", "x"), device_index=index)
            for index in indexes
        ]
        assert again(*gpus).command == f"gputui run quick --device {option} {only}"


def test_an_interrupted_run_names_the_complete_one_before_it_that_it_hides() -> None:
    before = make_run(measured(GPT, steady(0.1)), started_utc_us=STARTED_US - 9).summary
    stop = unmeasured(make_case("gemm"), "interrupted", "stopped with Ctrl-C")
    shown = NextStep(f"gputui show {before.short_id} a.db", "the run before it, which is complete")

    for cut in (make_run(stop, status="interrupted"), make_run(*RUN.cases, stop, status="interrupted")):
        assert shown in list(next_steps([cut], FILE, [before]))
        assert shown not in list(next_steps([cut], FILE))
    assert shown not in list(next_steps([RUN], FILE, [before]))


def test_a_run_to_be_done_again_is_limited_to_the_cases_launches_and_time_that_it_had() -> None:
    amp = measured(make_case("gemm", precision="amp"), steady(0.1), waited_share=0.4)
    on_gpu = make_case("gemm", precision="amp", device_class="gpu")
    run = make_run(amp, unmeasured(on_gpu, "skipped", "no GPU"))

    step = next(next_steps([with_budget(run, 25)], FILE))
    assert step.command == "gputui run quick --only gemm:mini:amp --db a.db --budget 25"
    step = next(next_steps([with_budget(run, 140)], FILE))
    assert step.command == "gputui run quick --only gemm:mini:amp --db a.db"
    step = next(next_steps([run], FILE))
    assert step.command == "gputui run quick --only gemm:mini:amp --launches 1 --db a.db --budget 90"


def test_a_run_of_a_type_of_amp_is_done_again_in_that_type_and_on_its_device() -> None:
    kinds = [make_case("gemm", precision=kind, device_class="gpu") for kind in ("amp-bf16", "amp-fp16")]
    stop = [unmeasured(case, "interrupted", "stopped with Ctrl-C") for case in kinds]
    run = make_run(*stop, status="interrupted")
    summary = replace(run.summary, status_reason="stopped with Ctrl-C", budget_s=140, replicates=8)

    step = next(next_steps([replace(run, summary=summary)], FILE))
    only = "--only gemm:mini:amp-bf16 --only gemm:mini:amp-fp16"
    assert step.command == f"gputui run quick --device gpu {only} --db a.db"


def test_a_repeated_run_to_be_done_again_is_limited_as_it_was() -> None:
    cases = [make_case("gemm", precision=precision) for precision in ("fp32", "amp")] + [GPT]
    first = make_run(*(measured(case, steady(0.1)) for case in cases))
    there = Profile(
        "quick",
        1,
        "quick",
        "?",
        first.summary.budget_s,
        1,
        (
            ProfileCase("gemm", ("mini",), ("cpu",), ("fp32", "amp"), ("all",), 1.0),
            ProfileCase("gpt_train", ("mini",), ("cpu",), ("fp32",), ("all",), 1.0),
        ),
    )

    def again(run: Run) -> str:
        return next(next_steps([run], FILE, like="b.db@12345678", profile=there)).command

    busy = [measured(case, steady(0.1), waited_share=0.4) for case in cases]
    assert again(make_run(*busy)) == "gputui run --like b.db@12345678 --db a.db"
    limited = "gputui run --like b.db@12345678 --only gemm --precision amp"
    one = make_run(busy[1])
    assert again(one) == f"{limited} --db a.db"
    assert again(with_budget(one, 15)) == f"{limited} --launches 8 --db a.db --budget 15"
    assert again(make_run(*busy[:2])) == "gputui run --like b.db@12345678 --only gemm --db a.db"


def test_a_busy_run_of_a_program_cannot_be_repeated_from_the_file_alone() -> None:
    busy = make_run(measured(make_case("my_train"), steady(0.1), waited_share=0.4))
    mine = replace(busy, summary=replace(busy.summary, profile="mine"))

    assert list(next_steps([mine], FILE)) == []


def test_a_run_without_a_result_leads_to_its_reasons() -> None:
    failed = make_run(unmeasured(GPT, "failed", "RuntimeError"))

    (step,) = next_steps([failed], FILE)
    assert step == NextStep(f"gputui show {failed.summary.short_id} a.db -v", "why nothing was measured")


def test_a_recording_without_a_rate_leads_to_what_it_recorded() -> None:
    for run in (recording("interrupted", "stopped by SIGTERM"), recording("failed", "it died of SIGKILL")):
        step = NextStep(f"gputui replay {run.summary.short_id} a.db", "plays its telemetry")
        assert list(next_steps([run], FILE)) == [step]
