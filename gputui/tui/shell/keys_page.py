"""What `?` shows on every screen: keys under headings, generated from their declarations."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from gputui.tui.shell.keymap import Action, shown_keys
from gputui.tui.terminal.lines import Line, Span
from gputui.tui.widgets.cells import fitted, left, width_of
from gputui.tui.widgets.sections import section
from gputui.tui.widgets.wrapping import wrapped

THIS_SCREEN, EVERY_SCREEN = "Keys of this screen", "Keys of every screen"
_MOST_LINES = 6
"""Of a description."""
_TITLES_FROM, _NARROW = 96, 56
"""From this width on titles have a column; below that one descriptions go on lines of their own."""
_TITLE = 14
_INDENT = 3

Group = tuple[str, Sequence[Action]]
"""A heading, and the actions below it."""


def key_lines(groups: Iterable[Group], width: int) -> list[Line]:
    """Keys, titles and descriptions, a blank line between groups; long descriptions wrap."""
    filled = [(heading, actions) for heading, actions in groups if actions]
    listed = [
        (heading, [(", ".join(shown_keys(one)), one) for one in actions]) for heading, actions in filled
    ]
    lead = max((width_of(keys) for _, rows in listed for keys, _ in rows), default=0) + 3
    lines: list[Line] = []
    for number, (heading, rows) in enumerate(listed):
        lines += [fitted((), width)] if number else []
        lines.append(
            section((Span(heading, "title"),), width, () if number else (Span("esc leaves", "dim"),))
        )
        for keys, action in rows:
            lines += _described(keys, action, lead, width)
    return lines


def _described(keys: str, action: Action, lead: int, width: int) -> list[Line]:
    head = Span(left(f" {keys}", lead), "accent")
    if width < _NARROW:
        rest = wrapped(action.sentence, max(width - _INDENT - 1, 8), _MOST_LINES)
        under = [fitted((Span(" " * _INDENT + row, "dim"),), width) for row in rest]
        return [fitted((head, Span(action.title)), width), *under]
    title = left(action.title, _TITLE) if width >= _TITLES_FROM else ""
    room = width - lead - len(title) - 1
    rows = wrapped(action.sentence, room, _MOST_LINES) or [""]
    first = fitted((head, Span(title), Span(rows[0])), width)
    indent = " " * (lead + len(title))
    return [first, *(fitted((Span(indent + row),), width) for row in rows[1:])]
