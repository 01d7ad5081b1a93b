"""Converts plain values from a file to model types, rejecting impossible values.

A file may come from anyone. What passes here is computed with, drawn and quoted without another check.
"""

from __future__ import annotations

import math
from dataclasses import fields, is_dataclass
from functools import cache
from threading import Lock
from typing import Any, TypeVar  # Any: JSON that is not yet checked

import msgspec

from gputui.model.journal import (
    CATEGORIES,
    IDLE_CAUSES,
    MEMORY_POINTS,
    PHASES,
    TIME_CLASSES,
    Block,
    CaseEnd,
    Figure,
    Kernel,
    LaunchEnd,
    LaunchStart,
    LineTime,
    MemoryPoint,
    Operator,
    ProfiledPass,
    RunEnd,
    TimeSlice,
)
from gputui.model.plan import LEAST_UNITS, MOST_UNITS, OUTCOMES, PROFILED, TIMED, Case, Work
from gputui.model.serving import LOADS, REQUEST_OUTCOMES, LoadStep, RequestRow
from gputui.worker import FIGURE_BETTER, FIGURE_COMBINES

T = TypeVar("T")

_SIGNED = frozenset({"exit_status", "utc_offset_min"})
_UNSIGNED_64 = frozenset({"seed"})
_AT_LEAST_ONE = {
    (Block, "steps"),
    (Block, "wall_ns"),
    (Block, "device_ns"),
    (LaunchStart, "threads"),
}
WORDS: dict[type, tuple[tuple[str, tuple[str, ...]], ...]] = {
    CaseEnd: (("outcome", OUTCOMES),),
    LoadStep: (("load", LOADS),),
    RequestRow: (("outcome", REQUEST_OUTCOMES),),
    LaunchEnd: (("outcome", OUTCOMES),),
    RunEnd: (("status", ("finished", "interrupted", "failed")),),
    Figure: (
        ("better", FIGURE_BETTER),
        ("combine", FIGURE_COMBINES),
    ),
    LaunchStart: (("purpose", (TIMED, PROFILED)),),
    Operator: (("phase", PHASES), ("category", CATEGORIES)),
    TimeSlice: (("phase", PHASES), ("time_class", TIME_CLASSES), ("cause", ("", *IDLE_CAUSES))),
    Kernel: (("time_class", TIME_CLASSES),),
    MemoryPoint: (("point", MEMORY_POINTS),),
    LineTime: (("phase", PHASES), ("cause", ("", *IDLE_CAUSES))),
}
"""By type, fields with the words that they may be."""
_DEEPEST = 64
LARGEST = 2**63 - 1
LATEST_US = 2**53
"""The year 2255: a monotonic time can be added without exceeding 64 bits."""


class NotValid(ValueError):
    """A value has the wrong type, or is impossible: a negative duration, infinity, 2**70."""


_prepared: set[object] = set()
"""Types that were converted to before."""
_preparing = Lock()


def strict(plain: object, wanted: type[T]) -> T:
    """Rebuild a model value from JSON types, including `{"missing": reason}`. Raises NotValid."""
    value = converted(_missing_restored(plain, 0), wanted)
    _check(value)
    return value


def decoded(text: str | bytes) -> object:
    """The JSON of a line of a journal or of a column. Raises NotValid.

    There are many: msgspec takes a tenth of the time of `read_json`. It refuses the same, but for the depth
    and size of numbers that `strict` refuses.
    """
    try:
        return msgspec.json.decode(text)
    except (msgspec.DecodeError, ValueError, RecursionError) as error:
        raise NotValid(str(error)) from error


def converted(plain: object, wanted: type[T]) -> T:
    """Convert to a type in which nothing may be missing; `strict` of the enclosing value checks the numbers.

    Raises NotValid.
    """
    try:
        if wanted in _prepared:
            return msgspec.convert(plain, wanted)
        with _preparing:  # msgspec prepares a type when it first meets it, and crashes if two threads do
            try:
                return msgspec.convert(plain, wanted)
            finally:
                _prepared.add(wanted)
    except (msgspec.ValidationError, RecursionError, OverflowError) as error:
        raise NotValid(str(error)) from error


def _missing_restored(plain: object, depth: int) -> object:
    if depth > _DEEPEST:
        raise NotValid("nested too deeply")
    if isinstance(plain, dict):
        if len(plain) == 1 and "missing" in plain:
            return {"reason": plain["missing"]}
        deeper = depth + 1
        return {
            key: _missing_restored(value, deeper) if isinstance(value, _NESTED) else value
            for key, value in plain.items()
        }
    if isinstance(plain, list | tuple):
        return [_missing_restored(value, depth + 1) for value in plain]
    return plain


_NESTED = (dict, list, tuple)


_Limits = tuple[tuple[str, int, int, bool], ...]
"""Per field of a class the least and the largest integer, and whether a float may be negative."""


@cache
def _limits_of(kind: type) -> _Limits:
    limits = []
    for field in fields(kind):
        is_signed = kind is Work and field.name == "parameters"
        least = -LARGEST if is_signed or field.name in _SIGNED else int((kind, field.name) in _AT_LEAST_ONE)
        most = 2**64 - 1 if field.name in _UNSIGNED_64 else LARGEST
        if field.name.endswith("_utc_us"):
            most = LATEST_US
        limits.append((field.name, least, most, is_signed))
    return tuple(limits)


def _check(value: Any) -> None:
    kind = value.__class__
    for name, words in WORDS.get(kind, ()):
        if getattr(value, name) not in words:
            raise NotValid(f"{name} is {getattr(value, name)!r}")
    for name, least, most, is_signed in _limits_of(kind):
        part = getattr(value, name)
        if type(part) is not int or not least <= part <= most:  # most numbers are valid
            _check_value(name, part, least, most, is_signed)
    if isinstance(value, Case) and not LEAST_UNITS <= value.units_per_step <= MOST_UNITS:
        raise NotValid(f"units_per_step is {value.units_per_step}")
    if isinstance(value, ProfiledPass) and value.fault():
        raise NotValid(value.fault())


def _check_value(name: str, value: object, least: int, most: int, is_signed: bool) -> None:
    kind = type(value)
    if kind is str or value is None or kind is bool:
        return
    if isinstance(value, int):
        if not least <= value <= most:
            raise NotValid(f"{name} is {value}")
    elif isinstance(value, float):
        if not math.isfinite(value) or (value < 0 and not is_signed):
            raise NotValid(f"{name} is {value}")
    elif isinstance(value, tuple):
        for part in value:
            _check_value(name, part, least, most, is_signed)
    elif is_dataclass(value):
        _check(value)
