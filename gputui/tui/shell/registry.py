"""The screens of the app, in the order of their keys. A screen's code is loaded when it is first opened."""

from __future__ import annotations

import importlib
from dataclasses import dataclass
from typing import TYPE_CHECKING

from gputui.model.units import counted
from gputui.services.live.demo import CAUTION
from gputui.store.text import clean_text
from gputui.tui.terminal.lines import Line, Span
from gputui.tui.widgets.cells import fitted, line_width

if TYPE_CHECKING:
    from textual.screen import Screen


@dataclass(frozen=True, slots=True)
class ScreenEntry:
    """A screen; to add one, add its package in `tui/screens` and a line in SCREENS."""

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


def load_screen(entry: ScreenEntry) -> Screen[None]:
    """The screen in `tui/screens/ID/screen.py`; imports its code."""
    made: Screen[None] = importlib.import_module(f"gputui.tui.screens.{entry.id}.screen").SCREEN()
    return made


def screens_line(current: str, runs: int = 0) -> Line:
    """All screens with their keys, the current one in brackets: ` 1 Monitor [3 Results]`.

    They are preceded by the number of runs in progress and the key that shows them.
    """
    note = f"{counted(runs, 'run')}{_LONG_WORDS} {_RUN_KEY} " if runs else ""
    return (*((Span(note, "warn"),) if note else ()), *_names(current))


def narrowed(screens: Line, width: int) -> Line:
    """A line of `screens_line` for a first line of `width` cells.

    Where space is short, names have three letters, and the text about runs is shortened, then dropped; then
    keys are shown without names.
    """
    room = width - _LEAST_LEFT
    names = screens[-len(SCREENS) :]
    if width < _FULL_NAMES_FROM or line_width(names) > width - _ROOM_FOR_SHORT_TEXTS:
        pairs = zip(SCREENS, names, strict=True)
        short = (Span(span.text.replace(entry.title, entry.short), span.style) for entry, span in pairs)
        screens = (*screens[: -len(SCREENS)], *short)
    if screens and screens[0].style == "warn":
        if line_width(screens) > width - _ROOM_FOR_HEADING:
            screens = (Span(screens[0].text.replace(_LONG_WORDS, ":"), "warn"), *screens[1:])
        if line_width(screens) > room:
            screens = screens[1:]
    if line_width(screens) > room:
        screens = tuple(Span(span.text[:2] + span.text[-1], span.style) for span in screens)
    return screens


def _names(current: str) -> Line:
    return tuple(
        Span(f"[{entry.key} {entry.title}]", "accent")
        if entry.id == current
        else Span(f" {entry.key} {entry.title} ", "dim")
        for entry in SCREENS
    )


def screen_at(x: int, width: int) -> str:
    """The id of the screen whose name or key is at a cell of the first line; empty for none."""
    right = width
    for entry, span in zip(reversed(SCREENS), reversed(narrowed(_names(""), width)), strict=True):
        left = right - len(span.text)
        if left <= x < right:
            return entry.id
        right = left
    return ""


def header_line(current: str, heading: str, width: int, runs: int = 0, *, is_demo: bool = False) -> Line:
    """The first line of a screen: its heading, runs in progress, and the screens."""
    screens = narrowed(screens_line(current, runs), width)
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
