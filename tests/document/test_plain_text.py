"""Commands that are printed can be copied, however narrow the terminal is."""

from __future__ import annotations

import shlex

from hypothesis import given
from hypothesis import strategies as st

from gputui.document.spans import command_lines

COMMAND = "gputui run --like 'my boxes/a.db@1e82620d' --db a.db --only gpt_train:mini:amp --launches 3"


@given(st.integers(20, 120))
def test_a_broken_command_is_the_same_command_to_a_shell(width: int) -> None:
    lines = command_lines(COMMAND, width, "a$ ")

    assert lines[0].startswith("a$ gputui")
    assert shlex.split("\n".join(lines).removeprefix("a$ ").replace("\\\n", "")) == shlex.split(COMMAND)
    longest = len("     --like 'my boxes/a.db@1e82620d' \\")
    assert all(len(line) <= max(width, longest) for line in lines)


def test_an_option_stays_beside_its_value() -> None:
    assert command_lines(COMMAND, 80, "a$ ") == [
        "a$ gputui run --like 'my boxes/a.db@1e82620d' --db a.db \\",
        "     --only gpt_train:mini:amp --launches 3",
    ]


def test_the_reason_is_a_comment_where_there_is_room_and_without_a_width_always() -> None:
    assert command_lines("gputui doctor", 30, "next: ", "why") == ["next: gputui doctor  # why"]
    assert command_lines("gputui doctor", 22, "next: ", "why") == ["next: gputui doctor"]
    assert command_lines("gputui doctor", None, "next: ", "why" * 99) == [
        f"next: gputui doctor  # {'why' * 99}"
    ]
