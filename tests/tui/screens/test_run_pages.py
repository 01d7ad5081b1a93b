"""Pages of a run as lines: what its figures rest on, and findings with their steps."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from journals import GPU_MACHINE
from stored_runs import run_id_of, store

from gputui.analysis.findings import Finding
from gputui.document.spans import Line, line_width
from gputui.document.theme import LETTERS
from gputui.model.absent import Missing
from gputui.recording.worker_process import log_of
from gputui.services.results.browser import RunDetail, read_detail
from gputui.services.support.background import Job
from gputui.services.support.paths import run_directories
from gputui.tui.screens.results_pages import HEADINGS, case_page, overview_page, reliability_table
from gputui.tui.screens.results_panes import matching_runs, runs_table, sheet_of


@pytest.fixture(scope="module")
def detail(tmp_path_factory: pytest.TempPathFactory) -> RunDetail:
    """A run whose first case ran on a throttled GPU, and whose second was profiled."""
    db = tmp_path_factory.mktemp("run") / "gpu.db"
    store(db, 5, machine=GPU_MACHINE, on_gpu=True, seconds=8.0)
    return read(db, 5)


def read(db: Path, number: int) -> RunDetail:
    job: Job[Any] = Job(lambda job: None, lambda job, outcome: None)
    return read_detail(db, run_id_of(number), job)


def texts(lines: Sequence[Line]) -> list[str]:
    return ["".join(span.text for span in line).rstrip() for line in lines]


def test_each_case_has_the_state_of_its_device_and_nothing_where_it_has_none(detail: RunDetail) -> None:
    table = reliability_table(detail)
    gemm, gpt = (dict(zip(table.headings, row, strict=True)) for row in table.rows)
    conditions = detail.conditions[detail.run.cases[0].case_id]
    shares = (conditions.slowed_share, conditions.power_capped_share)
    for name, share in zip(("slowed", "capped"), shares, strict=True):
        assert isinstance(share, float)
        assert gemm[name] == f"{share:.0%}".replace("%", " %")
        assert gpt[name] == ""
    assert gemm["clock"] == "1.89 of 1.90 GHz"
    assert (gemm["launches"], gemm["blocks"]) == ("3", "18")


@pytest.mark.parametrize("width", [60, 80, 100, 120, 160])
def test_a_narrow_terminal_keeps_rate_interval_and_what_held_the_device_back(
    detail: RunDetail, width: int
) -> None:
    lines = overview_page(detail, width)
    assert max(map(line_width, lines)) <= width
    rows = texts(lines)
    heading = rows[rows.index("how reliable the figures are") + 1]
    kept = [name for name in HEADINGS if f" {name}" in heading]
    assert kept == list(HEADINGS[: len(kept)])
    assert {"rate", "95 %"} <= set(kept)
    if width >= 80:
        assert {"slowed", "capped"} <= set(kept)


def test_a_run_without_a_rate_has_nothing_to_rest_on(detail: RunDetail) -> None:
    skipped = tuple(case for case in detail.run.cases if case.outcome != "ok")
    assert skipped
    nothing = replace(detail, run=replace(detail.run, cases=skipped))
    assert "how reliable the figures are" not in texts(overview_page(nothing, 120))


def test_findings_stand_below_the_answer_with_their_case(detail: RunDetail) -> None:
    case = next(case for case in detail.run.cases if case.case_id in detail.passes)
    finding = Finding("paused in Python", "Python takes 10 %", 100_000, 90_000, "low")
    rows = texts(overview_page(replace(detail, findings=((case, (finding,)),)), 120))
    place = next(n for n, row in enumerate(rows) if row.startswith("  paused in Python: Python takes 10 %; "))
    assert rows[place].endswith(" (rough)")
    assert rows[place - 1] == "GPT training mini cpu fp32 all cores"


def test_a_case_has_its_step_with_every_operator_its_memory_and_each_launch(detail: RunDetail) -> None:
    case = next(case for case in detail.run.cases if case.case_id in detail.passes)
    lines = case_page(detail, case, 120)
    rows = [row.split() for row in texts(lines)]
    assert {"mm", "linear", "scaled_dot_product_attention", "_fused_adamw_"} <= {
        row[0] for row in rows if row
    }
    assert ["at", "peak"] in [row[:2] for row in rows]
    launches = rows[
        rows.index(["launches", "of", "GPT", "training", "mini", "cpu", "fp32", "all", "cores"]) + 2 :
    ]
    assert [row[:3] for row in launches] == [[f"{number}", "40.9k", "tok/s"] for number in (1, 2, 3)]
    assert all(row[-2:] == ["17", "%"] and "+0.2" in row for row in launches)
    filled = {span.style for line in lines for span in line if set(span.text) & set("█▓▒▚▞░")}
    assert len(filled) >= 3
    assert not filled & set(LETTERS), "parts have the colours of charts"


def test_launches_of_a_slow_machine_are_told_apart_by_how_far_they_are_from_the_median(
    detail: RunDetail,
) -> None:
    case = detail.run.cases[0]
    slow = [
        replace(block, wall_ns=2 * block.wall_ns, device_ns=2 * (block.device_ns or block.wall_ns))
        for block in case.measurements[0].blocks
    ]
    first = replace(case.measurements[0], blocks=tuple(slow))
    case = replace(case, measurements=(first, *case.measurements[1:]))
    rows = [row.split() for row in texts(case_page(detail, case, 120))]
    launches = rows[rows.index(["launches", "of", "matmul", "mini", "gpu", "fp32"]) + 2 :]
    assert [row[3] for row in launches] == ["-50", "0", "0"]


def test_the_last_words_of_a_worker_that_failed_stand_where_its_log_is(tmp_path: Path) -> None:
    db = tmp_path / "failed.db"
    store(db, 7, log_tail="never stored")
    log = log_of(run_directories() / run_id_of(7), 0)
    page = "\n".join(texts(overview_page(read(db, 7), 200)))
    assert "launch 1 of matmul mini cpu fp32 all cores: failed: it died" in page
    assert "logs stay on the machine that measured" in page
    assert "never stored" not in page
    log.parent.mkdir(parents=True)
    log.write_text("Traceback:\n  File gemm.py, in build\nOSError: \x1b[31mno 温度\u202e\n")
    page = "\n".join(texts(overview_page(read(db, 7), 200)))
    assert "last words of workers" in page
    assert f"whole logs: {log.parent}" in page.replace("\n", "")
    assert "    Traceback:\n      File gemm.py, in build\n    OSError: \\x1b[31mno 温度\\u202e\n" in page


def test_what_was_not_profiled_says_how_it_would_be(tmp_path: Path) -> None:
    db = tmp_path / "a.db"
    store(db, 1, machine=GPU_MACHINE, profiled=False, seconds=0.0)
    found = read(db, 1)
    page = texts(overview_page(found, 80))
    assert any("no case was profiled: gputui run --trace profiles every case" in row for row in page)
    assert any("nothing was sampled during this run" in row for row in page)
    step = " ".join(" ".join(texts(case_page(found, found.run.cases[0], 80))).split())
    assert "not profiled: it has no profiled pass" in step


def test_runs_are_found_by_any_of_their_columns_and_marks_have_a_column_where_there_are_some(
    detail: RunDetail,
) -> None:
    run = detail.run.summary
    runs = [replace(run, label="Fast box"), replace(run, profile="bakeoff", status="interrupted")]
    assert matching_runs(runs, "fast BOX") == runs[:1]
    assert matching_runs(runs, "interrupt") == runs[1:]
    assert matching_runs(runs, run.short_id) == matching_runs(runs, "h200") == runs
    assert matching_runs(runs, "nothing of that") == []
    assert runs_table(runs, ["", ""]).headings == ("run", "when", "label", "profile", "status", "device")
    assert [row[0] for row in runs_table(runs, ["*2", ""]).rows] == ["*2", ""]
    assert runs_table([], []).rows == ()


def test_what_is_saved_of_a_run_are_its_cases_or_the_operators_of_one_that_was_profiled(
    detail: RunDetail,
) -> None:
    gemm, gpt, *_ = detail.run.cases
    wanted = [sheet_of(detail, case) for case in (None, gpt, gemm)]
    assert [getattr(sheet, "what", "") for sheet in wanted] == ["cases", "operators", ""]
    assert wanted[2] == Missing("it has no profiled pass")
