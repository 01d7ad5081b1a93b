"""Every key of the Run screen: footer, help, palette and docs are made from this tuple."""

from __future__ import annotations

from gputui.tui.shell.keymap import Action, shown_key, table_of

ACTIONS: tuple[Action, ...] = (
    Action("down", "down,j", "Down", "Go to the next profile, field, case or line"),
    Action("up", "up,k", "Up", "Go to the one before"),
    Action("next", "tab", "Form", "Go from the profiles to the form and back; to the next run in progress"),
    Action(
        "choose", "enter", "Choose", "Go on: from a profile to its form, from field to field, to the start"
    ),
    Action("start", "r", "Run", "Start the selected profile as the form says"),
    Action(
        "cases", "d", "Details", "Every case of the profile: what would run here, what would not, and why"
    ),
    Action("copy", "c", "Copy", "Copy the command line that does the same"),
    Action("again", "g", "Look again", "Ask the box and the interpreters anew what they have"),
    Action("attach", "a", "Watch", "Watch the run in progress"),
    Action("stop", "x", "Stop", "End the run and keep what is finished: asks first"),
    Action("logs", "l", "Logs", "What workers wrote whose launch or case failed; again: back"),
    Action("yes", "y", "Yes", "Answer the question with yes"),
    Action("no", "n", "No", "Answer the question with no"),
    Action("results", "o", "Results", "Open the results of the run that has ended"),
    Action("back", "escape", "Back", "Back to the profiles; a run goes on without being watched"),
    Action("leave", "q,ctrl+backslash", "Leave", "Leave; reminds you first if a run goes on"),
)

TITLES: dict[str, str] = {action.id: action.title for action in ACTIONS}
KEYS: dict[str, str] = {action.id: shown_key(action) for action in ACTIONS}
BY_KEY: dict[str, str] = {key: action.id for action in ACTIONS for key in action.key.split(",")}


def keys_table() -> str:
    """All keys as a Markdown table; docs/run-screen.md holds it."""
    return table_of(ACTIONS)
