"""The evidence of a load on a server: its results on both sides and every load, as tables."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from stored_loads import Server, store_loads

from gputui.document.spans import line_width
from gputui.model.absent import Missing
from gputui.model.serving import ANSWERED
from gputui.services.compare.rows_table import rows_of_sides
from gputui.services.support.background import Job
from gputui.tui.screens.compare.evidence import evidence_of, open_row, value_table
from gputui.tui.screens.compare.loaded import ShownRow, read


def job() -> Job[Any]:
    return Job(lambda job: None, lambda job, outcome: None)


@pytest.fixture(scope="module")
def opened(tmp_path_factory: pytest.TempPathFactory) -> ShownRow:
    """The limit of two servers, one of which refuses some requests."""
    place = tmp_path_factory.mktemp("loads")
    store_loads(place / "a.db", Server(failures=3), requests=40)
    store_loads(place / "b.db", Server(slots=24, decode_s=0.005), number=2, requests=40)
    loaded = read((str(place / "a.db"), str(place / "b.db")), job())
    rows = [sides[0] for sides in rows_of_sides(loaded.answer.comparisons, loaded.ignore)]
    number = next(n for n, row in enumerate(rows) if row and row.case.work.workload == "serve:chat limit")
    return open_row(loaded, number, 0, job())


def texts(opened: ShownRow, width: int) -> list[str]:
    return ["".join(span.text for span in line).rstrip() for line in evidence_of(opened, width)]


def line_with(lines: list[str], words: str) -> list[str]:
    """The words of the first line that begins with these."""
    return next(line for line in lines if line.strip(" ▸").startswith(words)).split()


def test_results_of_a_load_stand_in_columns_with_the_verdict_last(opened: ShownRow) -> None:
    lines = texts(opened, 120)
    assert line_with(lines, "rate")[1:3] == ["3.17", "req/s"]
    assert line_with(lines, "rate")[-1] == "faster"
    assert line_with(lines, "cost per 1M req")[-1] == "cheaper"
    assert line_with(lines, "TPOT median")[-1] == "lower"
    assert "".join(line_with(lines, "TTFT p99")).endswith("needs368requestsalaunch")
    assert not any("on a," in line for line in lines)


def test_every_load_has_a_line_for_each_side_with_failures_and_lag_of_the_client(opened: ShownRow) -> None:
    lines = texts(opened, 120)
    first = next(place for place, line in enumerate(lines) if line.split()[:2] == ["load", "tok/s"])
    assert lines[first].split()[-4:] == ["n", "failed", "lag", "p99"]
    table = [line.split() for line in lines[first + 1 : first + 9]]
    of_a, of_b = table[0::2], table[1::2]
    assert [cells[:3] for cells in of_a[:3]] == [
        ["1", "user", "a"],
        ["4", "users", "a"],
        ["16", "users", "a"],
    ]
    assert [cells[0] for cells in of_b[:3]] == ["b"] * 3
    assert of_a[3][:2] == ["▸", "limit"]
    loads = opened.loads[0]
    assert not isinstance(loads, Missing)
    refused = [level.outcomes.total() - level.outcomes[ANSWERED] for level in loads.levels]
    assert [int(cells[-3]) for cells in of_a] == refused
    assert sum(refused) > 0
    assert {int(cells[-3]) for cells in of_b} == {0}
    assert all(cells[-2:] == ["800", "µs"] for cells in table)


@pytest.mark.parametrize("width", [40, 60, 80, 200])
def test_the_verdict_and_both_sides_of_a_load_are_left_at_any_width(opened: ShownRow, width: int) -> None:
    lines = texts(opened, width)
    if width >= 80:
        assert line_with(lines, "rate")[-1] == "faster"
        assert max(map(line_width, evidence_of(opened, width))) <= width
    assert line_with(lines, "16 users")[2] == "a"
    assert any("limit" in line and "▸" in line for line in lines)


def test_beside_the_rows_results_stand_in_brief(opened: ShownRow) -> None:
    assert opened.row is not None
    brief = value_table(opened.row, "c", 70)
    lines = ["".join(span.text for span in line) for line in brief]
    assert lines[0].split() == ["a", "c", "c", "vs", "a"]
    assert line_with(lines, "cost per 1M req")[-1] == "cheaper"
    assert line_with(lines, "TTFT median")[-2:] == ["can't", "tell"]
    assert not any("TTFT p99" in line or " to " in line for line in lines)
    assert max(map(len, lines)) <= 70


def test_loads_that_can_no_longer_be_read_leave_the_results_and_a_reason(opened: ShownRow) -> None:
    lost = replace(opened, loads=(Missing("a.db: no such file"), opened.loads[1]))
    lines = texts(lost, 120)
    assert "a  its loads are not known: a.db: no such file" in lines
    assert line_with(lines, "rate")[-1] == "faster"
    assert line_with(lines, "16 users")[2] == "b"
