"""What `show` and `share` say where a reference is known."""

from __future__ import annotations

from pathlib import Path

from click.testing import CliRunner
from quick_runs import add_boxes, store_quick

from gputui.cli.files import share
from gputui.cli.show import command as show


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
