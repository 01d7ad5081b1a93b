"""The screens, and their actions with the keys: each is declared once; header, help, hints and docs use it.

A screen's code is loaded when it is first opened.
"""

from __future__ import annotations

import importlib
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING

from gputui.document.spans import Line, Span, line_width
from gputui.errors import clean_text
from gputui.model.units import counted
from gputui.services.playback.demo_gpus import CAUTION
from gputui.tui.widgets.cells import fitted, fitting, joined

if TYPE_CHECKING:
    from gputui.tui.terminal.renderer import AppScreen


@dataclass(frozen=True, slots=True)
class Action:
    id: str
    """The screen's name for it."""
    key: str
    """As Textual names it; several are separated by commas, the one to show first."""
    title: str
    tooltip: str
    needs: str = ""
    """What it has no effect without, as `a GPU`; empty if it always works."""
    does: str = ""
    """What Textual runs, as `step(1)`; empty if it is called as the id."""

    @property
    def sentence(self) -> str:
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
    "ctrl+backslash": "ctrl-\\",
}


def shown_key(action: Action) -> str:
    return shown_keys(action)[0]


def shown_keys(action: Action) -> tuple[str, ...]:
    return tuple(_SHOWN_KEYS.get(key, key.replace("+", "-")) for key in action.key.split(","))


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
"""Keys of every screen; those that open screens are in SCREENS."""

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


@dataclass(frozen=True, slots=True)
class ScreenEntry:
    """A screen; to add one, add its module in `tui/screens` and a line in SCREENS."""

    key: str
    id: str
    title: str
    short: str
    """Three letters, for a narrow header."""
    tooltip: str


SCREENS: tuple[ScreenEntry, ...] = (
    ScreenEntry("1", "monitor", "Monitor", "Mon", "GPUs, host and processes, live"),
    ScreenEntry("2", "run", "Run", "Run", "Choose a profile and watch it"),
    ScreenEntry("3", "results", "Results", "Res", "Open result files and runs"),
    ScreenEntry("4", "compare", "Compare", "Cmp", "Put runs side by side"),
    ScreenEntry("5", "doctor", "Doctor", "Doc", "See whether this box can measure"),
)


_RUN_KEY = next(entry.key for entry in SCREENS if entry.id == "run")


_LONG_WORDS = " in progress: key"
"""Replaced by a colon where space is short."""
_LEAST_LEFT, _ROOM_FOR_HEADING = 5, 16
"""Cells of the first line that stay free before keys and names, and before the long text about runs."""
_FULL_NAMES_FROM, _ROOM_FOR_SHORT_TEXTS = 100, 24
"""Columns from which on names are not shortened, and cells of the first line that stay free before them."""


def load_screen(entry: ScreenEntry) -> AppScreen:
    """The screen in `tui/screens/ID.py`; imports its code."""
    made: AppScreen = importlib.import_module(f"gputui.tui.screens.{entry.id}").SCREEN()
    return made


def screens_line(current: str, runs: int = 0) -> Callable[[int], Line]:
    """All screens with their keys, the current one in brackets, for a first line of so many cells.

    They are preceded by the number of runs in progress and the key that shows them. Where space is short,
    names have three letters, and the text about runs is shortened, then dropped; then keys are shown without
    names.
    """
    return partial(_screens_line, current, runs)


def _screens_line(current: str, runs: int, width: int) -> Line:
    names = _names(current, [f"{entry.key} {entry.title}" for entry in SCREENS])
    if width < _FULL_NAMES_FROM or line_width(names) > width - _ROOM_FOR_SHORT_TEXTS:
        names = _names(current, [f"{entry.key} {entry.short}" for entry in SCREENS])
    room = width - _LEAST_LEFT
    for words, most in ((_LONG_WORDS, width - _ROOM_FOR_HEADING), (":", room)) if runs else ():
        note = Span(f"{counted(runs, 'run')}{words} {_RUN_KEY} ", "warn")
        if line_width((note, *names)) <= most:
            return (note, *names)
    return names if line_width(names) <= room else _names(current, [entry.key for entry in SCREENS])


def _names(current: str, texts: Iterable[str]) -> Line:
    return tuple(
        Span(f"[{text}]", "accent") if entry.id == current else Span(f" {text} ", "dim")
        for entry, text in zip(SCREENS, texts, strict=True)
    )


def screen_at(x: int, width: int) -> str:
    """The id of the screen whose name or key is at a cell of the first line; empty for none."""
    right = width
    for entry, span in zip(reversed(SCREENS), reversed(_screens_line("", 0, width)), strict=True):
        left = right - len(span.text)
        if left <= x < right:
            return entry.id
        right = left
    return ""


def header_line(current: str, heading: str, width: int, runs: int = 0, *, is_demo: bool = False) -> Line:
    """The first line of a screen: its heading, runs in progress, and the screens."""
    screens = _screens_line(current, runs, width)
    room = max(width - line_width(screens) - 1, 0)
    left = fitted(
        (
            Span("gputui", "title"),
            *((Span(f"  {CAUTION}", "warn"),) if is_demo else ()),
            Span(f"  {clean_text(heading)}"),
        ),
        room,
    )
    return fitted((*left, Span(" "), *screens), width)
