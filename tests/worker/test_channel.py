"""The worker's channel to its supervisor."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest

from gputui.worker.channel import Channel


def test_a_worker_whose_supervisor_is_gone_ends_at_once_instead_of_waiting(tmp_path: Path) -> None:
    fifo = tmp_path / "fifo"
    os.mkfifo(fifo)
    with pytest.raises(OSError, match="No such device or address"):
        Channel(fifo)


def test_a_line_arrives_as_one_json_object(tmp_path: Path) -> None:
    fifo = tmp_path / "fifo"
    os.mkfifo(fifo)
    reader = os.open(fifo, os.O_RDWR | os.O_NONBLOCK)
    Channel(fifo).send("block", wall_ns=2**60, text="é\n")
    assert json.loads(os.read(reader, 1000)) == {"kind": "block", "wall_ns": 2**60, "text": "é\n"}
    os.close(reader)


def test_a_reader_that_closes_breaks_the_next_line(tmp_path: Path) -> None:
    fifo = tmp_path / "fifo"
    os.mkfifo(fifo)
    reader = os.open(fifo, os.O_RDWR | os.O_NONBLOCK)
    channel = Channel(fifo)
    os.close(reader)
    with pytest.raises(BrokenPipeError):
        channel.send("block")
