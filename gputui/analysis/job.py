"""A job in the user's words: `50M tokens train`, `2e9 tokens a month`, `200 rps p99<50ms`."""

from __future__ import annotations

import math
import re
from dataclasses import dataclass

from gputui.errors import GputuiError, beginning

GRAMMAR = (
    "AMOUNT tokens|img|seq train, AMOUNT tokens write, AMOUNT requests answer, each with `a day` or `a month`"
    " if it returns, and `in 8h` if it has to be done by then; or RATE rps, with p50<TIME or p99<TIME"
)
MOST = 1e18
"""Units of work, requests per second, or seconds."""
UNITS: dict[str, str] = {
    "tok": "tok",
    "token": "tok",
    "tokens": "tok",
    "img": "img",
    "image": "img",
    "images": "img",
    "seq": "seq",
    "text": "seq",
    "texts": "seq",
    "req": "req",
    "request": "req",
    "requests": "req",
}
"""What people write, and the unit of `units.RATES` it means."""
VERBS: dict[str, tuple[str, ...]] = {
    "tok": ("train", "write"),
    "img": ("train",),
    "seq": ("train",),
    "req": ("answer",),
}
"""What can be done with a unit, first what is meant where no verb is typed."""
_VERBS = {verb for several in VERBS.values() for verb in several}
RATE_WORDS = ("rps", "req/s", "qps", "requests/s")
_UNIT_WORDS = "tokens, img, seq, requests or rps"
PERCENTILES = {"p50": 0.5, "p99": 0.99}
"""Those that are measured under load."""

_PER = re.compile(r"\s*(?:/|\b(?:per|a|each|every)\s)\s*(day|month)\b", re.IGNORECASE)
_MEANT = {
    "training": "train",
    "generate": "write",
    "generation": "write",
    "decode": "write",
    "serve": "answer",
}
"""Synonyms of the verbs."""
_SCALES = {"": 1.0, "k": 1e3, "m": 1e6, "b": 1e9, "g": 1e9, "t": 1e12}
_SCALE_WORDS = {"thousand": "k", "million": "m", "billion": "b", "trillion": "t"}
_DURATIONS = {"us": 1e-6, "µs": 1e-6, "ms": 1e-3, "s": 1.0, "min": 60.0, "h": 3600.0, "d": 86400.0}
_DURATION_WORDS = {
    **dict.fromkeys(("sec", "second", "seconds"), "s"),
    **dict.fromkeys(("minute", "minutes"), "min"),
    **dict.fromkeys(("hour", "hours"), "h"),
    **dict.fromkeys(("day", "days"), "d"),
}
_NUMBER = r"(-?[0-9]+(?:\.[0-9]+)?(?:e[+-]?[0-9]+)?)"
_GROUPED = re.compile(r"[0-9]{1,3}(?:,[0-9]{3})+(?![0-9,])|[0-9]{1,3}(?:_[0-9]{3})+(?![0-9_])")
_AMOUNT = re.compile(_NUMBER + r"([kmbgt]?)", re.IGNORECASE)
_WITH_UNIT = re.compile(_NUMBER + r"([a-z/]+)", re.IGNORECASE)
_DURATION = re.compile(_NUMBER + r"([a-zµ]+)", re.IGNORECASE)
_BOUND = re.compile(r"(p50|p99)<=?(.+)", re.IGNORECASE)


@dataclass(frozen=True, slots=True)
class Batch:
    """An amount of work to be done once, or each day or month."""

    amount: float
    unit: str
    """A name of `units.RATES`."""
    verb: str
    """`train`, `write` or `answer`."""
    within_s: float | None
    """Time limit in seconds; None without one."""
    per: str = ""
    """`day` or `month`; empty for once."""
    is_verb_assumed: bool = False
    """Whether the verb was not typed, and the unit has several."""

    @property
    def text(self) -> str:
        """The job as it is parsed."""
        each = f" a {self.per}" if self.per else ""
        until = "" if self.within_s is None else f" in {_plain(self.within_s)}s"
        return f"{_scaled(self.amount)} {self.unit} {self.verb}{each}{until}"


@dataclass(frozen=True, slots=True)
class Serving:
    """Requests that arrive at random, for as long as the service runs."""

    per_s: float
    percentile: str
    """`p50` or `p99`; empty if any wait will do."""
    bound_s: float | None
    """Limit of this percentile of the waits; None without a percentile."""

    @property
    def text(self) -> str:
        """The job as it is parsed."""
        bound = "" if self.bound_s is None else f" {self.percentile}<{_plain(self.bound_s)}s"
        return f"{_plain(self.per_s)} rps{bound}"


Job = Batch | Serving


