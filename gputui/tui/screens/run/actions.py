"""Every key of the Run screen: footer, help, palette and docs are made from this tuple."""

from __future__ import annotations

from gputui.tui.shell.registry import Action, shown_key

ACTIONS: tuple[Action, ...] = (
    Action("down", "down,j", "Down", "Go to the next profile, field, case or line"),
    Action("up", "up,k", "Up", "Go to the previous one"),
    Action("next", "tab", "Form", "Go from the profiles to the form and back; to the next run in progress"),
    Action(
        "choose", "enter", "Choose", "Continue: from a profile to its form, from field to field, to the start"
    ),
    Action("start", "r", "Run", "Start the selected profile with the form's options"),
    Action(
        "cases", "d", "Details", "Every case of the profile: what would run here, what would not, and why"
    ),
    Action("copy", "c", "Copy", "Copy the equivalent command line"),
    Action("again", "g", "Look again", "Check the box and the interpreters again"),
    Action("attach", "a", "Watch", "Watch the run in progress"),
    Action("stop", "x", "Stop", "End the run and keep what is finished: asks first"),
    Action("logs", "l", "Logs", "Logs of workers whose launch or case failed; press again to go back"),
    Action("yes", "y", "Yes", "Answer yes"),
    Action("no", "n", "No", "Answer no"),
    Action("results", "o", "Results", "Open the results of the run that has ended"),
    Action("back", "escape", "Back", "Back to the profiles; a run continues in the background"),
    Action("leave", "q,ctrl+backslash", "Leave", "Leave; reminds you first of a run in progress"),
)

TITLES: dict[str, str] = {action.id: action.title for action in ACTIONS}
KEYS: dict[str, str] = {action.id: shown_key(action) for action in ACTIONS}
BY_KEY: dict[str, str] = {key: action.id for action in ACTIONS for key in action.key.split(",")}
