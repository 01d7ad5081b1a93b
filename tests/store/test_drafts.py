"""What killed writers leave beside a result file, and who removes it."""

from __future__ import annotations

import errno
import fcntl
import os
import shutil
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from stored_runs import run_id_of, store

from gputui.store.locking import lock_of, merge_draft, new_draft
from gputui.store.reading import open_result
from gputui.store.writing import label_run

_IN_DRAFT = """
import sys
from pathlib import Path
from gputui.store.writing import opened_for_writing
with opened_for_writing(Path(sys.argv[1])):
    print(1, flush=True)
    input()
"""
_MERGING = """
import sys
from pathlib import Path
from gputui.store import merging
def stop(done):
    print(1, flush=True)
    input()
merging.merge_files([Path(sys.argv[1])], Path(sys.argv[2]), progress=stop)
"""


def started(program: str, *words: Path) -> subprocess.Popen[bytes]:
    """A writer that is in the middle of its work."""
    process = subprocess.Popen(
        [sys.executable, "-c", program, *map(str, words)], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    )
    assert process.stdout is not None
    assert process.stdout.readline() == b"1\n"
    return process


def killed(*writers: subprocess.Popen[bytes]) -> None:
    for writer in writers:
        writer.send_signal(signal.SIGKILL)
        writer.communicate()


def hidden(directory: Path) -> set[str]:
    return {entry.name for entry in directory.iterdir() if entry.name.startswith(".")}


@pytest.fixture(scope="module")
def stored(tmp_path_factory: pytest.TempPathFactory) -> Path:
    db = tmp_path_factory.mktemp("stored") / "a.db"
    store(db, 1)
    return db


@pytest.fixture
def db(stored: Path, tmp_path: Path) -> Path:
    return Path(shutil.copy(stored, tmp_path))


def write(db: Path) -> None:
    label_run(db, run_id_of(1), "again")


def test_the_next_writer_in_the_directory_removes_what_killed_ones_left_and_a_reader_does_not(
    db: Path,
) -> None:
    killed(started(_MERGING, db, db.with_name("y.db")), started(_IN_DRAFT, db.with_name("x.db")))
    left = hidden(db.parent)
    assert {".x.db.gputui-new", ".y.db.gputui-merge", ".y.db.gputui-merge.lock"} <= left
    with open_result(db) as file:
        assert file.summaries()
    assert hidden(db.parent) == left
    write(db)
    assert hidden(db.parent) == set()


def test_the_draft_of_a_writer_that_is_at_work_stays_and_its_work_is_stored(db: Path) -> None:
    new, merged = db.with_name("x.db"), db.with_name("y.db")
    writers = [started(_IN_DRAFT, new), started(_MERGING, db, merged)]
    before = hidden(db.parent)
    write(db)
    assert hidden(db.parent) == before
    for writer in writers:
        writer.communicate(b"\n")
        assert writer.returncode == 0
    assert hidden(db.parent) == set()
    with open_result(merged) as file:
        assert [run.run_id for run in file.summaries()] == [run_id_of(1)]


def _text(draft: Path) -> None:
    draft.write_text("not of gputui")


def _directory(draft: Path) -> None:
    draft.mkdir()
    (draft / "thesis.tex").touch()


def _link(draft: Path) -> None:
    draft.symlink_to(draft.with_name("a.db"))


def _hard_link(draft: Path) -> None:
    os.link(draft.with_name("a.db"), draft)


def _pipe(draft: Path) -> None:
    os.mkfifo(draft)


def test_what_only_has_the_name_of_a_draft_stays(db: Path) -> None:
    killed(started(_MERGING, db, db.with_name("x.db")))
    free = lock_of(merge_draft(db.with_name("x.db"))).read_text()
    makers = (_text, _directory, _link, _hard_link, _pipe)
    drafts = []
    for make in makers:
        for draft_of in (new_draft, merge_draft):
            named = db.with_name(f"{make.__name__}.db")
            draft = draft_of(named)
            for guarded in (named, draft):
                lock_of(guarded).write_text(free)
            make(draft)
            drafts.append(draft)
    write(db)
    assert [draft.name for draft in drafts if not os.path.lexists(draft)] == []
    assert not os.path.lexists(merge_draft(db.with_name("x.db")))  # while a real one is removed
    with open_result(db) as file:
        assert file.summaries()


def test_a_draft_stays_while_its_lock_does_not_tell_that_the_writer_ended(
    db: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    killed(started(_IN_DRAFT, db.with_name("x.db")))
    where = lock_of(db.with_name("x.db"))
    ended = where.read_text()
    draft = {".x.db.gputui-new", ".x.db.gputui-new.wal"}

    def refuse(descriptor: int, operation: int) -> None:
        raise OSError(errno.ENOLCK, "no locks available")

    with monkeypatch.context() as patch:
        patch.setattr(fcntl, "flock", refuse)
        write(db)
        assert hidden(db.parent) == draft, "the file system has no locks"
    for whose, lock in (
        ("of an earlier gputui", "4711\n"),
        ("of another host", "4711\n00000000-0000-0000-0000-000000000000 pid:[1]\n"),
    ):
        where.write_text(lock)
        write(db)
        assert hidden(db.parent) == draft, whose
    where.unlink()
    write(db)
    assert hidden(db.parent) == draft, "no lock"
    where.write_text(ended)
    write(db)
    assert hidden(db.parent) == set()
