"""The contract of every workload, and the correctness of its results."""

from __future__ import annotations

import copy
import hashlib
import json
import math
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Callable
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Any  # torch's own types

import pytest
import torch
from torch.utils._python_dispatch import TorchDispatchMode

import gputui
from gputui.model.units import RATES
from gputui.services.advise.rent import ANSWERS
from gputui.worker import (
    contract,
    steps,
)
from gputui.worker.contract import (
    Figure,
    Parameter,
    Precision,
    Request,
    Size,
    Step,
    Unsupported,
    Workload,
)
from gputui.worker.flops import LlamaShape, ResNetShape, TextShape
from gputui.worker.models import Encoder, Gpt, Llama, Lstm, ResNet, Style, shown
from gputui.worker.steps import resolve
from gputui.worker.workloads import WORKLOADS, spin, workload_named, xfer
from gputui.worker.workloads.classifiers import classifier_and_input

torch.set_num_threads(1)  # tiny steps do not benefit from more, and on a busy box threads wait for each other

TINY_TEXT: dict[str, Parameter] = {"layers": 2, "heads": 2, "width": 32, "context": 16, "vocabulary": 64}
TINY_LSTM: dict[str, Parameter] = {
    "layers": 2,
    "width": 32,
    "context": 16,
    "vocabulary": 64,
    "batch": 4,
    "learning_rate": 1e-2,
}
TINY_IMAGE: dict[str, Parameter] = {"model": "resnet-basic-1-1-1-1", "image": 32, "classes": 10}

TINY: dict[str, dict[str, Parameter]] = {
    "gemm": {"m": 96, "n": 64, "k": 80},
    "burn": {"n": 96},
    "loader": TINY_IMAGE | {"batch": 4, "pictures": 4, "height": 32, "width": 48},
    "memory_tricks": TINY_TEXT | {"batch": 4},
    "membw": {"elements": 3 * 2**19},
    "conv_train": {"model": "resnet-basic-1-1-1-1", "image": 32, "classes": 10, "batch": 8},
    "bert_ft": TINY_TEXT | {"batch": 4, "dropout": 0.0, "learning_rate": 1e-3},
    "decode": {
        "layers": 2,
        "heads": 2,
        "width": 32,
        "hidden": 48,
        "vocabulary": 64,
        "cache": 16,
        "prompt": 4,
    },
    "infer_lat": TINY_TEXT | TINY_IMAGE,
    "infer_rps": TINY_TEXT | TINY_IMAGE,
    "lstm_train": TINY_LSTM,
    "style_fps": {"height": 16, "width": 24},
    "gpt_train": {"layers": 2, "heads": 2, "width": 32, "context": 16, "vocabulary": 64, "batch": 4},
}
"""Small values of workload parameters by name; other parameters are those of `mini`."""

MAKES_DATA = ("loader",)
"""Workloads whose work is to make data in every step."""
ELSEWHERE = ("bs_sweep", "infer_best", "ddp")
"""Workloads whose steps run in other processes; they have separate tests."""
HERE = [w for w in WORKLOADS if w.name not in ELSEWHERE]
TRAINING = [w for w in HERE if w.workload_class == "training"]
RESNETS = [
    ResNetShape(block="basic", stages=(1, 1, 1, 1), image=32, classes=10),
    ResNetShape(block="bottleneck", stages=(1, 2, 1, 1), image=64, classes=10),
]


def minis(workload: Workload) -> list[str]:
    """Its sizes that a CPU runs in seconds: `mini`, or one `mini-WHICH` for each kind of work."""
    return [name for name in workload.sizes if name.partition("-")[0] == "mini"]


each_workload = pytest.mark.parametrize("workload", WORKLOADS, ids=lambda w: w.name)
each_inference = pytest.mark.parametrize(
    ("workload", "size"),
    [(w, size) for w in HERE if w.workload_class == "inference" for size in minis(w)],
    ids=lambda value: getattr(value, "name", value),
)
STATELESS = ["infer_lat", "infer_rps", "style_fps"]
"""Inference whose steps do not depend on previous steps."""
each_training = pytest.mark.parametrize("workload", TRAINING, ids=lambda w: w.name)


def built(
    workload: Workload, precision: str = "fp32", *, size: str = "", seed: int = 1, threads: int = 1
) -> Step:
    """A small step of this workload on the CPU, at the first of its sizes for CPUs."""
    parameters = workload.sizes[size or minis(workload)[0]].parameters
    small = {name: value for name, value in TINY.get(workload.name, {}).items() if name in parameters}
    return workload.build(Request(parameters | small, "cpu", resolve(precision, "cpu"), threads, seed))


