"""The one reader of JSON, whoever wrote it: a host, a server, another program, another gputui, a file.

What it returns is at most DEEPEST deep, and can be stored and computed with: numbers are finite and fit 64
bits, texts are UTF-8. Which keys there are, and in which range a number must lie, is for the caller to say;
`whole` and `number` help. It uses only the standard library, since the worker reads with it, too.
"""

from __future__ import annotations

import json
import math
import re
from pathlib import Path
from typing import Any  # Any: JSON that is not yet checked

DEEPEST = 64
LARGEST_BYTES = 64 * 2**20
"""Of a text that has no other limit; nothing that gputui writes comes near it."""
_MOST_INTEGER = 2**64 - 1
_SUSPECT = re.compile(r"[0-9]{19}|[eE]\+?[0-9]{3}|\\u[dD][89A-Fa-f]")
"""What a number that is too large has, and a surrogate; most texts have neither, and need no second look."""


def _refused(constant: str) -> Any:
    raise ValueError(f"JSON has no {constant}")


_decode = json.JSONDecoder(parse_constant=_refused).decode
_scan = json.JSONDecoder(parse_float=str, strict=False).raw_decode


def read_json(text: str | bytes, most_bytes: int = LARGEST_BYTES) -> Any:
    """The value of a text. Raises ValueError for everything that is not JSON, too large, deep or infinite."""
    if len(text) > most_bytes:
        raise ValueError(f"it has more than {most_bytes} bytes")
    if isinstance(text, bytes):
        text = text.decode("utf-8")
    try:
        found = _decode(text)
    except RecursionError:
        raise ValueError(_TOO_DEEP) from None
    if text.count("[") + text.count("{") > DEEPEST or _SUSPECT.search(text):
        _check(found)
    return found


def read_json_file(path: Path, most_bytes: int = LARGEST_BYTES) -> Any:
    """The value of a file. Raises OSError, and ValueError as `read_json` does."""
    with path.open("rb") as file:
        return read_json(file.read(most_bytes + 1), most_bytes)


def scan_json(text: str, at: int) -> tuple[Any, int]:
    """The value at a place of a longer text, and the place behind it; numbers with a point stay texts.

    Whole numbers may have any size. Raises StopIteration, or ValueError: JSONDecodeError if it is not whole.
    """
    try:
        found, end = _scan(text, at)
    except RecursionError:
        raise ValueError(_TOO_DEEP) from None
    if text.count("[", at, end) + text.count("{", at, end) > DEEPEST:
        _check_depth(found)
    return found, end


def whole(plain: object, least: int, most: int) -> int:
    """A whole number in a range. Raises ValueError."""
    if type(plain) is not int or not least <= plain <= most:
        raise ValueError(f"{plain!r:.40} is not a whole number from {least} to {most}")
    return plain


def number(plain: object, least: float, most: float) -> float:
    """A number in a range. Raises ValueError."""
    if isinstance(plain, bool) or not isinstance(plain, int | float) or not least <= plain <= most:
        raise ValueError(f"{plain!r:.40} is not a number from {least:g} to {most:g}")
    return float(plain)


_TOO_DEEP = f"it is nested more than {DEEPEST} deep"


def _check_depth(found: object) -> list[object]:
    """All texts and numbers in a value, keys included. Raises ValueError."""
    level, depth, leaves = [found], 0, list[object]()
    while level:
        deeper: list[object] = []
        for one in level:
            if isinstance(one, dict):
                leaves += one
                deeper += one.values()
            elif isinstance(one, list):
                deeper += one
            else:
                leaves.append(one)
                continue
            if depth == DEEPEST:
                raise ValueError(_TOO_DEEP)
        level, depth = deeper, depth + 1
    return leaves


def _check(found: object) -> None:
    for one in _check_depth(found):
        if isinstance(one, str):
            one.encode("utf-8")  # UnicodeEncodeError is a ValueError
        elif isinstance(one, float):
            if not math.isfinite(one):
                raise ValueError("it has a number that is too large")
        elif isinstance(one, int) and not -_MOST_INTEGER <= one <= _MOST_INTEGER:
            raise ValueError("it has a number of more than 64 bits")
