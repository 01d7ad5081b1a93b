"""Rates of operators are those of their shapes and their own kernels, against the right peak."""

from __future__ import annotations

from dataclasses import replace

import pytest

from gputui.model.journal import Kernel, Operator, ProfiledPass, without_result
from gputui.services.results.step_breakdown import efficiency_text, product_sentence, uses_of_operator

HEADS = "1x8x1024x64"
H100 = "NVIDIA H100 80GB HBM3"
"""989.4 TFLOP/s in bf16, 66.9 in fp32, 494.7 in tf32, and 3.35 TB/s."""


def row(
    operator: str, shapes: str, dtypes: str, kernel_us: float, *, category: str = "gemm", calls: int = 1
) -> Operator:
    ns = round(kernel_us * 1000)
    return Operator("forward", category, f"aten::{operator}", shapes, dtypes, calls, calls, ns, 0, calls, ns)


def one_step(*rows: Operator, kernels: tuple[str, ...] = ()) -> ProfiledPass:
    found = tuple(Kernel(name, "compute", "aten::mm", 1, 1, 1) for name in kernels)
    return replace(without_result(0, 0, ""), is_valid=True, steps=1, operators=rows, kernels=found)


@pytest.mark.parametrize(
    ("one", "text"),
    [
        (  # 2 x 4096^3 = 137.4 GFLOP
            row("mm", "4096x4096,4096x4096", "BFloat16,BFloat16", 200),
            "687 TFLOP/s, 69 %: compute-bound",
        ),
        (  # 2 x 8000 x 8000 flop on 128 MB: 1 FLOP a byte
            row("linear", "1x8000,8000x8000", "BFloat16,BFloat16", 50),
            "2.56 TB/s, 76 %: memory-bound",
        ),
        (row("mm", "64x64,64x64", "BFloat16,BFloat16", 5), "105 GFLOP/s, <0.1 %: neither"),
        (
            row("add", "16x1024x1024,16x1024x1024", "float,float", 100, category="elementwise"),
            "2.01 TB/s, 60 %: memory-bound",
        ),
        (
            row("mul", "1024x1024,1024x1", "float,float", 1, category="elementwise"),
            "8.39 TB/s, 251 %: in cache",
        ),
        (
            row("copy_", "1024x1024,1024x1024", "Half,float", 4, category="cast_copy"),
            "1.57 TB/s, 47 %: memory-bound",
        ),
        (row("conv2d", "8x64x56x56,64x64x3x3", "Half,Half", 100, category="conv"), ""),
        (
            row("conv2d", "8x64x56x56,64x64x3x3->8x64x56x56", "Half,Half", 10, category="conv"),
            "185 TFLOP/s, 19 %: neither",
        ),
        (
            row(
                "scaled_dot_product_attention", ",".join(["1x8x1024x64"] * 3) + " full", "Half,Half,Half", 10
            ),
            "215 TFLOP/s, 22 %: neither",
        ),
    ],
)
def test_a_row_says_its_rate_and_the_nearer_limit(one: Operator, text: str) -> None:
    assert efficiency_text(one, one_step(one), H100) == text


def test_attention_is_up_to_that_rate_unless_the_trace_says_what_it_sees() -> None:
    shapes = f"{HEADS},{HEADS},{HEADS}"
    one = row("scaled_dot_product_attention", shapes, "Half,Half,Half", 10, category="attention")
    told = replace(one, shapes=f"{shapes} causal")
    assert efficiency_text(one, one_step(one), H100) == "up to 215 TFLOP/s, 22 %: neither"
    assert efficiency_text(told, one_step(told), H100) == "107 TFLOP/s, 11 %: neither"


@pytest.mark.parametrize(
    ("kernels", "text"),
    [
        (("ampere_sgemm_128x64_tn",), "34.4 TFLOP/s, 51 %: compute-bound"),
        (("cutlass_80_tensorop_s1688gemm_128x128",), "34.4 TFLOP/s, 7 %: neither"),
        (("sm90_xmma_gemm_bf16bf16_bf16f32_f32_tn",), "34.4 TFLOP/s, 3 %: neither"),
        (("ampere_sgemm_128x64_tn", "sm90_xmma_gemm_bf16bf16_bf16f32"), "34.4 TFLOP/s"),
        ((), "34.4 TFLOP/s"),
    ],
)
def test_products_of_floats_have_the_peak_that_kernels_name(kernels: tuple[str, ...], text: str) -> None:
    one = row("mm", "4096x4096,4096x4096", "float,float", 4000)
    assert efficiency_text(one, one_step(one, kernels=kernels), H100) == text


def test_without_known_peaks_only_rates_are_told() -> None:
    one = row("mm", "64x64,64x64", "float,float", 5)
    on_cpu = replace(one, kernels=0, kernel_ns=0)
    assert efficiency_text(on_cpu, one_step(on_cpu), "") == "105 GFLOP/s"
    assert efficiency_text(one, one_step(one), "GPU 0") == "105 GFLOP/s"
    nccl = Operator("forward", "communication", "nccl:all_reduce", "", "", 1, 1, 9, 9, 0)
    assert efficiency_text(on_cpu, one_step(on_cpu, nccl), "") == "", "its GPU was not recorded"


def test_rows_with_missing_kernels_or_copies_over_a_bus_have_no_rate() -> None:
    one = row("mm", "64x64,64x64", "Half,Half", 5, calls=4)
    assert uses_of_operator(replace(one, kernels=3), one_step(one), H100) == ()
    assert uses_of_operator(replace(one, kernel_ns=0), one_step(one), H100) == ()
    copied = row("copy_", "1024,1024", "float,float", 5, category="cast_copy")
    upload = Kernel("Memcpy HtoD", "copy_h2d", "aten::copy_", 1, 1, 1)
    assert uses_of_operator(copied, replace(one_step(copied), kernels=(upload,)), H100) == ()


def test_products_are_summed_up_without_those_that_memory_holds_up() -> None:
    fast = row("mm", "4096x4096,4096x4096", "BFloat16,BFloat16", 200)
    slow = replace(fast, kernel_ns=600_000)
    starved = row("linear", "1x8000,8000x8000", "BFloat16,BFloat16", 50)
    assert product_sentence(one_step(fast, slow, starved), H100) == (
        "matrix products run at 344 TFLOP/s for 800 µs in all: 35 % of the data sheet's peak"
    )
    assert product_sentence(one_step(starved), H100) == product_sentence(one_step(fast), "GPU 0") == ""
