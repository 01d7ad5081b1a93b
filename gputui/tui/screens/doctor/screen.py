"""The Doctor screen: the findings of `gputui doctor`, the worst ones highlighted."""

from __future__ import annotations

import os
import sys
import textwrap
from dataclasses import replace

from textual.app import ComposeResult

from gputui.services.doctor.checks import WORDS, SystemState, Terminal, gathered, judged, readiness
from gputui.services.doctor.disturbances import Check
from gputui.services.support.background import Job
from gputui.store.text import clean_text
from gputui.tui.screens.doctor.actions import ACTIONS
from gputui.tui.shell.shell_screen import ShellScreen, bindings_of
from gputui.tui.terminal.lines import Line, Span
from gputui.tui.widgets.app_context import shell_of
from gputui.tui.widgets.lines_page import LinesPage

_STYLES = {"ok": "good", "note": "warn", "problem": "alarm", "unknown": "dim"}
_STATE, _TOPIC = 9, 16
_NARROW = 60
"""Below this width findings begin on a new line."""


class DoctorScreen(ShellScreen):
    """One page; nothing is checked before the screen is opened."""

    ID = "doctor"
    ACTIONS = ACTIONS
    BINDINGS = bindings_of(ACTIONS)

    def __init__(self) -> None:
        super().__init__()
        self._box: SystemState | None = None
        self._checks: tuple[Check, ...] = ()
        self._places: tuple[int, ...] = ()
        """Lines where problems and notes begin."""

    def compose_body(self) -> ComposeResult:
        yield LinesPage(id="checks")

    def on_mount(self) -> None:
        self.is_ready = True
        self.query_one(LinesPage).focus()
        self.action_check()

    def heading(self) -> str:
        if self._box is None:
            return "this box"
        return readiness(self._checks, [gpu.index for gpu in self._box.machine.gpus]).removesuffix(".")

    def on_resize(self) -> None:
        """Wrap again, and check the terminal's new size."""
        if self._box is not None:
            self._judge(self._box)
        super().on_resize()
        self._draw(keeps_place=True)

    def action_check(self) -> None:
        terminal = self._terminal

        def work(job: Job[SystemState]) -> SystemState:
            return gathered(terminal, on_step=lambda what: job.say(f"looking at {what}"))

        self.begin(work, self._take, self._fail)

    def action_back(self) -> None:
        """Cancel the check in progress, else go to the monitor."""
        if self.give_up():
            self.say("given up; r looks again", "dim")
        else:
            shell_of(self).open_screen("monitor")

    def action_next(self) -> None:
        here = self.query_one(LinesPage).scroll_offset.y
        self._go(next((place for place in self._places if place > here), None))

    def action_previous(self) -> None:
        here = self.query_one(LinesPage).scroll_offset.y
        self._go(next((place for place in reversed(self._places) if place < here), None))

    def _go(self, place: int | None) -> None:
        if place is not None:
            self.query_one(LinesPage).scroll_to(0, place, animate=False)

    @property
    def _terminal(self) -> Terminal:
        size, encoding = self.app.size, getattr(sys.__stdout__, "encoding", "") or ""
        return Terminal(size.width, size.height, True, encoding, os.environ.get("TERM", ""))

    def _take(self, box: SystemState) -> None:
        self._judge(box)
        self._draw()

    def _judge(self, box: SystemState) -> None:
        """With the current size of the terminal."""
        self._box = replace(box, terminal=self._terminal)
        self._checks = judged(self._box)

    def _fail(self, message: str, hint: str) -> None:
        self.say(f"{message}: {hint}" if hint else message, "warn")

    def _draw(self, *, keeps_place: bool = False) -> None:
        if not self._checks:
            return
        lines: list[Line] = []
        places = []
        for check in self._checks:
            if check.state in ("problem", "note"):
                places.append(len(lines))
            lines += lines_of(check, self.size.width)
        self._places = tuple(places)
        self.query_one(LinesPage).show(tuple(lines), keeps_place=keeps_place)


def lines_of(check: Check, width: int) -> tuple[Line, ...]:
    """One check in lines of at most `width` cells."""
    is_narrow = width < _NARROW
    margin = 2 if is_narrow else _STATE + _TOPIC
    room = max(width - margin - 1, 12)
    found = textwrap.wrap(clean_text(check.found), room, break_on_hyphens=False) or [""]
    head = (
        Span(f"{WORDS[check.state]:{_STATE}}", _STYLES[check.state]),
        Span(f"{clean_text(check.topic)[: _TOPIC - 1]:{_TOPIC}}", "title"),
    )
    lines: list[Line] = [head if is_narrow else (*head, Span(found[0]))]
    lines += [(Span(" " * margin + line),) for line in found[not is_narrow :]]
    steps = textwrap.wrap(clean_text(check.next_step), room - 3, break_on_hyphens=False)
    for number, line in enumerate(steps):
        lines.append((Span(" " * margin + ("   " if number else "-> ") + line, "dim"),))
    return tuple(lines)


SCREEN = DoctorScreen
