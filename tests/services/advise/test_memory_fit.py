"""The memory of a training step by formula: against the textbook, and against measured steps."""

from __future__ import annotations

import json
import subprocess
import sys
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Any  # JSON

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from journals import journal_lines, make_case, write_lines

from gputui.analysis.fit import (
    GIB,
    NO_TRICK,
    PRECISIONS,
    STATES_PER_WEIGHT,
    Shape,
    Training,
    Tricks,
    _moments,
    activation_parts,
    all_at_once,
    fit,
    gpt_shape,
    largest_batch,
    layer_bytes_per_token,
    needed_bytes,
    peak_of,
    state_bytes,
    with_batch,
)
from gputui.analysis.inference_fit import decoder
from gputui.errors import EXIT_USAGE, GputuiError
from gputui.model.absent import Missing
from gputui.model.journal import (
    CaseEnd,
    Figure,
    LaunchEnd,
    LaunchStart,
    Line,
    MemoryPoint,
    Operator,
    ProfiledPass,
    TimeSlice,
)
from gputui.model.plan import PROFILED, Case
from gputui.services.advise.gpu_choice import Wish, whole_number
from gputui.services.advise.memory_fit import FitReport, report
from gputui.services.advise.published_models import model_named, typical_shape
from gputui.store.journal_reader import read_journal
from gputui.store.writing import store_run
from gputui.worker.workloads.gpt_train import BASE, MEDIUM, MINI

PROGRAM = Path(__file__).parents[2] / "makers" / "measured_steps.py"
NARROW = {"layers": 3, "heads": 4, "width": 256, "context": 128, "vocabulary": 2048, "batch": 4}
FEW_TOKENS = {"layers": 4, "heads": 4, "width": 256, "context": 16, "vocabulary": 512, "batch": 1}
MINI_OF_2 = {
    "layers": MINI.layers,
    "heads": MINI.heads,
    "width": MINI.width,
    "context": MINI.context,
    "vocabulary": MINI.vocabulary,
    "batch": 2,
}
GATED = {**NARROW, "layers": 4, "vocabulary": 512, "hidden": 688}
GPT2_XL = gpt_shape(48, 1600, 50257, 1024)
TRICKS = {
    "none": NO_TRICK,
    "checkpoint": Tricks(checkpoint=True),
    "accumulate": Tricks(pieces=4),
}


def step(workload: str, precision: str, parameters: dict[str, int], trick: str = "") -> dict[str, Any]:
    extra = {"trick": trick, "parts": TRICKS[trick].pieces} if trick else {}
    return {"workload": workload, "precision": precision, "parameters": {**parameters, **extra}}


WORKLOAD_STEPS = (
    step("gpt_train", "fp32", MINI_OF_2),
    step("gpt_train", "amp", MINI_OF_2),
    step("gpt_train", "fp32", NARROW),
    step("gpt_train", "amp", NARROW),
    step("gpt_train", "fp32", FEW_TOKENS),
    step("gpt_train", "amp", FEW_TOKENS),
    step("memory_tricks", "fp32", MINI_OF_2, "checkpoint"),
    step("memory_tricks", "amp", NARROW, "checkpoint"),
    step("memory_tricks", "fp32", NARROW, "accumulate"),
    step("memory_tricks", "amp", NARROW, "accumulate"),
)
MODEL_STEPS: tuple[dict[str, Any], ...] = (
    *(
        {"optimizer": name, "precision": precision, "parameters": FEW_TOKENS}
        for name in STATES_PER_WEIGHT
        for precision in ("fp32", "bf16")
    ),
    {"optimizer": "adamw", "precision": "bf16", "parameters": NARROW},
    *({"optimizer": "adamw", "precision": p, "parameters": GATED} for p in ("fp32", "amp", "bf16")),
)


