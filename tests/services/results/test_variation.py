"""What the runs of a file tell of how much their boxes vary."""

from __future__ import annotations

import math
from dataclasses import replace
from pathlib import Path

from hand_made import make_case, make_run, measured, steady
from journals import RUNTIME, STARTED_US, make_journal

from gputui.analysis.spread import LaunchPrior
from gputui.analysis.verdict import RatioEstimate, SpeedEstimate
from gputui.model.machine import Runtime
from gputui.model.result import CaseResult, Run, Spread
from gputui.services.compare.pairing import compare_sides, sides_by
from gputui.services.compare.session import ask
from gputui.services.results.selectors import run_in
from gputui.services.results.throughput import speed_of
from gputui.services.results.variation import BoxVariation, variation_by_machine
from gputui.store.journal_reader import read_journal, read_telemetry
from gputui.store.reading import open_result
from gputui.store.writing import store_run

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


GEMM = make_case()


def runs_of_one_launch(*steps_s: float, runtime: Runtime = RUNTIME) -> list[Run]:
    return [make_run(measured(GEMM, steady(step_s)), runtime=runtime) for step_s in steps_s]


def spread_of_last(runs: list[Run]) -> Spread | None:
    (variation,) = variation_by_machine(runs).values()
    return variation.launch_spread(runs[-1].cases[0])


def test_earlier_runs_of_a_single_case_tell_how_much_its_launches_vary() -> None:
    found = spread_of_last(runs_of_one_launch(0.1, 0.102, 0.099, 0.101, 0.1))
    assert found is not None
    assert found.df == 4
    assert 0.005 < math.sqrt(found.variance) < 0.02
    assert spread_of_last(runs_of_one_launch(0.1, 0.102)) is None


def test_what_another_software_differs_by_is_not_taken_for_the_variation_of_a_box() -> None:
    other = replace(RUNTIME, torch_version="9.9")
    runs = [*runs_of_one_launch(0.1, 0.102, 0.099, runtime=other), *runs_of_one_launch(0.2, 0.203, 0.199)]
    found = spread_of_last(runs)
    assert found is not None
    assert found.df == 4
    assert math.sqrt(found.variance) < 0.03


def test_launches_of_one_run_are_better_evidence_than_what_runs_differ_by() -> None:
    apart = [make_run(measured(GEMM, *map(steady, (t, 1.01 * t, 0.99 * t)))) for t in (0.1, 0.12, 0.09)]
    found = spread_of_last(apart)
    assert found is not None
    assert found.df == 6
    assert math.sqrt(found.variance) < 0.02


def stored(place: Path, *scales: float) -> Path:
    """A file with a run of one launch for each of these factors of the time."""
    db = place / "r.db"
    for number, scale in enumerate(scales):
        run_dir = place / f"run-{number}"
        run_id = f"0194b5a0-0000-7000-8000-{number}00000000000"
        make_journal(run_dir, run_id=run_id, scale=scale, seed=number, started_utc_us=STARTED_US + number)
        store_run(db, read_journal(run_dir), read_telemetry(run_dir))
    return db


def test_the_difference_that_is_asked_for_is_not_taken_for_the_variation_of_a_box(tmp_path: Path) -> None:
    db = stored(tmp_path, 1.0, 1.01, 0.99, 2.0)
    asked = ask([f"{db}@latest~1", f"{db}@latest"])
    spread = asked.sides[0].cases[0].launch_spread
    assert spread is not None
    assert math.sqrt(spread.variance) < 0.1


def test_a_run_that_is_shown_has_the_interval_that_its_file_knows(tmp_path: Path) -> None:
    db = stored(tmp_path, 1.0, 1.01, 0.99, 1.005)
    with open_result(db) as file:
        newest = file.summaries()[0].run_id
        shown, alone = run_in(file, newest).cases[0], file.run(newest).cases[0]
    assert alone.launch_spread is None
    assert shown.launch_spread is not None
    known, assumed = speed_of(shown), speed_of(alone)
    assert isinstance(known, SpeedEstimate)
    assert isinstance(assumed, SpeedEstimate)
    assert known.units_per_s == assumed.units_per_s
    assert assumed.low < known.low < known.high < assumed.high
    assert "moderated" in known.method


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

    spread = variation.paired_spread(fp32, amp)
    assert spread is not None
    assert spread == variation.paired_spread(amp, fp32)
    assert spread.df == 5
    assert 0.005 < math.sqrt(spread.variance) < 0.01

    alone, known = (
        compare_sides(*sides_by("precision", [one], history=history), ignore="precision").rows[0].estimate
        for history in ([], earlier)
    )
    assert isinstance(alone, RatioEstimate)
    assert isinstance(known, RatioEstimate)
    assert known.paired
    assert known.high / known.low < alone.high / alone.low
