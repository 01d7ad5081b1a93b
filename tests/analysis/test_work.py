"""What is said of two steps before their times are compared: never that work differs where it does not."""

from __future__ import annotations

from dataclasses import replace

import pytest

from gputui.analysis.work import (
    bytes_of_call,
    different_work,
    even_factor,
    flops_of_call,
    told_of_results,
    wider_type,
)
from gputui.model.absent import Missing
from gputui.model.journal import Operator, ProfiledPass

MS = 1_000_000


def step(*operators: Operator, steps: int = 1) -> ProfiledPass:
    return ProfiledPass(0, 0, True, "", steps, 1, 1, 0, 0, operators, (), (), (), "", 0)


def row(
    name: str = "mm", shapes: str = "64x8,8x8", ms: float = 10, *, calls: int = 1, category: str = "gemm",
    types: str = "float,float", phase: str = "backward",
) -> Operator:  # fmt: skip
    return Operator(phase, category, f"aten::{name}", shapes, types, calls, calls, round(ms * MS), 0, 0)


BASE = step(
    row(), row("add", "64x8", 5, category="elementwise"), row("linear", "64x8,8x8", 5, phase="forward")
)


def scaled(found: ProfiledPass, *factors: float) -> ProfiledPass:
    rows = zip(found.operators, factors, strict=True)
    return replace(found, operators=tuple(replace(o, time_ns=round(o.time_ns * f)) for o, f in rows))


def test_another_batch_is_other_work_and_the_sizes_are_said() -> None:
    small = step(row(shapes="4x8,8x8"), row("linear", "4x8,8x8", phase="forward"))
    assert different_work(BASE, small) == ("a and b do different work: mm gets 64x8,8x8 in a, 4x8,8x8 in b")


def test_the_same_work_in_more_and_smaller_pieces_is_no_other_work() -> None:
    pieces = step(row(shapes="4x8,8x8", calls=16), row("linear", "4x8,8x8", phase="forward", calls=16))
    assert different_work(BASE, pieces) == ""


def test_as_many_shapes_in_more_calls_are_other_work() -> None:
    more = step(row(calls=4), row("linear", "64x8,8x8", 5, calls=4, phase="forward"))
    assert different_work(BASE, more) == (
        "a and b do different work: mm of 64x8,8x8 is called 1 times a step in a, 4 in b"
    )
    assert different_work(more, BASE).endswith("is called 4 times a step in a, 1 in b")
    deeper = step(*BASE.operators, row(shapes="64x512,512x8", ms=100))
    assert different_work(BASE, deeper).endswith("mm gets 64x8,8x8 in a, 64x512,512x8 in b"), (
        "a is a part of b"
    )
    over_steps = step(*(replace(o, calls=3) for o in BASE.operators), steps=3)
    assert different_work(BASE, over_steps) == ""


@pytest.mark.parametrize(
    "other",
    [
        scaled(BASE, 3, 1, 2),
        step(row("bmm", "4x8,8x8")),
        step(row(types="BFloat16,BFloat16"), *BASE.operators[1:]),
        step(row(shapes=""), row("linear", "", phase="forward")),
        step(*BASE.operators[:2], row("linear", "4x8,8x8", 5, phase="forward")),
        step(),
    ],
    ids=["slower", "another operator", "another type", "no shapes", "a small part", "nothing"],
)
def test_work_is_called_different_only_where_most_of_it_is_known_to_be(other: ProfiledPass) -> None:
    assert different_work(BASE, other) == ""


def test_all_work_that_takes_as_many_times_as_long_is_the_machines() -> None:
    said = "all kinds of work take about 2.00x as long in"
    assert even_factor(BASE, scaled(BASE, 2, 2.1, 1.9)).startswith(f"{said} b, in as many calls")
    assert even_factor(scaled(BASE, 2, 2.1, 1.9), BASE).startswith(f"{said} a, in as many calls")


@pytest.mark.parametrize(
    "other",
    [
        scaled(BASE, 1.05, 1.1, 1),
        scaled(BASE, 2, 1, 1),
        step(*(replace(o, time_ns=2 * o.time_ns, dtypes="double") for o in BASE.operators)),
        step(*(replace(o, time_ns=2 * o.time_ns, calls=2) for o in BASE.operators)),
        step(*(replace(o, time_ns=2 * o.time_ns, shapes="9x9") for o in BASE.operators)),
        step(),
    ],
    ids=["hardly", "one kind", "another type", "more calls", "other sizes", "nothing"],
)
def test_a_machine_is_not_blamed_for_what_a_program_may_have_done(other: ProfiledPass) -> None:
    assert even_factor(BASE, other) == ""


