"""`bakeoff --resolve`: rounds of launches until the rows of all hosts are told from those of the first."""

from __future__ import annotations

import re
import venv
from pathlib import Path

import hand_made
import pytest
from builders import make_case, make_plan
from command_line import gputui, write_spin_profile
from hand_made import make_run, measured, steady
from journals import GPU_MACHINE

from gputui.analysis.resolution import OPEN, OUT_OF_REACH, SLOWER, WITHIN
from gputui.model.plan import Plan
from gputui.model.result import Run
from gputui.services.compare.pairing import Pairing
from gputui.services.compare.resolve import RowStanding
from gputui.services.compare.rounds import _look
from gputui.services.hosts.bakeoff import Rounds
from gputui.services.profiles.planner import plan_again
from gputui.store.reading import open_result


def test_a_plan_of_a_later_round_times_the_open_cases_alone_in_the_time_they_had() -> None:
    cases = [make_case(precision=precision) for precision in ("fp32", "amp")]
    plan, first, others = make_plan((0, 1), (0, 1), cases=cases), 0, [1]
    again = plan_again(plan, {first}, 4, seed=7)
    assert [launch.case_ids for launch in again.launches] == [(first,)] * 4
    assert [launch.launch_id for launch in again.launches] == [0, 1, 2, 3]
    assert {launch.profiled for launch in again.launches} == {()}
    assert [again.cases[case_id].outcome for case_id in others] == ["skipped"]

    def seconds(one: Plan) -> float:
        launch = next(launch for launch in one.launches if first in launch.case_ids)
        share = launch.weight / sum(other.weight for other in one.launches)
        return one.budget_s * share / len(launch.case_ids)

    assert seconds(again) == pytest.approx(seconds(plan))


def judged(percent: float, factor: float, rounds: int = 1, spread: float = 1e-3) -> RowStanding:
    """The row of a host that takes so many times as long, after so many rounds of three launches each."""
    asked = Rounds("bake", percent, (3, 6), ("a", "b"))
    case = hand_made.make_case("gpt_train", workload_class="training", device_class="gpu")

    def run(step_s: float) -> Run:
        launches = [steady(step_s * (1 + spread * number)) for number in range(3)]
        return make_run(measured(case, *launches), machine=GPU_MACHINE)

    rows: dict[Pairing, RowStanding] = {}
    runs = [(run(0.1), run(0.1 * factor)) for _ in range(rounds)]
    for number in range(1, rounds + 1):
        base, here = ([pair[side] for pair in runs[:number]] for side in (0, 1))
        _look(rows, base, here, asked, number)
    (row,) = rows.values()
    return row


def test_a_host_is_within_what_was_asked_different_or_open() -> None:
    assert judged(8.0, 1.0).word == WITHIN
    assert judged(8.0, 1.5).word == SLOWER
    assert judged(0.1, 1.0).word not in (WITHIN, SLOWER)


def test_a_row_stays_open_as_long_as_more_launches_of_both_hosts_may_decide_it() -> None:
    assert judged(7.0, 1.0, spread=0.01).word == OPEN
    assert judged(5.0, 1.0, spread=0.01).word == OUT_OF_REACH


def test_a_later_round_judges_the_launches_of_all_rounds_together() -> None:
    assert judged(7.0, 1.002).word == OPEN
    row = judged(7.0, 1.002, rounds=2)
    assert (row.word, row.look, row.launches) == (WITHIN, 2, 6)


@pytest.mark.slow
@pytest.mark.alone
def test_hosts_go_in_rounds_until_their_rows_are_told_from_those_of_the_first(tmp_path: Path) -> None:
    venv.create(tmp_path / "lean", symlinks=True)
    lean, db = str(tmp_path / "lean" / "bin" / "python"), tmp_path / "a.db"
    vias = ("--via", "env A=1", "--via", "env GPUTUI_SPIN_WORK=30", "--via", "env A=2")
    rounds = (
        "--resolve",
        "0.5",
        "--launches",
        "6",
        "--yes",
        "--same-box-parallel",
    )
    profile = write_spin_profile(tmp_path / "spin.toml")
    done = gputui(
        "bakeoff",
        profile,
        *vias,
        *rounds,
        "--dir",
        tmp_path / "there",
        "--python",
        lean,
        "--db",
        db,
        env={"GPUTUI_STATE": str(tmp_path / "state")},
    )
    assert done.returncode == 0, done.stderr
    assert "at most 2 rounds, to 3 and 6 launches per case, with 98.5 % intervals" in done.stderr
    assert "env GPUTUI_SPIN_WORK=30: 1 of 1 row decided after 3 launches" in done.stderr
    with open_result(db) as file:
        runs = [file.run(summary.run_id) for summary in file.summaries()]
    launches = dict.fromkeys(sorted({run.summary.label for run in runs}), 0)
    for run in runs:
        launches[run.summary.label] += len(run.cases[0].measurements)
    base, slow, same = launches.values()
    assert slow == 3
    assert (base, same) in ((6, 6), (3, 3)), "the one like the first is open, or out of reach already"
    assert "% slower" in done.stdout
    assert re.search(
        r"slow among 3 equal boxes \(.*\), of 1 row: env GPUTUI_SPIN_WORK=30 in 1 row", done.stdout
    )
    assert "--pool" in done.stdout
    again = gputui("bakeoff", "--resume", env={"GPUTUI_STATE": str(tmp_path / "state")})
    assert (again.returncode, again.stdout) == (0, done.stdout)
