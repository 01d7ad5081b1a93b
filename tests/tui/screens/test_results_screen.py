"""The Results screen on real result files, by its keys."""

from __future__ import annotations

import re
import shutil
import sys
import threading
from dataclasses import replace
from pathlib import Path

import pytest
from chrome_traces import write_training
from hand_made import make_case, measured
from journals import CPU_MACHINE, GPU_MACHINE
from moving_lines import Ticking
from palettes import INDEXED, PLAIN, SIXTEEN
from pty_harness import Terminal
from screen_goldens import FOLDER, SIZES, pictures, store_on_gpu, store_three
from shell_app import make_app, picture, press, rows_of, settled
from stored_loads import Server, store_loads
from stored_runs import HOSTILE, passed, run_id_of, store
from textual.pilot import Pilot
from textual.widgets import Input

from gputui.document.theme import Palette
from gputui.model.absent import Missing
from gputui.recording.worker_process import log_of
from gputui.services.results.step_breakdown import breakdown_of
from gputui.services.support.paths import copies_directory, run_directories
from gputui.services.traces.imported import contents_of, read_run
from gputui.store.locking import write_lock
from gputui.store.reading import open_result
from gputui.store.writing import remove_run, store_run
from gputui.tui.app import MonitorApp
from gputui.tui.screens.results.overview import step_lines
from gputui.tui.screens.results.run_pane import OF_A_CASE, TABS
from gputui.tui.screens.results.screen import ACTIONS, ResultsScreen
from gputui.tui.screens.results.tables import GROUPS, chosen_operators
from gputui.tui.screens.results.timeline import LEAD, lane_cells
from gputui.tui.shell.registry import SCREENS
from gputui.tui.shell.shell_screen import AskText, Confirm


def labels(db: Path) -> dict[str, str]:
    """Label by short id, as the file has it."""
    with open_result(db) as file:
        return {run.short_id: run.label for run in file.summaries()}


async def opened(pilot: Pilot[int], *words: str) -> ResultsScreen:
    """The Results screen, once it has read its first file."""
    await settled(pilot)
    assert isinstance(pilot.app, MonitorApp)
    pilot.app.open_screen("results", words)
    await settled(pilot)
    screen = pilot.app.screen
    assert isinstance(screen, ResultsScreen)
    return screen


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


async def test_without_any_file_the_screen_says_how_to_make_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    app = make_app()
    async with app.run_test(size=(80, 24)) as pilot:
        await opened(pilot)
        shown = picture(app)
        assert "No runs yet." in shown
        assert "gputui run quick" in shown
        assert ("press 2" in shown) is any(entry.id == "run" for entry in SCREENS)


async def test_files_of_the_data_directory_and_of_the_working_directory_are_listed(
    db: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "here").mkdir()
    store(tmp_path / "here" / "mine.duckdb", 4)
    monkeypatch.chdir(tmp_path / "here")
    monkeypatch.setenv("GPUTUI_DB", str(db))
    app = make_app()
    async with app.run_test(size=(120, 24)) as pilot:
        screen = await opened(pilot)
        await press(pilot, "escape")
        assert screen.level == "files"
        shown = picture(app)
        assert "a.db (default)" in shown
        assert "mine.duckdb" in shown


async def test_a_path_is_opened_by_typing_it_and_an_unreadable_one_is_reported_where_it_was_asked_for(
    db: Path,
) -> None:
    app = make_app()
    async with app.run_test(size=(100, 24)) as pilot:
        screen = await opened(pilot)
        for path, seen in ((str(db.parent / "b.db"), "there is no result file"), (str(db), "3 runs by when")):
            await press(pilot, "o")
            assert isinstance(app.screen, AskText)
            app.screen.query_one(Input).value = path
            await press(pilot, "enter")
            assert seen in " ".join(picture(app).split())
        assert screen.level == "runs"


async def test_what_was_stored_while_another_screen_was_shown_is_there_and_marks_and_cursor_stay(
    db: Path,
) -> None:
    app = make_app()
    async with app.run_test(size=(100, 24)) as pilot:
        screen = await opened(pilot, str(db))
        await press(pilot, "down", "space", "1")
        store(db, 4, label="newest")
        await press(pilot, "3")
        shown = picture(app)
        assert "4 runs by when, 1 marked" in shown
        assert "newest" in shown
        here = screen._run_here
        assert here is not None
        await press(pilot, "1", "3")
        assert screen._run_here == here


