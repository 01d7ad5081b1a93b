"""The app in a real pty: keys, signals, terminals that are slow, frozen, silent or gone."""

from __future__ import annotations

import re
import signal
import subprocess
import sys
import termios
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from time import monotonic

import pytest
from pty_harness import DEADLINE_S, END_SIGNALS, Terminal, with_job_control

PROGRAM = Path(__file__).parents[1] / "makers" / "moving_lines.py"
SHOWN = "the last line"


def monitor(repository: Path, *words: str, columns: int = 80, lines: int = 24, **others: object) -> Terminal:
    environment = {"PYTHONPATH": str(repository), **others.pop("environment", {})}  # type: ignore[dict-item]
    command = [sys.executable, str(PROGRAM), *words]
    return Terminal(command, columns, lines, environment=environment, **others)  # type: ignore[arg-type]


@pytest.fixture
def still(repository: Path) -> Iterator[Terminal]:
    with monitor(repository, "still", "patient") as terminal:
        terminal.wait_for(SHOWN)
        yield terminal


def is_given_back(terminal: Terminal) -> bool:
    return (
        not terminal.is_alternate
        and terminal.is_cursor_shown
        and terminal.attributes_now == terminal.attributes_before
        and b"\x1b[?2004l" in terminal.raw[-200:]
        and terminal.unread() == b""
    )


def test_control_c_leaves_and_the_terminal_is_as_before(still: Terminal) -> None:
    still.type(b"\x03")
    assert still.ended() == 130
    still.wait_for(lambda: is_given_back(still))


@pytest.mark.parametrize(
    ("number", "words", "shown"),
    [
        *((number, ("every", "0.2", "patient"), SHOWN) for number in END_SIGNALS if number != signal.SIGTERM),
        (signal.SIGTERM, ("every", "0.2", "patient", "splash"), SHOWN),
        (signal.SIGTERM, ("splash", "wait"), "starting"),
    ],
    ids=str,
)
def test_a_signal_ends_the_app_and_gives_the_terminal_back(
    number: signal.Signals, words: tuple[str, ...], shown: str, repository: Path
) -> None:
    with monitor(repository, *words) as terminal:
        terminal.wait_for(shown)
        terminal.signal(number)
        assert terminal.ended() == 128 + number
        terminal.wait_for(lambda: not terminal.is_alternate and terminal.is_cursor_shown)
        assert terminal.attributes_now == terminal.attributes_before
        if shown == SHOWN:
            terminal.wait_for(lambda: is_given_back(terminal))


@pytest.mark.parametrize("words", [(), ("nohup",)], ids=["plain", "hang-ups are ignored"])
def test_a_closed_terminal_ends_the_app(words: tuple[str, ...], repository: Path) -> None:
    with monitor(repository, "every", "0.2", *words) as terminal:
        terminal.wait_for(SHOWN)
        terminal.close()
        assert terminal.process.wait(DEADLINE_S) == 129


def test_keys_text_sizes_and_pauses_reach_the_app_and_q_leaves(still: Terminal) -> None:
    for presses, (keys, seen) in enumerate(
        (("m", "more"), (" ", "more"), ("\t", "next"), ("S", "reverse")), 1
    ):
        still.type(keys.encode())
        still.wait_for(f"presses {presses} {seen}")
    still.type("/mq 温\r".encode())
    still.wait_for("presses 6 typed mq 温")
    still.type(b"w")
    still.wait_for("GPU 温度 β")
    for columns, lines in ((200, 50), (50, 12), (80, 24)):
        still.resize(columns, lines)
        still.wait_for(lambda size=f"{columns}x{lines}": size in still.screen.display[0])  # type: ignore[misc]
        still.wait_for(lambda last=lines - 1: still.screen.display[last].startswith(SHOWN))  # type: ignore[misc]
        assert sum(SHOWN in line for line in still.screen.display) == 1
    seen_bytes = len(still.raw)
    still.type(b"\x0c")
    still.wait_for(lambda: b"\x1b[2J" in still.raw[seen_bytes:] and SHOWN.encode() in still.raw[seen_bytes:])
    still.type(b"p")  # a key that means nothing
    seen_bytes, cpu_s = len(still.raw), still.cpu_s()
    with pytest.raises(AssertionError, match="not within"):
        still.wait_for(lambda: len(still.raw) > seen_bytes, 2.3)  # in which two frames could be drawn
    assert still.cpu_s() - cpu_s < 0.5
    still.type(b"q")
    assert still.ended() == 0
    still.wait_for(lambda: is_given_back(still))


