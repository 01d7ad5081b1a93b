"""A host-bound row is marked in every form, and files without device and host time are as they were."""

from __future__ import annotations

import json
from pathlib import Path

import duckdb
import pytest
from command_line import gputui_here
from stored_runs import run_id_of, store_gpu

from gputui.services.results.browser import read_detail
from gputui.services.results.throughput import HOST_BOUND, LIFTS
from gputui.services.support.background import Job
from gputui.tui.screens.results_pages import overview_page
from gputui.worker.steps import STEP_TIMES

STEP_S = 0.2 / 12
FORMS = {
    "show": ("show", "latest", "a.db"),
    "compare": ("compare", "a.db", "b.db"),
    "three sides": ("compare", "a.db", "b.db", "c.db"),
    "html": ("compare", "a.db", "b.db", "--format", "html"),
    "csv": ("compare", "a.db", "b.db", "--format", "csv"),
}


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """`a.db`, whose GPU needs a third of a step; `b.db`, whose GPU needs all; `c.db` does not tell."""
    place = tmp_path_factory.mktemp("host_bound")
    for number, name in enumerate(("a.db", "b.db", "c.db"), 1):
        store_gpu(place / name, number)
    for name, device_s, host_s in (("a.db", STEP_S / 3, STEP_S), ("b.db", 0.99 * STEP_S, 0.2 * STEP_S)):
        with duckdb.connect(str(place / name)) as connection:
            for number, (figure, value) in enumerate(zip(STEP_TIMES, (device_s, host_s), strict=True)):
                told = (figure.key, figure.title, figure.unit, figure.better, figure.combine)
                connection.execute(
                    "INSERT INTO figures BY NAME SELECT run_id, case_id, launch_id, ? AS figure_index,"
                    " ? AS key, ? AS title, ? AS unit, ? AS better, ? AS combine, ? AS value,"
                    " 1 AS observations FROM measurements WHERE outcome = 'ok'",
                    [number, *told, value],
                )
    return place


def said(place: Path, *words: str) -> str:
    done = gputui_here(*(str(place / word) if word.endswith(".db") else word for word in words))
    assert done.returncode == 0, done.stderr
    return done.stdout


@pytest.mark.parametrize("form", FORMS)
def test_every_form_marks_a_host_bound_row_and_no_other(place: Path, form: str) -> None:
    assert HOST_BOUND in said(place, *FORMS[form]).lower()
    others = {"a.db": "b.db", "b.db": "c.db", "c.db": "b.db"}
    assert HOST_BOUND not in said(place, *(others.get(word, word) for word in FORMS[form])).lower()


def test_what_is_shared_marks_it_too_and_a_shared_copy_is_judged_as_the_file_is(place: Path) -> None:
    for page in ("report.md", "card.txt"):
        said(place, "share", "a.db", "-o", str(place / page))
        assert HOST_BOUND in (place / page).read_text().lower()
    said(place, "share", "a.db", "-o", str(place / "copy.db"))
    (case,) = json.loads(said(place, "show", "latest", "copy.db", "--json"))["cases"]
    assert case["is_host_bound"]


def test_an_answer_about_it_alone_says_what_may_lift_it(place: Path) -> None:
    text = " ".join(said(place, "show", "latest", "a.db").split())
    assert f"Host-bound: the rate is not the GPU's (GPU busy 34 %). {LIFTS}." in text
    assert "device time of a step 5.56 ms" in text
    assert "host time of a step 16.7 ms" in text
    page = overview_page(
        read_detail(place / "a.db", run_id_of(1), Job(lambda job: None, lambda job, outcome: None)), 100
    )
    assert HOST_BOUND in " ".join("".join(span.text for span in line) for line in page)


def test_data_tells_whether_and_has_both_times(place: Path) -> None:
    found = {}
    for name in ("a.db", "b.db", "c.db"):
        (case,) = json.loads(said(place, "show", "latest", name, "--json"))["cases"]
        found[name] = case["is_host_bound"], [figure["key"] for figure in case["figures"]]
    keys = ["device_step_s", "host_step_s"]
    assert found == {"a.db": (True, keys), "b.db": (False, keys), "c.db": (False, [])}
    compared = json.loads(said(place, "compare", "a.db", "b.db", "--format", "json"))
    (row,) = compared["comparisons"][0]["rows"]
    assert [flag["side"] for flag in row["flags"] if flag["word"] == HOST_BOUND] == ["a"]
    assert [figure["key"] for figure in row["figures"]] == keys
    assert row["a"]["cost"]["usd_per_million"] is None