async def test_the_key_of_the_screen_leads_to_the_first_runs_once_there_are_some_then_to_where_one_was(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "here").mkdir()
    monkeypatch.chdir(tmp_path / "here")
    monkeypatch.setenv("GPUTUI_DB", str(tmp_path / "default" / "results.db"))
    app = make_app()
    async with app.run_test(size=(120, 24)) as pilot:
        await press(pilot, "3")
        assert "No runs yet." in picture(app)
        await press(pilot, "1")
        (tmp_path / "default").mkdir()
        store(tmp_path / "default" / "results.db", 1)
        await press(pilot, "3")
        assert "results.db: 1 run by when" in picture(app)
        await press(pilot, "escape", "1")
        store(tmp_path / "here" / "newer.db", 2)
        await press(pilot, "3")
        assert "result files" in picture(app)
        assert "newer.db" in picture(app)
        await press(pilot, "enter")
        assert "results.db: 1 run by when" in picture(app), "the cursor stays on its file"
        await press(pilot, "enter", "1", "3")
        screen = app.screen
        assert isinstance(screen, ResultsScreen)
        assert screen.level == "run"


async def test_a_vanished_file_is_reported_and_esc_leads_to_the_files(db: Path) -> None:
    app = make_app()
    async with app.run_test(size=(100, 24)) as pilot:
        screen = await opened(pilot, str(db))
        await press(pilot, "1")
        db.unlink()
        await press(pilot, "3")
        assert "there is no result file" in " ".join(picture(app).split())
        assert picture(app).startswith("gputui  a.db ")
        await pilot.resize_terminal(40, 12)
        await settled(pilot)
        assert "there is no result file" in " ".join(picture(app).split())
        await press(pilot, "escape")
        assert "No runs yet." in picture(app)
        await press(pilot, "escape")
        assert app.screen is not screen


async def test_what_could_not_be_opened_is_not_among_the_files(db: Path) -> None:
    (db.parent / "words.txt").write_text("no database")
    app = make_app()
    async with app.run_test(size=(100, 24)) as pilot:
        await opened(pilot, str(db))
        await press(pilot, "o")
        app.screen.query_one(Input).value = str(db.parent / "words.txt")
        await press(pilot, "enter")
        assert "not a gputui result file" in " ".join(picture(app).split())
        await press(pilot, "escape")
        assert "a.db" in picture(app)
        assert "words.txt" not in picture(app)


async def test_runs_are_filtered_as_letters_are_typed_and_esc_shows_all_again(db: Path) -> None:
    app = make_app()
    async with app.run_test(size=(100, 24)) as pilot:
        await opened(pilot, str(db))
        await press(pilot, "slash", *"h200")
        assert "cccc0003" in picture(app)
        assert "cccc0001" not in picture(app)
        await press(pilot, "enter", "escape")
        assert "cccc0001" in picture(app)


async def test_runs_are_sorted_by_the_next_column_and_the_cursor_stays_on_its_run(db: Path) -> None:
    app = make_app()
    async with app.run_test(size=(100, 24)) as pilot:
        await opened(pilot, str(db))
        await press(pilot, "down", "down", "s")
        shown = picture(app)
        assert "by label" in shown
        assert shown.index("cccc0002") < shown.index("cccc0001") < shown.index("cccc0003")
        await press(pilot, "enter")
        assert "cccc0001 fast box" in picture(app)


async def test_a_run_is_removed_only_after_yes(db: Path) -> None:
    app = make_app()
    async with app.run_test(size=(100, 24)) as pilot:
        await opened(pilot, str(db))
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


async def test_a_run_that_somebody_else_removed_is_reported_and_nothing_breaks(db: Path) -> None:
    app = make_app()
    async with app.run_test(size=(120, 24)) as pilot:
        await opened(pilot, str(db))
        remove_run(db, run_id_of(3))
        await press(pilot, "D", "y")
        assert "run cccc0003 is no longer in" in picture(app)
        await press(pilot, "r")
        assert "2 runs" in picture(app)


async def test_a_label_is_given_and_one_that_cannot_be_is_refused_with_the_reason(db: Path) -> None:
    app = make_app()
    async with app.run_test(size=(120, 24)) as pilot:
        await opened(pilot, str(db))
        for text, seen in (("latest", "is not a label"), ("baseline", "cccc0003 is now baseline")):
            await press(pilot, "l")
            assert isinstance(app.screen, AskText)
            app.screen.query_one(Input).value = text
            await press(pilot, "enter")
            assert seen in picture(app)
        assert labels(db)["cccc0003"] == "baseline"


async def test_a_hostile_label_is_text_on_every_page(db: Path) -> None:
    app = make_app()
    async with app.run_test(size=(120, 40)) as pilot:
        await opened(pilot, f"{db}@cccc0002")
        label = HOSTILE.replace("\x1b", r"\x1b")
        for _ in TABS:
            assert label in picture(app)
            assert "\x1b" not in picture(app)
            await press(pilot, "tab")
        await press(pilot, "escape", "down")
        assert label in picture(app)
        await press(pilot, "D")
        assert label in " ".join(picture(app).replace("│", " ").split())


