"""A stored run played in a real pty, and the traces that screens with result files leave at exit."""

from __future__ import annotations

import re
import signal
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from journals import GPU_MACHINE, make_journal, make_telemetry, write_telemetry
from pty_harness import Terminal

from gputui.store.journal_reader import read_journal, read_telemetry
from gputui.store.writing import store_run

SECONDS = 120
_SEQUENCE = re.compile(rb"\x1b(\[[?<>=]?[0-9;]*[A-Za-z]|[=>78])")
_MINUTES = re.compile(r"(playing|PAUSED|ENDED) (\d+):(\d\d) of 1:59")


@pytest.fixture
def db(tmp_path: Path) -> Path:
    run_dir = make_journal(tmp_path / "run", machine=GPU_MACHINE)
    write_telemetry(run_dir, make_telemetry(seconds=SECONDS, gpus=2))
    found = tmp_path / "a.db"
    store_run(found, read_journal(run_dir), read_telemetry(run_dir))
    return found


Start = Callable[..., Terminal]


@pytest.fixture
def start(db: Path, tmp_path: Path, repository: Path) -> Start:
    def started(*words: str, columns: int = 80, lines: int = 24) -> Terminal:
        environment = {
            "PYTHONPATH": str(repository),
            "XDG_CONFIG_HOME": str(tmp_path),
            "GPUTUI_STATE": str(tmp_path / "state"),
            "GPUTUI_DB": str(db),
        }
        return Terminal([sys.executable, "-m", "gputui", *words], columns, lines, environment=environment)

    return started


def header(terminal: Terminal) -> str:
    return terminal.screen.display[0]


def place(terminal: Terminal) -> tuple[str, int]:
    """Whether it plays, and the second shown."""
    found = _MINUTES.search(header(terminal))
    return (found[1], 60 * int(found[2]) + int(found[3])) if found else ("", -1)


def wait_for_place(terminal: Terminal, state: str, is_so: Callable[[int], bool]) -> None:
    def is_there() -> bool:
        shown, second = place(terminal)
        return shown == state and is_so(second)

    terminal.wait_for(is_there)


def printed_at_the_end(terminal: Terminal) -> str:
    """The terminal's content after the screen: everything written after leaving it."""
    terminal.wait_for(lambda: not terminal.is_alternate)
    behind = bytes(terminal.raw).rpartition(b"\x1b[?1049l")[2]
    return _SEQUENCE.sub(b"", behind).decode().strip()


@pytest.mark.parametrize(("columns", "lines"), [(80, 24), pytest.param(108, 40, marks=pytest.mark.slow)])
def test_it_is_played_paused_moved_and_marked_at_its_end(start: Start, columns: int, lines: int) -> None:
    with start("replay", "latest", columns=columns, lines=lines) as terminal:
        wait_for_place(terminal, "playing", lambda second: 1 <= second < 60)
        assert header(terminal).startswith("gputui  replay of box a ")
        assert terminal.screen.display[1].startswith("2x H200   2 busy ")
        assert "busy  98 %" in terminal.text
        assert "STALE" not in terminal.text
        assert "all GPUs <1 min" in terminal.text
        terminal.type(b">>>>>")
        wait_for_place(terminal, "playing", lambda second: 59 <= second < 100)
        assert "STALE" not in terminal.text
        assert "─ GPU 0 ── THERMAL 25 %" in terminal.text
        terminal.type(b"i")
        terminal.wait_for("POWER-CAPPED at 700 W, 50 % of ")
        terminal.wait_for("power 50 %, thermal 25 %")
        terminal.type(b"\x1b")
        terminal.wait_for("─ GPU 0 ── THERMAL 25 %")
        terminal.type(b" ")
        wait_for_place(terminal, "PAUSED", lambda second: 59 <= second < 100)
        _, paused = place(terminal)
        terminal.type(b"\x1b[D")
        wait_for_place(terminal, "PAUSED", lambda second: second == paused - 10)
        terminal.type(b"\x1b[C")
        wait_for_place(terminal, "PAUSED", lambda second: second == paused)
        terminal.type(b"\x1b[H")
        wait_for_place(terminal, "PAUSED", lambda second: second == 0)
        terminal.type(b"\x1b[F")
        wait_for_place(terminal, "ENDED", lambda second: second == SECONDS - 1)
        assert "STALE" not in terminal.text
        terminal.type(b" ")
        wait_for_place(terminal, "playing", lambda second: second < 60)
        terminal.type(b"+++")
        terminal.wait_for("· 10x ·")
        wait_for_place(terminal, "ENDED", lambda second: second == SECONDS - 1)
        terminal.type(b"q")
        assert terminal.ended() == 0
        assert printed_at_the_end(terminal) == ""


def test_a_gpu_with_readings_until_the_end_is_never_stale_at_any_speed(start: Start) -> None:
    with start("replay", "latest", "--speed", "40") as terminal:
        terminal.wait_for("· 40x ·")
        wait_for_place(terminal, "ENDED", lambda second: second == SECONDS - 1)
        assert b"STALE" not in terminal.raw


_OPENED: dict[str, tuple[tuple[str, ...], str]] = {
    "replay": (("replay", "latest"), "playing 0:0"),
    "results": (("results",), "finished"),
    "compare": (("compare", "a.db", "a.db", "--tui"), "gemm"),
    "monitor": (("monitor",), "host"),
}


_ENDS: tuple[tuple[str | signal.Signals, int], ...] = (
    ("q", 0),
    (signal.SIGTERM, 143),
    (signal.SIGHUP, 129),
    (signal.SIGINT, 130),
)


@pytest.mark.parametrize(
    ("command", "end", "status"),
    [
        pytest.param(command, end, status, marks=() if place == number % 2 else pytest.mark.slow)
        for number, command in enumerate(_OPENED)
        for place, (end, status) in enumerate(_ENDS)
    ],
)
def test_nothing_is_printed_when_a_screen_ends(
    start: Start, db: Path, command: str, end: str | signal.Signals, status: int
) -> None:
    """DuckDB's bindings report each of their types that Python has not freed, in forty lines."""
    words, shown = _OPENED[command]
    with start(*(str(db) if word == "a.db" else word for word in words)) as terminal:
        terminal.wait_for(shown)
        if isinstance(end, str):
            terminal.type(end.encode())
        else:
            terminal.signal(end)
        assert terminal.ended() == status
        assert printed_at_the_end(terminal) == ""


def test_a_run_that_cannot_be_played_is_reported_in_two_lines(start: Start, tmp_path: Path) -> None:
    run_dir = make_journal(tmp_path / "empty", machine=GPU_MACHINE)
    write_telemetry(run_dir, [])
    bare = tmp_path / "bare.db"
    store_run(bare, read_journal(run_dir), read_telemetry(run_dir))
    with start("replay", "latest", str(bare), columns=300) as terminal:
        assert terminal.ended() == 2
        lines = [line.rstrip() for line in terminal.screen.display if line.strip()]
        assert "holds no telemetry" in lines[0]
        assert len(lines) == 2
