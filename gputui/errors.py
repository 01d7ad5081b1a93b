"""What users see of errors: the one exception, the exit codes, and text from outside, made safe to show.

Text from a file or host may hold escape sequences; printed as it is, it would write to the user's terminal.
"""

from __future__ import annotations

import unicodedata
from pathlib import Path

EXIT_DONE = 0
EXIT_CASE_FAILED = 1
EXIT_USAGE = 2
EXIT_MACHINE_LACKS = 3
EXIT_NOT_STORED = 4
EXIT_UNDECIDED = 5
"""The data can neither pass nor fail a gate."""
EXIT_NO_RESULT = 6
"""Nothing was measured, or nothing could be compared."""
EXIT_BUG = 70
"""An error that gputui did not foresee; EX_SOFTWARE of sysexits.h."""
EXIT_HUNG_UP = 129
EXIT_INTERRUPTED = 130
EXIT_TERMINATED = 143


class GputuiError(Exception):
    """What happened, with the value; what to do next; and the exit code."""

    def __init__(self, message: str, hint: str = "", exit_code: int = EXIT_USAGE) -> None:
        super().__init__(message)
        self.message = message
        self.hint = hint
        self.exit_code = exit_code
        if hint and hasattr(self, "add_note"):  # Python 3.11: below the message in a traceback
            self.add_note(hint)


class NoFile(GputuiError):
    """There is no result file at this path."""

    def __init__(self, path: Path, message: str, hint: str) -> None:
        super().__init__(message, hint)
        self.path = path


class MachineLacks(GputuiError):
    """This machine lacks what was asked for: a GPU, torch, a device of that name."""

    def __init__(self, message: str, hint: str = "") -> None:
        super().__init__(message, hint, EXIT_MACHINE_LACKS)


class NotStored(GputuiError):
    """The result could not be written to its file; the journal is kept."""

    def __init__(self, message: str, hint: str = "") -> None:
        super().__init__(message, hint, EXIT_NOT_STORED)


class NoResult(GputuiError):
    """Nothing was measured, or nothing could be compared."""

    def __init__(self, message: str, hint: str = "") -> None:
        super().__init__(message, hint, EXIT_NO_RESULT)


def bug_text(error: Exception) -> str:
    """What to say of an error that nobody foresaw, in one part of what goes on."""
    return f"this is a bug in gputui: {type(error).__name__}"


def beginning(text: str, letters: int = 60) -> str:
    """The first letters of an input, for an error message; `…` replaces the rest."""
    return text if len(text) <= letters else f"{text[:letters]}…"


def clean_text(text: str) -> str:
    """One line in which everything is visible and nothing steers the terminal.

    Line breaks, tabs and other spaces become a plain space. A control character, a mark of writing direction
    or a byte that was not UTF-8 is shown as its escape: `\\x1b`, `\\u202e`, `\\xff`.
    """
    if text.isprintable():
        return text
    return "".join(c if c.isprintable() else _shown(c) for c in text)


def clean_lines(text: str) -> str:
    """As `clean_text` for several lines, keeping their line ends."""
    if text.replace("\n", "").isprintable():
        return text
    return "\n".join(
        f"{clean_text(line[:-1])}\r" if line.endswith("\r") else clean_text(line) for line in text.split("\n")
    )


def _shown(character: str) -> str:
    if character in "\n\t" or unicodedata.category(character).startswith("Z"):
        return " "
    code = ord(character)
    if 0xDC80 <= code <= 0xDCFF:  # how Python represents a byte that it could not decode
        code -= 0xDC00
    if code <= 0xFF:
        return f"\\x{code:02x}"
    return f"\\u{code:04x}" if code <= 0xFFFF else f"\\U{code:08x}"
