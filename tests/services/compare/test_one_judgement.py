"""Every form of a comparison says the same word, per cent, interval and n: also gate and advice."""

from __future__ import annotations

import csv
import json
import re
from dataclasses import replace
from io import StringIO

import pytest
from compared_pages import WithoutTelemetry
from hand_made import make_case, make_run, measured, steady
from hypothesis import given, settings
from hypothesis import strategies as st
from journals import GPU_MACHINE

from gputui.analysis.job import parse_job
from gputui.analysis.judgement import Judgement
from gputui.cli.advise import advice_as_json
from gputui.document.markup import escaped, safe
from gputui.model.journal import Figure, Price
from gputui.model.result import CaseResult
from gputui.services.advise.rent import Pick, PricedSide, advise
from gputui.services.compare.evidence import value_table
from gputui.services.compare.formats import comparison_as_json, comparison_text, comparisons_as_csv
from gputui.services.compare.headline import headline_of
from gputui.services.compare.pairing import Side, compare_sides, side_of_runs
from gputui.services.compare.reports import comparisons_as_markdown, comparisons_as_page
from gputui.services.compare.row_text import (
    change_text,
    figure_values,
    figure_verdict,
    verdict_text,
)
from gputui.services.compare.session import Answer, Asked
from gputui.services.compare.suggestions import CANNOT_TELL, FAIL, PASS, check_gate
from gputui.services.results.labels import plain_name, short_case_name

NAMES = ("gemm", "membw", "gpt_train", "conv_train", "decode")
JOB = "gpt_train"
EVIDENCE = WithoutTelemetry((), trust=False)
SPEEDS = st.lists(
    st.tuples(st.floats(0.02, 0.2), st.floats(0.3, 4.0), st.integers(1, 4)), min_size=3, max_size=len(NAMES)
)
USD = st.floats(0.5, 20.0)


def with_p99(case: CaseResult, p99_s: float) -> CaseResult:
    """The same, and a p99 latency in each launch."""
    first = Figure(0, 0, "p99_s", "p99 latency", "s", "less", "median", p99_s, 1000)
    launches = (
        replace(m, figures=(replace(first, launch_id=m.launch_id, value=p99_s * (1 + 0.002 * place)),))
        for place, m in enumerate(case.measurements)
    )
    return replace(case, measurements=tuple(launches))


def sides_of(
    speeds: list[tuple[float, float, int]], usd_a: float, usd_b: float
) -> tuple[tuple[Side, Price], tuple[Side, Price]]:
    """Two boxes; b takes the given multiple of a's time, and of its p99 latency."""
    found = []
    for letter, usd in (("a", usd_a), ("b", usd_b)):
        cases = []
        for name, (step_s, factor, launches) in zip(NAMES, speeds, strict=False):
            case = make_case(name, device_class="gpu")
            case = replace(case, unit="tok") if name == JOB else case
            one = step_s * (factor if letter == "b" else 1.0)
            result = measured(case, *(steady(one * (1 + 1e-3 * n)) for n in range(launches)))
            cases.append(with_p99(result, one / 3))
        price = Price(usd, 2.0, "stated", "", "", "", "")
        run = make_run(*cases, machine=GPU_MACHINE, price=price)
        found.append((side_of_runs(f"{letter}.db", [run]), price))
    return found[0], found[1]


def drawn(text: str) -> str:
    """As a page of HTML shows it."""
    return safe(text).encode("ascii", "xmlcharrefreplace").decode()


