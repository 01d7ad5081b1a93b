"""Attribution from result files: the conclusions of `compare` from stored profiled passes."""

from __future__ import annotations

import html
import json
import re
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from journals import (
    GPU_MACHINE,
    H200,
    make_case,
)
from profiled_runs import AMP, ATTENTION, FP32, MM, MS, lines_of, passed, store

from gputui.model.journal import (
    ProfiledPass,
    without_result,
)
from gputui.services.compare.formats import comparison_text
from gputui.services.compare.session import ask

GPT = replace(make_case("gpt_train"), workload_class="training", unit="tok", units_per_step=4096.0)
GPT_AMP = replace(GPT, variant=replace(GPT.variant, precision="amp"))
GEMM, GEMM_AMP = make_case(), make_case(precision="amp")


def compared(*files: Path, by: str | None = "precision", forms: Sequence[str] = ("text",)) -> list[str]:
    """What `compare` writes of these files in each form."""
    asked = ask([str(file) for file in files], by=by)
    answer = asked.compared(0, with_energy=True)
    return [comparison_text(asked, answer, form, width=120, is_verbose=True) for form in forms]


@pytest.fixture(scope="module")
def told(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    """One run, gpt_train and gemm, each in fp32 and under amp; the former profiled: in each form."""
    passes = passed(0, 90, *FP32), passed(1, 91, *AMP)
    lines = lines_of((GPT, GPT_AMP, GEMM, GEMM_AMP), (100, 50, 80, 16), passes)
    db = store(tmp_path_factory.mktemp("made") / "both.db", lines)
    forms = ("text", "json", "markdown", "html")
    return dict(zip(forms, compared(db, forms=forms), strict=True))


def on_one_line(text: str) -> str:
    return re.sub(r"\s+", " ", text)


def rows_of(text: str) -> dict[str, Any]:
    (comparison,) = json.loads(text)["comparisons"]
    return {row["case"]: row for row in comparison["rows"]}


def test_a_clear_difference_is_explained_by_its_parts_their_split_and_what_holds_a_side_back(
    told: dict[str, str],
) -> None:
    text = on_one_line(told["text"])
    for words in (
        "why GPT training: b's step is 50.0 ms shorter (50.0 vs 100 ms, 4096 tok): matmul -64.0 ms",
        "attention +10.0 ms (backward); casts and copies +4.00 ms (forward)",
        "confidence high",
        "a: Matmul runs in fp32: its products, 80 % of the step, are in fp32",
        "without that the step would take at best 36.0 ms of 100 ms",
    ):
        assert words in text, words
    lines = [on_one_line(line).strip() for line in told["text"].splitlines()]
    assert "part of a step a b b - a per call peak" in lines
    assert any(line.startswith("matmul 80.0 ms 16.0 ms -64.0 ms -64.0 ms") for line in lines)
    assert any(line.startswith("the step 100 ms 50.0 ms -50.0 ms") for line in lines)


def test_json_has_parts_that_sum_exactly_and_the_documented_keys(told: dict[str, str]) -> None:
    row = rows_of(told["json"])["gpt_train mini cpu fp32 all cores"]
    why = row["why"]
    page = (Path(__file__).parents[3] / "docs" / "json.md").read_text()
    rows = {line.partition("`: ")[0][3:]: line for line in page.splitlines() if line.startswith("- `")}

    assert sum(part["difference_ns"] for part in why["parts"]) == why["difference_ns"]
    assert why["difference_ns"] == why["step_b_ns"] - why["step_a_ns"]
    for part in (*why["parts"], *why["operators"]):
        assert sum(part["split"].values()) == part["difference_ns"]
    keys = {*why, *why["parts"][0], *why["operators"][0], *why["parts"][0]["split"]}
    assert keys <= set(re.findall(r"`(\w+)`", rows["why"]))
    assert {*row["findings"], *row["findings"]["a"][0]} <= set(re.findall(r"`(\w+)`", rows["findings"]))
    # Products gained 5 x by the peak of this box, and 5 x here: no loss.
    gemm = next(part for part in why["parts"] if part["category"] == "gemm")
    assert gemm["peak_ns"] == pytest.approx(-64 * MS, rel=0.01)
    assert gemm["efficiency_ns"] == pytest.approx(0, abs=0.5 * MS)


def test_markdown_and_the_page_say_why_as_well(told: dict[str, str]) -> None:
    sentence = "b's step is 50.0 ms shorter"
    assert f"**why GPT training:** {sentence}" in told["markdown"]
    assert "| part of a step | a | b | b - a |" in told["markdown"]
    assert html.escape(sentence) in told["html"]
    assert re.search(
        r'<td class="breaks">matmul</td>.*<td class="n">-[\d.]+ ms</td>.*<rect class="good"', told["html"]
    )


def test_two_files_explain_each_other_where_they_differ(tmp_path: Path) -> None:
    a, same = (
        store(tmp_path / name, lines_of((GPT,), (100,), (passed(0, 90, *FP32),)))
        for name in ("a.db", "same.db")
    )
    slow = [(MM, 160.0), (ATTENTION, 20.0)], 20.0
    b = store(tmp_path / "b.db", lines_of((GPT,), (200,), (passed(0, 90, *slow),)))

    sentence = "b's step is 100 ms longer (200 vs 100 ms, 4096 tok): matmul +80.0 ms (backward), 80 % of the"
    assert f"{sentence} difference" in on_one_line(*compared(a, b, by=None))
    (row,) = rows_of(*compared(a, same, by=None, forms=["json"])).values()
    assert row["why"] == {"missing": "the verdict is inconclusive: there is no difference to explain"}


@pytest.mark.parametrize(
    ("spoilt", "expected"),
    [
        (without_result(90, 0, "the worker died of SIGKILL"), "not profiled: the worker died of SIGKILL"),
        (passed(0, 90, [(MM, 150.0)], 10.0), "the profiled step took 1.60x as long as the timed one"),
        (None, ""),
    ],
)
def test_a_pass_that_is_not_believed_explains_nothing_and_says_so_and_none_is_silence(
    tmp_path: Path, spoilt: ProfiledPass | None, expected: str
) -> None:
    passes = (spoilt, passed(1, 91, *AMP)) if spoilt else ()

    text = on_one_line(*compared(store(tmp_path / "a.db", lines_of((GPT, GPT_AMP), (100, 50), passes))))

    assert expected in text
    assert ("why GPT training: unknown: a: " in text) == ("why" in text) == bool(spoilt)
    assert "matmul -" not in text


def test_a_power_cap_seen_in_the_blocks_of_a_case_is_a_finding(tmp_path: Path) -> None:
    cases = [make_case("gpt_train", device_class="gpu", precision=precision) for precision in ("fp32", "amp")]
    passes = passed(0, 90, *FP32), passed(1, 91, *AMP)
    lines = lines_of(cases, (100, 50), passes, replace(GPU_MACHINE, gpus=(H200,)))

    text = on_one_line(*compared(store(tmp_path / "a.db", lines, gpus=1)))

    cap = "a power cap held the clock down for 50 % of the time, to 1.8"
    assert f"a: A power cap holds the clock down: {cap}" in text
