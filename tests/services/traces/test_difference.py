"""Two traces are described exactly; a verdict needs several on each side."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
from chrome_traces import training_step, write_trace, write_training

from gputui.errors import GputuiError
from gputui.model.absent import Missing
from gputui.services.traces.difference import as_json, change_sentence, difference_of, sentences, short_kernel
from gputui.services.traces.imported import read_run
from gputui.services.traces.overview import held_back


def test_the_first_sentence_names_the_loader_with_its_milliseconds(tmp_path: Path) -> None:
    a = read_run(write_training(tmp_path / "a.json", steps=6, gemm_us=100, wait_us=40))
    b = read_run(write_training(tmp_path / "b.json", steps=6, gemm_us=103))
    found = difference_of([a], [b])
    assert sentences(found)[0] == (
        "b's steps take 37.0 µs less than a's (163 vs 200 µs, 6 and 6 steps):"
        " in a the GPU waits for data (-40.0 µs); waiting for the loader -40.0 µs, all else +3.00 µs."
    )
    assert "judges nothing" in sentences(found)[1]
    assert sum(part.difference_ns for part in found.attribution.parts) == -37_000
    assert isinstance(found.judgement, Missing)


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


def test_kernels_that_differ_most_come_first(tmp_path: Path) -> None:
    a = read_run(write_training(tmp_path / "a.json", gemm_us=100))
    b = read_run(write_training(tmp_path / "b.json", gemm_us=180))
    (first, *_) = difference_of([a], [b]).kernels
    assert (first.name, first.difference_ns, first.calls_a) == ("ampere_sgemm_128x64_tn", 80_000, 1.0)


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


def test_json_holds_every_part_and_kernel(tmp_path: Path) -> None:
    a, b = (read_run(write_training(tmp_path / f"{x}.json", gemm_us=x)) for x in (100, 90))
    plain = as_json(difference_of([a], [b]))
    parts = plain["parts"]
    assert isinstance(parts, list)
    assert sum(part["difference_ns"] for part in parts) == -10_000
    assert plain["step_a_ns"] == 160_000


def test_a_kernels_name_keeps_both_ends() -> None:
    name = "void cutlass::Kernel2<cutlass_80_tensorop_bf16_s16816gemm_bf16_256x128_64x3_tn_align2>(Params)"
    short = short_kernel(name, 40)
    assert len(short) == 40
    assert short.startswith("cutlass::Kernel2<")
    assert short.endswith("tn_align2>")


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


@pytest.mark.parametrize(
    ("before_ns", "after_ns", "said"),
    [
        (200_000, 160_000, "25 % faster than before (200 to 160 µs): waiting for the loader -40.0 µs."),
        (0, 0, "25 % faster than before (profiled, 200 to 160 µs): waiting for the loader -40.0 µs."),
        (0, 160_000, "25 % faster than before (profiled, 200 to 160 µs): waiting for the loader -40.0 µs."),
        (20_000, 40_000, "50 % slower than before (20.0 to 40.0 µs): of the profiled steps 200 to 160 µs, "),
        (161_000, 160_000, "As fast as before, or nearly (161 to 160 µs)"),
    ],
)
def test_what_a_change_did_is_told_by_the_steps_before_the_window_where_both_are_known(
    tmp_path: Path, before_ns: int, after_ns: int, said: str
) -> None:
    runs = [read_run(write_training(tmp_path / f"{wait_us}.json", wait_us=wait_us)) for wait_us in (40, 0)]
    before, after = (
        replace(run, found=replace(run.found, before_ns=ns))
        for run, ns in zip(runs, (before_ns, after_ns), strict=True)
    )
    assert change_sentence(before, after).startswith(said)


@pytest.mark.parametrize(
    ("waited", "is_told"), [((0.4, 0.0), False), ((0.0, 0.1), False), ((0.05, None), True)]
)
def test_a_change_is_not_told_where_other_programs_had_the_cores(
    tmp_path: Path, waited: tuple[float, float | None], is_told: bool
) -> None:
    runs = [read_run(write_training(tmp_path / f"{wait_us}.json", wait_us=wait_us)) for wait_us in (40, 0)]
    before, after = (
        replace(run, found=replace(run.found, waited_share=share, others_cores=1.0))
        for run, share in zip(runs, waited, strict=True)
    )
    said = change_sentence(before, after)
    assert said.startswith("25 % faster" if is_told else "Can't tell what changed (profiled, 200 to 160 µs)")
