"""A page of words where there is no table to show: nothing here yet, being read, or cannot be read."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from gputui.store.text import clean_text
from gputui.tui.terminal.lines import Line
from gputui.tui.widgets.lines_page import LinesPage
from gputui.tui.widgets.paragraphs import paragraph

Words = Callable[[int], tuple[Line, ...]]
"""Lines for any width."""


class NoticePage(LinesPage):
    """Words, what they are about, and where esc leads from them."""

    def __init__(self, id: str | None = None) -> None:
        super().__init__(id=id)
        self.heading = ""
        """What the header of the screen says."""
        self.behind = "files"
        """The level that esc leads to: `files`, `runs` or `monitor`."""
        self._words: Words = nothing

    def tell(self, heading: str, words: Words, behind: str, width: int) -> None:
        """Other words."""
        self.heading, self.behind, self._words = heading, behind, words
        self.draw(width)

    def draw(self, width: int) -> None:
        """The same words in so many cells."""
        self.show(self._words(width))


def nothing(width: int) -> tuple[Line, ...]:
    """What is said while something is read: the line for messages tells of it."""
    return ()


def look_again(width: int) -> tuple[Line, ...]:
    """What to do where the list of files was given up."""
    return paragraph("press r to look again", width)


def no_run_in(path: Path) -> Words:
    """What to do with a file that holds nothing."""
    return lambda width: (
        *paragraph(f"{path} holds no run yet.", width),
        *paragraph(f"measure into it: gputui run quick --db {path}", width, "dim"),
    )


def went_wrong(message: str, hint: str) -> Words:
    """What happened, and what to do next."""

    def words(width: int) -> tuple[Line, ...]:
        lines = paragraph(clean_text(message), width, "warn")
        return (*lines, (), *paragraph(clean_text(hint), width)) if hint else lines

    return words
