"""Many boxes: each beside its kind."""

from __future__ import annotations

import csv
import io
import json
import math
import re
import statistics
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any  # whatever a job is for

import duckdb
import pytest
from command_line import printed
from fleets import COPY, GEMM, WOBBLE, box, even, node
from hand_made import make_case, make_run, measured, selected, steady, unmeasured
from journals import (
    CPU_MACHINE,
    GPU_MACHINE,
    H200,
    STARTED_US,
    make_journal,
    make_telemetry,
    write_telemetry,
)

from gputui.document.page import console_on
from gputui.errors import GputuiError
from gputui.model.absent import Missing
from gputui.model.journal import Price
from gputui.model.plan import Case
from gputui.model.result import Run
from gputui.model.units import format_rate
from gputui.services.compare.fleet import Fleet, explained, fleet_of, fleet_sides, ranking_of
from gputui.services.compare.fleet_forms import fleet_sentences, kind_table, shown_boxes, write_fleet
from gputui.services.compare.formats import ranking_text
from gputui.services.results.conditions import Evidence
from gputui.services.results.throughput import rate_of, speed_of
from gputui.services.support.background import Job
from gputui.store.journal_reader import read_journal, read_telemetry
from gputui.store.writing import store_run
from gputui.tui.screens.comparison import read


def headline(fleet: Fleet) -> str:
    return " ".join(fleet_sentences(fleet))


def texts(fleet: Fleet) -> str:
    return " ".join(ranking_text(fleet, "text").split())


def test_a_slow_box_is_named_first_with_how_much_and_a_healthy_fleet_has_none() -> None:
    fleet = fleet_of([*even(12), box("bad.db", 0.014, 0.028)])
    assert headline(fleet).startswith("bad is 28 % slower than the other 12 (28 to 29).")
    assert shown_boxes(fleet, 5)[0].name == "bad"
    fleet = fleet_of([*even(12), box("bad.db", 0.014, 0.028), box("worse.db", 0.03, 0.06)])
    slow = "2 of 14 boxes are slower than their kind: worse by 67 % and bad by 28 %."
    assert fleet_sentences(fleet)[0] == slow
    assert "No box stands out from its kind." in headline(fleet_of(even(12)))


def test_a_box_that_is_bad_at_one_thing_is_named_with_that_thing() -> None:
    fleet = fleet_of([*even(12), box("bad.db", 0.01, 0.04)])
    (bad,) = [one for one in fleet.boxes if one.stands_out]
    assert bad.name == "bad"
    assert bad.where[0][1] == pytest.approx(0.5, rel=0.02)
    assert "memory" in bad.where[0][0].lower() or "copy" in bad.where[0][0].lower()


def test_of_several_cases_one_must_stand_out_by_more_than_a_case_alone() -> None:
    others = [make_case(name) for name in ("conv_train", "gpt_train", "lstm_train", "membw")]

    def fleet(log_of_last: float, cases: Sequence[Case]) -> Fleet:
        """Twelve boxes; the last differs by this much in one case, and in the others all are alike."""
        wobble = (0.0, 2, -2, 1, -1, 3, -3, 1.5, -1.5, 2.5, -2.5)
        logs = (*(0.006 * one for one in wobble), log_of_last)
        sides = []
        for number, log in enumerate(logs):
            found = [measured(GEMM, steady(0.01 * math.exp(-log)))]
            run = make_run(*found, *(measured(case, steady(0.02)) for case in cases))
            sides += fleet_sides([selected(f"{number}.db", run)])
        return fleet_of(sides)

    def words(one: Fleet) -> list[str]:
        return [box.stands_out for box in one.boxes if box.stands_out]

    assert words(fleet(-0.105, [])) == ["slower"]
    assert words(fleet(-0.105, others)) == []
    uneven = fleet(-0.14, others)
    assert words(uneven) == ["uneven"]
    assert " matmul -13 % " in texts(uneven)


