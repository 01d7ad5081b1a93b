"""The Compare screen on real result files, by its keys."""

from __future__ import annotations

import json
import re
import shutil
from dataclasses import replace
from pathlib import Path

import pytest
from chrome_traces import write_training
from command_line import gputui_here
from journals import CPU_MACHINE
from palettes import PLAIN
from screen_goldens import store_three
from shell_app import make_app, opened, picture, press, rows_of, settled
from stored_runs import store, store_gpu
from textual.widgets import Input

from gputui.services.support.paths import copies_directory
from gputui.services.traces.imported import contents_of, read_run
from gputui.store.writing import store_run
from gputui.tui.app import MonitorApp
from gputui.tui.screens.compare import AskBy, CompareScreen
from gputui.tui.shell.shell_screen import AskText
from gputui.tui.widgets.scrolled import LinesList, LinesPage

CLEAN = r"[b]bold[/b] \x1b[31m[@c…"
"""The label HOSTILE as a heading has it."""


@pytest.fixture(scope="module")
def stored(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return store_three(tmp_path_factory.mktemp("stored"))


@pytest.fixture
def db(stored: Path, tmp_path: Path) -> Path:
    return Path(shutil.copy(stored, tmp_path / "a.db"))


def page(screen: CompareScreen) -> str:
    """The whole page in one line, including parts out of view."""
    return " ".join(screen.query_one("#page", LinesPage).text.split())


async def test_two_marked_runs_are_compared_the_first_as_the_baseline_and_names_are_text(db: Path) -> None:
    named = db.rename(db.with_name("[red]x.db"))
    app = make_app()
    async with app.run_test(size=(100, 24)) as pilot:
        await settled(pilot)
        app.open_screen("results", (str(named),))
        await settled(pilot)
        await press(pilot, "c")
        assert "mark two runs with space first" in picture(app)
        await press(pilot, "down", "down", "space", "up", "space", "c")
        shown = picture(app)
        assert f"{CLEAN} vs fast box" in shown
        assert "a  [red]x.db@cccc0001 (fast box) " in shown
        assert f"b  [red]x.db@cccc0002 ({CLEAN})" in shown
        assert "slower" in shown
        await press(pilot, "enter", "escape", "d")
        assert isinstance(app.screen, CompareScreen)
        assert "[red]x.db@cccc0001" in page(app.screen)


async def test_the_text_of_the_command_is_one_key_away_and_follows_the_baseline(
    db: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    words = (f"{db}@cccc0001", f"{db}@cccc0002")
    printed = {
        asked: gputui_here("compare", "--verbose", *asked, env={"COLUMNS": "119"}).stdout
        for asked in (words, words[::-1])
    }
    app = make_app()
    async with app.run_test(size=(120, 40)) as pilot:
        screen = await opened(pilot, CompareScreen, *words)
        for asked, text in printed.items():
            await press(pilot, "t")
            shown = "".join(page(screen).split())  # a path that is longer than a line is folded
            assert "".join(text.split()) in shown
            assert f"$gputuicompare{asked[0]}{asked[1]}" in shown
            await press(pilot, "escape", "b")


async def test_a_row_opens_its_evidence_and_pages_are_made_anew_for_another_width(db: Path) -> None:
    app = make_app()
    async with app.run_test(size=(120, 40)) as pilot:
        screen = await opened(pilot, CompareScreen, f"{db}@cccc0001", f"{db}@cccc0002")
        for keys in (("escape", "d"), ("escape", "t"), ("escape", "enter")):
            await press(pilot, *keys[1:])
            assert screen.level == "page"
            wide = page(screen)
            await pilot.resize_terminal(64, 24)
            await settled(pilot)
            lines = screen.query_one("#page", LinesPage).text.splitlines()
            assert max(map(len, lines)) <= 64
            assert len(page(screen)) > 100
            await pilot.resize_terminal(120, 40)
            await settled(pilot)
            assert page(screen) == wide
            await press(pilot, keys[0])
            assert screen.level == "rows"
        assert "GPT training mini cpu fp32 all 38 % slower (" in wide
        assert "3 launches each, 18 blocks each (a launch is a fresh process, a block a few steps)" in wide
        assert "matmul 75.0 ms 120 ms +45.0 ms" in wide
        assert "107 GFLOP/s" in " ".join(picture(app).split())
        await press(pilot, "up")
        await pilot.resize_terminal(80, 24)
        await settled(pilot)
        assert "▸ matmul" in picture(app)
        assert "b vs a         -30" not in picture(app), "intervals in figures have no room"
        assert screen.query_one(LinesList).key == 0


async def test_energy_of_gpus_is_read_on_demand(tmp_path: Path) -> None:
    db = tmp_path / "g.db"
    store_gpu(db, 1, launches=6, seconds=60.0)
    store_gpu(db, 2, scale=1.5, launches=6, seconds=60.0)
    words = (f"{db}@cccc0001", f"{db}@cccc0002")
    compare = ("compare", *words, "--columns", "energy,ratio")
    printed = gputui_here(*compare, env={"COLUMNS": "119"}).stdout
    app = make_app()
    async with app.run_test(size=(120, 30)) as pilot:
        screen = await opened(pilot, CompareScreen, *words)
        await press(pilot, "v", "v")
        assert "a and b: the price is of a box without a GPU" in picture(app)
        await press(pilot, "v")
        assert "a energy" in picture(app)
        (shown,) = [line.split()[1:] for line in picture(app).splitlines() if line.startswith("▸ matmul")]
        (row,) = [line for line in printed.splitlines() if line.startswith("matmul")]
        assert shown[2] == "nJ/flop"
        assert f"{shown[1]} {shown[2]}" in row
        await press(pilot, "b")
        assert "J/flop" in picture(app)
        await press(pilot, "y", "t")
        assert "--columns energy,ratio" in page(screen)


async def test_a_row_that_cannot_be_judged_or_that_one_side_lacks_says_what_would_help(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    store(tmp_path / "a.db", 1, launches=1, gpt_ms=100.0)
    store(tmp_path / "a.db", 2, launches=3, gpt_ms=140.0)
    store_gpu(tmp_path / "b.db", 2)
    app = make_app()
    async with app.run_test(size=(120, 40)) as pilot:
        screen = await opened(pilot, CompareScreen, "a.db@cccc0001", "a.db@cccc0002")
        await press(pilot, "down", "enter")
        asked = "on the box of a: gputui run --like a.db@cccc0001 --db a.db --launches "
        assert asked in page(screen)
        await opened(pilot, CompareScreen, "a.db@cccc0001", "b.db")
        await press(pilot, "enter")
        text = page(screen)
        assert "not comparable" in text
        assert "on the box of b: gputui run --like a.db@cccc0001 --only gemm" in text
        assert "no telemetry of b: it was not measured" in text


async def test_low_terminals_show_the_answer_and_what_would_settle_a_row_where_there_is_room(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    store(tmp_path / "a.db", 1, label="first")
    store(tmp_path / "b.db", 2, label="second", launches=2, gpt_ms=132.0)
    app = make_app()
    async with app.run_test(size=(60, 15)) as pilot:
        await opened(pilot, CompareScreen, "a.db", "b.db")
        shown = picture(app)
        answer = "Can't tell a.db and b.db apart with 99 % certainty in GPT training: b.db is 4 to 40 %"
        assert " ".join(shown.splitlines()[1:3]).startswith(answer)
        assert "\ncost per        $2.85        $3.76    +32 % (+5 … 23 more ▼\n" in shown

        await pilot.resize_terminal(40, 10)
        await settled(pilot)
        shown = picture(app)
        assert "\nCan't tell a.db and b.db apart with\n99 % certainty in GPT training: b.db is" in shown

        await pilot.resize_terminal(80, 24)
        await settled(pilot)
        lines = picture(app).splitlines()
        assert lines[3].startswith("a  a.db (first)   gcp Xeon 8481C, 1 core  $0.42/h  torch")
        assert lines[4].startswith("b  b.db (second)  gcp Xeon 8481C, 1 core  $0.42/h  torch")
        assert "on the box of b: gputui run --like b.db@cccc0002" in " ".join(" ".join(lines).split())

        store(tmp_path / "c.db", 3, gpt_ms=160.0)
        await pilot.resize_terminal(60, 15)
        await opened(pilot, CompareScreen, "a.db", "b.db", "c.db")
        lines = picture(app).splitlines()
        assert lines[1].startswith("GPT training, fastest first: a.db and b.db (a tie) at")


async def test_traces_are_sent_to_the_command_that_compares_them(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    traces = [write_training(tmp_path / name, gemm_us=us) for name, us in (("a.json", 100), ("b.json", 150))]
    for trace in traces:
        store_run(tmp_path / "t.db", contents_of(read_run(trace)), ())
    app = make_app()
    async with app.run_test(size=(120, 40)) as pilot:
        for names in ("a.json b.json", "t.db@a t.db@b"):
            await opened(pilot, CompareScreen, *names.split())
            shown = " ".join(picture(app).split())
            assert f"gputui compare {names}" in shown, shown


async def test_of_five_sides_at_80_columns_those_out_of_sight_are_counted_and_come_by_key(
    tmp_path: Path,
) -> None:
    files = []
    for number, gpt_ms in enumerate((100.0, 50.0, 200.0, 400.0, 100.0), 1):
        files.append(tmp_path / f"box{number}.db")
        store(files[-1], number, gpt_ms=gpt_ms)
    app = make_app()
    async with app.run_test(size=(80, 24)) as pilot:
        screen = await opened(pilot, CompareScreen, *map(str, files))
        assert isinstance(app, MonitorApp)
        shown = picture(app)
        assert max(map(len, shown.splitlines())) <= 80
        row = next(line for line in shown.splitlines() if line.startswith("▸ GPT training"))
        assert row.split()[3:10] == ["2.00x", "-50", "%", "-75", "%", "0", "%?"]
        below = shown.splitlines()[shown.splitlines().index(row) + 1]
        begin = row.index("?") + 1
        lines = [row, below] if below.startswith(" " * begin) else [row]
        drawn = [found for line in lines for found in re.finditer("[a-z]", line[begin:])]
        marks = [found[0] for found in sorted(drawn, key=lambda found: found.start())]
        assert marks == ["d", "c", "e", "b", "b"], "the fastest last"
        assert all(f"box{number}.db" in shown for number in range(1, 6))
        await press(pilot, "v")
        for place, letter in enumerate("bcde", 2):
            shown = picture(app)
            assert max(map(len, shown.splitlines())) <= 80
            assert f"▸ {letter}  box{place}.db" in shown
            assert f"{letter} per step" in shown
            await press(pilot, "n")
        await press(pilot, "p", "enter")
        assert "in this part b is e" in picture(app)
        assert "can't tell" in page(screen)
        await press(pilot, "escape", "b")
        assert " vs box5.db (" in picture(app)


async def test_what_tells_sides_apart_is_chosen_on_the_screen(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    db = tmp_path / "a.db"
    store(db, 1, gpt_ms=100.0)
    store(db, 2, gpt_ms=100.0, machine=replace(CPU_MACHINE, machine_id="ffffffffffff"))
    app = make_app(palette=PLAIN)
    async with app.run_test(size=(120, 24)) as pilot:
        await opened(pilot, CompareScreen, f"{db}@cccc0001", f"{db}@cccc0002")
        await press(pilot, "g")
        assert isinstance(app.screen, AskBy)
        reversed_texts = ["".join(text for text, style in row if style.reverse) for row in rows_of(app)]
        assert any(text.startswith("▸ ") for text in reversed_texts), "it has no background"
        assert "only cpu" in picture(app)
        await press(pilot, "j", "enter")
        assert "a  machine a1b2c3d4e5f6" in picture(app)
        await press(pilot, "g", "escape", "c")
        assert "copied" in picture(app)
        copied = (copies_directory() / "copied.txt").read_text()
        assert copied.startswith("gputui compare ")
        assert copied.endswith("--by machine\n")
        await press(pilot, "b", "c")
        copied = (copies_directory() / "copied.txt").read_text()
        assert copied.endswith("--by machine --baseline 'machine ffffffffffff'\n")
        await press(pilot, "g", "k", "enter")
        assert "a.db@cccc0002 vs a.db@cccc0001" in picture(app)


async def test_the_words_of_the_command_line_may_be_typed_with_their_options(
    db: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    app = make_app()
    async with app.run_test(size=(120, 24)) as pilot:
        screen = await opened(pilot, CompareScreen)
        for text, seen in (
            (f"{db}@cccc0001 {db}@cccc0002", " vs fast box"),
            (f"gputui compare {db}@cccc0001 {db}@cccc0002 --baseline cccc0002", "fast box vs "),
            (f"{db}@cccc0001 --by mode", "the measured cases have eager"),
            ('"', "No closing quotation"),
        ):
            await press(pilot, "o")
            assert isinstance(app.screen, AskText)
            app.screen.query_one(Input).value = text
            await press(pilot, "enter")
            assert seen in picture(app), text
        assert screen.level == "notice"
        await press(pilot, "escape", "v", "v", "c")
        assert screen.level == "rows"
        copied = (copies_directory() / "copied.txt").read_text()
        assert copied.endswith(" --columns cost,ratio\n")
        await press(pilot, "v", "o")
        app.screen.query_one(Input).value = copied.strip()
        await press(pilot, "enter")
        assert "a cost" in picture(app)


async def test_stored_runs_that_make_a_pair_are_offered_and_enter_compares_the_first(
    db: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(db.parent)
    app = make_app()
    async with app.run_test(size=(80, 24)) as pilot:
        screen = await opened(pilot, CompareScreen)
        shown = picture(app)
        assert "enter takes the first pair" in shown
        command = re.search(r"\$ gputui compare (\S+) (\S+)", shown)
        assert command is not None
        await press(pilot, "enter")
        assert screen.level == "rows"
        assert screen._words == command.groups()
        await press(pilot, "escape")
        assert app.screen is not screen


async def test_times_costs_and_shares_take_the_place_of_rates_and_all_is_saved_against_the_chosen_baseline(
    db: Path, tmp_path: Path
) -> None:
    path = tmp_path / "c.json"
    app = make_app()
    async with app.run_test(size=(200, 30)) as pilot:
        await opened(pilot, CompareScreen, f"{db}@cccc0001", f"{db}@cccc0002")
        rates = re.compile(r"40\.9k +25\.6k +tok/s")
        assert rates.search(picture(app))
        await press(pilot, "v")
        assert "a per step" in picture(app)
        assert "160 ms" in picture(app)
        await press(pilot, "v")
        assert "Gtok $2.85 $4.56 -38 %" in " ".join(picture(app).split())
        await press(pilot, "v")
        assert "a and b: power is read from GPUs only" in picture(app)
        await press(pilot, "V", "V", "V", "V")
        assert "a of the peak" in picture(app)
        assert "a and b: no peak is known for a CPU" in picture(app)
        await press(pilot, "v")
        assert rates.search(picture(app))
        await press(pilot, "b", "e")
        assert "name it *.md, *.csv, *.json, *.html" in picture(app)
        app.screen.query_one(Input).value = str(path)
        await press(pilot, "enter")
        assert f"saved the comparison in {path}"[:150] in picture(app)  # one line, cut with … if necessary
        (found,) = json.loads(path.read_text(encoding="utf-8"))["comparisons"]
        assert [found[side]["run"]["short_id"] for side in "ab"] == ["cccc0002", "cccc0001"]
        await press(pilot, "e")
        app.screen.query_one(Input).value = str(tmp_path / "c.txt")
        await press(pilot, "enter")
        assert "end it in .md, .csv, .json, .html" in picture(app)
