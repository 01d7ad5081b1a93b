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
    Action("filter", "slash", "Filter", "Show the processes whose user, PID or command holds a text"),
    Action("sort", "s", "Sort", "Sort the processes by the next column"),
    Action("reverse", "S", "Reverse", "Turn the order of the processes round"),
    Action("tree", "t", "Tree", "Show processes below those that started them"),
    Action("down", "down,j", "Down", "Select the next process, or the next line of a list"),
    Action("up", "up,k", "Up", "Select the process or line before"),
    Action("page-down", "pagedown", "Page down", "Go one page further down"),
    Action("page-up", "pageup", "Page up", "Go one page further up"),
    Action("first", "home", "First", "Go to the first process or line"),
    Action("last", "end", "Last", "Go to the last process or line"),
    Action("end", "x", "End", "End the selected process: asks, and checks that it is still the same one"),
    Action("next-gpu", "tab,g", "Next GPU", "Select the next GPU: the last line tells what ails it, and why"),
    Action("details", "i", "Details", "All values of the selected GPU, and why some are absent"),
    Action("metrics", "m", "Metrics", "Choose what is charted"),
    Action(
        "toggle",
        "enter",
        "Choose",
        "Open the selected GPU; accept a filter, switch a metric, send a signal",
    ),
    Action("processes", "p", "Processes", "Show or hide the processes"),
    Action("zoom-in", "left_square_bracket", "Shorter", "Charts show a shorter time, down to one minute"),
    Action("zoom-out", "right_square_bracket", "Longer", "Charts show a longer time, up to one hour"),
    Action("units", "u", "Units", "Memory in GiB or GB, temperature in Celsius or Fahrenheit"),
    Action("faster", "plus", "Faster", "Sample more often, up to five times a second"),
    Action("slower", "minus", "Slower", "Sample less often, down to every ten seconds"),
    Action("back", "escape", "Back", "Leave details, metrics, the filter or the question"),
    Action("erase", "backspace", "Erase", "Take back a letter of the filter; elsewhere the same as Back"),
    Action("keys", "question_mark", "Keys", "List all keys"),
)
OF_THE_APP: tuple[Action, ...] = (
    Action("quit", "q", "Quit", "Leave; settings are remembered"),
    Action("interrupt", "ctrl+c", "Interrupt", "Leave, with exit status 130"),
    Action("repaint", "ctrl+l", "Repaint", "Draw the whole screen again, if something else wrote on it"),
    Action("suspend_process", "ctrl+z", "Suspend", "Put the monitor aside; `fg` of the shell brings it back"),
)
"""What the app itself does, on whatever screen."""

_SHOWN_KEYS = {
    "slash": "/",
    "question_mark": "?",
    "left_square_bracket": "[",
    "right_square_bracket": "]",
    "plus": "+",
    "minus": "-",
    "escape": "esc",
    "pagedown": "pgdn",
    "pageup": "pgup",
}


def shown_key(action: Action) -> str:
    """The first key of an action as a person would name it."""
    return shown_keys(action)[0]


def shown_keys(action: Action) -> list[str]:
    """All keys of an action as a person would name them."""
    return [_SHOWN_KEYS.get(key, key) for key in action.key.split(",")]


def keys_table() -> str:
    """All keys as a Markdown table; docs/monitor.md holds it."""
    rows = ["| key | action | what it does |", "|---|---|---|"]
    for action in (*ACTIONS, *OF_THE_APP):
        keys = ", ".join(f"`{key}`" for key in shown_keys(action))
        rows.append(f"| {keys} | {action.title} | {action.tooltip} |")
    return "\n".join(rows) + "\n"
