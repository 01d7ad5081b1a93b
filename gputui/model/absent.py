"""A value that could not be had, and why."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Missing:
    """The place of a value that is absent, with the reason in the user's words."""

    reason: str

    def __str__(self) -> str:
        return f"— ({self.reason})"
