"""Changes one run in a result file: removes it, or changes its label."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from gputui.errors import NotStored
from gputui.store.opening import CATALOG
from gputui.store.writing import delete_run, explaining, opened_for_writing, real_path

if TYPE_CHECKING:
    from duckdb import DuckDBPyConnection


def remove_run(db: Path, run_id: str) -> None:
    """Remove one run with all its rows. Raises NotStored, and changes nothing then."""
    with _changing(db, run_id) as connection:
        delete_run(connection, run_id)


def label_run(db: Path, run_id: str, label: str) -> None:
    """Set the label of a run; an empty one removes it. Raises NotStored, and changes nothing then."""
    with _changing(db, run_id) as connection:
        connection.execute(
            f"UPDATE {CATALOG}.main.runs SET label = ? WHERE run_id = ?::UUID", [label, run_id]
        )


@contextmanager
def _changing(db: Path, run_id: str) -> Iterator[DuckDBPyConnection]:
    """One transaction on a file that contains this run."""
    db = real_path(db)
    with opened_for_writing(db) as connection, explaining(db):
        connection.execute("BEGIN")
        there = connection.execute(
            f"SELECT count(*) FROM {CATALOG}.main.runs WHERE run_id = ?::UUID", [run_id]
        ).fetchall()
        if not there[0][0]:
            raise NotStored(f"run {run_id[-8:]} is no longer in {db}", "somebody removed it: gputui runs")
        yield connection
        connection.execute("COMMIT")