def losses(step: Step, count: int) -> list[float]:
    """The loss of each of the first steps."""
    assert step.loss is not None
    found = []
    for _ in range(count):
        step.run()
        found.append(step.loss())
    return found


@cache
def losses_of_training(name: str, precision: str) -> tuple[float, ...]:
    """The first ten of the workload of this name, of which several tests look at some."""
    return tuple(losses(built(workload_named(name), precision), 10))


PRODUCTS = {
    *("mm", "addmm", "bmm", "convolution", "convolution_backward", "mkldnn_rnn_layer"),
    *("linear", "conv2d", "scaled_dot_product_attention"),  # as inference mode calls them
}
DATA_MAKERS = {
    *("rand", "randn", "randint", "randperm", "normal_", "uniform_", "random_", "arange", "full"),
    *("rand_like", "randn_like", "randint_like"),
}
ANSWERS_TO_THE_HOST = {"_local_scalar_dense", "is_nonzero"}


class Operations(TorchDispatchMode):  # type: ignore[misc]  # mypy does not read torch
    """Records every operation that torch executes, with its tensors."""

    def __init__(self) -> None:
        super().__init__()
        self.done: list[tuple[str, list[torch.Tensor]]] = []

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        tensors = [a for a in (*args, *(kwargs or {}).values()) if isinstance(a, torch.Tensor)]
        self.done.append((func.overloadpacket.__name__, tensors))
        return func(*args, **(kwargs or {}))

    def tensors_of(self, name: str) -> list[torch.Tensor]:
        """The tensors of the one operation of this name."""
        (found,) = [tensors for done, tensors in self.done if done == name]
        return found


@each_workload
def test_a_workload_is_declared_as_the_others_are(workload: Workload) -> None:
    assert workload_named(workload.name) is workload
    assert workload.question.endswith("?"), f"{workload.question!r} is not a question"
    contract.check(workload)
    assert bool(minis(workload)) == ("cpu" in workload.device_classes), "a CPU has a size that all share"
    transfers = ("4k", "64k", "1m", "16m", "256m")
    allowed = transfers if workload.name == "xfer" else ("mini", "common", "base", "large", "xl")
    wrong = [name for name in workload.sizes if name.partition("-")[0] not in allowed]
    assert not wrong, f"{workload.name}: {wrong} should begin with one of {allowed}"


@each_workload
def test_the_sizes_of_a_workload_differ_and_say_what_is_done(workload: Workload) -> None:
    for name, size in workload.sizes.items():
        wrong = [key for key in size.parameters if not re.fullmatch(r"[a-z][a-z0-9_]*", key)]
        assert not wrong, f"{workload.name} {name}: {wrong} should be a-z, 0-9 and _"
        assert json.loads(json.dumps(size.parameters)) == size.parameters
        counts = (size.units_per_step, size.memory_bytes, size.flops_per_step, size.bytes_per_step)
        assert all(count is None or count > 0 for count in counts)
        assert workload.workload_class != "training" or {"classes", "vocabulary"} & set(size.parameters), (
            f"{workload.name} {name}: a parameter `classes` or `vocabulary` says what loss guessing gives"
        )
    described = {json.dumps(size.parameters, sort_keys=True) for size in workload.sizes.values()}
    assert len(described) == len(workload.sizes), "no two are the same work"


@pytest.mark.parametrize(("job", "names"), ANSWERS.items(), ids=lambda value: " ".join(value))
def test_a_job_of_advise_is_answered_by_workloads_that_do_it_in_its_unit(
    job: tuple[str, str], names: tuple[str, ...]
) -> None:
    unit, verb = job
    units = {unit, "seq"} if unit == "tok" else {unit}  # a text has this many tokens
    for name in names:
        workload = workload_named(name)
        assert workload.unit in units, f"ANSWERS: {name} counts {workload.unit}, the job {unit}"
        assert workload.workload_class == ("training" if verb == "train" else "inference")


def test_a_service_of_advise_is_answered_by_workloads_of_requests() -> None:
    for name in ("infer_rps", "infer_best"):
        workload = workload_named(name)
        assert (workload.unit, workload.workload_class) == ("req", "inference"), name


def test_the_worker_and_the_rest_of_gputui_know_the_same_units() -> None:
    assert tuple(RATES) == contract.UNITS, "RATES of model/units.py has other units than UNITS"


SMALL = Size({"m": 1}, 1.0, None, None, 1)
LATENCY = Figure("p99_s", "p99", "s", "less", "median")


