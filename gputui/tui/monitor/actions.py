"""Every key of the Monitor screen, and what keys ask of whoever opened it.

Footer, help and docs are generated from these.
"""

from __future__ import annotations

from dataclasses import dataclass

from gputui.tui.shell.registry import Action

ACTIONS: tuple[Action, ...] = (
    Action("pause", "space", "Pause", "Freeze the display; sampling goes on"),
    Action(
        "filter",
        "slash",
        "Filter",
        "Filter processes by user, PID, command or MIG slice",
        "a process",
    ),
    Action("sort", "s", "Sort", "Sort the processes by the next column", "a process"),
    Action("reverse", "S", "Reverse", "Reverse the sort of the processes", "a process"),
    Action("down", "down,j", "Down", "Select the next process, or the next line of a list"),
    Action("up", "up,k", "Up", "Select the process or line before"),
    Action("page-down", "pagedown", "Page down", "Go one page further down"),
    Action("page-up", "pageup", "Page up", "Go one page further up"),
    Action("first", "home", "First", "Go to the first process or line"),
    Action("last", "end", "Last", "Go to the last process or line"),
    Action(
        "end",
        "x",
        "End",
        "End the selected process: asks, and checks that it is still the same one",
        "a process",
    ),
    Action("demo", "d", "Demo", "Look at eight made-up GPUs at work; q comes back"),
    Action(
        "next-gpu",
        "tab,g",
        "Next GPU",
        "Select the next GPU: its charts, its problems, and why",
        "a GPU",
    ),
    Action("details", "i", "Details", "All values of the selected GPU, and why some are absent", "a GPU"),
    Action("metrics", "m", "Metrics", "Choose what is charted", "a GPU"),
    Action(
        "toggle",
        "enter",
        "Choose",
        "Open the selected GPU; accept a filter, switch a metric, send a signal",
    ),
    Action("yes", "y", "Yes", "Send the signal that is asked about"),
    Action("no", "n", "No", "Send none"),
    Action("processes", "p", "Processes", "Show or hide the processes"),
    Action("zoom-in", "left_square_bracket", "Shorter", "Charts show a shorter time, down to one minute"),
    Action("zoom-out", "right_square_bracket", "Longer", "Charts show a longer time, up to one hour"),
    Action("faster", "plus", "Faster", "Sample more often, up to five times a second"),
    Action("slower", "minus", "Slower", "Sample less often, down to every ten seconds"),
    Action("back", "escape", "Back", "Leave details, metrics, the filter or the question"),
    Action("erase", "backspace", "Erase", "Delete a letter of the filter; elsewhere the same as Back"),
)


@dataclass(frozen=True, slots=True)
class EndProcess:
    """Send a signal to a process, if it is still the one that was shown."""

    pid: int
    start_ticks: int
    """Start time, which must match that of the process with this PID."""
    command: str
    """Cleaned."""
    signal: str = "SIGTERM"
    """One of SIGNALS in `status.py`."""


class ShowDemo:
    """Show made-up GPUs instead of this box, until the user leaves them."""


Asked = EndProcess | ShowDemo