def test_control_z_gives_the_terminal_to_the_shell_and_fg_draws_all_of_it(repository: Path) -> None:
    command = with_job_control([sys.executable, str(PROGRAM), "still", "patient", "splash"])
    with Terminal(command, environment={"PYTHONPATH": str(repository)}) as terminal:
        terminal.wait_for(SHOWN)
        attributes = terminal.attributes_now
        terminal.type(b"\x1a")
        terminal.wait_for("put aside")
        assert not terminal.is_alternate
        assert terminal.is_cursor_shown
        assert terminal.attributes_now == terminal.attributes_before
        seen_bytes = len(terminal.raw)
        terminal.type(b"\n")
        terminal.wait_for(lambda: SHOWN.encode() in terminal.raw[seen_bytes:])
        assert terminal.is_alternate
        assert not terminal.is_cursor_shown
        terminal.wait_for(lambda: terminal.attributes_now == attributes)
        terminal.type(b"mm")
        terminal.wait_for("presses 2")
        assert terminal.screen.display[-1].startswith(SHOWN)
        terminal.type(b"q")
        assert terminal.ended() == 0
        assert terminal.attributes_now == terminal.attributes_before


def test_control_z_where_no_shell_could_continue_it_leaves_the_app_running(still: Terminal) -> None:
    """As after `ssh -t HOST gputui`, which would hang."""
    seen_bytes = len(still.raw)
    still.type(b"\x1a")
    still.wait_for(lambda: SHOWN.encode() in still.raw[seen_bytes:] and still.is_alternate)
    still.type(b"m")
    still.wait_for("presses 1")


def test_after_a_stop_that_nothing_could_prepare_the_terminal_is_taken_again_and_no_key_is_lost(
    still: Terminal,
) -> None:
    attributes = still.attributes_now
    still.signal(signal.SIGSTOP)
    wait_until(lambda: state_of(still.process.pid) == "T")
    termios.tcsetattr(still.master, termios.TCSANOW, still.attributes_before)  # as a shell does
    seen_bytes = len(still.raw)
    still.signal(signal.SIGCONT)
    still.wait_for(lambda: SHOWN.encode() in still.raw[seen_bytes:] and still.attributes_now == attributes)
    for presses in range(1, 9):
        still.type(b"m")
        still.wait_for(f"presses {presses}")


def test_typing_ahead_wheel_and_clicks_reach_the_model_and_a_hanging_source_does_not_hold_up_the_end(
    repository: Path,
) -> None:
    with monitor(repository, "still", "mouse", "splash", "hang") as terminal:
        terminal.wait_for("starting")
        terminal.type(b"mm")
        terminal.wait_for("presses 2")
        assert b"\x1b[?1000h" in terminal.raw
        assert b"\x1b[?1003h" not in terminal.raw, "movements are not reported"
        terminal.type(b"\x1b[<65;10;10M")
        terminal.wait_for("presses 3 down")
        terminal.type(b"\x1b[<0;10;5M\x1b[<0;10;5m")
        terminal.wait_for("clicked 9 4")
        terminal.type(b"q")
        assert terminal.ended() == 0
        terminal.wait_for(lambda: b"\x1b[?1000l" in terminal.raw)


def test_a_bug_of_the_model_gives_the_terminal_back_and_is_reported(still: Terminal) -> None:
    still.type(b"f")
    assert still.ended() == 1
    still.wait_for(lambda: not still.is_alternate and still.is_cursor_shown)
    still.wait_for(lambda: b"ValueError: a bug of the model" in still.raw)
    assert still.attributes_now == still.attributes_before


def test_a_terminal_that_never_answers_gets_its_pictures(repository: Path) -> None:
    with monitor(repository, "every", "0.2", answers=False) as terminal:
        terminal.wait_for(SHOWN)
        for key in range(1, 4):
            terminal.type(b"m")
            terminal.wait_for(f"presses {key}")
        terminal.type(b"q")
        assert terminal.ended() == 0
        terminal.wait_for(lambda: is_given_back(terminal))