@pytest.mark.parametrize(
    ("changed", "wanted"),
    [
        ({"unit": "no-such-unit"}, f"unit: 'no-such-unit'; expected one of {', '.join(RATES)}"),
        (
            {"workload_class": "serving"},
            "workload_class: 'serving'; expected one of ceiling, training, inference, host",
        ),
        ({"modes": ("eager", "warp")}, "modes: ('eager', 'warp'); expected some of eager, compile, graph"),
        ({"form": "worst"}, "form: 'worst'; expected one of same, best"),
        ({"name": "Gemm"}, "name: 'Gemm'; expected 1 to 40 of a-z, 0-9, _ and -"),
        ({"sizes": {}}, "sizes: {}; expected a dictionary of names with a Size each"),
        ({"sizes": {"Mini": SMALL}}, "sizes: name is 'Mini'; expected 1 to 40 of a-z, 0-9, _ and -"),
        (
            {"sizes": {"mini": replace(SMALL, parameters={"m": math.nan})}},
            "sizes: mini: parameter m is nan; expected a finite number",
        ),
        (
            {"sizes": {"mini": replace(SMALL, parameters={"m": 2**70})}},
            f"sizes: mini: parameter m is {2**70}; expected a finite number, whole ones of 64 bits",
        ),
        (
            {"sizes": {"mini": replace(SMALL, parameters={"m n": 1})}},
            "sizes: mini: the name of a parameter is 'm n'; expected 1 to 40 letters",
        ),
        (
            {"sizes": {"mini": replace(SMALL, flops_per_step=2**70)}},
            f"sizes: mini: flops_per_step is {2**70}; expected a whole number from 0 to",
        ),
        (
            {"sizes": {"mini": replace(SMALL, memory_bytes=-1)}},
            "sizes: mini: memory_bytes is -1; expected a whole number from 0 to",
        ),
        ({"sizes": {"mini": replace(SMALL, gpus=0)}}, "sizes: mini: gpus is 0; expected a whole number"),
        (
            {"figures": (replace(LATENCY, key="p99_ms"),)},
            "figures: figure 1: key is 'p99_ms'; expected a key that ends in its unit, _s",
        ),
        ({"figures": (LATENCY, LATENCY)}, "figures: figure 2: key is 'p99_s'; expected another key for each"),
        (
            {"figures": (replace(LATENCY, unit="W"),)},
            "figures: figure 1: unit is 'W'; expected one of s, B, B/s, 1/s, share, ratio, count",
        ),
        (
            {"figures": (replace(LATENCY, title="x" * 41),)},
            "figures: figure 1: title is 'xxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxx'; expected one line of",
        ),
    ],
    ids=lambda value: value.partition(";")[0] if isinstance(value, str) else "",
)
def test_a_workload_outside_the_contract_is_refused_with_its_file_and_what_was_expected(
    changed: dict[str, Any], wanted: str
) -> None:
    wrong = replace(workload_named("gemm"), **changed)
    with pytest.raises(contract.NotInContract) as refused:
        contract.check_all([*WORKLOADS[1:], wrong])
    assert str(refused.value).startswith(f"ceilings.py: {wanted}")


def test_two_workloads_of_one_name_are_refused() -> None:
    with pytest.raises(contract.NotInContract, match="name: 'gemm' is that of another workload"):
        contract.check_all([*WORKLOADS, workload_named("gemm")])


