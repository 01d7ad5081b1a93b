"""Concurrent writers and readers of one file."""

from __future__ import annotations

from pathlib import Path

import pytest
from many import crowd


@pytest.mark.slow
def test_four_writers_and_two_readers_lose_nothing_and_store_nothing_twice(tmp_path: Path) -> None:
    found = crowd(tmp_path, seconds=5.0)
    assert found.errors == ()
    assert found.runs_in_file == found.runs_stored
    assert found.shared_run_there == 1
    assert found.runs_stored >= 4
    assert found.reads >= 2
