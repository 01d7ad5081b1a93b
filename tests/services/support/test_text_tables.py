"""Pages print the same as rich, line by line and table by table."""

from __future__ import annotations

import re
from io import StringIO

import pytest
from rich.console import Console
from rich.text import Text

from gputui.services.support.text_tables import Page, add_row, table
from gputui.store.text import clean_text

LINES = (
    "plain",
    "",
    "  indented, with signs: ±0.2 · 3 µs — 東京",
    "a long line that must go on below because it has far more words than the terminal has columns",
    "ends in spaces   ",
    "[bold]no markup[/] :smile: \x1b[31mno colour\x07",
    "two\nlines",
)
HEADINGS = ("case", "a", "b against a")
ROWS = (("gemm fp32", "412 µs", "1.02x ±0.10 more"), ("  東京", "", "—"), ("mean of 2/3", "9", "2.00x"))
LONG = (*ROWS, ("a name so long that it cannot stand in one line of a terminal of eighty columns", "1", "2"))


def made(width: int, *, is_terminal: bool) -> Console:
    return Console(
        file=StringIO(), width=width, force_terminal=is_terminal, highlight=False, markup=False, emoji=False
    )


def written(console: Console) -> str:
    assert isinstance(console.file, StringIO)
    return console.file.getvalue()


def looks(text: str) -> list[tuple[str, str]]:
    """Each character with the style it is shown in, however the escape sequences are divided."""
    found, style = [], ""
    for part in re.split(r"(\x1b\[[0-9;]*m)", text):
        if part.startswith("\x1b["):
            style = "" if part == "\x1b[0m" else part
        else:
            found += [(char, style if char != " " else "") for char in part]
    return found


@pytest.mark.parametrize("is_terminal", [False, True])
@pytest.mark.parametrize("width", [30, 80])
def test_a_page_looks_as_if_each_thing_were_printed(width: int, is_terminal: bool) -> None:
    ours, theirs = made(width, is_terminal=is_terminal), made(width, is_terminal=is_terminal)
    page = Page(ours)
    for line in LINES:
        page.line(line)
        theirs.print(Text(clean_text(line)))
    for rows in (ROWS, LONG, ()):
        styles = ["bold", "italic", "", ""][: len(rows)]
        page.table(HEADINGS, rows, (1,), styles)
        expected = table(HEADINGS, (1,))
        for cells, style in zip(rows, styles, strict=True):
            add_row(expected, *cells, style=style)
        theirs.print(expected)
    page.show()

    assert looks(written(ours)) == looks(written(theirs))


@pytest.mark.parametrize("unit", ["%", "s", "ms", "GiB", "GB/s"])
def test_a_line_never_ends_between_a_number_and_its_unit(unit: str) -> None:
    for width in range(20, 40):
        out = made(width, is_terminal=False)
        page = Page(out)
        page.line(f"CPU contention for 27 {unit}, and on the other box for 8 {unit} and more")
        page.show()
        lines = written(out).splitlines()
        assert not any(line.lstrip().startswith(unit) for line in lines), lines
        assert " ".join(map(str.strip, lines)).count(f" {unit}") == 2
