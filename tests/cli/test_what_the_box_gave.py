"""A rate that is far from what the clock saw never stands alone, in whatever form it is shown."""

from __future__ import annotations

import csv
import json
import re
from io import StringIO
from pathlib import Path

import duckdb
import pytest
from builders import make_plan
from command_line import gputui_here
from hand_made import make_case, measured, steady
from stored_runs import run_id_of, store

from gputui.cli.progress import Progress
from gputui.cli.run_picture import picture_lines
from gputui.model.case import Case
from gputui.model.journal import Block, CaseEnd, LaunchStart
from gputui.services.results.browser import read_detail
from gputui.services.runs.progress import ProgressTracker
from gputui.services.support.background import Job
from gputui.tui.screens.results.overview import overview_page

CLOCK = "40.9k tok/s"
"""4096 tokens in 100.1 ms."""
FORMS = {
    "show": ("show", "latest", "a.db"),
    "show -v": ("show", "latest", "a.db", "-v"),
    "compare": ("compare", "a.db", "b.db"),
    "markdown": ("compare", "a.db", "b.db", "--format", "markdown"),
    "html": ("compare", "a.db", "b.db", "--format", "html"),
}
PAGES = ("report.md", "report.html", "card.txt", "card.svg")


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """`a.db`, whose training had its CPU for a fifth of the time, and `b.db` of a quiet box."""
    place = tmp_path_factory.mktemp("crowded")
    for number, name in enumerate(("a.db", "b.db"), 1):
        store(place / name, number)
    with duckdb.connect(str(place / "a.db")) as connection:
        held = "waited_ns = wall_ns * 8 // 10, cpu_ns = wall_ns * 2 // 10"
        connection.execute(f"UPDATE blocks SET {held} WHERE case_id = 1")
    return place


def said(place: Path, *words: str) -> str:
    done = gputui_here(*(str(place / word) if word.endswith(".db") else word for word in words))
    assert done.returncode == 0, done.stderr
    return done.stdout


@pytest.mark.parametrize("form", FORMS)
def test_the_clocks_rate_stands_beside_one_without_the_waiting(place: Path, form: str) -> None:
    text = said(place, *FORMS[form])
    assert "the box gave" in text
    column = r"40\.9k tok/s" if form.startswith("show") else r"40\.9k\b"
    assert re.search(column, text)
    quiet = said(place, *("b.db" if word == "a.db" else word for word in FORMS[form]))
    assert "the box gave" not in quiet


@pytest.mark.parametrize("page", PAGES)
def test_what_is_shared_says_it_too(place: Path, page: str) -> None:
    said(place, "share", "a.db", "-o", str(place / page))
    text = (place / page).read_text().replace("\xa0", " ").replace("&#160;", " ")
    assert "the box gave" in text
    assert CLOCK in text


def test_the_answer_and_the_page_of_a_run_say_it_in_plain_words(place: Path) -> None:
    sentence = f"Other programs had the CPU 80 % of the time: the box gave {CLOCK}; rates are rough."
    assert sentence in " ".join(said(place, "show", "latest", "a.db").split())
    page = overview_page(
        read_detail(place / "a.db", run_id_of(1), Job(lambda job: None, lambda job, outcome: None)), 100, 40
    )
    text = " ".join("".join(span.text for span in line) for line in page)
    assert "the box gave" in text
    assert CLOCK in text


def test_a_profiled_step_says_that_its_time_is_the_clocks(place: Path) -> None:
    shown = " ".join(said(place, "show", "latest", "a.db", "-v").split())
    assert "100 ms by the clock in 10 profiled steps, 1.00x as long as a timed one" in shown


def test_data_has_both_rates(place: Path) -> None:
    (_, case, _) = json.loads(said(place, "show", "latest", "a.db", "--json"))["cases"]
    assert case["clock_units_per_s"] == pytest.approx(4096 / 0.1001, rel=1e-3)
    assert case["speed"]["units_per_s"] == pytest.approx(5 * case["clock_units_per_s"], rel=0.02)
    compared = json.loads(said(place, "compare", "a.db", "b.db", "--format", "json"))
    (_, row) = compared["comparisons"][0]["rows"]
    assert row["a"]["clock_units_per_s"] == case["clock_units_per_s"]
    rows = csv.DictReader(StringIO(said(place, "compare", "a.db", "b.db", "--format", "csv")))
    assert {row["a_clock_units_per_s"] for row in rows if row["workload"] == "gpt_train"} != {""}


def crowded() -> tuple[Case, tuple[Block, ...]]:
    """A case whose threads waited for four fifths of the time, and the blocks of a launch."""
    case = make_case(threads="1")
    return case, measured(case, steady(0.1), waited_share=0.8).measurements[0].blocks


@pytest.mark.parametrize("count", [3, 6])
def test_the_picture_of_a_run_in_progress_says_it_from_the_first_block_on(count: int) -> None:
    case, blocks = crowded()
    plan = make_plan([0], cases=[case])
    tracker = ProgressTracker([plan])
    tracker.hear(0, LaunchStart(0, 0, (0,), 1, 9.0, 0))
    for block in blocks[:count]:
        tracker.hear(0, block)
    progress = tracker.picture()
    (row,) = progress.cases
    assert row.gave
    assert row.gave != row.rate
    assert progress.strip is not None
    assert progress.strip.rate.endswith(f", the box gave {row.gave}")
    text = "\n".join(
        "".join(span.text for span in line) for line in picture_lines(progress, [plan], "a.db", "", 80, 24)
    )
    assert "THE BOX GAVE" in text
    assert row.gave in text


def test_the_line_of_a_case_that_ended_says_it_with_the_reason(capfd: pytest.CaptureFixture[str]) -> None:
    case, blocks = crowded()
    progress = Progress([make_plan([0], cases=[case])], live=False)
    for block in blocks:
        progress.hear(0, block)
    progress.hear(0, CaseEnd(0, 0, "ok", "", len(blocks), 1))
    line = capfd.readouterr().err
    assert ", the box gave " in line
    assert ": other programs held its CPUs  6 blocks" in line
