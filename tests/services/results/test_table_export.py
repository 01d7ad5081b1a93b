"""Saving what a screen shows: every sheet of a real run, as CSV and as JSON, and its errors."""

from __future__ import annotations

import csv
import gzip
import json
from io import StringIO
from pathlib import Path

import pytest
from journals import GPU_MACHINE, RUN_ID, make_journal
from stored_runs import HOSTILE, run_id_of, store

from gputui.errors import EXIT_NOT_STORED, EXIT_USAGE, GputuiError
from gputui.model.journal import trace_name
from gputui.services.compare.columns import columns_of
from gputui.services.compare.formats import FORM_OF_ENDING, save_comparison
from gputui.services.compare.session import ask
from gputui.services.results.browser import (
    RunDetail,
    Sheet,
    cases_sheet,
    default_name,
    operators_sheet,
    read_detail,
    read_runs,
    runs_sheet,
    save_sheet,
    save_trace,
    sheet_as_csv,
    sheet_as_json,
    telemetry_sheet,
)
from gputui.services.results.run_forms import traces_directory
from gputui.services.support.background import Job
from gputui.services.support.output_files import write, write_output
from gputui.store.journal_reader import read_journal, read_telemetry
from gputui.store.writing import store_run


def a_job() -> Job[object]:
    return Job(lambda job: None, lambda job, outcome: None)


def detail_of(db: Path, number: int) -> RunDetail:
    return read_detail(db, run_id_of(number), a_job())


def cells(sheet: Sheet) -> list[dict[str, str]]:
    return list(csv.DictReader(StringIO(sheet_as_csv(sheet))))


