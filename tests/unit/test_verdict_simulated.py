from __future__ import annotations

import math
import random

import pytest

from gputui.analysis.verdict import RatioEstimate, compare_launches, judge

ROWS = 10
CPU_PRIOR = 0.10


def launch(rng: random.Random, launch_sd: float, scale: float) -> list[float]:
    """15 blocks that scatter by 1 % and follow each other (0.4), around a launch's own level."""
    level = scale * math.exp(rng.gauss(0, launch_sd))
    away = rng.gauss(0, 1)
    blocks = []
    for _ in range(15):
        away = 0.4 * away + math.sqrt(1 - 0.4**2) * rng.gauss(0, 1)
        blocks.append(level * math.exp(0.01 * away))
    return blocks


def row(rng: random.Random, launches: int, launch_sd: float, scale: float = 1.0) -> RatioEstimate:
    a = [launch(rng, launch_sd, 1.0) for _ in range(launches)]
    b = [launch(rng, launch_sd, scale) for _ in range(launches)]
    estimate = compare_launches(a, b, prior_sd_a=CPU_PRIOR, prior_sd_b=CPU_PRIOR)
    assert isinstance(estimate, RatioEstimate)
    return estimate


@pytest.mark.parametrize(("launches", "tables"), [(1, 200), (2, 100), (3, 60), (5, 40)])
def test_a_machine_compared_with_itself_is_called_different_in_at_most_5_rows_of_100(
    launches: int, tables: int
) -> None:
    rng = random.Random(1)
    called = 0
    for _ in range(tables):
        verdicts = judge([row(rng, launches, launch_sd=0.10) for _ in range(ROWS)])
        called += sum(verdict.word in ("faster", "slower") for verdict in verdicts)

    assert called <= 0.05 * tables * ROWS


@pytest.mark.parametrize(("launches", "pairs"), [(1, 150), (3, 60), (5, 40)])
def test_one_planted_case_of_half_as_much_work_more_is_found_in_9_tables_of_10(
    launches: int, pairs: int
) -> None:
    rng = random.Random(2)
    right = 0
    for _ in range(pairs):
        planted = row(rng, launches, launch_sd=0.05, scale=1.5)
        nulls = [row(rng, launches, launch_sd=0.05) for _ in range(ROWS - 1)]
        right += judge([planted, *nulls])[0].word == "slower"

    assert right >= 0.9 * pairs


def test_two_launches_of_a_stable_gpu_case_are_seldom_called_different_under_its_prior() -> None:
    rng = random.Random(3)
    words = []
    for _ in range(300):
        a, b = [launch(rng, 0.016, 1.0)], [launch(rng, 0.016, 1.0)]
        words.append(judge([compare_launches(a, b, prior_sd_a=0.026, prior_sd_b=0.026)])[0].word)

    assert sum(word in ("faster", "slower") for word in words) <= 0.05 * len(words)


@pytest.mark.parametrize("launches", [1, 3])
def test_the_interval_of_the_ratio_covers_the_truth(launches: int) -> None:
    rng = random.Random(4)
    estimates = [row(rng, launches, launch_sd=0.10, scale=1.3) for _ in range(400)]
    covered = sum(estimate.low <= 1 / 1.3 <= estimate.high for estimate in estimates)

    assert 0.92 * len(estimates) <= covered < len(estimates)
