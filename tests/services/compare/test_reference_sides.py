"""A reference as one side of a comparison."""

from __future__ import annotations

import json
import shutil
from dataclasses import replace
from pathlib import Path

import pytest
from quick_runs import add_boxes, like_boxes, place_reference, quick_run, store_quick

from gputui.errors import GputuiError
from gputui.model.result import Run
from gputui.services.compare.columns import COLUMNS
from gputui.services.compare.formats import comparison_text
from gputui.services.compare.pairing import Comparison, _is_among, compare_sides, side_of_runs
from gputui.services.compare.session import ask
from gputui.services.compare.suggestions import FAIL, check_gate, next_steps, settling_steps
from gputui.services.compare.text import spread_lines
from gputui.services.results.conditions import Evidence
from gputui.services.results.references import run_of_reference
from gputui.services.results.selectors import split_selector


def beside(run: Run, boxes: int, *, on_gpu: bool = True) -> Comparison:
    """A run against a reference of so many boxes."""
    reference = run_of_reference(add_boxes(boxes, on_gpu=on_gpu).reference)
    return compare_sides(side_of_runs("reference:h200", [reference]), side_of_runs("b.db", [run]))


def words(comparison: Comparison) -> set[str]:
    return {row.verdict.word for row in comparison.rows}


def test_healthy_boxes_are_called_slower_or_faster_than_their_kind_in_few_runs() -> None:
    reference = side_of_runs("reference:xeon", [run_of_reference(add_boxes(10).reference)])
    healthy = like_boxes(30, seed=3)

    called = [
        words(compare_sides(reference, side_of_runs("b.db", [run]))) & {"slower", "faster"} for run in healthy
    ]

    assert sum(map(bool, called)) <= 4  # 5 % of 30 are 1.5; more than 4 come by chance once in 50 times


def test_a_box_30_percent_slower_is_slower_in_every_row_and_the_gate_fails() -> None:
    comparison = beside(quick_run(1, on_gpu=True, factor=0.7), 10)

    assert words(comparison) == {"slower"}
    assert check_gate([comparison], "", 10.0, Evidence([])).end == FAIL


def test_one_box_gives_rows_an_assumed_spread() -> None:
    comparison = beside(quick_run(1, factor=0.98), 1, on_gpu=False)

    assert words(comparison) == {"inconclusive"}
    assert {row.verdict.reason for row in comparison.rows} == {
        "boxes of one model differ this much, or the run is too short to tell"
    }


def test_what_is_assumed_of_boxes_is_worth_five_of_them_beside_what_few_boxes_show() -> None:
    of = [run_of_reference(add_boxes(boxes).reference).cases[0].between_boxes for boxes in (2, 3, 5)]

    assert [spread and round(spread.df) for spread in of] == [6, 7, 4]  # from five on, the boxes alone


def test_nobody_is_sent_to_measure_the_boxes_of_a_reference_again() -> None:
    comparison = beside(quick_run(1, factor=0.98), 1, on_gpu=False)

    assert [next_steps(row, Evidence([])) for row in comparison.rows] == [()] * len(comparison.rows)
    assert settling_steps(comparison.rows[0], Evidence([])) == ()


def test_a_reference_has_a_rate_with_an_interval_and_neither_blocks_nor_launches() -> None:
    (row, *_) = beside(quick_run(1, on_gpu=True), 10).rows

    speed, estimate = row.a.speed, row.estimate
    assert (speed.blocks, speed.launches, speed.method) == (0, 0, "typical of 10 boxes")  # type: ignore[union-attr]
    assert 0.97 < speed.low / speed.units_per_s < 0.999  # type: ignore[union-attr]
    assert (estimate.n_a, estimate.launches_a, estimate.n_b) == (0, 0, 18)  # type: ignore[union-attr]


def test_software_within_the_range_of_the_boxes_is_no_difference() -> None:
    assert [what for what, _, _ in beside(quick_run(1, on_gpu=True), 3).differs] == []


def test_how_much_boxes_of_a_reference_vary_is_told_of_each_of_its_devices() -> None:
    on_cpu, on_gpu = (run_of_reference(add_boxes(3, on_gpu=gpu).reference) for gpu in (False, True))
    both = replace(on_gpu, cases=(*on_gpu.cases, *on_cpu.cases))
    comparison = compare_sides(
        side_of_runs("reference:h200", [both]), side_of_runs("b.db", [quick_run(1, on_gpu=True)])
    )
    lines = list(spread_lines(comparison))
    assert [line.partition(" ")[0] for line in lines] == ["a:", "a:", "b:"]
    assert all(line.startswith("a: 3 boxes") for line in lines[:2])


def test_two_ranges_of_versions_differ_only_if_they_have_none_in_common() -> None:
    wide, late, early = "2.8.0 to 2.13.0", "2.10.0 to 2.14.0", "2.8.0 to 2.9.1"
    assert _is_among("2.9.0", wide)
    assert _is_among(wide, "2.9.0")
    assert _is_among(wide, late)
    assert _is_among(late, wide)
    assert not _is_among(early, late)
    assert not _is_among(late, early)
    assert not _is_among("2.14.0", wide)


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    place = tmp_path_factory.mktemp("made")
    place_reference(place / "references", "xeon", 5)
    store_quick(place / "a.db", 1)
    return place


@pytest.fixture
def files(made: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A result file and a reference of its model, `xeon`."""
    shutil.copytree(made, tmp_path, dirs_exist_ok=True)
    monkeypatch.setenv("GPUTUI_REFERENCES", str(tmp_path / "references"))
    return tmp_path / "a.db"


@pytest.mark.parametrize("form", ["text", "markdown", "csv", "json", "html"])
def test_every_form_shows_a_reference_by_its_name_and_boxes(files: Path, form: str) -> None:
    asked = ask([str(files), "reference:xeon"])

    text = comparison_text(asked, asked.compared(), form, COLUMNS, 160, True)

    assert "reference:xeon" in text
    if form in ("text", "markdown", "html"):
        assert "5 boxes" in text
    if form == "json":
        (check,) = json.loads(text)["comparisons"][0]["a"]["normality"]
        assert check["standing"]["boxes"] == 5
        assert "reference" not in check["standing"]  # the user may have named it
        assert json.loads(text)["comparisons"][0]["b"]["normality"] == []


def test_a_reference_can_be_the_baseline_by_its_name(files: Path) -> None:
    asked = ask([str(files), "reference:xeon"])

    assert asked.baseline("xeon") == asked.baseline("reference:xeon") == 1


def test_a_file_of_the_name_goes_before_a_reference(files: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(files.parent)
    assert split_selector("reference:xeon") == (files.parent / "references" / "xeon.json", "")

    Path("reference:xeon").touch()

    assert split_selector("reference:xeon") == (Path("reference:xeon"), "")


def test_an_unknown_reference_is_refused_with_the_known_ones(files: Path) -> None:
    with pytest.raises(GputuiError, match="reference:h200: no such reference") as caught:
        ask([str(files), "reference:h200"])
    assert caught.value.hint == "one of xeon"
