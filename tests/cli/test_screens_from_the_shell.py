"""Commands that open a screen, without a terminal."""

from __future__ import annotations

from pathlib import Path

import pytest
from journals import make_journal

from gputui.cli import main
from gputui.store.journal_reader import read_journal
from gputui.store.writing import store_run


@pytest.mark.parametrize(
    ("words", "message", "hint"),
    [
        (("results",), "no terminal to draw on", "gputui runs F"),
        (("compare", "a.db", "--tui"), "no terminal to draw on", "is printed"),
        (("compare", "a.db", "--tui", "--by", "device"), "no terminal to draw on", "is printed"),
        (("compare", "a.db", "--tui", "--format", "csv"), "--tui goes with files, --by", "other options"),
    ],
)
def test_without_a_terminal_the_command_that_prints_is_named(
    words: tuple[str, ...], message: str, hint: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit) as left:
        main(words)
    output = capsys.readouterr()
    assert left.value.code == 2
    assert message in output.err
    assert hint in output.err
    assert not output.out


def test_compare_prints_as_before(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for number in (1, 2):
        run_id = f"0194b5a0-0000-7000-8000-0000eeee000{number}"
        run_dir = make_journal(tmp_path / run_id, run_id=run_id, scale=float(number), launches=3)
        store_run(tmp_path / f"{number}.db", read_journal(run_dir), ())
    with pytest.raises(SystemExit) as left:
        main(["compare", str(tmp_path / "1.db"), str(tmp_path / "2.db")])
    assert left.value.code == 0
    assert "slower" in capsys.readouterr().out
