from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import pytest
from hand_made import make_case, make_run, measured, steady, three, unmeasured
from journals import CPU_MACHINE, GPU_MACHINE, STARTED_US

from gputui.analysis.spread import RUN_SD
from gputui.analysis.verdict import RatioEstimate
from gputui.model.absent import Missing
from gputui.model.journal import Price
from gputui.model.plan import Case
from gputui.model.result import CaseResult, Run
from gputui.model.units import format_percent, format_rate
from gputui.services.compare.headline import Headline, headline_of
from gputui.services.compare.pairing import compare_sides, side_of_runs, sides_by, with_telemetry
from gputui.services.compare.ranking import fastest_text
from gputui.services.compare.reports import turning_points
from gputui.services.compare.row_text import change_text, judgement_text
from gputui.services.compare.suggestions import effort_words, settling_steps
from gputui.services.results.conditions import Evidence
from gputui.services.results.selectors import Selection
from gputui.store.reading import CaseConditions

NO_FILES = Evidence((), trust=False)
OTHER = replace(GPU_MACHINE, machine_id="c1c2c3c4c5c6")


def gpu_case(
    workload: str, workload_class: str, unit: str, size: str = "base", precision: str = "amp"
) -> Case:
    case = make_case(
        workload, workload_class=workload_class, device_class="gpu", size=size, precision=precision
    )
    return replace(case, unit=unit)


GPT = gpu_case("gpt_train", "training", "tok")
GPT_FP32 = gpu_case("gpt_train", "training", "tok", precision="fp32")
CNN = gpu_case("conv_train", "training", "img")
DECODE = gpu_case("decode", "inference", "tok")
PRECISIONS = ("fp32", "tf32", "amp")
GEMM = gpu_case("gemm", "ceiling", "flop", size="large")
GPT_ON_CPU = make_case("gpt_train", workload_class="training")


def priced(usd_per_hour: float) -> Price:
    return Price(usd_per_hour, 1.0, "stated", "", "", "", "")


def run_of(steps: dict[Case, float], usd_per_hour: float = 0.0, *more: CaseResult) -> Run:
    cases = [measured(case, *three(step_s)) for case, step_s in steps.items()]
    run = make_run(*cases, *more, machine=GPU_MACHINE)
    return replace(run, summary=replace(run.summary, price=priced(usd_per_hour))) if usd_per_hour else run


def evidence_of(*runs: Run) -> Evidence:
    files = [Path(f"{letter}.db") for letter in "abcdef"]
    return Evidence(
        [Selection(file.name, file, (run,), (), {}) for file, run in zip(files, runs, strict=False)]
    )


def headline(*runs: Run) -> Headline:
    sides = [side_of_runs(f"{letter}.db", [run]) for letter, run in zip("abcdef", runs, strict=False)]
    comparisons = [compare_sides(sides[0], side) for side in sides[1:]]
    return headline_of(comparisons, "", evidence_of(*runs))


def headline_by(dimension: str, *runs: Run) -> Headline:
    sides = sides_by(dimension, runs)
    comparisons = [compare_sides(sides[0], side, ignore=dimension) for side in sides[1:]]
    return headline_of(comparisons, dimension, NO_FILES)


def without_intervals(found: Headline) -> tuple[str, ...]:
    return tuple(re.sub(r" \([^()]* to [^()]*\)", "", sentence) for sentence in found.sentences)


@pytest.mark.parametrize(
    ("a", "b", "said"),
    [
        ((0.064, 3.5), (0.1, 1.75), "b.db is 36 % slower than a.db{} and costs 22 % less per token."),
        ((0.1, 1.0), (0.05, 4.0), "b.db is 2.00x as fast as a.db{}; a.db costs 50 % less per token."),
        ((0.1, 1.0), (0.08, 4.0), "b.db is 25 % faster than a.db{}; a.db costs 69 % less per token."),
        ((0.1, 0.0), (0.01, 0.0), "b.db is 10.0x as fast as a.db{}."),
        ((0.1, 0.0), (0.065, 0.0), "b.db is 1.54x as fast as a.db{}."),
        ((0.1, 0.0), (0.07, 0.0), "b.db is 43 % faster than a.db{}."),
    ],
)
def test_rate_and_cost_stand_in_one_sentence_in_which_no_cost_is_a_factor(
    a: tuple[float, float], b: tuple[float, float], said: str
) -> None:
    (step_a, usd_a), (step_b, usd_b) = a, b
    found = headline(run_of({GPT: step_a}, usd_a), run_of({GPT: step_b}, usd_b))
    assert without_intervals(found) == (said.format(" in GPT training"),)