def test_a_frozen_reader_gets_one_frame_when_it_thaws(repository: Path, tmp_path: Path) -> None:
    """While it is frozen sampling goes on; then come the frame in transit, and the present."""
    counted = tmp_path / "samples"
    counted.write_text("")
    with monitor(repository, "every", "0.05", "count", str(counted), columns=200, lines=50) as terminal:
        terminal.wait_for(SHOWN)
        terminal.type(b"b")
        terminal.wait_for("big")
        terminal.freeze()
        seen = len(terminal.raw)
        for _ in range(60):
            terminal.type(b"m")
        wait_until(lambda: int(counted.read_text() or 0) >= 40)
        terminal.thaw()
        terminal.wait_for("presses 61")
        frames = bytes(terminal.raw[seen:]).split(b"\x1b[6n")[:-1]
        assert len(frames) <= 3  # the one on its way, the one that was behind, and the paint of that second
        terminal.type(b"q")
        assert terminal.ended() == 0


def test_a_reader_that_stays_frozen_does_not_hold_up_the_end(repository: Path) -> None:
    with monitor(repository, "every", "0.05", columns=200, lines=50) as terminal:
        terminal.wait_for(SHOWN)
        terminal.freeze()
        for _ in range(40):
            terminal.type(b"b")
        terminal.signal(signal.SIGTERM)
        assert terminal.process.wait(DEADLINE_S) == 143
        terminal.thaw()
        terminal.wait_for(lambda: not terminal.is_alternate and terminal.is_cursor_shown)


def test_a_slow_link_shows_the_present_and_obeys(repository: Path) -> None:
    with monitor(repository, "every", "0.05", bytes_per_s=8000) as terminal:
        terminal.type(b"b")  # every cell changes all the time: 6 kB a frame
        terminal.wait_for("presses 1")
        for _ in range(28):
            terminal.type(b"m")
        terminal.wait_for("presses 29")
        assert terminal.raw.count(b"\x1b[6n") < 20
        terminal.type(b"q")
        assert terminal.ended() == 0
        terminal.wait_for(lambda: not terminal.is_alternate)


def test_an_answer_on_its_way_is_not_left_to_the_shell(repository: Path) -> None:
    """Each key causes a frame, whose answer would come after the end."""
    with monitor(repository, "still", "patient", answer_after_s=0.02) as terminal:
        terminal.wait_for(SHOWN)
        terminal.type(b"mmmq")
        assert terminal.ended() == 0
        assert terminal.unread() == b""


@pytest.mark.parametrize("environment", [{"NO_COLOR": "1"}, {"TERM": "xterm", "COLORTERM": ""}])
def test_samples_are_painted_in_no_colours_or_in_the_sixteen_of_the_user(
    environment: dict[str, str], repository: Path
) -> None:
    with monitor(repository, "every", "0.1", environment=environment) as terminal:
        terminal.wait_for(lambda: bool(re.search(r"samples [1-9]", terminal.screen.display[0])))
        if "NO_COLOR" in environment:
            groups = re.findall(rb"\x1b\[([0-9;]*)m", terminal.raw)
            codes = {code for group in groups for code in group.split(b";")}
            assert codes <= {b"", b"0", b"1", b"4", b"7"}
        else:
            assert b"38;" not in terminal.raw
            assert re.search(rb"\x1b\[(0;)?36m", terminal.raw)


def wait_until(is_so: Callable[[], bool]) -> None:
    """For what no terminal shows."""
    end_s = monotonic() + DEADLINE_S
    while not is_so():
        assert monotonic() < end_s
        threading.Event().wait(0.02)


def state_of(pid: int) -> str:
    return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]


def test_the_first_picture_needs_nothing_heavy_and_the_first_frame_does_not_wait_for_textual(
    repository: Path,
) -> None:
    code = (
        "import sys, gputui.tui.terminal.splash; print({'textual', 'rich', 'asyncio'} & set(sys.modules));"
        "import gputui.tui.monitor.model, gputui.tui.terminal.cell_diff; print('textual' in sys.modules)"
    )
    output = subprocess.check_output([sys.executable, "-c", code], cwd=repository, text=True)
    assert output == "set()\nFalse\n"
