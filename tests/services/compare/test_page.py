"""The page as a browser draws it: two boxes and four, nothing in common, no price, no memory, many rows."""

from __future__ import annotations

import functools
import re
from collections.abc import Iterator
from dataclasses import replace
from importlib import resources
from pathlib import Path

import pytest
from browser import CHROMIUM, NO_CHROMIUM, OUTSIDE, OVERLAPS, Browser, browser
from compared_pages import CASES, FEW, PAGES, WithoutTelemetry, page_of, run_of

from gputui.document import markup
from gputui.document.markup import command_line, with_units
from gputui.services.compare.headline import headline_of
from gputui.services.compare.pairing import CAPPED, Flag, compare_sides, side_of_runs
from gputui.services.compare.reports import comparisons_as_page
from gputui.services.compare.session import Answer, Asked

COLORS = re.compile(r"--(\w+): (#\w{6})")


def rows_on(page: str) -> str:
    """The table of all rows."""
    return page[page.index('<table class="forest') :].partition("</table>")[0]


@functools.cache
def page_named(name: str) -> str:
    return PAGES[name]()


@pytest.fixture(scope="module")
def tab() -> Iterator[Browser]:
    with browser() as found:
        yield found


@pytest.mark.slow
@pytest.mark.skipif(CHROMIUM is None, reason=NO_CHROMIUM)
@pytest.mark.parametrize("name", PAGES)
@pytest.mark.parametrize("width", [1280, 390])
def test_no_text_covers_another_or_leaves_the_page_and_the_browser_has_nothing_to_complain_about(
    tab: Browser, tmp_path: Path, name: str, width: int
) -> None:
    page = tmp_path / "page.html"
    page.write_text(page_named(name), encoding="ascii")
    for is_dark in (False, True):
        tab.open(page, width, is_dark=is_dark)
        for is_unfolded in (False, True):
            if is_unfolded:
                tab.evaluate("document.querySelectorAll('details').forEach(one => one.open = true)")
            assert tab.evaluate(OVERLAPS) == []
            assert tab.evaluate(OUTSIDE) == []
            assert tab.evaluate("document.documentElement.scrollWidth") == width
    assert tab.complaints == []


@pytest.mark.slow
@pytest.mark.skipif(CHROMIUM is None, reason=NO_CHROMIUM)
def test_the_browser_finds_what_it_is_asked_to_find(tab: Browser, tmp_path: Path) -> None:
    page = tmp_path / "page.html"
    page.write_text(
        page_named("one row").replace(
            "</body>",
            '<p style="position:absolute;top:0;left:0">ABOVE</p>'
            '<p style="position:absolute;top:0;left:0">BELOW</p>'
            '<p style="white-space:nowrap">' + "wide " * 300 + "</p><script>0</script></body>",
        ),
        encoding="ascii",
    )
    tab.open(page, 390)
    assert "ABOVE | BELOW" in tab.evaluate(OVERLAPS)
    assert tab.evaluate(OUTSIDE)
    assert tab.evaluate("document.documentElement.scrollWidth") > 390
    complaints, tab.complaints = tab.complaints, []
    assert any("Content Security Policy" in one for one in complaints)


def test_the_page_of_two_boxes_answers_first_and_folds_what_is_evidence() -> None:
    page = page_named("32 rows")
    marks = ("<h1>", *(f'class="{name}"' for name in ("about", "forest", "bars", "columns")), "All figures")
    places = [page.index(mark) for mark in marks]
    assert places == sorted(places)
    means = ("peak tests", "training", "inference")
    assert rows_on(page).count('<td class="drawn">') == len(CASES) + len(means)
    _, _, values, why, blocks, *tables = [found.start() for found in re.finditer('<div class="wide">', page)]
    assert page.index("Evidence of") < values < page.index(">why<") < why
    assert page.index("time per step, block by block") < blocks
    assert tables
    for place in tables:
        assert page.count("<details>", 0, place) > page.count("</details>", 0, place)


def test_a_page_says_what_its_boxes_lack_and_what_would_settle_or_turn_the_answer() -> None:
    page = page_named("undecided")
    told = page[page.index('class="tell"') : page.index('class="forest"')]
    commands = [re.sub(r"<[^>]*>", "", one) for one in re.findall(r"<pre.*?</pre>", told)]
    assert [one[:11] for one in commands] == ["a$ gputui r", "b$ gputui r"]
    assert all(re.search(r"--launches \d+$", one) for one in commands)
    page = page_named("out of memory")
    (row,) = re.findall(r"<tr>.*not comparable: b out of memory.*", rows_on(page))
    assert "GPT training amp" in row
    assert page.index("runs out of memory") < page.index("</h1>")
    page = page_named("no price")
    assert "b: no price is stored: gputui run --price USD_PER_H stores one" in page
    assert ">cost </th>" not in rows_on(page)
    assert ">cost </th>" in rows_on(page_named("32 rows"))
    even = r"if box-1\.db costs \$[\d.]+/h or (more: box-0|less: box-1)\.db is cheaper per"
    assert re.search(even, page_named("32 rows"))
    assert not re.search(even, page)
    assert not re.search(even, page_named("one row"))
    assert "<h1>Nothing to compare" in page_named("nothing in common")