@cache
def measured(of_workloads: bool) -> tuple[dict[str, Any], ...]:
    """The steps of one kind, measured in one process: most of the time goes to starting torch."""
    words = map(json.dumps, WORKLOAD_STEPS if of_workloads else MODEL_STEPS)
    done = subprocess.run(
        [sys.executable, str(PROGRAM), *words], capture_output=True, text=True, check=False, timeout=300
    )
    assert done.returncode == 0, done.stderr
    return tuple(json.loads(done.stdout.splitlines()[-1]))


def training_of(request: dict[str, Any]) -> tuple[Training, Tricks]:
    p = request["parameters"]
    hidden = p.get("hidden", 4 * p["width"])
    is_gated = "hidden" in p
    blocks = Shape(
        "",
        p["layers"],
        p["width"],
        p["heads"],
        p["heads"],
        p["width"] // p["heads"],
        hidden,
        p["vocabulary"],
        p["context"],
        is_gated,
        not is_gated,
    )
    training = Training(
        blocks.parameters,
        request.get("optimizer", "adamw"),
        PRECISIONS[request["precision"]],
        blocks,
        p["batch"],
        p["context"],
    )
    return training, TRICKS[p.get("trick", "none")]


def described(request: dict[str, Any]) -> str:
    p = request["parameters"]
    what = request.get("workload", request.get("optimizer"))
    return f"{what}-{request['precision']}-{p['layers']}x{p['width']}-{p.get('trick', p.get('hidden', ''))}"


@pytest.mark.slow
@pytest.mark.parametrize("number", range(len(WORKLOAD_STEPS)), ids=lambda n: described(WORKLOAD_STEPS[n]))
def test_the_formula_is_within_10_percent_of_a_measured_step(number: int) -> None:
    training, tricks = training_of(WORKLOAD_STEPS[number])
    found = measured(True)[number]
    computed = peak_of(training, tricks).parts
    state = state_bytes(training.params, training.optimizer, training.precision)
    tensors = 12 * training.blocks.layers + 4
    assert found["start"]["weights"] == state.weights
    assert found["start"]["gradients"] == state.gradients
    assert found["start"]["optimizer"] == state.optimizer + 4 * tensors  # one step count for each
    assert computed.total == pytest.approx(sum(found["peak"].values()), rel=0.1)
    if tricks == NO_TRICK:
        whole = activation_parts(training)
        kept = whole.activations + whole.copies + whole.loss
        assert kept == pytest.approx(found["after_forward"]["activations"], rel=0.01)


@pytest.mark.slow
@pytest.mark.parametrize("number", range(len(MODEL_STEPS)), ids=lambda n: described(MODEL_STEPS[n]))
def test_weights_gradients_and_state_of_every_optimizer_are_exact(number: int) -> None:
    training, _ = training_of(MODEL_STEPS[number])
    found = measured(False)[number]
    state = state_bytes(training.params, training.optimizer, training.precision)
    assert found["kept"] == {
        "parameters": training.blocks.parameters,
        "weights": state.weights,
        "gradients": state.gradients,
        "optimizer": state.optimizer,
    }
    if training.optimizer in ("adam", "adamw"):  # the fused ones, which need no temporaries
        total = peak_of(training).parts.total
        assert total == pytest.approx(sum(found["peak"].values()), rel=0.1)


def test_the_textbook_sum_of_ten_billion_weights_is_180_gb_and_no_80_gb_gpu_holds_it() -> None:
    ten = Training(
        10**10,
        "adam",
        PRECISIONS["fp32"],
        typical_shape(10**10),
        1,
        2048,
        stated_activations_bytes=20 * 10**9,
    )
    parts = all_at_once(ten)
    assert (parts.weights, parts.activations, parts.gradients, parts.optimizer) == (
        40 * 10**9,
        20 * 10**9,
        40 * 10**9,
        80 * 10**9,
    )
    assert parts.total == peak_of(ten).parts.total == 180 * 10**9
    verdict = fit(ten, 80 * GIB)
    assert verdict.word == "several GPUs"
    assert verdict.tricks.gpus == 3
    assert verdict.largest_batch == 0
    assert isinstance(verdict.largest_batch_checkpoint, Missing)