@pytest.mark.slow
async def test_every_page_of_every_run_is_drawn_in_ascii_where_nothing_else_can_be(db: Path) -> None:
    app = make_app(ascii_only=True)
    async with app.run_test(size=(80, 24)) as pilot:
        await opened(pilot, str(db))
        assert picture(app).isascii()
        for run in ("cccc0001", "cccc0003"):
            screen = await opened(pilot, f"{db}@{run}")
            for _ in TABS:
                assert picture(app).isascii(), screen.level
                await press(pilot, "tab")


async def test_operators_are_filtered_sorted_and_added_up(db: Path) -> None:
    app = make_app()
    async with app.run_test(size=(120, 24)) as pilot:
        await opened(pilot, f"{db}@cccc0001")
        await press(pilot, *["tab"] * 2, "slash", *"gemm", "enter")
        shown = picture(app)
        assert "linear" in shown
        assert "adamw" not in shown
        await press(pilot, "g")
        assert "matmul (2 rows)" in picture(app)
        await press(pilot, "g", "s")
        assert "by phase, sorted by calls, holding gemm" in picture(app)
        assert "backward (1 row)" in picture(app)


async def test_below_a_short_table_of_cases_stand_the_launches_of_the_selected_one(db: Path) -> None:
    app = make_app()
    async with app.run_test(size=(120, 40)) as pilot:
        await opened(pilot, f"{db}@cccc0001")
        await press(pilot, "tab")
        assert "── launches of matmul mini" in picture(app)
        await press(pilot, "down")
        shown = picture(app)
        assert "── launches of GPT training mini" in shown
        launches = [row for row in shown.splitlines() if re.match(r" +\d +40\.9k tok/s", row)]
        assert len(launches) == 3
        assert all(re.search(r" 6 +\+0\.2 % +up to 17 %", row) for row in launches)
        await press(pilot, "down")  # it was skipped
        shown = picture(app)
        assert "launches of" not in shown
        assert "skipped: no GPU in this machine" in shown
        await press(pilot, "tab")
        shown = picture(app)
        assert "a step of GPT training" in shown
        assert "sorted by time" in shown
        await pilot.resize_terminal(120, 23)
        await settled(pilot)
        assert "a step of GPT training" not in picture(app)


async def test_a_run_of_loads_has_no_column_for_steps_and_room_for_ranges(tmp_path: Path) -> None:
    store_loads(tmp_path / "serve.db", Server(), requests=50)
    app = make_app()
    async with app.run_test(size=(80, 24)) as pilot:
        await opened(pilot, f"{tmp_path / 'serve.db'}@latest")
        await press(pilot, "tab")
        shown = picture(app)
        assert "serve:chat 1 user" in shown
        assert "per step" not in shown
        assert re.search(r"TTFT median .* [\d.]+ ms to [\d.]+ ms, ", shown)
        await press(pilot, "down", "down", "down")
        assert "\nTTFT p99: needs 368 requests a launch\n" in picture(app)


async def test_what_is_shown_is_copied_as_text_and_the_place_is_named(db: Path) -> None:
    app = make_app()
    async with app.run_test(size=(200, 24)) as pilot:
        await opened(pilot, str(db))
        copied = copies_directory() / "copied.txt"
        await press(pilot, "y")
        assert "copied, if this terminal has a clipboard" in picture(app)
        heading, *rows = copied.read_text(encoding="utf-8").splitlines()
        assert heading.split("\t")[1:4] == ["run", "when", "label"]
        assert [row.split("\t")[1] for row in rows] == ["cccc0003", "cccc0002", "cccc0001"]
        await press(pilot, "enter", *["tab"] * 3, "y")
        assert "run id   0194b5a0-0000-7000-8000-0000cccc0003" in copied.read_text(encoding="utf-8")


async def test_what_is_cut_on_a_narrow_screen_is_marked_and_copied_whole(db: Path) -> None:
    app = make_app()
    async with app.run_test(size=(80, 24)) as pilot:
        await opened(pilot, f"{db}@cccc0001")
        await press(pilot, "tab")
        assert "no…" in picture(app)
        await press(pilot, "tab")
        shown = picture(app)
        await pilot.resize_terminal(120, 40)
        await settled(pilot)
        assert "scaled_dot_product_attention  " in picture(app)
        await pilot.resize_terminal(80, 24)
        await settled(pilot)
        assert picture(app) == shown
        assert "scaled_dot_pr…ct_attention" in shown
        assert "per step  share" in shown
        await press(pilot, "y")
        copied = (copies_directory() / "copied.txt").read_text(encoding="utf-8")
        assert "scaled_dot_product_attention\t" in copied
        assert "\t64x64,64x64" in copied
        await press(pilot, *["right"] * 12)
        shown = picture(app)
        assert "64x64,64x64" in shown
        assert all(line.startswith("…") for line in shown.splitlines()[3:8])


