"""What the box gave is said in every form: beside a rate that is far from it, or as the rate."""

from __future__ import annotations

import csv
import json
import re
from collections.abc import Sequence
from io import StringIO
from pathlib import Path

import duckdb
import pytest
from builders import make_plan
from command_line import gputui_here
from hand_made import make_case, measured, steady
from stored_runs import run_id_of, store

from gputui.cli.progress import Progress, picture_lines
from gputui.model.journal import Block, CaseEnd, LaunchStart
from gputui.model.plan import Case
from gputui.model.units import format_rate
from gputui.services.results.browser import read_detail
from gputui.services.results.throughput import BY_CLOCK
from gputui.services.runs.progress import ProgressSnapshot, ProgressTracker
from gputui.services.support.background import Job
from gputui.tui.screens.results_pages import overview_page

CLOCK = "40.9k tok/s"
"""4096 tokens in 100.1 ms."""
FORMS = {
    "show": ("show", "latest", "a.db"),
    "compare": ("compare", "a.db", "b.db"),
    "markdown": ("compare", "a.db", "b.db", "--format", "markdown"),
    "html": ("compare", "a.db", "b.db", "--format", "html"),
}
PAGES = ("report.md", "card.txt")


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """`a.db`, whose training had its CPU for two fifths of the time, and `b.db` of a quiet box.

    That of `c.db` had it for so little that nobody knows how fast it is alone.
    """
    place = tmp_path_factory.mktemp("crowded")
    for number, name in enumerate(("a.db", "b.db", "c.db"), 1):
        store(place / name, number)
    for name, tenths in (("a.db", 6), ("c.db", 8)):
        with duckdb.connect(str(place / name)) as connection:
            held = f"waited_ns = wall_ns * {tenths} // 10, cpu_ns = wall_ns * {10 - tenths} // 10"
            connection.execute(f"UPDATE blocks SET {held} WHERE case_id = 1")
    return place


def said(place: Path, *words: str) -> str:
    done = gputui_here(*(str(place / word) if word.endswith(".db") else word for word in words))
    assert done.returncode == 0, done.stderr
    return done.stdout


@pytest.mark.parametrize("form", FORMS)
def test_the_clocks_rate_stands_beside_one_without_the_waiting_and_for_one_that_nobody_knows_alone(
    place: Path, form: str
) -> None:
    text = said(place, *FORMS[form])
    assert "the box gave" in text
    column = r"40\.9k tok/s" if form.startswith("show") else r"40\.9k\b"
    assert re.search(column, text)
    quiet = said(place, *("b.db" if word == "a.db" else word for word in FORMS[form]))
    assert "the box gave" not in quiet
    unknown = " ".join(said(place, *("c.db" if word == "a.db" else word for word in FORMS[form])).split())
    assert unknown.count("is what the box gave" if "compare" in FORMS[form] else BY_CLOCK) == 1
    assert unknown.count("the box gave") == 1, "said once"
    assert "40.9k" in unknown


@pytest.mark.parametrize("page", PAGES)
def test_what_is_shared_says_it_too(place: Path, page: str) -> None:
    for name in ("a.db", "c.db"):
        said(place, "share", name, "-o", str(place / page))
        text = (place / page).read_text()
        assert "the box gave" in text
        assert CLOCK in text
    assert re.search(r"rates without an interval are what\s+the box gave", text)


def test_the_answer_and_the_page_of_a_run_say_it_in_plain_words(place: Path) -> None:
    shown = " ".join(said(place, "show", "latest", "a.db", "-v").split())
    assert f"Other programs had the CPU 60 % of the time: the box gave {CLOCK}." in shown
    assert "100 ms by the clock in 10 profiled steps, 1.00x as long as a timed one" in shown
    page = overview_page(
        read_detail(place / "a.db", run_id_of(1), Job(lambda job: None, lambda job, outcome: None)), 100
    )
    text = " ".join("".join(span.text for span in line) for line in page)
    assert "the box gave" in text
    assert CLOCK in text


