"""Every form gives one speed of a case, with one interval: it comes from one function."""

from __future__ import annotations

import csv
import json
from dataclasses import replace
from io import StringIO
from pathlib import Path
from typing import Any  # JSON

from command_line import gputui_here
from hand_made import make_case, make_run, measured, steady
from stored_runs import run_id_of, store

import gputui
from gputui.analysis.verdict import SpeedEstimate
from gputui.services.results.selectors import run_in
from gputui.services.results.throughput import speed_of
from gputui.store.reading import open_result

Figure = tuple[float, float, float]


def printed(*words: str | Path) -> str:
    done = gputui_here(*words)
    assert done.returncode == 0, done.stderr
    return done.stdout


def of_json(cases: list[dict[str, Any]]) -> dict[str, Figure]:
    speeds = {case["workload"]: case["speed"] for case in cases}
    return {
        name: (speed["units_per_s"], speed["low"], speed["high"])
        for name, speed in speeds.items()
        if speed["units_per_s"] is not None
    }


def test_every_form_gives_the_speed_of_a_case_with_the_same_interval(tmp_path: Path) -> None:
    for number in range(3):
        store(tmp_path / "a.db", number + 1, gpt_ms=100 * 1.03**number, launches=2)
    store(tmp_path / "b.db", 9, gpt_ms=80, launches=2)
    selector = f"{tmp_path}/a.db@{run_id_of(3)[-8:]}"
    with open_result(tmp_path / "a.db") as file:
        of_show = {case.case.work.workload: speed_of(case) for case in run_in(file, run_id_of(3)).cases}
    known = {
        name: (speed.units_per_s, speed.low, speed.high)
        for name, speed in of_show.items()
        if isinstance(speed, SpeedEstimate)
    }
    assert set(known) == {"gemm", "gpt_train"}

    assert of_json(json.loads(printed("show", selector, "--json"))["cases"]) == known

    rates = gputui.load(selector).rates
    assert {row.workload: (row.rate, row.low, row.high) for row in rates.itertuples()} == known

    compared = json.loads(printed("compare", selector, tmp_path / "b.db", "--format", "json"))
    (comparison,) = compared["comparisons"]
    of_a = [{"workload": row["workload"], "speed": row["a"]["speed"]} for row in comparison["rows"]]
    assert of_json(of_a) == known

    printed("share", tmp_path / "a.db", "-o", tmp_path / "shared.db")
    shared = json.loads(printed("show", f"{tmp_path / 'shared.db'}@latest", "--json"))
    assert of_json(shared["cases"]) == known

    advice = json.loads(printed("advise", "--job", "1e9 tokens train", selector, "--price", "1", "--json"))
    speed = advice["answers"][0]["offers"][0]["speed"]
    assert (speed["units_per_s"], speed["low"], speed["high"]) == known["gpt_train"]

    rows = list(csv.DictReader(StringIO(printed("compare", selector, tmp_path / "b.db", "--format", "csv"))))
    ends = ("a_units_per_s", "a_units_per_s_low", "a_units_per_s_high")
    assert {row["workload"]: tuple(float(row[end]) for end in ends) for row in rows} == known


def test_a_speed_is_worked_out_once_and_anew_for_a_case_with_other_launches() -> None:
    (case,) = make_run(measured(make_case(), steady(0.1), steady(0.11))).cases
    fewer = replace(case, measurements=case.measurements[:1])
    assert speed_of(case) is speed_of(case)
    assert speed_of(fewer) is speed_of(fewer)
    assert speed_of(fewer) != speed_of(case)
