"""The evidence of a load on a server: its results on both sides and every load, as tables."""

from __future__ import annotations

from typing import NoReturn

import pytest
from stored_loads import Server, store_loads

from gputui.document.spans import line_width
from gputui.document.table import Section, Table
from gputui.errors import GputuiError
from gputui.model.absent import Missing
from gputui.model.serving import ANSWERED
from gputui.services.compare.evidence import Curves, Loads, evidence_parts, recorded_of
from gputui.services.compare.pairing import Row, compare_sides, side_of_runs
from gputui.services.compare.session import ask
from gputui.services.results.conditions import Evidence
from gputui.tui.screens.comparison import Document, document_lines

Opened = tuple[Row, tuple[Curves, Loads], Evidence]


@pytest.fixture(scope="module")
def opened(tmp_path_factory: pytest.TempPathFactory) -> Opened:
    """The limit of two servers, one of which refuses some requests."""
    place = tmp_path_factory.mktemp("loads")
    store_loads(place / "a.db", Server(failures=3), requests=40)
    store_loads(place / "b.db", Server(slots=24, decode_s=0.005), number=2, requests=40)
    asked = ask([str(place / "a.db"), str(place / "b.db")])
    (comparison,) = asked.compared().comparisons
    row = next(row for row in comparison.rows if row.case.work.workload == "serve:chat limit")
    return row, recorded_of(row, comparison, asked.evidence, pool=False), asked.evidence


def parts_of(opened: Opened) -> Document:
    row, recorded, evidence = opened
    return evidence_parts(row, evidence, *recorded)


def loads_in(parts: Document) -> tuple[Table, tuple[str, ...]]:
    """The table of all loads, and the notes below it."""
    (section,) = (part for part in parts if isinstance(part, Section) and part.title == "every load")
    table, notes = section.parts
    assert isinstance(table, Table)
    assert isinstance(notes, tuple)
    return table, notes


def test_results_of_a_load_stand_in_columns_with_the_verdict_last(opened: Opened) -> None:
    values = parts_of(opened)[0]
    assert isinstance(values, Table)
    rows = {cells[0]: cells[1:] for cells in values.rows}
    assert rows["rate"][0] == "3.17 req/s"
    assert rows["rate"][-1] == "faster"
    assert rows["cost per 1M req"][-1] == "cheaper"
    assert rows["TPOT median"][-1] == "lower"
    assert rows["TTFT p99"][-1].endswith("needs 368 requests a launch")


def test_every_load_has_a_line_for_each_side_with_failures_and_lag_of_the_client(opened: Opened) -> None:
    table, _ = loads_in(parts_of(opened))
    assert table.headings[-3:] == ("n", "failed", "lag p99")
    assert [cells[:2] for cells in table.rows[:4]] == [
        ("1 user", "a"),
        ("1 user", "b"),
        ("4 users", "a"),
        ("4 users", "b"),
    ]
    loads = opened[1][1][0]
    assert not isinstance(loads, Missing)
    refused = [level.outcomes.total() - level.outcomes[ANSWERED] for level in loads.levels]
    assert [int(cells[-2]) for cells in table.rows[0::2]] == refused
    assert sum(refused) > 0
    assert {int(cells[-2]) for cells in table.rows[1::2]} == {0}


def test_all_loads_of_both_sides_are_left_at_any_width(opened: Opened) -> None:
    for width in (60, 80, 200):
        lines = document_lines(parts_of(opened), width)
        texts = ["".join(span.text for span in line) for line in lines]
        assert max(map(line_width, lines)) <= width
        assert sum(text.split()[:2] == ["16", "users"] for text in texts) == 2


def test_loads_that_can_no_longer_be_read_leave_the_results_and_a_reason(opened: Opened) -> None:
    row, recorded, evidence = opened
    curves, (_, of_b) = recorded
    lost = (Missing("a.db: no such file"), of_b)
    table, notes = loads_in(evidence_parts(row, evidence, curves, lost))
    assert notes[0] == "a  its loads are not known: a.db: no such file"
    assert {cells[1] for cells in table.rows} == {"b"}


def test_files_that_can_no_longer_be_read_are_the_reason_that_nothing_is_known(
    opened: Opened, monkeypatch: pytest.MonkeyPatch
) -> None:
    row, _, evidence = opened

    def gone(*which: object) -> NoReturn:
        raise GputuiError("a.db: no such file")

    monkeypatch.setattr(evidence, "launches", gone)
    (comparison,) = (compare_sides(side, side) for side in [side_of_runs("a.db", evidence.runs[:1])])
    curves, loads = recorded_of(row, comparison, evidence, pool=False)
    assert curves == loads == [Missing("a.db: no such file")] * 2
