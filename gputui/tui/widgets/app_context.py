"""What widgets and screens ask of the app."""

from __future__ import annotations

from typing import Protocol, cast, runtime_checkable

from textual.widget import Widget

from gputui.tui.terminal.theme import Depth


@runtime_checkable
class Shell(Protocol):
    """What screens ask of the app."""

    depth: Depth
    ascii_only: bool
    runs_in_progress: int

    @property
    def has_screens(self) -> bool:
        """Whether there are others beside the monitor."""

    def open_screen(self, screen_id: str, words: tuple[str, ...] = ()) -> None:
        """Show a screen."""

    def keep_error(self, screen_id: str, text: str) -> None:
        """Write an error to the log."""


def shell_of(widget: Widget) -> Shell:
    """The app of a widget."""
    return cast(Shell, widget.app)
