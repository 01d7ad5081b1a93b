"""The page of answers in SQL, on real result files."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import duckdb
import pytest
from journals import GPU_MACHINE, STARTED_US, journal_lines, write_lines
from stored_runs import GPT, run_id_of, store

from gputui.store.journal_reader import read_journal
from gputui.store.writing import store_run

PAGE = (Path(__file__).parents[2] / "docs" / "sql.md").read_text(encoding="utf-8")
ANSWERS = re.findall(r"^## ([^\n]+)\n\n```sql\n(.+?)```", PAGE, re.MULTILINE | re.DOTALL)
SEVERAL = "Several files"


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Files with two runs each: GPU and CPU, a profiled pass, telemetry, fp32 and amp, prices."""
    place = tmp_path_factory.mktemp("sql")
    amp = replace(GPT, variant=replace(GPT.variant, precision="amp"))
    for name, gpt_ms in (("a", 100.0), ("b", 80.0)):
        store(place / f"{name}.db", 1, machine=GPU_MACHINE, on_gpu=True, gpt_ms=gpt_ms)
        lines = journal_lines(
            run_id=run_id_of(2),
            cases=(GPT, amp),
            launches=2,
            machine=GPU_MACHINE,
            started_utc_us=STARTED_US + 2 * 3_600_000_000,
        )
        store_run(place / f"{name}.db", read_journal(write_lines(place / name, lines)), ())
    return place


@pytest.fixture(scope="module")
def connection(place: Path) -> Iterator[duckdb.DuckDBPyConnection]:
    with duckdb.connect(str(place / "a.db"), read_only=True) as connection:
        yield connection


def test_the_page_holds_as_many_answers_as_it_says() -> None:
    assert len([title for title, _ in ANSWERS if title != SEVERAL]) == 12


@pytest.mark.parametrize(("title", "sql"), ANSWERS, ids=[title for title, _ in ANSWERS])
def test_each_answer_has_rows_without_a_column_that_is_all_null(
    title: str,
    sql: str,
    connection: duckdb.DuckDBPyConnection,
    place: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.chdir(place)
    found = (duckdb.connect() if title == SEVERAL else connection).execute(sql)
    assert found.description is not None
    names, rows = [column[0] for column in found.description], found.fetchall()
    assert rows, title
    empty = [name for name, cells in zip(names, zip(*rows, strict=True), strict=True) if set(cells) == {None}]
    assert set(empty) <= {"comment", "temperature_c"}
