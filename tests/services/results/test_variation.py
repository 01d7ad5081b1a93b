"""What the runs of a file tell of how much their boxes vary."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
from hand_made import make_case, make_run, measured, steady
from journals import RUNTIME, STARTED_US, make_journal

from gputui.analysis.spread import ASSUMED, BoxSpread, assumed_runs, run_prior_sd
from gputui.analysis.verdict import RatioEstimate, SpeedEstimate
from gputui.model.machine import Runtime
from gputui.model.result import CaseResult, Run, Spread
from gputui.services.compare.pairing import compare_sides, sides_by
from gputui.services.compare.session import ask
from gputui.services.results.selectors import run_in
from gputui.services.results.throughput import prior_of, speed_of
from gputui.services.results.variation import (
    NOTHING_KNOWN,
    BoxVariation,
    variation_by_machine,
    with_spreads,
)
from gputui.store.journal_reader import read_journal, read_telemetry
from gputui.store.reading import open_result
from gputui.store.writing import store_run

CASES = [make_case(size=f"mini-{place}") for place in range(5)]
APART = (0.1, 0.103, 0.098)


def variation_of(*results: CaseResult) -> BoxVariation:
    (variation,) = variation_by_machine([make_run(*results)]).values()
    return variation


def box_of(*results: CaseResult) -> BoxSpread:
    return variation_of(*results).launches.get("cpu", ASSUMED)


def test_a_row_of_one_launch_knows_more_of_its_spread_from_the_other_rows() -> None:
    rows = [measured(case, *map(steady, APART)) for case in CASES]
    one = measured(make_case("membw"), steady(0.1))

    variation = variation_of(*rows, one)
    spread, assumed = variation.launch_spread(one), NOTHING_KNOWN.launch_spread(one)

    prior = variation.launches["cpu"]
    assert (prior.rows, prior.launches) == (5, 15)
    assert spread.variance < assumed.variance == pytest.approx(prior_of(one) ** 2)
    assert spread.df > assumed.df


def test_rows_under_contention_teach_by_the_time_without_it() -> None:
    calm, held, hopeless = (
        box_of(*(measured(case, *map(steady, APART), waited_share=share) for case in CASES))
        for share in (0.0, 0.3, 0.9)
    )
    assert (held.rows, held.df) == (calm.rows, calm.df)
    assert held.factor == pytest.approx(calm.factor, rel=0.05)
    assert hopeless == ASSUMED


def test_precisions_that_shared_their_launches_are_one_row() -> None:
    both, one = (
        box_of(
            *(
                measured(make_case(size=f"mini-{place}", precision=precision), *map(steady, APART))
                for place in range(3)
                for precision in precisions
            )
        )
        for precisions in (("fp32", "amp"), ("fp32",))
    )
    assert (both.rows, both.df, both.launches) == (one.rows, one.df, one.launches) == (3, one.df, 9)


GEMM = make_case()


def spread_of_last(runs: list[Run]) -> Spread:
    (variation,) = variation_by_machine(runs).values()
    return variation.launch_spread(runs[-1].cases[0])


def test_earlier_runs_of_one_software_tell_how_much_the_launches_of_a_case_vary() -> None:
    def runs_of_one_launch(*steps_s: float, runtime: Runtime = RUNTIME) -> list[Run]:
        return [make_run(measured(GEMM, steady(step_s)), runtime=runtime) for step_s in steps_s]

    none, few, more = (
        spread_of_last(runs_of_one_launch(*times))
        for times in ((0.1,), (0.1, 0.102), (0.1, 0.102, 0.099, 0.101, 0.1))
    )
    assert none.df < few.df < more.df
    assert none.variance > few.variance > more.variance
    other = replace(RUNTIME, torch_version="9.9")
    mine = runs_of_one_launch(0.2, 0.203, 0.199)
    with_other = spread_of_last([*runs_of_one_launch(0.1, 0.102, 0.099, runtime=other), *mine])
    as_mine = spread_of_last([*runs_of_one_launch(0.1, 0.102, 0.099), *mine])
    assert with_other.variance < spread_of_last(mine).variance < as_mine.variance


def test_launches_of_one_run_are_better_evidence_than_what_runs_differ_by() -> None:
    apart, near = (
        spread_of_last([make_run(measured(GEMM, *map(steady, (t, 1.01 * t, 0.99 * t)))) for t in times])
        for times in ((0.1, 0.12, 0.09), (0.1, 0.1, 0.1))
    )
    assert apart.df == near.df
    assert apart.variance == pytest.approx(near.variance, rel=1e-3)


def test_runs_far_enough_apart_tell_how_much_runs_differ_and_one_alone_is_not_known() -> None:
    hour_us = 3_600_000_000
    runs = [
        make_run(measured(GEMM, *[steady(t)] * 3), started_utc_us=STARTED_US + place * hour_us)
        for place, t in enumerate((0.1, 0.1002, 0.0999, 0.1001))
    ]
    at_once = [replace(run, summary=replace(run.summary, started_utc_us=STARTED_US)) for run in runs]

    def run_spread(of: list[Run]) -> Spread:
        (variation,) = variation_by_machine(of).values()
        return variation.run_spread(of[-1].cases[0])

    assumed = assumed_runs(run_prior_sd("cpu"))
    assert run_spread(runs[:1]) == run_spread(at_once) == assumed
    assert run_spread(runs).df > assumed.df
    assert run_spread(runs).variance < assumed.variance


def test_a_case_carries_what_is_known_of_its_box_and_of_what_it_was_interleaved_with() -> None:
    run = interleaved(2.0, 2.02)
    (variation,) = variation_by_machine([run]).values()
    fp32, amp = with_spreads(run, variation).cases

    assert fp32.launch_spread == variation.launch_spread(fp32)
    assert fp32.run_spread == variation.run_spread(fp32)
    assert dict(fp32.pair_spreads) == {amp.case_id: variation.pair_spread(fp32, amp)}


def test_a_run_has_the_interval_that_its_file_knows_without_the_difference_that_is_asked_for(
    tmp_path: Path,
) -> None:
    db = tmp_path / "r.db"
    for number, scale in enumerate((1.0, 1.01, 0.99, 2.0)):
        run_dir = tmp_path / f"run-{number}"
        run_id = f"0194b5a0-0000-7000-8000-{number}00000000000"
        make_journal(run_dir, run_id=run_id, scale=scale, seed=number, started_utc_us=STARTED_US + number)
        store_run(db, read_journal(run_dir), read_telemetry(run_dir))
        if number == 2:
            with open_result(db) as file:
                shown, alone = run_in(file, run_id).cases[0], file.run(run_id).cases[0]
    assert alone.launch_spread is None
    assert shown.launch_spread is not None
    known, assumed = speed_of(shown), speed_of(alone)
    assert isinstance(known, SpeedEstimate)
    assert isinstance(assumed, SpeedEstimate)
    assert known.units_per_s == assumed.units_per_s
    assert assumed.low < known.low < known.high < assumed.high
    assert "moderated" in known.method

    side, _ = ask([f"{db}@latest~1", f"{db}@latest"]).sides
    compared = side.cases[0].result
    assert compared.launch_spread is not None
    assert compared.launch_spread.variance < NOTHING_KNOWN.launch_spread(compared).variance


def interleaved(*ratios: float) -> Run:
    """A run with a launch for each ratio of fp32 to amp, whose blocks alternate."""
    slow = measured(make_case(precision="fp32"), *(steady(0.1 * ratio) for ratio in ratios))
    fast = measured(make_case(precision="amp"), *(steady(0.1) for _ in ratios))
    return make_run(*(_in_turns(case, place) for place, case in enumerate((slow, fast))))


def _in_turns(case: CaseResult, place: int) -> CaseResult:
    return replace(
        case,
        measurements=tuple(
            replace(
                m,
                blocks=tuple(
                    replace(block, start_ns=(2 * number + place) * 10**11)
                    for number, block in enumerate(m.blocks)
                ),
            )
            for m in case.measurements
        ),
    )


def test_precisions_that_were_interleaved_know_how_much_their_ratio_varies_from_earlier_runs() -> None:
    earlier, one = [interleaved(2.0, 2.02, 1.98), interleaved(2.01, 1.99)], interleaved(2.0)
    (variation,) = variation_by_machine([*earlier, one]).values()
    fp32, amp = one.cases

    spread, assumed = variation.pair_spread(fp32, amp), NOTHING_KNOWN.pair_spread(fp32, amp)
    assert spread == variation.pair_spread(amp, fp32)
    assert spread.df == pytest.approx(assumed.df + 5), "of six launches in all"
    assert spread.variance < assumed.variance

    alone, known = (
        compare_sides(*sides_by("precision", [one], history=history), ignore="precision").rows[0].estimate
        for history in ([], earlier)
    )
    assert isinstance(alone, RatioEstimate)
    assert isinstance(known, RatioEstimate)
    assert known.paired
    assert known.high / known.low < alone.high / alone.low