def test_each_box_has_a_column_and_its_own_letter_in_every_drawing_and_those_behind_z_capitals() -> None:
    page = page_named("four boxes")
    rows = rows_on(page)
    assert re.findall(r">(\w) vs a</th>", rows) == [*"bcd"]
    assert re.findall(r"cost (\w)", rows) == [*"bcd"]
    assert re.findall(r">([a-z])</text>", rows) == [*"bcd"] * len(CASES)
    assert page.count("in detail</summary>") == 3
    many = page_of([run_of(1 + number / 100, FEW[:1]) for number in range(28)])
    assert re.findall(r">(.) vs a</th>", rows_on(many)) == [*"bcdefghijklmnopqrstuvwxyzBC"]


def test_what_makes_a_row_doubtful_is_said_once_of_each_box_by_its_own_letter() -> None:
    b, c = (
        compare_sides(side_of_runs("a", [run_of(1.0)]), side_of_runs(name, [run_of(factor)]))
        for name, factor in (("b", 1.2), ("c", 1.4))
    )
    flags = (Flag("a", CAPPED, 0.5), Flag("b", CAPPED, 0.25))
    flagged = [replace(one, rows=(replace(one.rows[0], flags=flags), *one.rows[1:])) for one in (b, c)]
    evidence = WithoutTelemetry((), trust=False)
    headline = headline_of(flagged, "", evidence)
    asked = Asked((b.a, b.b, c.b), "", evidence, ())
    page = comparisons_as_page(asked, Answer(tuple(flagged), headline))
    said = re.findall(r"! (\w) power-capped: [^<]* (\d+) % of the time", page[: page.index("in detail<")])
    assert said == [("a", "50"), ("b", "25"), ("c", "25")]


# Colours


def luminance(color: str) -> float:
    parts = [int(color[place : place + 2], 16) / 255 for place in (1, 3, 5)]
    linear = [part / 12.92 if part <= 0.04045 else ((part + 0.055) / 1.055) ** 2.4 for part in parts]
    return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_every_colour_of_text_has_contrast_on_the_page(scheme: str) -> None:
    style = resources.files("gputui.document").joinpath("page.css").read_text(encoding="utf-8")
    light, dark = style.split("@media (prefers-color-scheme: dark)")
    colors = dict(COLORS.findall(light if scheme == "light" else dark))
    for name in ("ink", "dim", "good", "warn", "accent", "a", "b", "c", "d"):
        bright, dim = sorted((luminance(colors[name]), luminance(colors["page"])), reverse=True)
        assert (bright + 0.05) / (dim + 0.05) >= 4.5, name


COMMAND = "a$ gputui run quick --launches 3 --only gemm --db /home/somebody/results/of-a-box.db --label again"
ROWS_OF_WORDS = """[...document.querySelectorAll('pre.command span')].map(
    one => { const range = document.createRange(); range.selectNodeContents(one);
             return new Set([...range.getClientRects()].map(rect => rect.top)).size })"""


@pytest.mark.slow
@pytest.mark.skipif(CHROMIUM is None, reason=NO_CHROMIUM)
def test_commands_break_between_words_on_a_phone_and_are_copied_as_they_are(
    tab: Browser, tmp_path: Path
) -> None:
    page = tmp_path / "page.html"
    page.write_text(markup.page_of("commands", command_line(COMMAND)), encoding="utf-8")
    tab.open(page, 390)
    assert set(tab.evaluate(ROWS_OF_WORDS)) == {1}
    tab.evaluate("getSelection().selectAllChildren(document.querySelector('pre'))")
    assert tab.evaluate("getSelection().toString()") == COMMAND
    assert tab.evaluate("document.documentElement.scrollWidth") == 390


def test_no_line_of_the_headline_breaks_between_a_number_and_its_unit() -> None:
    text = "b answers 37 % more requests within TTFT 500 ms, at 4.36 req/s of 3 boxes"
    kept = text.replace("37 %", "37\xa0%").replace("500 ms", "500\xa0ms").replace("4.36 req", "4.36\xa0req")
    assert with_units(text) == kept
    (headline,) = re.findall(r"<h1>(.*)</h1>", page_named("32 rows"))
    assert re.search(r"\d&#160;%", headline)
    assert not re.search(r"\d %", headline)
