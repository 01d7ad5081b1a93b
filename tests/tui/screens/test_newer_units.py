"""Result files with units that only a newer gputui knows."""

from __future__ import annotations

import csv
import io
import json
import re
from pathlib import Path

import duckdb
import pytest
from command_line import printed, printed_json
from journals import journal_lines, make_case, write_lines
from shell_app import make_app, picture, press, settled
from stored_runs import run_id_of, store

from gputui.model.journal import CaseEnd, Figure, Line
from gputui.store.journal_reader import read_journal
from gputui.store.writing import store_run


@pytest.fixture
def files(tmp_path: Path) -> tuple[Path, Path]:
    """Two files of the same rows, which count samples instead of tokens."""
    a, b = paths = tmp_path / "a.db", tmp_path / "b.db"
    for number, db in enumerate(paths):
        store(db, number)
        with duckdb.connect(str(db)) as connection:
            connection.execute("UPDATE cases SET unit = 'sample' WHERE workload = 'gpt_train'")
    return a, b


def test_show_and_compare_print_an_unknown_unit_by_its_name(
    files: tuple[Path, Path], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    status, out, err = printed(capsys, "show", "latest", files[0])
    assert (status, err) == (0, "")
    (row,) = [line for line in out.splitlines() if line.startswith("GPT training ") and "sample/s" in line]
    assert re.search(r" -\d+ to \+\d+ % ", row)
    assert "sample" in {case["unit"] for case in printed_json(capsys, "show", "latest", files[0])["cases"]}
    for form in ("text", "markdown", "csv", "json", "html"):
        status, out, err = printed(capsys, "compare", *files, "--format", form)
        assert (status, err) == (0, "")
        if form == "json":
            rows = json.loads(out)["comparisons"][0]["rows"]
            assert "sample" in {row["unit"] for row in rows}
        elif form == "csv":
            assert "sample" in {row["unit"] for row in csv.DictReader(io.StringIO(out))}
        else:
            assert " sample" in out

    lines: list[Line] = []
    for line in journal_lines(cases=(make_case(),), skipped=()):
        if isinstance(line, CaseEnd):
            lines.append(Figure(0, 0, "drawn_w", "power drawn", "W", "less", "median", 312.5, 10))
        lines.append(line)
    store_run(tmp_path / "figure.db", read_journal(write_lines(tmp_path / "run", lines)), ())
    status, out, err = printed(capsys, "show", "latest", tmp_path / "figure.db")
    assert (status, err) == (0, "")
    assert "power drawn" in out
    assert "312 W" in out


def test_advise_leaves_out_rows_it_cannot_count(
    files: tuple[Path, Path], capsys: pytest.CaptureFixture[str]
) -> None:
    status, out, err = printed(capsys, "advise", "--job", "1M tok train", *files)
    assert (status, out) == (2, "")
    assert "no box has measured gpt_train" in err
    with duckdb.connect(str(files[1])) as connection:
        connection.execute("UPDATE cases SET unit = 'tok' WHERE workload = 'gpt_train'")
    status, out, err = printed(capsys, "advise", "--job", "1M tok train", files[1])
    assert (status, err) == (0, ""), "what can be counted is advised on"
    assert "tok/s" in out


async def test_the_screens_show_an_unknown_unit_by_its_name(files: tuple[Path, Path]) -> None:
    app = make_app()
    async with app.run_test(size=(140, 40)) as pilot:
        await settled(pilot)
        app.open_screen("results", (str(files[0]), run_id_of(0)[-8:]))
        await settled(pilot)
        await press(pilot, "enter")
        assert "sample/s" in picture(app)
        app.open_screen("compare", tuple(map(str, files)))
        await settled(pilot)
        assert "sample/s" in picture(app)
