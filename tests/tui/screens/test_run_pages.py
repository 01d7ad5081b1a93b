"""Pages of a run as lines: what its figures rest on, and findings with their steps."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from journals import GPU_MACHINE
from stored_runs import run_id_of, store

from gputui.analysis.findings import Finding
from gputui.document.spans import Line, line_width
from gputui.document.theme import LETTERS
from gputui.services.results.browser import RunDetail, read_detail
from gputui.services.support.background import Job
from gputui.tui.screens.results.pages import breakdown_lines, findings_page, memory_page
from gputui.tui.screens.results.tables import HEADINGS, rests_on_lines


@pytest.fixture(scope="module")
def detail(tmp_path_factory: pytest.TempPathFactory) -> RunDetail:
    """A run whose first case ran on a throttled GPU, and whose second was profiled."""
    db = tmp_path_factory.mktemp("run") / "gpu.db"
    return stored(db, on_gpu=True)


def stored(db: Path, *, on_gpu: bool) -> RunDetail:
    store(db, 5, machine=GPU_MACHINE, on_gpu=on_gpu, seconds=8.0)
    job: Job[Any] = Job(lambda job: None, lambda job, outcome: None)
    return read_detail(db, run_id_of(5), job)


def texts(lines: tuple[Line, ...] | list[Line]) -> list[str]:
    return ["".join(span.text for span in line).rstrip() for line in lines]


def test_each_case_has_the_state_of_its_device_and_a_dash_where_it_has_none(detail: RunDetail) -> None:
    rule, heading, gemm, gpt = texts(list(rests_on_lines(detail, 200)))
    assert rule.startswith("── how reliable the figures are ─")
    assert heading.split("  ")[-1].strip() == "samples"
    conditions = detail.conditions[detail.run.cases[0].case_id]
    for share in (conditions.slowed_share, conditions.power_capped_share):
        assert isinstance(share, float)
        assert f" {share:.0%} ".replace("%", " %") in gemm
    assert " 1.89 of 1.90 GHz " in gemm
    assert gemm.endswith(str(conditions.samples))
    assert gpt.count(" —") >= 4


@pytest.mark.parametrize("width", [60, 80, 100, 120, 160])
def test_a_narrow_terminal_keeps_rate_interval_and_what_held_the_device_back(
    detail: RunDetail, width: int
) -> None:
    lines = list(rests_on_lines(detail, width))
    assert max(map(line_width, lines)) == width
    kept, whole = (
        [name for name in HEADINGS if f" {name}" in texts(drawn)[1]]
        for drawn in (lines, list(rests_on_lines(detail, 200)))
    )
    assert kept == whole[: len(kept)]
    assert {"rate", "95 %"} <= set(kept)
    if width >= 80:
        assert {"slowed", "capped"} <= set(kept)


def test_a_run_without_a_rate_has_nothing_to_rest_on(detail: RunDetail) -> None:
    skipped = tuple(case for case in detail.run.cases if case.outcome != "ok")
    assert skipped
    nothing = replace(detail, run=replace(detail.run, cases=skipped))
    assert list(rests_on_lines(nothing, 120)) == []


def test_findings_have_their_step_as_a_bar_as_long_as_all_fits(detail: RunDetail) -> None:
    case = next(case for case in detail.run.cases if case.case_id in detail.passes)
    found = replace(
        detail, findings=((case, (Finding("python", "Python takes 10 %", 100_000, 90_000, "high"),)),)
    )
    most = texts(findings_page(found, 120, 40))
    launches = next(place for place, line in enumerate(most) if line.startswith("── launches of "))
    whole = most[: launches - 1]
    assert any("── a step of " in line for line in whole)
    assert texts(findings_page(found, 120, len(whole))) == whole
    short = texts(findings_page(found, 120, len(whole) - 1))
    assert not any("── a step of " in line for line in short)
    for lines in (whole, short):
        assert any(line.startswith("  python: Python takes 10 %; ") for line in lines)


def test_parts_of_the_memory_and_of_a_step_have_the_colours_of_charts_not_those_of_letters(
    detail: RunDetail,
) -> None:
    case = next(case for case in detail.run.cases if case.case_id in detail.passes)
    for lines in (memory_page(detail, case, 120, 40), breakdown_lines(detail, case, 120)):
        filled = {span.style for line in lines for span in line if set(span.text) & set("█▓▒▚▞░")}
        assert len(filled) >= 3
        assert not filled & set(LETTERS)