async def test_every_page_of_a_run_is_drawn_on_the_smallest_screen_and_esc_leads_back(db: Path) -> None:
    app = make_app()
    async with app.run_test(size=(40, 10)) as pilot:
        screen = await opened(pilot, f"{db}@cccc0001")
        pages = set()
        for _ in TABS:
            assert screen.level == "run"
            pages.add(app.screen.focused.text)  # type: ignore[union-attr]
            assert " Env" in picture(app)
            assert " Find" in picture(app)
            assert "esc Back" in picture(app)
            await press(pilot, "end", "tab")
        assert len(pages) == len(TABS)
        assert any("    median" in page and "  load " in page for page in pages)
        (memory,) = [page.split("\nmemory ")[1:] for page in pages if "memory that torch" in page]
        assert "weights" in memory[0]
        assert all("at peak" in table and "…" not in table for table in memory)
        for _ in range(3):
            await press(pilot, "escape")
        assert app.screen is not screen


async def test_the_last_words_of_a_worker_that_failed_stand_among_the_findings_where_its_log_is(
    tmp_path: Path,
) -> None:
    db = tmp_path / "failed.db"
    store(db, 7, log_tail="never stored")
    log = log_of(run_directories() / run_id_of(7), 0)
    app = make_app()

    async def findings() -> str:
        screen = await opened(pilot, f"{db}@latest")
        screen._pane.show_tab("findings")
        await settled(pilot)
        await press(pilot, "end")
        return "\n".join(line.removesuffix("▇").rstrip() for line in picture(app).split("\n"))

    async with app.run_test(size=(200, 50)) as pilot:
        page = await findings()
        assert "launch 1 of matmul mini cpu fp32 all cores: failed: it died" in " ".join(page.split())
        assert "logs stay on the machine that measured" in page
        assert "never stored" not in page
        log.parent.mkdir(parents=True)
        log.write_text("Traceback:\n  File gemm.py, in build\nOSError: \x1b[31mno 温度\u202e\n")
        page = await findings()
        assert "last words of workers" in page
        assert f"whole logs: {log.parent}" in "".join(page.split("\n"))
        assert "launch 1 of matmul mini cpu fp32 all cores: failed: it died" in " ".join(page.split())
        assert "    Traceback:\n      File gemm.py, in build\n    OSError: \\x1b[31mno 温度\\u202e\n" in page


async def test_a_run_that_is_named_opens_at_once_with_its_overview_the_answer_first(db: Path) -> None:
    app = make_app()
    async with app.run_test(size=(120, 40)) as pilot:
        screen = await opened(pilot, f"{db}@fast box")
        assert screen.level == "run"
        assert "cccc0001 fast box" in picture(app)
        page = screen._pane._page.text
        assert page.startswith("GPT training: 40.9k tok/s.")
        why = "A step takes 100 ms: 75 % is matmul in fp32. It reaches 20 % of this box's own matmul peak."
        assert why in " ".join(page.split())
        assert re.search(r"GPT training +40\.9k +tok/s +-\d+ to \+\d+ % ", page)
        assert "a step of GPT training mini cpu fp32 all cores  100 ms" in page
        assert "matmul 75 %" in page
        assert re.search(r"memory  1\.0 GiB +median, most 1\.0 GiB", page)
        assert "memory_used" not in page
        await press(pilot, "tab")
        assert screen._pane.tab == "cases"


def test_the_parts_of_a_step_have_gaps_and_stand_in_the_order_of_their_legend() -> None:
    case = measured(make_case(), (0.1,) * 6)
    breakdown = breakdown_of(passed(0, 0, 100.0), case)
    assert not isinstance(breakdown, Missing)
    _, bar, lower, legend = step_lines(case, breakdown, 80)
    assert bar == lower, "two rows of the same"
    parts = "".join(span.text for span in bar).split()
    shares = [len(part) / 74 for part in parts]
    assert shares == pytest.approx([0.75, 0.1, 0.05, 0.1], abs=0.015), "a gap between two"
    words = "".join(span.text for span in legend)
    found = re.findall(r"(\S) (\w+) (\d+) %", words)
    assert [pair for _, *pair in found] == [
        ["matmul", "75"],
        ["attention", "10"],
        ["optimizer", "5"],
        ["idle", "10"],
    ], "in the order of the bar"
    assert [mark for mark, _, _ in found] == [part[0].replace("█", "■") for part in parts]
    assert len({*parts}) == len(parts), "each has a pattern of its own"


