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
    """As in `Draft`, or HOSTS."""
    title: str
    empty: str
    """What holds while nothing is typed."""


HOSTS = "hosts"
"""The field that is no part of a `Draft`: with it other boxes measure."""
FIELDS: tuple[Field, ...] = (
    Field("device", "device", "all in the profile; or cpu, gpu, gpu:1"),
    Field("only", "workloads", "all in the profile; or some, as gemm gpt_train"),
    Field("precision", "precision", "all in the profile; or fp32, tf32, amp"),
    Field("launches", "launches", "the profile's; each is a fresh process"),
    Field("budget", "budget", "the profile's; or seconds"),
    Field("python", "Python", "the first that has torch; or the path of one"),
    Field(HOSTS, "hosts", "this box only; or ssh hosts: gpu-a gpu-b local"),
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
        if key == "backspace":
            if self.cursor:
                self.text = self.text[: self.cursor - 1] + self.text[self.cursor :]
                self.cursor -= 1
        elif key == "delete":
            self.text = self.text[: self.cursor] + self.text[self.cursor + 1 :]
        elif key == "ctrl+u":
            self.text, self.cursor = self.text[self.cursor :], 0
        elif key in ("left", "right"):
            self.cursor = min(max(self.cursor + (1 if key == "right" else -1), 0), len(self.text))
        elif key in ("home", "ctrl+a"):
            self.cursor = 0
        elif key in ("end", "ctrl+e"):
            self.cursor = len(self.text)
        else:
            return False
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
        texts = {name: text.text for name, text in self.texts.items() if name != HOSTS}
        return Draft(profile=profile, **texts)

    @property
    def hosts(self) -> str:
        """The hosts as typed; empty for this box."""
        return self.texts[HOSTS].text.strip()
