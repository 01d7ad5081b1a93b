"""Measuring from Python."""

from __future__ import annotations

import signal
import subprocess
import sys
import threading
import traceback
from pathlib import Path
from typing import Any  # Any: an option that a type checker refuses

import pytest
from command_line import write_spin_profile

import gputui
from gputui.cli.run import command
from gputui.errors import GputuiError
from gputui.services.runs.options import StatedOptions


def test_a_run_prints_plain_lines_and_returns_its_rates(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    profile = write_spin_profile(tmp_path / "spin.toml")
    frames = gputui.run(profile, db=tmp_path / "a.db", label="mine", only=["spin"], verbose=False)
    out = capsys.readouterr().out
    assert "0:00 launch 1 of hashing mini cpu" in out
    assert "\r" not in out
    assert "\x1b" not in out
    assert list(frames.rates["workload"]) == ["spin"]
    assert list(frames.runs["label"]) == ["mine"]


def test_a_type_checker_knows_the_options_of_the_command() -> None:
    names = {
        parameter.opts[-1].removeprefix("--") for parameter in command.params if parameter.name != "profile"
    }
    assert names - StatedOptions.__annotations__.keys() == {"db", "detach", "notify", "json"}
    assert StatedOptions.__annotations__.keys() <= names


def test_what_is_wrong_is_raised_with_what_the_command_said_of_it_and_no_other_error(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    wrong: tuple[tuple[str, dict[str, Any], str, str], ...] = (
        ("quick", {"launches": 0}, "0 is not in the range", ""),
        ("quik", {}, 'unknown profile "quik"', "did you mean quick?"),
        ("quick", {"bugdet": 1}, "no such option", "did you mean --budget?"),
    )
    for profile, options, message, hint in wrong:
        with pytest.raises(GputuiError) as raised:
            gputui.run(profile, db=tmp_path / "a.db", **options)
        shown = "".join(traceback.format_exception(raised.value))
        assert message in raised.value.message
        assert message in capsys.readouterr().out
        assert hint in raised.value.hint
        assert raised.value.hint in shown
        assert raised.value.exit_code == 2
        assert "JSONDecodeError" not in shown


@pytest.mark.slow
def test_an_interrupt_ends_the_run_and_keeps_what_is_finished(tmp_path: Path) -> None:
    profile = write_spin_profile(tmp_path / "long.toml", replicates=100)
    code = f"import gputui; gputui.run({str(profile)!r}, db={str(tmp_path / 'a.db')!r})"
    with subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE, text=True) as kernel:
        assert kernel.stdout is not None
        ended = threading.Timer(300, kernel.kill)
        ended.start()
        for line in kernel.stdout:
            if "pass 2 of" in line:
                kernel.send_signal(signal.SIGINT)
                break
        rest = kernel.stdout.read()
        ended.cancel()
    assert "ending the run and keeping what is finished" in rest
    frames = gputui.load(tmp_path / "a.db")
    assert list(frames.runs["status"]) == ["interrupted"]
    assert len(frames.rates) == 1