def test_a_workload_of_ours_outside_the_contract_stops_every_command_before_it_measures(
    tmp_path: Path,
) -> None:
    package = tmp_path / "gputui"
    shutil.copytree(Path(gputui.__file__).parent, package, ignore=shutil.ignore_patterns("__pycache__"))
    spin_file = package / "worker" / "workloads" / "spin.py"
    text = spin_file.read_text()
    assert text.count('unit="B"') == 1
    spin_file.write_text(text.replace('unit="B"', 'unit="no-such-unit"'))
    done = subprocess.run(
        [sys.executable, "-m", "gputui", "run", "quick", "--db", tmp_path / "a.db"],
        env={**os.environ, "PYTHONPATH": str(tmp_path)},
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode != 0
    assert "spin.py: unit: 'no-such-unit'; expected one of flop, B, img" in done.stderr
    assert not (tmp_path / "a.db").exists()


@pytest.mark.parametrize(
    ("workload", "size", "precision"),
    [
        (workload, size, precision)
        for workload in HERE
        for size in ("mini", "mini-w0")
        for precision in ("fp32", *(("amp",) if workload.name in MAKES_DATA else ()))
        if size in workload.sizes and workload.sizes[size].flops_per_step is None
    ],
    ids=lambda value: getattr(value, "name", value),
)
def test_mini_is_built_and_does_a_step_on_a_cpu(workload: Workload, size: str, precision: str) -> None:
    """Of other workloads `test_workload_flops.py` builds each size, and counts a step."""
    parameters = workload.sizes[size].parameters
    step = workload.build(Request(parameters, "cpu", resolve(precision, "cpu"), 2, seed=1))
    step.run()
    assert step.loss is None or math.isfinite(step.loss())


def test_tf32_is_refused_on_a_cpu_with_a_reason() -> None:
    with pytest.raises(Unsupported, match="NVIDIA"):
        resolve("tf32", "cpu")


def test_listing_the_workloads_imports_no_torch() -> None:
    code = "import sys, gputui.worker.workloads; print('torch' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "False"


@each_training
def test_the_same_seed_gives_exactly_the_same_losses_and_another_seed_others(workload: Workload) -> None:
    expected = losses_of_training(workload.name, "fp32")
    assert tuple(losses(built(workload), 3)) == expected[:3]
    assert losses(built(workload, seed=2), 1)[0] != expected[0]


@each_training
def test_training_makes_the_loss_fall_from_that_of_guessing(workload: Workload) -> None:
    parameters = workload.sizes["mini"].parameters | TINY[workload.name]
    choices = int(parameters.get("classes", parameters.get("vocabulary", 0)))
    found = losses_of_training(workload.name, "fp32")
    assert found[0] == pytest.approx(math.log(choices), rel=0.25)
    assert found[-1] < 0.97 * found[0]
    assert all(math.isfinite(loss) for loss in found)


def test_fine_tuning_drops_parts_of_a_text_at_random_but_the_same_for_the_same_seed() -> None:
    workload = workload_named("bert_ft")
    described = workload.sizes["mini"].parameters | TINY_TEXT | {"learning_rate": 0.0}
    found = []
    for dropout in (0.0, 0.1, 0.1):
        request = Request(described | {"dropout": dropout}, "cpu", resolve("fp32", "cpu"), 1, 1)
        found.append(losses(workload.build(request), 3))
    assert len(set(found[0])) == 1
    assert len(set(found[1])) == 3
    assert found[1] == found[2]


@each_training
def test_amp_starts_from_the_loss_of_fp32_and_trains_like_it(workload: Workload) -> None:
    amp, fp32 = (losses_of_training(workload.name, precision) for precision in ("amp", "fp32"))
    assert amp[0] == pytest.approx(fp32[0], rel=0.01)  # bfloat16 keeps 8 bits: 0.4 % an operation
    assert amp[-1] - amp[0] == pytest.approx(fp32[-1] - fp32[0], rel=0.1)


@pytest.mark.parametrize(("precision", "dtype"), [("fp32", torch.float32), ("amp", torch.bfloat16)])
@pytest.mark.parametrize(
    "workload", [w for w in HERE if "amp" in w.precisions and w.name not in MAKES_DATA], ids=lambda w: w.name
)
def test_products_and_convolutions_are_done_in_the_requested_precision(
    workload: Workload, precision: str, dtype: torch.dtype
) -> None:
    step = built(workload, precision)
    with Operations() as operations:
        step.run()
    used = {
        tensor.dtype
        for name, tensors in operations.done
        for tensor in tensors
        if name in PRODUCTS and len(tensors) > 1
    }
    assert used == {dtype}


@pytest.mark.parametrize(
    ("workload", "size"),
    [(w, size) for w in HERE if w.needs_torch and w.name not in MAKES_DATA for size in minis(w)],
    ids=lambda value: getattr(value, "name", value),
)
def test_a_step_makes_no_data_and_asks_the_device_for_no_number(workload: Workload, size: str) -> None:
    step = built(workload, size=size)
    step.run()  # an optimizer creates its state in the first step
    with Operations() as operations:
        step.run()
    done = {name for name, _ in operations.done}
    assert done, f"{workload.name} {size}: no operation of torch was done"
    made = ", ".join(sorted(done & DATA_MAKERS))
    assert not made, f"{workload.name} {size}: makes data in its step: {made}"
    asked = ", ".join(sorted(done & ANSWERS_TO_THE_HOST))
    assert not asked, f"{workload.name} {size}: waits for a number of the device in its step: {asked}"


@each_inference
def test_inference_with_the_same_seed_answers_exactly_the_same(workload: Workload, size: str) -> None:
    step, again, other = (built(workload, size=size, seed=seed) for seed in (1, 1, 2))
    first = answer_of(step).clone()
    assert torch.equal(first, answer_of(again))
    assert not torch.equal(first, answer_of(other))
    assert all(torch.equal(answer_of(step), answer_of(again)) for _ in range(2))
    assert torch.equal(first, answer_of(step)) or workload.name not in STATELESS
    assert step.result is not None
    assert again.result is not None
    assert step.result() > 0


@pytest.mark.parametrize(
    ("workload", "size"),
    [(workload_named(name), size) for name in STATELESS for size in minis(workload_named(name))],
    ids=lambda value: getattr(value, "name", value),
)
def test_inference_in_amp_answers_what_fp32_does(workload: Workload, size: str) -> None:
    exact, rounded = (answer_of(built(workload, precision, size=size)) for precision in ("fp32", "amp"))
    assert rounded.dtype in {torch.bfloat16, torch.uint8}
    assert relative_error(rounded, exact.double()) < 0.05  # 8 bits an operation, over all layers


@each_inference
def test_inference_in_fp16_stays_within_its_range_and_keeps_nothing_for_a_backward_pass(
    workload: Workload, size: str
) -> None:
    """What `amp` means on GPUs without bf16."""
    parameters = workload.sizes[size].parameters
    small = {name: value for name, value in TINY[workload.name].items() if name in parameters}
    step = workload.build(Request(parameters | small, "cpu", Precision("amp", "amp-fp16", "cpu"), 1, 1))
    with Operations() as operations:
        step.run()
    used = {tensors[1].dtype for name, tensors in operations.done if name in PRODUCTS}
    assert used == {torch.float16}
    assert step.result is not None
    assert math.isfinite(step.result())
    assert not any(tensor.requires_grad for _, tensors in operations.done for tensor in tensors)


def uncached_scores(model: Llama, tokens: torch.Tensor) -> torch.Tensor:
    """Scores after every token of the text, by plain causal attention over all of it."""
    x = model.tokens[tokens]
    batch, count, width = x.shape
    for layer in model.layers:
        half = width // layer.heads // 2
        turns = torch.outer(torch.arange(count), 10000.0 ** -(torch.arange(half) / half)).to(torch.float64)

        def heads(part: torch.Tensor, layer: Any = layer) -> torch.Tensor:
            return part.view(batch, count, layer.heads, -1).transpose(1, 2)

        def turned(part: torch.Tensor, turns: torch.Tensor = turns) -> torch.Tensor:
            as_complex = torch.complex(*part.chunk(2, dim=-1)) * torch.polar(torch.ones_like(turns), turns)
            return torch.cat((as_complex.real, as_complex.imag), dim=-1)

        q, k, v = map(heads, layer.qkv(layer.norm_attention(x)).split(width, dim=2))
        q, k = turned(q), turned(k)
        weights = (q @ k.transpose(2, 3) / (2 * half) ** 0.5).masked_fill(
            torch.ones(count, count, dtype=torch.bool).triu(1), -math.inf
        )
        attended = weights.softmax(dim=-1) @ v
        x = x + layer.projection(attended.transpose(1, 2).reshape(batch, count, width))
        gate, up = layer.gate_and_up(layer.norm_mlp(x)).chunk(2, dim=-1)
        x = x + layer.down(gate * gate.sigmoid() * up)
    scores: torch.Tensor = model.head(model.norm(x))
    return scores


def test_generation_with_a_cache_is_the_recomputation_of_the_whole_text_token_by_token() -> None:
    torch.manual_seed(1)
    shape = LlamaShape(layers=2, heads=2, width=32, hidden=48, vocabulary=64, cache=16)
    model = Llama(shape, batch=3).double().requires_grad_(False)
    for parameter in model.parameters():
        parameter.mul_(10)  # so that a wrong position or mask is not lost in rounding
    text = torch.randint(shape.vocabulary, (3, 5))
    places = torch.arange(shape.cache)
    scores = model(text, places[:5])
    while True:
        wanted = uncached_scores(model, text)[:, -1]
        torch.testing.assert_close(scores, wanted, rtol=1e-4, atol=1e-4)  # its norms are always float32
        assert torch.equal(scores.argmax(-1), wanted.argmax(-1))
        token = scores.argmax(dim=-1, keepdim=True)
        if text.shape[1] == shape.cache:
            break
        scores = model(token, places[text.shape[1] : text.shape[1] + 1])
        text = torch.cat((text, token), dim=1)


@pytest.mark.parametrize(("dtype", "tolerance"), [(torch.float32, 1e-5), (torch.bfloat16, 0.05)])
def test_a_language_model_gives_the_scores_of_float64(dtype: torch.dtype, tolerance: float) -> None:
    torch.manual_seed(1)
    shape = LlamaShape(layers=2, heads=2, width=32, hidden=48, vocabulary=64, cache=16)
    model = Llama(shape, batch=2).requires_grad_(False)
    exact = copy.deepcopy(model).double()
    model = model.to(dtype)
    text, places = torch.randint(64, (2, 9)), torch.arange(9)
    model(text[:, :8], places[:8])
    found = model(text[:, 8:], places[8:])
    assert relative_error(found, uncached_scores(exact, text)[:, -1]) < tolerance


def test_decoding_begins_the_same_text_again_when_its_cache_is_full() -> None:
    described = workload_named("decode").sizes["mini"].parameters | TINY["decode"]
    period = int(described["cache"]) - int(described["prompt"])
    step = built(workload_named("decode"))
    texts = [[answer_of(step).clone() for _ in range(period)] for _ in range(2)]
    assert all(torch.equal(one, again) for one, again in zip(*texts, strict=True))
    assert not torch.equal(texts[0][0], texts[0][1])


@pytest.mark.parametrize("size", list(workload_named("decode").sizes))
def test_decoding_counts_the_bytes_of_its_weights_and_its_cache(size: str) -> None:
    declared = workload_named("decode").sizes[size]
    names = LlamaShape.__dataclass_fields__
    shape = LlamaShape(**{name: int(declared.parameters[name]) for name in names})
    with torch.device("meta"):
        model = Llama(shape, int(declared.parameters["batch"]))
    weights = sum(p.numel() for p in model.parameters() if p.dim() == 2) - model.tokens.numel()
    cache = sum(buffer.numel() for layer in model.layers for buffer in layer.buffers())
    assert declared.bytes_in("fp32") == declared.bytes_in("tf32") == 4 * (weights + cache)
    assert declared.bytes_in("amp") == 2 * (weights + cache)


@pytest.mark.parametrize("kind", ["text", "image"])
def test_a_batch_is_answered_as_each_of_its_requests_alone(kind: str) -> None:
    workload = workload_named("infer_rps")
    described = workload.sizes[f"mini-{kind}"].parameters | TINY["infer_rps"] | {"batch": 3}
    request = Request(described, "cpu", resolve("fp32", "cpu"), 1, 1)
    model, batch = classifier_and_input(request, "nhwc")
    together = model(batch)
    assert together.shape == (3, described["classes"])
    alone = torch.cat([model(one.unsqueeze(0)) for one in batch])
    torch.testing.assert_close(together, alone, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("served", [steps.request_step, steps.batch_step])
def test_one_number_of_an_output_that_is_not_finite_shows_in_its_result(served: Any) -> None:
    request = Request({}, "cpu", resolve("fp32", "cpu"), 1, 1)
    answer = (torch.zeros(2, 3),) if served is steps.request_step else ()
    inputs = torch.ones(2, 3)
    for value, finite in ((5.0, True), (math.nan, False), (math.inf, False)):
        inputs[1, 2] = value
        step = served(lambda x: 2 * x, inputs, *answer, request)
        step.run()
        assert math.isfinite(step.result()) == finite


def test_an_answer_of_decoding_that_is_not_finite_shows_in_its_result() -> None:
    step = built(workload_named("decode"))
    scores = answer_of(step)
    with torch.inference_mode():
        scores[0, 1] = math.nan
    assert step.result is not None
    assert math.isnan(step.result())


def answer_of(step: Step) -> torch.Tensor:
    """The output of an inference step: the memory it was written to."""
    answer = step.run()
    assert isinstance(answer, torch.Tensor)
    return answer


@pytest.mark.parametrize(
    "model",
    [
        lambda: ResNet(RESNETS[0]),
        lambda: ResNet(RESNETS[1]),
        lambda: Gpt(TextShape(layers=2, heads=2, width=32, context=16, vocabulary=64)),
        lambda: Lstm(TextShape(layers=2, heads=0, width=32, context=16, vocabulary=64)),
        lambda: Encoder(TextShape(layers=2, heads=2, width=32, context=16, vocabulary=64, classes=3)),
    ],
    ids=["basic", "bottleneck", "gpt", "lstm", "encoder"],
)
def test_a_model_in_fp32_gives_the_scores_and_gradients_of_float64(
    model: Callable[[], torch.nn.Module],
) -> None:
    torch.manual_seed(1)
    made = model()
    exact_model = copy.deepcopy(made).double()
    inputs = torch.randn(4, 3, 64, 64) if isinstance(made, ResNet) else torch.randint(64, (4, 16))
    exact_inputs = inputs.double() if inputs.is_floating_point() else inputs
    scores, exact_scores = made(inputs), exact_model(exact_inputs)
    assert relative_error(scores, exact_scores) < 1e-5
    wanted = torch.randint(scores.shape[-1], scores.shape[:-1])
    for one in (scores, exact_scores):
        torch.nn.functional.cross_entropy(one.flatten(0, -2), wanted.flatten()).backward()
    for weight, exact_weight in zip(made.parameters(), exact_model.parameters(), strict=True):
        assert weight.grad is not None
        assert exact_weight.grad is not None
        # A sum close to 0 may pass a ReLU in only one of the two.
        assert relative_error(weight.grad, exact_weight.grad) < 1e-2


@pytest.mark.parametrize(("dtype", "tolerance"), [(torch.float32, 1e-5), (torch.bfloat16, 0.05)])
def test_a_style_network_gives_the_frames_of_float64(dtype: torch.dtype, tolerance: float) -> None:
    torch.manual_seed(1)
    model = Style(torch.contiguous_format).requires_grad_(False)
    frames = torch.randint(256, (2, 32, 40, 3), dtype=torch.uint8)
    exact = copy.deepcopy(model).double()(frames)
    assert exact.shape == (2, 3, 32, 40)
    assert relative_error(model.to(dtype)(frames), exact) < tolerance


@pytest.mark.parametrize("batch", [1, 2])
def test_a_styled_frame_is_bytes_of_the_size_of_the_frame_and_not_the_frame(batch: int) -> None:
    workload = workload_named("style_fps")
    described = workload.sizes["mini"].parameters | TINY["style_fps"] | {"batch": batch}
    step = workload.build(Request(described, "cpu", resolve("fp32", "cpu"), 1, 1))
    frames = answer_of(step)
    assert (frames.dtype, frames.shape) == (torch.uint8, (batch, 16, 24, 3))
    assert len(frames.unique()) > 50


def test_numbers_from_minus_1_to_1_are_shown_as_bytes() -> None:
    numbers = torch.tensor([-1.0, 0.0, 1.0, 0.5]).expand(1, 3, 2, 4).contiguous()
    expected = torch.tensor([0, 128, 255, 191], dtype=torch.uint8)[:, None].expand(1, 2, 4, 3)
    assert torch.equal(shown(numbers), expected)


@pytest.mark.parametrize("kind", [Gpt, Lstm])
def test_a_language_model_remembers_the_tokens_before_and_does_not_see_those_that_follow(kind: Any) -> None:
    torch.manual_seed(1)
    heads = 2 if kind is Gpt else 0
    model = kind(TextShape(layers=2, heads=heads, width=32, context=16, vocabulary=64))
    tokens = torch.randint(64, (1, 16))
    changed = tokens.clone()
    changed[0, 10] = (changed[0, 10] + 1) % 64
    before, after = model(tokens)[0], model(changed)[0]
    torch.testing.assert_close(before[:10], after[:10])
    assert not torch.allclose(before[11], after[11], rtol=1e-4)


def test_an_encoder_sees_all_tokens_of_its_text_and_none_of_another() -> None:
    torch.manual_seed(1)
    model = Encoder(TextShape(layers=1, heads=2, width=32, context=16, vocabulary=64, classes=3))
    texts = torch.randint(64, (2, 16))
    changed = texts.clone()
    changed[0, 15] = (changed[0, 15] + 1) % 64
    before, after = model(texts), model(changed)
    assert not torch.allclose(before[0], after[0], rtol=1e-4)
    torch.testing.assert_close(before[1], after[1])


def relative_error(found: torch.Tensor, exact: torch.Tensor) -> float:
    return float((found.detach().double() - exact.detach()).norm() / exact.detach().norm().clamp_min(1e-12))


@pytest.mark.parametrize(
    ("precision", "tolerance"),
    [("fp32", 1e-6), ("amp", 4e-3)],  # float32 sums in blocks; bfloat16 rounds the product to 8 bits
)
def test_the_matrix_product_is_that_of_float64(precision: str, tolerance: float) -> None:
    step = built(workload_named("gemm"), precision)
    with Operations() as operations:
        product = step.run()
    a, b, written = operations.tensors_of("mm")
    assert isinstance(product, torch.Tensor)
    assert product.data_ptr() == written.data_ptr()
    assert (a.shape, b.shape, product.shape) == ((96, 80), (80, 64), (96, 64))
    assert relative_error(product, a.double() @ b.double()) < tolerance


def test_the_operands_of_the_matrix_product_are_normal_not_constant() -> None:
    with Operations() as operations:
        built(workload_named("gemm")).run()
    for operand in operations.tensors_of("mm")[:2]:
        assert float(operand.mean()) == pytest.approx(0, abs=0.05)
        assert float(operand.std()) == pytest.approx(1, abs=0.05)


def test_a_copied_array_equals_its_source_and_is_as_large_as_declared() -> None:
    workload = workload_named("membw")
    step = built(workload)
    with Operations() as operations:
        step.run()
    target, source = operations.tensors_of("copy_")
    assert target.data_ptr() != source.data_ptr()
    assert torch.equal(target, source)
    assert target.numel() == source.numel() == TINY["membw"]["elements"]
    assert float(source.std()) == pytest.approx(1, abs=0.01)


@pytest.mark.parametrize("name", ["mini", "base"])
def test_a_copy_counts_what_is_read_and_what_is_written(name: str) -> None:
    size = workload_named("membw").sizes[name]
    assert size.bytes_per_step == size.units_per_step == 2 * 4 * int(size.parameters["elements"])


@pytest.mark.parametrize("device", ["cpu", "mps"])
def test_a_transfer_is_refused_where_there_is_no_link_to_cross(device: str) -> None:
    size = xfer.WORKLOAD.sizes["4k-h2d"]
    with pytest.raises(Unsupported, match="share one memory"):
        xfer.build(Request(size.parameters, device, resolve("fp32", "cpu"), 1, 1))


def test_a_transfer_is_offered_pinned_and_pageable_each_way_from_4_kib_to_256_mib() -> None:
    sizes = xfer.WORKLOAD.sizes
    ways = {f"{size}-{way}" for size in ("4k", "64k", "1m", "16m", "256m") for way in ("h2d", "d2h")}
    ways.add("256m-both")
    assert set(sizes) == ways | {f"{way}-pageable" for way in ways}
    assert sizes["4k-d2h"].units_per_step == 4096
    assert sizes["256m-h2d-pageable"].units_per_step == 2**28


@pytest.mark.parametrize("name", list(xfer.WORKLOAD.sizes))
def test_a_transfer_counts_each_byte_that_crosses_once(name: str) -> None:
    size = xfer.WORKLOAD.sizes[name]
    times = 2 if size.parameters["direction"] == "both" else 1
    assert size.bytes_per_step == size.units_per_step == times * int(size.parameters["bytes"])


@pytest.mark.parametrize(("direction", "copies"), [("h2d", 1), ("d2h", 1), ("both", 2)])
def test_a_pageable_transfer_has_copied_every_byte_when_it_returns(direction: str, copies: int) -> None:
    done = xfer.transfer({"direction": direction, "memory": "pageable", "bytes": 2**23}, "cpu", 1)()
    targets = done if isinstance(done, tuple) else (done,)
    pattern = torch.randint(256, (2**22,), dtype=torch.uint8, generator=torch.Generator().manual_seed(1))
    assert len(targets) == len({target.data_ptr() for target in targets}) == copies
    assert all(torch.equal(target, pattern.repeat(2)) for target in targets)


@pytest.mark.parametrize("threads", [1, 2, 3])
@pytest.mark.parametrize(("work", "factor"), [(None, 1.0), ("1.5", 1.5), ("1", 1.0)])
def test_hashing_does_as_many_calls_as_it_says_or_the_planted_multiple(
    monkeypatch: pytest.MonkeyPatch, threads: int, work: str | None, factor: float
) -> None:
    hashed: list[int] = []
    real_sha256 = hashlib.sha256

    def counting_sha256(piece: bytes) -> Any:
        hashed.append(len(piece))
        return real_sha256(piece)

    if work is not None:
        monkeypatch.setenv("GPUTUI_SPIN_WORK", work)
    step = built(spin.WORKLOAD, threads=threads)
    monkeypatch.setattr(hashlib, "sha256", counting_sha256)
    step.run()
    size = spin.WORKLOAD.sizes["mini"]
    assert len(hashed) == factor * int(size.parameters["pieces"])
    assert sum(hashed) == factor * size.units_per_step


def test_a_size_builds_the_model_that_its_parameters_describe() -> None:
    described = TINY["conv_train"] | {"model": "resnet-bottleneck-1-2-1-1", "image": 64}
    workload = workload_named("conv_train")
    size = workload.sizes["mini"]
    tiny = replace(workload, sizes={"mini": replace(size, parameters=size.parameters | described)})
    step = tiny.build(Request(tiny.sizes["mini"].parameters, "cpu", resolve("fp32", "cpu"), 1, 1))
    with Operations() as operations:
        step.run()
    convolutions = [tensors for name, tensors in operations.done if name == "convolution"]
    assert len(convolutions) == 1 + 3 * 5 + 4  # the stem, three a block, a shortcut where a stage begins
    assert convolutions[0][0].shape == (8, 3, 64, 64)
