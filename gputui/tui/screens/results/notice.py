"""A page of text shown when there is no table: nothing to show yet, loading, or an error."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from gputui.services.support.paths import default_result_file
from gputui.tui.shell.registry import SCREENS
from gputui.tui.terminal.lines import Line
from gputui.tui.widgets.lines_page import LinesPage
from gputui.tui.widgets.sections import paragraph

PageText = Callable[[int], tuple[Line, ...]]
"""Lines for any width."""


class NoticePage(LinesPage):
    """Text, its heading, and where esc leads."""

    def __init__(self, id: str | None = None) -> None:
        super().__init__(id=id)
        self.heading = ""
        """The title in the screen's header."""
        self.back_to = "files"
        """Where esc leads: `files`, `runs` or `monitor`."""
        self._text: PageText = nothing

    def set_text(self, heading: str, text: PageText, back_to: str, width: int) -> None:
        self.heading, self.back_to, self._text = heading, back_to, text
        self.draw(width)

    def draw(self, width: int) -> None:
        """Wrap the text to this width."""
        self.show(self._text(width))


def nothing(width: int) -> tuple[Line, ...]:
    """Shown while loading: the line for messages reports progress."""
    return ()


def how_to_list_again(width: int) -> tuple[Line, ...]:
    """Shown after listing the files was cancelled."""
    return paragraph("press r to look again", width)


def no_runs(path: Path) -> PageText:
    """Shown for a file without runs."""
    return lambda width: (
        *paragraph(f"{path} holds no run yet.", width),
        *paragraph(f"measure into it: gputui run quick --db {path}", width, "dim"),
    )


def first_steps(width: int, runs_in_progress: int) -> tuple[Line, ...]:
    """How to measure this box."""
    can_run = any(entry.id == "run" for entry in SCREENS)
    under_way = "A run is in progress and will appear here when it ends. Press 2 to watch it."
    return (
        *paragraph("No runs yet.", width, "title"),
        (),
        *((*paragraph(under_way, width, "warn"), ()) if runs_in_progress else ()),
        *paragraph(f"Measure this box: {'press 2, or in a shell' if can_run else 'in a shell'}", width),
        *paragraph("  gputui run quick", width, "accent"),
        (),
        *paragraph(
            f"Looked in {default_result_file().parent} and {Path.cwd()}. A file elsewhere: press o.",
            width,
            "dim",
        ),
    )
