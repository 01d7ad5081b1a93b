"""The Run screen in use: real runs of `spin`, in the app, in a pty, and against the command line."""

from __future__ import annotations

import os
import re
import shlex
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from dataclasses import replace
from datetime import datetime
from pathlib import Path
from time import monotonic
from typing import cast
from unittest.mock import Mock

import duckdb
import pytest
from builders import make_interpreter
from command_line import (
    gputui,
    only_run_dir,
    start_gputui,
    wait_until,
    wait_until_ended,
    write_failing_profile,
    write_sleeping_profile,
    write_spin_profile,
)
from journals import GPU_MACHINE
from key_lists import list_of
from pty_harness import Terminal
from run_screen_app import RunScreenApp
from run_screen_golden import (
    FOLDER,
    HOSTILE,
    RUN,
    choosing,
    ended_gpu,
    lines_of,
    models,
    pictures,
    plan,
    text_of,
    watching,
    watching_gpu,
)
from textual import events
from textual.pilot import Pilot

from gputui.cli import main
from gputui.model.journal import JOURNAL_NAME, Block, Stored
from gputui.model.result import Run
from gputui.recording.run_directory import read_holder
from gputui.services.doctor.disturbances import Check
from gputui.services.profiles.planner import Choices
from gputui.services.runs.device_history import DeviceHistory
from gputui.services.runs.options import Draft, RunOptions, read_draft, to_argv
from gputui.services.runs.process import LiveRun
from gputui.services.runs.progress import Happened, ProgressTracker
from gputui.services.runs.start import DraftChecker
from gputui.store.journal_reader import read_journal
from gputui.store.reading import open_result
from gputui.store.schema import TABLE_BY_NAME
from gputui.tui.screens.run import background_tasks
from gputui.tui.screens.run.form import ACTIONS, EditedText
from gputui.tui.screens.run.model import RunModel
from gputui.tui.screens.run.panes import device_charts, device_rows
from gputui.tui.screens.run.pictures import heading, picture
from gputui.tui.terminal.cell_diff import width_of
from gputui.tui.widgets.app_context import has_osc_52, osc_52
from gputui.tui.widgets.cells import in_ascii

DEADLINE_S = 300.0


@pytest.fixture
def spin(tmp_path: Path) -> Path:
    """A profile of one short run."""
    return write_spin_profile(tmp_path / "spin.toml")


@pytest.fixture
def endless(tmp_path: Path) -> Iterator[Path]:
    """A profile that runs until it is stopped; runs left at the end are stopped."""
    yield write_sleeping_profile(tmp_path / "long.toml")
    runs = Path(os.environ["GPUTUI_STATE"], "runs")
    if runs.is_dir() and any(runs.iterdir()):
        gputui("stop")


