"""The screens of the app: when they are loaded, how to add one, and their docs."""

from __future__ import annotations

import importlib
import os
import re
import sys
from pathlib import Path
from time import monotonic

import pytest
from key_lists import list_of
from pty_harness import Terminal
from screen_goldens import FLOW, GPU_FLOW, SIZES, pictures, store_on_gpu, store_three
from shell_app import DEADLINE_S, make_app, picture, press, settled
from stored_runs import run_id_of, store

from gputui.cli import gputui
from gputui.recording.run_directory import Holder, take_lock
from gputui.services.support.paths import run_directories
from gputui.tui.monitor.model import MonitorModel
from gputui.tui.monitor.settings import MonitorSettings
from gputui.tui.screens.timeline import TimelinePage
from gputui.tui.shell import registry
from gputui.tui.shell.registry import SCREENS, ScreenEntry, header_line, load_screen, screen_at, screens_line
from gputui.tui.shell.shell_screen import ShellScreen


async def test_keys_typed_while_a_screen_is_being_opened_do_nothing() -> None:
    app = make_app()
    async with app.run_test(size=(80, 24)) as pilot:
        for entry in SCREENS:
            if entry.id in ("monitor", "run"):
                continue
            screen = load_screen(entry)
            assert isinstance(screen, ShellScreen)
            for action in screen.ACTIONS:
                assert not await app.run_action(f"press({action.id!r})", screen)
            app.push_screen(screen)
            await settled(pilot)
            assert screen.is_ready
            assert all(screen.check_action("press", (action.id,)) for action in screen.ACTIONS)


def test_every_key_of_a_screen_has_something_that_it_does() -> None:
    for entry in SCREENS[1:]:
        screen = load_screen(entry)
        assert isinstance(screen, ShellScreen)
        module = vars(sys.modules[type(screen).__module__])
        panes = [*(found for found in module.values() if isinstance(found, type)), TimelinePage]
        listed = module.get("DOES", {})
        assert set(listed) <= {one.id for one in screen.ACTIONS}
        named = [one for one in screen.ACTIONS if one.id not in listed]
        does = [(one.does or one.id.replace("-", "_")).partition("(")[0] for one in named]
        assert [name for name in does if not any(hasattr(pane, f"action_{name}") for pane in panes)] == []


