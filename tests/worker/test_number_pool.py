"""Numbers that are drawn once and used again."""

from __future__ import annotations

import torch
from scipy import stats

from gputui.worker.contract import Request
from gputui.worker.flops import LlamaShape
from gputui.worker.models import Llama
from gputui.worker.steps import POOL_NUMBERS, NumberPool, resolve
from gputui.worker.workloads import workload_named

SHAPE = LlamaShape(layers=2, heads=2, width=64, hidden=96, vocabulary=128, cache=16)


def test_tensors_take_the_numbers_in_turn_and_begin_again() -> None:
    pool = NumberPool(torch.arange(5))
    assert pool.tensor(2, 2).tolist() == [[0, 1], [2, 3]]
    assert pool.tensor(7).tolist() == [4, 0, 1, 2, 3, 4, 0]
    assert pool.tensor(1).tolist() == [1]


def test_tensors_have_memory_of_their_own() -> None:
    pool = NumberPool(torch.zeros(4))
    first, second = pool.tensor(4), pool.tensor(4)
    first.fill_(1)
    assert second.sum() == pool.tensor(4).sum() == 0


def test_the_length_of_the_pool_is_a_prime() -> None:
    assert all(POOL_NUMBERS % divisor for divisor in range(2, int(POOL_NUMBERS**0.5) + 1))


def test_no_row_of_the_largest_matrix_product_is_that_of_another() -> None:
    a = NumberPool(torch.randn(POOL_NUMBERS)).tensor(8192, 1024)
    assert len({row.tobytes() for row in a.numpy()}) == 8192
    assert stats.kstest(a[::64].flatten().numpy(), "norm").pvalue > 1e-6


def test_a_seed_gives_the_same_weights_in_every_dtype() -> None:
    models = []
    for dtype in (torch.float32, torch.bfloat16):
        torch.manual_seed(3)
        models.append(Llama(SHAPE, 1, dtype))
    for exact, rounded in zip(*(model.parameters() for model in models), strict=True):
        assert torch.equal(exact.to(torch.bfloat16), rounded)


def test_a_seed_decides_which_matrices_are_multiplied() -> None:
    def product(seed: int) -> torch.Tensor:
        step = workload_named("gemm").build(
            Request({"m": 64, "n": 64, "k": 64}, "cpu", resolve("fp32", "cpu"), 1, seed)
        )
        return torch.as_tensor(step.run())

    assert torch.equal(product(1), product(1))
    assert not torch.equal(product(1), product(2))