def test_mixed_precision_with_a_master_copy_takes_the_16_bytes_per_weight_of_zero() -> None:
    parts = state_bytes(1000, "adam", PRECISIONS["mixed"])
    assert (parts.weights, parts.gradients, parts.optimizer) == (2000, 2000, 12000)


def test_a_16_bit_block_keeps_what_korthikanti_counts_but_for_dropout_masks_and_the_square() -> None:
    blocks = gpt_shape(1, 12288, 50257, 2048)
    statistics = 16 + 4 * blocks.heads
    kept = layer_bytes_per_token(blocks, PRECISIONS["bf16"]) - statistics
    masks = 2 * blocks.width
    assert kept + masks == 34 * blocks.width


@pytest.mark.parametrize("shape", [BASE, MEDIUM])
def test_a_stated_shape_has_the_weights_of_the_model_of_gpt_train(shape: Any) -> None:
    blocks = gpt_shape(shape.layers, shape.width, shape.vocabulary, shape.context)
    assert blocks.heads == shape.heads
    layer = 12 * shape.width**2 + 13 * shape.width
    ends = (shape.vocabulary + shape.context + 2) * shape.width
    assert blocks.parameters == shape.layers * layer + ends


trainings = st.builds(
    lambda shape, precision, optimizer, batch, context: Training(
        shape.parameters, optimizer, PRECISIONS[precision], shape, batch, context
    ),
    st.sampled_from([GPT2_XL, *map(model_named, ("SmolLM2 135M", "Llama 2 7B", "Qwen3 30B-A3B"))]),
    st.sampled_from(list(PRECISIONS)),
    st.sampled_from(list(STATES_PER_WEIGHT)),
    st.integers(1, 64),
    st.integers(1, 8192),
)


@settings(deadline=None, derandomize=True)
@given(trainings, st.integers(6, 288))
def test_what_is_reported_to_fit_does_and_one_sequence_more_than_the_largest_batch_does_not(
    training: Training, gib: int
) -> None:
    verdict = fit(training, gib * GIB)
    low, high = verdict.needed_bytes
    assert low < high
    if verdict.word in ("fits", "with tricks", "several GPUs"):
        assert high <= gib * GIB
    if verdict.word == "fits":
        assert verdict.tricks == NO_TRICK
        assert verdict.largest_batch >= training.batch
    else:
        assert verdict.largest_batch < training.batch
    if verdict.word == "does not fit":
        assert low > gib * GIB
    one_more = with_batch(training, verdict.largest_batch + 1)
    assert needed_bytes(one_more)[1] > gib * GIB


@settings(deadline=None, derandomize=True)
@given(trainings)
def test_more_of_a_trick_never_needs_more(training: Training) -> None:
    spread = [needed_bytes(training, Tricks(gpus=n))[1] for n in (2, 3, 8, 64, 1024)]
    assert spread == sorted(spread, reverse=True)
    cut = [needed_bytes(training, Tricks(pieces=n))[1] for n in (2, 4, training.batch * 2)]
    assert cut == sorted(cut, reverse=True)
    batches = [needed_bytes(with_batch(training, n))[1] for n in (1, 2, 5, 100)]
    assert batches == sorted(batches)


@pytest.mark.parametrize("is_gated", [False, True])
def test_the_backward_pass_of_a_block_holds_its_gradients_and_its_mlp(is_gated: bool) -> None:
    blocks = Shape("", 3, 64, 1, 1, 64, 172, 1000, 128, is_gated, not is_gated)
    training = Training(blocks.parameters, "adamw", PRECISIONS["fp32"], blocks, 2, 128)
    found = {peak.moment: peak.parts for peak in _moments(training, NO_TRICK)}
    first, last = found["the first block, backward"], found["the last block, backward"]
    hidden_at_once, products_to_come = (3, 2) if is_gated else (1, 1)
    assert first.temporary == last.temporary == 2 * 128 * (64 + hidden_at_once * 172) * 4
    to_come = (4 * 64**2 + products_to_come * 64 * 172) * 4
    assert first.gradients == 4 * blocks.parameters - to_come
    assert last.gradients == (1000 * 64 + 64 * 172) * 4


