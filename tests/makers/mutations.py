"""JSON as nobody should send it, made from JSON as somebody sends it; the same for the same seed."""

from __future__ import annotations

import copy
import json
import random
import re
from collections.abc import Callable
from typing import Any  # JSON

NUMBERS = (
    *("1e308", "-1e308", "1e400", "-1e400", "NaN", "Infinity", "-Infinity", "1e290", "-1e290", "1e-320"),
    *("-1", "0", "-0.0", "18446744073709551616", "-18446744073709551616", "9223372036854775807"),
    *("9" * 400, "9" * 5000, "0x10", "1_000", "+1", "01"),
)
TEXTS = (
    *("", "\x1b[2J\x1b]0;evil\x07", "\u202egnp.exe", "[red]x[/red]", "\ud800", "a\nb\rc\x00", "=1+1"),
    *("x" * 100_000, "🙂" * 3000, "../../etc/passwd", "{}", "host", "nvml 0"),
)
OTHER_TYPES: tuple[Any, ...] = (
    None,
    True,
    False,
    0,
    -1,
    1.5,
    "",
    "text",
    [],
    {},
    [[]],
    {"missing": 7},
    [1, "x"],
)
_NUMBER = "\ue000"
"""Before a number in a text, whose quotes go: json.dumps writes none of NUMBERS."""
_MARKED = re.compile(r'"\\ue000([^"]*)"')


def places_of(value: Any) -> list[tuple[Any, Any]]:
    """Each container in a value with each of its keys."""
    found: list[tuple[Any, Any]] = []
    pending = [value]
    while pending:
        one = pending.pop()
        keys = list(one) if isinstance(one, dict) else list(range(len(one))) if isinstance(one, list) else []
        found += [(one, key) for key in keys]
        pending += [one[key] for key in keys]
    return found


def mutated(value: Any, chance: random.Random) -> bytes:
    """The JSON of a value with one to three faults, or the damaged bytes of it."""
    whole: list[Any] = [copy.deepcopy(value)]
    for _ in range(chance.choice((1, 1, 2, 3))):
        chance.choice(_FAULTS)(whole, chance)
    data = _text(whole[0])
    return chance.choice(_DAMAGES)(data, chance) if chance.random() < 0.3 else data


def _text(value: Any) -> bytes:
    return _MARKED.sub(r"\1", json.dumps(value)).encode()


def _place(whole: list[Any], chance: random.Random) -> tuple[Any, Any]:
    return chance.choice(places_of(whole))


def _other_number(whole: list[Any], chance: random.Random) -> None:
    numbers = [(of, key) for of, key in places_of(whole) if type(of[key]) in (int, float)]
    of, key = chance.choice(numbers or places_of(whole))
    of[key] = _NUMBER + chance.choice(NUMBERS)


def _other_type(whole: list[Any], chance: random.Random) -> None:
    of, key = _place(whole, chance)
    of[key] = copy.deepcopy(chance.choice(OTHER_TYPES))


def _other_text(whole: list[Any], chance: random.Random) -> None:
    texts = [(of, key) for of, key in places_of(whole) if isinstance(of[key], str)]
    of, key = chance.choice(texts or places_of(whole))
    of[key] = chance.choice(TEXTS)


def _missing(whole: list[Any], chance: random.Random) -> None:
    of, key = _place(whole, chance)
    if of is not whole:
        del of[key]


def _renamed(whole: list[Any], chance: random.Random) -> None:
    keys = [(of, key) for of, key in places_of(whole) if isinstance(of, dict)]
    if keys:
        of, key = chance.choice(keys)
        of[chance.choice(TEXTS)] = of.pop(key)


def _nested(whole: list[Any], chance: random.Random) -> None:
    of, key = _place(whole, chance)
    for _ in range(chance.choice((1, 60, 70, 300))):
        of[key] = chance.choice(([of[key]], {"x": of[key]}))


def _repeated(whole: list[Any], chance: random.Random) -> None:
    of, key = _place(whole, chance)
    count = chance.choice((2, 300, 5000))
    if isinstance(of, list) and of is not whole:
        of.extend(copy.deepcopy(of[key]) for _ in range(count if len(json.dumps(of[key])) < 500 else 2))
    elif isinstance(of, dict) and len(json.dumps(of[key])) < 500:
        of.update({f"{key} {number}": copy.deepcopy(of[key]) for number in range(count)})


_FAULTS: tuple[Callable[[list[Any], random.Random], None], ...] = (
    *(_other_number, _other_number, _other_type, _other_type, _other_text, _missing, _renamed, _nested),
    _repeated,
)


def _deep(data: bytes, chance: random.Random) -> bytes:
    return chance.choice((b"[", b'{"a":', b'[{"a":')) * chance.choice((1000, 100_000))


def _cut(data: bytes, chance: random.Random) -> bytes:
    return data[: chance.randrange(len(data) + 1)]


def _flipped(data: bytes, chance: random.Random) -> bytes:
    found = bytearray(data)
    for _ in range(chance.choice((1, 5, 50))):
        if found:
            found[chance.randrange(len(found))] = chance.choice((0, 10, 13, 27, 34, 92, 128, 255, 125, 93))
    return bytes(found)


def _twice(data: bytes, chance: random.Random) -> bytes:
    return data + chance.choice((b"", b",", b"\x00", b"\xef\xbb\xbf")) + data


_DAMAGES: tuple[Callable[[bytes, random.Random], bytes], ...] = (_deep, _cut, _flipped, _twice)
