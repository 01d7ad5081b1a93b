"""Signals that end a screen before it has an event loop."""

from __future__ import annotations

import signal

import pytest

from gputui.tui.terminal.splash import ENDING, ending_as_exit


class _Interrupted:
    """A member of a class that is being defined when a signal comes."""

    def __init__(self, number: signal.Signals) -> None:
        self._number = number

    def __set_name__(self, owner: type, name: str) -> None:
        signal.raise_signal(self._number)


@pytest.mark.parametrize("number", ENDING, ids=lambda number: number.name)
def test_a_signal_in_the_middle_of_an_import_ends_with_its_status(number: signal.Signals) -> None:
    with pytest.raises(SystemExit) as raised, ending_as_exit():
        type("Style", (), {"name": _Interrupted(number)})
    assert raised.value.code == 128 + number


def test_an_error_without_a_signal_stays_what_it_is() -> None:
    with pytest.raises(ValueError, match="mine"), ending_as_exit():
        raise ValueError("mine")
