"""Two traces are described exactly; a verdict needs several on each side."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
from chrome_traces import training_step, write_trace, write_training

from gputui.errors import GputuiError
from gputui.model.absent import Missing
from gputui.services.results.step_answer import PROFILED
from gputui.services.traces.difference import as_json, change_sentence, difference_of, sentences, short_kernel
from gputui.services.traces.forms import difference_as_markdown, held_back
from gputui.services.traces.imported import TraceRun, read_run


@pytest.fixture
def waiting_and_not(tmp_path: Path) -> list[TraceRun]:
    """Steps of 200 us that wait for data for 40 us, and such without."""
    return [read_run(write_training(tmp_path / f"{us}.json", wait_us=us)) for us in (40, 0)]


def test_the_first_sentence_names_the_loader_with_its_milliseconds_as_json_does(tmp_path: Path) -> None:
    a = read_run(write_training(tmp_path / "a.json", steps=6, gemm_us=100, wait_us=40))
    b = read_run(write_training(tmp_path / "b.json", steps=6, gemm_us=103))
    found = difference_of([a], [b])
    assert sentences(found)[0] == (
        "b's steps take 37.0 µs less than a's (163 vs 200 µs, 6 and 6 steps):"
        " in a the GPU waits for data; waiting for the loader -40.0 µs, all else +3.00 µs."
    )
    assert "several of each" in sentences(found)[1]
    assert sum(part.difference_ns for part in found.attribution.parts) == -37_000
    assert isinstance(found.judgement, Missing)
    (first, *_) = found.kernels
    assert (first.name, first.difference_ns, first.calls_a) == ("ampere_sgemm_128x64_tn", 3_000, 1.0)
    plain = as_json(found)
    assert isinstance(plain["parts"], list)
    assert sum(part["difference_ns"] for part in plain["parts"]) == -37_000
    assert plain["step_a_ns"] == 200_000


def test_different_work_is_said_before_times_are_compared(tmp_path: Path) -> None:
    a = read_run(write_training(tmp_path / "a.json"))
    small = [
        {**e, "args": {**e["args"], "Input Dims": [[4, 64], [64, 64]]}} if "Input Dims" in e["args"] else e
        for k in range(3)
        for e in training_step(1000 + 160 * k, k + 1)
    ]
    b = read_run(write_trace(tmp_path / "b.json", small))
    assert sentences(difference_of([a], [b]))[0] == (
        "a and b do different work: linear gets 8x64,64x64 in a, 4x64,64x64 in b."
    )
    told = held_back(difference_of([a], [b]))
    assert [line.partition(":")[0] for line in told] == [
        f"{letter}  The GPU waits for the CPU to launch work" for letter in "ab"
    ]


@pytest.mark.parametrize(("gemm_us", "word"), [(180.0, "slower"), (100.0, "inconclusive")])
def test_several_traces_a_side_are_judged_like_launches(tmp_path: Path, gemm_us: float, word: str) -> None:
    a = [read_run(write_training(tmp_path / f"a{k}.json", gemm_us=100.0 + k)) for k in range(3)]
    b = [read_run(write_training(tmp_path / f"b{k}.json", gemm_us=gemm_us + 1.5 * k)) for k in range(3)]
    judgement = difference_of(a, b).judgement
    assert not isinstance(judgement, Missing)
    assert judgement.word == word
    assert ("can't tell" in sentences(difference_of(a, b))[1]) == (word == "inconclusive")


def test_the_same_trace_twice_on_a_side_is_refused(tmp_path: Path) -> None:
    a, b = (read_run(write_training(tmp_path / name)) for name in ("a.json", "b.json"))
    assert a.digest == b.digest  # equal content under two names
    with pytest.raises(GputuiError, match="is given twice"):
        difference_of([a, b], [read_run(write_training(tmp_path / "c.json", gemm_us=90))])


@pytest.mark.parametrize(
    ("name", "short"),
    [
        ("void at::native::(anonymous namespace)::pool_nchw<float>(int)", "at::native::pool_nchw<float>"),
        ("void (anonymous namespace)::softmax_warp<float>(float*)", "softmax_warp<float>"),
        (
            "std::enable_if<((8)>(0))&&a::has<Half>::value, void>::type a::rms<Half, 8>(int)",
            "a::rms<Half, 8>",
        ),
        (
            "void at::native::elementwise_kernel<4, at::native::no<at::native::MulFunctor<float> > >(int)",
            "elementwise_ker…ulFunctor<float>",
        ),
        (
            "Cijk_Alik_Bljk_BBS_BH_Bias_HA_SAV_MT256x128x64_SN_WG32_8_1",
            "Cijk_Alik_Bljk_BBS_…MT256x128x64",
        ),
    ],
)
def test_names_of_kernels_differ_in_a_narrow_table_too(name: str, short: str) -> None:
    assert short_kernel(name, 32) == short


_LESS = "A step takes 40.0 µs less than before"


@pytest.mark.parametrize(
    ("before_ns", "after_ns", "said"),
    [
        (200_000, 160_000, f"{_LESS} (160 vs 200 µs): waiting for the loader -40.0 µs, all else +0 s."),
        (0, 0, f"{_LESS} (160 vs 200 µs): waiting for the loader -40.0 µs, all else +0 s."),
        (
            80_000,
            40_000,
            f"{_LESS} (40.0 vs 80.0 µs). While profiled: 40.0 µs less than before (160 vs 200 µs): ",
        ),
        (
            74_200,
            153_000,
            "A step takes 78.8 µs more than before (153 vs 74.2 µs). While profiled: 40.0 µs less than",
        ),
        (2_000, 160_000, "Can't tell what changed: a step of 40 takes 2.00 µs, but 200 µs while profiled."),
        (161_000, 160_000, "As fast as before, or nearly (161 to 160 µs)"),
    ],
)
def test_what_a_change_did_is_told_by_the_steps_before_the_window_where_both_are_known(
    waiting_and_not: list[TraceRun], before_ns: int, after_ns: int, said: str
) -> None:
    before, after = (
        replace(run, found=replace(run.found, before_ns=ns))
        for run, ns in zip(waiting_and_not, (before_ns, after_ns), strict=True)
    )
    assert change_sentence(before, after).startswith(said)


@pytest.mark.parametrize(
    ("waited", "is_told"),
    [((0.4, 0.0), False), ((0.1, 0.0), False), ((0.6, 0.6), False), ((0.0, 0.3), True), ((0.05, None), True)],
)
def test_a_change_is_told_where_other_programs_had_the_cores_only_if_their_share_cannot_explain_it(
    waiting_and_not: list[TraceRun], waited: tuple[float, float | None], is_told: bool
) -> None:
    before, after = (
        replace(run, found=replace(run.found, waited_share=share, others_cores=1.0))
        for run, share in zip(waiting_and_not, waited, strict=True)
    )
    said = change_sentence(before, after)
    assert said.startswith(_LESS if is_told else "Can't tell what changed: other programs had the cores")


def test_steps_that_the_profiles_do_not_explain_are_told_by_the_programs_own_and_never_reversed(
    waiting_and_not: list[TraceRun],
) -> None:
    a, b = (
        replace(run, found=replace(run.found, before_ns=ns))
        for run, ns in zip(waiting_and_not, (50_000, 120_000), strict=True)
    )
    assert sentences(difference_of([a], [b]))[:2] == (
        "b's steps take 70.0 µs more than a's (120 vs 50.0 µs, 3 and 3 steps).",
        "While profiled: 40.0 µs less than a's (160 vs 200 µs), which does not explain it.",
    )
    far = replace(a, found=replace(a.found, before_ns=20_000))
    assert sentences(difference_of([far], [b]))[0] == (
        "Can't tell how they differ: a step of 40 takes 20.0 µs, but 200 µs while profiled."
    )


def test_windows_of_other_work_or_cut_by_the_clock_are_no_steps_and_are_not_compared(tmp_path: Path) -> None:
    marked = read_run(write_training(tmp_path / "marked.json"))
    whole = read_run(write_training(tmp_path / "whole.json"), window_s=(0.0, 1e-3))
    shorter = read_run(write_training(tmp_path / "shorter.json", gemm_us=90), window_s=(0.0, 1e-3))
    found = difference_of([marked], [whole])
    assert sentences(found)[0] == (
        "Can't tell how they differ: the steps of whole are not marked, so no step is known to compare."
    )
    assert "less than" not in difference_as_markdown(found)
    assert (as_json(found)["step_a_ns"], as_json(found)["parts"]) == (None, [])
    assert change_sentence(marked, whole).startswith(
        "Can't tell what changed: the steps of whole are not marked"
    )
    assert sentences(difference_of([whole], [shorter]))[0].startswith("b's window takes"), "of the same work"
    by_clock = replace(whole, notes=(*whole.notes, f"{PROFILED}CPU; a while of train.py as it is"))
    assert sentences(difference_of([by_clock], [shorter]))[0].startswith("Can't tell how they differ")
