"""Commands that open a screen, without a terminal."""

from __future__ import annotations

import pytest

from gputui.cli import main


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
