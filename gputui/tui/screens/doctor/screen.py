"""The Doctor screen: the findings of `gputui doctor` by group, the answer and what is worst first."""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence
from dataclasses import replace

from textual.app import ComposeResult

from gputui.document.spans import wrapped as lines_in
from gputui.services.doctor.check_lines import STATE, TOPIC, check_lines
from gputui.services.doctor.checks import (
    STYLES,
    Group,
    SystemState,
    Terminal,
    gathered,
    grouped,
    judged,
    readiness,
)
from gputui.services.doctor.disturbances import Check
from gputui.services.doctor.readings import Reading, readings
from gputui.services.playback.demo_box import made_up_box
from gputui.services.support.background import Job
from gputui.store.text import clean_text
from gputui.tui.screens.doctor.actions import ACTIONS
from gputui.tui.shell.shell_screen import ShellScreen, bindings_of
from gputui.tui.terminal.lines import Line, Span
from gputui.tui.widgets.app_context import shell_of
from gputui.tui.widgets.cells import fitted, side_by_side, wrapped
from gputui.tui.widgets.lines_page import LinesPage
from gputui.tui.widgets.sections import section

_INDENT, _TWO_COLUMNS = 3, 170
"""Cells before a state; from this width on groups stand in two columns."""


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

    def begin_with(self, words: tuple[str, ...]) -> None:
        self.query_one(LinesPage).focus()
        self.action_check()

    def heading(self) -> str:
        return "doctor" if self._box is not None else "doctor  checking this box"

    def on_resize(self) -> None:
        """Wrap again, and check the terminal's new size."""
        if self._box is not None:
            self._judge(self._box)
        super().on_resize()
        self._draw(keeps_place=True)

    def action_check(self) -> None:
        terminal, demo = self._terminal, shell_of(self).demo

        def work(job: Job[SystemState]) -> SystemState:
            return (
                gathered(terminal, on_step=lambda what: job.say(f"looking at {what}"))
                if demo is None
                else made_up_box(demo, terminal)
            )

        self.begin(work, self._take)

    def action_back(self) -> None:
        if self.give_up():
            self.say("cancelled; r checks again", "dim")
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

    def _draw(self, *, keeps_place: bool = False) -> None:
        if not self._checks:
            return
        box = self._box
        indexes = [gpu.index for gpu in box.machine.gpus] if box is not None else []
        page = self.query_one(LinesPage)
        read = readings(box) if box is not None else ()
        answer, groups = readiness(self._checks, indexes), grouped(self._checks)
        lines, self._places = page_of(answer, groups, self.size.width, page.size.height, read)
        page.show(lines, keeps_place=keeps_place)


def page_of(
    answer: str, groups: Sequence[Group], width: int, height: int, read: Sequence[Reading] = ()
) -> tuple[tuple[Line, ...], tuple[int, ...]]:
    """The answer and the groups, and the lines at which problems and notes begin.

    What was read is below, and groups have blank lines between them, where all fits into `height` lines.
    """
    worst = groups[0].worst if groups else "ok"
    style = STYLES[worst] if worst == "problem" else "title"
    head: list[Line] = [(Span(row, style),) for row in wrapped(clean_text(answer), width - 1, 3)]
    if width >= _TWO_COLUMNS:
        lines, places = _in_two_columns(head, groups, width, read)
        return (lines, places) if len(lines) <= height else _in_two_columns(head, groups, width)
    blocks = [_group_lines(group, width) for group in groups]
    below = _reading_lines(read, width) if read else []
    if len(head) + sum(len(block) + 1 for block, _ in blocks) + len(below) + 1 <= height and below:
        blocks.append((below, []))
    gap = 1 if len(head) + sum(len(lines) + 1 for lines, _ in blocks) <= height else 0
    drawn, found = head, list[int]()
    for block, worst_places in blocks:
        drawn += [()] * gap
        found += [len(drawn) + place for place in worst_places]
        drawn += block
    return tuple(drawn), tuple(found)


def _in_two_columns(
    head: list[Line], groups: Sequence[Group], width: int, read: Sequence[Reading] = ()
) -> tuple[tuple[Line, ...], tuple[int, ...]]:
    """The groups with a gap between them, about half of the lines on each side."""
    half = (width - 3) // 2
    columns: tuple[list[Line], list[Line]] = ([], [])
    places: list[int] = []
    blocks = [_group_lines(group, half) for group in groups]
    if read:
        blocks.append((_reading_lines(read, half), []))
    total = sum(len(block) + 1 for block, _ in blocks)
    for block, worst_places in blocks:
        is_left = not columns[1] and len(columns[0]) + len(block) // 2 <= total // 2
        column = columns[0] if is_left else columns[1]
        column.append(fitted((), half))
        places += [len(head) + len(column) + place for place in worst_places]
        column += [fitted(line, half) for line in block]
    if not columns[1]:
        return (*head, *columns[0]), tuple(places)
    return (*head, *side_by_side(columns, width, 3)), tuple(sorted(places))


def _reading_lines(read: Sequence[Reading], width: int) -> list[Line]:
    """What the checks looked at."""
    lines: list[Line] = [section((Span("what was read", "title"),), width)]
    label = STATE + TOPIC
    room = max(width - _INDENT - label - 1, 12)
    for reading in read:
        for number, row in enumerate(lines_in(reading.found, room)):
            topic = "" if number else reading.topic
            lines.append((Span(f"{'':{_INDENT}}{topic:{label}}", "dim"), Span(row)))
    return lines


def _group_lines(group: Group, width: int) -> tuple[list[Line], list[int]]:
    """A heading with the verdict of the group, its checks, and where those begin that are not well."""
    style = STYLES[group.worst]
    lines: list[Line] = [section((Span(group.name, "title"),), width, (Span(group.verdict, style),))]
    places = []
    for check in group.checks:
        if check.state in ("problem", "note"):
            places.append(len(lines))
        lines += check_lines(check, width, _INDENT)
    return lines, places


SCREEN = DoctorScreen
