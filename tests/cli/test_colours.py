"""What commands print on a terminal: a bold answer, cyan commands. A pipe has the words alone."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from command_line import gputui, gputui_here
from nvml.standin import standin_environment
from stored_runs import store

from gputui.document.theme import SOME_DARK, Depth, Palette, sgr

COLOURS = {"FORCE_COLOR": "1", "TERM": "xterm", "COLUMNS": "80", "LINES": "60", "GPUTUI_LIGHT": "0"}
PALETTE = Palette(Depth.ANSI, SOME_DARK)


def styled(text: str, *styles: str) -> str:
    return f"\x1b[{';'.join(sgr(style, PALETTE) for style in styles)}m{text}\x1b[0m"


@pytest.fixture(scope="module")
def db(tmp_path_factory: pytest.TempPathFactory) -> Path:
    place = tmp_path_factory.mktemp("colours")
    store(place / "a.db", 1)
    return place / "a.db"


@pytest.mark.parametrize(
    ("words", "answer", "typed"),
    [
        (("gpu",), "No known GPU", "gputui gpu H100"),
        (("gpu", "H100"), "'H100' matches 4 GPUs:", "gputui gpu 'H100 SXM 80GB'"),
        (("gpu", "B200"), "B200 SXM6: ", "gputui run quick"),
        (("pick", "7B"), "", "--all"),
        (("profiles",), "", "gputui profiles NAME, or gputui run NAME"),
        (("runs", "a.db"), "", "gputui show"),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, tuple) else "",
)
def test_the_answer_is_bold_what_can_be_typed_is_cyan_and_a_pipe_has_the_same_words(
    db: Path, words: tuple[str, ...], answer: str, typed: str
) -> None:
    asked = [str(db) if word == "a.db" else word for word in words]
    shown = gputui_here(*asked, env=COLOURS).stdout
    assert f"\x1b[{sgr('title', PALETTE)}m{answer}" in shown or not answer
    accent = re.escape(f"\x1b[{sgr('accent', PALETTE)}m")
    assert re.search(f"{accent} *{re.escape(typed)}", shown), (
        "indented where its line has no room after `next:`"
    )
    plain = gputui_here(*asked, env={"COLUMNS": "80"}).stdout
    assert "\x1b" not in plain
    is_cut = words == ("gpu", "B200")
    assert is_cut or re.sub(r"\x1b\[[\d;]*m", "", shown).split() == plain.split()


def test_doctor_gives_each_state_its_colour_and_names_the_worst_first() -> None:
    scenario = "driver gpus 1\n* name NVIDIA H200\n* sm_busy_pct 0\n* pcie_width 4\n* pcie_width_max 16\n"
    shown = gputui("doctor", "--all", env=standin_environment(scenario) | COLOURS).stdout.splitlines()
    assert shown[0].startswith(f"\x1b[{sgr('title', PALETTE)};{sgr('alarm', PALETTE)}m")
    assert shown[1].startswith(styled(f"{'FAULT':9}", "alarm"))
    states = {"FAULT": "alarm", "caution": "warn", "ok": "good"}
    for word, style in states.items():
        assert any(styled(f"{word:9}", style) in line for line in shown), word
    assert any(f"\x1b[{sgr('accent', PALETTE)}m" in line for line in shown), "the pip line for this box"
