"""`compare` as markdown, csv and HTML: contents, and that no name becomes markup or a formula."""

from __future__ import annotations

import csv
import re
from collections.abc import Callable
from dataclasses import replace
from html.parser import HTMLParser
from io import StringIO
from pathlib import Path

import pytest
from hand_made import make_case, make_run, measured, steady, three
from journals import GPU_MACHINE, H200, PRICE, journal_lines, make_telemetry, write_lines, write_telemetry

from gputui.analysis.cost import Cost, Energy
from gputui.cli import main
from gputui.document.markup import escaped
from gputui.document.page import console_on
from gputui.errors import EXIT_DONE
from gputui.model.journal import Block, Price
from gputui.services.compare.columns import COST, ENERGY
from gputui.services.compare.formats import comparison_as_json, comparisons_as_csv
from gputui.services.compare.headline import Headline
from gputui.services.compare.pairing import Cell, Comparison, compare_sides, side_of_runs
from gputui.services.compare.reports import comparison_pages, comparisons_as_markdown, comparisons_as_page
from gputui.services.compare.session import Answer, Asked
from gputui.services.compare.tables import Naming, column_table, row_table
from gputui.services.results.conditions import Evidence
from gputui.services.support.output_files import harmless
from gputui.store.journal_reader import read_journal, read_telemetry
from gputui.store.writing import store_run

GEMM, CONV = make_case(device_class="gpu", precision="amp"), make_case("conv_train", device_class="gpu")
HOSTILE = '<script>alert(1)</script>|`x`"onload=1 @everyone [a](http://evil)'
STEP_S = {"a": 0.1, "b": 0.08}

ANSWER = Headline(("<b>b</b> is | faster.",))


def stored(place: Path, name: str, step_s: float, *, run_id: str, price: Price | None = None) -> Path:
    """Two GPU cases of three launches; every block of GEMM takes the same time, of CONV twice as long."""
    lines = journal_lines(
        run_id=run_id,
        cases=(GEMM, CONV),
        skipped=(),
        launches=3,
        machine=replace(GPU_MACHINE, gpus=(H200,)),
        price=price,
    )
    for place_in_list, line in enumerate(lines):
        if isinstance(line, Block):
            launch = 1 + 1e-3 * (line.launch_id - 2)
            ns = round(
                line.steps * step_s * (1 + line.case_id) * launch * (1 + 1e-3 * (line.index % 3)) * 1e9
            )
            lines[place_in_list] = replace(line, wall_ns=ns, device_ns=ns, cpu_ns=ns)
    run_dir = write_lines(place / f"run-{name}", lines)
    write_telemetry(run_dir, make_telemetry(seconds=40, gpus=1))
    store_run(place / name, read_journal(run_dir), read_telemetry(run_dir))
    return place / name


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    place = tmp_path_factory.mktemp("formats")
    price = replace(PRICE, usd_per_hour=3.6, gpu_count=1)
    return (
        stored(place, "a.db", STEP_S["a"], run_id="0194b5a0-0000-7000-8000-00000000aaaa", price=price),
        stored(place, "b.db", STEP_S["b"], run_id="0194b5a0-0000-7000-8000-00000000bbbb"),
    )


@pytest.fixture
def printed(capsysbinary: pytest.CaptureFixture[bytes]) -> Callable[..., str]:
    def run(*words: str | Path) -> str:
        with pytest.raises(SystemExit) as left:
            main(["compare", *map(str, words)])
        assert left.value.code == EXIT_DONE
        return capsysbinary.readouterr().out.decode()

    return run


# csv


