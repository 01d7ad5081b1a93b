"""A value that is absent, and why."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Missing:
    """Stands for an absent value, with the reason in the user's words."""

    reason: str

    def __str__(self) -> str:
        return f"— ({self.reason})"
