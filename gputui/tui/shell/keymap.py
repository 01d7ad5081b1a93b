"""Actions and their keys: each is declared once; help, hints and docs are generated from the declaration."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from gputui.tui.terminal.lines import Line, Span
from gputui.tui.widgets.cells import fitted, line_width
from gputui.tui.widgets.sections import fitting, joined


@dataclass(frozen=True, slots=True)
class Action:
    """What a key does."""

    id: str
    """The screen's name for it."""
    key: str
    """As Textual names it; several are separated by commas, the one to show first."""
    title: str
    """One or two words."""
    tooltip: str
    needs: str = ""
    """What it has no effect without, as `a GPU`; empty if it always works."""

    @property
    def sentence(self) -> str:
        """The description, and what the action needs."""
        return f"{self.tooltip} (needs {self.needs})" if self.needs else self.tooltip


_SHOWN_KEYS = {
    "slash": "/",
    "left_square_bracket": "[",
    "right_square_bracket": "]",
    "plus": "+",
    "minus": "-",
    "equals_sign": "=",
    "less_than_sign": "<",
    "greater_than_sign": ">",
    "question_mark": "?",
    "escape": "esc",
    "pagedown": "pgdn",
    "pageup": "pgup",
    "shift+tab": "shift-tab",
    "ctrl+c": "ctrl-c",
    "ctrl+backslash": "ctrl-\\",
    "ctrl+p": "ctrl-p",
    "ctrl+l": "ctrl-l",
    "ctrl+z": "ctrl-z",
}


def shown_key(action: Action) -> str:
    """The first key of an action as shown to the user."""
    return shown_keys(action)[0]


def shown_keys(action: Action) -> tuple[str, ...]:
    """All keys of an action as shown to the user."""
    return tuple(_SHOWN_KEYS.get(key, key) for key in action.key.split(","))


def key_hint(key: str, title: str) -> Line:
    """A key and what it does, as in the last line of a screen."""
    return Span(key, "accent"), Span(f" {title}  ", "dim")


def keys_line(hints: Iterable[Line], width: int, end: Line = (), *, has_palette: bool = True) -> Line:
    """The first hints that fit before the end, and where there is room the key of the palette."""
    room = width - line_width(end)
    kept = fitting(hints, room)
    if has_palette:
        kept += fitting([key_hint("ctrl-p", "Palette")], room - line_width(joined(kept, "")))
    return fitted((*joined(kept, ""), *end), width)


APP_ACTIONS: tuple[Action, ...] = (
    Action("help", "question_mark", "Help", "The keys of the screen that is shown"),
    Action("quit", "q,ctrl+backslash", "Quit", "Leave gputui; a run in progress goes on"),
    Action("theme", "T", "Colours", "Draw in the next theme: light, dark, for the colour-blind, Solarized"),
    Action("repaint", "ctrl+l", "Repaint", "Draw the whole screen again"),
    Action("suspend_process", "ctrl+z", "Suspend", "Put it aside; `fg` of the shell brings it back"),
    Action("interrupt", "ctrl+c", "Quit", "Leave, also in the middle of typing"),
)
"""Keys of every screen; those that open screens are in `registry.SCREENS`."""

SCREENS_ACTIONS: tuple[Action, ...] = (
    Action("ring", "N", "Notify", "Ring when a run ends, a case fails or memory runs out (on or off)"),
    Action("open_log", "L", "Log", "Errors shown on the screens, with time and place"),
    Action(
        "palette",
        "ctrl+p",
        "Palette",
        "Screens, keys, runs, files, GPUs, profiles and pages, found by a few letters",
    ),
)
"""Keys of every screen if there are several."""
