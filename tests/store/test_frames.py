"""A result file as DataFrames, in a kernel with few other packages."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
from journals import make_journal

import gputui
from gputui.errors import GputuiError
from gputui.store.journal_reader import read_journal, read_telemetry
from gputui.store.writing import store_run


@pytest.fixture
def stored(tmp_path: Path) -> Path:
    run_dir = tmp_path / "run"
    run_dir.mkdir()
    make_journal(run_dir)
    db = tmp_path / "a.db"
    store_run(db, read_journal(run_dir), read_telemetry(run_dir))
    return db


def test_every_stored_block_is_a_row_with_its_own_integers(stored: Path, tmp_path: Path) -> None:
    from gputui.model.journal import Block

    frames = gputui.load(stored)
    written = [(b.case_id, b.index, b.wall_ns) for b in read_journal(tmp_path / "run").of(Block)]
    read = list(
        zip(frames.blocks["case_id"], frames.blocks["block_index"], frames.blocks["wall_ns"], strict=True)
    )
    assert sorted(read) == sorted(written)
    assert set(frames.blocks["run_id"]) == set(frames.runs["run_id"])


def test_a_run_carries_the_columns_of_its_machine(stored: Path) -> None:
    frames = gputui.load(stored)
    assert len(frames.runs) == 1
    assert list(frames.runs["cpu_usable_cores"] >= 1) == [True]


def test_loading_needs_duckdb_and_pandas_and_nothing_else_of_ours(stored: Path) -> None:
    code = (
        "import sys, gputui\n"
        f"assert len(gputui.load({str(stored)!r}).runs) == 1\n"
        "others = ('msgspec', 'rich', 'click', 'textual', 'platformdirs', 'psutil')\n"
        "print([m for m in others if m in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


def test_what_is_no_result_file_is_refused(tmp_path: Path) -> None:
    other = tmp_path / "notes.txt"
    other.write_text("not a database")
    with pytest.raises(GputuiError, match=r"notes\.txt"):
        gputui.load(other)