def test_a_run_beside_itself_has_no_verdict_but_a_word_about_its_name() -> None:
    one = run_of({GPT: 0.1})
    assert headline(one, one) == Headline(
        (f"Both sides are the same run, {one.summary.short_id}: name another for one of them.",)
    )


ON_OTHER_GPUS = [
    replace(GPU_MACHINE, gpus=tuple(replace(gpu, name=name) for gpu in GPU_MACHINE.gpus))
    for name in ("NVIDIA H200", "NVIDIA H100 PCIe", "NVIDIA L4")
]


def on_other_gpus(*runs: Run) -> list[Run]:
    """The same runs on an H200, an H100 PCIe and an L4."""
    return [
        replace(
            run, summary=replace(run.summary, machine=machine, run_id=f"{run.summary.run_id[:-1]}{place}")
        )
        for place, (run, machine) in enumerate(zip(runs, ON_OTHER_GPUS, strict=False))
    ]


def test_boxes_are_called_by_their_gpus_and_the_faster_one_is_named_first_whatever_the_order() -> None:
    faster, slower = on_other_gpus(run_of({GPT: 0.064}, 3.5), run_of({GPT: 0.1}, 1.75))
    said = ("H200 is 1.56x as fast as H100 PCIe in GPT training; H100 PCIe costs 22 % less per token.",)
    assert without_intervals(headline(faster, slower)) == said
    assert without_intervals(headline(slower, faster)) == said
    assert headline(faster, slower).text == headline(slower, faster).text


def test_the_interval_of_the_faster_box_is_that_of_the_row_turned_round() -> None:
    faster, slower = on_other_gpus(run_of({GPT: 0.064}), run_of({GPT: 0.1}))
    estimate = compare_sides(*(side_of_runs("", [run]) for run in (faster, slower))).rows[0].estimate
    assert isinstance(estimate, RatioEstimate)
    ends = f"({1 / estimate.high:.2f} to {1 / estimate.low:.2f})"
    assert f"1.56x as fast as H100 PCIe {ends}" in headline(faster, slower).text
    ends = f"({100 * (1 - estimate.high):.0f} to {100 * (1 - estimate.low):.0f})"
    assert ends in headline(run_of({GPT: 0.064}), run_of({GPT: 0.1})).text


def test_boxes_with_the_same_gpus_are_called_by_how_many_and_then_by_their_files() -> None:
    two = replace(ON_OTHER_GPUS[0], gpus=ON_OTHER_GPUS[0].gpus[:1])
    runs = [run_of({GPT: 0.1}), run_of({GPT: 0.05})]
    more, fewer = (
        replace(
            run, summary=replace(run.summary, machine=machine, run_id=f"{run.summary.run_id[:-1]}{place}")
        )
        for place, (run, machine) in enumerate(zip(runs, (ON_OTHER_GPUS[0], two), strict=True))
    )
    assert headline(more, fewer).text.startswith(
        f"1x H200 is 2.00x as fast as {len(GPU_MACHINE.gpus)}x H200 ("
    )
    assert headline(*runs).text.startswith("b.db is 2.00x as fast as a.db (")


def test_an_interval_over_two_decades_is_called_unknown_and_left_out_of_the_sentence() -> None:
    case = make_case("gpt_train", workload_class="training")
    a, b = (
        make_run(measured(case, *three(s), waited_share=share)) for s, share in ((1.0, 0.99), (0.9, 0.99))
    )
    row = compare_sides(*(side_of_runs("", [run]) for run in (a, b))).rows[0]
    _, low, high = row.rate.ratio or (0.0, 0.0, 0.0)
    assert high > 100 * low > 0
    assert (change_text(row.rate), judgement_text(row.rate)) == ("unknown", "can't tell")
    assert headline(a, b).sentences[0] == "Can't tell a.db and b.db apart in GPT training."