@pytest.mark.parametrize(("boxes", "slow"), [(8, 2), (10, 3), (12, 6)])
def test_a_kind_that_is_two_is_told_as_two_groups_with_what_they_differ_in(boxes: int, slow: int) -> None:
    old = replace(GPU_MACHINE, driver_version="550.54")
    sides = even(boxes - slow, machine=GPU_MACHINE)
    sides += [
        replace(side, name=f"slow{n}")
        for n, side in enumerate(even(boxes, 0.0167, machine=old)[boxes - slow :])
    ]
    found = explained(fleet_of(sides), Evidence([]))
    (split,) = found.splits
    assert (len(split.faster), sorted(split.slower)) == (boxes - slow, [f"slow{n}" for n in range(slow)])
    first = fleet_sentences(found)[0]
    assert first.startswith(f"Two groups: {boxes - slow} at "), first
    assert "driver 550.54 in the slower ones, " in first
    assert "stands out" not in headline(found)
    (plain,) = json.loads(ranking_text(found, "json"))["groups"]
    assert (plain["slower"], plain["case"]) == (list(split.slower), None)


def test_kinds_are_ranked_by_their_median_and_no_box_is_judged_by_another_kind() -> None:
    other = replace(CPU_MACHINE, cpu=replace(CPU_MACHINE.cpu, model="Slow Processor 1"))
    slow = [box(f"s{n}.db", 0.1 * (1 + WOBBLE[n]), 0.2, machine=other) for n in range(8)]
    fleet = fleet_of([*slow, *even(8)])
    assert [kind.boxes for kind in fleet.kinds] == [8, 8]
    assert [len(tier) for tier in fleet.tiers] == [1, 1]
    assert not any(one.stands_out for one in fleet.boxes)
    tiers = {one["name"]: one["tier"] for one in json.loads(ranking_text(fleet, "json"))["kinds"]}
    assert [tiers[kind.name] for kind in fleet.kinds] == [1, 2]
    fast, other_kind = (f"{kind.name} at {format_rate(kind.median_per_s, GEMM.unit)}" for kind in fleet.kinds)
    assert "Xeon" in fast
    assert f"on 16 boxes, fastest kind first: {fast}, then {other_kind}." in headline(fleet)
    assert len(kind_table(fleet).rows) == 2


def test_the_band_behind_a_box_is_that_of_its_own_kind() -> None:
    other = replace(CPU_MACHINE, cpu=replace(CPU_MACHINE.cpu, model="Even Processor"))
    alike = [box(f"e{n}.db", 0.1, 0.2, machine=other) for n in range(6)]
    page = ranking_text(fleet_of([*alike, *even(6)]), "html")
    widths = re.findall(r'class="band" x="[\d.]+%" height="100%" width="([\d.]+)%"', page)
    assert [float(width) > 0 for width in widths] == [True, False, *[True] * 6, *[False] * 6]


def test_kinds_whose_intervals_overlap_tie() -> None:
    other = replace(CPU_MACHINE, cpu=replace(CPU_MACHINE.cpu, model="Twin Processor"))
    twins = [box(f"t{n}.db", 0.01 * (1 + WOBBLE[n]), machine=other) for n in range(6)]
    fleet = fleet_of([*even(6), *twins])
    assert [len(tier) for tier in fleet.tiers] == [2]
    assert "(a tie)" in headline(fleet)
    other_kind, fast = (kind.name for kind in fleet.kinds)
    apart = [box(f"s{n}.db", 0.1 * (1 + WOBBLE[n]), machine=GPU_MACHINE) for n in range(6)]
    page, _, _ = ranking_text(fleet_of([*even(6), *twins, *apart]), "html").partition("Every box")
    assert sorted(re.findall(r"<td class=\"n\">6<.*<td>([^<]*)</td></tr>", page)) == ["", fast, other_kind]


def test_all_forms_have_the_same_boxes_and_the_same_words() -> None:
    fleet = fleet_of([*even(12), box("bad.db", 0.014, 0.028)])
    found = json.loads(ranking_text(fleet, "json"))
    assert found["headline"] == headline(fleet)
    assert [one["name"] for one in found["boxes"]] == [one.name for one in fleet.boxes]
    (kind,), per_s = found["kinds"], [one["per_s"] for one in found["boxes"]]
    logs = [math.log(rate) for rate in per_s]
    half = 2.1788 * statistics.stdev(logs) / math.sqrt(13)  # Student's t of 12 degrees of freedom
    for end, sign in (("median_low_per_s", -1), ("median_high_per_s", 1)):
        assert kind[end] == pytest.approx(statistics.median(per_s) * math.exp(sign * half), rel=1e-4)
    assert found["unit"] == GEMM.unit
    assert per_s == sorted(per_s, reverse=True)
    assert [one["name"] for one in found["boxes"] if one["stands_out"] == "slower"] == ["bad"]
    assert {one["cases"] for one in found["boxes"]} == {2}
    assert all(one["low_per_s"] < one["per_s"] < one["high_per_s"] for one in found["boxes"])
    assert all(one["low_per_s"] < one["median_per_s"] < one["high_per_s"] for one in found["kinds"])
    text, page = texts(fleet), ranking_text(fleet, "markdown")
    assert page.startswith(f"**{headline(fleet)}**\n\n| ")
    for one in fleet.boxes:
        assert f" {one.name} " in text
        assert f"| {one.name} |" in page
    assert headline(fleet) in text