def parse_job(text: str) -> Job:
    """Read one job. Raises GputuiError with the wrong word and what may stand there."""
    words = _in_order(_PER.sub("", text).split())
    if not words:
        raise _wrong(text, "is empty", GRAMMAR)
    if words[0].lower().startswith(tuple(PERCENTILES)):
        raise _wrong(text, "is a bound without a rate", "RATE rps before it, such as 200 rps p99<50ms")
    amount = _amount(text, words[0])
    if len(words) == 1:
        raise _wrong(text, f"{words[0]} of what?", f"{_UNIT_WORDS}, such as '{words[0]} tokens'")
    unit = words[1].lower()
    if unit in RATE_WORDS:
        return _serving(text, amount, "".join(words[2:]))
    if unit not in UNITS:
        raise _wrong(text, f"{beginning(words[1])} is not a unit", _UNIT_WORDS)
    verbs = VERBS[UNITS[unit]]
    rest = words[2:]
    has_verb = bool(rest) and rest[0].lower() != "in"
    verb = _verb(rest.pop(0)) if has_verb else verbs[0]
    if verb not in verbs:
        raise _wrong(text, f"{beginning(words[2])} is nothing to do with {words[1]}", " or ".join(verbs))
    if rest and (rest[0].lower() != "in" or len(rest) == 1):
        raise _wrong(text, f"{beginning(' '.join(rest))} is too much", "in TIME, such as in 8h, or nothing")
    within_s = _duration(text, "".join(rest[1:])) if rest else None
    per = _PER.search(text)
    return Batch(
        amount,
        UNITS[unit],
        verb,
        within_s,
        per[1].lower() if per else "",
        is_verb_assumed=not has_verb and len(verbs) > 1,
    )


def begins_job(text: str) -> bool:
    """Whether a text begins with an amount or a verb, as a job does."""
    first = (text.split() or [""])[0]
    return not math.isnan(amount_of(first)) or _is_amount_with_unit(first) or _verb(first) in _VERBS


def amount_of(word: str) -> float:
    """`7e9`, `50M` or `1.5k` as a number; not a number for any other word."""
    found = _AMOUNT.fullmatch(word)
    return float(found[1]) * _SCALES[found[2].lower()] if found else math.nan


def _verb(word: str) -> str:
    """The verb that a word means; the word itself if it is none."""
    return _MEANT.get(word.lower(), word.lower())


def _in_order(words: list[str]) -> list[str]:
    """Amount, unit, verb, and the rest, reordered if necessary.

    People also write `50 M tokens`, `50 million tokens`, `200rps` and `train 50M tokens`.
    """
    if len(words) > 2 and _verb(words[0]) in _VERBS:
        number = 3 if words[2].lower() in (*_SCALES, *_SCALE_WORDS) else 2
        number -= _is_amount_with_unit(words[1])
        words = [*words[1 : number + 1], words[0], *words[number + 1 :]]
    if not words:
        return words
    first = words[0]
    if _GROUPED.match(first):
        first = first.replace(",", "").replace("_", "")
    if _is_amount_with_unit(first) and (found := _WITH_UNIT.fullmatch(first)):
        return [found[1], found[2], *words[1:]]
    scale = words[1].lower() if len(words) > 1 else ""
    scale = _SCALE_WORDS.get(scale, scale)
    if scale in _SCALES and scale and re.fullmatch(_NUMBER, first, re.IGNORECASE):
        return [first + scale, *words[2:]]
    return [first, *words[1:]]


def _is_amount_with_unit(word: str) -> bool:
    """Whether a word is a number with its unit, such as `200rps`."""
    found = _WITH_UNIT.fullmatch(word)
    return found is not None and found[2].lower() in (*UNITS, *RATE_WORDS)


def _serving(text: str, per_s: float, bound: str) -> Serving:
    if not bound:
        return Serving(per_s, "", None)
    found = _BOUND.fullmatch(bound)
    if found is None:
        raise _wrong(text, f"{beginning(bound)} is not a bound", "p50<TIME or p99<TIME, such as p99<50ms")
    return Serving(per_s, found[1].lower(), _duration(text, found[2]))


def _amount(text: str, word: str) -> float:
    amount = amount_of(word)
    if math.isnan(amount):
        raise _wrong(text, f"{beginning(word)} is not an amount", "a number first, such as 50M, 1e9 or 200")
    return _within(text, word, amount)


def _duration(text: str, word: str) -> float:
    found = _DURATION.fullmatch(word)
    unit = "" if found is None else _DURATION_WORDS.get(found[2].lower(), found[2].lower())
    if found is None or unit not in _DURATIONS:
        raise _wrong(
            text, f"{beginning(word)} is not a time", "a number with us, ms, s, min, h or d, such as 50ms"
        )
    return _within(text, word, float(found[1]) * _DURATIONS[unit])


def _within(text: str, word: str, value: float) -> float:
    if not math.isfinite(value) or not 0 < value <= MOST:
        raise _wrong(text, f"{beginning(word)} is out of range", f"more than 0, at most {MOST:g}")
    return value


def _wrong(text: str, what: str, allowed: str) -> GputuiError:
    return GputuiError(f"--job {beginning(text)!r}: {what}", f"allowed: {allowed}")


def _scaled(number: float) -> str:
    """The number in the largest scale that leaves a whole number: `50M`."""
    for sign in "TBMk":
        scale = _SCALES[sign.lower()]
        if number % scale == 0 and number < 1e15:
            return f"{number / scale:.0f}{sign}"
    return _plain(number)


def _plain(number: float) -> str:
    """The number so that it reads back unchanged: `28800`, `0.05`."""
    return f"{number:.0f}" if number.is_integer() and number < 1e15 else repr(number)
