"""The Run screen in use: real runs of `spin`, in the app, in a pty, and against the command line."""

from __future__ import annotations

import os
import re
import shlex
import signal
import sys
import threading
from collections.abc import Iterator
from dataclasses import replace
from datetime import datetime
from pathlib import Path

import pytest
from command_line import (
    gputui,
    only_run_dir,
    wait_until_ended,
    write_failing_profile,
    write_sleeping_profile,
    write_spin_profile,
)
from journals import GPU_MACHINE
from pty_harness import Terminal
from run_screen_golden import (
    FOLDER,
    HOSTILE,
    LIVE,
    chosen,
    form_lines,
    lines_of,
    not_stored,
    pictures,
    plan,
    states,
    text_of,
    watching,
    watching_gpu,
    watching_of,
    wrong_form,
)
from shell_app import make_app, picture, press, settled, until
from textual.pilot import Pilot

from gputui.cli import main
from gputui.errors import GputuiError
from gputui.model.absent import Missing
from gputui.model.journal import Block, Stored
from gputui.model.result import Run
from gputui.recording.run_directory import read_holder
from gputui.services.doctor.disturbances import Check
from gputui.services.profiles.loader import Profile, shipped_profiles
from gputui.services.runs.device_history import DeviceHistory
from gputui.services.runs.options import Draft, RunOptions, read_draft, to_argv
from gputui.services.runs.process import LiveRun
from gputui.services.runs.progress import Happened, ProgressTracker
from gputui.services.runs.start import CheckedDraft, DraftChecker, Prepared
from gputui.services.support.paths import error_log
from gputui.store.journal_reader import read_journal
from gputui.store.reading import open_result
from gputui.tui.app import MonitorApp
from gputui.tui.screens import run as run_screen
from gputui.tui.screens.run import RunScreen
from gputui.tui.screens.run_form import FIELDS, FIRST_FIELD
from gputui.tui.screens.run_pages import ended, ended_lines
from gputui.tui.screens.run_panes import device_charts, device_rows
from gputui.tui.shell.shell_screen import has_osc_52, osc_52
from gputui.tui.terminal.cell_diff import width_of
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
    monkeypatch.setattr(run_screen, "disturbances", lambda machine, gpus: ())


def screen_of(app: MonitorApp) -> RunScreen:
    return next(one for one in app.screen_stack if isinstance(one, RunScreen))


async def opened(pilot: Pilot[int]) -> RunScreen:
    """The screen once it knows what can be chosen."""
    app = pilot.app
    assert isinstance(app, MonitorApp)
    await until(pilot, lambda: any(isinstance(one, RunScreen) for one in app.screen_stack))
    screen = screen_of(app)
    await until(pilot, lambda: bool(screen.form.profiles))
    return screen


async def choose_file(pilot: Pilot[int], profile: Path, **texts: object) -> RunScreen:
    """Name a profile of the user's, and fill in fields of the form as if they were typed."""
    screen = await opened(pilot)
    screen.form.selected = len(screen.form.profiles)
    screen.fill_in("profile", str(profile))
    for name, text in texts.items():
        screen.fill_in(name, str(text))
    await until(pilot, lambda: screen.form.known is not None)
    return screen


def stored(file: Path) -> Run:
    with open_result(file) as opened:
        (summary,) = opened.summaries()
        return opened.run(summary.run_id)