def test_the_same_is_said_with_its_interval() -> None:
    often = [
        [
            replace(run, summary=replace(run.summary, started_utc_us=STARTED_US + hour * 3_600_000_000))
            for hour, run in enumerate(run_of({GPT: 0.1}, usd) for _ in range(20))
        ]
        for usd in (2.0, 1.0)
    ]
    a, b = (side_of_runs(name, runs, pool=True) for name, runs in zip(("a.db", "b.db"), often, strict=True))
    (said,) = headline_of([compare_sides(a, b)], "", NO_FILES).sentences
    assert re.fullmatch(
        r"b\.db is as fast as a\.db \(-0\.\d to \+0\.\d %\) in GPT training and costs 50 % less per token\.",
        said,
    )


def test_where_only_other_runs_would_tell_the_sentence_says_so_and_names_no_launches() -> None:
    said = headline(run_of({GPT: 0.1}), run_of({GPT: 0.099}))
    assert said.sentences[1] == (
        f"Boxes like these differ from themselves by {format_percent(RUN_SD['gpu'])} between runs: "
        "measure again in 20 minutes, then compare --pool."
    )
    assert said.steps == ()


def test_what_is_beyond_its_interval_and_not_sure_enough_for_a_sentence_is_said_so() -> None:
    said = [headline(run_of({GPT: 0.1 * factor}), run_of({GPT: 0.1})).text for factor in (1.0, 1.06, 1.2)]
    starts = (
        r"Can't tell a\.db and b\.db apart in GPT training: b\.db is between \d+ % slower and \d+ % faster\.",
        r"Can't tell a\.db and b\.db apart with 99 % certainty in GPT training: b\.db is [\d.]+ to \d+ % f",
        r"b\.db is 20 % faster than a\.db \(",
    )
    assert [bool(re.match(start, text)) for text, start in zip(said, starts, strict=True)] == [True] * 3, said


def test_what_cannot_be_told_names_the_command_that_would_settle_it_with_its_minutes() -> None:
    a, b = (
        make_run(measured(GPT, steady(step_s)), machine=GPU_MACHINE, price=priced(0.42))
        for step_s in (1.0, 1.04)
    )
    found = headline(a, b)

    assert re.match(
        r"Can't tell a\.db and b\.db apart in GPT training:"
        r" b\.db is between \d+ % slower and \d+ % faster\.$",
        found.text,
    )
    (step_a, step_b) = found.steps
    assert (step_a.box, step_b.box) == ("a", "b")
    assert step_a.usd == pytest.approx(0.42 * step_a.seconds / 3600, rel=0.01)
    command = f"gputui run --like a.db@{a.summary.short_id} --db a.db --only gpt_train:base:amp"
    assert re.fullmatch(rf"{re.escape(command)} --launches \d+", step_a.command)
    assert step_a.seconds > 60


SMALL = replace(GPT, work=replace(GPT.work, size="mini"))
RATE = format_rate(GPT.units_per_step / 0.1, "tok")