def test_the_tricks_are_tried_in_the_order_of_what_they_cost() -> None:
    shape = GPT2_XL
    training = Training(shape.parameters, "adamw", PRECISIONS["amp"], shape, 16, 1024)
    words = [(fit(training, gib * GIB).word, fit(training, gib * GIB).tricks) for gib in (8, 32, 141)]
    assert words[0][0] == "several GPUs"
    assert words[1] == ("with tricks", replace(words[1][1], checkpoint=False, offload=False, gpus=1))
    assert words[1][1].pieces > 1
    assert words[2] == ("fits", NO_TRICK)


def test_before_a_model_is_spread_activations_are_recomputed_and_the_fewest_gpus_are_taken() -> None:
    shape = GPT2_XL
    alone = Training(shape.parameters, "adamw", PRECISIONS["amp"], shape, 1, 4096)
    high = needed_bytes(alone, Tricks(checkpoint=True))[1]
    assert fit(alone, high).tricks == Tricks(checkpoint=True)

    wide = Training(shape.parameters, "adamw", PRECISIONS["amp"], shape, 64, 4096)
    spread = fit(wide, 16 * GIB)
    assert spread.word == "several GPUs"
    fewer = replace(spread.tricks, gpus=spread.tricks.gpus - 1)
    assert needed_bytes(wide, fewer)[1] > 16 * GIB
    assert (spread.tricks.checkpoint, spread.tricks.pieces) == (True, 64)


def test_nothing_can_be_done_for_a_model_that_a_thousand_gpus_do_not_hold() -> None:
    training = Training(10**14, "adamw", PRECISIONS["fp32"], typical_shape(10**14), 1, 2048)
    verdict = fit(training, 80 * GIB)
    assert verdict.word == "does not fit"
    assert verdict.largest_batch == 0


@settings(deadline=None, derandomize=True)
@given(trainings, st.integers(6, 288))
def test_the_largest_batch_with_checkpointing_is_no_smaller_where_activations_are_what_counts(
    training: Training, gib: int
) -> None:
    plain = largest_batch(training, gib * GIB)
    if plain >= 8:
        assert largest_batch(training, gib * GIB, Tricks(checkpoint=True)) >= plain


# User input


WISH = Wish(params="7e9")


@pytest.mark.parametrize(
    ("text", "value"),
    [("7e9", 7 * 10**9), ("7B", 7 * 10**9), ("1.5b", 15 * 10**8), ("124M", 124 * 10**6), ("8", 8)],
)
def test_amounts_are_read_as_people_write_them(text: str, value: int) -> None:
    assert whole_number("--params", text, 10**14) == value


@pytest.mark.parametrize(
    "text", ["", "x", "-7", "0", "1.5", "nan", "inf", "1e400", "7q", "1e15", "1..2", "7 B"]
)
def test_what_is_no_amount_is_refused_with_the_option_and_the_value(text: str) -> None:
    with pytest.raises(GputuiError) as caught:
        whole_number("--params", text, 10**14)
    assert caught.value.exit_code == EXIT_USAGE
    assert caught.value.message.startswith("--params: ")
    assert text in caught.value.message
    assert caught.value.hint


@pytest.mark.parametrize(
    ("most", "expected"),
    [(2**20, "from 1 to 1048576"), (10**7, "from 1 to 10000000"), (10**14, "from 1 to 1e14")],
)
def test_a_limit_is_shown_with_every_digit_and_can_be_typed(most: int, expected: str) -> None:
    with pytest.raises(GputuiError) as caught:
        whole_number("--batch", "0", most)
    assert caught.value.hint == expected
    assert whole_number("--batch", expected.split()[-1], most) == most