def test_without_shapes_slower_work_may_be_larger_work() -> None:
    bare = step(*(replace(o, shapes="", dtypes="") for o in BASE.operators))
    assert even_factor(bare, scaled(bare, 2, 2, 2)) == ""


def test_the_types_in_which_a_backward_pass_multiplies_are_said_if_they_differ() -> None:
    narrow = step(row(types="BFloat16,BFloat16"))
    assert wider_type(narrow, BASE) == "the backward pass multiplies in BFloat16 in a, in float in b"
    assert wider_type(BASE, BASE) == wider_type(BASE, step()) == ""
    assert wider_type(BASE, step(row(), row(types="BFloat16,BFloat16"))) == "", "half of it"
    assert wider_type(BASE, step(row(types="BFloat16,BFloat16", phase="forward"))) == ""


HEADS = "2x3x8x4"  # batch, heads, positions, width


@pytest.mark.parametrize(
    ("operator", "shapes", "flops"),
    [
        # 2 x (2 x 16 x 30 x 30 results) x (3 x 3 x 3 multiplications each)
        ("aten::conv2d", "2x3x32x32,16x3x3x3->2x16x30x30", 2 * 28_800 * 27),
        ("aten::convolution", "2x4x10,8x2x5->2x8x6", 2 * 96 * 10),
        ("aten::conv2d", "2x3x32x32,16x3x3x3,16->2x16x30x30", 2 * 28_800 * 27),
        # both gradients, then that of the weight alone
        ("aten::convolution_backward", "2x16x30x30,2x3x32x32,16x3x3x3->2x3x32x32,16x3x3x3", 4 * 28_800 * 27),
        ("aten::convolution_backward", "2x16x30x30,2x3x32x32,16x3x3x3->16x3x3x3", 2 * 28_800 * 27),
        # 2 x 3 heads, 8 x 8 pairs, 4 + 4 multiplications each; causal: 36 pairs
        ("aten::scaled_dot_product_attention", f"{HEADS},{HEADS},{HEADS}", 2 * 6 * 64 * 8),
        ("aten::scaled_dot_product_attention", f"{HEADS},{HEADS},{HEADS} full", 2 * 6 * 64 * 8),
        ("aten::scaled_dot_product_attention", f"{HEADS},{HEADS},{HEADS} causal", 2 * 6 * 36 * 8),
        ("aten::scaled_dot_product_attention", "1x1x4x2,1x1x3x2,1x1x3x5 causal", 2 * (6 + 3) * 7),
        (
            "aten::_scaled_dot_product_flash_attention_backward",
            ",".join([HEADS] * 4) + " causal",
            2 * 6 * 36 * 20,
        ),
        ("aten::bmm", "4x8x64,4x64x32", 2 * 4 * 8 * 64 * 32),
        ("aten::matmul", "5x1x8x64,3x64x32", 2 * 15 * 8 * 64 * 32),
        ("aten::matmul", "64,64x7", 2 * 7 * 64),
        ("aten::matmul", "0x8x64,1x64x32", 0),
        ("aten::linear", "2x8x64,32x64,32", 2 * 2 * 8 * 64 * 32),
        ("aten::addmm", "32,8x64,64x32", 2 * 8 * 64 * 32),
    ],
)
def test_operations_are_those_counted_by_hand(operator: str, shapes: str, flops: int) -> None:
    assert flops_of_call(operator, shapes) == flops


@pytest.mark.parametrize(
    ("operator", "shapes"),
    [
        ("aten::conv2d", "2x3x32x32,16x3x3x3"),
        ("aten::convolution_backward", "2x16x30x30,2x3x32x32,16x3x3x3"),
        ("aten::scaled_dot_product_attention", f"{HEADS},{HEADS}"),
        ("aten::scaled_dot_product_attention", "4,4,4"),
        ("aten::mm", ""),
        ("aten::mm", "8x64,32x8"),
        ("aten::mm", "8x64,64x"),
        ("aten::mm", f"{'9' * 40}x2,2x2"),
        ("aten::add", "8,8"),
    ],
)
def test_what_the_trace_does_not_tell_is_missing(operator: str, shapes: str) -> None:
    assert isinstance(flops_of_call(operator, shapes), Missing)


