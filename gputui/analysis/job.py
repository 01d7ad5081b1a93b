"""A job in the user's words: `50M tokens train`, `2e9 tokens a month`."""

from __future__ import annotations

import math
import re
from dataclasses import dataclass

from gputui.errors import GputuiError, beginning

GRAMMAR = (
    "AMOUNT tokens|img|seq train, AMOUNT tokens write, AMOUNT requests answer, each with `a day` or `a month`"
    " if it returns, and `in 8h` if it has to be done by then"
)
MOST = 1e18
"""Units of work, or seconds."""
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
_DURATIONS = {"us": 1e-6, "µs": 1e-6, "ms": 1e-3, "s": 1.0, "min": 60.0, "h": 3600.0, "d": 86400.0}
_NUMBER = r"(-?[0-9]+(?:\.[0-9]+)?(?:e[+-]?[0-9]+)?)"
_AMOUNT = re.compile(rf"{_NUMBER} ?([kmbgt]?)", re.IGNORECASE)
_BATCH = re.compile(
    rf"({_AMOUNT.pattern}) ({'|'.join(UNITS)})(?: (?!in\b)([a-z]+))?(?: in (.+))?", re.IGNORECASE
)
_DURATION = re.compile(_NUMBER + r" ?(us|µs|ms|s|min|h|d)(?:ec(?:ond)?s?|utes?|ours?|ays?)?", re.IGNORECASE)


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


def parse_job(text: str) -> Batch:
    """Read one job. Raises GputuiError with what may stand there."""
    words, per = " ".join(_PER.sub(" ", text).split()), _PER.search(text)
    found = _BATCH.fullmatch(words)
    if found is None:
        raise _wrong(text, "is not understood", GRAMMAR)
    amount, _, _, unit, verb, until = found.groups()
    verbs = VERBS[UNITS[unit.lower()]]
    meant = _MEANT.get(verb.lower(), verb.lower()) if verb else verbs[0]
    if meant not in verbs:
        raise _wrong(text, f"{beginning(verb)} is nothing to do with {unit}", " or ".join(verbs))
    within_s = None
    if until is not None:
        duration = _DURATION.fullmatch(until)
        if duration is None:
            allowed = "a number with us, ms, s, min, h or d, such as 50ms"
            raise _wrong(text, f"{beginning(until)} is not a time", allowed)
        within_s = _within(text, until, float(duration[1]) * _DURATIONS[duration[2].lower()])
    return Batch(
        _within(text, amount, amount_of(amount)),
        UNITS[unit.lower()],
        meant,
        within_s,
        per[1].lower() if per else "",
        is_verb_assumed=not verb and len(verbs) > 1,
    )


def amount_of(word: str) -> float:
    """`7e9`, `50M` or `1.5k` as a number; not a number for any other word."""
    found = _AMOUNT.fullmatch(word)
    return float(found[1]) * _SCALES[found[2].lower()] if found else math.nan


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