async def test_a_run_of_the_form_stores_what_was_filled_in_shows_what_failed_and_leads_to_its_results(
    spin: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TERM", "xterm-256color")
    _, _, failing = write_failing_profile(tmp_path / "bad.toml").read_text().partition("[[command]]")
    spin.write_text(f"{spin.read_text()}\n[[command]]{failing}")
    app = make_app("run")
    async with app.run_test(size=(80, 24)) as pilot:
        screen = await opened(pilot)
        await press(pilot, *["down"] * len(screen.form.profiles), "enter")
        await press(pilot, *str(spin), "enter")
        await until(pilot, lambda: screen.form.profile_name == str(spin) and screen.form.known is not None)
        texts = {"label": "[b]two[/b] 温度", "price": "1.25", "launches": "1", "db": str(tmp_path / "tui.db")}
        for name, text in texts.items():
            screen.fill_in(name, text)
        assert shlex.split(screen.form.command)[:3] == ["gputui", "run", str(spin)]
        await press(pilot, "r")
        await until(pilot, lambda: screen.ended is not None)
        await settled(pilot)
        assert re.search(r"hashing +[\d.]+ +[MG]B/s +(?:(?:±|-[\d.]+ to \+)[\d.]+ %|unknown)", picture(app))
        assert str(tmp_path / "tui.db") in picture(app).replace("\n ", "")
        assert "l Logs" in picture(app)
        await pilot.resize_terminal(80, 8)
        await until(pilot, lambda: screen.page.max_scroll_y > 1)
        await press(pilot, "j")
        height = screen.page.size.height
        await pilot.resize_terminal(80, 9)
        await until(pilot, lambda: screen.page.size.height > height)
        await settled(pilot)
        assert screen.page.scroll_offset.y == 1
        await pilot.resize_terminal(80, 24)
        await press(pilot, "l")
        assert "launch 1 of command:bad cpu: " in picture(app)
        assert "    the disk is gone\n" in picture(app)
        assert str(only_run_dir() / "logs") in picture(app).replace("\n  ", "")
        await press(pilot, "c")
        copied = Path(os.environ["XDG_CACHE_HOME"], "gputui", "copies", "copied.txt").read_text()
        assert "the disk is gone\n" in copied
        await press(pilot, "escape", "o")
        await until(pilot, lambda: "[3 Res]" in picture(app))
        await until(pilot, lambda: screen.followed[0].short_id in picture(app))
    run = stored(tmp_path / "tui.db")
    assert (run.summary.status, run.summary.label) == ("finished", "[b]two[/b] 温度")
    assert not isinstance(run.summary.price, Missing)
    assert run.summary.price.usd_per_hour == 1.25
    assert [len(case.measurements) for case in run.cases if case.outcome == "ok"] == [1]


async def test_on_a_busy_box_the_screen_asks_as_the_command_line_does(
    spin: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    busy = Check("other programs", "note", "busy with other work for 7.6 threads, and this box has 2", "wait")
    begun: list[Prepared] = []

    def started(prepared: Prepared) -> tuple[LiveRun, ...]:
        begun.append(prepared)
        raise GputuiError("it was started", "")

    monkeypatch.setattr(run_screen, "disturbances", lambda machine, gpus: (busy,))
    monkeypatch.setattr(run_screen, "_started", started)
    app = make_app("run")
    async with app.run_test(size=(80, 24)) as pilot:
        screen = await choose_file(pilot, spin, db=tmp_path / "a.db")
        for answer in ("n", "y"):
            await press(pilot, "r")
            await until(
                pilot, lambda: "Measure anyway? other programs: busy with other work for 7.6" in picture(app)
            )
            assert begun == []
            await press(pilot, answer)
        await until(pilot, lambda: "it was started" in picture(app))
        assert screen.view == "form"
    assert len(begun) == 1


async def test_a_run_goes_on_when_the_app_is_left_and_is_watched_at_once_and_stopped_by_the_next(
    endless: Path, tmp_path: Path
) -> None:
    app = make_app("run")
    async with app.run_test(size=(80, 24)) as pilot:
        screen = await choose_file(pilot, endless, db=tmp_path / "a.db")
        await press(pilot, "r")
        await until(pilot, lambda: is_timing(screen))
        await press(pilot, "escape")
        assert "1 run in progress: a watches it" in picture(app)
        await press(pilot, "a")
        await until(pilot, lambda: is_timing(screen))
        await press(pilot, "q")
        assert "Leave? The run continues" in picture(app)
        assert f"{only_run_dir().name[-8:]}." in picture(app)
        await press(pilot, "y")
    assert app.return_value == 0
    run_dir = only_run_dir()
    app = make_app("run")
    async with app.run_test(size=(80, 24)) as pilot:
        screen = await opened(pilot)
        await until(pilot, lambda: is_timing(screen))
        await settled(pilot)
        assert f"run {run_dir.name[-8:]}" in picture(app)
        assert re.search(r"▸ command:ticks cpu +0/100 .* running", picture(app))
        await press(pilot, "x")
        assert "End run" in picture(app)
        await press(pilot, "n")
        assert "End run" not in picture(app)
        await press(pilot, "x", "y")
        await until(pilot, lambda: screen.view == "ended")
        await settled(pilot)
        assert "interrupted: stopped on request" in picture(app)
        await until(pilot, lambda: not screen.in_progress)
        await press(pilot, "escape")
        assert "What to measure" in picture(app)
    blocks = len(read_journal(run_dir).of(Block))
    assert sum(len(m.blocks) for case in stored(tmp_path / "a.db").cases for m in case.measurements) == blocks


def is_timing(screen: RunScreen) -> bool:
    return screen.watched is not None and screen.watched.progress.strip is not None


async def test_a_run_whose_supervisor_is_killed_is_stored_by_who_watches_it(
    endless: Path, tmp_path: Path
) -> None:
    assert gputui("run", endless, "--db", tmp_path / "a.db", "--detach").returncode == 0
    name = only_run_dir().name[-8:]
    for verb in ("show", "compare"):
        too_early = gputui(verb, tmp_path / "a.db")
        assert too_early.returncode == 2
        said = rf"a\.db yet: its first run, {name}, is in progress, <?[\d.]+ % done, about .* left\n"
        assert re.search(said, too_early.stderr)
        assert f"gputui attach {name}" in too_early.stderr
    app = make_app("run")
    async with app.run_test(size=(120, 40)) as pilot:
        screen = await opened(pilot)
        await until(pilot, lambda: is_timing(screen))
        holder = read_holder(only_run_dir())
        assert holder is not None
        os.kill(holder.pid, signal.SIGKILL)
        await until(pilot, lambda: screen.view == "ended")
        await settled(pilot)
        assert "its supervisor was killed" in picture(app)
        assert f"the supervisor of run {only_run_dir().name[-8:]} was killed" in picture(app)
        assert screen.ended is not None
        assert screen.ended.wrong is None
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
        first.wait_for("at most", DEADLINE_S)
        first.type(b"\x1b[B" * len(shipped_profiles()))
        first.wait_for("▸ of your own", DEADLINE_S)
        first.type(b"\r")
        first.wait_for("enter takes it", DEADLINE_S)
        first.type(str(endless).encode() + b"\r")
        first.wait_for("1 case", DEADLINE_S)
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


def test_a_wrong_field_says_what_the_command_line_says(
    spin: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    for field, text in (
        ("launches", "0"),
        ("price", "nan"),
        ("device", "toaster"),
        ("only", "gemmm"),
        ("precision", "fp64"),
        ("python", "/no/such/python"),
        ("db", "/no/such/directory/a.db"),
        ("label", "latest"),
    ):
        checked = DraftChecker().check(Draft({"profile": str(spin), field: text}))
        with pytest.raises(SystemExit) as left:
            main(["run", str(spin), f"--{field}", text])
        assert left.value.code == checked.wrong[field].exit_code
        reported = capsys.readouterr().err
        said = f"gputui: {checked.wrong[field].message}\n  {checked.wrong[field].hint}"
        assert reported.startswith(said), reported
        assert list(checked.wrong) == [field]
    wrong = DraftChecker().check(Draft(device="cpu", only="gemm", precision="tf32")).wrong
    assert list(wrong) == ["device"], "what is wrong only together"
    assert "has no case for --device cpu --only gemm --precision tf32" in wrong["device"].message


async def test_a_field_is_filled_in_and_what_is_wrong_with_it_stands_beside_it(spin: Path) -> None:
    app = make_app("run")
    async with app.run_test(size=(80, 34)) as pilot:
        screen = await choose_file(pilot, spin)
        await press(pilot, "escape", "tab")
        assert screen.choices.key == FIRST_FIELD
        await press(pilot, "enter", *"gpu:7", "enter")
        await until(pilot, lambda: "device" in screen.form.wrong())
        await settled(pilot)
        assert "gpu:7  ! --device gpu:7: no GPU" in picture(app)
        await press(pilot, "enter", *["backspace"] * 5, *"cpu", "enter")
        await until(pilot, lambda: screen.form.known is not None and not screen.form.wrong())
        await press(pilot, "down", "down", "down", "enter", "0", "enter")
        assert "! --launches: 0 is not in the range 1 to 100" in picture(app)
        await press(pilot, "r")
        assert screen.view == "form"
        assert "--launches: 0 is not in the range" in picture(app).splitlines()[-2]


async def test_keys_in_the_form_end_nothing_that_it_waits_for(monkeypatch: pytest.MonkeyPatch) -> None:
    may_go_on, check = threading.Event(), DraftChecker.check

    def profiles() -> tuple[Profile, ...]:
        may_go_on.wait(DEADLINE_S)
        return shipped_profiles()

    def checked(checker: DraftChecker, draft: Draft) -> CheckedDraft:
        may_go_on.wait(DEADLINE_S)
        return check(checker, draft)

    monkeypatch.setattr(run_screen, "shipped_profiles", profiles)
    monkeypatch.setattr(DraftChecker, "check", checked)
    monkeypatch.setattr(run_screen, "_prepared", lambda options, job: 1 / 0)
    app = make_app("run")
    async with app.run_test(size=(80, 34)) as pilot:
        await press(pilot, "escape", "g", "enter")
        may_go_on.set()
        screen = await opened(pilot)
        await until(pilot, lambda: "cases run here" in picture(app))
        may_go_on.clear()
        await press(pilot, "g", "escape", "r")
        assert "this is a bug in gputui: ZeroDivisionError" in picture(app)
        assert "checking this box" in picture(app)
        may_go_on.set()
        await until(pilot, lambda: screen.form.known is not None)


async def test_a_run_in_progress_is_watched_where_the_screen_is_opened_and_what_ends_that_is_kept(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    may_end = threading.Event()

    def follow(*_: object) -> None:
        may_end.wait(DEADLINE_S)
        raise KeyError("no such")

    monkeypatch.setattr(run_screen, "follow_to_end", follow)
    app = make_app("run")
    async with app.run_test(size=(80, 34)) as pilot:
        screen = await opened(pilot)
        await until(pilot, lambda: screen.form.known is not None)
        screen.in_progress = ((LiveRun("0" * 36, tmp_path, tmp_path / "a.db", None),),)
        await press(pilot, "d")
        assert "would run here" in picture(app)
        await press(pilot, "escape")
        assert screen.view == "form"
        await press(pilot, "1", "2")
        await until(pilot, lambda: "reading its journal" in picture(app))
        may_end.set()
        await until(pilot, lambda: "this is a bug in gputui: KeyError: 'no such'" in picture(app))
    assert "Traceback" in error_log().read_text()


def test_the_form_is_a_line_for_each_option_and_shows_the_command_that_does_the_same() -> None:
    form = chosen()
    form.texts["only"] = "gemm membw"
    text = text_of(form_lines(form, 80))
    assert all(f"\n  {field.title}" in text for field in FIELDS)
    assert "$ gputui run quick --only gemm --only membw" in text
    assert "checking this box ..." in text  # what is known is of another draft
    text = text_of(form_lines(wrong_form(), 200))
    assert "温度" in text
    assert HOSTILE not in text


@pytest.mark.parametrize(("width", "ascii_only"), [(40, True), (61, False), (80, True), (120, False)])
def test_no_line_is_wider_than_the_terminal_or_has_what_it_would_obey(width: int, ascii_only: bool) -> None:
    for name, drawn in states():
        for line in drawn(width, 30):
            shown = in_ascii(line) if ascii_only else line
            text = "".join(span.text for span in shown)
            assert width_of(text) <= width or name == "logs", (name, text)
            assert text.isprintable(), (name, text)
            assert text.isascii() or not ascii_only, (name, text)


def test_nothing_is_meant_by_colour_alone() -> None:
    throttled, free = (
        text_of(watching_of(watching_gpu(is_throttled=is_throttled), 120, 37))
        for is_throttled in (True, False)
    )
    assert "POWER-CAPPED at 700 W, 34 % of 5 min" in throttled
    assert "not throttled" in free
    assert re.search(r"▸ memory copy base fp32 .* running ", free)
    assert re.search(r"! GPU 0: its clock fell", free)
    shown = dict(pictures())["run_figures_120x40.txt"]
    assert re.search(r"copy .* 48 % +BELOW NORMAL", shown)
    assert re.search(r"matmul fp32 .* 103 % +no verdict", shown)


def test_a_low_screen_keeps_intervals_warnings_and_the_count_of_what_is_out_of_sight() -> None:
    seen = watching_gpu()
    text = text_of(watching_of(seen, 120, 37))
    assert re.search(r"memory copy base gpu fp32 +launch 2 of 3, block 41 of at most 60", text)
    assert "enough: ±0.5 % or 60 blocks" in text
    assert re.search(r"4\.25 TB/s +±0\.1 % in this launch", text)
    assert "axis not from 0" in text
    assert seen.ends_at(datetime(2026, 11, 22, 14, 27, 30)) == "14:31"
    assert replace(seen, is_storing=True).ends_at(datetime(2026, 11, 22)) == ""

    for width, height in ((80, 21), (200, 47), (200, 21)):
        lines = watching_of(seen, width, height)
        assert len(lines) <= height
        assert "▸ memory copy base fp32" in text_of(lines), (width, height)
    text = text_of(watching_of(seen, 80, 21))
    assert "about 3:40 left, ends 14:31" in text
    assert "5 below: ok" in text
    wide, news = "-35 to +1231 %", tuple(Happened(500.0 + n, "info", f"news {n}") for n in range(30))
    *cases, last = (replace(case, spread=wide if case.spread else "") for case in seen.cases)
    cases.append(replace(last, state="failed"))
    text = text_of(watching_of(replace(seen, cases=tuple(cases), events=(*seen.events, *news)), 80, 21))
    assert re.search(rf"GPT training mini fp32 .* tok/s +{re.escape(wide)}  [━╸─]+ +19 %", text)
    assert "5 below: 4 ok, 1 failed" in text
    assert "! GPU 0: its clock fell" in text
    assert "news 29" in text


def test_a_run_that_could_not_be_stored_still_shows_what_it_measured() -> None:
    made = plan()
    tracker = ProgressTracker([made], is_of_this_clock=True)
    for line in (*lines_of(made), Stored(4, "gputui: no space left on device", 0)):
        tracker.hear(0, line)
    found = ended((LIVE,), tracker)
    assert found.wrong is not None
    assert "not stored: no space left on device" in found.wrong.message
    text = text_of(ended_lines(not_stored(), watching(), make_app().palette, 80))
    assert "not stored: no space left on device" in text
    assert all(case.rate in text for case in watching().cases if case.rate)


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
        *("gpu:0", ("gemm", "membw"), ("fp32", "amp"), 3, 300.0),
        profile="my profile.toml",
        db=Path("~/r.db"),
        pythons=("/a/python", "/b c/python"),
        seed=asked.seed,
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


def test_only_a_terminal_that_is_known_to_take_a_copy_is_sent_one() -> None:
    assert osc_52("a") == "\x1b]52;c;YQ==\x07"
    assert has_osc_52({"TERM": "xterm-kitty"})
    assert not has_osc_52({"TERM": "xterm-256color"})


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
        _, title, *rows = ["".join(span.text for span in line) for line in device_charts(progress, 169, 4)]
        is_lowered = capped is gpu
        assert title.split() == ["power", "340", "W", "cap", "350" if is_lowered else "700", "W"]
        assert [row.split()[0] for row in (rows[0], rows[3])] == ["700", "0"]
        assert ["┄" in row for row in rows[:4]] == [False, is_lowered, False, False]
        (_, first, *_) = device_rows(progress, 80)
        assert ("of 350" if is_lowered else "of 700") in "".join(span.text for span in first)
