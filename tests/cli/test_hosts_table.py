"""The live table of a bakeoff on a terminal."""

from __future__ import annotations

import io
import os
import shutil
import sys
from dataclasses import replace

import pytest

from gputui.cli.bakeoff import HostsTable
from gputui.cli.output import say
from gputui.services.hosts.bakeoff import HostStatus

RUNNING = HostStatus(
    "gpu-a",
    "running",
    "",
    "8x H100 80GB HBM3",
    "gpt_train mini gpu fp32",
    "812 k seq/s ±1 %",
    0.45,
    83.0,
    "decode mini gpu amp: will be run alone once",
    0.4,
)
STOPPED = replace(
    RUNNING,
    name="gpu-b",
    state="stopped",
    why="stopped by SIGINT: what was finished is stored",
    share_done=None,
    case="",
    rate="",
)


class OnTerminal(io.StringIO):
    encoding = "utf-8"

    def isatty(self) -> bool:
        return True


def at_width(columns: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(shutil, "get_terminal_size", lambda: os.terminal_size((columns, 24)))
    monkeypatch.setenv("COLUMNS", str(columns))
    monkeypatch.setenv("NO_COLOR", "1")


def drawn(columns: int, capsys: pytest.CaptureFixture[str], *, is_last: bool = False) -> list[str]:
    """The lines of the hosts, in a terminal of that width."""
    with pytest.MonkeyPatch.context() as patch:
        at_width(columns, patch)
        HostsTable(is_live=True).draw([RUNNING, STOPPED], is_last=is_last)
    return capsys.readouterr().err.splitlines()[1:]


@pytest.mark.parametrize("columns", [60, 80, 100])
def test_a_line_that_is_too_long_ends_after_a_whole_word(
    columns: int, capsys: pytest.CaptureFixture[str]
) -> None:
    words = set(" ".join(drawn(109, capsys, is_last=True)).split())
    rows = drawn(columns, capsys)
    assert rows
    for row in rows:
        assert len(row) < columns
        assert {word.removesuffix("…") for word in row.split()} <= {*words, ""}


def test_the_last_table_shows_every_line_in_full(capsys: pytest.CaptureFixture[str]) -> None:
    lines = drawn(50, capsys, is_last=True)
    assert all(len(line) < 50 for line in lines)
    assert "stopped by SIGINT: what was finished is stored" in " ".join(" ".join(lines).split())


def test_a_command_at_the_end_of_a_message_stays_whole(monkeypatch: pytest.MonkeyPatch) -> None:
    at_width(50, monkeypatch)
    terminal = OnTerminal()
    monkeypatch.setattr(sys, "stderr", terminal)
    command = "gputui bakeoff --resume 20261122-190000 --give-up 600 --all --verbose"
    say(f"to go on with gpu-a, gpu-b, gpu-c, gpu-d and gpu-e: {command}")
    assert command in [line.strip() for line in terminal.getvalue().splitlines()]