def test_what_work_costs_is_in_the_ranking_as_json() -> None:
    case = make_case("gpt_train", workload_class="training", device_class="gpu")
    sides = []
    for number, usd in enumerate((1.0, 2.0, 4.0)):
        price = Price(usd, 1.0, "stated", "", "", "", "")
        run = make_run(measured(case, steady(0.1)), machine=GPU_MACHINE, price=price)
        sides += fleet_sides([selected(f"{number}.db", run)])
    found = json.loads(ranking_text(fleet_of(sides), "json"))
    costs = sorted(one["usd_per_million"] for one in found["boxes"])
    assert costs == pytest.approx([costs[0], 2 * costs[0], 4 * costs[0]])
    assert found["kinds"][0]["usd_per_million"] == costs[1]


def test_a_file_is_called_by_its_name_alone_unless_two_have_it() -> None:
    run = make_run(measured(GEMM, steady(0.01)))

    def named(*paths: str) -> list[str]:
        return [side.name for side in fleet_sides([selected(path, run) for path in paths])]

    assert named("here/a.db", "there/b.db") == ["a", "b"]
    assert named("here/a.db", "there/b.db@latest") == ["a.db", "b.db@latest"]
    assert named("here/a.db", "there/a.db") == ["here/a.db", "there/a.db"]


def test_a_case_is_that_of_the_newest_run_that_measured_it_and_with_pool_has_all_launches_of_its_gpu() -> (
    None
):
    case = make_case(device_class="gpu")
    older, newer = (
        make_run(
            *(replace(measured(case, steady(step_s)), device_index=gpu) for gpu in (0, 1)),
            machine=GPU_MACHINE,
            started_utc_us=STARTED_US + hours * 3_600_000_000,
        )
        for hours, step_s in ((1, 0.02), (2, 0.01))
    )
    failed = make_run(
        unmeasured(case, "failed", "ValueError"),
        machine=GPU_MACHINE,
        started_utc_us=STARTED_US + 3 * 3_600_000_000,
    )
    for pool, launches in ((False, 1), (True, 2)):
        (side,) = fleet_sides([selected("a.db", older, newer, failed)], pool=pool)
        (found,) = side.cases
        assert (found.run, found.result.device_index) == (newer.summary, 0)
        assert (found.result.outcome, len(found.result.measurements)) == ("ok", launches)


def test_what_few_boxes_share_is_no_ground_to_rank_them() -> None:
    with pytest.raises(GputuiError, match="no case was measured on two"):
        fleet_of([box("a.db", 0.01)])
    assert "5 boxes are needed" in headline(fleet_of(even(3)))


def test_the_rate_of_a_ranking_is_that_of_a_comparison() -> None:
    run = make_run(
        measured(GEMM, steady(0.01), steady(0.013), waited_share=0.2), measured(COPY, steady(0.02))
    )
    for result in run.cases:
        speed = speed_of(result)
        assert not isinstance(speed, Missing)
        assert rate_of(result) == pytest.approx(speed.units_per_s, rel=1e-12)


def ranked(*runs: tuple[str, Run]) -> Fleet:
    selections = [selected(name, run) for name, run in runs]
    return explained(fleet_of(fleet_sides(selections, "gpu"), "gpu"), Evidence(selections))


