"""The palette: screens, keys, runs, files, GPUs, profiles and pages, found by a few letters."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable
from pathlib import Path

from monitor_golden import model
from monitor_samples import sample
from pty_harness import Terminal
from shell_app import make_app, picture, press, settled, until
from stored_runs import store
from textual.pilot import Pilot
from textual.widgets import Input

from gputui.services.support.paths import monitor_file
from gputui.tui.monitor.settings import load_settings
from gputui.tui.screens.results import ACTIONS as RESULTS_ACTIONS
from gputui.tui.screens.run import RunScreen
from gputui.tui.shell.on_top import PageScreen, Palette, matching
from gputui.tui.shell.registry import APP_ACTIONS, SCREENS_ACTIONS, Action
from gputui.tui.widgets.scrolled import TableList

SORT = Action("a", "a", "Sort", "By the next column")
MARK = Action("b", "b", "Mark", "Mark a run to sort it out")
DOWN = Action("c", "down,j", "Down", "The next line")
DOCTOR = Action("d", "5", "Doctor", "See whether this box can measure")
PAGE = Action("", "", "docs sorting", "Sort out; Mark")


def titles(query: str, *actions: Action, used: tuple[str, ...] = ()) -> list[str]:
    return [
        action.title for action, _ in matching([(action, lambda: None) for action in actions], query, used)
    ]


def keys_of(letters: str) -> list[str]:
    names = {" ": "space", ".": "full_stop"}
    return [names.get(letter, letter) for letter in letters]


def first(pilot: Pilot[int]) -> str:
    """The title in the first row."""
    palette = pilot.app.screen
    assert isinstance(palette, Palette)
    return palette._shown[0][0].title if palette._shown else ""


async def opened(pilot: Pilot[int], last: str = "docs traces") -> Palette:
    """The palette, when it has read what it finds besides keys."""
    await press(pilot, "ctrl+p")
    palette = pilot.app.screen
    assert isinstance(palette, Palette)
    await until(pilot, lambda: any(action.title == last for action, _ in palette._shown))
    return palette


def test_titles_that_begin_with_the_words_come_first_then_words_in_titles_then_in_sentences() -> None:
    actions = (MARK, PAGE, SORT, DOCTOR)
    assert titles("sort", *actions) == ["Sort", "docs sorting", "Mark"]
    assert titles("run mark", *actions) == ["Mark"]
    assert titles("nothing of that", *actions) == []
    assert titles("", *actions) == ["Mark", "docs sorting", "Sort", "Doctor"]


def test_cursor_keys_come_last_and_what_was_chosen_before_comes_first_among_equals() -> None:
    assert titles("do", DOWN, PAGE, DOCTOR) == ["docs sorting", "Doctor", "Down"]
    assert titles("do", DOWN, PAGE, DOCTOR, used=("5\tDoctor",)) == ["Doctor", "docs sorting", "Down"]
    used = ("b\tMark", "a\tSort")
    assert titles("", SORT, DOCTOR, MARK, used=used) == ["Mark", "Sort", "Doctor"]
    assert titles("so", SORT, MARK, used=used) == ["Sort", "Mark"]


INTENTS = {
    "doct": "Doctor",
    "do": "Doctor",
    "comp": "Compare",
    "run ": "Run",
    "resu": "Results",
    "moni": "Monitor",
    "quic": "run quick",
    "llm": "run llm",
    "burn": "run burn-in",
    "gpu ": "GPU 0 H200 SXM",
    "cccc": "run cccc0002 quick blue",
    "gree": "run cccc0001 quick green",
    "a.db": "file a.db",
    "help": "Help",
    "quit": "Quit",
    "paus": "Pause",
    "noti": "Notify",
    "filt": "Filter",
    "log": "Log",
    "demo": "Demo",
    "deta": "Details",
    "meas": "docs measuring",
    "serv": "docs serving",
    "sql": "docs sql",
    "term": "docs terminals",
}


async def test_what_people_want_is_found_by_four_letters_and_opens_where_it_is_shown() -> None:
    for number, label in ((1, "green"), (2, "blue")):
        store(Path("a.db"), number, label=label)
    made = model(lambda second: sample(8, second), seconds=2)
    app = make_app(model=made)
    async with app.run_test(size=(120, 40)) as pilot:

        async def choose(letters: str, shows: str | Callable[[], bool]) -> None:
            await opened(pilot)
            await press(pilot, *keys_of(letters), "enter")
            await until(pilot, (lambda: shows in picture(app)) if isinstance(shows, str) else shows)

        await settled(pilot)
        await choose("a.db", "[3 Results]")
        await until(pilot, lambda: "green" in picture(app))
        app.open_screen("monitor")
        palette = await opened(pilot)
        found = {letters: matching(palette._choices, letters)[0][0].title for letters in INTENTS}
        assert found == INTENTS
        await press(pilot, "escape")
        await choose("gree", "Overview")
        await choose("llm", lambda: isinstance(app.screen, RunScreen))
        run = app.screen
        assert isinstance(run, RunScreen)
        await until(pilot, lambda: run.form.profile_name == "llm")
        await press(pilot, "escape")
        await choose("measuring", "How gputui measures and judges")
        assert isinstance(app.screen, PageScreen)
        await press(pilot, "escape")
        await choose("gpu 5", "─ 5 H200 SXM ── details ─")
        assert app.screen_stack == [app.monitor]


async def test_enter_does_what_was_found_and_puts_it_first_the_next_time_and_esc_does_nothing() -> None:
    app = make_app()
    async with app.run_test(size=(80, 24)) as pilot:
        await settled(pilot)
        await press(pilot, "ctrl+p", *"do", "enter")
        assert "[5 Doc]" in picture(app)
        assert app.used == ["5\tDoctor"]
        await press(pilot, "ctrl+p")
        assert first(pilot) == "Doctor"
        await press(pilot, *"zzz", "enter")
        assert "[5 Doc]" in picture(app)
        await press(pilot, "ctrl+p", "escape")
        assert not isinstance(app.screen, Palette)
        await press(pilot, "ctrl+p", *"look", "down", "up", "enter")
        assert " driver " in picture(app)
        await press(pilot, "ctrl+p", *"help", "enter")
        assert "Keys of this screen" in picture(app)
        assert app.used[0] == "?\tHelp"


async def test_keys_of_the_screen_of_the_app_and_of_screens_are_there_and_a_cut_sentence_is_shown_whole() -> (
    None
):
    app = make_app()
    async with app.run_test(size=(80, 60)) as pilot:
        await press(pilot, "3")
        palette = await opened(pilot)
        held = {action.title for action, _ in palette._shown}
        actions = (*RESULTS_ACTIONS, *SCREENS_ACTIONS, *APP_ACTIONS)
        assert held >= {action.title for action in actions if action.id != "palette"}
        table = app.screen.query_one(TableList)
        long = max(range(len(RESULTS_ACTIONS)), key=lambda place: len(palette._shown[place][0].sentence))
        await press(pilot, *["down"] * long)
        assert table.key == long
        action, shown = palette._shown[long][0], picture(app)
        row = next(line for line in shown.splitlines() if f"  {action.title}  " in line)
        assert action.sentence not in row
        assert "…" in row
        framed = [line.strip("│ ") for line in shown.splitlines() if line.lstrip().startswith("│")]
        assert action.sentence in " ".join(" ".join(framed[-5:]).split())
        await press(pilot, *"zzz")
        assert "Nothing fits" in picture(app)
        await press(pilot, *["backspace"] * 3, *"no", "full_stop", *"db")
        assert "There is no no.db here" in picture(app)


async def test_the_palette_opens_on_every_screen_and_not_over_help() -> None:
    app = make_app()
    async with app.run_test(size=(80, 24)) as pilot:
        for screen in "12345":
            await press(pilot, screen, "ctrl+p")
            assert isinstance(app.screen, Palette)
            await press(pilot, "ctrl+p")
            assert not isinstance(app.screen, Palette)
        await press(pilot, "question_mark", "ctrl+p")
        assert isinstance(app.screen, PageScreen)
        assert "Keys of " in picture(app)


async def test_nothing_raw_of_a_name_reaches_the_terminal_and_an_unreadable_file_is_listed() -> None:
    store(Path("a.db"), 1, label="\x1b[31mred\tlabel")
    for name in ("\x1b[31mevil\t.db", "b.db"):
        Path(name).write_text("not a database")
        os.utime(name, (0, 0))  # runs are those of the file that changed last
    app = make_app()
    async with app.run_test(size=(80, 24)) as pilot:
        palette = await opened(pilot)
        for letters, seen in (("evil", "evil"), ("cccc", "red"), ("b.db", "file b.db")):
            app.screen.query_one(Input).value = letters
            await pilot.pause()
            shown = picture(app)
            assert seen in shown
            assert "\x1b" not in shown
            assert "\t" not in shown
        assert palette._shown[0][0].title == "file b.db"
        await press(pilot, "enter")
        await until(pilot, lambda: "not a DuckDB database" in picture(app))


def test_a_burst_of_keys_opens_doctor_and_the_choice_is_kept(repository: Path) -> None:
    environment = {"PYTHONPATH": str(repository), "PYTHONUTF8": "1"}
    with Terminal([sys.executable, "-m", "gputui"], environment=environment) as terminal:
        terminal.wait_for("[1 Mon]")
        terminal.type(b"\x10do\r")
        terminal.wait_for("[5 Doc]")
        terminal.type(b"q")
        assert terminal.ended() == 0
    settings, complaint = load_settings(monitor_file())
    assert settings.palette == ("5\tDoctor",)
    assert complaint == ""
