"""The Results screen on real result files, by its keys."""

from __future__ import annotations

import re
import shutil
import threading
from pathlib import Path

import pytest
from command_line import gputui_here
from journals import GPU_MACHINE
from moving_lines import Ticking
from palettes import PLAIN
from screen_goldens import FOLDER, SIZES, pictures, store_on_gpu, store_three
from shell_app import make_app, opened, picture, press, rows_of, settled, until
from stored_runs import HOSTILE, run_id_of, store
from textual.pilot import Pilot
from textual.widget import Widget
from textual.widgets import Input

from gputui.services.support.paths import copies_directory
from gputui.store.locking import write_lock
from gputui.store.reading import open_result
from gputui.store.writing import remove_run
from gputui.tui.app import MonitorApp
from gputui.tui.screens.results import ResultsScreen
from gputui.tui.screens.results_panes import TABS
from gputui.tui.shell.shell_screen import AskText, Confirm
from gputui.tui.widgets.scrolled import LinesPage


def labels(db: Path) -> dict[str, str]:
    """Label by short id, as the file has it."""
    with open_result(db) as file:
        return {run.short_id: run.label for run in file.summaries()}


@pytest.fixture(scope="module")
def stored(tmp_path_factory: pytest.TempPathFactory) -> Path:
    db = store_three(tmp_path_factory.mktemp("stored"))
    store_on_gpu(db)
    return db


@pytest.fixture
def db(stored: Path, tmp_path: Path) -> Path:
    shutil.copy(stored.with_name("gpu.db"), tmp_path / "gpu.db")
    return Path(shutil.copy(stored, tmp_path / "a.db"))