def test_the_bad_gpus_of_eight_boxes_are_named_with_what_they_differ_in() -> None:
    boxes = [(f"box{n}.db", node(f"box{n}")) for n in range(7)]
    fleet = ranked(*boxes, ("box7.db", node("box7", slow=5, power_limit_w=500.0)))
    assert fleet_sentences(fleet)[0] == (
        "GPU 5 of box7 is 12 % slower than the other 63 (12 to 13): its power limit is 500 W, theirs 700 W."
    )
    assert len(fleet.boxes) == 64
    assert {one.kind for one in fleet.boxes} == {"H200"}
    boxes[6] = ("box6.db", node("box6", slow=5, power_limit_w=500.0))
    words = fleet_sentences(ranked(*boxes, ("box7.db", node("box7", slow=2, pcie_width=4))))[0]
    assert words.startswith("2 of 64 GPUs are slower than their kind: GPU ")
    assert "GPU 5 of box6 by 12 % (its power limit is 500 W, theirs 700 W)" in words
    assert "GPU 2 of box7 by 12 % (its link has 4 PCIe lanes, theirs 16 PCIe lanes)" in words
    words = fleet_sentences(ranked(*boxes, ("box7.db", node("box7", slow=2, power_limit_w=500.0))))[0]
    assert words.endswith("by 12 %; of each, its power limit is 500 W, theirs 700 W.")


def test_gpus_of_one_box_are_called_by_their_numbers_alone_and_the_bad_one_by_what_it_differs_in() -> None:
    narrow, switched = (
        ranked(("here.db", node("here", slow=3, **different)))
        for different in ({"pcie_width": 4}, {"mig_enabled": True})
    )
    assert fleet_sentences(narrow)[0].startswith("GPU 3 is 12 % slower than the other 7 (")
    assert fleet_sentences(narrow)[0].endswith("): its link has 4 PCIe lanes, theirs 16 PCIe lanes.")
    assert sorted(one.name for one in narrow.boxes) == [f"GPU {n}" for n in range(8)]
    assert fleet_sentences(switched)[0].endswith("): its MIG is on, theirs off.")
    healthy = ranked(("here.db", node("here")))
    assert fleet_sentences(healthy)[0] == "No GPU stands out from its kind."


def test_machines_of_one_file_are_called_by_their_labels_where_each_has_one() -> None:
    runs = [
        replace(run, summary=replace(run.summary, label=f"rack {n}"))
        for n in range(3)
        for run in [node(f"n{n}")]
    ]
    names = [side.name for side in fleet_sides([selected("all.db", *runs)], "machine")]
    assert names == ["rack 0", "rack 1", "rack 2"]
    twice = [replace(run, summary=replace(run.summary, label="same")) for run in runs]
    names = [side.name for side in fleet_sides([selected("all.db", *twice)], "machine")]
    assert len(set(names)) == 3
    assert all(name.startswith("machine ") for name in names)


@pytest.fixture
def eight(tmp_path: Path) -> Path:
    """A stored run that measured one case on each of eight GPUs: GPU 5 is 12 % slower, at a lower clock."""
    gpus = tuple(replace(H200, index=n, gpu_id=f"{n:012x}") for n in range(8))
    run_dir = make_journal(
        tmp_path / "run",
        cases=[make_case("gemm", device_class="gpu")] * 8,
        machine=replace(GPU_MACHINE, gpus=gpus),
        launches=3,
    )
    write_telemetry(run_dir, make_telemetry(seconds=120, gpus=8))
    db = tmp_path / "eight.db"
    store_run(db, read_journal(run_dir), read_telemetry(run_dir))
    with duckdb.connect(str(db)) as connection:
        for statement in (
            "UPDATE cases SET device_index = case_id",
            "UPDATE blocks SET device_ns = device_ns / (case_id + 1)",
            "UPDATE blocks SET device_ns = device_ns / 0.88 WHERE case_id = 5",
            "UPDATE telemetry SET sm_clock_mhz = CASE device_index WHEN 5 THEN 1200 ELSE 1700 END",
        ):
            connection.execute(statement)
    return db


