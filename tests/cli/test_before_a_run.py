"""What `gputui run` says of a busy box before it measures, and what it asks."""

from __future__ import annotations

import sys
from pathlib import Path

import click
import pytest
from command_line import write_spin_profile

from gputui.cli import run
from gputui.cli.output import confirmed
from gputui.errors import EXIT_USAGE, GputuiError
from gputui.services.doctor import disturbances as found_before
from gputui.services.doctor.disturbances import Check
from gputui.services.runs.options import RunOptions
from gputui.services.runs.start import prepare

BUSY = Check("other programs", "note", "busy with other work for 7.3 threads, and this box has 16", "wait")


def before_a_run(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, answer: str, *, yes: bool = False, found: int = 1
) -> None:
    """What happens before a run on a terminal at which somebody types `answer`."""
    profile = str(write_spin_profile(tmp_path / "spin.toml"))
    prepared = prepare(RunOptions(profile=profile, db=tmp_path / "a.db", pythons=(sys.executable,)))
    monkeypatch.setattr(found_before, "disturbances", lambda machine, gpus: (BUSY,) * found)
    for stream in (sys.stdin, sys.stderr):
        monkeypatch.setattr(stream, "isatty", lambda: bool(answer), raising=False)
    monkeypatch.setattr("click.termui.visible_prompt_func", lambda text: answer)
    run._see_disturbances(prepared, yes=yes)


def test_who_does_not_want_to_measure_on_a_busy_box_has_measured_nothing(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    for answer in ("n", "\n"):
        with pytest.raises(GputuiError) as refused:
            before_a_run(monkeypatch, tmp_path, answer)
        assert refused.value.exit_code == EXIT_USAGE
        assert "--yes" in refused.value.hint
        assert BUSY.found in " ".join(capsys.readouterr().err.split())


@pytest.mark.parametrize(("answer", "yes"), [("y", False), ("n", True), ("", False)])
def test_yes_by_word_or_option_and_a_pipe_measure_with_a_warning(
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    answer: str,
    yes: bool,
) -> None:
    before_a_run(monkeypatch, tmp_path, answer, yes=yes)
    assert BUSY.found in " ".join(capsys.readouterr().err.split())


def test_another_answer_than_yes_or_no_is_asked_for_again_in_plain_words(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    answers = iter(("maybe", "Y"))
    monkeypatch.setattr("click.termui.visible_prompt_func", lambda text: next(answers))
    assert confirmed("Measure anyway?")
    assert "please answer y or n" in capsys.readouterr().err
    assert next(answers, "") == ""


def test_ctrl_c_at_a_question_says_that_it_counts_as_no(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def interrupted(text: str) -> str:
        raise KeyboardInterrupt

    monkeypatch.setattr("click.termui.visible_prompt_func", interrupted)
    with pytest.raises(click.Abort):
        confirmed("Measure anyway?")
    assert "which counts as no" in capsys.readouterr().err


def test_a_quiet_box_is_measured_without_a_word(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    before_a_run(monkeypatch, tmp_path, "n", found=0)
    assert capsys.readouterr().err == ""
