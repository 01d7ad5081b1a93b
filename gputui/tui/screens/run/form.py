"""The form: a line of text per field, edited in place."""

from __future__ import annotations

from dataclasses import dataclass

from gputui.services.runs.start import Draft

LONGEST = 500
"""Letters of a field; a paste is cut."""


@dataclass(frozen=True, slots=True)
class Field:
    """One line of the form."""

    name: str
    """As in `Draft`."""
    title: str
    empty: str
    """What holds while nothing is typed."""


FIELDS: tuple[Field, ...] = (
    Field("device", "device", "all in the profile; or cpu, gpu, gpu:1"),
    Field("only", "workloads", "all in the profile; or some, as gemm gpt_train"),
    Field("precision", "precision", "all in the profile; or fp32, tf32, amp"),
    Field("launches", "launches", "the profile's; each is a fresh process"),
    Field("budget", "budget", "the profile's; or seconds"),
    Field("python", "Python", "the first that has torch; or the path of one"),
    Field("hosts", "hosts", "this box only; or ssh hosts: gpu-a gpu-b local"),
    Field("label", "label", "none; a name for this run"),
    Field("price", "price", "not known; USD per hour for the whole box"),
    Field("file", "file", "where results are kept"),
)


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
    def field(self) -> Field | None:
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
        return Draft(profile=profile, **{name: text.text for name, text in self.texts.items()})