def test_csv_has_a_row_for_each_case_with_figures_in_base_units_also_in_a_file(
    files: tuple[Path, Path], printed: Callable[..., str], tmp_path: Path
) -> None:
    text = printed(*files, "--format", "csv")

    assert text.count("\r\n") == 3
    assert "\n" not in text.replace("\r\n", "")
    rows = {row["workload"]: row for row in csv.DictReader(StringIO(text, newline=""))}
    gemm = rows["gemm"]
    flops = 2 * 1024**3
    # Launches are -2, 0 and 2 thousandths off; the six blocks of each 0, 1, 2, 0, 1, 2 thousandths more.
    assert float(gemm["a_units_per_s"]) == pytest.approx(flops / (0.1 * 1.001), rel=2e-4)
    assert float(gemm["b_units_per_s"]) == pytest.approx(flops / (0.08 * 1.001), rel=2e-4)
    assert float(gemm["b_against_a"]) == pytest.approx(0.1 / 0.08, rel=1e-6)
    assert float(gemm["ratio_low"]) < 1.25 < float(gemm["ratio_high"])
    # $3.60 an hour is $0.001 a second; a million TFLOP at so many a second.
    per_million = 0.001 * 1e18 / float(gemm["a_units_per_s"])
    assert float(gemm["a_usd_per_million"]) == pytest.approx(per_million, rel=1e-9)
    assert gemm["b_usd_per_million"] == ""
    assert (gemm["verdict"], gemm["a_launches"], gemm["a_blocks"]) == ("faster", "3", gemm["b_blocks"])
    # Its launches are those after each of GEMM: a thousandth slower.
    conv = float(rows["conv_train"]["a_units_per_s"])
    assert conv == pytest.approx(flops / (0.2 * 1.001 * 1.001), rel=2e-4)
    # The power of the stand-in GPU cycles from 600 to 607 W: 603.5 W on average.
    joules = 603.5 * 0.1 * 1.001 / flops
    assert float(gemm["a_joules_per_unit"]) == pytest.approx(joules, rel=0.003)
    assert float(gemm["a_joules_per_unit_low"]) < joules < float(gemm["a_joules_per_unit_high"])
    assert float(gemm["b_joules_per_unit"]) == pytest.approx(joules * 0.8, rel=0.004)

    there = tmp_path / "out.csv"
    there.write_text("old")
    assert printed(*files, "--format", "csv", "-o", there) == ""
    assert there.read_bytes().decode() == text
    assert [path.name for path in tmp_path.iterdir()] == ["out.csv"]


def hostile_comparison(name: str) -> Comparison:
    runs = [make_run(measured(make_case(name), *[steady(s)] * 3, device_name=name)) for s in (0.1, 0.2)]
    sides = [side_of_runs(f"{name}.db", [run]) for run in runs]
    return compare_sides(*sides)


@pytest.mark.parametrize("text", ["=1+1", "+1", "-1", "@SUM(A1)", "\t=1", "\r=1", "\n=1"])
def test_what_a_spreadsheet_would_run_gets_an_apostrophe_in_one_cell_of_csv(text: str) -> None:
    assert harmless(text) == f"'{text}"
    assert harmless(f"a{text}") == f"a{text}"
    name = f'{text}|"/c calc"!A1,\n2'

    (row,) = csv.DictReader(StringIO(comparisons_as_csv([hostile_comparison(name)], ""), newline=""))

    assert (row["workload"], row["a_side"], row["verdict"]) == (f"'{name}", f"'{name}.db", "slower")


def test_csv_holds_what_only_one_value_of_by_has(tmp_path: Path) -> None:
    run = make_run(measured(GEMM, steady(0.1)))
    other = make_run(measured(CONV, steady(0.1)))
    comparison = compare_sides(side_of_runs("a", [run]), side_of_runs("b", [other]))

    rows = list(csv.DictReader(StringIO(comparisons_as_csv([comparison], ""), newline="")))

    assert {(row["a_outcome"], row["b_outcome"], row["verdict"]) for row in rows} == {
        ("ok", "absent", "not comparable"),
        ("absent", "ok", "not comparable"),
    }
    assert all(row["b_against_a"] == "" for row in rows)


# Cost and energy in text


def test_costs_and_energies_stand_under_the_side_they_are_of() -> None:
    """Every cell of cost and energy, of a first and of b second, in each format that has them."""
    plain = compare_sides(*(side_of_runs(n, [make_run(measured(make_case(), steady(0.1)))]) for n in "ab"))
    cells = [
        Cell(
            plain.rows[0].a.result,
            plain.a.run,
            cost=Cost(usd, usd * 0.9, usd * 1.1, 1.0),
            energy=Energy(joules, None, None, 1.0, 3, 9),
        )
        for usd, joules in ((11.0, 1e-9), (22.0, 2e-9))
    ]
    comparison = replace(plain, rows=(replace(plain.rows[0], a=cells[0], b=cells[1]),))
    naming = Naming(comparison, "")

    for column, cells_shown in (
        (COST, ("$11.00 ±10 %", "$22.00 ±10 %")),
        (ENERGY, ("1.00 nJ/flop", "2.00 nJ/flop")),
    ):
        table = column_table(column, comparison, naming)
        assert table is not None
        assert table.headings[1:3] == ("a", "b")
        assert table.rows[0][1:3] == tuple(map(column.on_side, cells)) == cells_shown
    beside = row_table(comparison, naming, [COST, ENERGY])
    assert beside.headings[-2:] == ("cost a, b", "energy a, b")
    assert beside.rows[0][-2:] == ("$11.00 ±10 %, $22.00 ±10 % per EFLOP", "1.00 nJ/flop, 2.00 nJ/flop")
    (line,) = csv.DictReader(StringIO(comparisons_as_csv([comparison], ""), newline=""))
    assert (float(line["a_usd_per_million"]), float(line["b_usd_per_million"])) == (11.0, 22.0)
    assert (float(line["a_joules_per_unit"]), float(line["b_joules_per_unit"])) == (1e-9, 2e-9)
    (row,) = comparison_as_json(comparison)["rows"]
    assert (row["a"]["cost"]["usd_per_million"], row["b"]["cost"]["usd_per_million"]) == (11.0, 22.0)
    assert (row["a"]["energy"]["joules_per_unit"], row["b"]["energy"]["joules_per_unit"]) == (1e-9, 2e-9)


