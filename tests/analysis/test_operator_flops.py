"""Operations of calls, against counts by hand."""

from __future__ import annotations

import pytest

from gputui.analysis.operator_flops import flops_of_call
from gputui.model.absent import Missing

HEADS = "2x3x8x4"  # batch, heads, positions, width


@pytest.mark.parametrize(
    ("operator", "shapes", "flops"),
    [
        # 2 x 3 heads, 8 x 8 pairs, 4 + 4 multiplications each
        ("aten::scaled_dot_product_attention", f"{HEADS},{HEADS},{HEADS}", 2 * 6 * 64 * 8),
        ("aten::scaled_dot_product_attention", "1x1x4x2,1x1x3x2,1x1x3x5", 2 * 12 * 7),
        ("aten::linear", "5x64,32x64", 2 * 5 * 64 * 32),
    ],
)
def test_operations_are_those_counted_by_hand(operator: str, shapes: str, flops: int) -> None:
    assert flops_of_call(operator, shapes) == flops


@pytest.mark.parametrize(
    ("operator", "shapes"),
    [
        ("aten::conv2d", "2x3x32x32,16x3x3x3"),
        ("aten::mm", "8x64,64x32->8x32"),
        ("aten::scaled_dot_product_attention", f"{HEADS},{HEADS}"),
        ("aten::scaled_dot_product_attention", "4,4,4"),
        ("aten::mm", "8x64,64x"),
        ("aten::mm", f"{'9' * 40}x2,2x2"),
        ("aten::add", "8,8"),
    ],
)
def test_what_the_trace_does_not_tell_is_missing(operator: str, shapes: str) -> None:
    assert isinstance(flops_of_call(operator, shapes), Missing)
