"""Tables: which columns fit, and how they are laid out in a page, in Markdown and in HTML."""

from __future__ import annotations

from io import StringIO

import pytest
from rich.cells import cell_len

from gputui.document.drawings import bars
from gputui.document.markup import markdown_table
from gputui.document.markup import table as html_table
from gputui.document.page import Page, console_on
from gputui.document.spans import Span, wrapped
from gputui.document.table import Column, Table, columns_that_fit, lines_of, table_of

LONG = "a name so long that it cannot stand in one line of a terminal of eighty columns"
ROWS = (("gemm fp32", "412 µs", "1.02x ±0.10 more"), ("東京", "", "—"), (LONG, "1", "2"))
TABLE = table_of(("case", "a", "b against a"), ROWS, (1,))


def page_of(table: Table, width: int, *, is_terminal: bool = False) -> list[str]:
    page = Page(console_on(StringIO(), width, is_terminal=is_terminal))
    page.table(table)
    return page.written


def headings(columns: list[Column]) -> list[str]:
    return [column.heading for column in columns]


@pytest.mark.parametrize("width", [30, 60, 80, 120, 200])
def test_no_cell_is_cut_and_no_line_is_wider_than_the_page(width: int) -> None:
    lines = page_of(TABLE, width)
    assert max(map(cell_len, lines)) <= width
    assert not any("…" in line for line in lines)
    told = " ".join(" ".join(lines).split())
    assert all(word in told for row in ROWS for cell in row for word in cell.split())


def test_the_highest_priority_goes_first_and_those_of_one_go_together() -> None:
    columns = [
        Column("case", ["gemm"]),
        Column("rate", ["107 GFLOP/s"], priority=1),
        Column("$ a", ["$1.00"], priority=3),
        Column("$ b", ["$2.00"], priority=3),
        Column("cost", ["+100 %"], priority=2),
    ]
    assert headings(columns_that_fit(columns, 40)) == ["case", "rate", "$ a", "$ b", "cost"]
    assert headings(columns_that_fit(columns, 32)) == ["case", "rate", "cost"]
    assert headings(columns_that_fit(columns, 16)) == ["case", "rate"]
    assert headings(columns_that_fit(columns, 3)) == ["case"]


def test_a_column_becomes_narrower_before_any_of_a_lower_priority_goes() -> None:
    short = Column("b vs a", ["-36 %"])
    columns = [
        Column("case", ["gemm"]),
        Column("b vs a", ["-36 % (-38 to -34)"], priority=2, narrow=short),
        Column("cost", ["+100 %"], priority=1),
    ]
    assert [column.texts[0] for column in columns_that_fit(columns, 30)] == [
        "gemm",
        "-36 % (-38 to -34)",
        "+100 %",
    ]
    assert [column.texts[0] for column in columns_that_fit(columns, 20)] == ["gemm", "-36 %", "+100 %"]
    assert [column.texts[0] for column in columns_that_fit(columns, 12)] == ["gemm", "-36 %"]


def test_what_is_drawn_gets_the_rest_of_the_room_and_goes_where_it_is_too_little() -> None:
    name, share = Column("case", ["gemm"]), Column("", ["50 %"], is_right=True)
    drawn = bars([0.5], 1.0, "compute", least=8, most=20)
    widths = {
        width: [one.width for one in columns_that_fit([name, drawn, share], width)]
        for width in (60, 24, 18, 17)
    }
    assert widths == {60: [4, 20, 4], 24: [4, 14, 4], 18: [4, 8, 4], 17: [4, 4]}


def test_a_table_that_is_divided_has_its_first_columns_in_each_part() -> None:
    sides = [Column(f"{letter} vs a", ["can't tell"]) for letter in "bcdef"]
    first = (Column("case", ["gemm fp32"]), Column("a", ["95.3 GFLOP/s"]))
    lines = page_of(Table((*first, *sides), keeps=2), 50)
    heads = [line.split() for line in lines if line.startswith("case")]
    assert ["".join(head) for head in heads] == ["caseabvsacvsa", "caseadvsaevsa", "caseafvsa"]
    assert max(map(len, lines)) <= 50


def test_of_a_row_that_stands_out_the_judged_cells_are_bold_in_their_colours(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("TERM", "xterm")
    cells = ("gemm", Span("-36 %", "warn"), Span("│", "track"))
    table = table_of(("case", "b vs a", ""), [cells], styles=["title"])
    _, row = page_of(table, 80, is_terminal=True)
    assert row == "gemm \x1b[1;33m-36 %\x1b[0m  \x1b[90m│\x1b[0m"
    monkeypatch.setenv("NO_COLOR", "1")
    _, row = page_of(table, 80, is_terminal=True)
    assert row == "gemm \x1b[1m-36 %\x1b[0m  \x1b[2m│\x1b[0m"


def test_markdown_and_html_have_every_column_whatever_the_width() -> None:
    table = Table((Column("case", ["a|b"]), Column("rate", ["<1"], True, priority=9)))
    assert markdown_table(table) == "| case | rate |\n| --- | ---: |\n| a\\|b | \\<1 |\n"
    assert '<th class="n p9">rate</th>' in html_table(table)
    assert '<td class="n p9">&lt;1</td>' in html_table(table)


def test_a_page_keeps_styles_draws_bars_and_has_a_narrow_column_beside_the_wide_one() -> None:
    narrow = Column("b vs a", [Span("-36 %", "warn")], True)
    wide = Column("b vs a", [Span("-36 % (-38 to -34)", "warn")], True, 6, narrow)
    page = html_table(Table((wide, bars([0.25], 1.0, "good")), styles=["title"]))
    assert '<tr class="title">' in page
    assert '<td class="n p6 warn">-36 % (-38 to -34)</td><td class="n instead p6 warn">-36 %</td>' in page
    assert '<rect class="good" width="25.00%"' in page


@pytest.mark.parametrize("unit", ["%", "s", "ms", "GiB", "GB/s"])
def test_a_line_never_ends_between_a_number_and_its_unit(unit: str) -> None:
    for width in range(20, 40):
        text = f"CPU contention for 27 {unit}, and on the other box for 8 {unit} and more"
        lines = wrapped(text, width)
        assert max(map(len, lines)) <= width
        assert not any(line.lstrip().startswith(unit) for line in lines), lines
        assert " ".join(lines) == text


def test_a_line_goes_on_as_far_in_as_it_begins_and_a_long_word_in_the_next_line() -> None:
    assert wrapped("  one two three", 9) == ["  one two", "  three"]
    assert wrapped("abcdefghij", 4) == ["abcd", "efgh", "ij"]
    assert wrapped("ends in spaces   ", 80) == ["ends in spaces"]


def test_names_are_cut_where_those_that_differ_stay_different_at_the_end_if_they_do_there() -> None:
    def cut_to(width: int, *names: str) -> list[str]:
        _, *rows = lines_of([Column("case", names)], width, cuts=True)
        return ["".join(text for text, _ in row[0]).rstrip() for row in rows]

    cases = [
        f"{work} training mini cpu {end}" for work in ("CNN", "GPT") for end in ("fp32", "amp", "fp32 1t")
    ]
    for width in (16, 20, 24):
        shown = cut_to(width, *cases)
        assert len(set(shown)) == len(cases), shown
        assert max(map(cell_len, shown)) <= width
    assert cut_to(12, "matmul mini fp32", "memory copy mini") == ["matmul mini…", "memory copy…"]
    assert cut_to(12, "matmul", "matmul mini fp32") == ["matmul", "matmul mini…"]