@pytest.mark.parametrize(
    ("a", "b", "said"),
    [
        (
            run_of({GPT: 0.1, SMALL: 0.01}),
            run_of({SMALL: 0.02}, 0.0, unmeasured(GPT, "oom")),
            (
                f"GPT training (base): b.db runs out of memory, a.db does {RATE}.",
                "b.db is 50 % slower than a.db in GPT training (mini).",
            ),
        ),
        (
            run_of({DECODE: 0.02}, 0.0, unmeasured(GPT, "failed", "ValueError")),
            run_of({GPT: 0.1, DECODE: 0.01}),
            (
                f"GPT training (base): a.db fails, b.db does {RATE}.",
                "b.db is 2.00x as fast as a.db in text generation.",
            ),
        ),
        (
            run_of({GPT: 0.1}),
            run_of({}, 0.0, unmeasured(GPT, "oom")),
            (f"GPT training (base): b.db runs out of memory, a.db does {RATE}.",),
        ),
        (
            run_of({DECODE: 0.01}, 0.0, unmeasured(GPT, "oom")),
            run_of({DECODE: 0.02}, 0.0, unmeasured(GPT, "oom")),
            ("b.db is 50 % slower than a.db in text generation.",),
        ),
    ],
    ids=["memory of b", "a failure of a", "nothing in common", "neither side"],
)
def test_what_one_side_alone_could_not_measure_comes_first(a: Run, b: Run, said: tuple[str, ...]) -> None:
    assert without_intervals(headline(a, b)) == said


def test_own_steps_and_programs_are_named_as_a_person_would() -> None:
    hashing, nap = (
        make_case(name, workload_class="training", device_class="gpu")
        for name in ("step:hashing", "command:nap")
    )
    for case, name in ((hashing, "your step hashing"), (nap, "your program nap")):
        (said,) = without_intervals(headline(run_of({case: 0.1}), run_of({case: 0.2})))
        assert said == f"b.db is 50 % slower than a.db in {name}."


def test_precisions_of_one_file_are_worth_it_for_some_work() -> None:
    text = replace(DECODE, variant=GPT_FP32.variant)
    for cnn_s, decode_s, rest in (
        (0.13, 0.05, "worth it for text generation too, not for CNN training"),
        (0.13, 0.1, "not for CNN training, can't tell for text generation"),
        (0.07, 0.05, "worth it for CNN training and text generation too"),
    ):
        steps = {GPT_FP32: 0.17, GPT: 0.1, CNN: cnn_s, DECODE: decode_s}
        run = run_of({**steps, replace(CNN, variant=GPT_FP32.variant): 0.1, text: 0.1})
        assert without_intervals(headline_by("precision", run)) == (
            f"GPT training runs 1.70x as fast with amp as with fp32: {rest}.",
        )


def box_with_gpu(gpu: str, cores: int, limited_by: str, steps_s: dict[str, tuple[float, float]]) -> Run:
    """GPT training on the CPU and on the GPU of one box, by precision."""
    cpu = replace(GPU_MACHINE.cpu, usable_cores=cores, limited_by=limited_by)
    cases = []
    for precision, (cpu_s, gpu_s) in steps_s.items():
        on_gpu = replace(GPT, variant=replace(GPT.variant, precision=precision))
        on_cpu = replace(on_gpu, variant=replace(on_gpu.variant, device_class="cpu", threads="all"))
        cases += [measured(on_cpu, *three(cpu_s)), measured(on_gpu, *three(gpu_s), device_name=gpu)]
    numbered = [replace(case, case_id=place) for place, case in enumerate(cases)]
    return make_run(*numbered, machine=replace(GPU_MACHINE, cpu=cpu))


@pytest.mark.parametrize(
    ("box", "said"),
    [
        (
            ("Tesla T4", 4, "host", {"fp32": (7.0, 0.2), "amp": (6.0, 0.1)}),
            "60.0x as fast on the GPU (Tesla T4) as on the CPU (4 cores).",
        ),
        (
            ("NVIDIA L4", 2, "cgroup", {"fp32": (4.0, 0.4), "amp": (3.0, 0.2)}),
            "15.0x as fast on the GPU (NVIDIA L4) as on the CPU (2 cores).",
        ),
        (
            ("NVIDIA GeForce MX150", 8, "host", {"fp32": (0.5, 0.8), "amp": (0.5, 1.0)}),
            "50 % slower on the GPU (NVIDIA GeForce MX150) than on the CPU (8 cores).",
        ),
    ],
    ids=["T4 beside 4 cores", "a container of 2 cores", "a laptop"],
)
def test_cpu_against_gpu_is_right_in_direction_and_size_and_says_how_many_cores_there_are(
    box: tuple[str, int, str, dict[str, tuple[float, float]]], said: str
) -> None:
    sentence = re.sub(r" \([^()]* to [^()]*\)", "", headline_by("device", box_with_gpu(*box)).text)
    assert sentence == f"GPT training with amp runs {said}"


