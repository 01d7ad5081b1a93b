"""Every form of a comparison says the same word, per cent, interval and n of a row."""

from __future__ import annotations

import csv
import json
from io import StringIO
from pathlib import Path

from hand_made import make_case, make_run, measured, steady
from hypothesis import given, settings
from hypothesis import strategies as st
from journals import GPU_MACHINE

from gputui.model.journal import Price
from gputui.services.compare.csv import comparisons_as_csv
from gputui.services.compare.headline import headline_of
from gputui.services.compare.html import comparisons_as_page
from gputui.services.compare.html_elements import safe
from gputui.services.compare.json import comparison_as_json
from gputui.services.compare.markdown import comparisons_as_markdown, escaped
from gputui.services.compare.pairing import compare_sides, side_of_runs
from gputui.services.compare.row_text import change_text, verdict_text
from gputui.services.compare.session import Answer, Asked
from gputui.services.compare.text import comparison_as_text
from gputui.services.results.conditions import Evidence


class _NoTelemetry(Evidence):
    def series(self, run_id: str, pieces: int) -> tuple[()]:
        return ()

    def file(self, run_id: str) -> Path:
        return Path("some.db")


NAMES = ("gemm", "membw", "gpt_train", "conv_train", "decode")
SPEEDS = st.lists(
    st.tuples(st.floats(0.02, 0.2), st.floats(0.3, 4.0), st.integers(1, 4)), min_size=1, max_size=len(NAMES)
)


@settings(deadline=None, max_examples=40)
@given(SPEEDS, st.floats(0.5, 20.0), st.floats(0.5, 20.0))
def test_every_form_says_the_same_of_a_row(
    speeds: list[tuple[float, float, int]], usd_a: float, usd_b: float
) -> None:
    sides = []
    for letter, usd in (("a", usd_a), ("b", usd_b)):
        cases = []
        for name, (step_s, factor, launches) in zip(NAMES, speeds, strict=False):
            case = make_case(name, device_class="gpu")
            one = step_s * (factor if letter == "b" else 1.0)
            cases.append(measured(case, *(steady(one * (1 + 1e-3 * n)) for n in range(launches))))
        price = Price(usd, 2.0, "stated", "", "", "", "")
        sides.append(side_of_runs(f"{letter}.db", [make_run(*cases, machine=GPU_MACHINE, price=price)]))
    comparison = compare_sides(*sides)
    evidence = _NoTelemetry((), trust=False)
    headline = headline_of([comparison], [()], "", evidence)
    answer = Answer((comparison,), ((),), headline)
    asked = Asked(tuple(sides), "", evidence, ())

    wide = comparison_as_text(asked, answer, width=200)
    markdown = comparisons_as_markdown([(comparison, ())], "", headline)
    page = comparisons_as_page([(comparison, ())], "", headline, evidence)
    plain = json.loads(json.dumps(comparison_as_json(comparison)))
    lines = list(csv.DictReader(StringIO(comparisons_as_csv([(comparison, ())], ""), newline="")))

    assert "".join(headline.text.split()) in "".join(wide.split())
    assert escaped(headline.text) in markdown
    for sentence in headline.sentences:
        assert safe(sentence).encode("ascii", "xmlcharrefreplace").decode() in page
    for row, row_json, line in zip(comparison.rows, plain["rows"], lines, strict=True):
        name, change, word = (
            row.case.work.workload,
            change_text(row.estimate, row.verdict),
            verdict_text(row.rate),
        )
        of_text = next(one for one in wide.splitlines() if one.startswith(f"{name} "))
        assert change in of_text
        assert word in of_text
        of_markdown = next(one for one in markdown.splitlines() if one.startswith(f"| {name} "))
        assert escaped(change) in of_markdown
        assert f"{row.rate.n[0]}/{row.rate.n[1]}" in of_markdown if row.rate.n else True
        assert safe(change).encode("ascii", "xmlcharrefreplace").decode() in page
        for judgement in row.judgements:
            said = row_json["judgements"][judgement.respect]
            assert said["verdict"] == judgement.word
            if judgement.ratio is not None:
                ends = (said["change"], said["change_low"], said["change_high"])
                assert ends == tuple(end - 1 for end in judgement.ratio)
        assert (line["verdict"], line["cost_verdict"]) == (row.rate.word, row.cost.word)
        assert float(line["b_against_a"]) - 1 == row_json["judgements"]["rate"]["change"]
        assert float(line["cost_change"]) == row_json["judgements"]["cost"]["change"]
