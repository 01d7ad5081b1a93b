"""The page as a browser draws it: two boxes and four, nothing in common, no price, no memory, many rows."""

from __future__ import annotations

import functools
import re
from collections.abc import Collection, Iterator, Sequence
from dataclasses import replace
from importlib import resources
from pathlib import Path

import pytest
from browser import CHROMIUM, NO_CHROMIUM, OUTSIDE, OVERLAPS, Browser, browser
from hand_made import make_case, make_run, measured, steady, unmeasured
from journals import GPU_MACHINE, H200

from gputui.analysis.attribution import Attribution, Part, Split
from gputui.document import markup
from gputui.document.markup import command_line, with_units
from gputui.model.absent import Missing
from gputui.model.journal import Price
from gputui.model.plan import Case
from gputui.model.result import Run
from gputui.services.compare.headline import headline_of
from gputui.services.compare.pairing import (
    CAPPED,
    Comparison,
    Flag,
    Why,
    compare_sides,
    side_of_runs,
)
from gputui.services.compare.reports import comparisons_as_page
from gputui.services.compare.session import Answer, Asked
from gputui.services.results.conditions import Evidence
from gputui.store.reading import LaunchSeries

LONG = "a workload with a name that is longer than the column of any table on a phone"
WORKLOADS = ("gemm", "membw", "xfer", "conv_train", "gpt_train", "lstm_train", "decode", LONG)
PRECISIONS = ("fp32", "tf32", "amp", "fp16")
CLASSES = {"gemm": "ceiling", "membw": "ceiling", "xfer": "ceiling", "decode": "inference"}
GPT = "gpt_train"
COLORS = re.compile(r"--(\w+): (#\w{6})")


class _Recorded(Evidence):
    """Runs without telemetry, in a file that does not exist."""

    def launches(
        self, run_id: str, case_id: int, launch_ids: Collection[int], pieces: int
    ) -> tuple[LaunchSeries, ...]:
        return ()

    def file(self, run_id: str) -> Path:
        return Path("a directory/with a name that is rather long/h100.db")


def case_of(workload: str, precision: str) -> Case:
    case = make_case(
        workload,
        workload_class=CLASSES.get(workload, "training"),
        device_class="gpu",
        precision=precision,
        size="base",
    )
    return replace(case, unit="tok", units_per_step=4096.0)


CASES = [case_of(workload, precision) for workload in WORKLOADS for precision in PRECISIONS]


def run_of(factor: float, cases: Sequence[Case] = CASES, usd: float | None = 3.5, launches: int = 3) -> Run:
    """Steps of 10 ms on a box that is slower by a factor, and by 5 % more with each case."""
    results = [
        measured(
            case,
            *(
                steady(0.01 * factor * (1 + 0.05 * place * (factor - 1)) * (1 + 2e-3 * n))
                for n in range(launches)
            ),
        )
        for place, case in enumerate(cases)
    ]
    price = Missing("no price") if usd is None else Price(usd, 1.0, "stated", "", "", "", "")
    return make_run(*results, machine=replace(GPU_MACHINE, gpus=(H200,)), price=price)


def page_of(runs: Sequence[Run], ignore: str = "") -> str:
    sides = [side_of_runs(f"box-{number}.db", [run]) for number, run in enumerate(runs)]
    comparisons = [explained(compare_sides(sides[0], side)) for side in sides[1:]]
    evidence = _Recorded((), trust=False)
    headline = headline_of(comparisons, ignore, evidence)
    asked = Asked(tuple(sides), ignore, evidence, ())
    return comparisons_as_page(asked, Answer(tuple(comparisons), headline))


def explained(comparison: Comparison) -> Comparison:
    """With reasons of every row that differs: one part is longer on b, one shorter, one hardly moves."""
    times = {
        "gemm": (5_000_000, 9_000_000),
        "casts and copies": (3_000_000, 1_000_000),
        "softmax_loss": (7, 8),
    }
    unknown = Missing("")
    parts = tuple(
        Part(name, a, b, Split(0, b - a, 0), unknown, unknown, (("forward", b - a),), 0, 0, b - a)
        for name, (a, b) in times.items()
    )
    step_a, step_b = (sum(times_ns) for times_ns in zip(*times.values(), strict=True))
    why = Why(Attribution(step_a, step_b, parts, (), 0.9, 1.1, 1.1, "fair", ("a doubt",)))
    rows = (replace(row, why=why) if row.rate.differs else row for row in comparison.rows)
    return replace(comparison, rows=tuple(rows))


def without_memory() -> Run:
    run = run_of(1.6)
    reason = "CUDA out of memory. Tried to allocate 20.00 GiB. GPU 0 has a total capacity of 79.15 GiB"
    cases = [
        replace(unmeasured(one.case, "oom", reason), case_id=one.case_id)
        if one.case.work.workload == GPT and one.case.variant.precision == "amp"
        else one
        for one in run.cases
    ]
    return replace(run, cases=tuple(cases))


FEW = [case_of(GPT, "amp"), case_of("decode", "amp"), case_of("gemm", "amp")]
PAGES = {
    "32 rows": lambda: page_of([run_of(1.0), run_of(1.6, usd=1.75)]),
    "four boxes": lambda: page_of(
        [run_of(1.0), run_of(1.6), run_of(0.7, usd=9.0), run_of(1.001, launches=1)]
    ),
    "nothing in common": lambda: page_of([run_of(1.0, FEW[:1]), run_of(1.0, FEW[1:])]),
    "out of memory": lambda: page_of([run_of(1.0), without_memory()]),
    "no price": lambda: page_of([run_of(1.0, FEW), run_of(1.3, FEW, usd=None)]),
    "undecided": lambda: page_of([run_of(1.0, FEW, launches=1), run_of(1.08, FEW, launches=1)]),
    "far apart": lambda: page_of([run_of(500.0, FEW), run_of(1.0, FEW)]),
    "one row": lambda: page_of([run_of(1.0, FEW[:1]), run_of(1.001, FEW[:1])]),
}


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
@pytest.mark.parametrize("width", [1280, 760, 390])
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
    evidence = _Recorded((), trust=False)
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
