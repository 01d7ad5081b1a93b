"""Every key of the Monitor screen: footer, help, palette and docs are made from this tuple."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Action:
    """One thing a key does."""

    id: str
    """What `MonitorModel.press` takes."""
    key: str
    """As Textual names it; several are separated by commas, the one to show first."""
    title: str
    """One or two words."""
    tooltip: str


ACTIONS: tuple[Action, ...] = (
    Action("pause", "space", "Pause", "Hold the picture still; sampling goes on"),
    Action("zoom-in", "left_square_bracket", "Shorter", "Charts show a shorter time, down to one minute"),
    Action("zoom-out", "right_square_bracket", "Longer", "Charts show a longer time, up to one hour"),
    Action("sort", "s", "Sort", "Sort the processes by the next column"),
    Action("reverse", "S", "Reverse", "Turn the order of the processes round"),
    Action("filter", "slash", "Filter", "Show the processes whose user, PID or command holds a text"),
    Action("tree", "t", "Tree", "Show processes below those that started them"),
    Action("down", "down,j", "Down", "Select the next process"),
    Action("up", "up,k", "Up", "Select the process before"),
    Action("page-down", "pagedown", "Page down", "Select a process one page further down"),
    Action("page-up", "pageup", "Page up", "Select a process one page further up"),
    Action("first", "home", "First", "Select the first process"),
    Action("last", "end", "Last", "Select the last process"),
    Action("next-gpu", "tab,g", "Next GPU", "Select the next GPU: the last line tells what it lacks, and why"),
    Action("details", "i", "Details", "All values of the selected GPU, and why some are absent"),
    Action("metrics", "m", "Metrics", "Choose what is charted"),
    Action("toggle", "enter", "Choose", "Switch the metric under the cursor on or off"),
    Action("processes", "p", "Processes", "Show or hide the processes"),
    Action("units", "u", "Units", "Memory in GiB or GB, temperature in Celsius or Fahrenheit"),
    Action("faster", "plus", "Faster", "Sample more often, up to five times a second"),
    Action("slower", "minus", "Slower", "Sample less often, down to every ten seconds"),
    Action("back", "escape,backspace", "Back", "Leave details, metrics or the filter"),
)
