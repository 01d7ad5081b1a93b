"""Every key of the Doctor screen."""

from __future__ import annotations

from gputui.tui.shell.registry import Action

ACTIONS: tuple[Action, ...] = (
    Action("check", "r", "Look again", "Look at the box again"),
    Action("next", "n", "Next", "The next fault or caution"),
    Action("previous", "p", "Before", "The one before"),
    Action("copy", "y", "Copy", "Copy the page as text"),
    Action("back", "escape,backspace", "Back", "Cancel a check, or go back to the Monitor"),
    Action("down", "j", "Down", "One line down, as the arrow does"),
    Action("up", "k", "Up", "One line up"),
)
