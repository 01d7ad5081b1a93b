"""Each column of `compare` in every format that shows it."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
from hand_made import make_case, make_run, measured, steady, unmeasured

from gputui.model.plan import Case
from gputui.services.compare.columns import (
    CLOCK,
    COLUMNS,
    COLUMNS_OF_SIDES,
    RATIO,
    ComparisonColumn,
)
from gputui.services.compare.pairing import Comparison, Row, compare_sides, side_of_runs


def compared(case: Case) -> Comparison:
    """A case that both sides measured, and one that ran out of memory on b."""
    other = make_case("membw")
    a = make_run(measured(case, steady(0.1)), measured(other, steady(0.1)))
    b = make_run(measured(case, steady(0.12)), unmeasured(other, "oom"))
    return compare_sides(side_of_runs("a.db", [a]), side_of_runs("b.db", [b]))


@pytest.fixture(params=["cpu", "gpu"])
def rows(request: pytest.FixtureRequest) -> tuple[Row, ...]:
    return compared(make_case(device_class=request.param)).rows


@pytest.mark.parametrize("column", COLUMNS, ids=lambda column: column.name)
def test_a_column_has_a_cell_for_each_heading_and_csv_columns_that_do_not_depend_on_the_row(
    column: ComparisonColumn, rows: tuple[Row, ...]
) -> None:
    assert {len(column.cells_of(row)) for row in rows} == {len(column.headings)}
    assert len({tuple(column.csv(cell)) for row in rows for cell in (row.a, row.b)}) == 1


def test_no_two_columns_have_one_name_and_the_screen_shows_each_that_a_side_has() -> None:
    assert len({column.name for column in COLUMNS}) == len(COLUMNS)
    beside_rates = {CLOCK}
    assert {*COLUMNS_OF_SIDES} | beside_rates == {column for column in COLUMNS if column.value is not None}


def test_a_column_that_lacks_what_another_of_its_fields_needs_is_an_error_that_names_it(
    rows: tuple[Row, ...],
) -> None:
    with pytest.raises(ValueError, match="column ratio"):
        replace(RATIO, title="ratio")
    with pytest.raises(ValueError, match="column ratio"):
        RATIO.on_side(rows[0].a)


def test_the_page_of_compare_lists_every_column(repository: Path) -> None:
    page = (repository / "docs" / "compare.md").read_text(encoding="utf-8")
    assert f"`--columns {','.join(column.name for column in COLUMNS)}`" in page
    cell = compared(make_case()).rows[0].a
    for column in COLUMNS:
        for name in column.csv(cell):
            assert f"`a_{name}`" in page
