"""Single cells of a comparison as people read them: changes, costs and the colors of verdicts."""

from __future__ import annotations

import io
import re
from dataclasses import replace
from pathlib import Path

import pytest
from hand_made import make_case, make_run, measured, steady
from journals import GPU_MACHINE

from gputui.analysis.judgement import RATE, Judgement
from gputui.analysis.verdict import Verdict
from gputui.document.page import Console, console_on
from gputui.document.theme import Depth, Palette
from gputui.errors import GputuiError
from gputui.model.absent import Missing
from gputui.model.journal import Price
from gputui.model.plan import Case
from gputui.model.result import Run
from gputui.services.compare.formats import comparison_text
from gputui.services.compare.headline import Headline
from gputui.services.compare.pairing import FigureRow, Row, compare_sides, side_of_runs, sides_by
from gputui.services.compare.reports import (
    comparison_pages,
)
from gputui.services.compare.row_text import (
    case_heading,
    cost_text,
    doubted_point_text,
    figure_values,
    figure_verdict,
)
from gputui.services.compare.session import Answer, Asked
from gputui.services.compare.suggestions import SettlingStep
from gputui.services.compare.tables import Naming, left_out
from gputui.services.results.conditions import Evidence
from gputui.services.results.labels import format_ends
from gputui.services.results.metrics import CaseMetric
from gputui.services.results.selectors import Selection

GPT = replace(make_case("gpt_train", workload_class="training", device_class="gpu"), unit="tok")


def run_of(step_s: float, case: Case = GPT, *, usd_per_hour: float = 1.0, spread: float = 1e-3) -> Run:
    price = Price(usd_per_hour, 1.0, "stated", "", "", "", "")
    launches = [steady(step_s * factor) for factor in (1.0, 1 + spread, 1 - spread)]
    return make_run(measured(case, *launches), machine=GPU_MACHINE, price=price)


def row_of(a: Run, b: Run) -> Row:
    (row,) = compare_sides(side_of_runs("a.db", [a]), side_of_runs("b.db", [b])).rows
    return row


def test_both_costs_of_a_row_are_for_as_much_work_as_suits_the_cheaper_one() -> None:
    row = row_of(run_of(0.1, usd_per_hour=1000.0), run_of(0.1, usd_per_hour=1.0))
    alone = cost_text(row.a, with_interval=False)
    dear, cheap = (cost_text(cell, (row.a, row.b), with_interval=False) for cell in (row.a, row.b))
    assert cheap == cost_text(row.b, with_interval=False)
    assert float(dear.strip("$")) == pytest.approx(1000 * float(cheap.strip("$")), rel=1e-3)
    assert alone != dear


def test_a_change_that_is_not_decided_ends_in_a_question_mark() -> None:
    assert doubted_point_text(row_of(run_of(0.1), run_of(0.2)).rate) == "-50 % "
    assert doubted_point_text(row_of(run_of(0.1, spread=0.05), run_of(0.104, spread=0.05)).rate) == "-4 %?"
    other = replace(GPT, unit="img")
    assert doubted_point_text(row_of(run_of(0.1), run_of(0.1, other)).rate) == " "


def test_the_ends_of_a_change_have_its_unit_where_it_does_not_stand_before_them() -> None:
    assert format_ends(0.9, 2.4, 1.45) == "-10 to +140 %"
    assert format_ends(2.9, 3.4, 3.1) == "2.90 to 3.40x"
    assert format_ends(0.004, 1200.0, 2.0) == "unknown"


def asked_of(*runs: Run) -> Asked:
    names = [f"{letter}.db" for letter in "abc"[: len(runs)]]
    found = [Selection(name, Path(name), (run,), (), {}) for name, run in zip(names, runs, strict=True)]
    sides = [side_of_runs(name, [run]) for name, run in zip(names, runs, strict=True)]
    return Asked(tuple(sides), "", Evidence(found), ())


def test_each_verdict_and_each_cost_has_its_color_in_the_column_of_its_box() -> None:
    asked = asked_of(run_of(0.1, usd_per_hour=4.0), run_of(0.2, usd_per_hour=4.0), run_of(0.07))
    comparisons = tuple(compare_sides(asked.sides[0], side) for side in asked.sides[1:])
    palette = Palette(Depth.ANSI)
    out = Console(io.StringIO(), 110, 100, is_terminal=True, has_styles=True, palette=palette)
    (page,) = comparison_pages(asked, Answer(comparisons, Headline(("The answer.",))), (), out)
    painted = re.findall(r"\x1b\[(?:\d+;)*(3[23])m *([-+]\d+ %)", "\n".join(page.written))
    assert painted == [("33", "-50 %"), ("32", "+43 %"), ("32", "-83 %")]


@pytest.mark.parametrize("factors", [(1.0, 1.3), (1.0, 1.3, 2.0)])
def test_as_many_rows_are_printed_as_fit_on_the_screen_and_the_others_are_counted(
    factors: tuple[float, ...],
) -> None:
    cases = [make_case(f"w{number}", workload_class="training", device_class="gpu") for number in range(30)]
    runs = [make_run(*(measured(case, steady(0.1 * one)) for case in cases)) for one in factors]
    asked = asked_of(*runs)
    comparisons = tuple(compare_sides(asked.sides[0], side) for side in asked.sides[1:])
    answer = Answer(comparisons, Headline(("The answer.",)))
    for height in (20, 30):
        made = io.StringIO()
        out = Console(made, 100, height, is_terminal=True, has_styles=False, palette=Palette(Depth.NONE))
        for page in comparison_pages(asked, answer, (), out, lines_below=2):
            page.show()
        text = made.getvalue()
        assert height - 6 <= text.count("\n") + 2 < height
        (left,) = re.findall(r"^(\d+) more rows: --all", text, re.MULTILINE)
        assert int(left) + len(re.findall(r"^w\d+ ", text, re.MULTILINE)) == len(cases)


