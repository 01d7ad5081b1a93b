"""A value that is absent, and why; JSON has that too.

A bare None would be drawn as zero, or taken for a fault of the box.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, fields, is_dataclass
from typing import Any, TypeVar  # Any: a value of any type, and JSON

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


def to_plain(value: Any) -> Any:
    """A value as JSON types: a dataclass by the names of its fields, a Missing as `{"missing": reason}`."""
    if isinstance(value, Missing):
        return {"missing": value.reason}
    if is_dataclass(value):
        return fields_of(value, *(field.name for field in fields(value)))
    if isinstance(value, list | tuple):
        return [to_plain(part) for part in value]
    if isinstance(value, Mapping):
        return {key: to_plain(part) for key, part in value.items()}
    return value


def fields_of(value: object, *names: str) -> dict[str, Any]:
    """These fields and properties of a value as JSON types, by their names, which are public ones."""
    return {name: to_plain(getattr(value, name)) for name in names}