@pytest.fixture(autouse=True)
def quiet_box(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing disturbs a measurement here, whatever else this machine does."""
    monkeypatch.setattr(background_tasks, "disturbances", lambda machine, gpus: ())


async def until(pilot: Pilot[int], is_so: Callable[[], bool]) -> None:
    """Let the app work until a condition holds."""
    end_s = monotonic() + DEADLINE_S
    while not is_so():
        assert monotonic() < end_s, shown(pilot)
        await pilot.pause(0.02)


def shown(pilot: Pilot[int]) -> str:
    app = pilot.app
    assert isinstance(app, RunScreenApp)
    model = app.run_screen.model
    return f"{heading(model)}\n{text_of(model, *app.size)}"


async def choose_file(pilot: Pilot[int], profile: Path) -> None:
    """Go to the end of the list, and type the name of a profile."""
    app = pilot.app
    assert isinstance(app, RunScreenApp)
    model = app.run_screen.model
    await until(pilot, lambda: model.profiles is not None)
    await pilot.press(*["down"] * len(model.profiles or ()), "enter")
    app.post_message(events.Paste(str(profile)))
    await until(pilot, lambda: model.profile_name == str(profile) and model.is_checked)
    await pilot.press("enter")


def is_timing(app: RunScreenApp) -> bool:
    progress = app.run_screen.model.progress
    return progress is not None and progress.strip is not None


def stored(file: Path) -> Run:
    with open_result(file) as opened:
        (summary,) = opened.summaries()
        return opened.run(summary.run_id)


IDS_TIMES_AND_MEASURED = {
    "meta": {"value"},
    "migrations": {"applied_us"},
    "runs": {"run_id", "started_us", "ended_us", "started_ns", "stored_us", "seed"},
    "launches": {"startup_ns", "started_us", "ended_us", "allowance_s"},
    "measurements": {"build_ns", "first_step_ns", "warmup_ns", "warmup_blocks", "stable", "steps_per_block"},
    "figures": {"value", "observations"},
    "blocks": {"block_index", "steps", "t_us", "start_ns", "wall_ns", "device_ns", "cpu_ns", "waited_ns"},
}
"""Columns that differ between any two runs."""
OF_THE_MOMENT = {"telemetry", "host_telemetry", "events"}
"""Tables with varying contents: only their columns are compared."""


def all_but_ids_and_times(file: Path) -> dict[str, tuple[list[str], set[tuple[object, ...]]]]:
    """Each table of a result file, as SQL sees it: its columns, and what two runs of one profile share."""
    found = {}
    with duckdb.connect(str(file), read_only=True) as connection:
        names = [row[0] for row in connection.execute("SELECT table_name FROM duckdb_tables()").fetchall()]
        for name in names:
            columns = [row[0] for row in connection.execute(f"DESCRIBE {name}").fetchall()]
            kept = [
                column
                for column in columns
                if name not in OF_THE_MOMENT
                and column not in {"run_id", *IDS_TIMES_AND_MEASURED.get(name, ())}
            ]
            rows = connection.execute(f"SELECT {', '.join(kept)} FROM {name}").fetchall() if kept else []
            found[name] = (columns, set(rows))
    return found


async def test_choose_run_and_end_stores_what_the_command_line_stores(spin: Path, tmp_path: Path) -> None:
    app = RunScreenApp()
    async with app.run_test(size=(80, 24)) as pilot:
        await choose_file(pilot, spin)
        model = app.run_screen.model
        for name, text in (("label", "[b]two[/b] 温度"), ("price", "1.25"), ("launches", "1")):
            model.form.texts[name].insert(text)
        model.form.texts["db"].insert(str(tmp_path / "tui.db"))
        command = model.command
        await pilot.press("enter")
        await until(pilot, lambda: model.view == "ended")
        assert model.ended is not None
        assert model.ended.wrong is None
        assert "[b]two[/b] 温度" in shown(pilot)
        assert re.search(
            r"hashing mini cpu fp32 1 thread +[\d.]+ +[MG]B/s +(?:(?:±|-[\d.]+ to \+)[\d.]+ %|unknown)",
            shown(pilot),
        )
        await pilot.press("o")
        await until(pilot, lambda: bool(app.opened))
        assert app.opened == [("results", (f"{tmp_path / 'tui.db'}@{model.ended.in_progress.short_id}",))]
        await pilot.press("q")
        await until(pilot, lambda: app.is_left)
    words = shlex.split(command)
    assert words[:3] == ["gputui", "run", str(spin)]
    words[words.index(str(tmp_path / "tui.db"))] = str(tmp_path / "cli.db")
    done = gputui(*words[1:])
    assert done.returncode == 0, done.stderr
    assert stored(tmp_path / "tui.db").summary.label == "[b]two[/b] 温度"
    ours, theirs = (all_but_ids_and_times(tmp_path / name) for name in ("tui.db", "cli.db"))
    assert ours.keys() == theirs.keys() == TABLE_BY_NAME.keys()
    for name, held in ours.items():
        assert held == theirs[name], name
    assert {name for name, (_, rows) in ours.items() if rows} >= {
        *("meta", "runs", "machines", "prices", "cases", "launches", "measurements", "blocks")
    }


@pytest.mark.slow
async def test_on_a_busy_box_the_screen_asks_as_the_command_line_does(
    spin: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    busy = Check("other programs", "note", "they want 7.6 CPU threads, and this box has 2", "wait")
    monkeypatch.setattr(background_tasks, "disturbances", lambda machine, gpus: (busy,))
    app = RunScreenApp()
    async with app.run_test(size=(80, 24)) as pilot:
        await choose_file(pilot, spin)
        model = app.run_screen.model
        model.form.texts["db"].insert(str(tmp_path / "a.db"))
        await pilot.press("enter")
        await until(pilot, lambda: model.question == "start")
        assert "Measure anyway? other programs: they want 7.6 CPU threads" in shown(pilot)
        await pilot.press("n")
        assert (model.view, model.question) == ("choose", "")
        assert not (tmp_path / "a.db").exists()
        await pilot.press("enter")
        await until(pilot, lambda: model.question == "start")
        await pilot.press("y")
        await until(pilot, lambda: model.view == "ended")
    assert stored(tmp_path / "a.db").summary.status == "finished"


async def test_the_last_words_of_what_failed_are_a_key_away_and_can_be_copied(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TERM", "xterm-256color")
    app = RunScreenApp()
    async with app.run_test(size=(80, 24)) as pilot:
        await choose_file(pilot, write_failing_profile(tmp_path / "bad.toml"))
        await pilot.press("enter")
        await until(pilot, lambda: app.run_screen.model.view == "ended")
        assert "l Logs" in shown(pilot)
        await pilot.press("l")
        assert "launch 1 of command:bad cpu: " in shown(pilot)
        assert "    the disk is gone\n" in shown(pilot)
        assert (only_run_dir() / "logs").is_dir()
        await pilot.press("c")
        assert "copied.txt" in app.run_screen.model.notice[0]  # this terminal is not known to copy
        copied = Path(os.environ["XDG_CACHE_HOME"], "gputui", "copies", "copied.txt").read_text()
        assert copied == "launch 1 of command:bad cpu\nthe disk is gone\n"
        await pilot.press("escape")
        assert "stored in" in shown(pilot)


async def test_a_run_in_progress_is_watched_at_once_by_all_who_look_and_stop_asks(
    endless: Path, tmp_path: Path
) -> None:
    begun = gputui("run", endless, "--db", tmp_path / "a.db", "--detach")
    assert begun.returncode == 0, begun.stderr
    run_dir = only_run_dir()
    other = start_gputui("attach")
    assert other.stdout is not None
    assert "launch 1" in other.stdout.readline()
    one, two = RunScreenApp(), RunScreenApp()
    async with one.run_test(size=(80, 24)) as pilot, two.run_test(size=(120, 40)) as second:
        for viewer in (pilot, second):
            app = viewer.app
            assert isinstance(app, RunScreenApp)
            await until(viewer, lambda app=app: is_timing(app))  # type: ignore[misc]
            assert f"run {run_dir.name[-8:]}" in shown(viewer)
            assert re.search(r"▸ command:ticks cpu +0/100 .* running", shown(viewer))
            assert "block" in shown(viewer)
        await pilot.press("x")
        assert "End run" in shown(pilot)
        await pilot.press("n")
        assert "End run" not in shown(pilot)
        await pilot.press("q")
        assert "Leave? The run continues" in shown(pilot)
        await pilot.press("escape")
        assert not one.is_left
        await pilot.press("x", "y")
        for viewer in (pilot, second):
            app = viewer.app
            assert isinstance(app, RunScreenApp)
            await until(viewer, lambda app=app: app.run_screen.model.view == "ended")  # type: ignore[misc]
        assert one.run_screen.model.ended == two.run_screen.model.ended
        assert "interrupted: stopped by SIGTERM" in shown(pilot)
        await until(pilot, lambda: not one.run_screen.model.in_progress)
        await pilot.press("escape")
        assert "What to measure" in shown(pilot)
    assert other.wait(DEADLINE_S) == 143
    blocks = len(read_journal(run_dir).of(Block))
    assert sum(len(m.blocks) for case in stored(tmp_path / "a.db").cases for m in case.measurements) == blocks


@pytest.mark.parametrize(
    "keys",
    [("q", "y"), pytest.param(("ctrl+backslash", "ctrl+backslash"), marks=pytest.mark.slow)],
)
async def test_the_run_goes_on_when_the_screen_is_left_and_another_key_comes_back(
    endless: Path, keys: tuple[str, str]
) -> None:
    app = RunScreenApp()
    async with app.run_test(size=(80, 24)) as pilot:
        await choose_file(pilot, endless)
        await pilot.press("enter")
        await until(pilot, lambda: is_timing(app))
        await pilot.press("escape")
        assert "1 run in progress: a watches it" in shown(pilot)
        await pilot.press("a")
        await until(pilot, lambda: is_timing(app))
        await pilot.press(keys[0])
        assert "Leave? The run continues" in shown(pilot)
        assert f"gputui attach {only_run_dir().name[-8:]}" in app.run_screen.model.parting_words
        await pilot.press(keys[1])
        await until(pilot, lambda: app.is_left)
    wait_until(lambda: (only_run_dir() / JOURNAL_NAME).exists(), "it goes on")
    assert gputui("attach", "no-such").stderr.count("in progress: ") == 1


async def test_a_run_whose_supervisor_is_killed_is_stored_by_who_watches_it(
    endless: Path, tmp_path: Path
) -> None:
    assert gputui("run", endless, "--db", tmp_path / "a.db", "--detach").returncode == 0
    app = RunScreenApp()
    async with app.run_test(size=(120, 40)) as pilot:
        await until(pilot, lambda: is_timing(app))
        holder = read_holder(only_run_dir())
        assert holder is not None
        os.kill(holder.pid, signal.SIGKILL)
        await until(pilot, lambda: app.run_screen.model.view == "ended")
        assert "its supervisor was killed" in shown(pilot)
        assert f"the supervisor of run {only_run_dir().name[-8:]} was killed" in shown(pilot)
        assert app.run_screen.model.ended is not None
        assert app.run_screen.model.ended.wrong is None
    assert stored(tmp_path / "a.db").summary.run_id == only_run_dir().name


@pytest.mark.slow
def test_killing_the_screen_leaves_the_run_and_a_new_one_watches_it_to_its_end(
    repository: Path, endless: Path
) -> None:
    environment = {"PYTHONPATH": str(repository), "PYTHONUTF8": "1"}
    command = [sys.executable, "-m", "gputui"]
    with Terminal(command, environment=environment) as first:
        first.wait_for("2 Run", DEADLINE_S)
        first.type(b"2")
        first.wait_for("[ Start ]", DEADLINE_S)
        first.wait_for("at most", DEADLINE_S)
        first.type(b"k" + b"\x1b[B" * 30)
        first.wait_for("▸ of your own", DEADLINE_S)
        first.type(b"\r" + str(endless).encode())
        first.wait_for("1 case", DEADLINE_S)
        first.type(b"\r")
        first.wait_for("▸ [ Start ]", DEADLINE_S)
        first.type(b"\r")
        first.wait_for(
            lambda: any(words in first.text for words in ("running", "Measure anyway?")), DEADLINE_S
        )
        if "Measure anyway?" in first.text:  # this machine may be busy
            first.type(b"y")
        first.wait_for("running", DEADLINE_S)
        first.signal(signal.SIGKILL)
        assert first.ended() == -signal.SIGKILL
    run_dir = only_run_dir()
    with Terminal(command, environment=environment) as second:
        second.wait_for("2 Run", DEADLINE_S)
        second.type(b"2")
        second.wait_for(f"run {run_dir.name[-8:]}", DEADLINE_S)
        second.wait_for("running", DEADLINE_S)
        second.type(b"x")
        second.wait_for("End run", DEADLINE_S)
        second.type(b"y")
        second.wait_for("stored in", DEADLINE_S)
        second.wait_for("interrupted", DEADLINE_S)
        second.type(b"o")
        second.wait_for("[3 Res]", DEADLINE_S)
        second.wait_for(run_dir.name[-8:], DEADLINE_S)
        second.type(b"2")
        second.wait_for("stored in", DEADLINE_S)
        second.type(b"q")
        assert second.ended() == 0
        assert b"nanobind" not in second.raw
    wait_until_ended(run_dir)
    assert stored(Path(os.environ["GPUTUI_DB"])).summary.status == "interrupted"


@pytest.mark.parametrize(
    ("field", "text", "option"),
    [
        ("launches", "0", "--launches"),
        ("price", "nan", "--price"),
        ("device", "toaster", "--device"),
        ("only", "gemmm", "--only"),
        ("precision", "fp64", "--precision"),
        ("python", "/no/such/python", "--python"),
        ("db", "/no/such/directory/a.db", "--db"),
        ("label", "latest", "--label"),
    ],
)
def test_a_wrong_field_says_what_the_command_line_says(
    spin: Path, capsys: pytest.CaptureFixture[str], field: str, text: str, option: str
) -> None:
    checked = DraftChecker().check(Draft({"profile": str(spin), field: text}))
    with pytest.raises(SystemExit) as left:
        main(["run", str(spin), option, text])
    assert left.value.code == checked.wrong[field].exit_code
    reported = capsys.readouterr().err
    assert reported.startswith(f"gputui: {checked.wrong[field].message}\n  {checked.wrong[field].hint}"), (
        reported
    )
    assert list(checked.wrong) == [field]


@pytest.mark.parametrize("place", ["profiles", "form", "cases"])
def test_forty_by_ten_cells_with_the_line_of_the_screens_are_enough(place: str) -> None:
    model = choosing()
    model.region = place
    lines = text_of(model, 40, 9).splitlines()
    assert "at least" not in "".join(lines)
    assert {width_of(line) for line in lines} <= set(range(41))
    assert "at least 40 x 10 cells" in text_of(model, 40, 8)


def test_a_run_that_ended_without_being_watched_is_reported_with_its_file() -> None:
    model = choosing()
    model.know_in_progress(())
    model.know_in_progress((RUN,))
    model.know_in_progress(())
    assert "has ended: its results are on screen 3" in " ".join(text_of(model, 80, 23).split())


async def test_what_is_typed_is_checked_as_it_is_typed(spin: Path) -> None:
    app = RunScreenApp()
    async with app.run_test(size=(80, 24)) as pilot:
        await choose_file(pilot, spin)
        model = app.run_screen.model
        await pilot.press("escape", "tab", *"gpu:7")
        await until(pilot, lambda: "device" in model.wrong())
        assert "! --device gpu:7: no GPU" in shown(pilot)
        await pilot.press(*["backspace"] * 5, *"cpu")
        await until(pilot, lambda: model.is_checked and not model.wrong())
        await pilot.press("down", "down", "down", "0")
        assert "! --launches: 0 is not in the range 1 to 100" in shown(pilot)
        assert app.digits == []
        await pilot.press("enter", "enter", "enter", "enter", "enter", "enter")
        assert model.view == "choose"
        assert "--launches: 0 is not in the range" in shown(pilot)
        await pilot.press("escape", "3")
        assert app.digits == ["3"]


def test_each_wrong_field_says_its_own_error_at_once(spin: Path) -> None:
    draft = Draft(profile=str(spin), device="toaster", only="gemmm", precision="fp64", launches="0")
    wrong = DraftChecker().check(draft).wrong
    for name, message in (
        ("device", "--device toaster: not a device"),
        ("only", "--only gemmm: not a workload"),
        ("precision", "--precision fp64: not a precision"),
        ("launches", "--launches: 0 is not in the range"),
    ):
        assert wrong[name].message.startswith(message)


def test_choices_that_are_wrong_only_together_are_reported_where_they_were_asked_for() -> None:
    wrong = DraftChecker().check(Draft(device="cpu", only="gemm", precision="tf32")).wrong
    assert list(wrong) == ["device"]
    assert "has no case for --device cpu --only gemm --precision tf32" in wrong["device"].message


def test_an_interpreter_is_not_executed_while_its_path_is_typed(spin: Path, tmp_path: Path) -> None:
    trap = tmp_path / "trap"
    trap.write_text(f"#!/bin/sh\ntouch {tmp_path / 'executed'}\n")
    trap.chmod(0o755)
    draft = Draft(profile=str(spin), python=str(trap))
    assert DraftChecker().check(draft, editing="python").wrong == {}
    assert not (tmp_path / "executed").exists()
    assert "python" in DraftChecker().check(draft).wrong


def test_a_python_without_torch_is_reported_with_what_to_do(tmp_path: Path) -> None:
    bare = tmp_path / "bare" / "bin" / "python"
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", str(tmp_path / "bare")], check=True)
    draft = Draft(profile="quick", python=str(bare))
    checked = DraftChecker().check(draft)
    model = choosing()
    model.form.texts["python"].insert(str(bare))
    model.know_checked(checked)
    assert "torch not installed in" in text_of(model, 120, 40)
    assert "name an interpreter that has it" in model.wrong()["profile"].hint
    model.press("start")
    assert model.view == "choose"
    assert "needs torch" in text_of(model, 120, 40)


def test_the_command_line_shown_means_the_same() -> None:
    draft = Draft(
        profile="my profile.toml",
        device="gpu:0",
        only="gemm, membw",
        precision="fp32 amp",
        launches="3",
        budget="300",
        python="/a/python '/b c/python'",
        label="-x'y",
        price="0.1",
        db="~/r.db",
    )
    asked, wrong = read_draft(draft)
    assert not wrong
    assert asked == RunOptions(
        "my profile.toml",
        Path("~/r.db"),
        ("/a/python", "/b c/python"),
        Choices("gpu:0", ("gemm", "membw"), ("fp32", "amp"), 3, 300.0, seed=asked.choices.seed),
        label="-x'y",
        price=0.1,
    )
    words = "--db '~/r.db' --python /a/python --python '/b c/python'"
    narrowed = " --device gpu:0 --only gemm --only membw --precision fp32 --precision amp"
    options = """ --launches 3 --budget 300 "--label=-x'y" --price 0.1"""
    assert to_argv(asked) == shlex.split(words + narrowed + options)


def test_pictures_are_as_they_were() -> None:
    for name, text in pictures():
        assert text == (FOLDER / name).read_text(encoding="utf-8"), (
            f"{name}: python tests/makers/goldens.py makes it anew; look at it"
        )


@pytest.mark.parametrize("size", [(80, 24), (120, 40), (200, 50), (40, 10), (61, 17), (20, 4)])
@pytest.mark.parametrize("ascii_only", [False, True])
def test_every_line_has_the_width_of_the_terminal_and_nothing_it_would_obey(
    size: tuple[int, int], ascii_only: bool
) -> None:
    width, height = size
    for name, model in models():
        lines = picture(model, width, height, 0)
        lines = tuple(map(in_ascii, lines)) if ascii_only else lines
        assert len(lines) == height, name
        for line in lines:
            text = "".join(span.text for span in line)
            assert width_of(text) == width, (name, text)
            assert text.isprintable(), (name, text)
            assert text.isascii() or not ascii_only, (name, text)


def test_nothing_is_meant_by_colour_alone() -> None:
    def told(model: RunModel) -> str:
        return text_of(model, 120, 40)

    throttled, free = told(watching_gpu()), told(watching_gpu(is_throttled=False))
    assert "POWER-CAPPED at 700 W, 34 % of 5 min" in throttled
    assert "not throttled" in free
    assert re.search(r"▸ memory copy base fp32 .* running ", free)
    assert re.search(r"! GPU 0: its clock fell", free)
    ended = told(ended_gpu())
    assert re.search(r"copy .* 48 % +BELOW NORMAL", ended)
    assert re.search(r"matmul fp32 .* 103 % +no verdict", ended)


def test_a_gauge_of_the_published_range_stands_only_beside_a_reference() -> None:
    assert "peak test" in text_of(ended_gpu(), 80, 24)
    assert "peak test" not in text_of(dict(models())["ended"], 80, 24)


def test_the_running_figure_stands_with_its_interval_and_what_is_enough() -> None:
    text = text_of(watching_gpu(), 120, 40)
    assert re.search(r"memory copy base gpu fp32 +launch 2 of 3, block 41 of at most 60", text)
    assert "enough: ±0.5 % or 60 blocks" in text
    assert re.search(r"4\.25 TB/s +±0\.1 % in this launch", text)
    assert "its axis does not begin at 0" in text


def test_a_wide_interval_is_never_cut() -> None:
    model = watching_gpu()
    assert model.progress is not None
    wide = "-35 to +1231 %"
    cases = tuple(replace(case, spread=wide if case.spread else "") for case in model.progress.cases)
    model.know_progress(RUN.run_ids[0], replace(model.progress, cases=cases))
    text = text_of(model, 80, 24)
    assert re.search(rf"GPT training mini fp32 .* tok/s +{re.escape(wide)}  [━╸─]+ +19 %", text)


def test_what_is_left_is_shown_with_the_time_of_day_at_which_it_ends() -> None:
    model = watching_gpu()
    assert "about 3:40 left, ends 14:31" in text_of(model, 80, 24)
    assert model.progress is not None
    assert model.progress.ends_at(datetime(2026, 11, 22, 14, 27, 30)) == "14:31"
    assert replace(model.progress, is_storing=True).ends_at(datetime(2026, 11, 22)) == ""


def test_warnings_stay_in_sight_when_newer_events_have_no_room() -> None:
    model = watching_gpu()
    assert model.progress is not None
    news = tuple(Happened(500.0 + n, "info", f"news {n}") for n in range(30))
    model.know_progress(RUN.run_ids[0], replace(model.progress, events=(*model.progress.events, *news)))
    text = text_of(model, 80, 24)
    assert "! GPU 0: its clock fell" in text
    assert "news 29" in text


def test_a_terminal_of_every_size_names_the_case_in_progress() -> None:
    for width, height in ((80, 24), (80, 40), (100, 24), (120, 40), (200, 50), (200, 24)):
        assert "▸ memory copy base fp32" in text_of(watching_gpu(), width, height), (width, height)


def test_cases_out_of_sight_are_counted_with_their_states() -> None:
    model = watching_gpu()
    assert model.progress is not None
    assert "3 below: ok" in text_of(model, 80, 24)
    *cases, last = model.progress.cases
    cases.append(replace(last, state="failed"))
    model.know_progress(RUN.run_ids[0], replace(model.progress, cases=tuple(cases)))
    assert "3 below: 2 ok, 1 failed" in text_of(model, 80, 24)


def test_on_a_large_terminal_the_chart_of_blocks_takes_what_the_events_do_not_need() -> None:
    rows = text_of(watching(), 200, 50).splitlines()
    top, bottom = (
        next(n for n, row in enumerate(rows) if row.startswith(end)) for end in ("   22 ms", "   20 ms")
    )
    assert bottom - top == 9


def test_the_page_of_a_run_that_ended_begins_in_the_first_line() -> None:
    assert "all 2 cases" in text_of(dict(models())["ended"], 120, 40).splitlines()[0]


def test_a_run_that_could_not_be_stored_still_shows_what_it_measured(tmp_path: Path) -> None:
    made = plan()
    progress = ProgressTracker([made], is_of_this_clock=True)
    for line in (*lines_of(made), Stored(4, "gputui: no space left on device", 0)):
        progress.hear(0, line)
    run = LiveRun(RUN.run_ids[0], tmp_path, tmp_path / "results.db", None)
    ended = background_tasks.finished((run,), progress, RUN)
    assert ended.wrong is not None
    assert "not stored: no space left on device" in ended.wrong.message
    assert [row.rate for row in ended.rows if row.rate] == [
        case.rate for case in progress.picture().cases if case.rate
    ]
    assert {row.why for row in ended.rows if not row.rate} >= {"unsupported: TF32 is a mode of NVIDIA GPUs"}


def test_what_a_journal_says_of_others_is_shown_without_what_a_terminal_obeys() -> None:
    made = watching()
    made.know_in_progress((replace(RUN, called=HOSTILE),))
    assert "\x1b" not in text_of(made, 200, 50)
    assert "温度" in text_of(made, 200, 50)


def test_a_paste_into_a_field_is_its_first_line_without_control_characters() -> None:
    text = EditedText()
    text.insert("one\x1b[31m two\nthree")
    assert text.text == "one[31m two"
    text.edit("home")
    text.edit("delete")
    text.insert("O")
    assert text.text == "One[31m two"


def test_only_a_terminal_that_is_known_to_take_a_copy_is_sent_one() -> None:
    assert osc_52("a") == "\x1b]52;c;YQ==\x07"
    assert has_osc_52({"TERM": "xterm-kitty"})
    assert not has_osc_52({"TERM": "xterm-256color"})


def test_keys_are_declared_once_and_the_page_lists_them(repository: Path) -> None:
    keys = [key for action in ACTIONS for key in action.key.split(",")]
    assert len(keys) == len(set(keys))
    assert list_of(ACTIONS) in (repository / "docs" / "run-screen.md").read_text(encoding="utf-8")


def test_the_screen_needs_neither_torch_nor_duckdb_to_be_opened(repository: Path) -> None:
    code = (
        "import sys, gputui.tui.screens.run.screen; "
        "print(sorted({'torch', 'duckdb', 'pandas'} & {name.partition('.')[0] for name in sys.modules}))"
    )
    output = subprocess.check_output([sys.executable, "-c", code], cwd=repository, text=True)
    assert output == "[]\n"


def test_probed_interpreters_are_remembered_until_the_user_refreshes() -> None:
    model = choosing(make_interpreter(cuda=None))
    model.press("again")
    cast(Mock, model.tasks).check.assert_called_with(model.draft, "", anew=True)


def test_a_lowered_power_limit_is_a_line_in_the_chart_of_the_device() -> None:
    gpu = replace(GPU_MACHINE.gpus[0], power_limit_w=350.0, power_default_limit_w=700.0)
    history = DeviceHistory(0, {"power_w": 340.0}, 1.0, {"power_w": (90.0, 340.0, 340.0)})
    for capped in (gpu, replace(gpu, power_limit_w=700.0)):
        progress = replace(
            ProgressTracker([plan()]).picture(),
            machine=replace(GPU_MACHINE, gpus=(capped,)),
            devices=(history,),
            under_test=0,
        )
        _, title, *rows = [
            "".join(span.text for span in line) for line in device_charts(progress, 40, 4, abreast=1)
        ]
        is_lowered = capped is gpu
        assert title.split() == ["power", "340", "W", "cap", "350" if is_lowered else "700", "W"]
        assert [row.split()[0] for row in (rows[0], rows[3])] == ["700", "0"]
        assert ["┄" in row for row in rows[:4]] == [False, is_lowered, False, False]
        (_, first, *_) = device_rows(progress, 80)
        assert ("of 350" if is_lowered else "of 700") in "".join(span.text for span in first)
