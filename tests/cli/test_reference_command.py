"""`gputui reference`: made of result files, listed and shown; and what `show` says with one."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from click import UsageError
from click.testing import CliRunner, Result
from quick_runs import add_boxes, store_quick

from gputui.cli.reference import command
from gputui.cli.share import command as share
from gputui.cli.show import command as show
from gputui.errors import GputuiError


def ran(*words: str) -> Result:
    return CliRunner().invoke(command, words, catch_exceptions=False, standalone_mode=False)


def test_two_files_make_a_reference_that_is_listed_shown_and_used(tmp_path: Path) -> None:
    store_quick(tmp_path / "a.db", 1, label="my label")
    store_quick(tmp_path / "b.db", 2, scale=1.1)

    made = " ".join(
        ran("add", f"{tmp_path}/a.db@latest", f"{tmp_path}/b.db", "--note", "rack 3").output.split()
    )

    assert made.startswith(
        "xeon-8481c-1-core: 2 boxes with Xeon 8481C, 1 core, 12 cases of quick; 2 boxes added"
    )
    assert "may be sent as it is" in made
    assert "xeon-8481c-1-core" in ran("list").output
    shown = ran("show", "xeon-8481c-1-core").output
    assert "note: rack 3" in shown
    assert "below five boxes" in shown
    plain = json.loads(ran("show", "reference:xeon-8481c-1-core", "--json").output)
    assert (plain["boxes"], len(plain["cases"]), plain["problems"]) == (2, 12, [])
    (listed,) = json.loads(ran("list", "--json").output)["references"]
    assert (listed["name"], listed["case_count"]) == ("xeon-8481c-1-core", 12)
    kept = ran("show", "xeon-8481c-1-core", "--json").output
    assert "my label" not in kept


def test_the_same_file_twice_adds_no_box(tmp_path: Path) -> None:
    store_quick(tmp_path / "a.db", 1)
    ran("add", f"{tmp_path}/a.db")

    with pytest.raises(GputuiError, match="its box is already in the reference"):
        ran("add", f"{tmp_path}/a.db")


def test_a_copy_under_other_ids_is_no_other_box(tmp_path: Path) -> None:
    store_quick(tmp_path / "a.db", 1)
    shared = [str(tmp_path / "a.db"), "-o", str(tmp_path / "shared.db")]
    CliRunner().invoke(share, shared, catch_exceptions=False, standalone_mode=False)

    made = " ".join(ran("add", f"{tmp_path}/a.db", f"{tmp_path}/shared.db").output.split())

    assert "1 box added left out:" in made
    assert ": the same measurements as" in made
    with pytest.raises(GputuiError, match="its box is already in the reference"):
        ran("add", f"{tmp_path}/shared.db")


def test_show_says_where_a_box_stands(tmp_path: Path) -> None:
    store_quick(tmp_path / "a.db", 1)
    add_boxes(5)

    printed = CliRunner().invoke(show, ["latest", f"{tmp_path}/a.db"], standalone_mode=False).output

    assert "slower than 5 boxes with Xeon 8481C, 1 core in 11 of 12 cases (reference of 2026-09)" in " ".join(
        printed.split()
    )


def test_a_report_for_the_provider_names_the_boxes_and_not_the_reference(tmp_path: Path) -> None:
    store_quick(tmp_path / "a.db", 1)
    add_boxes(5, name="our-racks")

    CliRunner().invoke(
        share, [f"{tmp_path}/a.db", "-o", f"{tmp_path}/a.md"], catch_exceptions=False, standalone_mode=False
    )

    report = (tmp_path / "a.md").read_text(encoding="utf-8")
    assert "5 boxes with Xeon 8481C, 1 core (reference of 2026-09, 12 cases)" in report
    assert "our-racks" not in report


def test_a_reference_named_where_a_run_belongs_is_shown_how_to_be_shown() -> None:
    add_boxes(1, name="mine")

    with pytest.raises(GputuiError, match="is a reference, not a run") as caught:
        CliRunner().invoke(show, ["reference:mine"], catch_exceptions=False, standalone_mode=False)
    assert caught.value.hint == "gputui reference show mine"


def test_a_name_that_would_leave_its_directory_is_refused(tmp_path: Path) -> None:
    store_quick(tmp_path / "a.db", 1)

    with pytest.raises(GputuiError, match="not a name"):
        ran("add", f"{tmp_path}/a.db", "--name", "../x")


def test_a_file_that_cannot_be_read_is_named_in_the_list() -> None:
    made = add_boxes(1)
    made.path.write_text("{}", encoding="utf-8")

    assert "not a reference file" in ran("list").output


def test_without_a_command_it_says_that_one_is_missing() -> None:
    with pytest.raises(UsageError, match="Missing command"):
        ran()