async def test_a_step_calls_its_parts_as_every_other_page_does(db: Path) -> None:
    with open_result(db) as file:
        (run, *_) = (file.run(one.run_id) for one in file.summaries() if one.short_id == "cccc0001")
    case = next(case for case in run.cases if case.case.work.workload == "gpt_train")
    found = passed(case.case_id, 90, 100.0)
    copies = replace(found.operators[0], category="cast_copy")
    breakdown = breakdown_of(replace(found, operators=(copies, *found.operators[1:])), case)
    assert not isinstance(breakdown, Missing)
    words = "".join(span.text for line in step_lines(case, breakdown, 100) for span in line)
    assert "casts and copies 50 %" in words
    assert [row.operator for row in chosen_operators([copies], GROUPS.index("category"), 0, "casts")] == [
        "casts and copies (1 row)"
    ]


async def test_the_launches_of_a_run_are_counted_once(tmp_path: Path) -> None:
    store(tmp_path / "a.db", 1, launches=1)
    app = make_app()
    async with app.run_test(size=(120, 40)) as pilot:
        await opened(pilot, f"{tmp_path / 'a.db'}@latest")
        shown = " ".join(picture(app).split())
        assert "launches 1 launch a case: ± is an estimate; --launches 3 measures it" in shown


async def test_labels_that_differ_at_their_ends_stay_different_where_they_are_cut(tmp_path: Path) -> None:
    for number in (1, 2):
        store(tmp_path / "a.db", number, label=f"v100_resnet50_loader{number}")
    app = make_app()
    async with app.run_test(size=(80, 24)) as pilot:
        await opened(pilot, str(tmp_path / "a.db"))
        assert "v100_re…oader1" in picture(app)
        assert "v100_re…oader2" in picture(app)


async def test_the_mark_of_the_selected_row_is_apart_from_its_text(db: Path) -> None:
    app = make_app(ascii_only=True)
    async with app.run_test(size=(80, 24)) as pilot:
        await opened(pilot, f"{db}@cccc0001")
        await press(pilot, "tab")
        shown = picture(app)
        assert "\n> matmul mini cpu" in shown
        assert "\n  GPT training" in shown
        assert re.search(r" -\d+ to \+\d+ % ", shown)


@pytest.mark.parametrize("palette", [PLAIN, SIXTEEN, INDEXED])
async def test_cursor_and_selection_of_a_field_show_also_where_colours_are_few(
    db: Path, palette: Palette
) -> None:
    app = make_app(palette=palette)
    async with app.run_test(size=(80, 24)) as pilot:
        await opened(pilot, str(db))
        for keys in (("o",), ("escape", "slash")):
            await press(pilot, *keys)
            reversed_cells = [(text, style) for row in rows_of(app) for text, style in row if style.reverse]
            cursor = next(style for text, style in reversed_cells if len(text) == 1)
            assert all(colour is None or colour.is_default for colour in (cursor.color, cursor.bgcolor))
            if palette is not INDEXED:  # which has a colour for what is selected
                await press(pilot, "a", "b", "shift+home")
                shown = "".join(text for row in rows_of(app) for text, style in row if style.reverse)
                assert "ab" in shown


async def test_the_next_case_is_shown_on_the_same_tab(tmp_path: Path) -> None:
    store(tmp_path / "a.db", 1, profiled_cases=(0, 1))
    app = make_app()
    async with app.run_test(size=(80, 24)) as pilot:
        await opened(pilot, f"{tmp_path / 'a.db'}@latest")
        await press(pilot, "tab", "tab")
        assert "GPT training mini cpu fp32 all cores  (case 1 of 2)" in picture(app), "that of the headline"
        await press(pilot, "n")
        assert "matmul mini cpu fp32 all cores  (case 2 of 2)" in picture(app)
        await press(pilot, "p")
        assert "(case 1 of 2)" in picture(app)


def times_of(app: MonitorApp) -> list[str]:
    """The times along the axis of the timeline."""
    (line,) = (line for line in picture(app).splitlines() if line.startswith("time "))
    return line.split()[1:-2]


async def test_a_part_of_the_timeline_is_chosen_by_keys_and_read_again(db: Path) -> None:
    app = make_app()
    async with app.run_test(size=(120, 40)) as pilot:
        await opened(pilot, f"{db.with_name('gpu.db')}@latest")
        await press(pilot, *["tab"] * 5)
        whole = ["0:00", "0:05", "0:10", "0:15", "0:20", "0:25"]
        assert times_of(app) == whole
        await press(pilot, "plus", "plus")
        assert times_of(app)[0] == "0:13"
        assert times_of(app)[-1] == "0:18"
        assert "cursor 16.0 s" in picture(app)
        await press(pilot, "right_square_bracket")
        assert times_of(app)[0] == "0:16"
        await press(pilot, "left_square_bracket", "minus", "minus")
        assert times_of(app) == whole
        await pilot.click(offset=(LEAD, 10))
        await press(pilot, "0", "n")
        assert "cursor 2.4 s   matmul fp32, launch 1" in picture(app)
        assert times_of(app)[0] == "0:02.4"
        await press(pilot, "0", "left")
        assert times_of(app) == whole
        assert "cursor 2.1 s" in picture(app)


