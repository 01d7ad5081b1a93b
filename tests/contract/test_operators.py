"""Declared operators of a step against those that torch dispatches, on tiny tensors."""

from __future__ import annotations

import pytest
import torch
from tiny_steps import operators_of, tiny_step

from gputui.worker.workloads import workload_named

torch.set_num_threads(1)
COUNTED = [
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


@pytest.mark.parametrize(("name", "size", "factor"), COUNTED)
def test_the_declared_operators_are_about_those_that_an_eager_step_dispatches(
    name: str, size: str, factor: float
) -> None:
    workload = workload_named(name)
    counted = operators_of(tiny_step(workload, size, "fp32" if name == "membw" else "amp"))
    assert workload.sizes[size].operators == pytest.approx(factor * counted, rel=0.1)