def test_eight_screens_have_full_names_where_they_fit_three_letters_at_80_columns_and_keys_at_40(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    eight = [ScreenEntry(str(key), f"screen{key}", f"Screen {key}", f"Sc{key}", "") for key in range(1, 9)]
    monkeypatch.setattr(registry, "SCREENS", eight)
    made = MonitorModel(MonitorSettings(), title="a box of some name")
    made.screens = screens_line("screen3", 2)
    for width in range(40, 131):
        of_monitor = "".join(span.text for span in made.lines(width, 24, 1)[0])
        of_screen = "".join(span.text for span in header_line("screen3", "results", width, 2))
        shown = " 1  2 [3] 4  5  6  7  8 "
        if width >= 120:
            shown = " 1 Screen 1  2 Screen 2 [3 Screen 3] 4 Screen 4 "
        elif width >= 61:
            shown = " 1 Sc1  2 Sc2 [3 Sc3] 4 Sc4 "
        for first in (of_monitor, of_screen):
            assert len(first) == width
            assert shown in first
            if width >= 80:
                assert first.startswith("gputui  ")
                assert " 2 runs: 2 " in first or " 2 runs in progress: key 2 " in first
        start = width - (24 if width < 61 else 56 if width < 120 else 96)
        assert [screen_at(x, width) for x in (start - 1, start, width - 1)] == ["", "screen1", "screen8"]


async def test_keys_and_clicks_open_the_screens_help_closes_and_each_is_as_it_was_left() -> None:
    assert len({entry.key for entry in SCREENS}) == len({entry.id for entry in SCREENS}) == len(SCREENS)
    app = make_app()
    async with app.run_test(size=(80, 24)) as pilot:
        await settled(pilot)
        for entry in SCREENS:
            await press(pilot, entry.key)
            if entry.id != "monitor":
                assert f"[{entry.key} {entry.short}]" in picture(app)
        results = app.opened["results"]
        await press(pilot, "1", "3")
        assert app.screen is results
        line = "".join(span.text for span in header_line("monitor", "", 80))
        for name in ("Cmp", "Mon"):
            await pilot.click(offset=(line.index(name), 0))
            await settled(pilot)
            first = picture(app).partition("\n")[0]
            assert first.startswith("moving") if name == "Mon" else f"{name}]" in first
        await press(pilot, "question_mark")
        assert "Keys of every screen" in picture(app)
        await press(pilot, "escape")
        assert picture(app).startswith("moving")


async def test_a_run_in_progress_is_shown_on_every_screen_with_the_key_that_watches_it() -> None:
    run_dir = run_directories() / run_id_of(1)
    run_dir.mkdir(parents=True)
    holder = Holder.this_process("a.db", [run_dir])
    descriptor = take_lock(run_dir, holder)
    try:
        app = make_app()
        async with app.run_test(size=(120, 24)) as pilot:
            await press(pilot, "3")
            until = monotonic() + DEADLINE_S
            while not app.runs_in_progress:
                assert monotonic() < until
                await pilot.pause()
            for key in ("3", "4"):
                await press(pilot, key)
                assert "1 run in progress: key 2" in picture(app).partition("\n")[0]
    finally:
        os.close(descriptor)


def test_a_user_who_leaves_is_told_in_the_shell_that_a_run_goes_on(repository: Path) -> None:
    run_dir = run_directories() / run_id_of(1)
    run_dir.mkdir(parents=True)
    descriptor = take_lock(run_dir, Holder.this_process("a.db", [run_dir]))
    try:
        environment = {"PYTHONPATH": str(repository), "PYTHONUTF8": "1"}
        with Terminal([sys.executable, "-m", "gputui"], environment=environment) as terminal:
            terminal.wait_for("1 run")
            terminal.type(b"q")
            assert terminal.ended() == 0
            message = b"gputui: 1 run goes on; to see it again: gputui, or gputui attach"
            terminal.wait_for(lambda: message in terminal.raw)
    finally:
        os.close(descriptor)


@pytest.mark.slow
async def test_every_picture_of_every_screen_is_ascii_where_nothing_else_can_be_shown(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    db = store_three(tmp_path)
    store_on_gpu(db)
    monkeypatch.setenv("GPUTUI_DB", str(db))
    monkeypatch.setenv("GPUTUI_ASCII", "1")
    taken = await pictures(*SIZES[0], ascii_only=True)
    assert len(taken) == len(FLOW) + len(GPU_FLOW)
    for name, text in taken.items():
        assert text.isascii(), (name, [line for line in text.split("\n") if not line.isascii()])


async def test_questions_help_and_labels_are_ascii_where_nothing_else_can_be_shown(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    db = tmp_path / "a.db"
    monkeypatch.setenv("GPUTUI_DB", str(db))
    monkeypatch.setenv("GPUTUI_ASCII", "1")
    for number in (1, 2):
        store(db, number, label="温度 · Größe")
    app = make_app(ascii_only=True)
    async with app.run_test(size=(80, 24)) as pilot:
        first = ("2", "d", "escape", "5", "3", "D", "n", "o", "escape", "slash", "escape", "question_mark")
        for keys in first:
            await press(pilot, keys)
            assert picture(app).isascii(), (keys, picture(app))
        assert "Keys of this screen" in picture(app)
        last = picture(app).splitlines()[-1]
        assert re.search(r"  [0-9]+ more v$", last), "there is no scrollbar that shows where the page goes on"
        await press(pilot, "end")
        assert " more v" not in picture(app)
        listed = ("escape", "enter", "escape", "space", "space")
        compared = ("c", "enter", "escape", "d", "escape", "t", "escape", "g", "escape", "o", "escape")
        for keys in (*listed, *compared, "N", "L"):
            await press(pilot, keys)
            assert picture(app).isascii(), (keys, picture(app))


@pytest.mark.parametrize("runs", [1, 12])
def test_a_narrow_first_line_says_less_about_runs_and_still_names_every_screen(runs: int) -> None:
    made = MonitorModel(MonitorSettings(), title="a box of some name")
    made.screens = screens_line("monitor", runs)
    for width in range(40, 60):
        of_monitor = "".join(span.text for span in made.lines(width, 24, 1)[0])
        of_screen = "".join(span.text for span in header_line("results", "runs", width, runs))
        names = 7 * len(SCREENS)
        last = f"{SCREENS[-1].key} {SCREENS[-1].short}" if width >= names + 5 else SCREENS[-1].key
        for first in (of_monitor, of_screen):
            assert len(first) == width
            assert first.rstrip(" ]").endswith(last)
            assert f"{runs} run" in first or width < names + 17


def test_keys_of_a_screen_are_declared_once_and_a_page_lists_them(repository: Path) -> None:
    others = {"monitor": "monitor.status", "app": "shell.registry", "run": "screens.run_form"}
    pages = [page.read_text(encoding="utf-8") for page in (repository / "docs").glob("*.md")]
    for name in (*(entry.id for entry in SCREENS), "app"):
        found = importlib.import_module(f"gputui.tui.{others.get(name, f'screens.{name}')}")
        actions = found.APP_ACTIONS if name == "app" else found.ACTIONS
        declared = [key for action in actions for key in action.key.split(",")]
        assert len(set(declared)) == len(declared)
        assert not set(declared) & {entry.key for entry in SCREENS}
        keys = list_of(actions)
        has_keys = any(keys in page for page in pages)
        assert has_keys, f"no page of docs/ has the keys of {name}:\n{keys}"


def test_the_readme_and_the_help_name_the_keys_of_all_screens(repository: Path) -> None:
    first, last = SCREENS[1].key, SCREENS[-1].key
    readme = (repository / "README.md").read_text(encoding="utf-8")
    keys, words = f"the keys `{first}` to `{last}`", f"keys {first} to {last}"
    wrong = [f"README.md: it should name {keys}"] if keys not in readme else []
    wrong += (
        [f"gputui/cli/__init__.py: the help should name {words}"] if words not in (gputui.help or "") else []
    )
    assert wrong == []