def test_cpu_against_a_gpu_that_was_throttled_says_so() -> None:
    run = box_with_gpu("Tesla T4", 4, "host", {"amp": (6.0, 0.1)})
    nothing = Missing("not read")
    throttled = CaseConditions(0, 60, nothing, nothing, 0.6, nothing, nothing, nothing)
    a, b = sides_by("device", [run])
    comparison = with_telemetry(compare_sides(a, b, ignore="device"), conditions=lambda *_: throttled)
    said = headline_of([comparison], "device", NO_FILES)
    assert said.sentences[-1] == "The GPU was slowed by heat or a power brake for 60 % of gpu's time."


def test_three_boxes_are_ranked_and_those_that_overlap_tie() -> None:
    runs = (run_of({GPT: 0.1}, 2.0), run_of({GPT: 0.1}, 1.0), run_of({GPT: 0.05}, 8.0))
    rates = [format_rate(GPT.units_per_step / s, "tok") for s in (0.05, 0.1)]
    assert headline(*runs).sentences == (
        f"GPT training, fastest first: c.db at {rates[0]}, then a.db and b.db (a tie) at {rates[1]}.",
        "Cheapest per token first: b.db, then a.db, then c.db.",
    )


def test_none_of_three_boxes_is_called_the_fastest_where_all_overlap_or_only_two_measured_a_case() -> None:
    alike = [run_of({GPT: 0.1}, 2.0) for _ in range(3)]
    rate = format_rate(GPT.units_per_step / 0.1, "tok")
    assert headline(*alike).sentences == (f"GPT training: can't tell a.db, b.db and c.db apart, {rate}.",)

    without = run_of({DECODE: 0.1})
    first, *_ = headline(alike[0], without, run_of({GPT: 0.05})).sentences
    assert first.startswith("GPT training, fastest first: c.db at ")
    assert "b.db" not in first
    assert headline(alike[0], without, without).is_empty


def test_boxes_without_a_common_case_lead_to_the_command_that_gives_them_one() -> None:
    a, b = run_of({GPT_ON_CPU: 0.1}), run_of({GPT: 0.1})
    found = headline(a, b)

    assert found.text == "Nothing to compare: a.db and b.db measured no case in common."
    (step,) = found.steps
    assert (step.box, step.command) == ("b", f"gputui run --like a.db@{a.summary.short_id} --db b.db")
    assert found.purpose == "to compare"


def test_the_case_by_which_boxes_are_ranked_is_one_that_each_measured() -> None:
    a, b = (run_of({GPT: step_s, DECODE: step_s}) for step_s in (0.1, 0.05))
    first = headline(a, b, run_of({DECODE: 0.02})).sentences[0]
    assert first.startswith("Text generation, fastest first: c.db at ")
    assert headline(a, run_of({DECODE: 0.02}), b).sentences[0].startswith("Text generation, fastest first: b")


@pytest.mark.parametrize("cases", [(GEMM, DECODE, GPT), (GPT, GEMM, DECODE)])
def test_the_main_case_is_training_wherever_it_stands(cases: Sequence[Case]) -> None:
    steps = dict.fromkeys(cases, 0.1)
    first = headline(run_of(steps), run_of(steps)).sentences[0]
    assert first.startswith("Can't tell a.db and b.db apart in GPT training: ")


def test_a_cpu_is_named_only_beside_a_gpu() -> None:
    on_cpu = replace(GPT, variant=replace(GPT.variant, device_class="cpu", threads="all"))
    alone = [make_run(measured(on_cpu, *three(s)), machine=CPU_MACHINE) for s in (0.1, 0.2)]
    assert without_intervals(headline(*alone)) == ("b.db is 50 % slower than a.db in GPT training.",)
    both = [run_of({on_cpu: s, GPT: s / 10}) for s in (0.1, 0.2)]
    assert without_intervals(headline(*both)) == (
        "b.db is 50 % slower than a.db in GPT training on the GPU.",
    )
    assert without_intervals(headline(*on_other_gpus(*both)))[0] == (
        "H200 is 2.00x as fast as H100 PCIe in GPT training."
    )


