"""A comparison in Python."""

from __future__ import annotations

from pathlib import Path

import pytest
from command_line import gputui_here
from stored_runs import store

import gputui
from gputui.errors import GputuiError


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Path:
    place = tmp_path_factory.mktemp("compared")
    store(place / "a.db", 1)
    store(place / "b.db", 2, gpt_ms=40.0)
    return place


def test_printed_it_is_what_the_command_prints(place: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(place)
    found = gputui.compare("a.db", "b.db")
    done = gputui_here("compare", "a.db", "b.db", "--all", env={"COLUMNS": "80"})
    assert done.stdout.startswith(repr(found).split("\n\n")[0])
    assert found.headline.startswith("b.db is 2.50x as fast as a.db (")


def test_a_frame_has_the_columns_of_the_csv_as_numbers(place: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(place)
    frame = gputui.compare("a.db", "b.db").to_frame()
    done = gputui_here("compare", "a.db", "b.db", "--format", "csv")
    assert list(frame.columns) == done.stdout.splitlines()[0].split(",")
    row = frame.set_index("workload").loc["gpt_train"]
    assert row["b_against_a"] == pytest.approx(2.5, rel=1e-3)
    assert row["ratio_low"] < 2.5 < row["ratio_high"]
    assert (row["verdict"], row["cost_verdict"]) == ("faster", "cheaper")


def test_its_html_is_a_table_in_which_names_cannot_become_markup(
    place: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    hostile = Path("<img src=x onerror=alert(1)>.db")
    hostile.write_bytes((place / "b.db").read_bytes())
    page = gputui.compare(place / "a.db", hostile)._repr_html_()
    assert page.startswith("<p><b>&lt;img src=x onerror=alert(1)&gt;.db is 2.50x as fast as a.db (")
    assert '<td class="breaks">GPT training</td>' in page
    assert "&lt;img src=x" in page
    assert "<img" not in page


def test_it_is_saved_in_the_form_of_its_extension(place: Path, tmp_path: Path) -> None:
    found = gputui.compare(place / "b.db", place / "a.db", baseline="a.db")
    found.save(tmp_path / "report.html")
    assert (tmp_path / "report.html").read_text().startswith("<!DOCTYPE html>")
    with pytest.raises(GputuiError, match="unknown file type"):
        found.save(tmp_path / "report.pdf")


def test_an_unknown_dimension_or_no_file_is_refused_in_plain_words(place: Path) -> None:
    with pytest.raises(GputuiError, match="by='colour': is not a dimension"):
        gputui.compare(place / "a.db", by="colour")
    with pytest.raises(GputuiError) as one_device:
        gputui.compare(place / "a.db", by="device")
    assert "is not a dimension" not in one_device.value.message
    with pytest.raises(GputuiError, match="no file is named"):
        gputui.compare()
