"""Declared floating-point operations and operators against torch's own count, and against closed figures."""

from __future__ import annotations

import pytest
from tiny_steps import operators_of, tiny_step
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.utils.flop_counter import FlopCounterMode

from gputui.worker.contract import Precision, Request, Workload
from gputui.worker.flops import (
    ResNetShape,
    TextShape,
    encoder_forward_flops,
    gpt_training_flops,
    resnet_forward_flops,
    resnet_training_flops,
)
from gputui.worker.workloads import WORKLOADS, workload_named


def sizes_by_work_of_one_sample(workload: Workload) -> list[list[str]]:
    """Names of the sizes whose FLOPs are counted; sizes that differ only in batch are grouped."""
    together: dict[tuple[object, ...], list[str]] = {}
    for name, size in workload.sizes.items():
        if size.flops_per_step is not None:
            one = tuple(sorted((n, v) for n, v in size.parameters.items() if n != "batch"))
            together.setdefault(one, []).append(name)
    return list(together.values())


COUNTED_QUICKLY = 2
"""Sizes of a workload that are counted at once: a formula that is wrong does not agree with torch at two."""
SLOW = {"lstm_train-base", "lstm_train-mini", "bert_ft-base", "decode-base"}
"""Consecutive states with separate operations, which torch needs seconds to count; and
larger ones of one formula."""
COUNTED = [
    pytest.param(
        w,
        name,
        id=f"{w.name}-{name}",
        marks=pytest.mark.slow if number >= COUNTED_QUICKLY or f"{w.name}-{name}" in SLOW else (),
    )
    for w in WORKLOADS
    for number, (name, *_) in enumerate(sizes_by_work_of_one_sample(w))
]


def counted_by_torch(workload: Workload, name: str, attention: SDPBackend) -> int:
    """FLOPs of one step as torch counts them while the workload itself runs on the meta device."""
    parameters = workload.sizes[name].parameters
    step = workload.build(Request(parameters, "meta", Precision("fp32", "fp32", "meta"), 1, 1))
    with sdpa_kernel(attention), FlopCounterMode(display=False) as counter:
        step.run()
    return int(counter.get_total_flops())


@pytest.mark.parametrize(("workload", "name"), COUNTED)
def test_the_declared_flops_are_exactly_those_torch_counts_in_a_step(workload: Workload, name: str) -> None:
    """Attention is counted as plain products: a fused kernel's count depends on which kernel it is.

    torch adds half of a forward pass for the scores that a fused backward pass computes again. A faster
    kernel must not be credited with the operations it repeats, so the formula leaves them out.
    """
    counted = counted_by_torch(workload, name, SDPBackend.MATH)
    assert counted == workload.sizes[name].flops_per_step, (
        f"{workload.name} {name}: torch counts {counted}, of products, convolutions and attention alone; "
        "where a step does other arithmetic, flops_per_step is None"
    )


@pytest.mark.parametrize("workload", WORKLOADS, ids=lambda workload: workload.name)
def test_the_flops_of_a_step_grow_with_its_batch(workload: Workload) -> None:
    for names in sizes_by_work_of_one_sample(workload):
        sizes = [workload.sizes[name] for name in names]
        per_sample = {int(s.flops_per_step or 0) / int(s.parameters.get("batch", 1)) for s in sizes}
        assert len(per_sample) == 1


def test_resnet_50_trains_at_three_times_its_published_multiply_adds() -> None:
    resnet_50 = ResNetShape(block="bottleneck", stages=(3, 4, 6, 3), image=224, classes=1000)
    # 4.11e9 multiply-adds forward: torchvision's table for resnet50
    assert resnet_training_flops(resnet_50) == pytest.approx(3 * 2 * 4.11e9, rel=0.02)
    base = workload_named("conv_train").sizes["base"]
    assert base.flops_per_step == resnet_training_flops(resnet_50) * base.units_per_step


def test_gpt_2_trains_at_the_flops_per_token_of_the_literature() -> None:
    gpt_2 = TextShape(layers=12, heads=12, width=768, context=1024, vocabulary=50257)
    parameters = 124.4e6 - 1024 * 768  # all but the positions, which are added and not multiplied
    palm = 6 * parameters + 12 * 12 * 768 * 1024  # arXiv 2204.02311, appendix B
    assert gpt_training_flops(gpt_2) / 1024 == pytest.approx(palm, rel=0.002)
    base = workload_named("gpt_train").sizes["base"]
    assert base.flops_per_step is not None
    assert base.flops_per_step / base.units_per_step == pytest.approx(0.85e9, rel=0.02)


def test_a_request_to_resnet_50_costs_its_published_multiply_adds() -> None:
    base = workload_named("infer_lat").sizes["base-image"]
    resnet_50 = ResNetShape(block="bottleneck", stages=(3, 4, 6, 3), image=224, classes=1000)
    assert base.flops_per_step == resnet_forward_flops(resnet_50) == pytest.approx(2 * 4.11e9, rel=0.02)


