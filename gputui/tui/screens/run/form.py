"""The keys of the Run screen, and its form: a line of text per field, edited in place."""

from __future__ import annotations

from gputui.services.runs.options import OPTIONS, Draft, Option
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


LONGEST = 500
"""Letters of a field; a paste is cut."""


_FIELDS = ("device", "only", "precision", "launches", "budget", "python", "label", "price", "db")
FIELDS = tuple(one for name in _FIELDS for one in OPTIONS if one.name == name)


class EditedText:
    """A line of text with a cursor."""

    def __init__(self) -> None:
        self.text = ""
        self.cursor = 0

    def insert(self, text: str) -> None:
        """Put text where the cursor is: its first line, as much as there is room for."""
        line = text.split("\n")[0].split("\r")[0]
        line = "".join(c for c in line.replace("\t", " ") if c.isprintable())[: LONGEST - len(self.text)]
        self.text = self.text[: self.cursor] + line + self.text[self.cursor :]
        self.cursor += len(line)

    def edit(self, key: str) -> bool:
        """Obey a key that moves or removes, by Textual's name; whether it is one."""
        before, after = self.text[: self.cursor], self.text[self.cursor :]
        match key:
            case "backspace":
                before = before[:-1]
            case "delete":
                after = after[1:]
            case "ctrl+u":
                before = ""
            case "left":
                before, after = before[:-1], before[-1:] + after
            case "right":
                before, after = before + after[:1], after[1:]
            case "home" | "ctrl+a":
                before, after = "", before + after
            case "end" | "ctrl+e":
                before, after = before + after, ""
            case _:
                return False
        self.text, self.cursor = before + after, len(before)
        return True


class RunForm:
    """All fields, which one is selected, and the draft they make."""

    def __init__(self) -> None:
        self.texts = {field.name: EditedText() for field in FIELDS}
        self.selected = 0
        """Index among FIELDS; their number for the line that starts the run."""

    @property
    def field(self) -> Option | None:
        """The selected field; None on the line that starts."""
        return FIELDS[self.selected] if self.selected < len(FIELDS) else None

    @property
    def text(self) -> EditedText | None:
        """Of the selected field."""
        return None if self.field is None else self.texts[self.field.name]

    def move(self, step: int) -> bool:
        """Select another line; whether there is one."""
        to = self.selected + step
        if not 0 <= to <= len(FIELDS):
            return False
        self.selected = to
        return True

    def draft(self, profile: str) -> Draft:
        """What is typed, for a profile."""
        return {"profile": profile, **{name: text.text for name, text in self.texts.items()}}