async def test_a_part_of_the_timeline_is_chosen_by_dragging_and_a_click_moves_the_cursor(db: Path) -> None:
    app = make_app()
    async with app.run_test(size=(120, 40)) as pilot:
        await opened(pilot, f"{db.with_name('gpu.db')}@latest")
        await press(pilot, *["tab"] * 5)
        cells = lane_cells(120)
        middle = LEAD + cells // 2
        await pilot.mouse_down(offset=(LEAD + cells // 4, 10))
        await pilot.mouse_up(offset=(middle, 10))
        await settled(pilot)
        assert (times_of(app)[0], times_of(app)[-1]) == ("0:07", "0:12")
        await pilot.click(offset=(middle, 10))
        assert "cursor 9.9 s" in picture(app)
        await pilot.click(offset=(5, 10))
        assert "cursor 9.9 s" in picture(app)


async def test_enter_leads_from_the_timeline_to_the_case_its_step_and_operators_and_esc_back_the_same_way(
    db: Path,
) -> None:
    app = make_app()
    async with app.run_test(size=(120, 40)) as pilot:
        screen = await opened(pilot, f"{db.with_name('gpu.db')}@latest")
        await press(pilot, *["tab"] * 5)
        await pilot.click(offset=(LEAD, 10))
        await press(pilot, "n")
        assert "matmul fp32, launch 1" in picture(app)
        await press(pilot, "enter")
        assert screen._pane.tab == "cases", "it was not profiled"
        assert "▸ matmul mini gpu fp32" in picture(app)
        await press(pilot, "escape", "n", "plus", "right")
        before = picture(app)
        assert "GPT training fp32, launch 1" in before
        await press(pilot, "enter")
        assert screen._pane.tab == "step"
        await press(pilot, "enter")
        assert screen._pane.tab == "operators"
        await press(pilot, "escape", "escape")
        assert picture(app) == before, "the cursor and the part that is shown are kept"
        await press(pilot, "escape")
        assert screen.level == "runs"


async def test_the_next_case_on_a_low_terminal_has_its_launch_in_sight_below_the_cursor_and_what_was_timed(
    db: Path,
) -> None:
    app = make_app()
    async with app.run_test(size=(80, 24)) as pilot:
        await opened(pilot, f"{db.with_name('gpu.db')}@latest")
        await press(pilot, *["tab"] * 5)
        assert " ▸ " not in picture(app)
        await press(pilot, "n", "n")
        rows = picture(app).split("\n")
        assert re.match(r"cursor [\d.:s ]+   (matmul|GPT training) ", rows[3])
        assert [row.split()[0] for row in rows[4:8]] == ["whole", "time", "case", "precision"]
        assert any(row.startswith(" ▸ ") for row in rows)


async def test_enter_on_a_case_shows_when_it_was_timed(db: Path) -> None:
    app = make_app()
    async with app.run_test(size=(120, 40)) as pilot:
        screen = await opened(pilot, f"{db}@cccc0001")
        await press(pilot, "tab", "down", "enter")
        assert screen._pane.tab == "timeline"
        assert re.search(
            r"cursor [\d.:s ]+   GPT training fp32, launch 1, block 1 of 6: 100 ms a step", picture(app)
        )
        await press(pilot, "escape", "down", "enter")
        assert screen._pane.tab == "cases", "it was neither timed nor profiled"


async def test_a_file_that_is_gone_when_a_part_is_read_is_reported_and_what_was_loaded_stays(
    db: Path,
) -> None:
    app = make_app()
    gone = db.with_name("gpu.db")
    async with app.run_test(size=(120, 40)) as pilot:
        await opened(pilot, f"{gone}@latest")
        await press(pilot, *["tab"] * 5)
        gone.unlink()
        await press(pilot, "plus")
        assert "there is no result file" in picture(app)
        assert times_of(app)[0] == "0:10"


async def save_as(pilot: Pilot[int], path: Path, *then: str) -> str:
    """Press e, type a path, answer, and return the screen without its lines and edges."""
    await press(pilot, "e")
    pilot.app.screen.query_one(Input).value = str(path)
    await press(pilot, "enter", *then)
    assert isinstance(pilot.app, MonitorApp)
    return " ".join(picture(pilot.app).replace("│", " ").split())


async def test_every_tab_is_saved_as_it_is_shown_under_the_name_that_is_offered(
    db: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "here").mkdir()
    monkeypatch.chdir(tmp_path / "here")
    app = make_app()
    async with app.run_test(size=(200, 50)) as pilot:
        screen = await opened(pilot, f"{db}@cccc0001")
        cases = [case.case.work.workload for case, _ in screen._pane._case_rows]
        for _ in TABS:
            await press(pilot, "e", "enter")
            assert "saved " in picture(app)
            await press(pilot, "tab")
        await press(pilot, "escape", "e", "enter")
        assert "saved 3 rows" in picture(app)
    rows = Path("cccc0001-cases.csv").read_text(encoding="utf-8").splitlines()[1:]
    assert [row.partition(" ")[0] for row in rows] == cases
    case = "gpt_train-mini-cpu-fp32-all-cores"
    assert sorted(path.name for path in Path.cwd().iterdir()) == sorted(
        [
            *(f"cccc0001-{tab}.csv" for tab in TABS if tab not in (*OF_A_CASE, "timeline")),
            "cccc0001-telemetry.csv",
            *(f"cccc0001-{tab}-{case}.csv" for tab in ("operators", "step", "memory")),
            "runs.csv",
        ]
    )


async def test_a_file_is_replaced_only_after_yes_and_obstacles_are_reported_with_the_next_step(
    db: Path, tmp_path: Path
) -> None:
    path = tmp_path / "cases.json"
    path.write_text("mine")
    app = make_app()
    async with app.run_test(size=(200, 30)) as pilot:
        await opened(pilot, f"{db}@cccc0001")
        await press(pilot, "tab", "e")
        assert "Save the cases as .csv or .json; the Chrome trace as .json.gz" in picture(app)
        await press(pilot, "escape")
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


async def test_where_nothing_can_be_saved_no_name_is_requested(tmp_path: Path) -> None:
    store(tmp_path / "a.db", 1, machine=GPU_MACHINE, profiled=False)
    app = make_app()
    async with app.run_test(size=(80, 24)) as pilot:
        await opened(pilot, str(tmp_path / "a.db"))
        await press(pilot, "slash", *"no such run", "enter", "e")
        assert "there is nothing to save here: no row is shown" in picture(app)
        await press(pilot, "o", *"/no.db", "enter", "e")
        assert "there is nothing to save here: no table is shown" in picture(app)


async def test_a_trace_is_saved_also_from_a_tab_without_a_table(tmp_path: Path) -> None:
    run_id = store(tmp_path / "a.db", 1, machine=GPU_MACHINE, profiled=False)
    trace = tmp_path / "a-traces" / f"{run_id[-8:]}-gemm.json.gz"
    trace.parent.mkdir()
    trace.write_bytes(b"a trace")
    app = make_app()
    async with app.run_test(size=(80, 24)) as pilot:
        screen = await opened(pilot, f"{tmp_path / 'a.db'}@latest")
        screen._pane.show_tab("step")
        await save_as(pilot, tmp_path / "t.json.gz")
    assert (tmp_path / "t.json.gz").read_bytes() == b"a trace"


async def test_operators_are_saved_as_they_are_shown(db: Path, tmp_path: Path) -> None:
    app = make_app()
    async with app.run_test(size=(120, 24)) as pilot:
        await opened(pilot, f"{db}@cccc0001")
        await press(pilot, *["tab"] * 2, "slash", *"gemm", "enter", "s", "s")
        await save_as(pilot, tmp_path / "o.csv")
    rows = (tmp_path / "o.csv").read_text(encoding="utf-8").splitlines()
    assert [row.split(",")[0] for row in rows] == ["operator", "aten::linear", "aten::mm"]


async def test_what_was_not_profiled_says_how_it_would_be(tmp_path: Path) -> None:
    store(tmp_path / "a.db", 1, machine=GPU_MACHINE, profiled=False)
    app = make_app()
    async with app.run_test(size=(80, 24)) as pilot:
        await opened(pilot, f"{tmp_path / 'a.db'}@latest")
        tabs = picture(app).splitlines()[1].split()
        assert tabs == ["Overview", "Cases", "Timeline", "Environment", "Findings"], (
            "empty ones are not there"
        )
        await press(pilot, "shift+tab", "end")
        assert "Find" in picture(app)
        assert "no case of this run has a profiled pass" in picture(app)


async def test_a_wide_screen_shows_the_selected_run_and_its_main_case_on_every_box(
    db: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    other = replace(CPU_MACHINE, machine_id="ffffffffffff", cpu=replace(CPU_MACHINE.cpu, model="Ryzen 9"))
    store(tmp_path / "other.db", 7, gpt_ms=50.0, machine=other)
    app = make_app()
    async with app.run_test(size=(120, 40)) as pilot:
        await opened(pilot, str(db))
        await press(pilot, "down", "down")
        shown = picture(app)
        assert "│ cccc0001  quick" in shown
        assert "│ fast box" in shown
        assert "a step of GPT training mini cpu fp32" in shown
        boxes = [line for line in shown.splitlines() if "tok/s  ━" in line]
        assert [line.split()[0] for line in boxes] == ["Ryzen", "▸", "2x"], "the fastest first"
        assert "81.8k tok/s" in boxes[0]
        await press(pilot, "space")
        assert "a fast box cccc0001" in shown_words(app)
        await pilot.resize_terminal(80, 24)
        await settled(pilot)
        narrow = picture(app)
        assert "│ cccc0001" not in narrow
        assert narrow.index("GPT training: 40.9k tok/s.") < narrow.index("on every box")


async def test_the_preview_says_the_same_in_any_colours(db: Path) -> None:
    taken = []
    for palette in (INDEXED, PLAIN):
        app = make_app(palette=palette)
        async with app.run_test(size=(120, 40)) as pilot:
            await opened(pilot, str(db))
            taken.append(picture(app))
    assert taken.count(taken[0]) == len(taken)
    assert "status    interrupted" in taken[0]
    assert "▸ 2x H200" in taken[0], "the box of the run is marked"


def shown_words(app: MonitorApp) -> str:
    return " ".join(picture(app).split())


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


async def test_the_monitor_goes_on_while_another_screen_is_shown(db: Path) -> None:
    app = make_app()
    async with app.run_test(size=(80, 24)) as pilot:
        await opened(pilot, str(db))
        assert isinstance(app._feed, Ticking)
        app._feed.tick()
        await pilot.pause()
        assert app._monitor._model.samples == 1  # type: ignore[attr-defined]
        await press(pilot, "1")
        assert picture(app).startswith("moving 80x24 samples ")


async def test_esc_goes_up_level_by_level_to_the_monitor(db: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("GPUTUI_DB", str(db))
    app = make_app()
    async with app.run_test(size=(80, 24)) as pilot:
        await press(pilot, "3", "enter")
        levels = []
        while isinstance(app.screen, ResultsScreen):
            levels.append(app.screen.level)
            await press(pilot, "escape")
        assert levels == ["run", "runs", "files"]


async def test_a_stored_trace_opens_with_where_its_steps_go_and_by_kind_where_there_is_room(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    db = tmp_path / "t.db"
    trace = read_run(write_training(tmp_path / "before.json", steps=4, gemm_us=100, wait_us=40))
    store_run(db, contents_of(trace), ())
    monkeypatch.setenv("GPUTUI_DB", str(db))
    app = make_app()
    async with app.run_test(size=(80, 24)) as pilot:
        await press(pilot, "3", "enter")
        await settled(pilot)
        sentence = "A step takes 200 µs: 50 % is matmul, and for 20 % the GPU waits for data"
        assert sentence in " ".join(picture(app).split())
        assert "where its time goes" not in picture(app)
        await pilot.resize_terminal(120, 40)
        await settled(pilot)
        rows = picture(app).splitlines()
        kinds = next(place for place, row in enumerate(rows) if "── where its time goes" in row)
        assert rows[kinds + 1].split()[0] == "compute"
        assert " 60 % " in rows[kinds + 1]
        await pilot.resize_terminal(120, 24)
        await settled(pilot)
        assert "where its time goes" not in picture(app)


@pytest.mark.parametrize(
    "name",
    [
        *("results-overview-", "results-gpu-overview-", "results-findings-", "results-timeline-"),
        *("results-gpu-timeline-", "run_ended_", "run_ended_gpu_", "run_ended_boxes_"),
    ],
)
def test_at_most_a_third_of_a_large_terminal_is_blank(name: str) -> None:
    rows = (FOLDER / f"{name}120x40.txt").read_text(encoding="utf-8").splitlines()
    assert sum(not row.strip() for row in rows) <= 0.35 * 40


def test_keys_of_a_screen_are_declared_once() -> None:
    keys = [key for action in ACTIONS for key in action.key.split(",")]
    assert len(set(keys)) == len(keys)
    assert not set(keys) & {entry.key for entry in SCREENS}


def test_a_person_opens_a_file_from_the_shell_looks_and_leaves(db: Path, repository: Path) -> None:
    command = [sys.executable, "-m", "gputui", "results", str(db)]
    with Terminal(command, 80, 24, environment={"PYTHONPATH": str(repository)}) as terminal:
        terminal.wait_for("fast box")
        terminal.type(b"\r")
        terminal.wait_for("Timeline")
        terminal.type(b"1")
        terminal.wait_for("[1 Mon]")
        terminal.type(b"3")
        terminal.wait_for("[3 Res]")
        terminal.type(b"q")
        assert terminal.ended() == 0
        assert not terminal.is_alternate
