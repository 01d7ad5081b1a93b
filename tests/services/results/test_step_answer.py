"""Why a step takes as long as it does: which step is meant, what holds it up, and what that is worth."""

from __future__ import annotations

import io
from dataclasses import replace

import pytest
from step_answers import MS, answer, finding, profiled, three_causes

from gputui.analysis.findings import (
    at_best_without,
)
from gputui.cli.traces import write_step_answer
from gputui.document.page import Page, console_on
from gputui.model.journal import Operator, TimeSlice
from gputui.services.results.step_answer import (
    LOADS_ALONE,
    OPTIMIZER,
    all_of_them,
    answer_of_trace,
    gain_text,
    limit,
    sentence,
)
from gputui.services.traces.forms import brief


@pytest.mark.parametrize(
    ("work", "idle", "said"),
    [
        (
            {"gemm": 60, "norm": 15},
            {"data_wait": 25},
            "60 % is matmul in fp32, and for 25 % the GPU waits for data.",
        ),
        (
            {"gemm": 20},
            {"dispatch": 80},
            "for 80 % the GPU waits for the CPU to launch work, and 20 % is matmul in fp32.",
        ),
        ({"gemm": 60, "norm": 35}, {"python": 5}, "60 % is matmul in fp32, and 35 % is norm."),
    ],
)
def test_the_sentence_names_the_largest_cause_first(
    work: dict[str, int], idle: dict[str, int], said: str
) -> None:
    assert sentence(answer(profiled(work, idle))).startswith(f"A step takes 100 ms: {said}")


@pytest.mark.parametrize(
    ("before_ms", "said", "step_ms"),
    [
        (98, "A step takes 98.0 ms: 71 %", 98),
        (85, "A step takes 85.0 ms (100 ms while profiled): 82 %", 85),
        (20, "A step takes 20.0 ms, but 100 ms while profiled: of these, 70 %", 100),
    ],
)
def test_the_sentence_says_which_step_it_is_of_where_the_profiler_made_it_longer(
    before_ms: int, said: str, step_ms: int
) -> None:
    found = answer(profiled({"gemm": 70}, {"python": 30}, before_ms=before_ms))
    assert sentence(found).startswith(said)
    assert found.step_ns == step_ms * MS
    assert any("shares are rough" in note for note in found.notes) == (step_ms == 100)


@pytest.mark.parametrize("before_ms", [9, 1200])
def test_of_a_profile_that_is_ten_times_off_no_share_and_no_cause_is_told(before_ms: int) -> None:
    found = answer(profiled({"gemm": 10}, {"python": 90}, before_ms=before_ms))
    assert sentence(found).endswith("while profiled, which does not tell where the time of such a step goes.")
    assert found.causes == ()
    assert limit(found) == "No cause is named. Try other steps (--after N), or an idle box."
    page = Page(console_on(io.StringIO(), 80))
    write_step_answer(page, found, None)
    assert "%" not in "\n".join(page.written)


def test_causes_that_are_about_the_same_time_gain_no_more_than_there_is_of_it() -> None:
    apart = (finding("starved by the loader", 30), finding("wider types", 20))
    assert at_best_without(apart) == 50 * MS
    both_idle = (finding("starved by the loader", 30, of="idle"), finding("waits for results", 30, of="idle"))
    assert at_best_without(both_idle) == 60 * MS, "of 40 ms that it is idle"


def test_all_causes_together_are_said_from_two_on_without_what_only_limits_the_step() -> None:
    found = answer(profiled({"gemm": 50}, {"data_wait": 50}))
    one = replace(found, findings=(finding("starved by the loader", 30), finding("compute-bound", 60)))
    assert all_of_them(one) == ""
    both = (finding("starved by the loader", 30), finding("wider types", 20))
    two = replace(found, findings=both)
    assert all_of_them(two) == "Both: at best 100 to 50.0 ms."
    of_a_batch = replace(both[1], has_at_best=False)
    assert all_of_them(replace(found, findings=(both[0], of_a_batch))) == "", "it is not known of one"


def test_a_gain_is_told_in_per_cent_of_the_rate_and_from_twice_on_as_a_factor() -> None:
    assert [gain_text(412, ms) for ms in (314, 100, 450, 0)] == [
        "31 % faster",
        "4.12x as fast",
        "8 % slower",
        "",
    ]


