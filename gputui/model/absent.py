"""A value that is absent, and why. A bare None would be drawn as zero, or taken for a fault of the box."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TypeVar

_Value = TypeVar("_Value")


@dataclass(frozen=True, slots=True)
class Missing:
    """Stands for an absent value, with the reason in the user's words."""

    reason: str

    def __str__(self) -> str:
        return f"— ({self.reason})"


def known(value: _Value | Missing) -> _Value | None:
    """The value, or None for whoever has no use for the reason."""
    return None if isinstance(value, Missing) else value