@settings(deadline=None, max_examples=15)
@given(SPEEDS, USD, USD)
def test_every_form_says_the_same_of_a_row(
    speeds: list[tuple[float, float, int]], usd_a: float, usd_b: float
) -> None:
    (a, _), (b, _) = sides_of(speeds, usd_a, usd_b)
    comparison = compare_sides(a, b)
    headline = headline_of([comparison], "", EVIDENCE)
    answer = Answer((comparison,), headline)

    wide = comparison_text(Asked((a, b), "", EVIDENCE, ()), answer, "text", width=200, is_verbose=True)
    markdown = comparisons_as_markdown(answer, "")
    page = comparisons_as_page(Asked((a, b), "", EVIDENCE, ()), answer).replace("&#160;", " ")
    plain = json.loads(json.dumps(comparison_as_json(comparison)))
    lines = list(csv.DictReader(StringIO(comparisons_as_csv([comparison], ""), newline="")))

    assert "".join(headline.text.split()) in "".join(wide.split())
    assert escaped(headline.text) in markdown
    assert all(drawn(sentence) in page for sentence in headline.sentences)
    of_cases, of_figures = ([line for line in lines if bool(line["figure"]) is has] for has in (False, True))
    for row, row_json, line, figure_line in zip(
        comparison.rows, plain["rows"], of_cases, of_figures, strict=True
    ):
        name = plain_name(row.case.work.workload)
        of_text = next(one for one in wide.splitlines() if re.match(rf"{name} +\d", one))
        assert change_text(row.rate) in of_text
        assert verdict_text(row.rate) in of_text
        of_markdown = next(one for one in markdown.splitlines() if one.startswith(f"| {name} "))
        assert escaped(change_text(row.rate)) in of_markdown
        assert f"{row.rate.n[0]}/{row.rate.n[1]}" in of_markdown if row.rate.n else True
        assert drawn(change_text(row.rate)) in page
        for judgement in (row.rate, row.cost, row.energy):
            assert says(row_json["judgements"][judgement.respect], judgement)
        assert (line["verdict"], line["cost_verdict"]) == (row.rate.word, row.cost.word)
        assert float(line["b_against_a"]) - 1 == row_json["judgements"]["rate"]["change"]
        assert float(line["cost_change"]) == row_json["judgements"]["cost"]["change"]

        (figure,) = row.figures
        judged = figure.judgement
        assert says(row_json["figures"][0], judged)
        assert (figure_line["figure"], figure_line["figure_verdict"]) == ("p99_s", judged.word)
        assert figure_line["figure_reason"] == judged.reason
        assert figure_line["figure_change"] == ("" if judged.ratio is None else repr(judged.ratio[0] - 1))
        texts = (*figure_values(figure), change_text(judged), figure_verdict(figure))
        behind = [one.split()[2:] for one in wide.splitlines() if "p99 latency" in one]
        assert " ".join(texts).split() in behind
        assert any(
            f"{escaped(change_text(judged))} | {escaped(figure_verdict(figure))} |" in one
            for one in markdown.splitlines()
            if "p99 latency" in one
        )
        assert drawn(change_text(judged)) in page
        assert drawn(figure_verdict(figure)) in page
        shown = next(cells for cells in value_table(row).rows if "p99 latency" in cells[0])
        assert shown[-1] == figure_verdict(figure)
        assert judged.ratio is None or change_text(judged) in shown


def says(plain: dict[str, object], judgement: Judgement) -> bool:
    """Whether JSON has the word, the reason, the per cent, the interval and n of a judgement."""
    change = (None,) * 3 if judgement.ratio is None else tuple(end - 1 for end in judgement.ratio)
    n = judgement.n or (None, None)
    found = tuple(plain[key] for key in ("change", "change_low", "change_high", "n_a", "n_b"))
    return ((plain["verdict"], plain["reason"]) == (judgement.word, judgement.reason)) and found == change + n


@settings(deadline=None, max_examples=15)
@given(SPEEDS, st.floats(0.5, 60.0))
def test_the_gate_fails_only_what_is_judged_slower_and_leaves_open_what_is_not_decided(
    speeds: list[tuple[float, float, int]], limit_pct: float
) -> None:
    (a, _), (b, _) = sides_of(speeds, 1.0, 1.0)
    comparison = compare_sides(a, b)

    by_limit = check_gate([comparison], "", limit_pct, EVIDENCE)
    undecided = check_gate([comparison], "", None, EVIDENCE)

    for row in comparison.rows:
        line = f"{short_case_name(row.case)}: {change_text(row.rate)}"
        assert row.rate.ratio is not None
        if line in by_limit.slower:
            assert row.rate.word == "slower"
            assert row.rate.ratio[2] < 1 - limit_pct / 100
        is_open = any(one.startswith(line) for one in undecided.undecided)
        assert is_open is not row.rate.is_decided
        assert f"{line}, {row.rate.reason}" in undecided.undecided or not is_open
    assert undecided.end == (PASS if all(r.rate.is_decided for r in comparison.rows) else CANNOT_TELL)
    assert (by_limit.end == FAIL) is bool(by_limit.slower)


@settings(deadline=None, max_examples=15)
@given(SPEEDS, USD, USD)
def test_advice_judges_boxes_as_a_comparison_does(
    speeds: list[tuple[float, float, int]], usd_a: float, usd_b: float
) -> None:
    boxes = sides_of(speeds, usd_a, usd_b)
    priced = [PricedSide(side, price, price) for side, price in boxes]

    advice = advise(parse_job("50M tokens train"), priced, start_s=0)

    plain = advice_as_json(advice)
    for respect, pick in (("rate", advice.fastest), ("cost", advice.cheapest)):
        assert isinstance(pick, Pick)
        best, other = boxes if pick.offer.box == "a.db" else boxes[::-1]
        rows = compare_sides(other[0], best[0]).rows
        (judged,) = (row for row in rows if row.case.work.workload == JOB)
        expected = judged.rate if respect == "rate" else judged.cost
        ((name, judgement),) = pick.against
        assert name == f"{other[0].name} gpu"
        found = (judgement.word, judgement.reason, judgement.n)
        assert found == (expected.word, expected.reason, expected.n)
        assert judgement.ratio == pytest.approx(expected.ratio)
        assert pick.ties == (() if expected.verdict.word == "faster" else (name,))
        assert says(plain["fastest" if respect == "rate" else "cheapest"]["against"][0], judgement)