@pytest.mark.parametrize(
    "size",
    [SIZES[0], *(pytest.param(size, marks=pytest.mark.slow) for size in SIZES[1:])],
    ids=lambda size: f"{size[0]}x{size[1]}",
)
async def test_the_screens_are_as_the_pictures_say_and_no_state_is_told_by_its_colour_alone(
    size: tuple[int, int], db: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("GPUTUI_DB", str(db))
    only_by_colour: list[str] = []
    for name, text in (await pictures(*size, only_by_colour=only_by_colour)).items():
        assert text == (FOLDER / f"{name}.txt").read_text(encoding="utf-8"), (
            f"{name}: python tests/makers/goldens.py makes it anew; look at it"
        )
    assert only_by_colour == []


async def test_without_a_file_it_says_how_to_make_one_and_later_leads_to_the_runs_and_to_where_one_was(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "here").mkdir()
    monkeypatch.chdir(tmp_path / "here")
    monkeypatch.setenv("GPUTUI_DB", str(tmp_path / "default" / "results.db"))
    app = make_app()
    async with app.run_test(size=(120, 24)) as pilot:
        await press(pilot, "3")
        shown = picture(app)
        assert "No runs yet." in shown
        assert "gputui run quick" in shown
        assert "press 2" in shown
        await press(pilot, "1")
        (tmp_path / "default").mkdir()
        store(tmp_path / "default" / "results.db", 1)
        await press(pilot, "3")
        assert "results.db: 1 run" in picture(app)
        await press(pilot, "escape", "1")
        store(tmp_path / "here" / "newer.db", 2)
        await press(pilot, "3")
        assert "result files" in picture(app)
        assert "newer.db" in picture(app)
        assert "results.db (default)" in picture(app)
        await press(pilot, "enter")
        assert "results.db: 1 run" in picture(app), "the cursor stays on its file"
        await press(pilot, "enter", "1", "3")
        screen = app.screen
        assert isinstance(screen, ResultsScreen)
        levels = [screen.level]
        while isinstance(app.screen, ResultsScreen):
            levels.append(app.screen.level)
            await press(pilot, "escape")
        assert levels == ["run", "run", "runs", "files"]


async def test_a_path_is_opened_by_typing_it_and_one_that_cannot_be_is_reported_and_not_listed(
    db: Path,
) -> None:
    (db.parent / "words.txt").write_text("no database")
    app = make_app()
    async with app.run_test(size=(100, 24)) as pilot:
        screen = await opened(pilot, ResultsScreen)
        for name, seen in (
            ("b.db", "there is no result file"),
            ("words.txt", "not a gputui result file"),
            ("a.db", "3 runs"),
        ):
            await press(pilot, "o")
            assert isinstance(app.screen, AskText)
            app.screen.query_one(Input).value = str(db.parent / name)
            await press(pilot, "enter")
            assert seen in " ".join(picture(app).split())
        assert screen.level == "runs"
        await press(pilot, "escape")
        assert "a.db" in picture(app)
        assert "words.txt" not in picture(app)


async def test_a_notice_is_drawn_even_if_textual_reports_no_size_because_the_layout_was_read_in_between(
    db: Path,
) -> None:
    app = make_app()
    async with app.run_test(size=(100, 24)) as pilot:
        screen = await opened(pilot, ResultsScreen, str(db))
        page = screen.query_one("#notice", LinesPage)
        screen._fail("gone.db", "files", "there is no result file", "record one")
        screen._compositor.update_widgets({page})  # Textual draws what was refreshed before it lays out
        for widget in screen.walk_children(Widget):
            assert widget.size is not None  # each has Textual lay out all of them, without events
        await settled(pilot)
        assert page.size.width == 100
        assert "there is no result file" in picture(app)


async def test_what_changed_while_another_screen_was_shown_is_seen_and_marks_and_cursor_stay(
    db: Path,
) -> None:
    app = make_app()
    async with app.run_test(size=(100, 24)) as pilot:
        screen = await opened(pilot, ResultsScreen, str(db))
        await press(pilot, "down", "space", "1")
        store(db, 4, label="newest")
        await press(pilot, "3")
        assert "4 runs, 1 marked" in picture(app)
        assert "newest" in picture(app)
        here = screen._runs.here
        assert here is not None
        await press(pilot, "1", "3")
        assert screen._runs.here == here
        await press(pilot, "1")
        db.unlink()
        await press(pilot, "3")
        await until(pilot, lambda: "there is no result file" in " ".join(picture(app).split()))
        assert picture(app).startswith("gputui  a.db ")
        await pilot.resize_terminal(40, 12)
        await settled(pilot)
        assert "there is no result file" in " ".join(picture(app).split())
        await press(pilot, "escape")
        assert "No runs yet." in picture(app)
        await press(pilot, "escape")
        assert app.screen is not screen


async def test_runs_are_filtered_copied_labelled_and_removed_only_after_yes(db: Path) -> None:
    app = make_app()
    async with app.run_test(size=(120, 24)) as pilot:
        await opened(pilot, ResultsScreen, str(db))
        await press(pilot, "slash", *"h200")
        assert "cccc0003" in picture(app)
        assert "cccc0001" not in picture(app)
        await press(pilot, "enter", "escape", "y")
        assert "copied, if this terminal has a clipboard" in picture(app)
        copied = copies_directory() / "copied.txt"
        heading, *rows = copied.read_text(encoding="utf-8").splitlines()
        assert heading.split("\t")[:3] == ["run", "when", "label"]
        assert [row.split("\t")[0] for row in rows] == ["cccc0003", "cccc0002", "cccc0001"]
        await press(pilot, "enter", "y", "escape")
        assert "run id 0194b5a0-0000-7000-8000-0000cccc0003" in copied.read_text(encoding="utf-8")
        for text, seen in (("latest", "is not a label"), ("baseline", "cccc0003 is now baseline")):
            await press(pilot, "l")
            assert isinstance(app.screen, AskText)
            app.screen.query_one(Input).value = text
            await press(pilot, "enter")
            assert seen in picture(app)
        assert labels(db)["cccc0003"] == "baseline"
        for refusal in ("n", "escape", "enter"):
            await press(pilot, "D")
            assert isinstance(app.screen, Confirm)
            assert "Remove run cccc0003" in picture(app)
            inside = [line for line in picture(app).splitlines() if line.count("│") == 2 and "y yes" in line]
            assert inside[0].partition("│")[0].endswith("  "), "words of the screen below touch the frame"
            await press(pilot, refusal)
            assert "cccc0003" in labels(db)
        await press(pilot, "D", "y")
        assert set(labels(db)) == {"cccc0001", "cccc0002"}
        assert "removed cccc0003 in a.db" in picture(app)
        assert "2 runs" in picture(app)
        remove_run(db, run_id_of(2))  # somebody else
        await press(pilot, "D")
        label = HOSTILE.replace("\x1b", r"\x1b")
        assert label in " ".join(picture(app).replace("│", " ").split())
        await press(pilot, "y")
        assert "run cccc0002 is no longer in" in picture(app)
        await press(pilot, "r")
        assert "1 run" in picture(app)


async def test_cursor_and_selection_of_a_field_show_also_without_colours(db: Path) -> None:
    app = make_app(palette=PLAIN)
    async with app.run_test(size=(80, 24)) as pilot:
        await opened(pilot, ResultsScreen, str(db))
        for keys in (("o",), ("escape", "slash")):
            await press(pilot, *keys)
            reversed_cells = [(text, style) for row in rows_of(app) for text, style in row if style.reverse]
            cursor = next(style for text, style in reversed_cells if len(text) == 1)
            assert all(colour is None or colour.is_default for colour in (cursor.color, cursor.bgcolor))
            await press(pilot, "a", "b", "shift+home")
            shown = "".join(text for row in rows_of(app) for text, style in row if style.reverse)
            assert "ab" in shown


def top_of(app: MonitorApp) -> list[str]:
    """The lines of the timeline that stay: the cursor, the axis of time, and what was timed."""
    return picture(app).splitlines()[3:6]


async def test_a_part_of_the_timeline_is_chosen_by_keys_and_read_again(db: Path) -> None:
    app = make_app()
    async with app.run_test(size=(120, 40)) as pilot:
        await opened(pilot, ResultsScreen, f"{db.with_name('gpu.db')}@latest")
        await press(pilot, "shift+tab")
        assert top_of(app)[0].startswith("cursor 16.0 s   GPT training cpu fp32, launch 2, block ")
        assert top_of(app)[1].split() == ["0.0", "s", "26.0", "s"]
        await press(pilot, "plus", "plus")
        assert [float(word) for word in top_of(app)[1].split()[::2]] == pytest.approx([12.0, 18.5], abs=0.1)
        assert top_of(app)[0].startswith("cursor 16.0 s ")
        await press(pilot, "minus", "minus", "n")
        assert top_of(app)[0].startswith("cursor 19.2 s   matmul gpu fp32, launch 3, block 1 of 6: ")
        before = top_of(app)
        await press(pilot, "0", "left", "right", "right_square_bracket")
        assert top_of(app)[1].split() == ["0.0", "s", "26.0", "s"]
        assert top_of(app)[0] != before[0]
        await pilot.click(offset=(9, 10))
        assert top_of(app)[0].startswith("cursor 0.1 s   nothing was timed")
        await pilot.click(offset=(5, 10))
        assert top_of(app)[0].startswith("cursor 0.1 s ")
        db.with_name("gpu.db").unlink()
        await press(pilot, "plus")
        assert "there is no result file" in picture(app)
        assert "GPU 0" in picture(app), "what was loaded stays"


async def test_enter_leads_from_a_case_and_from_the_timeline_to_its_step_and_esc_back(db: Path) -> None:
    app = make_app()
    async with app.run_test(size=(120, 40)) as pilot:
        screen = await opened(pilot, ResultsScreen, f"{db.with_name('gpu.db')}@latest")
        await press(pilot, "tab", "enter")
        assert screen._run.tab == "step"
        shown = picture(app)
        assert "matmul mini gpu fp32: not profiled: it has no profiled pass" in shown
        assert "gputui run quick --trace --only gemm" in shown
        assert "launches of matmul mini gpu fp32" in shown
        assert len(re.findall(r" \d  107 GFLOP/s", shown)) == 3
        await press(pilot, "escape")
        assert screen._run.tab == "cases"
        await press(pilot, "shift+tab", "shift+tab")
        before = top_of(app)
        assert "GPT training cpu fp32" in before[0]
        await press(pilot, "enter")
        assert screen._run.tab == "step"
        assert "a step of GPT training" in picture(app)
        await press(pilot, "escape")
        assert top_of(app) == before, "the cursor and the part that is shown are kept"
        await press(pilot, "escape")
        assert screen.level == "runs"


async def test_a_run_that_is_named_opens_at_once_with_what_show_prints_on_pages_that_fit_any_screen(
    db: Path,
) -> None:
    app = make_app()
    async with app.run_test(size=(120, 40)) as pilot:
        screen = await opened(pilot, ResultsScreen, f"{db}@fast box")
        assert "cccc0001 fast box" in picture(app)
        before, _, _ = " ".join(gputui_here("show", "fast box", db, "--all").stdout.split()).partition(
            "case ("
        )
        assert " ".join(screen._run.page.text.split()).startswith(before)
        await pilot.resize_terminal(40, 10)
        await settled(pilot)
        pages = set()
        for _ in TABS:
            assert screen.level == "run"
            pages.add(app.screen.focused.text)  # type: ignore[union-attr]
            assert " Timeline" in picture(app)
            assert "esc Back" in picture(app)
            await press(pilot, "end", "tab")
        assert len(pages) == len(TABS)
        for _ in range(3):
            await press(pilot, "escape")
        assert app.screen is not screen


async def test_what_the_selected_run_says_stands_below_the_list_and_a_step_can_be_gone_through(
    tmp_path: Path,
) -> None:
    for number in (1, 2):
        store(tmp_path / "a.db", number, label=f"v100_resnet50_loader{number}", profiled_cases=(0, 1))
    app = make_app()
    async with app.run_test(size=(80, 24)) as pilot:
        await opened(pilot, ResultsScreen, str(tmp_path / "a.db"))
        assert "v100_re…oader1" in picture(app)
        assert "v100_re…oader2" in picture(app)
        await press(pilot, "down")
        assert "run cccc0001 (v100_resnet50_loader1): quick" in picture(app)
        await press(pilot, "enter", "tab", "tab")
        assert "GPT training mini cpu fp32 all cores  (case 1 of 2)" in picture(app), "that of the headline"
        await press(pilot, "n")
        assert "matmul mini cpu fp32 all cores  (case 2 of 2)" in picture(app)
        await press(pilot, "p")
        assert "(case 1 of 2)" in picture(app)
        assert isinstance(app._feed, Ticking)
        app._feed.tick()
        await pilot.pause()
        assert app.monitor._model.samples == 1, "the monitor goes on"  # type: ignore[attr-defined]
        await press(pilot, "1")
        assert picture(app).startswith("moving 80x24 samples ")


async def test_each_tab_is_saved_under_the_offered_name_and_replaced_after_yes_and_obstacles_are_reported(
    db: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "here").mkdir()
    monkeypatch.chdir(tmp_path / "here")
    path = tmp_path / "cases.json"
    path.write_text("mine")
    app = make_app()
    async with app.run_test(size=(200, 50)) as pilot:
        await opened(pilot, ResultsScreen, f"{db}@cccc0001")
        await press(pilot, "tab", "e")
        assert "Save the cases as .csv or .json; the Chrome trace as .json.gz" in picture(app)
        await press(pilot, "enter")
        assert "saved 3 rows" in picture(app)
        assert "is already there. Replace it?" in await save_as(pilot, path)
        await press(pilot, "n")
        assert path.read_text() == "mine"
        assert f"saved 3 rows in {path}"[:150] in await save_as(pilot, path, "y")
        assert path.read_text().startswith("{")
        for name, message in (
            ("no/cases.csv", f"there is no directory {tmp_path / 'no'}: create it"),
            ("cases.xlsx", "end its name in .csv or .json"),
            ("trace.json.gz", "this run kept no Chrome trace: gputui run quick --trace"),
        ):
            assert message[:150] in await save_as(pilot, tmp_path / name)  # of a long path one line is shown
        for _ in TABS[2:]:
            await press(pilot, "tab", "e", "enter")
            assert "saved " in picture(app)
        await press(pilot, "escape", "e", "enter")
        assert "saved 3 rows" in picture(app)
    rows = Path("cccc0001-cases.csv").read_text(encoding="utf-8").splitlines()[1:]
    assert [row.split(",")[1] for row in rows] == ["gemm", "gpt_train", "conv_train"]
    case = "gpt_train-mini-cpu-fp32-all-cores"
    names = ["cccc0001-cases.csv", f"cccc0001-operators-{case}.csv", "cccc0001-telemetry.csv", "runs.csv"]
    assert sorted(path.name for path in Path.cwd().iterdir()) == names


async def save_as(pilot: Pilot[int], path: Path, *then: str) -> str:
    """Press e, type a path, answer, and return the screen without its lines and edges."""
    await press(pilot, "e")
    pilot.app.screen.query_one(Input).value = str(path)
    await press(pilot, "enter", *then)
    assert isinstance(pilot.app, MonitorApp)
    return " ".join(picture(pilot.app).replace("│", " ").split())


async def test_where_nothing_can_be_saved_no_name_is_requested_and_the_only_trace_of_a_run_is_saved(
    tmp_path: Path,
) -> None:
    run_id = store(tmp_path / "a.db", 1, machine=GPU_MACHINE, profiled=False)
    trace = tmp_path / "a-traces" / f"{run_id[-8:]}-gemm.json.gz"
    trace.parent.mkdir()
    trace.write_bytes(b"a trace")
    app = make_app()
    async with app.run_test(size=(80, 24)) as pilot:
        await opened(pilot, ResultsScreen, str(tmp_path / "a.db"))
        await press(pilot, "slash", *"no such run", "enter", "e")
        assert "there is nothing to save here: no row is shown" in picture(app)
        await opened(pilot, ResultsScreen, f"{tmp_path / 'a.db'}@latest")
        await save_as(pilot, tmp_path / "t.json.gz")
        await press(pilot, "o", *"/no.db", "enter", "e")
        assert "there is nothing to save here: no run is shown" in picture(app)
    assert (tmp_path / "t.json.gz").read_bytes() == b"a trace"


async def test_a_file_that_takes_long_is_given_up_by_esc_and_the_app_leaves_at_once(
    db: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("gputui.store.locking.WAIT_S", 300.0)
    app = make_app()
    with write_lock(db):  # somebody writes: a reader waits in line
        async with app.run_test(size=(80, 24)) as pilot:
            await settled(pilot)
            app.open_screen("results", (str(db),))
            await pilot.pause()
            screen = app.screen
            assert isinstance(screen, ResultsScreen)
            assert screen.is_busy
            await pilot.press("escape")
            await pilot.pause()
            assert not screen.is_busy
            assert "cancelled" in picture(app)
            app.open_screen("results", (str(db),))
            await pilot.press("q")
        assert app.return_value == 0
        readers = [thread for thread in threading.enumerate() if thread.name == "gputui-job"]
        assert readers  # the app did not wait for them
    for reader in readers:
        reader.join()
