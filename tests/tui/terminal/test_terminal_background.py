"""Light or dark, as the terminal says: one that answers, one that stays silent, and one that is late."""

from __future__ import annotations

import subprocess
import sys
from itertools import pairwise
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pty_harness import Terminal

from gputui.document.background import QUERY, Answers
from gputui.document.theme import SOME_DARK, Depth, Palette, definition, sgr

REPOSITORY = Path(__file__).parents[3]
APP = REPOSITORY / "tests" / "makers" / "moving_lines.py"
PAGE = """
import sys
from gputui.document.page import Page, console_on
page = Page(console_on(sys.stdout))
page.line("caution", "warn")
page.show()
print("shown")
"""
PATIENT = "from gputui.document import background\nbackground.WAIT_S = 60.0\n"
"""Before a program: an answer that a busy box delays still counts."""
GPUTUI = PATIENT + "import sys\nfrom gputui.cli import main\nmain(sys.argv[1:])\n"
NO_VARIABLES = dict.fromkeys(("GPUTUI_LIGHT", "NO_COLOR", "COLORTERM", "CI"), "")


def terminal_of(*command: str, **others: object) -> Terminal:
    environment = {**NO_VARIABLES, "PYTHONPATH": str(REPOSITORY)}
    return Terminal([sys.executable, *command], environment=environment, **others)  # type: ignore[arg-type]


def palette(background: str) -> Palette:
    return Palette(Depth.INDEXED, background)


def test_a_page_has_the_colours_for_the_background_that_the_terminal_says() -> None:
    background = "#fdf6e3"
    with terminal_of("-c", PATIENT + PAGE, background=background, answer_after_s=0.6) as terminal:
        assert terminal.ended() == 0
        terminal.wait_for("shown")
        assert "rgb" not in terminal.text
        assert f"\x1b[{sgr('warn', palette(background))}mcaution".encode() in terminal.raw
        assert terminal.attributes_now == terminal.attributes_before
        assert terminal.unread() == b""


@pytest.mark.parametrize("answers", [True, False], ids=["it knows no such question", "it never answers"])
def test_a_terminal_that_says_no_background_counts_as_dark(answers: bool) -> None:
    with terminal_of("-c", PAGE, answers=answers) as terminal:
        assert terminal.ended() == 0
        terminal.wait_for("shown")
        assert f"\x1b[{sgr('warn', palette(SOME_DARK))}mcaution".encode() in terminal.raw
        assert terminal.attributes_now == terminal.attributes_before


def test_what_is_typed_at_a_question_is_echoed_though_the_terminal_never_answered() -> None:
    asks = PAGE + "from gputui.cli.output import confirmed\nprint('said', confirmed('Go on?'))\n"
    with terminal_of("-c", asks, answers=False) as terminal:
        terminal.wait_for("Go on? [y/N]:")
        assert terminal.attributes_now == terminal.attributes_before
        terminal.type(b"y\r")
        terminal.wait_for("said True")
        assert terminal.ended() == 0


def test_nothing_is_asked_where_a_variable_says_it_or_where_there_is_no_terminal() -> None:
    notebook = PAGE.replace("sys.stdout))", "__import__('io').StringIO(), is_terminal=True))")
    for page, says in ((PAGE, "1"), (notebook, ""), (PAGE.replace("sys.stdout", "sys.stderr"), "1")):
        environment = {**NO_VARIABLES, "PYTHONPATH": str(REPOSITORY), "GPUTUI_LIGHT": says}
        command = [sys.executable, "-c", page]
        with Terminal(command, environment=environment, background="#000000") as terminal:
            assert terminal.ended() == 0
            assert QUERY.encode() not in terminal.raw
    piped = subprocess.run([sys.executable, "-c", PAGE], capture_output=True, cwd=REPOSITORY, check=True)
    assert b"\x1b" not in piped.stdout + piped.stderr


def test_a_key_turns_the_theme_which_is_kept(tmp_path: Path) -> None:
    def drawn_in(terminal: Terminal, theme: str) -> None:
        accent = definition("accent", Palette(Depth.INDEXED, "#ffffff", theme)).removeprefix("#")

        def is_drawn() -> bool:
            rows = [list(terminal.screen.buffer[row].values()) for row in range(30)]
            return any(cell.fg == accent for row in rows for cell in row)

        terminal.wait_for(is_drawn)

    environment = {**NO_VARIABLES, "PYTHONPATH": str(REPOSITORY), "XDG_CONFIG_HOME": str(tmp_path)}
    command = [sys.executable, "-c", GPUTUI]
    others = {"environment": environment, "background": "#ffffff", "columns": 100, "lines": 30}
    with Terminal(command, **others) as terminal:  # type: ignore[arg-type]
        drawn_in(terminal, "auto")
        terminal.type(b"T")
        terminal.wait_for("colours: for a dark background")
        drawn_in(terminal, "dark")
        terminal.type(b"q")
        assert terminal.ended() == 0
    assert 'theme = "dark"' in (tmp_path / "gputui" / "monitor.toml").read_text()
    with Terminal(command, **others) as terminal:  # type: ignore[arg-type]
        drawn_in(terminal, "dark")
        terminal.type(b"q")
        assert terminal.ended() == 0


def test_a_late_answer_is_no_key_of_the_app_and_a_key_typed_before_is() -> None:
    others = {"background": "#ffffff", "answer_after_s": 1.0}
    with terminal_of(str(APP), "still", "patient", "splash", **others) as terminal:
        terminal.wait_for("starting")
        terminal.type(b"m")
        terminal.wait_for("presses 1 more")
        terminal.wait_for(lambda: terminal.raw.count(b"\x1b[6n") >= 2)
        terminal.type(b"m")
        terminal.wait_for("presses 2 more")
        terminal.type(b"q")
        assert terminal.ended() == 0


@given(st.binary(max_size=40), st.lists(st.integers(0, 60), max_size=4))
def test_answers_are_taken_out_wherever_they_are_cut(typed: bytes, cuts: list[int]) -> None:
    typed = typed.replace(b"\x1b", b"")
    answers = Answers()
    answers.asked_s = float("inf")
    stream = typed + b"\x1b]11;rgb:fdfd/f6f6/e3e3\x1b\\" + b"\x1b[?62;22c" + typed
    ends = [0, *sorted(min(cut, len(stream)) for cut in cuts), len(stream)]
    passed = b"".join(answers.feed(stream[a:b]) for a, b in pairwise(ends))
    assert (passed, answers.background, answers.are_all) == (2 * typed, "#fdf6e3", True)
