"""What is said of two steps before their times are compared: never that work differs where it does not."""

from __future__ import annotations

from dataclasses import replace

import pytest

from gputui.analysis.work import different_work, even_factor, wider_type
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
