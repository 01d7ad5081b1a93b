"""The Compare screen on real result files, by its keys."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from journals import GPU_MACHINE
from screen_goldens import store_three
from shell_app import make_app, picture, press, settled
from stored_runs import HOSTILE, store
from textual.pilot import Pilot
from textual.widgets import DataTable, Input

from gputui.tui.app import MonitorApp
from gputui.tui.compare.actions import ACTIONS
from gputui.tui.compare.screen import CompareScreen
from gputui.tui.dialogs import AskText
from gputui.tui.lines_page import LinesPage

CLEAN = "[b]bold[/b] [31m[@click…"
"""The label HOSTILE as a heading has it."""


@pytest.fixture(scope="module")
def stored(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return store_three(tmp_path_factory.mktemp("stored"))


@pytest.fixture
def db(stored: Path, tmp_path: Path) -> Path:
    return Path(shutil.copy(stored, tmp_path / "a.db"))


async def opened(pilot: Pilot[int], *words: str) -> CompareScreen:
    """The Compare screen, once it has read these files."""
    await settled(pilot)
    assert isinstance(pilot.app, MonitorApp)
    pilot.app.open_screen("compare", words)
    await settled(pilot)
    screen = pilot.app.screen
    assert isinstance(screen, CompareScreen)
    return screen


def page(screen: CompareScreen) -> str:
    """All of the page that is shown, also what is out of sight, in one line."""
    return " ".join(screen.query_one("#page", LinesPage).text.split())


async def test_two_marked_runs_are_compared_the_first_as_the_baseline(db: Path) -> None:
    app = make_app()
    async with app.run_test(size=(100, 24)) as pilot:
        await settled(pilot)
        app.open_screen("results", (str(db),))
        await settled(pilot)
        await press(pilot, "c")
        assert "mark two runs with space first" in picture(app)
        await press(pilot, "down", "down", "space", "up", "space", "c")
        shown = picture(app)
        assert f"{CLEAN} against fast box" in shown
        assert "a  fast box  a.db@cccc0001" in shown
        assert f"b  {CLEAN}  a.db@cccc0002" in shown
        assert "slower" in shown


async def test_the_other_side_becomes_the_baseline_and_back(db: Path) -> None:
    app = make_app()
    async with app.run_test(size=(100, 24)) as pilot:
        await opened(pilot, f"{db}@cccc0001", f"{db}@cccc0002")
        assert "1.60x (1.60–1.60) less  slower" in picture(app)
        await press(pilot, "b")
        assert "1.60x (1.60–1.60) more  faster" in picture(app)
        await press(pilot, "b")
        assert "1.60x (1.60–1.60) less  slower" in picture(app)


async def test_the_text_of_the_command_is_one_key_away_and_follows_the_baseline(
    db: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    words = (f"{db}@cccc0001", f"{db}@cccc0002")
    app = make_app()
    async with app.run_test(size=(120, 40)) as pilot:
        screen = await opened(pilot, *words)
        for asked in (words, words[::-1]):
            await press(pilot, "t")
            printed = subprocess.run(
                [sys.executable, "-m", "gputui", "compare", *asked],
                capture_output=True,
                text=True,
                check=True,
                env={**os.environ, "COLUMNS": "119"},
            ).stdout
            assert " ".join(printed.split()) in page(screen)
            assert f"$ gputui compare {asked[0]}" in page(screen)
            await press(pilot, "escape", "b")


async def test_a_row_opens_its_evidence_with_the_reasons(db: Path) -> None:
    app = make_app()
    async with app.run_test(size=(80, 24)) as pilot:
        screen = await opened(pilot, f"{db}@cccc0001", f"{db}@cccc0002")
        await press(pilot, "down", "enter")
        assert screen.level == "page"
        text = page(screen)
        assert "gpt_train mini cpu fp32 all slower" in text
        assert "18 blocks in 3 launches" in text
        assert "welch on launch medians" in text
        assert "gemm 75.0 ms 120 ms +45.0 ms" in text
        await press(pilot, "escape")
        assert screen.level == "rows"


async def test_a_row_that_says_nothing_tells_why(tmp_path: Path) -> None:
    db = tmp_path / "a.db"
    store(db, 1, launches=1, gpt_ms=100.0)
    store(db, 2, launches=1, gpt_ms=103.0)
    app = make_app()
    async with app.run_test(size=(80, 24)) as pilot:
        screen = await opened(pilot, f"{db}@cccc0001", f"{db}@cccc0002")
        await press(pilot, "down", "enter")
        text = page(screen)
        assert "inconclusive" in text
        assert "the spread between launches is assumed, not measured" in text


async def test_cases_that_only_one_file_has_are_not_comparable_and_say_so(tmp_path: Path) -> None:
    store(tmp_path / "a.db", 1)
    store(tmp_path / "b.db", 2, machine=GPU_MACHINE)
    app = make_app()
    async with app.run_test(size=(100, 24)) as pilot:
        screen = await opened(pilot, str(tmp_path / "a.db"), str(tmp_path / "b.db"))
        await press(pilot, "d")
        text = page(screen)
        assert "machine" in text
        assert "GPU none / 2x NVIDIA H200" in text
        assert "1 case on neither side: no GPU in this machine" in text


async def test_times_costs_and_shares_of_the_peak_take_the_place_of_rates(db: Path) -> None:
    app = make_app()
    async with app.run_test(size=(120, 24)) as pilot:
        await opened(pilot, f"{db}@cccc0001", f"{db}@cccc0002")
        assert "40.9k tok/s" in picture(app)
        await press(pilot, "v")
        assert "a per step" in picture(app)
        assert "160 ms" in picture(app)
        await press(pilot, "v")
        assert "$0.0029 ±0.1 % for 1M tok" in picture(app)
        await press(pilot, "v", "v")
        assert "40.9k tok/s" in picture(app)


async def test_more_than_two_sides_are_gone_through_against_one_baseline(db: Path) -> None:
    app = make_app()
    async with app.run_test(size=(120, 24)) as pilot:
        store(db.parent / "c.db", 5, gpt_ms=50.0)
        await opened(pilot, f"{db}@cccc0001", f"{db}@cccc0002", str(db.parent / "c.db"))
        assert f"{CLEAN} against fast box (1 of 2 sides)" in picture(app)
        await press(pilot, "n")
        assert "c.db against fast box (2 of 2 sides)" in picture(app)
        assert "faster" in picture(app)
        await press(pilot, "b")
        assert f"{CLEAN} against c.db" in picture(app) or "fast box against c.db" in picture(app)


async def test_files_are_typed_and_what_cannot_be_compared_is_told_with_the_next_step(db: Path) -> None:
    app = make_app()
    async with app.run_test(size=(120, 24)) as pilot:
        screen = await opened(pilot)
        assert "Nothing is compared yet." in picture(app)
        for text, seen in (
            (f"{db}@nobody {db}@cccc0001", "there is no run 'nobody'"),
            ('"', "No closing quotation"),
            (f"{db}@cccc0001 {db}@cccc0002", "slower"),
        ):
            await press(pilot, "o")
            assert isinstance(app.screen, AskText)
            app.screen.query_one(Input).value = text
            await press(pilot, "enter")
            assert seen in picture(app)
        assert screen.level == "rows"


async def test_a_hostile_name_is_text_here_too(tmp_path: Path) -> None:
    db = tmp_path / "[red]x.db"
    store(db, 1, label=HOSTILE)
    store(db, 2)
    app = make_app()
    async with app.run_test(size=(120, 40)) as pilot:
        screen = await opened(pilot, f"{db}@cccc0001", f"{db}@cccc0002")
        assert f"[red]x.db@cccc0002 against {CLEAN}" in picture(app)
        assert f"a  {CLEAN}  [red]x.db@cccc0001" in picture(app)
        await press(pilot, "enter", "escape", "d")
        assert "[red]x.db@cccc0001" in page(screen)


async def test_everything_is_drawn_in_ascii_where_nothing_else_can_be(db: Path) -> None:
    app = make_app(ascii_only=True)
    async with app.run_test(size=(80, 24)) as pilot:
        await opened(pilot, f"{db}@cccc0001", f"{db}@cccc0002")
        for keys in ((), ("enter",), ("escape", "d"), ("escape", "t"), ("escape", "o")):
            await press(pilot, *keys)
            assert picture(app).isascii(), keys


async def test_what_a_and_b_are_stands_above_the_rows_unless_the_terminal_is_low(db: Path) -> None:
    app = make_app()
    async with app.run_test(size=(80, 24)) as pilot:
        await opened(pilot, f"{db}@cccc0001", f"{db}@cccc0003")
        for width, height, seen in ((80, 24, True), (40, 10, False), (80, 24, True)):
            await pilot.resize_terminal(width, height)
            await settled(pilot)
            assert ("a  fast box  a.db@cccc0001" in picture(app)) is seen
        await press(pilot, "enter")
        assert "b  a.db@cccc0003" in picture(app)


async def test_a_page_is_made_anew_for_another_width(db: Path) -> None:
    app = make_app()
    async with app.run_test(size=(120, 40)) as pilot:
        screen = await opened(pilot, f"{db}@cccc0001", f"{db}@cccc0002")
        for keys in (("down", "enter"), ("escape", "d"), ("escape", "t")):
            await press(pilot, *keys)
            wide = page(screen)
            await pilot.resize_terminal(64, 24)
            await settled(pilot)
            lines = screen.query_one("#page", LinesPage).text.splitlines()
            assert max(map(len, lines)) <= 64
            assert len(page(screen)) > 100
            await pilot.resize_terminal(120, 40)
            await settled(pilot)
            assert page(screen) == wide


async def test_the_table_follows_the_width_and_keeps_the_cursor(db: Path) -> None:
    app = make_app()
    async with app.run_test(size=(120, 24)) as pilot:
        screen = await opened(pilot, f"{db}@cccc0001", f"{db}@cccc0002")
        await press(pilot, "down")
        await pilot.resize_terminal(80, 24)
        await settled(pilot)
        assert "a per s" in picture(app)
        assert screen.query_one("#rows", DataTable).cursor_row == 1


def test_keys_of_the_screen_are_declared_once() -> None:
    keys = [key for action in ACTIONS for key in action.key.split(",")]
    assert len(set(keys)) == len(keys)