@settings(deadline=None, derandomize=True)
@given(st.text(max_size=12))
def test_any_text_is_an_amount_or_an_error_of_ours(text: str) -> None:
    try:
        value = whole_number("--batch", text, 10**6)
    except GputuiError:
        value = 1
    assert 1 <= value <= 10**6


def test_without_a_shape_the_nearest_usual_one_is_taken_and_reported() -> None:
    found = report(WISH)
    assert found.work.blocks.name == "Llama 2 7B"
    assert found.work.params == 7 * 10**9
    assert found.work.context == 4096
    assert found.notes == ("32 layers x 32 KV heads x 128 as in Llama 2 7B", "4096 tokens")
    assert found.measured is None


def test_a_shape_alone_gives_the_weights_and_one_that_contradicts_params_is_reported() -> None:
    alone = report(replace(WISH, params=None, layers="12", width="768"))
    assert alone.work.blocks == decoder(12, 768, 128256)
    assert alone.work.params == alone.work.blocks.parameters
    torn = report(replace(WISH, layers="12", width="768"))
    assert torn.work.params == 7 * 10**9
    assert any("weights by --params 7e9" in note for note in torn.notes)


@pytest.mark.parametrize(
    ("change", "message", "hint"),
    [
        ({"gpu": "H210"}, "--gpu: unknown GPU 'H210'", "H200"),
        ({"gpu": ""}, "--gpu: unknown GPU ''", "--all"),
        ({"gpu": "Apple M2"}, "--gpu: Apple M2", "--all"),
        ({"optimizer": "adamwx"}, "--optimizer: unknown optimizer 'adamwx'", "did you mean adamw?"),
        ({"precision": "fp7"}, "--precision: unknown precision 'fp7'", "--infer also fp16"),
        ({"batch": "0"}, "--batch: 0 is out of range", "from 1"),
        ({"context": "1.5"}, "--context: must be a whole number, got '1.5'", "2048"),
        ({"layers": "12"}, "--layers and --width", "both"),
        ({"layers": "0", "width": "768"}, "--layers: 0 is", "from 1"),
        ({"params": None}, "the size of the model is missing", "--params"),
        ({"vocabulary": "none"}, "--vocabulary: must", "2048"),
        ({"activations": "-1"}, "--activations: -1 is out of range", "from 0"),
        ({"activations": "1e9", "file": "a.db"}, "--activations and --file", "one"),
    ],
)
def test_each_bad_value_is_an_error_that_names_it(
    change: dict[str, str | None], message: str, hint: str
) -> None:
    with pytest.raises(GputuiError) as caught:
        report(replace(WISH, **change))  # type: ignore[arg-type]
    assert caught.value.exit_code == EXIT_USAGE
    assert caught.value.message.startswith(message)
    assert hint in caught.value.hint


# Activations from a result file


def gpt_case(workload: str = "gpt_train", precision: str = "fp32", **more: int | str) -> Case:
    case = make_case(workload, precision=precision)
    return replace(case, work=replace(case.work, parameters=tuple(sorted({**NARROW, **more}.items()))))


def stored(tmp_path: Path, case: Case, **bytes_at_peak: float) -> str:
    """A result file of one case with metrics as `memory_tricks` reports them."""
    lines: list[Line] = []
    for line in journal_lines(cases=(case,), skipped=()):
        if isinstance(line, CaseEnd):
            lines += [
                Figure(line.launch_id, 0, f"{part}_at_peak_bytes", part, "B", "neither", "max", value, 1)
                for part, value in bytes_at_peak.items()
            ]
        lines.append(line)
    db = tmp_path / "a.db"
    store_run(db, read_journal(write_lines(tmp_path / "run", lines)), ())
    return str(db)


