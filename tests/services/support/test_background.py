"""Background jobs: their messages, and how cancelling one stops a query of a real database."""

from __future__ import annotations

import threading
from pathlib import Path
from typing import Any

import duckdb
import pytest

from gputui.errors import GputuiError
from gputui.services.results.browser import recent_files
from gputui.services.support.background import Job

DEADLINE_S = 300.0


class Ear:
    """Records the progress and results of jobs."""

    def __init__(self) -> None:
        self.progress: list[str] = []
        self.outcome: object = None
        self.ended = threading.Event()

    def arrived(self, job: Job[Any], outcome: object) -> None:
        self.outcome = outcome
        self.ended.set()

    def tell(self, job: Job[Any], text: str) -> None:
        self.progress.append(text)


@pytest.mark.parametrize("error", [None, GputuiError("no file", "name another")])
def test_progress_and_then_the_result_or_the_error_arrive(error: GputuiError | None) -> None:
    ear = Ear()

    def work(job: Job[int]) -> int:
        job.say("adding")
        if error is not None:
            raise error
        return 1 + 1

    Job(work, ear.arrived, ear.tell).start()
    assert ear.ended.wait(DEADLINE_S)
    assert (ear.progress, ear.outcome) == (["adding"], error or 2)


def test_giving_up_ends_a_query_that_would_never_end_and_nothing_arrives() -> None:
    ear = Ear()
    is_asked, has_ended = threading.Event(), threading.Event()
    raised: list[BaseException] = []

    def work(job: Job[object]) -> object:
        connection = duckdb.connect(":memory:")
        try:
            with job.interrupted_by(connection.interrupt):
                is_asked.set()
                return connection.execute(
                    "SELECT count(*) FROM range(100000000000) a(x) WHERE x % 7 = 3"
                ).fetchone()
        except BaseException as error:
            raised.append(error)
            raise
        finally:
            connection.close()
            has_ended.set()

    job = Job(work, ear.arrived)
    job.start()
    assert is_asked.wait(DEADLINE_S)
    while not has_ended.wait(0.05):  # the query may not have begun when it is first interrupted
        job.cancel()
    assert raised
    assert not ear.ended.is_set()


def test_a_job_that_was_given_up_before_it_began_stops_at_its_first_word() -> None:
    ear = Ear()
    went_on = threading.Event()

    def work(job: Job[None]) -> None:
        job.say("begin")
        went_on.set()

    job = Job(work, ear.arrived)
    job.cancel()
    job.start()
    for thread in threading.enumerate():
        if thread.name == "gputui-job":
            thread.join(DEADLINE_S)
    assert not went_on.is_set()
    assert not ear.ended.is_set()


def test_recent_files_are_found_once_newest_first_and_never_opened(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    import os

    data, here = tmp_path / "data", tmp_path / "here"
    for directory in (data, here):
        directory.mkdir()
    names = (data / "results.db", here / "old.db", here / "new.duckdb", here / "notes.txt")
    for age, path in enumerate(names):
        path.write_bytes(b"not a database")
        os.utime(path, (1_000_000 + age, 1_000_000 + age))
    (here / "again.db").symlink_to(here / "old.db")
    (here / "dir.db").mkdir()
    found = recent_files(here, (here / "gone.db",), {"GPUTUI_DB": str(data / "results.db")})
    assert [entry.path.name for entry in found] == ["new.duckdb", "again.db", "results.db"]
    assert [entry.is_default for entry in found] == [False, False, True]