@pytest.mark.parametrize(
    ("operator", "shapes", "dtypes", "size"),
    [
        ("aten::mm", "8x64,64x32", "Half,Half", 2 * (512 + 2048 + 256)),
        ("aten::add", "8x64,64", "float,float", 4 * (512 + 64 + 512)),
        ("aten::mul_", "8x64,8x1", "BFloat16,float", 2 * 512 + 4 * 8 + 4 * 512),
        ("aten::copy_", "8x64,8x64", "float,Half", 4 * 512 + 2 * 512),
        ("aten::clone", "8x64", "int64", 8 * 1024),
        ("aten::conv2d", "2x3x32x32,16x3x3x3->2x16x30x30", "float,float", 4 * (6144 + 432 + 28_800)),
    ],
)
def test_each_input_is_read_and_each_result_written_once(
    operator: str, shapes: str, dtypes: str, size: int
) -> None:
    assert bytes_of_call(operator, shapes, dtypes) == size


def test_inputs_that_are_narrowed_first_count_as_narrow_ones() -> None:
    assert bytes_of_call("aten::mm", "8x64,64x32", "float,float", 2) == 2 * (512 + 2048 + 256)
    for operator, shapes, dtypes in (
        ("aten::add", "8,8", "float,quint8"),
        ("aten::add", "8,8", "float"),
        ("aten::unique", "8", "float"),
    ):
        assert isinstance(bytes_of_call(operator, shapes, dtypes), Missing)


TENSORS = [[2, 3, 32, 32], [16, 3, 3, 3], [], [], [], []]
GRADIENTS = [[2, 16, 30, 30], [2, 3, 32, 32], [16, 3, 3, 3]]


@pytest.mark.parametrize(
    ("operator", "inputs", "arguments", "told"),
    [
        ("aten::conv2d", TENSORS, ["", "", "", "[1, 1]", "[0, 0]", "[1, 1]", "1"], "->2x16x30x30"),
        ("aten::conv2d", TENSORS, ["", "", "", "[2, 2]", "[1, 1]", "[2, 2]", "1"], "->2x16x15x15"),
        ("aten::conv2d", TENSORS, ["", "", "", "[1, 1]", "same", "[1, 1]", "1"], ""),
        ("aten::conv2d", TENSORS, ["", "", "", "[0, 0]", "[0, 0]", "[1, 1]", "1"], ""),
        ("aten::convolution", TENSORS, ["", "", "", "[1, 1]", "[0, 0]", "[1, 1]", "True", "", "1"], ""),
        (
            "aten::convolution_backward",
            GRADIENTS,
            [*[""] * 7, "False", "[0, 0]", "1", "[False, True, False]"],
            "->16x3x3x3",
        ),
        ("aten::convolution_backward", GRADIENTS, [*[""] * 7, "True", "", "1", "[True, True, False]"], ""),
        ("aten::scaled_dot_product_attention", [[1]] * 3, [*[""] * 5, "True", "", ""], " causal"),
        ("aten::scaled_dot_product_attention", [[1]] * 3, [*[""] * 5, "False", "", ""], " full"),
        ("aten::scaled_dot_product_attention", [[1]] * 3, [], ""),
        ("aten::mm", [[8, 8], [8, 8]], ["", ""], ""),
    ],
)
def test_a_trace_tells_results_by_its_other_arguments(
    operator: str, inputs: list[object], arguments: list[object], told: str
) -> None:
    assert told_of_results(operator, inputs, arguments) == told


@pytest.mark.parametrize(
    "inputs", [[], [[]], [7, "x"], [["a"] * 4, [1, 2, "b", 3]], [[[1]], [[2]]], [None] * 9]
)
@pytest.mark.parametrize(
    "arguments", [[], ["9" * 9000] * 12, [None] * 12, [[1]] * 12, ["", "", "", "[1,1]"] * 3]
)
def test_nonsense_of_a_stranger_tells_nothing(inputs: list[object], arguments: list[object]) -> None:
    for operator in ("aten::conv2d", "aten::convolution_backward", "aten::mm"):
        assert told_of_results(operator, inputs, arguments) == ""