def with_file(file: str, precision: str = "fp32") -> FitReport[Training]:
    return report(replace(WISH, file=file, precision=precision))


def test_measured_activations_scale_the_formula(tmp_path: Path) -> None:
    formula = peak_of(training_of(step("gpt_train", "fp32", NARROW))[0]).parts
    logits = formula.loss // 3
    file = stored(
        tmp_path,
        gpt_case("memory_tricks", trick="none"),
        activations=1.2 * formula.activations + logits,
        gradients=0,
    )
    found = with_file(file)
    assert found.measured is not None
    assert found.measured.ratio == pytest.approx(1.2)
    assert "memory_tricks mini fp32 on Xeon" in found.measured.where
    by_formula, parts = (all_at_once(one.work) for one in (report(replace(WISH, precision="fp32")), found))
    assert parts.activations == pytest.approx(1.2 * by_formula.activations)
    assert parts.weights == by_formula.weights


@pytest.mark.slow
@pytest.mark.parametrize("number", [0, 1, 2, 3], ids=lambda n: described(WORKLOAD_STEPS[n]))
def test_a_peak_that_was_really_measured_says_that_the_formula_is_right(tmp_path: Path, number: int) -> None:
    request = WORKLOAD_STEPS[number]
    case = gpt_case("memory_tricks", request["precision"], trick="none", **request["parameters"])
    peak = measured(True)[number]["peak"]
    found = with_file(stored(tmp_path, case, **peak), request["precision"])
    assert found.measured is not None
    assert found.measured.ratio == pytest.approx(1, abs=0.1)


def test_a_profiled_pass_shows_activations_after_the_forward_pass_and_is_preferred(tmp_path: Path) -> None:
    case = gpt_case("gpt_train")
    whole = activation_parts(training_of(step("gpt_train", "fp32", NARROW))[0])
    kept = round(0.9 * whole.activations) + whole.loss
    profiled = ProfiledPass(
        launch_id=7,
        case_id=0,
        is_valid=True,
        reason="",
        steps=1,
        window_ns=10,
        events=1,
        event_cost_ns=0,
        unmatched_ns=0,
        operators=(Operator("forward", "gemm", "aten::mm", "", "", 1, 1, 10, 10, 0),),
        slices=(TimeSlice("forward", "compute", "", 10),),
        kernels=(),
        memory=(MemoryPoint("after_forward", 1, 0, 2, kept, 0, 0, Missing("not told")),),
        memory_reason="",
        trace_bytes=0,
    )
    lines = journal_lines(cases=(case,), skipped=())
    started = LaunchStart(7, 0, (0,), 1, 20.0, 90_000_000_000, PROFILED)
    ended = LaunchEnd(7, "ok", "", 0, "", 90_000_000_005)
    run = write_lines(tmp_path / "run", [*lines[:-1], started, profiled, ended, lines[-1]])
    store_run(tmp_path / "a.db", read_journal(run), ())
    found = with_file(f"{tmp_path / 'a.db'}@latest")
    assert found.measured is not None
    assert found.measured.ratio == pytest.approx(0.9, rel=1e-6)


def test_a_file_of_another_precision_or_trick_or_of_a_late_peak_has_nothing_to_say(tmp_path: Path) -> None:
    cases = {
        "precision": (gpt_case("memory_tricks", precision="amp", trick="none"), 0.0),
        "trick": (gpt_case("memory_tricks", trick="checkpoint"), 0.0),
        "late": (gpt_case("memory_tricks", trick="none"), 4.0 * 2_926_848),
        "other": (gpt_case("gemm"), 0.0),
    }
    for name, (case, gradients) in cases.items():
        (tmp_path / name).mkdir()
        file = stored(tmp_path / name, case, activations=3e7, gradients=gradients)
        with pytest.raises(GputuiError) as caught:
            with_file(file)
        assert caught.value.exit_code == EXIT_USAGE
        assert "holds no activations" in caught.value.message
        assert "gputui run memory" in caught.value.hint