def test_the_command_and_the_screen_name_the_bad_gpu_of_a_box_and_its_clock(
    eight: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    status, text, _ = printed(capsys, "compare", eight, "--by", "gpu")
    text = " ".join(text.split())
    assert status == 0
    assert re.match(
        r"GPU 5 is 1\d % slower than the other 7 \(\d+ to \d+\): its clock was 1\.20 GHz, theirs 1\.70 GHz\.",
        text,
    )
    job: Job[Any] = Job(lambda job: None, lambda job, found: None)
    shown = read((str(eight), "--by", "gpu"), job).answer.headline.text
    assert text.startswith(shown)
    against = read((str(eight), "--by", "gpu", "--baseline", "GPU 5"), job)
    assert against.answer.headline.text != shown


def test_what_slows_the_gpu_of_one_box_is_told_from_telemetry_of_several_files(
    eight: Path, tmp_path: Path
) -> None:
    other = tmp_path / "other.db"
    other.write_bytes(eight.read_bytes())
    with duckdb.connect(str(eight)) as connection:
        connection.execute("UPDATE blocks SET device_ns = device_ns * 0.88 WHERE case_id = 5")
    with duckdb.connect(str(other)) as connection:
        tables = connection.execute(
            "SELECT DISTINCT table_name FROM duckdb_tables() JOIN duckdb_columns() USING (table_name)"
            " WHERE column_name = 'run_id'"
        ).fetchall()
        for (table,) in tables:
            connection.execute(f"UPDATE {table} SET run_id = '0194b5a1-0000-7000-8000-00000000bbbb'")
        connection.execute("UPDATE machines SET machine_id = 'b1b2b3b4b5b6'")
    found = ranking_of([str(eight), str(other)], "gpu")
    assert found is not None
    fleet, _ = found
    assert fleet_sentences(fleet)[0].endswith("): its clock was 1.20 GHz, theirs 1.70 GHz.")
    assert fleet_sentences(fleet)[0].startswith("GPU 5 of other is 12 % slower than the other 15 (")


def test_two_gpus_are_laid_side_by_side_and_a_side_that_measured_several_is_its_first(
    eight: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with duckdb.connect(str(eight)) as connection:
        connection.execute("DELETE FROM cases WHERE case_id NOT IN (0, 5)")
    found = json.loads(printed(capsys, "compare", eight, "--by", "gpu", "--format", "json")[1])
    (pair,) = found["comparisons"]
    assert [pair[side]["name"] for side in "ab"] == ["GPU 0", "GPU 5"]
    assert pair["rows"][0]["verdict"] == "slower"
    same = json.loads(printed(capsys, "compare", eight, eight, "--format", "json")[1])
    (row,) = same["comparisons"][0]["rows"]
    first = pair["rows"][0]["a"]["speed"]["units_per_s"]
    assert [row[side]["speed"]["units_per_s"] for side in "ab"] == [first, first]


def test_a_ranking_fits_on_the_screen_and_says_how_many_boxes_are_left() -> None:
    fleet = fleet_of([*even(12), box("bad.db", 0.014, 0.028)])
    for height, lines, left in ((8, 10, 8), (16, 15, 3), (18, 17, 1), (60, 18, 0)):
        for reasons in (0, 2) if height == 18 else (0,):
            why = ["its link has 4 PCIe lanes"] * reasons + [""] * len(fleet.boxes)
            boxes = (replace(one, why=words) for one, words in zip(fleet.boxes, why, strict=False))
            found = replace(fleet, boxes=tuple(boxes))
            made = io.StringIO()
            out = console_on(made, 100, height=height, is_terminal=True)
            write_fleet(out, found, shows_all=False)
            assert made.getvalue().count("\n") == lines
            text = re.sub(r"\x1b\[[\d;]*m", "", made.getvalue())
            assert (f"{left + reasons} more box" in text) == (left > 0)


def test_a_table_of_the_ranking_has_a_row_for_each_box_and_no_formulas() -> None:
    fleet = fleet_of([*even(12), box("=bad.db", 0.014, 0.028)])
    rows = list(csv.DictReader(io.StringIO(ranking_text(fleet, "csv"))))
    assert [int(row["rank"]) for row in rows] == list(range(1, 14))
    (bad,) = [row for row in rows if row["stands_out"] == "slower"]
    assert bad["name"] == "'=bad"
    of_other_work = make_run(measured(make_case("conv_train"), steady(0.02)))
    (unmeasured,) = fleet_sides([selected("u.db", of_other_work)])
    *_, last = csv.reader(io.StringIO(ranking_text(fleet_of([*even(6), unmeasured]), "csv")))
    assert last == ["", "u", *[""] * (len(rows[0]) - 2)]
    assert float(bad["overall_low"]) < float(bad["overall"]) < float(bad["overall_high"]) < 0.8


def test_the_page_of_a_ranking_begins_with_the_answer_and_runs_nothing() -> None:
    fleet = fleet_of([*even(12), box("<b>bad.db", 0.014, 0.028)])
    page = ranking_text(fleet, "html")
    assert "<h1>&lt;b&gt;bad is 28&#160;% slower than the other 12" in page
    assert page.count('<td class="drawn">') == 1 + 1 + 13, "who stands out, the kind, and every box"
    assert "<script" not in page
    assert "http" not in page.replace("http-equiv", "")
