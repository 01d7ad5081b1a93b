"""Why a run is as fast as it is, in a sentence that says no more than what was measured."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hand_made import make_run, measured
from journals import GPU_MACHINE
from stored_runs import passed
from test_expected import at_rate, shipped_case

from gputui.model.absent import Missing
from gputui.model.journal import ProfiledPass, TimeSlice, without_result
from gputui.model.plan import Case
from gputui.model.result import CaseResult, Run
from gputui.services.results.headline import headline_sentences
from gputui.services.results.step_answer import why_sentence
from gputui.services.results.step_breakdown import breakdown_of, is_believed, step_parts, step_words

GPT, MINI = shipped_case("gpt_train", "base", "amp"), shipped_case("gpt_train", "mini", "amp")
CPU = replace(GPT, variant=replace(GPT.variant, device_class="cpu", threads="all"))
TIMED_MS = 100.0
MATMUL = "matmul in fp32, and 11 % is attention in fp32"
WAITS = "52 % is matmul in fp32, and for 38 % the GPU waits"


def idle(ms_by_cause: dict[str, float], step_ms: float = TIMED_MS) -> ProfiledPass:
    """A pass of ten steps that are idle so long in each, of which the rest is as in `passed`."""
    found = passed(0, 0, (step_ms - sum(ms_by_cause.values())) / 0.9)
    slices = (
        *(part for part in found.slices if part.time_class != "idle"),
        *(TimeSlice("forward", "idle", cause, round(1e7 * ms)) for cause, ms in ms_by_cause.items()),
    )
    return replace(found, slices=slices, window_ns=sum(part.time_ns for part in slices))


def timed(case: Case = GPT, step_ms: float = TIMED_MS) -> CaseResult:
    return measured(case, *[[step_ms / 1000] * 5] * 3, precision_used="amp-bf16")


def why(found: ProfiledPass, *beside: CaseResult, case: Case = GPT) -> str:
    return why_sentence(run_of(timed(case), *beside), {0: found})


def run_of(*cases: CaseResult) -> Run:
    numbered = [replace(case, case_id=number) for number, case in enumerate(cases)]
    return make_run(*numbered, machine=GPU_MACHINE)


@pytest.mark.parametrize(
    ("case", "causes", "said"),
    [
        (GPT, {"launch": 3}, f"81 % is {MATMUL}"),
        (CPU, {"python": 6}, "78 % is matmul in fp32, and 10 % is attention in fp32"),
        (GPT, {"launch": 30, "python": 8}, f"{WAITS}, most of it launch gaps"),
        (GPT, {"launch": 11, "dispatch": 14, "python": 13}, WAITS),
        (GPT, {"data_wait": 30, "launch": 8}, f"{WAITS}, most of it waiting for the loader"),
        (
            GPT,
            {"python": 10, "launch": 12, "queue": 28},  # the larger share comes first
            "for 50 % the GPU waits, most of it queued work waiting, and 42 % is matmul in fp32",
        ),
        (CPU, {"python": 25}, "62 % is matmul in fp32, and 25 % is Python between calls"),
    ],
)
def test_a_step_says_what_it_mostly_is_and_what_a_gpu_waits_for(
    case: Case, causes: dict[str, float], said: str
) -> None:
    assert why(idle(causes), case=case) == f"A step takes 100 ms: {said}."


@pytest.mark.parametrize(("reached", "limit"), [(0.4, ""), (0.8, ": compute is the limit")])
def test_beside_a_peak_test_of_the_same_run_it_says_what_it_reaches_and_whether_that_is_the_limit(
    reached: float, limit: str
) -> None:
    assert GPT.flops_per_step
    peak = at_rate(GPT.flops_per_step / 0.1 / reached, "gemm", "large", "amp")
    text = f"A step takes 100 ms: 81 % is {MATMUL}. It reaches {100 * reached:.0f} %"
    assert why(idle({"launch": 3}), peak) == f"{text} of this box's own matmul peak{limit}."


def test_a_gpu_that_waited_longer_under_the_profiler_is_said_to_wait_as_long_as_in_timed_steps() -> None:
    slow = idle({"launch": 98}, step_ms=160)  # 62 ms of work, as without the profiler
    assert why(slow).endswith("for 38 % the GPU waits, most of it launch gaps.")
    breakdown = breakdown_of(slow, timed())
    assert not isinstance(breakdown, Missing)
    assert breakdown.step_ns == pytest.approx(TIMED_MS * 1e6)
    assert breakdown.inflation == pytest.approx(1.6)
    assert is_believed(breakdown)
    assert sum(share.share for share in breakdown.shares) == pytest.approx(1)
    assert {name: share for name, share, _ in step_parts(breakdown)}["idle"] == pytest.approx(0.38)


def test_nothing_is_said_of_a_pass_that_does_not_tell_where_timed_steps_go() -> None:
    busier = idle({"launch": 3}, step_ms=130)  # the GPU worked longer than a whole timed step
    assert why(busier) == ""
    assert why(idle({"python": 3}, step_ms=140), case=CPU) == ""
    assert why(without_result(0, 0, "no time was left")) == ""
    assert why_sentence(run_of(timed()), {}) == ""


def test_a_rate_with_the_waiting_in_it_is_no_share_of_a_peak() -> None:
    peak = measured(shipped_case("gemm", "mini", "fp32", "cpu"), *[[0.01] * 5] * 3, precision_used="fp32")
    busy_peak = measured(peak.case, *[[0.01] * 5] * 3, precision_used="fp32", waited_share=0.8)
    case = shipped_case("gpt_train", "mini", "fp32", "cpu")
    for share, test, is_told in ((0.0, peak, True), (0.6, peak, False), (0.0, busy_peak, False)):
        step = measured(case, *[[0.1] * 5] * 3, precision_used="fp32", waited_share=share)
        run = make_run(step, replace(test, case_id=1))
        assert ("matmul peak" in why_sentence(run, {0: idle({"python": 6})})) == is_told


def test_a_step_of_another_case_than_that_of_the_headline_has_its_name() -> None:
    run = run_of(timed(MINI), timed(GPT))
    assert why_sentence(run, {0: idle({"launch": 3})}).startswith("A step of GPT training (mini) takes ")
    waits = why_sentence(run, {0: idle({"launch": 38})})
    assert waits.startswith("A step of GPT training (mini) takes 100 ms: 52 % is matmul")


def test_it_follows_the_answer_and_comes_before_whether_the_box_is_normal() -> None:
    run = run_of(timed(), at_rate(780e12, "gemm", "large", "amp"))
    answer, said, box = headline_sentences(run, why_sentence(run, {0: idle({"launch": 3})}))
    assert answer.startswith("GPT training")
    assert said.startswith("A step takes 100 ms: 81 % is matmul")
    assert box.startswith("Matmul with amp runs at 101 % of the lowest public figure for an H200")
    assert headline_sentences(run) == (answer, box)
    slow = run_of(timed(), at_rate(300e12, "gemm", "large", "amp"))
    bad, answer, said = headline_sentences(slow, "A step is this.")
    assert bad.startswith("BELOW NORMAL")
    assert (answer.startswith("GPT training"), said) == (True, "A step is this.")


def test_a_profiled_step_is_compared_with_others_of_its_process_or_else_with_the_timed_ones() -> None:
    found = idle({"launch": 3})
    for before_ns, said in (
        (80_000_000, "1.25x as long as without the profiler"),
        (0, "1.00x as long as a timed one"),
    ):
        beside = replace(found, before_ns=before_ns)
        breakdown = breakdown_of(beside, timed())
        assert not isinstance(breakdown, Missing)
        assert step_words(breakdown, beside).endswith(f"100 ms by the clock in 10 profiled steps, {said}")