def test_a_step_near_a_measured_peak_is_told_its_limit_with_the_figure_and_not_a_cause() -> None:
    found = answer(profiled({"gemm": 100}, {}))
    evidence = "it computes at 78 % of the 52.1 TFLOP/s that large products reach here"
    bound = replace(finding("compute-bound", 22, change="a faster device, or amp"), evidence=evidence)
    near = replace(found, findings=(bound,))
    assert limit(near) == f"compute-bound: {evidence}. Try a faster device, or amp."
    assert (near.causes, near.at_best_ns) == ((), near.step_ns)


def test_a_step_without_a_cause_says_what_its_time_is_spent_in_and_amp_only_to_a_program_without_it() -> None:
    for work, idle, said in (
        ({"gemm": 90}, {"python": 10}, "busy for 90 % of it, 90 % with matmul. Try amp or a faster GPU."),
        ({"communication": 95}, {"python": 5}, "busy for 95 % of it, 95 % with communication."),
        ({"gemm": 40}, {"queue": 60}, "No cause that a profile can tell stands out."),
    ):
        assert said in limit(answer(profiled(work, idle)))
    found = profiled({"gemm": 95}, {"python": 5})
    (row,) = found.operators
    assert "amp" in limit(answer(found))
    assert "amp" not in limit(answer(replace(found, operators=(replace(row, dtypes="c10::BFloat16"),))))


def test_what_to_write_is_said_where_the_program_is_known_to_lack_it() -> None:
    found = profiled({"gemm": 50}, {"data_wait": 50})
    assert answer(found).findings[0].code == ""
    assert answer(found, LOADS_ALONE).findings[0].code == "DataLoader(..., num_workers=8, pin_memory=True)"
    rows = [
        Operator("optimizer", "elementwise", f"aten::{n}", "64", "float", 60, 60, 25 * MS, MS, 60)
        for n in ("mul_", "div")
    ]
    slow = replace(profiled({"gemm": 50}, {}), window_ns=100 * MS)
    slow = replace(
        slow,
        operators=(*slow.operators, *rows),
        slices=(*slow.slices, TimeSlice("optimizer", "compute", "", 50 * MS)),
    )
    codes = [answer(slow, f"{OPTIMIZER}{name}").findings[0].code for name in ("AdamW", "Lion")]
    assert codes == ["torch.optim.AdamW(..., fused=True)", ""]


def test_each_cause_has_its_time_its_line_and_what_to_try() -> None:
    page = Page(console_on(io.StringIO(), 80))
    write_step_answer(page, three_causes(), None, (), ("stored in a.db as 51c0e7aa",))
    assert max(map(len, page.written)) <= 80
    text = "\n".join(page.written)
    assert "\nstarved by the loader: 98.0 ms, 24 %; at best 412 to 314 ms, 31 % faster\n  seen\n" in text
    assert "\n  where: train.py:41, 100 % of it\n" in text
    assert "\n  change to: DataLoader(..., num_workers=8, pin_memory=True)\n" in text
    assert "All three: at best 412 to 111 ms." in text
    assert text.endswith("a note\n\nstored in a.db as 51c0e7aa")


def test_a_brief_is_short_and_has_what_somebody_else_needs_to_act() -> None:
    found = three_causes()
    rows = tuple(replace(found.found.operators[0], shapes=f"{n}x<64>") for n in range(30))
    text = brief(
        answer_of_trace(replace(found.found, operators=rows), "H200", "", ("a note",)), "python t.py"
    )
    assert r"\<64\>" in text
    text = brief(found, "python t.py", "31 % faster than before")
    assert len(text.splitlines()) <= 60
    for words in (
        "- ran: python t.py",
        "- H200, torch 2.13.0; steps 20 to 25 of 240 of train.py",
        "- 31 % faster than before",
        "- where: train.py:41",
        "- change to: DataLoader(..., num\\_workers=8".replace("\\", ""),
        "at best 412 to 314 ms, 31 % faster",
        "| gemm | 250 ms |",
        "- a note",
        "how processes vary is not known",
    ):
        assert words in text