def test_of_three_precisions_the_best_is_weighed_and_the_others_are_beside_it() -> None:
    tf32 = gpu_case("gpt_train", "training", "tok", precision="tf32")
    found = headline_by("precision", run_of({GPT_FP32: 0.26, tf32: 0.143, GPT: 0.1}))
    assert found.sentences[0].startswith("GPT training runs 2.60x as fast with amp as with fp32 (")
    assert found.sentences[1].startswith("With tf32: 1.82x as fast (")


def test_a_comparison_of_a_busy_box_says_so_and_decides_nothing_by_the_clock() -> None:
    def busy(step_s: float, share: float) -> Run:
        return make_run(measured(GPT_ON_CPU, *three(step_s), waited_share=share))

    said = headline(busy(1.0, 0.4), busy(0.1, 0.0)).sentences
    doubt = "Measured on a busy box: CPU contention from other processes for 40 % of a.db's"
    assert said[1] == f"{doubt} time; rates are without it."
    for share, rest in (
        (0.3, "; rates are without it"),
        (0.6, "; in GPT training the rate of b.db is what the box gave"),
    ):
        found = headline(busy(1.0, 0.4), busy(2.0, share))
        assert found.sentences[1:] == (f"{doubt} and {100 * share:.0f} % of b.db's time{rest}.",)
    assert effort_words(found.steps).endswith(" on each box when it is idle")
    assert headline(busy(9.0, 0.0), busy(0.1, 0.7)).text.startswith("Can't tell a.db and b.db apart in GPT")


def test_precisions_of_one_run_are_measured_again_together() -> None:
    single, mixed = (
        measured(make_case("gemm", precision=precision), *three(1.0), waited_share=0.4)
        for precision in ("fp32", "amp")
    )
    run = make_run(single, replace(mixed, case_id=1))
    comparison = compare_sides(*sides_by("precision", [run]), ignore="precision")
    (step,) = settling_steps(comparison.rows[0], evidence_of(run))
    assert " --only gemm:mini --launches " in step.command


def test_values_without_a_common_case_are_not_called_boxes() -> None:
    run = run_of({replace(CNN, variant=GPT_FP32.variant): 0.1, GPT: 0.1})
    assert headline_by("precision", run).text == (
        "Nothing to compare: fp32 and amp measured no case in common."
    )


