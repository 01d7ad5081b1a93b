"""Options that several commands have, and the variable of shell completion."""

from __future__ import annotations

from gputui.errors import GputuiError, beginning

COMPLETES = "_GPUTUI_COMPLETE"
"""The variable in which a shell asks for completions."""
MACHINE_HELP = "A name for this box, if nothing else identifies it.  [$GPUTUI_MACHINE]"
_LONGEST_NAME = 80


def machine_from(text: str) -> str:
    """Check what the user calls a box. Raises GputuiError if it is long or not printable."""
    name = text.strip()
    if len(name) > _LONGEST_NAME or not name.isprintable():
        raise GputuiError(
            f"--machine: {beginning(name)!r} is not a name", f"up to {_LONGEST_NAME} printable characters"
        )
    return name