# markdown


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("gpt_train", "gpt_train"),
        ("a|b", "a\\|b"),
        ("see [1]", "see [1]"),
        ("[1](http://evil)", "\\[1\\](http:<!-- -->//evil)"),
        ("<b>&amp;", "\\<b\\>\\&amp;"),
        ("@team #12", "@<!-- -->team #<!-- -->12"),
        ("a.db@latest", "a.db@latest"),
        ("one\n# two", "one # two"),
        ("_x_ *y* `z`", "\\_x\\_ \\*y\\* \\`z\\`"),
    ],
)
def test_names_cannot_become_markup(text: str, shown: str) -> None:
    assert escaped(text) == shown


def test_a_hostile_name_does_not_break_the_table_of_markdown() -> None:
    comparison = hostile_comparison(HOSTILE)

    text = comparisons_as_markdown(Answer((comparison,), ANSWER), "")

    assert "<script" not in re.sub(r"\\<", "", text)
    table = [line for line in text.splitlines() if line.startswith("|")]
    assert len({len(re.findall(r"(?<!\\)\|", line)) for line in table}) == 1


# The page


def page_of(comparison: Comparison) -> str:
    """A page of runs that left no file."""
    evidence = Evidence([], trust=False)
    evidence.launches = lambda *which: ()  # type: ignore[method-assign]
    asked = Asked((comparison.a, comparison.b), "", evidence, ())
    return comparisons_as_page(asked, Answer((comparison,), ANSWER))


class Elements(HTMLParser):
    """Every element with its attributes, whether they are closed in order, and the text."""

    def __init__(self, page: str) -> None:
        super().__init__()
        self.open: list[str] = []
        self.all: list[tuple[str, dict[str, str | None]]] = []
        self.text = ""
        self.feed(page)
        self.close()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.all.append((tag, dict(attrs)))
        if tag not in ("meta", "br"):
            self.open.append(tag)

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        self.text += data


def test_a_page_needs_nothing_from_elsewhere_and_runs_nothing_whatever_its_names(
    files: tuple[Path, Path], printed: Callable[..., str]
) -> None:
    hostile = page_of(hostile_comparison(HOSTILE))
    usual = printed(*files, "--format", "html")
    for page in (Elements(hostile), Elements(usual)):
        assert page.open == []
        tags = {tag for tag, _ in page.all}
        assert tags.isdisjoint({"script", "link", "img", "iframe", "object", "a", "image"})
        names = {name for _, attributes in page.all for name in attributes}
        assert not [name for name in names if name.startswith("on") or name in ("src", "href", "style")]
    assert "alert(1)" in Elements(hostile).text
    assert "url(" not in usual
    assert "@import" not in usual
    assert "http" not in usual.replace("http-equiv", "")


def test_on_a_terminal_colours_repeat_the_words(monkeypatch: pytest.MonkeyPatch) -> None:
    cases = [make_case(name, workload_class="training", device_class="gpu") for name in ("gpt_train", "gemm")]
    a, b = (
        make_run(
            *(measured(case, *three(s)) for case, s in zip(cases, steps, strict=True)), machine=GPU_MACHINE
        )
        for steps in ((0.1, 0.1), (0.2, 0.1))
    )
    comparison = compare_sides(side_of_runs("a.db", [a]), side_of_runs("b.db", [b]))
    asked = Asked((comparison.a, comparison.b), "", Evidence([], trust=False), ())
    monkeypatch.setenv("TERM", "xterm-256color")
    written = []
    for no_colour in ("", "1"):
        monkeypatch.setenv("NO_COLOR", no_colour)
        made = StringIO()
        out = console_on(made, 100, is_terminal=True)
        for page in comparison_pages(asked, Answer((comparison,), ANSWER), (), out, shows_all=True):
            page.show()
        written.append(made.getvalue())
    coloured, plain = written
    assert "\x1b[1;38;5;214mslower" in coloured
    assert "\x1b[38;5;80mcan't tell" in coloured
    assert "38;5" not in plain
    escapes = re.compile(r"\x1b\[[\d;]*m")
    assert escapes.sub("", coloured) == escapes.sub("", plain)
    row = next(line for line in escapes.sub("", plain).splitlines() if line.startswith("GPT training "))
    assert re.search(r"-50 % \(-\d\d to -\d\d\) +╺?━*●━*╸? +│ +slower$", row), row