@pytest.mark.parametrize("kind", ["mini-text", "mini-image", "base-text", "base-image"])
def test_a_batch_costs_its_requests(kind: str) -> None:
    one, batch = (workload_named(name).sizes[kind] for name in ("infer_lat", "infer_rps"))
    assert one.flops_per_step is not None
    assert batch.flops_per_step == batch.units_per_step * one.flops_per_step
    assert batch.units_per_step == batch.parameters["batch"]


def test_a_token_of_llama_2_7b_costs_two_flops_a_weight_and_reads_it_once() -> None:
    xl = workload_named("decode").sizes["xl"]
    weights = 6.738e9 - 32000 * 4096  # arXiv 2307.09288; of the embedding one row is read
    assert xl.flops_per_step == pytest.approx(2 * weights, rel=0.03)  # the rest is attention to the cache
    assert xl.bytes_in("amp") == pytest.approx(2 * weights, rel=0.03)
    eight = workload_named("decode").sizes["xl-b8"]
    assert eight.flops_per_step == 8 * int(xl.flops_per_step or 0)
    assert int(eight.bytes_per_step or 0) < 1.2 * int(xl.bytes_per_step or 0)


@pytest.mark.parametrize(("context", "flops"), [(128, 22.3e9), (384, 70.7e9)])
def test_a_text_through_bert_base_costs_twice_its_weights_per_token_and_attention(
    context: int, flops: float
) -> None:
    bert = TextShape(layers=12, heads=12, width=768, context=context, vocabulary=30522, classes=2)
    layers = 85.05e6  # weights of BERT-base without embeddings: arXiv 1810.04805, 110M in all
    assert encoder_forward_flops(bert) == pytest.approx(flops, rel=0.005)
    assert encoder_forward_flops(bert) == pytest.approx(
        2 * layers * context + 4 * 12 * 768 * context**2, rel=0.005
    )
    if context == 128:
        assert workload_named("infer_lat").sizes["base-text"].flops_per_step == encoder_forward_flops(bert)


@pytest.mark.parametrize(("name", "forward"), [("base", 22.3e9), ("large", 70.7e9), ("xl", 70.7e9)])
def test_tuning_bert_costs_three_forward_passes(name: str, forward: float) -> None:
    size = workload_named("bert_ft").sizes[name]
    assert size.flops_per_step == pytest.approx(3 * forward * size.units_per_step, rel=0.005)


@pytest.mark.parametrize("name", ["base", "large", "xl"])
def test_two_lstm_layers_cost_33_6_mflop_a_token_forward_and_three_times_that_in_training(name: str) -> None:
    size = workload_named("lstm_train").sizes[name]
    assert size.flops_per_step is not None
    layers_forward = 2 * 2 * 4 * 1024 * (1024 + 1024)
    assert layers_forward == pytest.approx(33.6e6, rel=0.002)
    # The head adds 1.6 %, the first states take away 0.07 %.
    assert size.flops_per_step / size.units_per_step == pytest.approx(3 * layers_forward, rel=0.02)


@pytest.mark.parametrize(("name", "flops"), [("mini", 20.2e9), ("base", 283.5e9), ("large", 638e9)])
def test_styling_a_pixel_costs_153792_multiply_adds(name: str, flops: float) -> None:
    size = workload_named("style_fps").sizes[name]
    pixels = int(size.parameters["height"]) * int(size.parameters["width"])
    assert size.flops_per_step == 2 * 153_792 * pixels == pytest.approx(flops, rel=0.005)


@pytest.mark.parametrize(("name", "n"), [("mini", 2048), ("base", 4096), ("large", 8192)])
def test_a_matrix_product_counts_one_multiplication_and_one_addition_per_term(name: str, n: int) -> None:
    size = workload_named("gemm").sizes[name]
    assert size.flops_per_step == size.units_per_step == 2 * n * n * n


WITH_OPERATORS = [
    ("gemm", "large", 1.0),
    ("membw", "base", 1.0),
    ("burn", "large", 1.0),
    ("gpt_train", "common", 1.0),
    ("gpt_train", "base", 1.0),
    ("bert_ft", "mini", 1.0),
    ("decode", "base", 1.0),
    ("infer_lat", "large-text", 1.0),
    ("infer_rps", "large-text", 1.0),
    # A convolution counts twice: it takes the host longer than other operators.
    ("conv_train", "common", 2.0),
    ("infer_rps", "large-image", 2.0),
]


@pytest.mark.parametrize(("name", "size", "factor"), WITH_OPERATORS)
def test_the_declared_operators_are_about_those_that_an_eager_step_dispatches(
    name: str, size: str, factor: float
) -> None:
    workload = workload_named(name)
    counted = operators_of(tiny_step(workload, size, "fp32" if name == "membw" else "amp"))
    assert workload.sizes[size].operators == pytest.approx(factor * counted, rel=0.1)
