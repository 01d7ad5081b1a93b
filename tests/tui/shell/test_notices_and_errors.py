"""The app notifies of runs on every screen, and logs the errors that it has shown."""

from __future__ import annotations

import sys
import threading
from pathlib import Path

import pytest
from command_line import first_seed, gputui, only_run_dir, wait_until_ended, write_failing_profile
from pty_harness import Terminal
from shell_app import make_app, picture, press, settled

from gputui.services.support.background import Job
from gputui.services.support.paths import error_log, keep_error, monitor_file
from gputui.tui.monitor.settings import load_settings
from gputui.tui.shell.shell_screen import ShellScreen

DEADLINE_S = 300.0


@pytest.mark.slow
def test_every_viewer_with_notifications_rings_on_any_screen(
    repository: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    goes_on = tmp_path / "goes-on"
    profile = write_failing_profile(tmp_path / "bad.toml", waits_for=goes_on)
    environment = {"PYTHONPATH": str(repository), "PYTHONUTF8": "1"}
    command = [sys.executable, "-m", "gputui"]
    with (
        Terminal([*command, "--notify"], environment=environment) as asked,
        Terminal(command, environment={**environment, "TMUX": "/tmp/nowhere,1,0"}) as chose,
    ):
        asked.wait_for("2 Run", DEADLINE_S)
        chose.wait_for("2 Run", DEADLINE_S)
        chose.type(b"3")
        chose.wait_for("[3 Res]", DEADLINE_S)
        chose.type(b"N")
        chose.wait_for("rings and notifies when a run ends", DEADLINE_S)
        begun = gputui("run", profile, "--detach", "--db", tmp_path / "a.db", "--seed", str(first_seed()))
        assert begun.returncode == 0, begun.stderr
        name = only_run_dir().name[-8:].encode()
        failed, ended = b"run %s: command:bad cpu failed" % name, b"run %s finished" % name
        plain, wrapped = b"\x07\x1b]9;gputui: %s\x07", b"\x07\x1bPtmux;\x1b\x1b]9;gputui: %s\x07\x1b\\"
        asked.wait_for(lambda: plain % failed in asked.raw, DEADLINE_S)
        chose.wait_for(lambda: wrapped % failed in chose.raw, DEADLINE_S)
        goes_on.touch()
        asked.wait_for(lambda: plain % ended in asked.raw, DEADLINE_S)
        chose.wait_for(lambda: wrapped % ended in chose.raw, DEADLINE_S)
        for terminal in (asked, chose):
            assert terminal.raw.count(b"]9;gputui: ") == terminal.raw.count(b"]777;notify;gputui;") == 2
            terminal.type(b"q")
            assert terminal.ended() == 0
    wait_until_ended(only_run_dir())
    settings, complaint = load_settings(monitor_file())
    assert (settings.notify, complaint) == (True, "")


async def test_nothing_rings_by_default_and_the_key_turns_it_on_and_off() -> None:
    app = make_app()
    async with app.run_test(size=(80, 24)) as pilot:
        await settled(pilot)
        assert not app.settings.notify
        await press(pilot, "3", "N")
        assert "rings and notifies when a run ends" in picture(app)
        assert app.settings.notify
        await press(pilot, "4", "N")
        assert "rings no more" in picture(app)
        assert not app.settings.notify


async def test_an_error_is_shown_where_it_happened_and_logged_where_a_key_of_every_screen_shows_it(
    tmp_path: Path,
) -> None:
    (tmp_path / "bad.db").write_bytes(b"no result file")
    app = make_app()
    async with app.run_test(size=(80, 24)) as pilot:
        await settled(pilot)
        app.open_screen("results", (str(tmp_path / "bad.db"),))
        await settled(pilot)
        shown = picture(app)
        assert "bad.db" in shown
        await press(pilot, "1", "L")
        shown = " ".join(picture(app).split())
        assert "Errors, the newest first" in shown
        assert "Z results: " in shown
        await press(pilot, "escape", "3", "L", "escape", "question_mark")
        await press(pilot, "end")
        assert "Errors shown on the screens, with time and place" in " ".join(picture(app).split())
    assert error_log().read_text().count("Z results: ") == 1


async def test_a_bug_of_a_screen_or_of_a_thread_is_reported_and_kept_with_its_place() -> None:
    def breaks(job: Job[None] | None) -> None:
        raise ValueError("a bug of a job" if job else "a bug of a thread")

    before = threading.excepthook
    app = make_app("results")
    async with app.run_test(size=(120, 40)) as pilot:
        await settled(pilot)
        screen = app.screen
        assert isinstance(screen, ShellScreen)
        screen.begin(breaks, lambda outcome: None, lambda message, hint: screen.say(message, "warn"))
        await settled(pilot)
        assert "this is a bug in gputui: ValueError: a bug of a job" in picture(app)
        thread = threading.Thread(target=breaks, args=(None,))
        thread.start()
        thread.join()
        await settled(pilot)
        assert "this is a bug in gputui: ValueError: a bug of a thread: L shows where" in picture(app)
    kept = error_log().read_text()
    assert "ValueError: a bug of a job" in kept
    assert kept.count("in breaks") == 2
    assert threading.excepthook == before


async def test_without_errors_the_log_says_so_and_names_its_file_and_is_ascii_where_it_must_be() -> None:
    app = make_app(ascii_only=True)
    async with app.run_test(size=(80, 24)) as pilot:
        await press(pilot, "L")
        assert "None so far" in picture(app)
        name = str(error_log())
        assert name[:80] in picture(app) or name[:60] in picture(app).replace("\n", "")
        await press(pilot, "L")
        assert picture(app).startswith("moving")
        keep_error(error_log(), "run", "温度 · 71 °C — too hot " * 20)
        await press(pilot, "L")
        assert "too hot" in picture(app)
        assert picture(app).isascii()