def test_data_has_both_rates(place: Path) -> None:
    (_, case, _) = json.loads(said(place, "show", "latest", "a.db", "--json"))["cases"]
    assert case["clock_units_per_s"] == pytest.approx(4096 / 0.1001, rel=1e-3)
    assert case["speed"]["units_per_s"] == pytest.approx(2.5 * case["clock_units_per_s"], rel=0.02)
    compared = json.loads(said(place, "compare", "a.db", "b.db", "--format", "json"))
    (_, row) = compared["comparisons"][0]["rows"]
    assert row["a"]["clock_units_per_s"] == case["clock_units_per_s"]
    rows = csv.DictReader(StringIO(said(place, "compare", "a.db", "b.db", "--format", "csv")))
    assert {row["a_clock_units_per_s"] for row in rows if row["workload"] == "gpt_train"} != {""}


def test_data_of_such_a_case_has_the_clocks_rate_under_both_names(place: Path) -> None:
    (_, case, _) = json.loads(said(place, "show", "latest", "c.db", "--json"))["cases"]
    speed = case["speed"]
    assert speed["units_per_s"] == pytest.approx(case["clock_units_per_s"])
    assert speed["low"] * 100 < speed["high"]
    assert case["waited_share"] == pytest.approx(0.8, abs=0.01)


def crowded(waited_share: float) -> tuple[Case, tuple[Block, ...]]:
    """A case whose threads waited for so much of the time, and the blocks of a launch."""
    case = make_case(threads="1")
    return case, measured(case, steady(0.1), waited_share=waited_share).measurements[0].blocks


def pictured(case: Case, blocks: Sequence[Block]) -> tuple[ProgressSnapshot, str]:
    """A run in progress after these blocks, and its picture below a shell's prompt."""
    plan = make_plan([0], cases=[case])
    tracker = ProgressTracker([plan])
    tracker.hear(0, LaunchStart(0, 0, (0,), 1, 9.0, 0))
    for block in blocks:
        tracker.hear(0, block)
    progress = tracker.picture()
    lines = picture_lines(progress, [plan], "a.db", "", 80, 24)
    return progress, "\n".join("".join(span.text for span in line) for line in lines)


@pytest.mark.parametrize("count", [3, 6])
def test_the_picture_of_a_run_in_progress_says_it_from_the_first_block_on_and_whose_rate_it_is(
    count: int,
) -> None:
    case, blocks = crowded(0.6)
    progress, text = pictured(case, blocks[:count])
    (row,) = progress.cases
    assert row.gave
    assert row.gave != row.rate
    assert progress.strip is not None
    assert progress.strip.rate.endswith(f", the box gave {row.gave}")
    assert "THE BOX GAVE" in text
    assert "the box gave: as other programs held its CPUs; rates are without that" in text
    assert row.gave in text

    case, blocks = crowded(0.8)
    progress, text = pictured(case, blocks[:count])
    (row,) = progress.cases
    assert (row.gave, row.spread) == ("", "unknown")
    assert row.rate == format_rate(case.units_per_step / 0.1, case.unit)
    assert "THE BOX GAVE" not in text
    assert BY_CLOCK in text


@pytest.mark.parametrize(
    ("share", "how"), [(0.6, "GFLOP/s .*, the box gave "), (0.8, r" ok, the box gave \S+ GFLOP/s: ")]
)
def test_the_line_of_a_case_that_ended_says_it_with_the_reason(
    capfd: pytest.CaptureFixture[str], share: float, how: str
) -> None:
    case, blocks = crowded(share)
    progress = Progress([make_plan([0], cases=[case])], live=False)
    for block in blocks:
        progress.hear(0, block)
    progress.hear(0, CaseEnd(0, 0, "ok", "", len(blocks), 1))
    line = capfd.readouterr().err
    assert re.search(how, line)
    assert ": other programs held its CPUs" in line
