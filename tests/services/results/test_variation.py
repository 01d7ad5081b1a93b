"""What the runs of a file tell of how much their boxes vary."""

from __future__ import annotations

import math

from hand_made import make_case, make_run, measured, steady

from gputui.analysis.spread import LaunchPrior
from gputui.model.result import CaseResult
from gputui.services.results.variation import BoxVariation, variation_by_machine

CASES = [make_case(size=f"mini-{place}") for place in range(5)]
APART = (0.1, 0.103, 0.098)


def variation_of(*results: CaseResult) -> BoxVariation:
    (variation,) = variation_by_machine([make_run(*results)]).values()
    return variation


def test_a_row_of_one_launch_knows_its_spread_from_the_other_rows() -> None:
    rows = [measured(case, *map(steady, APART)) for case in CASES]
    one = measured(make_case("membw"), steady(0.1))

    variation = variation_of(*rows, one)
    spread = variation.launch_spread(one)

    prior = variation.launches["cpu"]
    assert isinstance(prior, LaunchPrior)
    assert (prior.rows, prior.launches) == (5, 15)
    assert spread is not None
    assert 0.02 < math.sqrt(spread.variance) < 0.04


def test_rows_under_contention_inform_no_prior_and_use_none() -> None:
    held = [measured(case, *map(steady, APART), waited_share=0.3) for case in CASES[:2]]
    calm = [measured(case, *map(steady, APART)) for case in CASES[2:]]

    variation = variation_of(*held, *calm)
    assert not isinstance(variation.launches["cpu"], LaunchPrior)
    assert variation.launch_spread(held[0]) is None


def test_precisions_that_shared_their_launches_are_one_row() -> None:
    rows = [
        measured(make_case(size=f"mini-{place}", precision=precision), *map(steady, APART))
        for place in range(3)
        for precision in ("fp32", "amp")
    ]

    assert not isinstance(variation_of(*rows).launches["cpu"], LaunchPrior)
