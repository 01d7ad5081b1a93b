"""Repeating a colleague's run: real runs of `spin`."""

from __future__ import annotations

import json
import re
import shlex
from dataclasses import replace
from pathlib import Path

import pytest
from command_line import gputui_here
from journals import CPU_MACHINE, PRICE, journal_lines, write_lines

from gputui.model.journal import RunStart
from gputui.model.plan import Variant
from gputui.services.profiles.planner import case_of
from gputui.services.runs.start import price_stated_before
from gputui.store.journal_reader import read_journal
from gputui.store.reading import open_result
from gputui.store.writing import store_run
from gputui.worker.workloads import workload_named


@pytest.fixture(scope="module")
def theirs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A colleague's result file: a run called `ana` on another box, with two launches of one case."""
    place = tmp_path_factory.mktemp("like")
    spin = case_of(workload_named("spin"), "mini", Variant("cpu", "fp32", "eager", "1"))
    lines = journal_lines(label="ana", cases=[spin], skipped=(), launches=2, profile="spin", seed=7)
    lines = [replace(line, budget_s=60.0) if isinstance(line, RunStart) else line for line in lines]
    store_run(place / "ana.db", read_journal(write_lines(place / "run", lines)), ())
    return place / "ana.db"


@pytest.mark.slow
def test_a_run_is_repeated_from_its_file_alone_and_ready_to_be_compared(theirs: Path, tmp_path: Path) -> None:
    done = gputui_here("run", "--like", f"{theirs}@ana", "--db", tmp_path / "mine.db", "--blocks", "5")

    assert done.returncode == 0, done.stderr
    lines = done.stderr.splitlines()
    like = next(number for number, line in enumerate(lines) if line.startswith("like run "))
    assert lines[like + 1].startswith("differs: machine: a1b2c3d4e5f6 there, ")
    assert like < next(number for number, line in enumerate(lines) if " launch " in line)
    with open_result(theirs) as file:
        model = file.run(file.summaries()[0].run_id)
    with open_result(tmp_path / "mine.db") as file:
        mine = file.run(file.summaries()[0].run_id)
    assert [case.case for case in mine.cases] == [case.case for case in model.cases]
    assert (mine.summary.replicates, mine.summary.seed, mine.summary.budget_s) == (2, 7, 60)
    assert (mine.summary.profile, mine.summary.profile_version) == ("spin", 1)
    (line,) = re.findall(r"^(?:next: |      )gputui (compare .*)$", done.stdout, re.MULTILINE)
    words = shlex.split(line, comments=True)
    assert words[1] == f"{theirs}@{model.summary.short_id}"
    compared = gputui_here(*words)
    assert compared.returncode == 0, compared.stderr
    assert "hashing" in compared.stdout.lower()


def test_a_profile_beside_the_run_to_repeat_is_refused_unless_it_is_a_file(
    theirs: Path, tmp_path: Path
) -> None:
    done = gputui_here("run", "quick", "--like", theirs, "--db", tmp_path / "mine.db")

    assert done.returncode == 2
    assert "profile quick with --like" in done.stderr
    assert not (tmp_path / "mine.db").exists()


def test_an_unknown_run_is_reported_before_anything_is_measured(theirs: Path, tmp_path: Path) -> None:
    done = gputui_here("run", "--like", f"{theirs}@eve", "--db", tmp_path / "mine.db")

    assert done.returncode == 2
    assert "there is no run 'eve'" in done.stderr


@pytest.mark.slow
def test_a_program_of_theirs_is_not_repeated_without_its_profile(tmp_path: Path) -> None:
    profile = tmp_path / "nap.toml"
    profile.write_text(
        'schema = 1\nversion = 1\ntitle = "nap"\nquestion = "?"\nbudget_s = 600\nreplicates = 1\n'
        '[[command]]\nname = "nap"\nversion = 1\nargv = ["sleep", "0.05"]\n'
    )
    assert gputui_here("run", profile, "--db", tmp_path / "a.db", "--price", "2.5").returncode == 0

    alone = gputui_here("run", "--like", tmp_path / "a.db", "--db", tmp_path / "b.db")
    assert alone.returncode == 2
    assert "result files hold no commands: give its profile.toml as well" in alone.stderr

    done = gputui_here("run", profile, "--like", tmp_path / "a.db", "--db", tmp_path / "a.db", "--json")
    assert done.returncode == 0, done.stderr
    assert [case["workload"] for case in json.loads(done.stdout)["runs"][0]["cases"]] == ["command:nap"]
    with open_result(tmp_path / "a.db") as file:
        again, first = file.summaries()
    assert again.price == first.price
    assert f"price: $2.50/h, as stated for run {first.short_id}" in done.stderr


def test_the_price_that_was_stated_for_a_box_is_known_in_its_file(theirs: Path, tmp_path: Path) -> None:
    with open_result(theirs) as file:
        (run,) = file.summaries()
    assert price_stated_before(theirs, CPU_MACHINE) == (PRICE, run.short_id)
    assert price_stated_before(theirs, replace(CPU_MACHINE, machine_id="0" * 12)) is None
    assert price_stated_before(tmp_path / "new.db", CPU_MACHINE) is None