@pytest.fixture(scope="module")
def db(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("saving") / "a.db"
    store(path, 1, label="=HYPERLINK(1)")
    store(path, 2, label=HOSTILE, machine=GPU_MACHINE, on_gpu=True, seconds=8.0)
    return path


def sheets(detail: RunDetail) -> list[Sheet]:
    case = detail.run.cases[1]
    window = (0, 2**60)
    return [
        cases_sheet(detail),
        operators_sheet(detail, case, detail.passes[1].operators),
        telemetry_sheet(detail, detail.series, window),
        runs_sheet(detail.path, [detail.run.summary]),
    ]


@pytest.mark.parametrize("number", [1, 2])
def test_every_page_of_a_run_can_be_saved_and_both_forms_hold_the_same(db: Path, number: int) -> None:
    made = sheets(detail_of(db, number))

    assert [sheet.what for sheet in made] == [*("cases", "operators", "telemetry", "runs")]
    for sheet in made:
        assert sheet.rows, sheet.what
        assert all(len(row) == len(sheet.columns) for row in sheet.rows), sheet.what
        plain = json.loads(sheet_as_json(sheet))
        assert (plain["schema"], plain["what"]) == (1, sheet.what)
        assert [tuple(row.values()) for row in plain["rows"]] == [
            tuple(None if value != value else value for value in row) for row in sheet.rows
        ]
        assert [list(row) for row in cells(sheet)] == [list(sheet.columns)] * len(sheet.rows)


def test_numbers_are_those_that_were_measured_and_of_the_telemetry_only_what_is_shown(db: Path) -> None:
    detail = detail_of(db, 2)
    cases, *others, _ = sheets(detail)
    operators, telemetry = map(cells, others)

    assert float(cells(cases)[0]["step_s"]) == pytest.approx(0.02, rel=0.01)
    assert sum(float(row["share"]) for row in operators) == pytest.approx(0.9)
    assert sum(float(row["step_s"]) for row in operators) == pytest.approx(0.09)
    assert [row["power_w"] for row in telemetry if row["device"] == "host"][:1] == [""]
    assert [row["power_w"] for row in telemetry if row["device"] == "0"][:2] == ["600.0", "601.0"]
    detail = detail_of(db, 1)
    begun_us = detail.series[0].first_us
    rows = cells(telemetry_sheet(detail, detail.series, (begun_us, begun_us + 1_000_000)))
    assert [float(row["since_start_s"]) for row in rows] == [tenth / 10 for tenth in range(11)]


def test_no_cell_is_a_formula_no_page_is_spoilt_by_a_label_and_the_suggested_name_is_safe_in_a_shell(
    db: Path,
) -> None:
    labels = [row["label"] for row in cells(runs_sheet(db, read_runs(db, a_job()).runs))]
    assert labels[1] == "'=HYPERLINK(1)"
    assert "\x1b" not in "".join(labels)
    cases, operators, *_ = sheets(detail_of(db, 1))
    assert default_name(cases) == "cccc0001-cases.csv"
    assert default_name(operators) == "cccc0001-operators-gpt_train-mini-cpu-fp32-all-cores.csv"


def test_a_sheet_is_written_in_the_form_of_its_ending_or_the_reason_comes_with_the_next_step(
    db: Path, tmp_path: Path
) -> None:
    sheet = cases_sheet(detail_of(db, 1))
    for ending, form in ((".csv", sheet_as_csv), (".json", sheet_as_json), (".JSON", sheet_as_json)):
        path = tmp_path / f"cases{ending}"
        assert save_sheet(path, sheet) == f"saved 3 rows in {path}"
        assert path.read_bytes().decode() == form(sheet)
        path.unlink()
    (tmp_path / "d.csv").mkdir()
    (tmp_path / "file").write_text("x")
    for name, reported, hint in (
        ("a.xlsx", "unknown file type", ".csv or .json"),
        ("no/a.csv", f"there is no directory {tmp_path / 'no'}", "create it"),
        ("file/a.csv", f"{tmp_path / 'file'} is not a directory", "another path"),
        ("d.csv", "is a directory", "a file in it"),
    ):
        with pytest.raises(GputuiError) as raised:
            save_sheet(tmp_path / name, sheet)
        assert reported in raised.value.message
        assert hint in raised.value.hint
        assert raised.value.exit_code == (EXIT_USAGE if name == "a.xlsx" else EXIT_NOT_STORED)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["d.csv", "file"]
    full = Path("/dev/full")
    with pytest.raises(GputuiError) as raised:
        write(full, lambda: write_output(full, "x" * 100_000))
    assert raised.value.message == "there is no room for /dev/full"
    assert "free some" in raised.value.hint


def test_saving_a_trace_says_how_to_open_it_or_how_to_get_one_that_was_not_kept(
    db: Path, tmp_path: Path
) -> None:
    own = tmp_path / "own.db"
    store(own, 1)
    detail = detail_of(own, 1)
    gemm, gpt = detail.run.cases[:2]
    with pytest.raises(GputuiError) as raised:
        save_trace(tmp_path / "t.json.gz", detail, gpt)
    assert raised.value.message == "this run kept no Chrome trace"
    assert "gputui run quick --trace" in raised.value.hint

    kept = traces_directory(own)
    kept.mkdir()
    trace = gzip.compress(b'{"traceEvents": []}')
    (kept / f"cccc0001-{trace_name(gpt.case.name)}").write_bytes(trace)
    for case in (gpt, None):
        target = tmp_path / "t.json.gz"
        reported = save_trace(target, detail, case)
        assert target.read_bytes() == trace
        assert "https://ui.perfetto.dev" in reported
        target.unlink()
    with pytest.raises(GputuiError, match="there is no Chrome trace of matmul"):
        save_trace(tmp_path / "t.json.gz", detail, gemm)
    with pytest.raises(GputuiError, match="there is no directory"):
        save_trace(tmp_path / "no" / "t.json.gz", detail, gpt)


def test_a_comparison_is_saved_as_the_command_prints_it(tmp_path: Path) -> None:
    for number, name in enumerate("ab"):
        run_dir = make_journal(tmp_path / name, run_id=f"{RUN_ID[:-1]}{number}", scale=1 + number, launches=3)
        store_run(tmp_path / f"{name}.db", read_journal(run_dir), read_telemetry(run_dir))
    asked = ask([str(tmp_path / "a.db"), str(tmp_path / "b.db")])
    from gputui.cli.compare import command

    for ending, form in FORM_OF_ENDING.items():
        saved, printed = tmp_path / f"saved{ending}", tmp_path / f"printed{ending}"
        assert save_comparison(saved, asked, 0) == f"saved the comparison in {saved}"
        files = [str(tmp_path / "a.db"), str(tmp_path / "b.db")]
        command.main([*files, "--format", form, "-o", str(printed)], standalone_mode=False)
        assert saved.read_bytes() == printed.read_bytes()
    saved, printed = tmp_path / "costs.md", tmp_path / "printed-costs.md"
    save_comparison(saved, asked, 0, columns_of("cost,ratio"))
    options = ["--format", "markdown", "--columns", "cost,ratio", "-o", str(printed)]
    command.main([*files, *options], standalone_mode=False)
    assert saved.read_bytes() == printed.read_bytes()
    with pytest.raises(GputuiError, match="unknown file type"):
        save_comparison(tmp_path / "saved.txt", asked, 0)
