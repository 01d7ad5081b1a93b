"""The end of a run whose supervisor ended without a word."""

from __future__ import annotations

import shutil
import subprocess
from collections import namedtuple
from pathlib import Path

import pytest

from gputui.errors import NotStored
from gputui.model.journal import JOURNAL_NAME, STORED_NAME
from gputui.services.runs.process import LEAST_FREE_BYTES, LiveRun, see_stored, wait_until_begun

_Usage = namedtuple("_Usage", "total used free")


@pytest.fixture
def dead(tmp_path: Path) -> LiveRun:
    """A run whose supervisor has exited, before it wrote a line."""
    supervisor = subprocess.Popen(["true"])
    supervisor.wait()
    return LiveRun("0194b5a0-0000-7000-8000-00001a2b3c4d", tmp_path, tmp_path / "a.db", supervisor)


@pytest.mark.parametrize("free_bytes", [0, LEAST_FREE_BYTES])
def test_a_supervisor_that_had_no_room_is_not_called_killed(
    dead: LiveRun, monkeypatch: pytest.MonkeyPatch, free_bytes: int
) -> None:
    monkeypatch.setattr(shutil, "disk_usage", lambda place: _Usage(1 << 30, 0, free_bytes))
    full = f"no space is left on the disk of {dead.run_dir}"
    with pytest.raises(NotStored) as not_begun:
        wait_until_begun([dead])
    reason = "" if free_bytes else f": {full}"
    assert str(not_begun.value.message) == f"run 1a2b3c4d did not start{reason}"

    (dead.run_dir / JOURNAL_NAME).write_bytes(b"{}\n")
    (dead.run_dir / STORED_NAME).write_text("{}")
    how = "was killed" if free_bytes else f"ended: {full}"
    assert see_stored(dead, None) == (f"the supervisor of run 1a2b3c4d {how}",)