def test_one_undecided_kind_of_work_is_not_said_twice(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("gputui.services.compare.headline.settling_steps", lambda row, evidence: ())
    run = make_run(*(measured(case, steady(s)) for case, s in ((GPT_FP32, 0.105), (GPT, 0.1))))
    said = headline_by("precision", run).sentences[0]
    assert said.lower().count("can't tell") == 1


def test_a_second_case_whose_rate_is_open_is_named_by_its_cost_alone() -> None:
    runs = [
        make_run(
            measured(GPT, *three(step_s)),
            measured(CNN, steady(0.1 * other)),
            machine=GPU_MACHINE,
            price=priced(usd),
        )
        for step_s, other, usd in ((0.1, 1.0, 2.0), (0.25, 1.01, 1.0))
    ]
    assert headline(*runs).sentences[1] == (
        "b.db costs 50 % less per image in CNN training (can't tell which is faster): take b.db for that."
    )


def fastest(*step_s: float) -> str:
    """Of boxes whose steps take so long."""
    sides = [side_of_runs(f"{place}.db", [run_of({GPT: seconds})]) for place, seconds in enumerate(step_s)]
    rows = {
        letter: compare_sides(sides[0], side).rows[0] for letter, side in zip("bcd", sides[1:], strict=False)
    }
    return fastest_text(next(iter(rows.values())).a, rows)


def test_the_fastest_of_several_is_named_with_those_that_tie_with_it() -> None:
    assert fastest(0.1, 0.12, 0.05) == "c"
    assert fastest(0.1, 0.12) == "a"
    assert fastest(0.1, 0.05, 0.0502, 0.2) == "b or c"
    assert fastest(0.1, 0.1002) == "can't tell"
    assert fastest(0.1, 0.1) == "can't tell"


def test_what_is_too_little_to_matter_ties_even_where_intervals_lie_apart() -> None:
    cases = [gpu_case("gpt_train", "training", "tok", precision=precision) for precision in PRECISIONS]
    run = make_run(
        *(
            measured(case, *(steady(step_s * (1 + 1e-5 * launch)) for launch in range(40)))
            for case, step_s in zip(cases, (0.1, 0.0997, 0.2), strict=True)
        ),
        machine=GPU_MACHINE,
    )
    fp32, *others = sides_by("precision", [run])
    rows = {
        letter: compare_sides(fp32, side, ignore="precision").rows[0]
        for letter, side in zip("bc", others, strict=True)
    }
    assert rows["b"].rate.word == "same"
    assert fastest_text(rows["b"].a, rows) == "a or b"


def test_a_case_that_differs_as_the_main_one_does_is_not_named_and_one_that_speaks_against_it_is() -> None:
    alike = headline(run_of({GPT: 0.1, CNN: 0.1}), run_of({GPT: 0.05, CNN: 0.052}))
    assert len(alike.sentences) == 1
    more = headline(run_of({GPT: 0.1, CNN: 0.1}), run_of({GPT: 0.05, CNN: 0.02}))
    assert without_intervals(more)[1] == "b.db is 5.00x as fast as a.db in CNN training."
    assert "take" not in more.sentences[1]
    against = headline(run_of({GPT: 0.1, CNN: 0.1}), run_of({GPT: 0.05, CNN: 0.2}))
    assert against.sentences[1].endswith(": take a.db for that.")
    peak = headline(run_of({GPT: 0.1, CNN: 0.1, GEMM: 0.1}), run_of({GPT: 0.05, CNN: 0.02, GEMM: 0.002}))
    assert without_intervals(peak)[1] == "b.db is 5.00x as fast as a.db in CNN training."
    alone = headline(run_of({GPT: 0.1, GEMM: 0.1}), run_of({GPT: 0.05, GEMM: 0.002}))
    assert without_intervals(alone)[1] == "b.db is 50.0x as fast as a.db in matmul (gemm)."


# What would turn the answer round


@pytest.mark.parametrize(
    ("a", "b", "expected"),
    [
        (
            run_of({GPT: 0.064, DECODE: 0.044}, 3.5),
            run_of({GPT: 0.1, DECODE: 0.1}, 1.75),
            [
                "if b.db costs $2.24/h or more: a.db is cheaper per token",
                (
                    "for text generation: b.db is 56 % slower than a.db;"
                    " a.db costs 12 % less per token: take a.db"
                ),
            ],
        ),
        (
            run_of({GPT: 0.1}, 1.0),
            run_of({GPT: 0.05}, 4.0),
            ["if b.db costs $2.00/h or less: b.db is cheaper per token"],
        ),
        (
            run_of({GPT: 0.064}),
            run_of({GPT: 0.1}),
            ["if b.db costs less than 64 % of a.db: b.db is cheaper per token"],
        ),
        (
            run_of({GPT: 0.1}),
            run_of({GPT: 0.02}),
            ["if b.db costs less than 5.00 times a.db: b.db is cheaper per token"],
        ),
        (run_of({GPT: 0.1}, 2.0), run_of({GPT: 0.1}, 1.0), []),
    ],
    ids=["both", "dearer", "no price and slower", "no price and faster", "undecided"],
)
def test_the_price_at_which_costs_are_even_and_the_case_that_speaks_against_it_turn_the_answer(
    a: Run, b: Run, expected: list[str]
) -> None:
    comparison = compare_sides(side_of_runs("a.db", [a]), side_of_runs("b.db", [b]))
    found = [re.sub(r" \([\d.]+ to [\d.]+\)", "", one) for one in turning_points(comparison)]
    assert found == expected
