"""What to type after a run."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
from hand_made import make_run, measured, recording, steady, unmeasured
from journals import STARTED_US, make_case

from gputui.model.journal import without_result
from gputui.model.result import CaseResult
from gputui.services.results.run_forms import NextStep, next_steps

FILE = Path("a.db")
GPT = make_case("gpt_train")
RUN = make_run(measured(GPT, steady(0.1)))
ID = RUN.summary.short_id


def test_after_the_first_run_of_a_box_comes_why_it_is_as_fast_and_another_box() -> None:
    unread = without_result(0, 0, "no time was left")
    read = replace(unread, is_valid=True)
    commands = [one.command for one in next_steps([RUN], FILE, [RUN.summary], passes=[unread])]
    assert commands == ["gputui compare a.db OTHER.db"], "a pass without a result shows nothing"
    assert list(next_steps([RUN], FILE, [RUN.summary], passes=[unread, read])) == [
        NextStep(f"gputui show {ID} a.db -v", "a step by operator, efficiency, the box"),
        NextStep("gputui compare a.db OTHER.db", "once another box has run the same"),
    ]


def test_a_run_is_compared_with_the_newest_finished_one_of_its_profile_and_box_before_it() -> None:
    old, cut, later = (
        make_run(measured(GPT, steady(0.1)), started_utc_us=STARTED_US - us) for us in (9, 5, -9)
    )
    broken = replace(cut.summary, status="interrupted")
    (step,) = next_steps([RUN], FILE, [RUN.summary, old.summary, broken, later.summary])
    assert step.command == f"gputui compare a.db@{old.summary.short_id} a.db@{ID}"

    elsewhere = replace(RUN.summary, machine=replace(RUN.summary.machine, machine_id="other"), profile="llm")
    (step,) = next_steps([RUN], FILE, [RUN.summary, elsewhere])
    assert step.command == f"gputui compare a.db@{ID} OTHER.db"

    together = make_run(measured(GPT, steady(0.2)))
    (step,) = next_steps([RUN, together], FILE)
    assert step.command == f"gputui compare a.db@{ID} a.db@{together.summary.short_id}"
    (step,) = next_steps([RUN], FILE, like="their file.db@12345678")
    assert step.command == f"gputui compare 'their file.db@12345678' a.db@{ID}"


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


def again(*cases: CaseResult, status_reason: str = "", budget_s: float = 90.0) -> list[str]:
    """What repeats a run of these cases, without what names the run."""
    run = make_run(*cases)
    summary = replace(run.summary, status_reason=status_reason, budget_s=budget_s)
    run = replace(run, summary=summary)
    steps = [step for step in next_steps([run], FILE) if step.command.startswith("gputui run ")]
    whole = f"gputui run --like a.db@{run.summary.short_id}"
    return [f"{step.command.removeprefix(whole)}: {step.why}" for step in steps]


@pytest.mark.parametrize(
    "reason",
    [
        "the budget of 15 s is spent",
        "too little was left of the 15 s",
        "its first step took 7.52 s, and the launch had 5 s",
        "5 steps of 1.2 s do not fit into the 3 s left",
    ],
)
def test_a_budget_that_was_too_small_for_most_cases_leads_to_a_larger_one(reason: str) -> None:
    lost = [unmeasured(make_case(name), "skipped", reason) for name in ("conv_train", "decode")]
    done = [measured(make_case(name), steady(0.1)) for name in ("gemm", "membw", "gpt_train")]
    assert again(done[0], *lost, budget_s=15) == [" --db a.db --budget 45: with more time"]
    assert again(*lost, budget_s=15) == [" --db a.db --budget 45: with more time"]
    assert again(lost[0], budget_s=15) == [" --db a.db --budget 30: with more time"]
    assert again(*done, *lost) == []
    assert again(*done[1:], *lost, budget_s=15) == [" --db a.db --budget 30: with more time"]


def test_a_run_on_a_busy_box_is_to_be_done_again_when_the_box_is_idle() -> None:
    assert again(measured(GPT, steady(0.1), waited_share=0.4)) == [" --db a.db: again, once the box is idle"]


def test_a_stopped_run_is_done_again_to_the_end_on_the_gpus_that_it_was_on() -> None:
    for indexes, option in (((0,), ""), ((3,), " --device gpu:3"), ((0, 1), " --device all")):
        gpus = [
            replace(unmeasured(make_case("gemm", device_class="gpu"), "interrupted", "x"), device_index=index)
            for index in indexes
        ]
        assert again(*gpus, status_reason="stopped by SIGTERM") == [f"{option} --db a.db: again, to the end"]


def test_an_interrupted_run_names_the_complete_one_before_it_that_it_hides() -> None:
    before = make_run(measured(GPT, steady(0.1)), started_utc_us=STARTED_US - 9).summary
    stop = unmeasured(make_case("gemm"), "interrupted", "stopped with Ctrl-C")
    shown = NextStep(f"gputui show {before.short_id} a.db", "the run before it, which is complete")

    for cut in (make_run(stop, status="interrupted"), make_run(*RUN.cases, stop, status="interrupted")):
        assert shown in list(next_steps([cut], FILE, [before]))
        assert shown not in list(next_steps([cut], FILE))
    assert shown not in list(next_steps([RUN], FILE, [before]))


def test_what_has_no_rate_leads_to_what_there_is_and_a_program_cannot_be_repeated_from_the_file_alone() -> (
    None
):
    busy = make_run(measured(make_case("my_train"), steady(0.1), waited_share=0.4))
    mine = replace(busy, summary=replace(busy.summary, profile="mine"))
    assert list(next_steps([mine], FILE)) == []
    failed = make_run(unmeasured(GPT, "failed", "RuntimeError"))
    why = NextStep(f"gputui show {failed.summary.short_id} a.db -v", "why nothing was measured")
    assert list(next_steps([failed], FILE)) == [why]
    for run in (recording("interrupted", "stopped by SIGTERM"), recording("failed", "it died of SIGKILL")):
        step = NextStep(f"gputui results a.db@{run.summary.short_id}", "its telemetry over time")
        assert list(next_steps([run], FILE)) == [step]
