"""Turns plain values from a file into model types, and lets nothing through that cannot be true."""

from __future__ import annotations

import math
from dataclasses import fields, is_dataclass
from typing import Any, TypeVar  # Any: JSON that was not looked at yet

import msgspec

from gputui.model.case import OUTCOMES, Work
from gputui.model.journal import (
    FIGURE_BETTER,
    FIGURE_COMBINES,
    Block,
    CaseEnd,
    Figure,
    LaunchEnd,
    LaunchStart,
    RunEnd,
)
from gputui.model.plan import PROFILED, TIMED
from gputui.model.profiled import (
    CATEGORIES,
    IDLE_CAUSES,
    MEMORY_POINTS,
    PHASES,
    TIME_CLASSES,
    Kernel,
    MemoryPoint,
    Operator,
    ProfiledPass,
    TimeSlice,
)
from gputui.model.units import FIGURE_SUFFIXES

T = TypeVar("T")

_SIGNED = frozenset({"exit_status", "utc_offset_min"})
_UNSIGNED_64 = frozenset({"seed"})
_AT_LEAST_ONE = {
    Block: ("steps", "wall_ns", "device_ns"),
    LaunchStart: ("threads",),
}
_WORDS: dict[type, tuple[tuple[str, tuple[str, ...]], ...]] = {
    CaseEnd: (("outcome", OUTCOMES),),
    LaunchEnd: (("outcome", OUTCOMES),),
    RunEnd: (("status", ("finished", "interrupted", "failed")),),
    Figure: (
        ("unit", tuple(FIGURE_SUFFIXES)),
        ("better", FIGURE_BETTER),
        ("combine", FIGURE_COMBINES),
    ),
    LaunchStart: (("purpose", (TIMED, PROFILED)),),
    Operator: (("phase", PHASES), ("category", CATEGORIES)),
    TimeSlice: (("phase", PHASES), ("time_class", TIME_CLASSES), ("cause", ("", *IDLE_CAUSES))),
    Kernel: (("time_class", TIME_CLASSES),),
    MemoryPoint: (("point", MEMORY_POINTS),),
}
_DEEPEST = 64
LARGEST = 2**63 - 1
LATEST_US = 2**53
"""The year 2255: leaves room to add a monotonic time without leaving 64 bits."""


class NotValid(ValueError):
    """A value has the wrong type, or is one that cannot be: a negative duration, infinity, 2**70."""


def strict(plain: object, wanted: type[T]) -> T:
    """Rebuild a model value from JSON types, `{"missing": reason}` included. Raises NotValid."""
    try:
        value = msgspec.convert(_missing_restored(plain, 0), wanted)
    except (msgspec.ValidationError, RecursionError, OverflowError) as error:
        raise NotValid(str(error)) from error
    _check(value)
    return value


def _missing_restored(plain: object, depth: int) -> object:
    if depth > _DEEPEST:
        raise NotValid("nested too deeply")
    if isinstance(plain, dict):
        if plain.keys() == {"missing"}:
            return {"reason": plain["missing"]}
        return {key: _missing_restored(value, depth + 1) for key, value in plain.items()}
    if isinstance(plain, list | tuple):
        return [_missing_restored(value, depth + 1) for value in plain]
    return plain


def _check(value: Any) -> None:
    kind = type(value)
    for name in _AT_LEAST_ONE.get(kind, ()):
        number = getattr(value, name)
        if number is not None and number < 1:
            raise NotValid(f"{name} is {number}")
    for name, words in _WORDS.get(kind, ()):
        if getattr(value, name) not in words:
            raise NotValid(f"{name} is {getattr(value, name)!r}")
    for field in fields(value):
        _check_value(field.name, getattr(value, field.name), isinstance(value, Work))
    if isinstance(value, ProfiledPass) and value.fault():
        raise NotValid(value.fault())


def _check_value(name: str, value: object, is_work: bool) -> None:
    if isinstance(value, bool | str) or value is None:
        return
    if isinstance(value, int):
        least = -LARGEST if name in _SIGNED or (is_work and name == "parameters") else 0
        most = 2**64 - 1 if name in _UNSIGNED_64 else LARGEST
        if name.endswith("_utc_us"):
            most = LATEST_US
        if not least <= value <= most:
            raise NotValid(f"{name} is {value}")
    elif isinstance(value, float):
        if not math.isfinite(value) or (value < 0 and not (is_work and name == "parameters")):
            raise NotValid(f"{name} is {value}")
    elif isinstance(value, tuple):
        for part in value:
            _check_value(name, part, is_work)
    elif is_dataclass(value):
        _check(value)
