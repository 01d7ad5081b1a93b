"""What would change the answer: the price at which costs are even, and cases that speak against it."""

from __future__ import annotations

import re
from dataclasses import replace

from test_headline import DECODE, GPT, run_of

from gputui.model.result import Run
from gputui.services.compare.pairing import compare_sides, side_of_runs
from gputui.services.compare.reports import turning_points


def points(a: Run, b: Run) -> list[str]:
    other = replace(b, summary=replace(b.summary, run_id="0194b5a0-0000-7000-8000-00000000bbbb"))
    comparison = compare_sides(side_of_runs("a.db", [a]), side_of_runs("b.db", [other]))
    found = turning_points(comparison)
    return [re.sub(r" \([\d.]+ to [\d.]+\)", "", one) for one in found]


def test_the_price_of_b_at_which_costs_are_even_and_the_case_that_speaks_against_it() -> None:
    a = run_of({GPT: 0.064, DECODE: 0.044}, 3.5)
    b = run_of({GPT: 0.1, DECODE: 0.1}, 1.75)
    assert points(a, b) == [
        "if b.db costs $2.24/h or more: a.db is cheaper per token",
        "for text generation: b.db is 56 % slower than a.db; a.db costs 12 % less per token: take a.db",
    ]


def test_of_what_is_dearer_the_price_that_makes_it_cheaper() -> None:
    assert points(run_of({GPT: 0.1}, 1.0), run_of({GPT: 0.05}, 4.0)) == [
        "if b.db costs $2.00/h or less: b.db is cheaper per token"
    ]


def test_without_prices_the_share_of_a_price_below_which_b_is_cheaper() -> None:
    assert points(run_of({GPT: 0.064}), run_of({GPT: 0.1})) == [
        "if b.db costs less than 64 % of a.db: b.db is cheaper per token"
    ]
    assert points(run_of({GPT: 0.1}), run_of({GPT: 0.02})) == [
        "if b.db costs less than 5.00 times a.db: b.db is cheaper per token"
    ]


def test_an_undecided_main_case_has_no_turning_point() -> None:
    assert points(run_of({GPT: 0.1}, 2.0), run_of({GPT: 0.1}, 1.0)) == []