def test_a_command_is_broken_for_a_screen_and_one_line_in_a_file() -> None:
    asked = asked_of(run_of(0.1), run_of(0.1))
    command = "gputui run --like a-directory/with-a-name/that-is-long/a.db@cccc0000 --db b.db --launches 3"
    headline = Headline(("The answer.",), (SettlingStep("b", command, 50.0, None),))
    answer = Answer((compare_sides(*asked.sides),), headline)
    for is_terminal in (False, True):
        made = io.StringIO()
        out = console_on(made, 80, is_terminal=is_terminal)
        for page in comparison_pages(asked, answer, (), out):
            page.show()
        plain = re.sub(r"\x1b\[[\d;]*m", "", made.getvalue())
        lines = [line.strip() for line in plain.splitlines()]
        assert (f"b$ {command}" in lines) is not is_terminal
        assert any(line.endswith(" \\") for line in lines) is is_terminal


def test_three_boxes_say_what_differs_and_on_which_of_them() -> None:
    a, b = run_of(0.1), run_of(0.2)
    newer = replace(b.summary.runtime, torch_version="2.13.0+cu130")
    c = replace(b, summary=replace(b.summary, runtime=newer))
    for runs, said in (
        ((a, b, c), "differs from a: torch (c)"),
        ((a, c), "\ndiffers: torch 2.11.0+cpu / 2.13.0+cu130\n"),
        ((a, b, run_of(0.05)), "no recorded differences"),
    ):
        asked = asked_of(*runs)
        comparisons = tuple(compare_sides(asked.sides[0], side) for side in asked.sides[1:])
        assert said in comparison_text(asked, Answer(comparisons, Headline(())), "text", width=100)


def test_a_case_that_one_precision_alone_has_is_named_with_that_precision() -> None:
    cases = [replace(GPT, variant=replace(GPT.variant, precision=one)) for one in ("fp32", "amp")]
    alone = make_case("conv_train", workload_class="training", device_class="gpu", precision="amp")
    run = make_run(*(measured(case, steady(0.1)) for case in (*cases, alone)), machine=GPU_MACHINE)
    comparison = compare_sides(*sides_by("precision", [run]), ignore="precision")
    assert list(left_out(comparison, Naming(comparison, "precision"))) == [
        "only with precision amp: CNN training"
    ]


def test_a_result_that_a_side_lacks_is_a_dash_and_only_a_cpu_has_all_cores() -> None:
    known, absent = (
        CaseMetric("p99", "p99 latency", "s", "less", "median", 0.5, None, None, 9, 3),
        Missing(""),
    )
    headings = [case_heading(words) for words in (["mini", "cpu", "all"], ["mini", "all"], ["all"])]
    assert headings == ["case (mini cpu all)", "case (mini)", "case"]
    judgement = Judgement(RATE, Missing("not on b"), Verdict("not comparable", "not on b"))
    figure = FigureRow(known.key, known.title, known.unit, known, absent, judgement)
    assert figure_values(figure) == ("500 ms", "—")
    assert figure_values(replace(figure, a=absent, b=known)) == ("—", "500 ms")
    assert figure_verdict(figure) == "not on b"


def test_a_rate_that_holds_waiting_for_cpus_is_marked_among_those_that_do_not() -> None:
    cases = [replace(GPT, variant=replace(GPT.variant, device_class=one)) for one in ("cpu", "gpu")]
    busy = make_run(*(measured(case, steady(0.1), waited_share=0.7) for case in cases), machine=GPU_MACHINE)
    quiet = make_run(*(measured(case, steady(0.1)) for case in cases), machine=GPU_MACHINE)
    asked = asked_of(quiet, busy)
    answer = Answer((compare_sides(*asked.sides),), Headline(()))
    text = comparison_text(asked, answer, "text", width=120)
    assert text.count("can't tell (b busy)") == 1


def test_the_baseline_of_precisions_is_named_in_any_case_and_that_of_files_as_it_is() -> None:
    cases = [replace(GPT, variant=replace(GPT.variant, precision=one)) for one in ("fp32", "amp")]
    run = make_run(*(measured(case, steady(0.1)) for case in cases), machine=GPU_MACHINE)
    precisions = Asked(tuple(sides_by("precision", [run])), "precision", Evidence([]), ())
    assert [side.name for side in precisions.sides] == ["fp32", "amp"]
    assert precisions.baseline("AMP") == 1
    files = asked_of(run_of(0.1), run_of(0.2), run_of(0.05))
    assert (files.baseline("b.db"), files.baseline("b")) == (1, 1)
    assert replace(files, sides=(replace(files.sides[0], name="a.db@cc0"),)).baseline("cc0") == 0
    with pytest.raises(GputuiError, match=r"B\.db: is not one of the sides"):
        files.baseline("B.db")
