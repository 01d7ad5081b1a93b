"""Which stored runs are offered to be compared."""

from __future__ import annotations

import os
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from builders import make_machine
from journals import CPU_MACHINE
from stored_runs import run_id_of, store

from gputui.services.results.browser import Candidate, candidates
from gputui.services.support.background import Job


def found(directory: Path) -> tuple[Candidate, ...]:
    job: Job[Any] = Job(lambda job: None, lambda job, outcome: None)
    return candidates(directory, job)


@pytest.fixture
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("GPUTUI_DB", str(tmp_path / "here" / "results.db"))
    return tmp_path


def test_the_newest_run_is_offered_with_the_newest_one_of_another_box(place: Path) -> None:
    other = replace(make_machine("NVIDIA H200"), machine_id="ba9876543210")
    store(place / "a.db", 1, machine=other)
    store(place / "a.db", 2)
    store(place / "b.db", 3, machine=CPU_MACHINE)
    (pair,) = found(place)
    assert (pair.a.summary.run_id, pair.b.summary.run_id) == (run_id_of(1), run_id_of(3))
    assert not pair.is_one_box
    assert pair.command == f"gputui compare a.db@{pair.a.summary.short_id} b.db@{pair.b.summary.short_id}"


def test_two_runs_of_one_box_are_offered_where_there_is_no_other_box(place: Path) -> None:
    store(place / "a.db", 1)
    store(place / "a.db", 2)
    (pair,) = found(place)
    assert (pair.a.summary.run_id, pair.b.summary.run_id) == (run_id_of(1), run_id_of(2))
    assert pair.is_one_box


def test_a_copy_of_a_run_an_unfinished_one_one_that_measured_nothing_and_a_damaged_file_make_no_pair(
    place: Path,
) -> None:
    store(place / "a.db", 1)
    store(place / "a.db", 3, launches=0)
    (place / "copy.db").write_bytes((place / "a.db").read_bytes())
    store(place / "a.db", 2, status="interrupted")
    (place / "damaged.db").write_bytes(os.urandom(4096))
    assert found(place) == ()
